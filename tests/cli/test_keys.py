"""`holdfast keys` on a file that nobody has: made, shown once, listed, revoked."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import Cli


def test_a_key_is_made_listed_and_revoked_in_a_file_that_no_process_has(cli: Cli) -> None:
    made = cli.run("keys", "create", "me", "--scope", "admin", "--tenant", "acme")
    assert made.returncode == 0
    assert re.fullmatch(r"hf_[\w-]{43}\n", made.stdout)
    (listed,) = json.loads(cli.run("keys", "list", "--tenant", "acme", "--json").stdout)["items"]
    assert (listed["name"], listed["scopes"], listed["revoked_at"]) == ("me", ["admin"], None)
    revoked = cli.run("keys", "revoke", listed["id"], "--tenant", "acme", "--json")
    assert json.loads(revoked.stdout)["revoked_at"] is not None
    assert cli.run("keys", "revoke", listed["id"]).returncode == 2  # of the tenant default: none


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create", "me"), "--scope"),
        (("create", "me", "--scope", "write"), "read or run"),
        (("create", "me", "--scope", "read", "--service", "s"), "scope worker"),
        (("create", "me", "--scope", "read", "--expires-days", "0"), "--expires-days"),
        (("create", "me", "--scope", "read", "--tenant", "No Such"), "tenant"),
        (("revoke", "key-none"), "no key key-none|no database"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(cli: Cli, words: tuple[str, ...], says: str) -> None:
    found = cli.run("keys", *words)
    assert found.returncode == 2
    assert re.search(says, found.stderr)
    assert found.stdout == ""
