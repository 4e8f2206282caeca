"""What users, tools and callers wrote cannot speak to the terminal of the person who looks at it."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from holdfast.cli.render import error_line, table
from holdfast.cli.safe import coloured, harmless, shown, width_of
from holdfast.values import Error
from tests.cli.conftest import Cli
from tests.runtime.receiver import receiving

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
    text = shown(error_line(Error("kind\x1b", f"a\n{HOSTILE}", "path\x9b")))
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


def in_yaml(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f").replace("\\udb40\\udc41", "\\U000e0041")


def assert_harmless(found: subprocess.CompletedProcess[str]) -> None:
    assert found.stdout or found.stderr
    assert DANGEROUS.search(found.stdout + found.stderr) is None, found.args


def test_prompts_and_the_keys_of_signals_are_shown_harmlessly(cli: Cli) -> None:
    flow = cli.flow(f"""
- id: both
  kind: parallel
  steps:
    - {{id: gate, kind: approve, prompt: {in_yaml(HOSTILE)}}}
    - {{id: word, kind: wait_event, signal_key: {in_yaml(HOSTILE)}}}
""")
    begun = cli.run("run", flow)
    run_id = json.loads(cli.run("runs", "list", "--json").stdout)["items"][0]["run_id"]
    asked = [
        cli.run("runs", "show", run_id),
        cli.run("runs", "show", run_id, "--json"),
        cli.run("runs", "explain", run_id),
        cli.run("runs", "explain", run_id, "--json"),
        cli.run("approve", run_id, HOSTILE),
        cli.run("approve", run_id, "both[0].gate", "--deny", "--reason", HOSTILE, "--by", HOSTILE),
        cli.run("signal", run_id, HOSTILE, json.dumps(HOSTILE)),
        cli.run("resume", HOSTILE, "--result", json.dumps(HOSTILE)),
        cli.run("runs", "cancel", run_id, "--reason", HOSTILE),
        cli.run("runs", "show", run_id, "--all-steps"),
    ]
    for found in (begun, *asked):
        assert_harmless(found)
    waits = json.loads(asked[1].stdout)["waits"]
    assert HOSTILE in [wait["detail"].get("prompt") for wait in waits]


def test_dead_letters_are_shown_harmlessly(cli: Cli) -> None:
    with receiving() as receiver:
        receiver.statuses, receiver.answer = [410], HOSTILE.encode()
        flow = cli.flow(
            f"- {{id: s, tool: echo, args: {{value: {in_yaml(HOSTILE)}}}}}",
            on_complete=f"[{{url: '{receiver.url}'}}]",
        )
        assert_harmless(cli.run("run", flow))
        assert_harmless(cli.run("dead-letters", "list"))
        listed = cli.run("dead-letters", "list", "--json")
        assert_harmless(listed)
        (letter,) = json.loads(listed.stdout)["items"]
        assert_harmless(cli.run("dead-letters", "replay", HOSTILE))
        assert_harmless(cli.run("dead-letters", "discard", letter["id"]))


@pytest.mark.parametrize(
    "words",
    [
        ("keys", "create", HOSTILE, "--scope", "read"),
        ("keys", "create", "me", "--scope", HOSTILE),
        ("keys", "create", "me", "--scope", "worker", "--service", HOSTILE),
        ("keys", "create", "me", "--scope", "read", "--tenant", HOSTILE),
        ("keys", "revoke", HOSTILE),
        ("runs", "show", HOSTILE),
        ("run", HOSTILE),
        (HOSTILE,),
        ("runs", "list", f"--{HOSTILE}"),
    ],
    ids=range(9),
)
def test_words_of_the_command_line_are_repeated_harmlessly(cli: Cli, words: tuple[str, ...]) -> None:
    found = cli.run(*words)
    assert found.returncode != 0
    assert_harmless(found)
    listed = cli.run("keys", "list")
    assert DANGEROUS.search(listed.stdout + listed.stderr) is None


ODD_NAMES = [
    b"a\x1b[31m.yaml",
    b"b\xff\x9b31m.yaml",
    "c\u202e.yaml".encode(),
    b"d\nx.yaml:1:1: error: forged.yaml",
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
@pytest.mark.parametrize(
    "words", [("validate",), ("run",), ("flows", "publish")], ids=lambda words: words[-1]
)
@pytest.mark.parametrize("json_too", [(), ("--json",)], ids=["text", "json"])
def test_the_name_of_a_file_is_shown_harmlessly(
    cli: Cli, name: bytes, words: tuple[str, ...], json_too: tuple[str, ...]
) -> None:
    path = os.fsdecode(os.fsencode(cli.folder) + b"/" + name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("name: [")
    found = cli.run(*words, path, *json_too)
    assert found.returncode == 2
    assert_harmless(found)
    assert not re.search(r"^x.yaml:1:1", found.stdout + found.stderr, re.MULTILINE)


def test_a_key_with_the_end_of_a_line_forges_no_other_problem(cli: Cli) -> None:
    flow = cli.flow('- {id: s, tool: echo, "a\\nother.yaml:1:1: error: forged": 1}')
    found = cli.run("validate", flow)
    assert "unknown key" in found.stdout and "\nother.yaml" not in found.stdout
