"""The map of the house, held by a test: who may import whom, and what the core must not know."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from holdfast.engine.state import Run

HOUSE = Path(__file__).parents[1] / "holdfast"
FILES = sorted(HOUSE.rglob("*.py"))

# Open to all. They may see only what stands before them.
LEAVES = (
    "version",
    "nearest",
    "limits",
    "jsontext",
    "values",
    "errors",
    "signing",
    "arguments",
    "local_socket",
    "threads",
)

# The rooms that drive runs. They stand side by side: modules of one may use modules of another, but never in a circle.
SERVICES = ("runtime", "execution", "workers", "waits", "deliveries", "triggers", "views", "ops")
BENEATH = ("store", "schedule", "engine", "plan", "plugins", "tools", "spec", "config")

# Each room names only rooms above it, so there can be no cycle. `root` is holdfast/__init__.py.
ABOVE: dict[str, set[str]] = {
    "config": set(),
    "spec": set(),
    "tools": {"spec"},
    "plugins": {"spec", "tools"},
    "plan": {"spec"},
    "engine": {"plan"},
    "schedule": {"spec"},
    "store": {"plan", "engine", "schedule"},
    "listening": set(),
    "stopping": set(),
    "api.types": set(),
    **{room: {*BENEATH, *SERVICES} - {room} for room in SERVICES},
    "api": {"api.types", "config", *SERVICES},
    "http": {"api", "api.types", "mcp", "listening", "stopping", "config", *SERVICES},
    "mcp": {"api", "api.types", "config", *SERVICES},
    "sdk": {"api.types", "listening", "tools", "spec", "config"},
    "answering": {"http", "tools", "config", *SERVICES},
    "embed": {"answering", "api", "plugins", "tools", "spec", "config", *SERVICES},
    "compat": {"embed", "http", "mcp", "schedule", "spec", "config", *SERVICES},
    "testing": {"embed", "tools", "spec", *SERVICES},
    "root": {"embed", "compat", "plugins", "sdk", "tools", "spec"},
}
ABOVE["cli"] = set(ABOVE) - {
    "testing",
    "engine",
}  # where the parts are put together, without looking into the core
ABOVE["__main__"] = {"cli"}

# Where this house still differs from its map, and why.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("engine/retry.py", "spec"): "the plan handler RetryPolicy on; the engine reads it by its own name",
    (
        "embed/__init__.py",
        "store",
    ): "it makes the store and the engine itself, from arguments instead of settings",
}

PURE = ("engine", "schedule")
IMPURE = {
    "asyncio", "concurrent", "apsw", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select",
    "selectors", "signal", "socket", "sqlite3", "subprocess", "threading", "time", "urllib", "uuid", "uvloop",
}  # fmt: skip
NOTATION = re.compile(
    r"yaml|WorkflowSpec|WorkflowStep|FlowDef|jsonpath|foreach|parallel|on_any_fail|wait_event", re.IGNORECASE
)


def room_of(module: str) -> str:
    """`holdfast.engine.state` → engine; `holdfast.api.types`, which clients import too, is a room of its own."""
    parts = module.split(".")[1:]
    if not parts or parts == ["__init__"]:
        return "root"
    return "api.types" if parts[:2] == ["api", "types"] else parts[0]


def module_of(path: Path) -> str:
    return ".".join(("holdfast", *path.relative_to(HOUSE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_of(path) for path in FILES}


@cache
def tree_of(path: Path) -> ast.Module:
    """The program in a file, without docstrings. To parse and walk the whole package takes seconds: it is done once."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


@cache
def code_of(path: Path) -> list[str]:
    """The lines of the program, without comments and docstrings."""
    return ast.unparse(tree_of(path)).splitlines()


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            assert node.module is not None
            # `from holdfast import values` names a module of the house, `from holdfast import tool` a public name.
            yield from (
                (f"{node.module}.{alias.name}" for alias in node.names)
                if node.module == "holdfast"
                else (node.module,)
            )


@cache
def modules_of(path: Path) -> frozenset[str]:
    """The modules of the house that a file imports, also those only for type checking, or within a function."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from holdfast.engine import step` names a module, `from holdfast.engine.step import step` a function.
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= full & MODULES or {node.module}
    return frozenset(found & MODULES)


def rooms_imported_by(path: Path) -> set[str]:
    modules = [name for name in imports_of(path) if name == "holdfast" or name.startswith("holdfast.")]
    return {room_of(name) for name in modules} - {"__version__"}


def named(path: Path) -> str:
    return str(path.relative_to(HOUSE))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_imports_only_point_left(path: Path) -> None:
    room = room_of(module_of(path))
    allowed = {room, *LEAVES} if room not in LEAVES else set(LEAVES[: LEAVES.index(room)]) | {room}
    allowed |= ABOVE.get(room, set())
    allowed |= {to for (file, to) in EXCEPTIONS if file == named(path)}
    assert rooms_imported_by(path) <= allowed


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for type checking count: a circle of them is a circle of ideas, and one import away from a real one."""
    left = {module_of(path): set(modules_of(path)) for path in FILES}
    while free := {module for module, imported in left.items() if not imported & left.keys()}:
        left = {module: imported & left.keys() for module, imported in left.items() if module not in free}
    assert left == {}  # the circles, and what imports them


