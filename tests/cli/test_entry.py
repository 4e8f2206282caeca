"""The first moments of the command."""

from __future__ import annotations

import signal
import subprocess
import sys

INTERRUPTED = """
import os, signal, sys
import holdfast.cli.entry


class Interrupt:
    def find_spec(self, name, *_):
        if name == "holdfast.cli.commands":
            os.kill(os.getpid(), signal.SIGINT)


signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
holdfast.cli.entry.main()
"""


def test_ctrl_c_while_the_command_is_loaded_ends_it_quietly() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
