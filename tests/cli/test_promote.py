"""`holdfast promote`: a database file moves to a server, with everything in it, once."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.store.sqlite.moving import EXPRESSIONS, NOT_COPIED
from tests.cli.conftest import Cli
from tests.postgres import Server

PARKED = """\
name: parked
inputs: {name: {type: string}}
steps:
  - {id: before, tool: note, args: {text: before}}
  - {id: gate, kind: wait_event, signal_key: go}
  - {id: after, tool: note, args: {text: "{{inputs.name}}"}}
"""
FILES = """\
name: files
steps:
  - {id: make, tool: make_file}
"""
MAKE_FILE = """
@tool
def make_file():
    return {"file_refs": [{"inline_b64": "aGVsbG8=", "name": "hello.txt"}]}
"""
SCHEDULE = """\
schedules:
  - id: nightly
    workflow: parked
    trigger: {kind: cron, expression: "0 30 2 * * *", timezone: UTC}
    inputs: {name: nightly}
"""


def done(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def counted(server: Server, url: str, question: str) -> Any:
    async def ask() -> Any:
        connection = await server.connect(url)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()

    return done(ask())


@pytest.fixture
def target(postgres_server: Server) -> str:
    return str(done(postgres_server.new_database()))


def parked(cli: Cli, *names: str) -> list[str]:
    cli.write("parked.yaml", PARKED)
    found = [
        cli.run("run", "parked.yaml", "-i", f"name={name}", "--json", "--tools", "tools") for name in names
    ]
    assert [each.returncode for each in found] == [4] * len(names), found[0].stderr
    return [json.loads(each.stdout)["run_id"] for each in found]


def promoted(cli: Cli, target: str) -> Any:
    found = cli.run("promote", "--to", target, "--json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def signalled(cli: Cli, target: str, runs: list[str]) -> None:
    """A node of the server drives all of these runs to their ends."""
    up = cli.up("--db", target, "--tools", "tools")
    for run_id in runs:
        assert cli.run("signal", run_id, "go", "1", "--server", up.address).returncode == 0
    for run_id in runs:
        assert cli.run("runs", "watch", run_id, "--server", up.address).returncode == 0
    up.stop()


def killed_within(cli: Cli, target: str, server: Server) -> None:
    """A move is killed when the tables before `run` have arrived, which waits for a lock."""
    with asyncio.Runner() as runner:
        connection = runner.run(server.connect(target))
        runner.run(connection.execute("BEGIN; LOCK TABLE run IN SHARE ROW EXCLUSIVE MODE"))
        moving = cli.start("promote", "--to", target)
        cli.until(moving, "request:")
        moving.send_signal(signal.SIGKILL)
        moving.wait()
        runner.run(connection.close())


def test_everything_moves_and_parked_runs_go_on_once(cli: Cli, target: str, postgres_server: Server) -> None:
    cli.write("tools.py", (cli.folder / "tools.py").read_text() + MAKE_FILE)
    cli.write("files.yaml", FILES)
    runs = parked(cli, "one", "two")
    assert cli.run("run", "files.yaml", "--tools", "tools").returncode == 0
    cli.write("flow.yaml", "name: flow\nsteps:\n  - {id: hold, tool: hold}\n")
    holding = cli.start("run", "flow.yaml", "--tools", "tools")
    cli.until(holding, "at work")
    holding.kill()
    holding.wait()
    cli.write("nightly.schedules.yaml", SCHEDULE)
    assert cli.run("flows", "publish", "parked.yaml").returncode == 0
    assert cli.run("schedules", "put", "nightly.schedules.yaml").returncode == 0
    assert cli.run("keys", "create", "ops", "--scope", "admin").returncode == 0

    said = promoted(cli, target)
    assert {name: said["rows"][name] for name in ("run", "schedule", "api_key", "artefact", "release")} == {
        "run": 4, "schedule": 1, "api_key": 1, "artefact": 1, "release": 1,
    }  # fmt: skip
    assert (said["compared"], said["artefacts"]) == (3, 1)

    assert [each["id"] for each in cli.json("schedules", "list", "--db", target)["items"]] == ["nightly"]
    assert [each["name"] for each in cli.json("keys", "list", "--db", target)["items"]] == ["ops"]
    folder = next(Path(cli.folder).glob("holdfast-*.artefacts"))
    assert [path.read_text() for path in folder.glob("*/*")] == ["hello"]
    key = json.loads(cli.run("keys", "create", "two", "--scope", "admin", "--db", target, "--json").stdout)[
        "key"
    ]
    up = cli.up("--db", target, "--tools", "tools")
    env = {"HOLDFAST_API_KEY": key}
    for run_id in runs:
        assert cli.run("signal", run_id, "go", "1", "--server", up.address, **env).returncode == 0
    listed = cli.run("runs", "list", "--server", up.address, "--json", **env)
    for each in json.loads(listed.stdout)["items"]:
        assert cli.run("runs", "watch", each["run_id"], "--server", up.address, **env).returncode == 0
    up.stop()
    assert sorted(cli.notes()) == ["before", "before", "one", "two"]
    assert counted(postgres_server, target, "SELECT count(*) FROM run WHERE status = 'completed'") == 4


def test_a_move_that_is_killed_goes_on_where_it_was(cli: Cli, target: str, postgres_server: Server) -> None:
    runs = parked(cli, "one", "two", "three")
    killed_within(cli, target, postgres_server)

    refused = cli.run("runs", "list", "--json")
    assert (refused.returncode, json.loads(refused.stdout)["error"]) == (2, "database_moved")
    early = cli.run("up", "--port", "0", "--db", target)
    assert early.returncode == 2 and "has not finished" in early.stderr

    copied = counted(postgres_server, target, "SELECT max(xid::text::bigint) FROM journal")
    assert promoted(cli, target)["rows"]["run"] == 3
    assert counted(postgres_server, target, "SELECT max(xid::text::bigint) FROM journal") == copied
    signalled(cli, target, runs)
    assert sorted(cli.notes()) == ["before", "before", "before", "one", "three", "two"]


def test_a_file_that_was_moved_names_the_new_address_and_no_password(cli: Cli, target: str) -> None:
    parked(cli, "one")
    address = target.replace("://postgres:@", "://postgres:hunter2@")
    said = cli.run("promote", "--to", address)
    assert said.returncode == 0 and "hunter2" not in said.stderr
    for command in (
        ["up", "--port", "0"],
        ["run", "parked.yaml", "-i", "name=x", "--tools", "tools"],
        ["runs", "list"],
        ["promote", "--to", address],
    ):
        refused = cli.run(*command)
        assert refused.returncode == 2 and "was moved to postgresql://" in refused.stderr
        assert "hunter2" not in refused.stderr
    assert cli.run("backup", "kept.db").returncode == 0  # a copy of what was


def test_a_move_can_be_given_up_before_its_end(cli: Cli, target: str, postgres_server: Server) -> None:
    runs = parked(cli, "one")
    killed_within(cli, target, postgres_server)
    assert cli.run("promote", "--to", target, "--cancel").returncode == 0
    assert counted(postgres_server, target, "SELECT count(*) FROM journal") == 0
    assert [each["run_id"] for each in cli.json("runs", "list")["items"]] == runs
    assert cli.run("promote", "--to", target, "--cancel").returncode == 2  # nothing to give up
    assert promoted(cli, target)["rows"]["run"] == 1


def test_a_server_that_cannot_take_it_leaves_the_file_as_it_was(
    cli: Cli, target: str, postgres_server: Server
) -> None:
    runs = parked(cli, "one")
    for to, why in (
        ("postgresql://ada:hunter2@127.0.0.1:1/holdfast", "is the server running"),
        (postgres_server.address("not_there"), "createdb"),
        ("sqlite:///other.db", "--to needs the address of a server"),
    ):
        refused = cli.run("promote", "--to", to)
        assert refused.returncode == 2 and why in refused.stderr and "hunter2" not in refused.stderr
    used = str(done(postgres_server.new_database()))
    up = cli.up("--db", used)
    served = cli.run("promote", "--to", used)
    assert served.returncode == 2 and "stop it first" in served.stderr
    up.stop()
    done(postgres_server.execute("INSERT INTO key VALUES ('t', 's', 'k', 1, 'p', NULL, 0, NULL)", used))
    full = cli.run("promote", "--to", used)
    assert full.returncode == 2 and "empty database" in full.stderr
    assert [each["run_id"] for each in cli.json("runs", "list")["items"]] == runs


def test_a_file_that_a_server_has_open_is_not_moved(cli: Cli, target: str) -> None:
    up = cli.up()
    refused = cli.run("promote", "--to", target)
    assert refused.returncode == 2 and "in use" in refused.stderr
    up.stop()


def test_every_table_and_column_of_a_file_has_its_place_on_the_server(
    cli: Cli, target: str, postgres_server: Server
) -> None:
    """Whoever adds a column to SQLite alone would lose it in a move."""
    parked(cli, "one")
    left_out = {("worker", "is_trusted")}  # a worker that registers again says so

    async def there() -> set[tuple[str, str]]:
        connection = await postgres_server.connect(target)
        try:
            found = await connection.fetch(
                "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
            )
            return {tuple(row) for row in found}
        finally:
            await connection.close()

    file = apsw.Connection(str(cli.folder / "holdfast.db"))
    tables = [
        name
        for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        if not name.startswith("sqlite_")
    ]
    here = {
        (table, column)
        for table in tables
        if table not in NOT_COPIED
        for (column,) in file.execute(f'SELECT name FROM pragma_table_info("{table}")')
    }
    file.close()
    theirs = done(there())
    assert here - theirs == left_out
    assert set(EXPRESSIONS) <= theirs


def test_numbers_that_the_server_gives_out_follow_those_of_the_file(
    cli: Cli, target: str, postgres_server: Server
) -> None:
    parked(cli, "one")
    promoted(cli, target)
    for table, column in (("journal", "pos"), ("wait", "pos"), ("series", "no")):
        last = counted(postgres_server, target, f"SELECT max({column}) FROM {table}")
        assert (
            counted(postgres_server, target, f"SELECT nextval(pg_get_serial_sequence('{table}', '{column}'))")
            == last + 1
        )
