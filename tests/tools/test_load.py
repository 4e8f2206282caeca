"""Loading tools by name, and what is said when that fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.errors import NotFound
from holdfast.tools.registry import Registry, load

MODULE = """
from holdfast import tool

@tool
def one(): ...

@tool(name="second")
async def two(): ...

def plain(): ...

several = [one, plain]
"""


FILES = {
    "good_tools": MODULE,
    "no_tools": "x = 1\n",
    "broken_tools": "\n\nx = 1 / 0\n",
    "unparsed_tools": "def (\n",
    "leaving_tools": "raise SystemExit(3)\n",
    "needing_tools": "import no_such_package_anywhere\n",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)


def names(reference: str) -> list[str]:
    return sorted(made.name for made in Registry(load(reference)))


def test_a_module_gives_all_that_is_marked_in_it() -> None:
    assert names("good_tools") == ["one", "second"]


def test_an_object_of_a_module_need_not_be_marked() -> None:
    assert names("good_tools:plain") == ["plain"]
    assert names("good_tools:several") == ["one", "plain"]


REFUSED = [
    ("nowhere_tools", r"no module 'nowhere_tools' to load tools from; is it in this folder"),
    ("good_tools:onne", r"module 'good_tools' has no 'onne'; did you mean one\?"),
    ("no_tools", r"module 'no_tools' has no tools: mark its functions with @tool"),
    ("broken_tools", r"cannot load tools from 'broken_tools': ZeroDivisionError: .*broken_tools\.py:3\)"),
    ("unparsed_tools", r"SyntaxError: .*unparsed_tools\.py:1\)"),
    ("leaving_tools", r"SystemExit: 3"),
    (
        "needing_tools",
        r"ModuleNotFoundError: No module named 'no_such_package_anywhere' \(.*needing_tools\.py:1\)",
    ),
    ("good_tools.py", r"'good_tools\.py' is a path, and tools are loaded from a module: write good_tools$"),
    ("./lib/good_tools.py:one", r"is a path.*write lib\.good_tools:one$"),
    ("/lib/good_tools.py", r"write good_tools in the folder /lib, or with that folder in PYTHONPATH"),
    ("", r"names no module"),
    ("a b", r"names no module"),
    (":one", r"names no module"),
]


@pytest.mark.parametrize(("reference", "words"), REFUSED, ids=[reference for reference, _ in REFUSED])
def test_what_cannot_be_loaded_says_what_to_do(reference: str, words: str) -> None:
    with pytest.raises(NotFound, match=words):
        load(reference)
