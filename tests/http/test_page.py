"""The web page over HTTP: its headers, its files, and what is said where it was not built."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from urllib.parse import urljoin

import aiohttp
import pytest

from holdfast.config import Settings
from holdfast.http.routes import page
from holdfast.http.serve import serving

pytestmark = pytest.mark.anyio
SHELL = b'<!doctype html><script src="$ROOTui/assets/aa11/page.js"></script><link href="$ROOTui/assets/bb22/style.css">'


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small page in a folder of its own, as build.mjs writes it."""
    folder = tmp_path / "dist"
    script = folder / "assets" / "aa11" / "page.js"
    script.parent.mkdir(parents=True)
    script.write_bytes(b"let x = 1;" * 100)
    script.with_name("page.js.gz").write_bytes(gzip.compress(script.read_bytes()))
    (folder / "index.html").write_bytes(SHELL)
    _use(folder, monkeypatch)
    return folder


def _use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = page.built.__wrapped__
    monkeypatch.setattr(page, "built", lambda: read(folder))


def _settings(tmp_path: Path, key: str | None = None) -> Settings:
    return Settings(db=f"sqlite:///{tmp_path / 'h.db'}", host="127.0.0.1", port=0, key=key)


@pytest.mark.parametrize(
    "path", ["/", "/ui", "/ui/", "/ui/runs", "/ui/runs/0199", "/ui/compare/a/b", "/ui/workflows/a%2Fb"]
)
async def test_every_address_of_the_page_gets_the_same_shell(path: str, built: Path, tmp_path: Path) -> None:
    async with serving(_settings(tmp_path)) as server, aiohttp.ClientSession() as http:
        answer = await http.get(server.address + path)
        assert answer.status == 200
        root = {
            urljoin(path, name) for name in re.findall('(?:src|href)="([^"]+)/assets', await answer.text())
        }
        assert root == {"/ui"}, "its files are named from its own address on"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"


async def test_the_policy_allows_nothing_but_this_server_and_no_markup_from_text(
    built: Path, tmp_path: Path
) -> None:
    async with serving(_settings(tmp_path)) as server, aiohttp.ClientSession() as http:
        headers = (await http.get(server.address)).headers
        policy = dict(
            part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
        assert policy["style-src"] == "'self'" and policy["frame-ancestors"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'" and policy["trusted-types"] == "'none'"
        assert "unsafe" not in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")


async def test_a_file_is_kept_for_ever_and_sent_compressed(built: Path, tmp_path: Path) -> None:
    async with serving(_settings(tmp_path)) as server, aiohttp.ClientSession(auto_decompress=False) as http:
        address = f"{server.address}/ui/assets/aa11/page.js"
        zipped = await http.get(address, headers={"accept-encoding": "gzip, br;q=0"})
        plain = await http.get(address, headers={"accept-encoding": "identity"})
        assert zipped.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
        assert gzip.decompress(await zipped.read()) == await plain.read() == b"let x = 1;" * 100
        assert "immutable" in zipped.headers["cache-control"] and zipped.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize(
    "path",
    [
        "/ui/assets/aa11/other.js",
        "/ui/assets/zz/page.js",
        "/ui/assets/aa11/page.js.gz",
        "/ui/assets/..%2F..%2Fx/y",
    ],
)
async def test_a_file_that_is_not_part_of_the_page_is_not_found(
    path: str, built: Path, tmp_path: Path
) -> None:
    async with serving(_settings(tmp_path)) as server, aiohttp.ClientSession() as http:
        assert (await http.get(server.address + path)).status == 404


async def test_the_page_itself_needs_no_key_where_the_data_does(built: Path, tmp_path: Path) -> None:
    async with serving(_settings(tmp_path, "k" * 32)) as server, aiohttp.ClientSession() as http:
        assert (await http.get(server.address)).status == 200
        assert (await http.get(f"{server.address}/ui/assets/aa11/page.js")).status == 200
        assert (await http.get(f"{server.address}/api/v1/runs")).status == 401


async def test_without_a_built_page_one_sentence_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(tmp_path / "nothing", monkeypatch)
    async with serving(_settings(tmp_path)) as server, aiohttp.ClientSession() as http:
        answer = await http.get(server.address)
        text = await answer.text()
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert "make setup" in text and "/docs" in text and len(text.splitlines()) == 1
        assert (await http.get(f"{server.address}/healthz")).status == 200


async def test_the_built_page_names_files_that_are_served() -> None:
    files = page.built()
    if "index.html" in files:
        named = re.findall(r'(?:src|href)="\$ROOTui/(assets/[^"]+)"', files["index.html"].copies[""].decode())
        assert len(named) >= 3 and set(named) <= set(files)
        assert all({"", "br", "gzip"} <= set(files[name].copies) for name in named)
