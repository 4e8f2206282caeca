"""The memory of a server: what large values took goes back to the system."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import msgspec
import pytest

from tests.sdk.processes import House, until

MIB = 1024 * 1024
BODIES = 5
LEFT_MB_MAX = 20.0  # what caches may keep: less than one body
HIGHEST_MB_MAX = 400.0
JSON = {"Content-Type": "application/json"}

linux = pytest.mark.skipif(sys.platform != "linux", reason="the system call is glibc's")

PROGRAM = """
from holdfast.ops.memory import return_freed_memory
assert return_freed_memory()
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = rss()
kept = []
for size in range(2, 26):  # each larger than all before: glibc would put the next ones on its heap
    large = bytes(size << 20)
    kept.append(bytes(50_000))
    del large
print(rss() - before)
"""


@linux
def test_a_freed_block_goes_back_though_smaller_ones_were_made_meanwhile() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert int(done.stdout) < 8 * MIB


@linux
def test_a_server_gives_back_the_memory_of_large_bodies(tmp_path: Path) -> None:
    house = House(tmp_path)
    try:
        house.up()
        before = rss_mb(house)
        for number in range(BODIES):
            pending = {"pending": True, "task_id": f"t{number}"}
            house.start({"id": "s", "tool": "echo", "args": {"value": pending}})
            body = b'{"task_id": "t%d", "data": [%s0]}' % (number, b"0," * (12 * MIB))
            request = urllib.request.Request(f"{house.address}/workflows/resume", body, JSON, method="POST")
            with urllib.request.urlopen(request) as answer:
                assert msgspec.json.decode(answer.read())["resumed"]
        until(lambda: rss_mb(house) < before + LEFT_MB_MAX, "the memory of the bodies has been given back")
        assert rss_mb(house, "VmHWM") < HIGHEST_MB_MAX
    finally:
        house.close()


def rss_mb(house: House, which: str = "VmRSS") -> float:
    status = Path(f"/proc/{house.server.pid}/status").read_text()
    return int(status.partition(f"{which}:")[2].split()[0]) / 1024
