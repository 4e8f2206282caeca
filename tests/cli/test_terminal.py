"""On a terminal a run is a tree that is drawn again and again."""

from __future__ import annotations

import getpass
import json
import os
import pty
import re
import signal
from collections.abc import Callable

import pytest

from holdfast import SyncClient
from tests.cli.conftest import Cli
from tests.forks import Program

HIDE_CURSOR = "\x1b[?25l"
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def started(cli: Cli, *args: str) -> tuple[Program, int]:
    """The command on a terminal of its own, and our end of that."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = Program("holdfast", args, cwd=cli.folder, env=env, terminal=theirs)
    cli.started.append(process)
    os.close(theirs)
    return process, ours


def watched(cli: Cli, *args: str) -> tuple[int, str]:
    """The exit code, and all that the terminal was sent."""
    process, ours = started(cli, *args)
    seen = b""
    while chunk := _read(ours):
        seen += chunk
    os.close(ours)
    return process.wait(120), seen.decode()


def on_a_terminal(cli: Cli, *args: str) -> str:
    """What a person sees of a run that completes, without the colours."""
    code, seen = watched(cli, *args)
    assert code == 0
    return CONTROLS.sub("", seen)


def on_a_terminal_until(cli: Cli, sign: str, files: str, *args: str) -> str:
    """The same of a run that goes on once a person has seen the sign and made some files."""
    process, ours = started(cli, *args)
    raw, seen, is_told = b"", "", False
    while chunk := _read(ours):
        raw += chunk
        seen = CONTROLS.sub("", raw.decode(errors="ignore"))
        if not is_told and re.search(sign, seen):
            is_told = True
            for file in files.split():
                cli.write(file, "")
    os.close(ours)
    assert (process.wait(120), is_told) == (0, True), seen
    return seen


def left_when(cli: Cli, is_enough: Callable[[str], bool], *args: str) -> str:
    """The same of a run that a person leaves, once they have seen enough of it."""
    process, ours = started(cli, *args)
    raw, seen, is_left = b"", "", False
    while chunk := _read(ours):
        raw += chunk
        seen = CONTROLS.sub("", raw.decode(errors="ignore"))
        if not is_left and is_enough(seen):
            is_left = True
            os.write(ours, b"\x03")
    os.close(ours)
    assert (process.wait(120), is_left) == (128 + signal.SIGINT, True), seen
    return seen


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


PULLED = "- {id: first, tool: note, args: {text: hello}}\n- {id: plug, tool: pull}"
PULL = """
import os, signal
from holdfast import Context, tool

@tool
def pull(context: Context):
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return context.attempt
"""


def test_the_run_can_be_gone_on_with_after_the_plug_was_pulled_on_a_terminal(cli: Cli) -> None:
    cli.write("pull.py", PULL)
    code, seen = watched(cli, "run", cli.flow(PULLED), "--tools", "tools", "--tools", "pull")
    assert code == -signal.SIGKILL
    found = re.search(r"run (\S+) of flow\r\n", seen)
    assert found is not None, seen
    on_a_terminal(cli, "run", "--continue", found[1], "--tools", "tools", "--tools", "pull")
    assert cli.notes() == ["hello"]


def test_the_cursor_is_never_hidden(cli: Cli) -> None:
    cli.write("pull.py", PULL)
    _, seen = watched(cli, "run", cli.flow(PULLED), "--tools", "tools", "--tools", "pull")
    assert HIDE_CURSOR not in seen


def test_a_terminal_shows_which_run_it_is_once(cli: Cli) -> None:
    seen = on_a_terminal(cli, "run", cli.flow("- {id: s, tool: add, args: {a: 1}}"), "--tools", "tools")
    assert len(re.findall(r"run \S+ of flow", seen)) == 1


def test_a_run_whose_terminal_is_closed_gives_its_attempts_back(cli: Cli) -> None:
    process, ours = started(cli, "run", cli.flow("- {id: s, tool: hold}"), "--tools", "tools")
    seen = b""
    while b"at work" not in seen:
        chunk = _read(ours)
        assert chunk, seen
        seen += chunk
    os.close(ours)
    assert process.wait(120) == 128 + signal.SIGHUP
    found = re.search(r"run (\S+) of flow", seen.decode())
    assert found is not None
    done = cli.run("run", "--continue", found[1], "--tools", "tools")
    assert done.returncode == 0
    assert "was lost" not in done.stderr


def test_all_steps_are_lines_on_a_terminal_too(cli: Cli) -> None:
    args = ("--tools", "tools", "--all-steps", "--inputs", json.dumps({"of": [1] * 60}))
    steps = """
