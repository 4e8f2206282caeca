"""A database file as a source of runs: read directly, changed by a short-lived engine or by its owner."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.api import present, present_plans, present_pulse
from holdfast.api.principal import LOCAL_ID
from holdfast.api.types import (
    LEFT_ALONE,
    BulkItem,
    Diff,
    Explanation,
    FolderReport,
    LogPage,
    Pulse,
    Release,
    RerunPreview,
    Resumed,
    Run,
    RunPage,
    Workflow,
    WorkflowLine,
    WorkflowStats,
    millis_of,
)
from holdfast.cli.file import acting, beside, found, path_of, reading
from holdfast.cli.options import Usage, load_tools
from holdfast.cli.render import FRAMES_PER_SECOND, now_ms
from holdfast.cli.server_source import ServerSource
from holdfast.cli.source_protocol import NO_ENGINE, PAGE, Answer, News, Shown, every_page
from holdfast.config import DEFAULT_DB, Settings
from holdfast.errors import RunIsOver
from holdfast.runtime.engine import Engine
from holdfast.runtime.plans import Plans
from holdfast.runtime.rerun import Again
from holdfast.store.lock import holder_of
from holdfast.store.open import shown
from holdfast.store.records import RunRow
from holdfast.tools.registry import Registry
from holdfast.values import DEFAULT_TENANT, TERMINAL, Millis, RunId
from holdfast.views.all_events import EncodedEvent, History, TailOfAll, encoded
from holdfast.views.events import Feed, RunEvent, Tail
from holdfast.views.positions import BEGINNING, Position
from holdfast.views.runs import Queries
from holdfast.views.steps import StepView
from holdfast.waits.approval_links import Links

if TYPE_CHECKING:
    # and with it an HTTP client, which takes a while to load
    from holdfast.sdk.client import LiveEvent

DAY_MS: Final = 86_400_000


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
        async with self._reading_runs() as (queries, _):
            yield queries

    @contextlib.asynccontextmanager
    async def _reading_runs(self) -> AsyncIterator[tuple[Queries, Callable[[Shown, RunRow], Shown]]]:
        """And a function that corrects the status of a run that nothing continues."""
        async with reading(self._settings) as store:
            holder = holder_of(self.place)
            # No process holds a database on a server, which has no epoch.
            epoch = store.epoch_now() if holder else 0
            yield (
                Queries(store, Plans(store, self._settings.template_env)),
                partial(_as_driven, holder, epoch),
            )

    @contextlib.asynccontextmanager
    async def _acting(self, *, may_create: bool = False) -> AsyncIterator[Engine]:
        async with acting(self._settings, Registry(()), may_create=may_create) as engine:
            yield engine

    async def find(self, word: str, *, is_open: bool = False) -> str:
        async with reading(self._settings) as store:
            return (await found(store, word, is_open=is_open)).id

    async def runs(self, *, cursor: str | None, limit: int, **wanted: Any) -> RunPage:
        async with self._reading_runs() as (queries, as_driven):
            page = await queries.runs(DEFAULT_TENANT, cursor=cursor, limit=limit, **wanted)
            lines = await queries.summaries(page.items)
        return RunPage([as_driven(present.run_line(line), line.row) for line in lines], page.cursor)

    async def run(self, run_id: str) -> Run:
        async with self._reading_runs() as (queries, as_driven):
            view, row = await queries.run(DEFAULT_TENANT, run_id), await queries.row(DEFAULT_TENANT, run_id)
        run = msgspec.structs.replace(present.run(view), inputs=view.inputs, output=view.output)
        return as_driven(run, row)

    @property
    def _is_driven(self) -> bool:
        """Whether a process has the file open."""
        return bool(holder_of(self.place))

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

    async def bulk(self, action: str, ids: Sequence[str], *, failed: bool, reason: str) -> list[BulkItem]:
        if action == "rerun":
            raise Usage(
                "no server has this file open, so nothing would execute the new runs; start holdfast up"
            )
        found: list[BulkItem] = []
        async with self._acting() as engine:
            for run_id in ids:
                try:
                    await engine.runs.cancel(RunId(run_id), reason)
                except RunIsOver as error:
                    found.append(BulkItem(run_id, None, None, error.code, str(error)))
            await engine.door.drained()
            left = [run_id for run_id in ids if run_id not in {one.run_id for one in found}]
            found += [BulkItem(one, (await engine.runs.row_of(RunId(one))).status) for one in left]
        return found

    async def pulse(
        self, workflow: str | None, start: datetime | None, end: datetime | None, buckets: int
    ) -> Pulse:
        now = Millis(now_ms())
        to = millis_of(end) or now
        begin = millis_of(start) or Millis(to - DAY_MS)
        if begin >= to:
            raise Usage("--from must be before --to")
        async with self._reading() as queries:
            return present_pulse.pulse(await queries.pulse(DEFAULT_TENANT, workflow, begin, to, buckets, now))

    async def stats(self, name: str, number: int | None, last: int, start: datetime | None) -> WorkflowStats:
        async with self._reading() as queries:
            release, _ = await queries.catalog.definition(DEFAULT_TENANT, name, number)
            found = await queries.stats.of(DEFAULT_TENANT, release.name, number, last, millis_of(start))
            kinds = await queries.definitions.kinds(DEFAULT_TENANT, release.version)
        return present_plans.stats(release.name, number, found, kinds)

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

    async def publish(self, text: str | dict[str, Any], *, draft: bool, strict: bool) -> Release:
        """No engine has the file open, so the tools are those that the settings name, if they name any; workers come later."""
        try:
            registry = load_tools(self._settings) if strict or self._settings.tools else None
        except Usage:
            if strict:
                raise
            registry = None
        async with acting(self._settings, registry or Registry(()), may_create=True) as engine:
            release = await engine.commands.publish(DEFAULT_TENANT, text, draft=draft, strict=strict)
            lacks = [] if registry is None else await engine.commands.lacks(DEFAULT_TENANT, text)
            return present.release(release, [one for one in lacks if one.code == "unknown_tool"])

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

    async def bulk(self, action: str, ids: Sequence[str], *, failed: bool, reason: str) -> list[BulkItem]:
        return await self._owner.bulk(action, ids, failed=failed, reason=reason)

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

    async def publish(self, text: str | dict[str, Any], *, draft: bool, strict: bool) -> Release:
        return await self._owner.publish(text, draft=draft, strict=strict)

    async def roll_back(self, name: str, number: int) -> Release:
        return await self._owner.roll_back(name, number)


def _as_driven(holder: Mapping[str, object], epoch: int, run: Shown, row: RunRow) -> Shown:
    """An open run that no engine drives is waiting, whatever its row says."""
    if run.status in TERMINAL:
        return run
    if not holder:
        return msgspec.structs.replace(run, status="waiting", reason=run.reason or NO_ENGINE)
    is_owned = row.owner is not None and row.owner_epoch == epoch
    if holder.get("executes") != "own" or is_owned:
        return run
    return msgspec.structs.replace(run, status="waiting", reason=LEFT_ALONE)


def _encoded(event: EncodedEvent | tuple[Position[int] | None, RunEvent]) -> EncodedEvent:
    return event if isinstance(event, EncodedEvent) else encoded(*event)
