"""The first moments of the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTED = """
import os, signal, sys
import holdfast.cli.entry

_, loaded, *words = sys.argv


class Interrupt:
    def find_spec(self, name, *_):
        if name == loaded:
            os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = words
holdfast.cli.entry.main()
"""


def interrupted(loaded: str, handler: str, *words: str) -> tuple[int, str, str]:
    """The command, with Ctrl-C when it loads this module."""
    program = INTERRUPTED.replace("{handler}", handler)
    done = subprocess.run(
        [sys.executable, "-c", program, loaded, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


# While a decoder of msgspec is made, KeyboardInterrupt would crash the process.
@pytest.mark.parametrize("loaded", ["holdfast.cli.commands", "holdfast.plan.unread", "holdfast.runtime.door"])
def test_ctrl_c_while_the_command_is_loaded_ends_it_quietly(loaded: str) -> None:
    assert interrupted(loaded, "default_int_handler", "up", "--port", "0") == (-signal.SIGINT, "", "")


def test_a_command_that_ignores_ctrl_c_goes_on_loading() -> None:
    code, _, said = interrupted("holdfast.runtime.door", "SIG_IGN", "run", "missing.yaml")
    assert code == 2 and "missing.yaml" in said


ASKS = """
import atexit, sys
from holdfast import tool

atexit.register(lambda: print("tidied up", file=sys.stderr))

@tool
def asks():
    print("your name?", flush=True)
    return input()
"""


def test_ctrl_c_while_a_tool_reads_standard_input_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(ASKS, "utf-8")
    (tmp_path / "flow.yaml").write_text("name: flow\nsteps: [{id: s, tool: asks}]\n", "utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "flow.yaml", "--tools", "asking"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stderr is not None
    with process, process.stdin:
        assert any("your name?" in line for line in iter(process.stderr.readline, ""))
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(120) == 128 + signal.SIGINT, said
    assert "continue with: holdfast run --continue" in said and said.endswith("tidied up\n")
