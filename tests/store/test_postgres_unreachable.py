"""What is between a node and its server, and answers otherwise than a server that can be used: told in one line, with what to do."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres.place import CONNECT_SECONDS, Address, connect

SECRET = "hunter2-and-more"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[str]:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield f"postgresql://ada:{SECRET}@127.0.0.1:{server.sockets[0].getsockname()[1]}/holdfast"
    finally:
        server.close()


async def refusal(serve: Serve, options: str = "?sslmode=disable") -> str:
    async with listening(serve) as url:
        with pytest.raises(StoreUnavailable) as caught:
            await connect(Address(url + options))
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


async def without_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(8)
    writer.write(b"N")


def failing(code: str, message: str) -> Serve:
    """A server that answers the start of a session with an error."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4), "big")
        await reader.readexactly(size - 4)
        fields = f"SFATAL\0VFATAL\0C{code}\0M{message}\0\0".encode()
        writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)

    return serve


def self_signed(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "db")])
    begins = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(begins)
        .not_valid_after(begins.replace(year=2100))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return context


@pytest.fixture(autouse=True)
def anyio_backend() -> str:
    return "asyncio"


pytestmark = pytest.mark.anyio


async def test_a_server_without_tls_that_must_have_it() -> None:
    said = await refusal(without_tls, "?sslmode=require")
    assert "ssl = on" in said and "sslmode=disable" in said


async def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(b"S")
        await writer.start_tls(self_signed(tmp_path))

    self_signed(tmp_path)
    authority = (
        tmp_path / "authority.pem"
    )  # another one than that of the server, which is made for each connection
    authority.write_text((tmp_path / "both.pem").read_text().partition("-----END PRIVATE KEY-----")[2])
    said = await refusal(serve, f"?sslmode=verify-full&sslrootcert={authority}")
    assert "certificate" in said.lower() and "sslrootcert=FILE" in said


async def test_a_file_of_certificates_that_is_missing(tmp_path: Path) -> None:
    said = await refusal(without_tls, f"?sslmode=verify-full&sslrootcert={tmp_path}/none.pem")
    assert f"there is no file {tmp_path}/none.pem" in said


async def test_a_pool_of_connections_that_was_not_said_to_be_one() -> None:
    said = await refusal(failing("08P01", "unsupported startup parameter: lock_timeout"))
    assert "lock_timeout; a pool of connections is between" in said and "listen_dsn" in said


async def test_a_server_without_a_free_connection() -> None:
    said = await refusal(failing("53300", "sorry, too many clients already"))
    assert "a node needs 6 connections" in said and "max_connections" in said


async def test_a_rule_of_the_server_that_keeps_this_machine_out() -> None:
    said = await refusal(failing("28000", 'no pg_hba.conf entry for host "10.0.0.9", no encryption'))
    assert "change pg_hba.conf" in said


async def test_a_server_that_starts_up_or_shuts_down() -> None:
    said = await refusal(failing("57P03", "the database system is starting up"))
    assert "starting up; is the server running" in said


@pytest.mark.parametrize(
    ("url", "dead", "alive"),
    [
        (
            "postgresql://ada@dead:1,alive:2/holdfast",
            "postgresql://ada@dead:1/holdfast",
            "postgresql://ada@alive:2/holdfast",
        ),
        (
            "postgresql://ada@/holdfast?host=dead,alive&port=1,2",
            "postgresql://ada@/holdfast?host=dead&port=1",
            "postgresql://ada@/holdfast?host=alive&port=2",
        ),
        (
            "postgresql://ada@/holdfast?host=dead,alive&port=1",
            "postgresql://ada@/holdfast?host=dead&port=1",
            "postgresql://ada@/holdfast?host=alive&port=1",
        ),
    ],
)
async def test_a_server_that_says_nothing_leaves_time_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch, url: str, dead: str, alive: str
) -> None:
    asked: list[str] = []

    async def connected(dsn: str, *, timeout: float, **session: Any) -> str:
        assert timeout == CONNECT_SECONDS / 2
        asked.append(dsn)
        if dsn == dead:
            raise TimeoutError
        return dsn

    monkeypatch.setattr(asyncpg, "connect", connected)
    address = Address(url)
    assert await connect(address) == await connect(address) == alive
    assert asked == [dead, alive, alive]  # the second time the one that answered is asked first
