"""A real server whose wall clock jumps, by libfaketime, while the monotonic clock goes on: no occurrence is lost or repeated.

Needs Debian's package `faketime`. The simulation (tests/sim) tries thousands of such jumps on virtual time; this one tries the
clocks, timers and loop of a real process.
"""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

JUMPS = 50
WAIT_SECS = 120.0
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
FLOW = "name: work\nsteps: [{id: s, tool: echo, args: {value: 1}}]\n"
SCHEDULES = """\
schedules:
  - {id: all, workflow: work, max_concurrent: 0, grace_secs: 0, missed_run_policy: run_all, max_catchup: 0, trigger: {kind: cron, expression: "* * * * * *"}}
  - {id: once, workflow: work, max_concurrent: 0, grace_secs: 5, missed_run_policy: run_once, trigger: {kind: cron, expression: "* * * * * *"}}
  - {id: none, workflow: work, max_concurrent: 0, grace_secs: 5, trigger: {kind: cron, expression: "* * * * * *"}}
"""
ROWS = "SELECT occurrence, outcome, reason, scheduled_at, until, times, is_catchup FROM ledger WHERE schedule = ? ORDER BY pos"


class Server:
    def __init__(self, folder: Path) -> None:
        self.folder, self.offset = folder, 0
        self.jump(0)

    def jump(self, secs: int) -> None:
        """Set the wall clock of the process by so many seconds. The file is replaced, so it is never read half."""
        self.offset += secs
        (self.folder / "new").write_text(f"{self.offset:+d}")
        os.replace(self.folder / "new", self.folder / "clock")

    @property
    def now_ms(self) -> int:
        return round(1_000 * (time.time() + self.offset))

    def rows(self, schedule: str) -> list[tuple[Any, ...]]:
        return self.asked(ROWS, schedule)

    def asked(self, sql: str, *args: str) -> list[tuple[Any, ...]]:
        path = f"file:{self.folder / 'h.db'}?mode=ro"
        with closing(sqlite3.connect(path, uri=True)) as db:
            return db.execute(sql, args).fetchall()

    def wait_for(self, instant_ms: int) -> None:
        """Until every schedule has decided on an occurrence from then on, and `all` has none left to catch up."""
        self.wait_until(lambda: all(self._reached(name) >= instant_ms for name in ("all", "once", "none")))

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_SECS
        while not is_so():
            assert time.monotonic() < end, self.said()
            time.sleep(0.2)

    def said(self) -> str:
        return (self.folder / "log").read_text()[-3_000:]

    def _reached(self, schedule: str) -> int:
        return max((row[4] or row[3] for row in self.rows(schedule)), default=0)


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    (folder / "flows").mkdir()
    (folder / "flows" / "work.yaml").write_text(FLOW)
    (folder / "a.schedules.yaml").write_text(SCHEDULES)
    env = os.environ | {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    command = [sys.executable, "-m", "holdfast", "up", "--port", "0", "--db", f"sqlite:///{folder / 'h.db'}",
               "--flows", str(folder / "flows"), "--schedules", str(folder)]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder)
        try:
            server.wait_until(lambda: "is up at" in (folder / "log").read_text())
            yield server
            assert process.poll() is None, server.said()
        finally:
            process.terminate()
            process.wait(60)


def fired(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[3] for row in rows if row[1] == "fired"]


def covered(rows: list[tuple[Any, ...]]) -> list[int]:
    """Every second that a row is about, in the order of time."""
    found = [at for row in rows for at in range(row[3], (row[4] or row[3]) + 1, 1_000)]
    return sorted(found)


@pytest.mark.long
@pytest.mark.skipif(not LIBRARIES, reason="needs libfaketime: apt-get install faketime")
def test_fifty_jumps_of_the_wall_clock_lose_and_repeat_no_occurrence(tmp_path: Path) -> None:
    rng = random.Random(12)
    with serving(tmp_path) as server:
        server.wait_for(0)
        for _ in range(JUMPS // 2):
            back = rng.choice((0, 1, 5, 60, 3_600))
            server.jump(-back)
            time.sleep(
                rng.choice((0.0, 0.3, 1.5))
            )  # the process may or may not see the clock that is set back
            server.jump(back + rng.choice((0, 1, 4, 20, 90, 300)))
            server.wait_for(server.now_ms)
        server.wait_until(lambda: not server.asked("SELECT owes FROM cursor WHERE schedule = 'all'")[0][0])
        rows = {name: server.rows(name) for name in ("all", "once", "none")}
    for name, found in rows.items():
        seconds = covered(found)
        assert seconds == list(range(seconds[0], seconds[-1] + 1, 1_000)), (
            f"{name}: each second is decided once"
        )
    assert sorted(fired(rows["all"])) == covered(rows["all"]), "run_all starts each of them"
    for is_catchup in (0, 1):
        started = fired([row for row in rows["all"] if row[6] == is_catchup])
        assert started and started == sorted(started), "in order"
    assert all(row[2] == "missed" for row in rows["none"] if row[1] != "fired")
    assert not any(row[6] for row in rows["none"]) and any(row[1] == "skipped" for row in rows["none"])
    assert any(row[6] for row in rows["once"]), "run_once catches up"
