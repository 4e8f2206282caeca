"""On a terminal a run is a tree that is drawn again and again."""

from __future__ import annotations

import os
import pty
import re
import subprocess

from tests.cli.conftest import HOLDFAST, Cli

CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(cli: Cli, *args: str) -> str:
    """What a person sees, without the colours."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    process = subprocess.Popen(
        [HOLDFAST, *args], cwd=cli.folder, env=env, stdout=theirs, stderr=theirs, stdin=theirs
    )
    cli.started.append(process)  # type: ignore[arg-type]
    os.close(theirs)
    seen = b""
    while chunk := _read(ours):
        seen += chunk
    os.close(ours)
    assert process.wait(60) == 0
    return CONTROLS.sub("", seen.decode())


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


def test_a_terminal_shows_steps_to_come_steps_at_work_and_steps_done(cli: Cli) -> None:
    steps = """
- {id: first, tool: flaky, args: {times: 1}, retry: {max_attempts: 2, initial_delay_ms: 300}}
- {id: second, tool: note, args: {text: hello}}
"""
    seen = on_a_terminal(cli, "run", cli.flow(steps), "--tools", "tools")
    assert "· second" in seen
    assert re.search(r"↻ first +attempt 1 failed: busy", seen)
    assert re.search(r"✓ second +completed", seen)
    assert "noting hello" in seen


def test_a_terminal_shows_how_far_a_loop_is(cli: Cli) -> None:
    steps = """
- id: loop
  kind: foreach
  items: $.inputs.of
  steps:
    - {id: one, tool: flaky, args: {times: 1}, retry: {max_attempts: 2, initial_delay_ms: 200}}
"""
    seen = on_a_terminal(cli, "run", cli.flow(steps), "--tools", "tools", "--inputs", '{"of": [1, 2, 3]}')
    assert re.search(r"loop +[━╌]+ running, 1 of 3", seen)
    assert re.search(r"loop +completed in .*, 3 of 3", seen)
    assert "loop[1].one" in seen


def test_a_long_workflow_is_cut_to_the_screen(cli: Cli) -> None:
    steps = "\n".join(f"- {{id: s{number}, tool: add, args: {{a: 1}}}}" for number in range(200))
    seen = on_a_terminal(cli, "run", cli.flow(steps), "--tools", "tools")
    assert re.search(r"✓ \d+ earlier steps", seen)
    assert re.search(r"✓ s199 +completed", seen)
