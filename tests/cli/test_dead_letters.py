"""`holdfast dead-letters`: the same words at a server and on a file that nobody has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.runtime.receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def told(cli: Cli, receiver: Receiver, *statuses: int) -> None:
    """A run in this folder whose end is told to the receiver."""
    receiver.statuses = list(statuses)
    flow = cli.flow("- {id: s, tool: add, args: {a: 1}}", on_complete=f"[{{url: '{receiver.url}'}}]")
    assert cli.run("run", flow, "--tools", "tools").returncode == 0


def listed(cli: Cli, *words: str) -> list[dict[str, Any]]:
    return list(cli.json("dead-letters", "list", *words)["items"])


def test_a_run_of_the_command_line_tells_its_end_before_it_is_over(cli: Cli, receiver: Receiver) -> None:
    told(cli, receiver)
    assert [one.body["status"] for one in receiver.received] == ["completed"]


def test_a_dead_letter_is_listed_sent_again_and_gone_from_the_list(cli: Cli, receiver: Receiver) -> None:
    told(cli, receiver, 410)
    (letter,) = listed(cli)
    assert (letter["url"], letter["tries"]) == (receiver.url, 1)
    assert letter["id"] in cli.run("dead-letters", "list").stdout
    done = cli.run("dead-letters", "replay", letter["id"])
    assert (done.returncode, done.stderr) == (0, f"{letter['id']} is delivered\n")
    assert receiver.ids == [letter["id"]] * 2
    assert listed(cli) == []


def test_a_letter_that_is_sent_again_in_vain_says_so(cli: Cli, receiver: Receiver) -> None:
    told(cli, receiver, 410, *[503] * 100)
    (letter,) = listed(cli)
    done = cli.run("dead-letters", "replay", letter["id"])
    assert "is pending again; the first attempt failed" in done.stderr
    assert "503" in done.stderr


def test_a_dead_letter_is_given_up(cli: Cli, receiver: Receiver) -> None:
    told(cli, receiver, 410)
    (letter,) = listed(cli)
    assert cli.json("dead-letters", "discard", letter["id"])["status"] == "discarded"
    assert listed(cli) == []
    again = cli.run("dead-letters", "discard", letter["id"])
    assert again.returncode == 2
    assert "is discarded, not dead" in again.stderr


def test_the_same_is_done_at_a_server(cli: Cli, receiver: Receiver) -> None:
    told(cli, receiver, 410)
    told(cli, receiver, 410)
    first, second = listed(cli)
    up = cli.up()
    assert listed(cli, "--server", up.address) == [first, second]
    assert cli.json("dead-letters", "discard", second["id"])["status"] == "discarded"
    assert cli.json("dead-letters", "replay", first["id"])["status"] == "waiting"
    assert up.stop()[0] == 0  # when what is on its way has arrived
    assert listed(cli) == []
    assert receiver.ids == [first["id"], second["id"], first["id"]]


@pytest.mark.parametrize("act", ["replay", "discard"])
def test_a_letter_that_is_not_there_is_told(cli: Cli, receiver: Receiver, act: str) -> None:
    told(cli, receiver)
    done = cli.run("dead-letters", act, "msg_none_0")
    assert done.returncode == 2
    assert "no delivery 'msg_none_0'" in done.stderr
