"""Where a command reads and acts: on a server, or in the file itself. Both return the same results.

    holdfast runs …  ──► opened(settings) ──┬──► ServerSource     --server, or the server that owns the file
                                            ├──► OwnedFileSource  a program that owns the file: read here, changed by the program
                                            └──► FileSource       no owner

Results are the records of the API, so a command need not know which of the two it uses.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.api import present
from holdfast.api.principal import LOCAL_ID
from holdfast.api.types import (
    Diff,
    Explanation,
    FolderReport,
    LogPage,
    Release,
    RerunPreview,
    Resumed,
    Run,
    RunLine,
    RunPage,
    Step,
    Workflow,
    WorkflowLine,
)
from holdfast.cli.file import (
    CANDIDATES_MAX,
    ID_PART_MIN,
    LAST,
    acting,
    beside,
    found,
    path_of,
    reading,
    the_one,
)
from holdfast.cli.options import Usage, load_tools
from holdfast.cli.render import FRAMES_PER_SECOND, ms_of
from holdfast.cli.server import Server, server_of
from holdfast.config import DEFAULT_DB, Settings
from holdfast.errors import NotFound
from holdfast.runtime.engine import Engine
from holdfast.runtime.plans import Plans
from holdfast.runtime.rerun import Again
from holdfast.store.lock import holder_of
from holdfast.store.open import shown
from holdfast.store.records import ReadRow
from holdfast.tools.registry import Registry
from holdfast.values import DEFAULT_TENANT, OPEN, TERMINAL, Millis, RunId, written
from holdfast.views.all_events import EncodedEvent, History, TailOfAll, encoded
from holdfast.views.events import Feed, RunEvent, Tail
from holdfast.views.positions import BEGINNING, Position
from holdfast.views.runs import Queries
from holdfast.views.steps import StepView
from holdfast.waits.approval_links import Links

if TYPE_CHECKING:
    from holdfast.sdk.client import (
        Client,
        LiveEvent,
    )  # and with it an HTTP client, which takes a while to load

Item = TypeVar("Item")

PAGE: Final = 500
ID_CHARS: Final = 36
FOLLOW_PATIENCE_SECS: Final = 60.0  # following a run survives a restart of its server


NO_ENGINE: Final = "no engine has this file open"
Shown = TypeVar("Shown", Run, RunLine)


class Said(NamedTuple):
    """Progress that a tool reports."""

    path: str
    fraction: float
    message: str


class News(NamedTuple):
    """What happened in a run since the last update. `has_more`: more has happened already."""

    rows: Sequence[ReadRow]
    said: Sequence[Said] = ()
    has_more: bool = False


class Answer(NamedTuple):
    """An answer to an approval; `by` is the approver, if the key does not determine it."""

    approved: bool
    reason: str = ""
    by: str = ""
    form: Any = None


class Source(Protocol):
    @property
    def place(self) -> str: ...  # for sentences: the file, or the address
    @property
    def flags(self) -> tuple[str, ...]: ...  # flags with which another command finds the same place
    @property
    def is_unowned(self) -> bool: ...  # no process has the file open, so nothing goes on by itself

    async def find(self, word: str, *, is_open: bool = False) -> str: ...
    async def runs(self, *, cursor: str | None, limit: int, **wanted: Any) -> RunPage: ...
    async def run(self, run_id: str) -> Run: ...
    async def steps(self, run_id: str, *, every: bool) -> tuple[dict[str, StepView], list[str]]: ...
    async def names(self, run_id: str) -> list[str]: ...
    async def logs(self, run_id: str, step: str | None, level: str | None, after: int) -> LogPage: ...
    async def explain(self, run_id: str) -> Explanation: ...
    async def preview(self, run_id: str, again: Again) -> RerunPreview: ...
    async def cancel(self, run_id: str, reason: str) -> str: ...  # the status after that
    async def retry(self, run_id: str) -> bool: ...  # whether the run continues now
    async def approve(
        self, run_id: str, path: str, answer: Answer
    ) -> bool: ...  # whether this answer decided it
    async def link(self, run_id: str, path: str, by: str) -> str: ...
    async def signal(self, run_id: str, key: str, value: Any, correlation: str | None) -> str: ...  # status
    async def resume(self, task_id: str, answer: Any, run_id: str | None) -> Resumed: ...
    def news(self, run_id: str) -> AsyncGenerator[News, None]: ...  # from the start of the run to its end
    def events(self, run_id: str | None) -> AsyncGenerator[LiveEvent, None]: ...

    async def publish(self, definition: dict[str, Any], *, draft: bool, strict: bool) -> Release: ...
    async def workflows(self) -> list[WorkflowLine]: ...
    async def workflow(self, name: str, number: int | None) -> Workflow: ...
    async def versions(self, name: str) -> list[Release]: ...
    async def diff(self, name: str, a: int, b: int) -> Diff: ...
    async def roll_back(self, name: str, number: int) -> Release: ...
    async def folder(self, of: str = "flows") -> FolderReport: ...


@contextlib.asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Source]:
    server = server_of(settings)
    if server is None:
        yield FileSource(settings)
        return
    async with serving(server) as source:
        # A program may end at any moment, and what it has committed is in the file: only what changes something is its business.
        yield source if server.kind == "server" else OwnedFileSource(settings, source)


@contextlib.asynccontextmanager
async def serving(server: Server) -> AsyncIterator[ServerSource]:
    async with server.client() as client, server.client(FOLLOW_PATIENCE_SECS) as follower:
        yield ServerSource(client, follower, is_named=server.is_named)


# ---------------------------------------------------------------------------------------------------- a server


class ServerSource:
    is_unowned = False

    def __init__(self, client: Client, follower: Client, *, is_named: bool) -> None:
        self.client, self._follower, self._is_named = client, follower, is_named

    @property
    def place(self) -> str:
        return self.client.server

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--server", self.client.server) if self._is_named else ()

    async def find(self, word: str, *, is_open: bool = False) -> str:
        word = word.strip().lower().removesuffix("…")
        if word == LAST:
            return await self._last(is_open=is_open)
        if len(word) == ID_CHARS:
            return word
        near = (
            await self.client.runs(id_part=word, limit=CANDIDATES_MAX + 1)
            if len(word) >= ID_PART_MIN
            else None
        )
        return the_one(word, [run.run_id for run in near.items] if near else [])

    async def _last(self, *, is_open: bool) -> str:
        pages = [await self.client.runs(status=one, limit=1) for one in (sorted(OPEN) if is_open else [None])]
        runs = [run for page in pages for run in page.items]
        if not runs:
            raise NotFound(f"there is no {'open ' if is_open else ''}run at {self.place}")
        return max(runs, key=lambda run: (run.created_at, run.run_id)).run_id

    async def runs(self, *, cursor: str | None, limit: int, **wanted: Any) -> RunPage:
        return await self.client.runs(cursor=cursor, limit=limit, **wanted)

    async def run(self, run_id: str) -> Run:
        return await self.client.run(run_id)

    async def steps(self, run_id: str, *, every: bool) -> tuple[dict[str, StepView], list[str]]:
        found = await every_page(lambda **page: self.client.steps(run_id, every=every, **page))
        return {step.path: view_of(step) for step in found}, await self.names(run_id)

    async def logs(self, run_id: str, step: str | None, level: str | None, after: int) -> LogPage:
        return await self.client.logs(run_id, step=step, level=level, cursor=after, limit=PAGE)

    async def names(self, run_id: str) -> list[str]:
        return (await self.client.steps(run_id, limit=1)).names

    async def preview(self, run_id: str, again: Again) -> RerunPreview:
        return await self.client.preview(run_id, paths=again.paths, failed=again.failed)

    async def explain(self, run_id: str) -> Explanation:
        return await self.client.explain(run_id)

    async def cancel(self, run_id: str, reason: str) -> str:
        return (await self.client.cancel(run_id, reason)).status

    async def retry(self, run_id: str) -> bool:
        await self.client.retry(run_id)
        return True

    async def approve(self, run_id: str, path: str, answer: Answer) -> bool:
        return (await self.client.approve(run_id, path, **answer._asdict())).decided

    async def link(self, run_id: str, path: str, by: str) -> str:
        return (await self.client.approval_link(run_id, path, by=by)).url

    async def signal(self, run_id: str, key: str, value: Any, correlation: str | None) -> str:
        return (await self.client.signal(run_id, key, value, correlation=correlation)).status

    async def resume(self, task_id: str, answer: Any, run_id: str | None) -> Resumed:
        return await self.client.resume(task_id, answer, run_id=run_id)

    async def news(self, run_id: str) -> AsyncGenerator[News, None]:
        """Read further rows of the journal whenever the event stream reports new ones, at most a few times a second."""
        after, is_all = 0, False
        listener: Listener | None = None
        try:
            while True:
                is_over = (
                    listener is not None and listener.is_over
                )  # evaluated before reading: then all rows are there
                page = await self._follower.journal(run_id, after=after, limit=PAGE)
                after, is_all = (page.items[-1].seq if page.items else after), page.cursor is None
                rows = [
                    (one.seq, 0, ms_of(one.at), one.kind, written(one.body).decode()) for one in page.items
                ]
                yield News(rows, listener.heard() if listener and is_all else (), has_more=not is_all)
                if not is_all:
                    continue
                if is_over:
                    return
                listener = listener or Listener(self._follower, run_id, after)
                await listener.more()
        finally:
            if listener is not None:
                await listener.close()

    def events(self, run_id: str | None) -> AsyncGenerator[LiveEvent, None]:
        return self._follower.events(run_id)

    async def publish(self, definition: dict[str, Any], *, draft: bool, strict: bool) -> Release:
        return await self.client.publish(definition, draft=draft, strict=strict)

    async def workflows(self) -> list[WorkflowLine]:
        return await every_page(self.client.workflows)

    async def workflow(self, name: str, number: int | None) -> Workflow:
        return await self.client.workflow(name, number)

    async def versions(self, name: str) -> list[Release]:
        return await every_page(lambda **page: self.client.versions(name, **page))

    async def diff(self, name: str, a: int, b: int) -> Diff:
        return await self.client.diff(name, a, b)

    async def roll_back(self, name: str, number: int) -> Release:
        return await self.client.roll_back(name, number)

    async def folder(self, of: str = "flows") -> FolderReport:
        return await self.client.folder(of)


class Listener:
    """Listens in the background: to new rows of a run, reports of its tools, and its end."""

    def __init__(self, client: Client, run_id: str, after: int) -> None:
        self._news = asyncio.Event()
        self._said: dict[str, Said] = {}  # only the latest report of each step is kept
        self._task = asyncio.get_running_loop().create_task(self._listen(client, run_id, after))
        self.is_over = False

    async def _listen(self, client: Client, run_id: str, after: int) -> None:
        try:
            async with aclosing(client.events(run_id, after=str(after))) as events:
                async for event in events:
                    if event.kind == "progress" and event.current_step_id is not None:
                        detail = event.detail
                        said = Said(event.current_step_id, detail["fraction"], detail["message"])
                        self._said[said.path] = said
                    self._news.set()
            self.is_over = True
        finally:
            self._news.set()

    def heard(self) -> list[Said]:
        said = list(self._said.values())
        self._said.clear()
        return said

    async def more(self) -> None:
        """Wait for news, but not for the end of a burst. Raises the error that ended the listening."""
        await self._news.wait()
        await asyncio.sleep(0 if self.is_over else 1 / FRAMES_PER_SECOND)
        self._news.clear()
        if self._task.done():
            await self._task
            self._news.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def view_of(step: Step) -> StepView:
    """A step of the API as the views show it."""
    return StepView(
        step.path,
        step.status,
        Millis(ms_of(step.started_at)),
        step.attempts,
        msgspec.Raw(written(step.output)),
        step.error,
        None if step.finished_at is None else Millis(ms_of(step.finished_at)),
        None if step.due_at is None else Millis(ms_of(step.due_at)),
        step.reason,
        step.is_scope,
        step.children,
        step.done,
        step.failed,
        task_id=step.task_id,
        waits_since=None if step.waits_since is None else Millis(ms_of(step.waits_since)),
        job_id=step.job_id,
    )


class Part(Protocol[Item]):
    """A page of any list."""

    @property
    def items(self) -> list[Item]: ...
    @property
    def cursor(self) -> str | None: ...


async def every_page(page: Callable[..., Coroutine[Any, Any, Part[Item]]]) -> list[Item]:
    """A complete list, page by page."""
    found: list[Item] = []
    cursor = None
    while True:
        part = await page(cursor=cursor, limit=PAGE)
        found += part.items
        cursor = part.cursor
        if cursor is None:
            return found


# ------------------------------------------------------------------------------------------------------ a file


class FileSource:
    """Reads a snapshot of the file while another process may own it; changes need the file's lock."""

    is_unowned = True

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def place(self) -> str:
        return path_of(self._settings)

    @property
    def flags(self) -> tuple[str, ...]:
        return () if self._settings.db == DEFAULT_DB else ("--db", shown(self._settings.db))

    @contextlib.asynccontextmanager
    async def _reading(self) -> AsyncIterator[Queries]:
        async with reading(self._settings) as store:
            yield Queries(store, Plans(store, self._settings.template_env))

    @contextlib.asynccontextmanager
    async def _acting(self, *, may_create: bool = False) -> AsyncIterator[Engine]:
        async with acting(self._settings, Registry(()), may_create=may_create) as engine:
            yield engine

    async def find(self, word: str, *, is_open: bool = False) -> str:
        async with reading(self._settings) as store:
            return (await found(store, word, is_open=is_open)).id

    async def runs(self, *, cursor: str | None, limit: int, **wanted: Any) -> RunPage:
        async with self._reading() as queries:
            page = await queries.runs(DEFAULT_TENANT, cursor=cursor, limit=limit, **wanted)
            lines = await queries.summaries(page.items)
        return RunPage([self._as_driven(present.run_line(line)) for line in lines], page.cursor)

    async def run(self, run_id: str) -> Run:
        async with self._reading() as queries:
            view = await queries.run(DEFAULT_TENANT, run_id)
        run = msgspec.structs.replace(present.run(view), inputs=view.inputs, output=view.output)
        return self._as_driven(run)

    @property
    def _is_driven(self) -> bool:
        """Whether a process has the file open."""
        return bool(holder_of(self.place))

    def _as_driven(self, run: Shown) -> Shown:
        """An open run that no engine drives is waiting, whatever its row says."""
        if run.status in TERMINAL or self._is_driven:
            return run
        return msgspec.structs.replace(run, status="waiting", reason=run.reason or NO_ENGINE)

    async def steps(self, run_id: str, *, every: bool) -> tuple[dict[str, StepView], list[str]]:
        async with self._reading() as queries:
            names = await queries.step_names(DEFAULT_TENANT, run_id)
            found = await every_page(
                lambda **page: queries.steps(DEFAULT_TENANT, run_id, every=every, **page)
            )
        return {step.path: step for step in found}, names

    async def logs(self, run_id: str, step: str | None, level: str | None, after: int) -> LogPage:
        async with self._reading() as queries:
            page = await queries.logs(DEFAULT_TENANT, run_id, step=step, level=level, after=after, limit=PAGE)
        return present.logs(page, after)

    async def names(self, run_id: str) -> list[str]:
        async with self._reading() as queries:
            return await queries.step_names(DEFAULT_TENANT, run_id)

    async def preview(self, run_id: str, again: Again) -> RerunPreview:
        async with self._reading() as queries:
            found = await queries.preview(DEFAULT_TENANT, run_id, again)
        return RerunPreview(found.copied, found.runs)

    async def explain(self, run_id: str) -> Explanation:
        async with self._reading() as queries:
            return present.explanation(await queries.explain(DEFAULT_TENANT, run_id))

    async def cancel(self, run_id: str, reason: str) -> str:
        async with self._acting() as engine:
            await engine.runs.cancel(RunId(run_id), reason)
            await engine.door.drained()
            return (await engine.runs.row_of(RunId(run_id))).status

    async def retry(self, run_id: str) -> bool:
        async with self._acting() as engine:
            await engine.runs.retry(RunId(run_id))
        return False

    async def approve(self, run_id: str, path: str, answer: Answer) -> bool:
        answer = answer._replace(by=answer.by or LOCAL_ID)
        async with self._acting() as engine:
            return await engine.commands.approve(DEFAULT_TENANT, run_id, path, **answer._asdict())

    async def link(self, run_id: str, path: str, by: str) -> str:
        base = self._settings.public_url
        if base is None:
            raise Usage(
                "no server serves this file, so a link would not work; start holdfast up, or set"
                " HOLDFAST_PUBLIC_URL to the URL where it will be served"
            )
        async with self._acting() as engine:
            return await Links(engine.store, engine.approvals).make(DEFAULT_TENANT, run_id, path, base, by)

    async def signal(self, run_id: str, key: str, value: Any, correlation: str | None) -> str:
        async with self._acting() as engine:
            await engine.commands.signal(DEFAULT_TENANT, run_id, key, value, correlation)
            await engine.door.drained()
            return (await engine.runs.row_of(RunId(run_id))).status

    async def resume(self, task_id: str, answer: Any, run_id: str | None) -> Resumed:
        async with self._acting() as engine:
            resumed = await engine.commands.resume(DEFAULT_TENANT, task_id, answer, run_id)
        return Resumed(resumed.resumed, resumed.reason)

    async def news(self, run_id: str) -> AsyncGenerator[News, None]:
        """A file sends no notification when it grows, so it is read a few times a second."""
        after = 0
        while True:
            async with reading(self._settings) as store:
                row = await found(store, run_id)
                rows = await store.journal(row.no, after, PAGE)
            after, has_more = (rows[-1][0] if rows else after), len(rows) == PAGE
            yield News(rows, has_more=has_more)
            if not has_more and (row.status in TERMINAL or not self._is_driven):
                return  # without an engine nothing of it will change
            await asyncio.sleep(0 if has_more else 1 / FRAMES_PER_SECOND)

    async def events(self, run_id: str | None) -> AsyncGenerator[LiveEvent, None]:
        from holdfast.sdk.client import LiveEvent

        async with beside(self._settings) as store:
            history = History(store, Feed([], []), Plans(store, self._settings.template_env))
            if run_id is None:
                tail: Tail | TailOfAll | None = await history.of_all(DEFAULT_TENANT, None)
            else:
                tail = await history.of_run(DEFAULT_TENANT, run_id, BEGINNING)
            while tail is not None and not tail.is_over:
                events = [_encoded(one) for one in await tail.read()]
                for event in events:
                    yield msgspec.json.decode(event.data, type=LiveEvent)
                if not events and not self._is_driven:
                    return
                await asyncio.sleep(0 if events else 1 / FRAMES_PER_SECOND)

    async def publish(self, definition: dict[str, Any], *, draft: bool, strict: bool) -> Release:
        """No engine has the file open, so only `strict` asks which tools there are: those that the settings name."""
        registry = load_tools(self._settings) if strict else Registry(())
        async with acting(self._settings, registry, may_create=True) as engine:
            release = await engine.commands.publish(DEFAULT_TENANT, definition, draft=draft, strict=strict)
            return present.release(release)

    async def workflows(self) -> list[WorkflowLine]:
        async with self._reading() as queries:
            found = await every_page(lambda **page: queries.catalog.workflows(DEFAULT_TENANT, **page))
        return [present.workflow_line(one) for one in found]

    async def workflow(self, name: str, number: int | None) -> Workflow:
        async with self._reading() as queries:
            release, spec = await queries.catalog.definition(DEFAULT_TENANT, name, number)
            text = await queries.definitions.text(DEFAULT_TENANT, release.version)
            return present.workflow(release, spec, text)

    async def versions(self, name: str) -> list[Release]:
        async with self._reading() as queries:
            found = await every_page(lambda **page: queries.catalog.releases(DEFAULT_TENANT, name, **page))
        return [present.release(one) for one in found]

    async def diff(self, name: str, a: int, b: int) -> Diff:
        async with self._reading() as queries:
            return present.diff(await queries.catalog.diff(DEFAULT_TENANT, name, a, b))

    async def roll_back(self, name: str, number: int) -> Release:
        async with self._acting() as engine:
            return present.release(await engine.commands.roll_back(DEFAULT_TENANT, name, number))

    async def folder(self, of: str = "flows") -> FolderReport:
        return FolderReport(None, "", [])


