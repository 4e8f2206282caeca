"""What a command can ask of a server or of a file, and the shapes of the answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

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
    RunLine,
    RunPage,
    Workflow,
    WorkflowLine,
    WorkflowStats,
)
from holdfast.runtime.rerun import Again
from holdfast.store.records import ReadRow
from holdfast.views.steps import StepView

if TYPE_CHECKING:
    # and with it an HTTP client, which takes a while to load
    from holdfast.sdk.client import LiveEvent


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
    async def bulk(self, action: str, ids: Sequence[str], *, failed: bool, reason: str) -> list[BulkItem]: ...
    async def pulse(
        self, workflow: str | None, start: datetime | None, end: datetime | None, buckets: int
    ) -> Pulse: ...
    async def stats(
        self, name: str, number: int | None, last: int, start: datetime | None
    ) -> WorkflowStats: ...
    async def retry(self, run_id: str) -> bool: ...  # whether the run continues now
    async def approve(
        self, run_id: str, path: str, answer: Answer
    ) -> bool: ...  # whether this answer decided it
    async def link(self, run_id: str, path: str, by: str) -> str: ...
    async def signal(self, run_id: str, key: str, value: Any, correlation: str | None) -> str: ...  # status
    async def resume(self, task_id: str, answer: Any, run_id: str | None) -> Resumed: ...
    def news(self, run_id: str) -> AsyncGenerator[News, None]: ...  # from the start of the run to its end
    def events(self, run_id: str | None) -> AsyncGenerator[LiveEvent, None]: ...

    async def publish(self, text: str | dict[str, Any], *, draft: bool, strict: bool) -> Release: ...
    async def workflows(self) -> list[WorkflowLine]: ...
    async def workflow(self, name: str, number: int | None) -> Workflow: ...
    async def versions(self, name: str) -> list[Release]: ...
    async def diff(self, name: str, a: int, b: int) -> Diff: ...
    async def roll_back(self, name: str, number: int) -> Release: ...
    async def folder(self, of: str = "flows") -> FolderReport: ...


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