- id: loop
  kind: foreach
  items: $.inputs.of
  steps: [{id: one, tool: add, args: {a: 1}}]
"""
    seen = on_a_terminal(cli, "run", cli.flow(steps), *args)
    assert len(re.findall(r"✓ loop\[\d+\]\.one +completed", seen)) == 60


def test_a_terminal_shows_steps_to_come_and_steps_that_are_tried_again(cli: Cli) -> None:
    steps = """
- {id: first, tool: flaky, args: {times: 1}, retry: {max_attempts: 2, initial_delay_ms: 3600000, max_delay_ms: 3600000}}
- {id: second, tool: note, args: {text: hello}}
"""

    def both(seen: str) -> bool:
        return "· second" in seen and re.search(r"↻ first +attempt 1 failed: busy", seen) is not None

    assert "noting hello" not in left_when(cli, both, "run", cli.flow(steps), "--tools", "tools")


def test_a_terminal_shows_steps_done_and_what_they_print(cli: Cli) -> None:
    flow = cli.flow("- {id: second, tool: note, args: {text: hello}}")
    seen = on_a_terminal(cli, "run", flow, "--tools", "tools")
    assert re.search(r"✓ second +completed", seen)
    assert "noting hello" in seen


def test_a_terminal_shows_how_far_a_loop_is(cli: Cli) -> None:
    steps = """
- id: loop
  kind: foreach
  items: $.inputs.of
  steps: [{id: one, tool: stay, args: {until: "{{item}}"}}]
"""
    args = ("run", cli.flow(steps), "--tools", "tools", "--inputs", '{"of": ["tools.py", "b", "c"]}')
    seen = on_a_terminal_until(cli, r"loop +[━╌]+ running, 1 of 3", "b c", *args)
    assert re.search(r"loop +completed in .*, 3 of 3", seen)
    assert "loop[1].one" in seen


def test_a_long_workflow_is_cut_to_the_screen(cli: Cli) -> None:
    steps = "\n".join(f"- {{id: s{number}, tool: add, args: {{a: 1}}}}" for number in range(200))
    seen = on_a_terminal(cli, "run", cli.flow(steps), "--tools", "tools")
    assert re.search(r"✓ \d+ earlier steps", seen)
    assert re.search(r"✓ s199 +completed", seen)


def test_a_terminal_counts_down_what_a_timer_waits(cli: Cli) -> None:
    def left(seen: str) -> list[int]:
        shown = re.findall(r"◷ nap +waits (\d+) min (\d+) s", seen)
        return [60 * int(minutes) + int(seconds) for minutes, seconds in shown]

    flow = cli.flow("- {id: nap, kind: timer, delay_ms: 600000}")
    seen = left_when(cli, lambda seen: len(set(left(seen))) > 2, "run", flow)
    assert left(seen) == sorted(left(seen), reverse=True)


def test_a_failure_is_red_on_a_terminal_and_says_what_to_do(cli: Cli) -> None:
    code, seen = watched(cli, "run", cli.flow("- {id: s, tool: fail}"), "--tools", "tools")
    assert code == 1
    assert re.search(r"\x1b\[31mfailed after .*no luck", seen)
    assert re.search(r"holdfast runs rerun \S+ --from s --tools tools", CONTROLS.sub("", seen))


def test_no_colour_is_used_where_none_is_wanted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    _, seen = watched(cli, "run", cli.flow("- {id: s, tool: fail}"), "--tools", "tools")
    assert "\x1b[31m" not in seen


def test_a_list_is_coloured_by_status_on_a_terminal(cli: Cli) -> None:
    cli.run("run", cli.flow("- {id: s, tool: fail}"), "--tools", "tools")
    _, seen = watched(cli, "runs", "list")
    assert "\x1b[31m✗ failed\x1b[0m" in seen


def test_ctrl_c_on_a_terminal_leaves_the_tree_and_says_how_to_go_on(cli: Cli) -> None:
    process, ours = started(cli, "run", cli.flow("- {id: s, tool: hold}"), "--tools", "tools")
    seen = b""
    while b"at work" not in seen:
        chunk = _read(ours)
        assert chunk, seen
        seen += chunk
    os.write(ours, b"\x03")
    while chunk := _read(ours):
        seen += chunk
    os.close(ours)
    assert process.wait(120) == 128 + signal.SIGINT
    assert re.search(
        r"continue with: holdfast run --continue \S+ --tools tools", CONTROLS.sub("", seen.decode())
    )


SAYS = """
import os, time
from holdfast import Context, tool

