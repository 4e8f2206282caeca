"""Servers that Holdfast cannot use: each command ends with 2, and says which host, why, and what to do, without the password."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from holdfast.cli.file import path_of
from holdfast.cli.options import Usage
from holdfast.config import Settings
from holdfast.errors import StoreUnavailable
from holdfast.store.postgres import place
from holdfast.store.postgres.store import PostgresStore
from tests.cli.conftest import Cli
from tests.postgres import Server

SECRET = "hunter2-and-more"


def done(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def made(server: Server, *statements: str, empty: bool = False) -> str:
    """The address of a new database with a password in it, after these statements, where {name} is that of the database."""
    url = str(done(server.new_database(empty=empty)))
    for statement in statements:
        done(server.execute(statement.format(name=urlsplit(url).path[1:]), url))
    return url.replace("://postgres:@", f"://postgres:{SECRET}@")


def refusal(cli: Cli, url: str) -> str:
    """What `up` says; other commands say the same."""
    refused = cli.run("up", "--port", "0", "--db", url)
    assert refused.returncode == 2, refused.stderr
    assert SECRET not in refused.stdout + refused.stderr
    as_json = cli.run("flows", "list", "--db", url, "--json")
    assert SECRET not in as_json.stdout + as_json.stderr
    return refused.stderr


@pytest.mark.parametrize(
    ("statements", "reason", "remedy"),
    [
        (["ALTER DATABASE {name} SET default_transaction_read_only = on"], "can only be read", "the primary"),
        (["ALTER DATABASE {name} SET synchronous_commit = off"], "synchronous_commit=off", "set it to on"),
        (
            ["INSERT INTO migration (number, checksum) VALUES (999, '')"],
            "by a newer release",
            "upgrade holdfast",
        ),
        (["UPDATE migration SET checksum = 'x' WHERE number = 2"], "migration 002", "it was changed"),
    ],
    ids=["read-only", "synchronous_commit", "newer", "changed"],
)
def test_a_database_that_cannot_be_used(
    cli: Cli, postgres_server: Server, statements: list[str], reason: str, remedy: str
) -> None:
    url = made(postgres_server, *statements)
    said = refusal(cli, url)
    assert reason in said and remedy in said and urlsplit(url).path in said


def test_tables_of_another_program(cli: Cli, postgres_server: Server) -> None:
    said = refusal(cli, made(postgres_server, "CREATE TABLE orders (id int)", empty=True))
    assert "tables of another program (orders)" in said and "a database of its own" in said


def test_a_server_that_is_not_there_or_has_no_such_database(cli: Cli, postgres_server: Server) -> None:
    said = refusal(cli, f"postgresql://ada:{SECRET}@127.0.0.1:1/holdfast")
    assert "127.0.0.1:1" in said and "is the server running" in said
    url = postgres_server.address("not_there").replace("://postgres:@", f"://postgres:{SECRET}@")
    assert "createdb" in refusal(cli, url)


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "CONNECT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://ada:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/holdfast"
        with pytest.raises(StoreUnavailable, match="no answer came; is the server running"):
            done(PostgresStore(url).open())


@pytest.mark.parametrize("command", [("up", "--port", "0"), ("runs", "list"), ("doctor",)])
def test_an_address_that_cannot_be_read_is_told_in_one_line(cli: Cli, command: tuple[str, ...]) -> None:
    refused = cli.run(*command, "--db", f"postgresql://ada:{SECRET}@db/holdfast?lease_secs=soon")
    assert refused.returncode == 2 and refused.stdout == ""
    assert refused.stderr == "holdfast: lease_secs is a number from 2 to 300, not 'soon'\n"


def test_a_part_of_the_address_that_is_unknown(cli: Cli, postgres_server: Server) -> None:
    said = refusal(cli, f"{made(postgres_server)}&nod=a")
    assert '"nod"' in said and "neither Holdfast nor the server knows" in said


def test_a_driver_that_is_not_installed_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.store.postgres.store")
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(
        Usage, match=r"^PostgreSQL needs a package .*: pip install 'holdfast-engine\[postgres\]'$"
    ):
        path_of(Settings(db="postgresql://db/holdfast"))


def test_a_server_without_fsync(cli: Cli, postgres_server: Server) -> None:
    said = refusal(cli, made(postgres_server).removesuffix("&unsafe=1"))
    assert "fsync" in said and "unsafe=1" in said


@pytest.fixture
def guarded_role(postgres_server: Server) -> str:
    """A role with a password that the server asks for."""
    done(postgres_server.execute("DROP ROLE IF EXISTS ada"))
    done(postgres_server.execute("CREATE ROLE ada LOGIN SUPERUSER PASSWORD 'right'"))
    rules = Path(postgres_server.folder, "pg_hba.conf")
    asked = "local all ada scram-sha-256\n"
    text = rules.read_text()
    if asked not in text:
        rules.write_text(asked + text)
        done(postgres_server.execute("SELECT pg_reload_conf()"))
    return "ada"


def test_a_wrong_password(cli: Cli, postgres_server: Server, guarded_role: str) -> None:
    url = made(postgres_server).replace(f"postgres:{SECRET}@", f"{guarded_role}:{SECRET}@")
    said = refusal(cli, url)
    assert "the password is wrong" in said and "PGPASSFILE" in said and urlsplit(url).path in said
    right = url.replace(SECRET, "right")
    up = cli.up("--db", right)
    assert cli.json("runs", "list", "--db", right)["items"] == []
    _, told = up.stop()
    assert "right" not in told


def test_a_role_that_does_not_wait_for_the_disk(cli: Cli, postgres_server: Server) -> None:
    done(postgres_server.execute("DROP ROLE IF EXISTS hasty"))
    done(postgres_server.execute("CREATE ROLE hasty LOGIN SUPERUSER"))
    done(postgres_server.execute("ALTER ROLE hasty SET synchronous_commit = off"))
    said = refusal(cli, made(postgres_server).replace("://postgres:", "://hasty:"))
    assert "synchronous_commit=off" in said and "ALTER ROLE" in said


@pytest.fixture
def weak_role(postgres_server: Server) -> str:
    """A role without any right of its own."""
    done(
        postgres_server.execute(
            "DO $$ BEGIN CREATE ROLE weak LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
    )
    return "weak"


def test_a_role_that_may_not_make_tables(cli: Cli, postgres_server: Server, weak_role: str) -> None:
    url = made(postgres_server, empty=True).replace("://postgres:", f"://{weak_role}:")
    said = refusal(cli, url)
    assert "permission denied for schema public; make the user the owner of the database" in said


def test_a_role_that_may_not_use_the_tables(cli: Cli, postgres_server: Server, weak_role: str) -> None:
    said = refusal(cli, made(postgres_server).replace("://postgres:", f"://{weak_role}:"))
    assert "permission denied for table" in said and "grant it all rights" in said


def test_a_role_that_may_not_connect(cli: Cli, postgres_server: Server, weak_role: str) -> None:
    url = made(postgres_server, "REVOKE CONNECT ON DATABASE {name} FROM PUBLIC")
    said = refusal(cli, url.replace("://postgres:", f"://{weak_role}:"))
    assert "GRANT CONNECT ON DATABASE" in said


def test_a_database_with_fewer_connections_than_a_node_needs(
    cli: Cli, postgres_server: Server, weak_role: str
) -> None:
    url = made(
        postgres_server,
        "ALTER DATABASE {name} CONNECTION LIMIT 3",
        f"ALTER SCHEMA public OWNER TO {weak_role}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {weak_role}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {weak_role}",
    )
    refused = cli.run("up", "--port", "0", "--db", url.replace("://postgres:", f"://{weak_role}:"))
    assert refused.returncode == 2
    assert "a node needs 6 connections: raise max_connections" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_role_whose_statements_end_behind_a_pool(cli: Cli, postgres_server: Server) -> None:
    """Of its own sessions Holdfast sets the time to none; those of a pool have what the role has."""
    url = made(postgres_server, "ALTER DATABASE {name} SET statement_timeout = '7s'")
    said = refusal(cli, f"{url}&listen_dsn={quote(url, safe='')}")
    assert "after 7000 ms (statement_timeout)" in said and "SET statement_timeout = 0" in said
    up = cli.up("--db", url)
    up.stop()


def test_a_server_that_is_too_old(postgres_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """No older server is at hand, so this one counts as older."""
    monkeypatch.setattr(place, "VERSION_MIN", 99)
    with pytest.raises(StoreUnavailable, match="Holdfast needs 99 or later: upgrade the server"):
        done(PostgresStore(str(done(postgres_server.new_database()))).open())


def test_of_two_nodes_of_one_name_the_elder_ends(cli: Cli, postgres_server: Server) -> None:
    url = made(postgres_server) + "&node=twin"
    elder = cli.up("--db", url)
    (cli.folder / "apart").mkdir()
    other = Cli(cli.folder / "apart")  # as on another machine
    try:
        younger = other.up("--db", url)
        said = elder.process.communicate(timeout=60)[1]
        assert elder.process.wait() == 2 and "it has the same name" in said
        (node,) = other.json("nodes", "--server", younger.address)["items"]
        assert (node["name"], node["state"]) == ("twin", "ready")
        younger.stop()
    finally:
        for process in other.started:
            process.kill()


def test_the_error_has_a_code(cli: Cli) -> None:
    refused = cli.run("runs", "list", "--db", f"postgresql://ada:{SECRET}@127.0.0.1:1/x", "--json")
    assert json.loads(refused.stdout)["error"] == "store_unavailable" and SECRET not in refused.stdout
