"""Where the system gives no more threads, work waits in line, and the process lives on."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sdk.processes import ROOT

STACK_BYTES = 2**30  # of each thread: more than the process may still use


def large_stacks() -> None:
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, resource.getrlimit(resource.RLIMIT_STACK)[1]))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the address space")
@pytest.mark.parametrize("loop", [(), ("uvloop",)], ids=["asyncio", "uvloop"])
def test_sync_tools_and_lookups_wait_where_no_thread_can_be_started(
    tmp_path: Path, loop: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.no_threads", str(tmp_path / "h.db"), *loop],
        cwd=ROOT,
        preexec_fn=large_stacks,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "can't start new thread"
    assert lines[1].startswith("unsent") and "was not resolved within 1 s" in lines[1]
    assert lines[2:] == ["waiting 10", "all done"]
