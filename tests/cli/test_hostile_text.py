"""What users, tools and callers wrote cannot speak to the terminal of the person who looks at it."""

from __future__ import annotations

import json
import re

import pytest

from holdfast.cli.safe import coloured, harmless, shown, width_of
from holdfast.cli.show import table, told
from holdfast.values import Error
from tests.cli.conftest import Cli

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202edne\u2066\u200bz\u200f\u2028\x7f\ufeff\U000e0041"
DANGEROUS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


@pytest.mark.parametrize("char", sorted(set(HOSTILE) - set("[]2J0;owned31mdz")), ids=ascii)
def test_each_dangerous_character_is_shown_as_an_escape(char: str) -> None:
    text = shown(f"a{char}b")
    assert DANGEROUS.search(text) is None
    assert json.loads(f'"{text}"') == f"a{char}b"


def test_our_colours_are_kept_and_those_of_others_are_not() -> None:
    text = shown(coloured("fine \x1b[31mred", "32"))
    assert text == "\x1b[32mfine \\u001b[31mred\x1b[0m"


def test_other_scripts_and_lines_are_left_as_they_are() -> None:
    assert shown("grüß\n\tשלמ 日本 ✓") == "grüß\n\tשלמ 日本 ✓"


def test_columns_are_as_wide_as_what_is_seen_in_them() -> None:
    lines = shown(table(("A", "B"), [("\x1b", "x"), (coloured("ok", "32"), "y\nz")])).splitlines()
    assert lines == ["A       B", "\\u001b  x", "\x1b[32mok\x1b[0m      y\\u000az"]
    assert width_of("\x1b") == len(harmless("\x1b"))


def test_an_error_is_told_in_one_harmless_line() -> None:
    text = shown(told(Error("kind\x1b", f"a\n{HOSTILE}", "path\x9b")))
    assert DANGEROUS.search(text) is None and "\n" not in text


def test_no_command_writes_what_others_wrote_as_it_is(cli: Cli) -> None:
    """Every field that takes text has it; the names of workflows and steps refuse it."""
    hostile = json.dumps(HOSTILE).replace("\x7f", "\\u007f").replace("\\udb40\\udc41", "\\U000e0041")
    quiet = json.dumps("a\u200bb\u200f")  # what a label may hold
    steps = f"""
- {{id: say, tool: echo, description: {hostile}, args: {{value: {hostile}}}}}
- {{id: bad, tool: fail, args: {{message: {hostile}, kind: {hostile}}}}}
"""
    flow = cli.flow(steps, description=hostile, labels=f"{{{quiet}: {quiet}}}")
    begun = cli.run("run", flow)
    assert begun.returncode == 1
    run_id = json.loads(cli.run("runs", "list", "--json").stdout)["items"][0]["run_id"]
    asked = [
        cli.run("runs", "list"),
        cli.run("runs", "show", run_id),
        cli.run("runs", "show", run_id, "--all-steps", "--json"),
        cli.run("runs", "explain", run_id),
        cli.run("runs", "watch", run_id),
        cli.run("runs", "watch", run_id, "--json"),
        cli.run("runs", "list", "--workflow", HOSTILE.replace("\0", "")),
    ]
    for found in (begun, *asked):
        assert found.stdout or found.stderr
        assert DANGEROUS.search(found.stdout + found.stderr) is None
    assert json.loads(asked[2].stdout)["steps"]["say"]["output"] == HOSTILE
