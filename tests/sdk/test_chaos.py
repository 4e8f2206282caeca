"""Workers are killed, hang, lie and come back under the same name while work goes on: every run ends, with the right result."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.sdk.processes import House

RUNS = 40
STEPS = 3


@contextmanager
def liar() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.sdk.liar"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def row(number: int) -> list[dict[str, Any]]:
    how = {"timeout_secs": 0.5, "weighted_by_load": number % 2 == 0}
    retry = {"max_attempts": 1000, "initial_delay_ms": 100, "max_delay_ms": 500}
    return [
        {"id": f"s{index}", "service": "double", "input": number + index, "retry": retry, **how}
        for index in range(STEPS)
    ]


def test_every_run_ends_whatever_the_workers_do(tmp_path: Path) -> None:
    house = House(tmp_path)
    over = threading.Event()

    def come_back(url: str) -> None:
        """One registers under load, again and again, at an address where nobody is, or where a liar is."""
        for turn in range(10_000):
            where = url if turn % 2 else "http://127.0.0.1:1"
            house.ask("POST", "/api/v1/workers", {"id": "flapping", "services": ["double"], "url": where})
            if over.wait(0.05):
                return

    with liar() as url:
        try:
            house.up()
            house.ask("POST", "/workers/register", {"id": "liar", "url": url, "services": ["double"]})
            hung, _ = house.worker("--id", "hung")
            killed, _ = house.worker("--id", "killed")
            house.worker("--id", "honest")
            house.worker("--id", "fetching", "--pull")
            flapping = threading.Thread(target=come_back, args=(url,))
            flapping.start()
            runs = []
            for number in range(RUNS):
                runs.append((number, house.start(*row(number))))
                if number == RUNS // 4:
                    hung.send_signal(signal.SIGSTOP)
                elif number == RUNS // 2:
                    house.kill(killed)
                elif number == 3 * RUNS // 4:
                    house.worker("--id", "killed")
            views = [(number, house.ended(run_id)) for number, run_id in runs]
            over.set()
            flapping.join()
        finally:
            over.set()
            house.close()
    assert [view["error"] for _, view in views if view["error"]] == []
    assert [view["output"] for _, view in views] == [
        {f"s{index}": 2 * (number + index) for index in range(STEPS)} for number in range(RUNS)
    ]