class OwnedFileSource(FileSource):
    """A file that a program has open: it is read here, and the program makes the changes."""

    is_unowned = False

    def __init__(self, settings: Settings, owner: ServerSource) -> None:
        super().__init__(settings)
        self._owner = owner

    async def cancel(self, run_id: str, reason: str) -> str:
        return await self._owner.cancel(run_id, reason)

    async def retry(self, run_id: str) -> bool:
        return await self._owner.retry(run_id)

    async def approve(self, run_id: str, path: str, answer: Answer) -> bool:
        return await self._owner.approve(run_id, path, answer)

    async def signal(self, run_id: str, key: str, value: Any, correlation: str | None) -> str:
        return await self._owner.signal(run_id, key, value, correlation)

    async def resume(self, task_id: str, answer: Any, run_id: str | None) -> Resumed:
        return await self._owner.resume(task_id, answer, run_id)

    async def explain(self, run_id: str) -> Explanation:
        return await self._owner.explain(run_id)

    async def publish(self, definition: dict[str, Any], *, draft: bool, strict: bool) -> Release:
        return await self._owner.publish(definition, draft=draft, strict=strict)

    async def roll_back(self, name: str, number: int) -> Release:
        return await self._owner.roll_back(name, number)


def _encoded(event: EncodedEvent | tuple[Position[int] | None, RunEvent]) -> EncodedEvent:
    return event if isinstance(event, EncodedEvent) else encoded(*event)
