"""Queries of a PostgreSQL database, and what its errors mean. The reads (reads.py) and the writes (store.py) are built on it.

Reads take any connection of a small pool. `still` binds one connection to the caller's task, so that all of its reads see one
moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import asyncpg  # type: ignore[import-untyped]  # it has no stubs

from holdfast.errors import StoreUnavailable
from holdfast.store.read_errors import translating
from holdfast.store.statements import statements

READERS_MAX: Final = 4
ANSWER_SECONDS: Final = 30.0  # a read that takes longer has lost its connection

# The server took a statement back because of another one.
TAKEN_BACK: Final = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
# The outcome of a statement that fails so is unknown, or it can be tried again later: none of them is the fault of a batch.
AWAY: Final = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a server that ends a session between two statements confuses the driver
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # a server that ends, starts, or ends a session or statement
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresSystemError,
    asyncpg.InsufficientPrivilegeError,
    *TAKEN_BACK,
)

# The server has refused a statement, and nothing of it counts. What its operator can do stands in the message.
REFUSED: Final = (
    asyncpg.InsufficientResourcesError,
    asyncpg.QueryCanceledError,
    asyncpg.InsufficientPrivilegeError,
)
REMEDIES: Final[list[tuple[type[Exception], str]]] = [
    (
        asyncpg.InsufficientPrivilegeError,
        "make the user the owner of the database, or grant it all rights on the schema, its tables and its sequences",
    ),
    (asyncpg.DiskFullError, "make room on the disk of the server; commits then go on by themselves"),
]

Kind = TypeVar("Kind")
Read = Callable[..., Coroutine[Any, Any, Kind]]

_still: ContextVar[Any] = ContextVar("still", default=None)


def bound() -> Any:
    """The connection that `still` has bound to the caller."""
    connection = _still.get()
    assert connection is not None, "to be asked inside still()"
    return connection


def meaning(error: BaseException, what: str) -> BaseException:
    """What an error of the driver means to a caller: the database is unavailable for now; any other is a bug in Holdfast."""
    # A value that the driver cannot send is a bug, although its error is one of connections too.
    if isinstance(error, AWAY) and not isinstance(error, ValueError):
        return StoreUnavailable(f"the database cannot be {what} now: {reason_of(error)}")
    return error


def reason_of(error: BaseException) -> str:
    """What the server or the driver said, in one line, and what to do about it where that is known."""
    why = " ".join(str(error).split()) or type(error).__name__
    remedy = next((remedy for kind, remedy in REMEDIES if isinstance(error, kind)), "")
    return f"{why}; {remedy}" if remedy else why


# Makes every read of a class raise StoreUnavailable where the database cannot be reached.
raises_store_errors: Final = translating(AWAY, lambda _, error: meaning(error, "read"))


class Asking:
    node: str
    # The only slot whose schedules are decided here, if it is not that of all nodes together and that of this node.
    only_slot: str | None = None

    @property
    def slots(self) -> tuple[str, str]:
        """The slots of schedules that are decided here."""
        return ("", self.node) if self.only_slot is None else (self.only_slot, self.only_slot)

    def __init__(self) -> None:
        self._sql = statements("postgres")
        self._pool: Any = None
        # One connection is left to the lease, however slow the reads are.
        self._places = asyncio.Semaphore(READERS_MAX - 1)

    async def _ask(self, name: str, *args: Any) -> Sequence[Any]:
        """The rows of an answer."""
        try:
            return await self._asked(name, args)
        except asyncpg.CharacterNotInRepertoireError:  # what was written with NUL is stored without it
            return await self._asked(name, without_nul(args))

    async def _asked(self, name: str, args: Sequence[Any]) -> Sequence[Any]:
        if (connection := _still.get()) is not None:
            found: Sequence[Any] = await connection.fetch(self._sql[name], *args)
            return found
        async with self._places:
            return await self._answer(name, args, ANSWER_SECONDS)

    async def _answer(self, name: str, args: Sequence[Any], seconds: float) -> Sequence[Any]:
        async with self._pool.acquire() as connection:
            try:
                with answering_within(connection, seconds):
                    found: Sequence[Any] = await connection.fetch(self._sql[name], *args)
            except asyncpg.InternalClientError:
                connection.terminate()  # the pool would give it out again
                raise
        return found

    async def _first(self, name: str, *args: Any) -> Any:
        return next(iter(await self._ask(name, *args)), None)

    async def _value(self, name: str, *args: Any) -> Any:
        row = await self._first(name, *args)
        return None if row is None else row[0]

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """What is read within is of one moment, however much is written meanwhile."""
        async with (
            self._places,
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            token = _still.set(connection)
            try:
                yield
            finally:
                _still.reset(token)


def rows(name: str, kind: Callable[..., Kind]) -> Read[list[Kind]]:
    """A read whose arguments are those of its statement, and that makes a record of each row."""

    async def ask(self: Asking, *args: Any) -> list[Kind]:
        return [kind(*row) for row in await self._ask(name, *args)]

    return ask


def first(name: str, kind: Callable[..., Kind]) -> Read[Kind | None]:
    """The same for one record, or none."""

    async def ask(self: Asking, *args: Any) -> Kind | None:
        row = await self._first(name, *args)
        return None if row is None else kind(*row)

    return ask


def value(name: str, kind: Callable[[Any], Kind]) -> Read[Kind]:
    """The same for one value."""

    async def ask(self: Asking, *args: Any) -> Kind:
        return kind(await self._value(name, *args))

    return ask


def values(name: str) -> Read[list[Any]]:
    """The same for a list of single values."""

    async def ask(self: Asking, *args: Any) -> list[Any]:
        return [row[0] for row in await self._ask(name, *args)]

    return ask


def tuples(name: str) -> Read[list[Any]]:
    async def ask(self: Asking, *args: Any) -> list[Any]:
        return [tuple(row) for row in await self._ask(name, *args)]

    return ask


def without_nul(value: Any) -> Any:
    """The same with the character NUL replaced, which text of PostgreSQL cannot have."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    return [without_nul(each) for each in value] if isinstance(value, list | tuple) else value


def same(found: Any) -> Any:
    return found


@contextmanager
def answering_within(connection: Any, seconds: float) -> Iterator[None]:
    """Break a connection off once its server has not answered for so long, as one does whose machine has died. To cancel the
    statement, or end its transaction, the driver would wait for the same server."""
    has_broken = False

    def break_off() -> None:
        nonlocal has_broken
        has_broken = True
        connection.terminate()

    timer = asyncio.get_running_loop().call_later(seconds, break_off)
    try:
        yield
    except AWAY as error:
        if has_broken:
            raise TimeoutError(f"the server has not answered for {seconds:g} seconds") from error
        raise
    finally:
        timer.cancel()
