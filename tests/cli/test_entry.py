"""The first moments of the command."""

from __future__ import annotations

import signal
import subprocess
import sys

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
