"""The reference says what the code says: pages are those that would be written now, and the words in them are complete."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import holdfast
from holdfast import limits
from holdfast.cli.commands import COMMANDS
from holdfast.config import SETTINGS
from holdfast.http.routes.task_api import ROUTES as TASK_ROUTES
from holdfast.http.serve import ROUTES
from holdfast.spec.flow_keys import FLOW_KINDS
from holdfast.spec.policy import NEVER_RETRIED
from holdfast.spec.schedule_keys import TRIGGER_KEYS
from holdfast.spec.step_kinds import KINDS
from tests.docs.pages import ROOT

SOURCES = sorted((ROOT / "holdfast").rglob("*.py"))
REPORTING = {
    "add",
    "note",
    "stop",
    "wrong",
    "problem",
    "Problem",
    "Mismatch",
}  # calls whose first argument is a code
FAILING = {"Error", "ToolError", "FailStep"}


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = _generator()


def test_the_schema_of_a_new_database_is_what_the_migrations_make() -> None:
    assert generate.SCHEMA.read_text("utf-8") == generate.schema_of_today(), "run `make docs`"


@pytest.mark.parametrize("page", generate.PAGES)
def test_a_generated_page_is_up_to_date(page: str) -> None:
    written = (ROOT / "docs" / "reference" / page).read_text("utf-8")
    assert written == generate.text_of(page), "run: python docs/generate.py"


def test_the_folder_holds_generated_pages_alone() -> None:
    assert {page.name for page in (ROOT / "docs" / "reference").iterdir()} == set(generate.PAGES)


@cache
def calls_in(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]


def called(name: str, path: Path) -> list[ast.Call]:
    calls = calls_in(path)
    return [call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) == name]


def text_in(node: ast.expr | None) -> list[str]:
    """The words that an argument can be: a text, or either of two."""
    if isinstance(node, ast.IfExp):
        return text_in(node.body) + text_in(node.orelse)
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_every_code_of_a_problem_is_explained() -> None:
    rooms = [path for path in SOURCES if path.parent.name in ("spec", "plan")] + [
        ROOT / "holdfast/cli/check.py"
    ]
    firsts = [
        call.args[0] for path in rooms for name in REPORTING for call in called(name, path) if call.args
    ]
    codes = {code for first in firsts for code in text_in(first) if re.fullmatch(r"[a-z]+(_[a-z]+)*", code)}
    assert codes - set(generate.PROBLEMS) == set()


def test_no_code_is_explained_that_does_not_exist() -> None:
    text = "".join(path.read_text("utf-8") for path in SOURCES)
    assert [code for code in generate.PROBLEMS if f'"{code}"' not in text] == []


def test_every_kind_of_failure_is_explained() -> None:
    kinds = set(NEVER_RETRIED)
    for path in SOURCES:
        for call in called("Error", path):
            kinds.update(text_in(call.args[0] if call.args else None))
        for name in FAILING:
            for call in called(name, path):
                kinds.update(
                    kind for word in call.keywords if word.arg == "kind" for kind in text_in(word.value)
                )
        kinds.update(re.findall(r'^    kind = "(\w+)"$', path.read_text("utf-8"), re.MULTILINE))
    assert kinds - set(generate.ERROR_KINDS) == set()


def test_what_every_kind_of_step_gives_is_said() -> None:
    assert all(kind.output for kind in KINDS.values()) and set(generate.RESULTS) == set(FLOW_KINDS)


def test_what_every_kind_of_trigger_does_is_said() -> None:
    assert set(generate.TRIGGERS) == set(TRIGGER_KEYS)


def test_every_metric_has_words() -> None:
    rows = re.findall(
        r"^\| `(holdfast_\w+)` \| (\w+) \| (.*) \|$", generate.text_of("metrics.md"), re.MULTILINE
    )
    assert len(rows) > 10 and [name for name, _, says in rows if not says] == []


def test_every_route_is_in_the_reference() -> None:
    page = generate.text_of("http.md")
    shown = {route.path for route in ROUTES if f"`{route.method} {route.path}`" in page}
    copies = {route.path for route in TASK_ROUTES} - shown
    assert {route.path for route in ROUTES if route.is_listed} == shown | copies
    assert all(path.startswith("/api") or f"/workers{path}" in shown for path in copies)


def test_every_setting_is_explained() -> None:
    assert set(generate.SETTINGS) == set(SETTINGS)


def test_every_limit_of_the_reference_has_a_setting() -> None:
    documented = [name for names in generate.LIMITS.values() for name in names]
    assert len(documented) == len(set(documented))
    assert {name for name in documented if name not in SETTINGS} == set(limits.NAMES)
    page = generate.text_of("limits.md")
    assert [
        name for name in documented if f"`limits.{name}` |" not in page and f"`{name}` |" not in page
    ] == []


def test_every_command_and_public_name_is_in_the_reference() -> None:
    text = "".join(generate.text_of(page) for page in generate.PAGES)
    assert [name for name in COMMANDS if f"## holdfast {name}\n" not in text] == []
    assert [name for name in holdfast.__all__ if name not in text] == []