@tool
def says(context: Context):
    context.log("looking", page=1)
    context.progress(1, 4, "on page 1")
    while not os.path.exists("seen"):
        time.sleep(0.02)
"""


def test_a_step_shows_how_far_it_is_and_what_it_logs(cli: Cli) -> None:
    cli.write("says.py", SAYS)
    args = ("run", cli.flow("- {id: s, tool: says}"), "--tools", "says")
    seen = on_a_terminal_until(cli, "25% on page 1", "seen", *args)
    assert "· s  looking page=1" in seen


def test_a_run_at_a_server_is_the_same_tree(cli: Cli) -> None:
    cli.up("--tools", "tools")
    flow = cli.flow("- {id: first, tool: add, args: {a: 1}}\n- {id: pause, kind: timer, delay_ms: 300}")
    seen = on_a_terminal(cli, "run", flow)
    assert re.search(r"✓ first +completed in [\d.]+ m?s", seen)
    assert re.search(r"✓ pause +completed in [\d.]+ m?s", seen)


GATE = "{id: gate, kind: approve, prompt: Sure?}"


@pytest.fixture(params=["in a file", "at a server"])
def place(request: pytest.FixtureRequest, cli: Cli) -> Cli:
    """Where the run is driven: by the command itself, or by a server that it only follows it at."""
    if request.param == "at a server":
        cli.up("--tools", "tools")
    return cli


def answered(
    cli: Cli, *lines: bytes, gate: str = GATE, asks: tuple[bytes, ...] = (b"to leave it open",)
) -> tuple[int, str]:
    """A run that asks for approvals on the terminal, and what it is told there."""
    flow = cli.flow(f"- {gate}\n- {{id: s, tool: add, args: {{a: 4}}}}")
    process, ours = started(cli, "run", flow, "--tools", "tools")
    seen = b""
    for number, line in enumerate(lines, 1):
        while sum(map(seen.count, asks)) < number:
            chunk = _read(ours)
            assert chunk, seen
            seen += chunk
        os.write(ours, line)
    while chunk := _read(ours):
        seen += chunk
    os.close(ours)
    return process.wait(120), CONTROLS.sub("", seen.decode())


def test_an_approval_is_asked_for_on_the_terminal_and_the_run_goes_on(place: Cli) -> None:
    code, seen = answered(place, b"yes\n")
    assert (code, "gate: Sure?" in seen, "completed" in seen) == (0, True, True)


def test_an_approval_may_be_denied_on_the_terminal(place: Cli) -> None:
    code, seen = answered(place, b"no not today\n")
    assert (code, "approval denied: not today" in seen) == (1, True)


FORM = "{id: gate, kind: approve, prompt: Sure?, form: {type: object, required: [n]}}"
ASKS = (b"to leave it open", b"as JSON", b"try again")


def test_a_form_is_asked_for_until_it_is_json(place: Cli) -> None:
    code, seen = answered(place, b"yes\n", b"n=1\n", b'{"n": 1}\n', gate=FORM, asks=ASKS)
    assert (code, "not valid JSON" in seen, "completed" in seen) == (0, True, True)


FIELDS = (
    "{id: gate, kind: approve, prompt: Sure?, form: {type: object, required: [amount], properties: "
    "{amount: {type: integer, maximum: 9, description: In euros}, way: {enum: [car, train]}, fast: {type: boolean, default: false}}}}"
)


def test_a_form_is_asked_for_field_by_field_and_again_after_a_mistake(place: Cli) -> None:
    code, seen = answered(
        place,
        *(b"yes\n", b"\n", b"ten\n", b"10\n", b"7\n", b"boat\n", b"car\n", b"\n"),
        gate=FIELDS,
        asks=(
            b"to leave it open",
            b"amount (integer, needed): In euros",
            b"try again",
            b"way (one of",
            b"fast (yes or",
        ),
    )
    assert (code, "completed" in seen) == (0, True)
    form = place.json("runs", "show", "last")["output"]["gate"]["form"]
    assert form == {"amount": 7, "way": "car", "fast": False}


def test_a_form_may_be_left_open_at_the_end_of_the_input(place: Cli) -> None:
    code, _ = answered(place, b"yes\n", b"\x04", gate=FIELDS, asks=(b"to leave it open", b"amount"))
    assert code != 0


def test_whoever_denies_is_not_asked_to_fill_anything_in(place: Cli) -> None:
    code, seen = answered(place, b"no\n", gate=FORM)
    assert (code, "fill in this form" in seen) == (1, False)


@pytest.mark.parametrize("line", [b"\n", b"\x04"])
def test_an_approval_that_is_left_open_exits_with_4_and_says_how_it_is_answered(
    place: Cli, line: bytes
) -> None:
    code, seen = answered(place, line)
    assert code == 4
    assert re.search(r"gate\b.*: holdfast approve \S+ gate", seen)


def test_what_is_neither_yes_nor_no_is_asked_for_once_more(place: Cli) -> None:
    code, seen = answered(place, b"yess\n", b"yes\n", asks=(b"with a reason", b"please answer"))
    assert (code, "please answer yes or no" in seen, "completed" in seen) == (0, True, True)


def test_a_prompt_moves_nothing_on_the_terminal(place: Cli) -> None:
    hostile = '{id: gate, kind: approve, prompt: "Delete\\e[2K\\rKeep it?"}'
    _, seen = answered(place, b"\n", gate=hostile)
    assert r"gate: Delete\u001b[2K\u000dKeep it?" in seen


def test_ctrl_c_leaves_an_approval_open(place: Cli) -> None:
    code, _ = answered(place, b"\x03")
    assert code == 128 + signal.SIGINT


def test_gates_side_by_side_are_asked_for_one_after_the_other(place: Cli) -> None:
    both = "{id: both, kind: parallel, steps: [{id: a, kind: approve, prompt: A?}, {id: b, kind: approve, prompt: B?}]}"
    code, seen = answered(place, b"yes\n", b"yes\n", gate=both)
    assert (code, "A?" in seen, "B?" in seen) == (0, True, True)


def test_a_gate_that_others_have_to_answer_too_is_asked_for_once(place: Cli) -> None:
    me = getpass.getuser()
    quorum = f"{{id: gate, kind: approve, prompt: Sure?, quorum: {{need: 2, of: [{me}, somebody]}}}}"
    code, seen = answered(place, b"yes\n", gate=quorum)
    assert (code, seen.count("gate: Sure?")) == (4, 1)


def test_a_gate_that_somebody_else_answers_is_asked_for_no_more(cli: Cli) -> None:
    up = cli.up("--tools", "tools")
    process, ours = started(cli, "run", cli.flow(f"- {GATE}"))
    seen = b""
    while b"to leave it open" not in seen:
        chunk = _read(ours)
        assert chunk, seen
        seen += chunk
    with SyncClient(up.address) as client:
        (run,) = client.runs().items
        client.approve(run.run_id, "gate")
    while chunk := _read(ours):
        seen += chunk
    os.close(ours)
    assert (process.wait(120), b"completed" in seen) == (0, True)
