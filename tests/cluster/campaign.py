"""Nodes that are real processes on one PostgreSQL server, each behind a proxy of its own, while connections, sessions, the server and the
nodes themselves fail.

Knows faults and processes; what must hold afterwards is in checker.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import msgspec

from tests.cluster import node
from tests.cluster.checker import all_have_ended, problems_of, takeovers
from tests.forks import Program
from tests.postgres import Proxy, Server

NAMES: Final = ("a", "b", "c")
LEASE_SECS: Final = 2
LONG: Final = ("black hole past the lease", "node stopped past its lease")
END_SECONDS: Final = 120.0  # for all runs to end once the faults have stopped, on a machine that is busy
ROUNDS_MAX: Final = 10  # times the faults that were asked for, until their consequences have been seen


class Report(msgspec.Struct):
    problems: list[str] = []
    faults: Counter[str] = msgspec.field(default_factory=Counter)
    runs: int = 0
    adopted: int = 0
    over: int = 0  # processes that ended because their lease had expired
    unknown: int = 0  # commits whose outcome had to be asked for


class Node:
    """One name, and the process that has it at the moment. The next incarnation is in a folder of its own, like another machine."""

    def __init__(self, name: str, proxy: Proxy, folder: Path) -> None:
        self.name, self.proxy, self._folder = name, proxy, folder
        self._began = 0
        self.process: Program
        self.start()

    @property
    def log(self) -> Path:
        return self._folder / f"{self.name}.log"

    def start(self) -> None:
        self._began += 1
        place = self._folder / f"{self.name}{self._began}"
        place.mkdir()
        url = f"{self.proxy.url}&lease_secs={LEASE_SECS}&node={self.name}"
        part = NAMES.index(self.name)
        args = [url, self.name, str(self._folder), str(part), str(len(NAMES))]
        self.process = Program("tests.cluster.node", args, cwd=place, env=dict(os.environ), log=self.log)

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self._let_go()

    def _let_go(self) -> None:
        self.process.stdout.close()
        self.process.stderr.close()

    def restart_if_ended(self) -> int | None:
        """Its exit code, if it has ended."""
        code = self.process.poll()
        if code is not None:
            self._let_go()
            self.start()
        return code


class Campaign:
    def __init__(self, server: Server, folder: Path, *, seed: int, faults: int) -> None:
        self._server, self._folder, self._faults = server, folder, faults
        self._dice = random.Random(seed)
        self.report = Report()
        self._nodes: list[Node] = []
        self._database = ""
        self._kinds: dict[str, Callable[[Node], Coroutine[Any, Any, None]]] = {
            "cut": self._cut,
            "answer lost": self._lose_answer,
            "statement lost": self._lose_statement,
            "black hole": self._black_hole,
            "black hole past the lease": self._long_black_hole,
            "session ended": self._end_sessions,
            "server crashed": self._crash_server,
            "node killed": self._kill,
            "node stopped past its lease": self._stop,
        }

    async def run(self) -> Report:
        self._database = await self._server.new_database()
        async with AsyncExitStack() as stack:
            for name in NAMES:
                socket = self._folder / f"socket-{name}"
                socket.mkdir()
                proxy = await stack.enter_async_context(Proxy(self._database, socket))
                self._nodes.append(Node(name, proxy, self._folder))
            try:
                await self._break_things()
                for each in self._nodes:
                    each.proxy.is_hole = each.proxy.drops = False
                    each.proxy.swallows = 0
                await self._until_all_end()
            finally:
                for each in self._nodes:
                    each.end()
            await self._check()
        return self.report

    async def _break_things(self) -> None:
        """Each kind in turn, in an order of the dice, on a node of the dice.

        Where nodes are slow, the faults that were asked for may hit none that drives a run: then there are more.
        """
        order, under_way = list[str](), set[asyncio.Task[None]]()
        for broken in range(ROUNDS_MAX * self._faults):
            if broken >= self._faults and await self._has_had_consequences():
                break
            if not order:
                order = self._dice.sample(list(self._kinds), len(self._kinds))
            kind = order.pop()
            fault = asyncio.create_task(self._kinds[kind](self._dice.choice(self._nodes)))
            under_way.add(fault)
            self.report.faults[kind] += 1
            if kind not in LONG:  # those that last go on beside the next ones
                await fault
            await asyncio.sleep(self._dice.uniform(0, 0.5))
            self._revive()
        await asyncio.gather(*under_way)

    async def _has_had_consequences(self) -> bool:
        """Whether runs were taken over, a node has ended for its lease, and the outcome of a commit was unknown."""
        await self._count()
        return bool(self.report.adopted and self.report.over and self.report.unknown)

    def _revive(self) -> None:
        for each in self._nodes:
            code = each.restart_if_ended()
            if code == node.IS_OVER:
                self.report.over += 1
            elif code is not None:
                self.report.problems.append(f"node {each.name} ended with {code}; see its log")

    async def _until_all_end(self) -> None:
        (self._folder / "stop").touch()
        connection = await self._server.connect(self._database)
        try:
            async with asyncio.timeout(END_SECONDS):
                while not await all_have_ended(connection, self._folder):
                    self._revive()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pass  # the checker says which have not
        finally:
            await connection.close()

    async def _check(self) -> None:
        connection = await self._server.connect(self._database)
        self.report.problems += await problems_of(connection, self._folder)
        self.report.runs = await connection.fetchval("SELECT count(*) FROM run")
        await connection.close()
        await self._count()

    async def _count(self) -> None:
        connection = await self._server.connect(self._database)
        self.report.adopted = await takeovers(connection)
        await connection.close()
        said = "".join(each.log.read_text() for each in self._nodes)
        self.report.unknown = said.count("the outcome of a commit is unknown")

    # ------------------------------------------------------------------------------------------------ faults

    async def _cut(self, one: Node) -> None:
        one.proxy.cut()

    async def _lose_answer(self, one: Node) -> None:
        one.proxy.swallows = 1

    async def _lose_statement(self, one: Node) -> None:
        one.proxy.drops = True

    async def _black_hole(self, one: Node, seconds: float = 0.3) -> None:
        one.proxy.is_hole = True
        await asyncio.sleep(seconds)
        one.proxy.is_hole = False

    async def _long_black_hole(self, one: Node) -> None:
        await self._black_hole(one, LEASE_SECS + 1)

    async def _end_sessions(self, one: Node) -> None:
        await self._server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            self._database,
        )

    async def _crash_server(self, one: Node) -> None:
        """The server ends all sessions at once and recovers, as after an immediate restart."""
        connection = await self._server.connect(self._database)
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        os.kill(pid, signal.SIGKILL)
        connection.terminate()
        async with asyncio.timeout(END_SECONDS):
            while not await self._answers():
                await asyncio.sleep(0.05)

    async def _answers(self) -> bool:
        try:
            await self._server.execute("SELECT 1", self._database)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):  # it recovers
            return False
        return True

    async def _kill(self, one: Node) -> None:
        one.end()
        one.start()

    async def _stop(self, one: Node) -> None:
        one.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE_SECS + 1)
        one.process.send_signal(signal.SIGCONT)


def line_of(report: Report) -> str:
    faults = ", ".join(f"{kind} {count}" for kind, count in sorted(report.faults.items()))
    return (
        f"{report.runs} runs, {report.faults.total()} faults ({faults}); {report.adopted} runs taken over, "
        f"{report.over} nodes over, {report.unknown} outcomes asked for; {len(report.problems)} problems"
    )


def ran(server: Server, folder: Path, **options: Any) -> Report:
    return asyncio.run(Campaign(server, folder, **options).run())