def test_every_room_is_on_the_map() -> None:
    rooms = {room_of(module_of(path)) for path in FILES}
    assert rooms <= set(ABOVE) | set(LEAVES)


def test_every_exception_is_still_needed() -> None:
    for file, room in EXCEPTIONS:
        assert room in rooms_imported_by(HOUSE / file), (
            f"{file} no longer imports {room}: take it off the list"
        )


@pytest.mark.parametrize("path", [path for path in FILES if room_of(module_of(path)) in PURE], ids=named)
def test_the_core_knows_no_clock_no_chance_and_no_outside(path: Path) -> None:
    assert {name.split(".")[0] for name in imports_of(path)} & IMPURE == set()


@pytest.mark.parametrize("path", [path for path in FILES if room_of(module_of(path)) in PURE], ids=named)
def test_the_core_waits_for_nothing_and_reads_no_clock(path: Path) -> None:
    for node in nodes_of(path):
        assert not isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in ("now", "utcnow", "today"), f"line {node.lineno} reads the clock"


@pytest.mark.parametrize("path", sorted((HOUSE / "engine").glob("*.py")), ids=named)
def test_the_engine_has_no_word_of_a_notation(path: Path) -> None:
    found = [f"{number}: {line.strip()}" for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
             if NOTATION.search(line)]  # fmt: skip
    assert found == []


@pytest.mark.parametrize(
    ("module", "users"),
    [
        ("step", {"runtime/door.py"}),  # a new event
        ("replay", {"runtime/load.py"}),  # a stored row
        ("decide", set()),
        ("fold", set()),
    ],
)
def test_a_run_changes_by_a_step_at_the_door_or_by_replay(module: str, users: set[str]) -> None:
    outside = [path for path in FILES if room_of(module_of(path)) != "engine"]
    assert {named(path) for path in outside if f"holdfast.engine.{module}" in modules_of(path)} == users


@pytest.mark.parametrize("path", [path for path in FILES if room_of(module_of(path)) != "engine"], ids=named)
def test_nothing_outside_the_engine_writes_to_a_run(path: Path) -> None:
    """Reads are free. A name that ends in `run` is taken for one; `ResidentRun` and views have fields of their own."""
    fields = set(Run.__struct_fields__)
    writes = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store | ast.Del)
        and node.attr in fields
        and re.search(r"(^|[._])run$", ast.unparse(node.value))
    ]
    assert writes == []


def test_only_the_opener_of_stores_names_a_dialect() -> None:
    """A second database is a folder beside the first and a line in store/open.py; nothing else changes."""
    dialect = ("holdfast.store.sqlite", "apsw")
    outside = [path for path in FILES if not named(path).startswith("store/sqlite/")]
    assert [
        named(path) for path in outside if any(name.startswith(dialect) for name in imports_of(path))
    ] == ["store/open.py"]


@pytest.mark.parametrize("path", FILES, ids=named)
def test_nothing_sleeps_by_blocking(path: Path) -> None:
    assert [line for line in code_of(path) if "time.sleep" in line or "from time import sleep" in line] == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_only_the_clock_reads_the_time_of_day(path: Path) -> None:
    """Elsewhere it is a hidden input. The command line shows people how long is left, which decides nothing, and a worker
    that was given no name takes one that no other has. A store of many nodes numbers runs by it, and compares it with the database's."""
    if named(path) in ("runtime/clock.py", "cli/render.py", "sdk/worker.py", "store/postgres/node_clock.py"):
        return
    reads = re.compile(r"\btime\.time(_ns)?\(|datetime\.(now|utcnow|today)\(")
    assert [line for line in code_of(path) if reads.search(line)] == []


def test_sql_stands_in_sql_files() -> None:
    """Statements have names and reasons there; the two dialects stand side by side."""
    statement = re.compile(r"\b(SELECT .+ FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM)\b")
    found = {named(path) for path in FILES for line in code_of(path) if statement.search(line)}
    # where it asks whether there is a schema at all, and where the statements of a commit are put together to one
    assert found <= {"store/sqlite/opening.py", "store/postgres/writes.py"}


def test_production_code_does_not_import_the_tests() -> None:
    for path in FILES:
        test_only = ("tests", "bench") if named(path).startswith("testing/") else ("tests", "bench", "pytest")
        assert not any(name.split(".")[0] in test_only for name in imports_of(path)), path


# ------------------------------------------------------------------------------------------------------ sizes

METHODS_MAX = 15


def _public_methods(node: ast.ClassDef) -> int:
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sum(not each.name.startswith("_") for each in methods)


def test_every_class_with_many_methods_says_why_it_is_not_split() -> None:
    classes = [node for path in FILES for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    large = {node.name for node in classes if _public_methods(node) > METHODS_MAX}
    _, _, rest = (
        (HOUSE.parent / "ARCHITECTURE.md")
        .read_text()
        .partition("\n## Classes with more than 15 public methods")
    )
    rows = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    explained = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(explained) == sorted(large)
