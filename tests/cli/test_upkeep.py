"""`holdfast backup` and `holdfast doctor`, beside a process that writes."""

from __future__ import annotations

import apsw

from tests.cli.conftest import Cli

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
    assert {"check": "lock", "problems": [], "note": f"held by process {process.pid}"} in data["checks"]


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
