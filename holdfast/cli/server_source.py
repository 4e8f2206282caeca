"""A server as a source of runs: everything is asked over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.api.types import (
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
    Step,
    Workflow,
    WorkflowLine,
    WorkflowStats,
)
from holdfast.cli.file import CANDIDATES_MAX, ID_PART_MIN, LAST, the_one
from holdfast.cli.render import FRAMES_PER_SECOND, ms_of
from holdfast.cli.source_protocol import ID_CHARS, PAGE, Answer, News, Said, every_page
from holdfast.errors import NotFound
from holdfast.plan.graph import COMPENSATE
from holdfast.runtime.rerun import Again
from holdfast.values import OPEN, Millis, written
from holdfast.views.steps import StepView

if TYPE_CHECKING:
    # and with it an HTTP client, which takes a while to load
    from holdfast.sdk.client import Client, LiveEvent


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

    async def bulk(self, action: str, ids: Sequence[str], *, failed: bool, reason: str) -> list[BulkItem]:
        return (await self.client.bulk(action, ids=ids, failed=failed, reason=reason)).items

    async def pulse(
        self, workflow: str | None, start: datetime | None, end: datetime | None, buckets: int
    ) -> Pulse:
        return await self.client.pulse(workflow=workflow, created_from=start, created_to=end, buckets=buckets)

    async def stats(self, name: str, number: int | None, last: int, start: datetime | None) -> WorkflowStats:
        return await self.client.stats(name, number=number, last=last, created_from=start)

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

    async def publish(self, text: str | dict[str, Any], *, draft: bool, strict: bool) -> Release:
        return await self.client.publish(text, draft=draft, strict=strict)

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
        undoes=step.kind == COMPENSATE,
    )
