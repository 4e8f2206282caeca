"""Where the system gives no more threads, work waits in line, and the process lives on."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.processes import ROOT

STRANGER = 54_321  # the id of a user that no machine has
SETPRIV = shutil.which("setpriv") or ""
STACK_BYTES = 2**30  # of each thread: more than the process may still use


def large_stacks() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, resource.getrlimit(resource.RLIMIT_STACK)[1]))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the address space")
@pytest.mark.parametrize("loop", [(), ("uvloop",)], ids=["asyncio", "uvloop"])
def test_work_waits_where_there_is_no_memory_for_a_thread(tmp_path: Path, loop: tuple[str, ...]) -> None:
    _check(["memory", *loop], tmp_path, preexec_fn=large_stacks)


@pytest.mark.skipif(
    os.geteuid() != 0 or not SETPRIV, reason="only root can become a user without other processes"
)
@pytest.mark.parametrize("loop", [(), ("uvloop",), ("command",)], ids=["asyncio", "uvloop", "command"])
def test_work_waits_where_the_limit_of_processes_is_reached(loop: tuple[str, ...]) -> None:
    """The limit counts the processes of the real user, and holds for those without two capabilities. Files are opened by the
    effective user, who is still root: the interpreter may lie where only root can read it."""
    as_stranger = [SETPRIV, "--ruid", str(STRANGER), "--bounding-set=-sys_resource,-sys_admin"]
    with tempfile.TemporaryDirectory() as folder:  # those of pytest are closed to other users
        os.chown(folder, STRANGER, STRANGER)
        _check(["processes", *loop], Path(folder), as_stranger)


def _check(words: list[str], folder: Path, by: Sequence[str] = (), **how: Any) -> None:
    done = subprocess.run(
        [*by, sys.executable, "-m", "tests.runtime.no_threads", str(folder / "h.db"), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **how,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "can't start new thread"
    assert lines[1].startswith("unsent") and "was not resolved within 1 s" in lines[1]
    # asyncio needs no thread to connect to a numeric address, and hears that it is refused; uvloop does.
    assert lines[2].startswith("unsent GET http://127.0.0.1:9/")
    assert lines[3:] == ["waiting 10", "pages checked: False", "all done"]
