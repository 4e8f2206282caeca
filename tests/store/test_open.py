"""What the address of a database means."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.open import database_path, is_server, open_file, open_url, shown


@pytest.mark.parametrize("prefix", ["sqlite:///", ""])
@pytest.mark.anyio
async def test_an_address_of_sqlite_opens_the_file(tmp_path: Path, prefix: str) -> None:
    store = open_url(f"{prefix}{tmp_path / 'a.db'}")
    await store.open()
    try:
        assert await store.sizes() == {"database": (tmp_path / "a.db").stat().st_size, "log": 4 * 1024 * 1024}
    finally:
        await store.close()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "POSTGRESQL"])
def test_an_address_of_postgresql_is_a_server_and_is_shown_without_its_password(scheme: str) -> None:
    url = f"{scheme}://ada:hunter2@db.example/holdfast?node=a"
    assert is_server(url) and "hunter2" not in shown(url)
    store = open_url(url)
    assert (store.node, store.look_every) == ("a", 1.0)
    assert database_path(url) == "holdfast-a"


@pytest.mark.parametrize("mark", ["/", "?", "#", "@", "[", "]", "?a=b/", "[x]:9/"])
@pytest.mark.parametrize("beginning", ["hunter", "1234"])
def test_a_password_that_divides_its_address_is_refused_and_not_shown(mark: str, beginning: str) -> None:
    url = f"postgresql://ada:{beginning}{mark}secret@db:5432/holdfast"
    with pytest.raises(ValueError, match="write / as %2F") as refused:
        open_url(url)
    for said in (str(refused.value), shown(url)):
        assert beginning not in said and "secret" not in said and "ada" not in said


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            "postgresql://ada:hunter2@a:5432,[::1]:5433/holdfast?node=x",
            "postgresql://ada:…@a:5432,[::1]:5433/holdfast?node=x",
        ),
        ("postgresql://a/holdfast?user=ada&password=hunter2", "postgresql://a/holdfast?user=ada&password=…"),
        (
            "postgresql://a/holdfast?listen_dsn=postgresql%3A%2F%2Fada%3Ahunter2%40b%2Fholdfast",
            "postgresql://a/holdfast?listen_dsn=postgresql%3A//ada%3A…%40b/holdfast",
        ),
        (
            "postgresql:///holdfast?host=/var/run/postgresql",
            "postgresql:///holdfast?host=/var/run/postgresql",
        ),
    ],
)
def test_an_address_is_shown_without_any_password(given: str, says: str) -> None:
    open_url(given)
    assert shown(given) == says


def test_a_name_that_no_node_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no name for a node"):
        open_url("postgresql://db/holdfast?node=a/b")


def test_a_server_is_no_file_to_back_up() -> None:
    with pytest.raises(ValueError, match="pg_dump") as refused:
        open_file("postgresql://ada:hunter2@db/holdfast")
    assert "hunter2" not in str(refused.value)


def test_an_unknown_database_is_refused_by_its_scheme_without_showing_the_password() -> None:
    with pytest.raises(ValueError, match="'mysql':// is no database that Holdfast can use") as refused:
        open_url("mysql://ada:hunter2@db/holdfast")
    assert "hunter2" not in str(refused.value)


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="would survive nothing"):
        open_url("sqlite:///:memory:")


def test_a_link_is_another_name_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    assert database_path(f"sqlite:///{tmp_path / 'link.db'}") == str(tmp_path / "a.db")
