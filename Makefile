# Needs python3 (3.11 or later), pip and make; everything else is fetched into .tools and .venv.
BIN := .venv/bin
UV := .tools/bin/uv
STAMP := .venv/.ready
PAGE := holdfast/ui/dist/index.html
PAGE_SOURCES := $(shell find ui -type f -not -path '*/node_modules/*')

# pytest rewrites the asserts of 400 modules (its plugins, the package, the tests): without a cache on disk each process of
# a test run does that anew, which takes it five seconds.
export PYTHONDONTWRITEBYTECODE :=

# A third of the time tests wait for browsers, processes and disks: three processes keep two cores at work.
WORKERS := -n 3

.PHONY: setup test check-types check-page test-long test-pythons up bench bench-instructions docs screenshots lock clean
setup: $(STAMP) $(PAGE)

$(UV):
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target .tools uv

# Bytecode is compiled once here: `holdfast --help` takes three times as long without it.
$(STAMP): requirements.txt pyproject.toml | $(UV)
	$(UV) venv --quiet --allow-existing --python python3 .venv
	$(UV) pip sync --quiet --require-hashes --compile-bytecode requirements.txt
	$(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q holdfast
	@touch $(STAMP)

# The web page. Without a package registry it is left out, and the server says at / how to get it.
$(PAGE): $(PAGE_SOURCES) | $(STAMP)
	@$(BIN)/python ui/build.py

test: setup
	@$(BIN)/python -m compileall -q holdfast tests
	@$(MAKE) --no-print-directory -j 2 --output-sync=target check-types check-page
	$(BIN)/pytest $(WORKERS) --dist worksteal

# mypy and callgrind take a minute each and use one core each, so they run side by side: counts do not depend on the load.
check-types:
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy

check-page:
	$(BIN)/python ui/build.py test
	@$(BIN)/python -m tests.ui.chromium
	$(BIN)/python -m bench.instructions --short

# More seeds of what `make test` tries a few of: half an hour.
test-long: setup
	$(BIN)/pytest $(WORKERS) --dist worksteal -m long
	$(BIN)/python -m tests.sim --layer world --seeds 0:1000 --yield-reads 1
	$(BIN)/python -m tests.crash --soak-seconds 600
	$(BIN)/python -m tests.cluster --faults 600

# The tests under each Python that is installed here, in an environment of its own.
PYTHONS ?= $(sort $(wildcard $(HOME)/.pyenv/versions/3.1[1-4]*/bin/python3) \
  $(foreach version,11 12 13 14,$(shell python3.$(version) -c 'import sys; print(sys.prefix + "/bin/python3")' 2>/dev/null)))

test-pythons: setup
	@for python in $(PYTHONS); do \
		export VIRTUAL_ENV=$(CURDIR)/.tools/python-$$($$python -c 'import platform; print(platform.python_version())'); \
		echo "$$python in $$VIRTUAL_ENV"; \
		$(UV) venv --quiet --allow-existing --python $$python $$VIRTUAL_ENV \
			&& $(UV) pip sync --quiet --require-hashes requirements.txt \
			&& $(UV) pip install --quiet --no-deps --no-build-isolation --editable . \
			&& $$VIRTUAL_ENV/bin/python -m pytest $(WORKERS) --dist worksteal || exit 1; \
	done

up: setup
	@$(BIN)/python -m compileall -q holdfast
	cd examples && ../$(BIN)/holdfast up --tools tools --flows . --schedules . --demo --reload

bench: setup
	$(BIN)/python -m bench

# Instruction counts of the hot path, held against bench/instructions.toml; WRITE=1 lets today's counts stand.
bench-instructions: setup
	$(BIN)/python -m bench.instructions $(if $(WRITE),--write)

# The pages that are made from the code.
docs: setup
	$(BIN)/python docs/generate.py

# The pictures of the page in the README, taken with Debian's chromium.
screenshots: setup
	@$(BIN)/python -m tests.ui.chromium
	$(BIN)/python -m docs.screenshots

lock: $(UV)
	$(UV) pip compile --quiet --generate-hashes --universal --python-version 3.11 --group dev --extra mcp --extra otel --extra wasm --extra postgres --extra s3 pyproject.toml \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o requirements.txt
	$(MAKE) -s $(STAMP)
	$(BIN)/python ui/build.py lock

clean:
	rm -rf .venv .tools ui/node_modules holdfast/ui/dist .mypy_cache .ruff_cache .pytest_cache .hypothesis examples/*.db* examples/*/*.db*
