# Needs python3 (3.11 or later), pip and make; everything else is fetched into .tools and .venv.
BIN := .venv/bin
UV := .tools/bin/uv
STAMP := .venv/.ready

# pytest rewrites the asserts of 400 modules (its plugins, the package, the tests): without a cache on disk each process of
# a test run does that anew, which takes it five seconds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup test test-long up bench bench-instructions docs lock clean
setup: $(STAMP)

$(UV):
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target .tools uv

# Bytecode is compiled once here: `holdfast --help` takes three times as long without it.
$(STAMP): requirements.txt pyproject.toml | $(UV)
	$(UV) venv --quiet --allow-existing --python python3 .venv
	$(UV) pip sync --quiet --require-hashes --compile-bytecode requirements.txt
	$(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

test: setup
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	@$(BIN)/python -m compileall -q holdfast tests
	$(BIN)/python -m bench.instructions --short
	$(BIN)/pytest -n 2 --dist worksteal

# More seeds of what `make test` tries a few of: half an hour.
test-long: setup
	$(BIN)/pytest -n 2 --dist worksteal -m long
	$(BIN)/python -m tests.crash --soak-seconds 600

up: setup
	@$(BIN)/python -m compileall -q holdfast
	cd examples && ../$(BIN)/holdfast up --tools tools --flows . --schedules . --demo

bench: setup
	$(BIN)/python -m bench

# Instruction counts of the hot path, held against bench/instructions.toml; WRITE=1 lets today's counts stand.
bench-instructions: setup
	$(BIN)/python -m bench.instructions $(if $(WRITE),--write)

# The pages that are made from the code.
docs: setup
	$(BIN)/python docs/generate.py

lock: $(UV)
	$(UV) pip compile --quiet --generate-hashes --universal --python-version 3.11 --group dev --extra mcp --extra otel --extra wasm pyproject.toml \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o requirements.txt

clean:
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis examples/*.db* examples/*/*.db*
