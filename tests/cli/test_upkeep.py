"""`holdfast backup` and `holdfast doctor`, beside a process that writes."""

from __future__ import annotations

import asyncio

import apsw
import pytest

from tests.cli.conftest import Cli
from tests.postgres import Server

SUM = "- {id: sum, tool: add, args: {a: 1, b: 2}}"
HELD = "- {id: first, tool: note, args: {text: first}}\n- {id: held, tool: hold}"


def test_a_backup_made_while_a_process_writes_can_be_gone_on_with(cli: Cli) -> None:
    process = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(process, "at work")
    made = cli.json("backup", "copy.db")
    assert made["checked"] is True
    done = cli.run("run", "--continue", "last", "--tools", "tools", "--db", "sqlite:///copy.db")
    assert done.returncode == 0
    assert cli.notes() == ["first"]
    assert process.poll() is None


def test_a_backup_overwrites_nothing(cli: Cli) -> None:
    cli.run("run", cli.flow(SUM), "--tools", "tools")
    cli.write("copy.db", "precious")
    refused = cli.run("backup", "copy.db")
    assert (refused.returncode, "copy.db is already there" in refused.stderr) == (2, True)
    assert (cli.folder / "copy.db").read_text() == "precious"


def test_a_file_of_an_older_release_can_be_copied(cli: Cli) -> None:
    cli.run("run", cli.flow(SUM), "--tools", "tools")
    _change(cli, "UPDATE meta SET value = 0 WHERE key = 'schema'")
    assert cli.run("backup", "copy.db").returncode == 0


def test_a_sound_database_exits_with_0(cli: Cli) -> None:
    cli.run("run", cli.flow(SUM), "--tools", "tools")
    done = cli.run("doctor")
    assert done.returncode == 0
    assert all(line.startswith("ok ") for line in done.stdout.splitlines())
    assert "all is well" in done.stderr


def test_a_database_that_is_driven_is_sound(cli: Cli) -> None:
    process = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(process, "at work")
    data = cli.json("doctor")
    assert data["ok"] is True
    lock = next(check for check in data["checks"] if check["check"] == "lock")
    assert (lock["problems"], lock["note"]) == ([], f"held by process {process.pid}")


def test_a_problem_exits_with_1_and_names_it(cli: Cli) -> None:
    cli.run("run", cli.flow(SUM), "--tools", "tools")
    _change(cli, "DELETE FROM journal WHERE seq = 1")
    done = cli.run("doctor")
    assert done.returncode == 1
    assert "problem  journal without gaps" in done.stdout


def test_a_file_that_is_no_database_exits_with_2(cli: Cli) -> None:
    cli.write("odd.db", "this is no database" * 100)
    done = cli.run("doctor", "--db", "odd.db")
    assert (done.returncode, "odd.db cannot be read as a database" in done.stderr) == (2, True)


def _change(cli: Cli, statement: str) -> None:
    db = apsw.Connection(str(cli.folder / "holdfast.db"))
    db.execute(statement)
    db.close()


# --------------------------------------------------------------------------------------------------- forgetting a key

CHARGED = "- {id: pay, tool: note, args: {text: paid}, idempotency_key: order-7, idempotency_scope: global}"
HOLDS = "- {id: pay, tool: hold, idempotency_key: order-7, idempotency_scope: global}"


def test_a_key_that_is_forgotten_lets_the_next_step_be_done(cli: Cli) -> None:
    for _ in range(2):
        cli.run("run", cli.flow(CHARGED), "--tools", "tools")
    assert cli.notes() == ["paid"]
    done = cli.run("doctor", "--forget-key", "order-7")
    assert (done.returncode, "forgot the output of the key 'order-7'" in done.stderr) == (0, True)
    cli.run("run", cli.flow(CHARGED), "--tools", "tools")
    assert cli.notes() == ["paid", "paid"]


def test_a_key_that_is_held_is_refused_with_its_holder(cli: Cli) -> None:
    process = cli.start("run", cli.flow(HOLDS), "--tools", "tools")
    cli.until(process, "at work")
    process.kill()
    process.wait()
    refused = cli.run("doctor", "--forget-key", "order-7")
    run_id = cli.json("runs", "list")["items"][0]["run_id"]
    assert refused.returncode == 2
    assert f"is held by step pay of run {run_id}" in refused.stderr


def test_a_key_that_is_not_there_is_said_to_be_unknown(cli: Cli) -> None:
    cli.run("run", cli.flow(SUM), "--tools", "tools")
    refused = cli.run("doctor", "--forget-key", "order-8")
    assert (refused.returncode, "there is no global key 'order-8'" in refused.stderr) == (2, True)


def test_a_loss_is_accepted_on_the_command_line(cli: Cli) -> None:
    cli.run("run", cli.flow("- {id: sum, tool: add, args: {a: 1, b: 2}}"), "--tools", "tools")
    inode = (cli.folder / "holdfast.db").stat().st_ino
    cli.write("holdfast.db.mark", f"{999:020} {inode:020}\n")
    assert cli.run("doctor").returncode == 1
    assert cli.run("doctor", "--accept-loss").returncode == 0
    assert cli.run("doctor").returncode == 0


@pytest.mark.anyio
async def test_doctor_checks_a_database_on_a_server(cli: Cli, postgres_server: Server) -> None:
    url = await postgres_server.new_database()
    well = await asyncio.to_thread(cli.run, "doctor", "--db", url)
    assert (well.returncode, well.stderr.strip()) == (0, "all is well")
    statement = "INSERT INTO schedule (tenant, id, kind, origin, created_at, updated_at, body) VALUES ('default', 's', 'at', 'api', 1, 1, '{}')"
    await postgres_server.execute(statement, url)
    ill = await asyncio.to_thread(cli.run, "doctor", "--db", url)
    assert ill.returncode == 1 and "schedule s of tenant default has no cursor" in ill.stdout
