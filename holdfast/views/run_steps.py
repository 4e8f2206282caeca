"""The steps of a run, for readers: pages of them, one with all that is known of it, and all of them over time.

Reads boards, and of the journal only the rows whose values are shown.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from holdfast.engine.draft import Draft
from holdfast.engine.state import Run, beneath
from holdfast.errors import NotFound
from holdfast.plan.graph import COMPENSATE, Plan
from holdfast.runtime.load import whole
from holdfast.runtime.plans import Plans
from holdfast.runtime.remembered import Remembered
from holdfast.store.artefacts import SCHEME
from holdfast.store.base import Store
from holdfast.store.records import LogLine, RunRow
from holdfast.values import NULL, TERMINAL, Error, Millis, RunNo, decode, definition_path, job_id, split
from holdfast.views.board import Entry, Span, Try, input_of, output_of
from holdfast.views.boards import Boards
from holdfast.views.definitions import Definitions
from holdfast.views.open_board import open_output_name
from holdfast.views.outputs import apart_if_long, whole_run
from holdfast.views.step_pages import PAGE_BYTES_MAX, StepPages, fill_gathered
from holdfast.views.steps import StepView
from holdfast.views.stored_board import OUTPUT_BYTES_MAX, output_name, output_named
from holdfast.views.timeline import Timeline, timeline_of
from holdfast.views.values import GATHERED, Head, Values, part_of

GATHERED_BYTES_MAX: Final = 32 * 1024 * 1024  # for cached outputs of scopes
LOG_LINES: Final = 100
TIMELINES_REMEMBERED_MAX: Final = 100
TIMELINE_ROWS_REMEMBERED_MAX: Final = 20_000
ARTEFACTS_READ_BYTES_MAX: Final = 1024 * 1024  # larger outputs are not searched for artefacts


class Shown(msgspec.Struct, frozen=True):
    """A step of a page. `heads` are those of values that are not shown whole."""

    step: StepView
    kind: str
    heads: dict[str, Head] = {}


class StepsPart(msgspec.Struct, frozen=True):
    """A page of steps as of the row `seq`; `after` is the number of the last step, None if no more follow."""

    items: list[Shown]
    after: int | None
    seq: int


class Artefact(msgspec.Struct, frozen=True):
    sha256: str
    size: int
    name: str


class Detail(msgspec.Struct, frozen=True):
    """All that is known of one step. `logs` are its newest lines, oldest first; `logs_more`: there are older ones."""

    shown: Shown
    seq: int
    input: msgspec.Raw
    tries: list[Try]
    waits: list[Span]
    artefacts: list[Artefact]
    logs: list[LogLine]
    logs_more: bool


class RunSteps:
    def __init__(self, store: Store, plans: Plans, definitions: Definitions) -> None:
        self._store, self._plans, self._definitions = store, plans, definitions
        self.boards, self._long = Boards(store), StepPages(store)
        # Of finished runs: counting the children of a large fan-out takes some 30 ms.
        self._timelines: Remembered[tuple[RunNo, str | None, int], Timeline] = Remembered(
            count_max=TIMELINES_REMEMBERED_MAX, bytes_max=TIMELINE_ROWS_REMEMBERED_MAX
        )
        self._gathered: Remembered[tuple[RunNo, int, str], tuple[msgspec.Raw, Error | None]] = Remembered(
            count_max=10_000, bytes_max=GATHERED_BYTES_MAX
        )

    # --------------------------------------------------------------------------------------------------- pages

    async def page(
        self,
        row: RunRow,
        *,
        every: bool = False,
        under: str | None = None,
        statuses: Collection[str] = (),
        kinds: Collection[str] = (),
        values: Values = "all",
        after: int = 0,
        limit: int,
    ) -> StepsPart:
        """Return steps in the order in which they were reached: top-level and failed ones, or, with `every` or any filter, all that
        match. The page is shorter if the outputs are large."""
        plan = await self._plans.of_version(row.tenant, row.version)
        kind_of = await self._definitions.kinds(row.tenant, row.version)
        is_plain = under is None and not statuses and not kinds
        if is_plain and await self.boards.is_too_long(row.no):
            return await self._long_page(row, plan, kind_of, every=every, after=after, limit=limit)
        board = await self.boards.of(row)
        if under is not None and board.entry(under) is None and not board.inside(under):
            raise NotFound(f"the run has not reached a step {ascii(under)[1:-1]:.100}")

        def is_top(path: str) -> bool:
            entry = board.entry(path) if path.endswith(f".{COMPENSATE}") else None
            return not split(path)[0] or entry is not None and entry.step.is_top

        def wanted(path: str, status: str) -> bool:
            return (
                (every or not is_plain or status == "failed" or is_top(path))
                and (not statuses or status in statuses)
                and (under is None or beneath(under, path))
                and (not kinds or kind_of.get(definition_path(path), "") in kinds)
            )

        entries = board.chosen(after, limit + 1, wanted)
        items = await self._shown(row, plan, kind_of, entries[:limit], values, board.seq)
        has_more = len(items) < len(entries)
        return StepsPart(items, items[-1].step.order if has_more else None, board.seq)

    async def _shown(
        self,
        row: RunRow,
        plan: Plan,
        kind_of: Any,
        entries: list[Entry],
        values: Values,
        seq: int,
    ) -> list[Shown]:
        shown: list[Shown] = []
        room = PAGE_BYTES_MAX
        gathering = Gathering(self._store, plan, row)
        for entry in entries:
            if room <= 0:
                break
            step = msgspec.structs.replace(entry.step)
            step.job_id = job_id(row.id, step.path, step.attempt) if step.attempt else None
            output, head = await self._output(row, gathering, entry, step, values, seq)
            step.output = output
            room -= len(output)
            kind = _kind(kind_of, step)
            shown.append(Shown(step, kind, {} if head is None else {"output": head}))
        return shown

    async def _output(
        self, row: RunRow, gathering: Gathering, entry: Entry, step: StepView, values: Values, seq: int
    ) -> tuple[msgspec.Raw, Head | None]:
        if not step.joined or values == "none":
            return await part_of(self._store, row.no, await output_of(self._store, row.no, entry), values)
        if values == "head":
            return NULL, GATHERED
        key = (row.no, seq, step.path)
        known = self._gathered.get(key)
        if known is None:
            await gathering.fill(step)
            known = (step.output, step.error)
            if len(step.output) <= OUTPUT_BYTES_MAX:
                self._gathered.put(key, known, len(step.output))
        step.output, step.error = known
        return step.output, None

    async def _long_page(
        self, row: RunRow, plan: Plan, kind_of: Any, *, every: bool, after: int, limit: int
    ) -> StepsPart:
        """A page of a run that is too long for a board."""
        found, has_more = await self._long.page(plan, row, every=every, after=after, limit=limit)
        for step in found:
            step.job_id = job_id(row.id, step.path, step.attempt) if step.attempt else None
        items = [Shown(step, _kind(kind_of, step)) for step in found]
        return StepsPart(items, found[-1].order if has_more else None, await self._store.last_seq(row.no))

    # ---------------------------------------------------------------------------------------------------- one

    async def detail(self, row: RunRow, path: str, values: Values) -> Detail:
        plan = await self._plans.of_version(row.tenant, row.version)
        kind_of = await self._definitions.kinds(row.tenant, row.version)
        board = await self.boards.of(row)
        entry = board.entry(path)
        if entry is None:
            raise NotFound(f"the run has not reached a step {ascii(path)[1:-1]:.100}")
        (shown,) = await self._shown(row, plan, kind_of, [entry], values, board.seq)
        given = await input_of(self._store, row.no, entry)
        given, head = await part_of(self._store, row.no, given, values)
        if head is not None:
            shown = msgspec.structs.replace(shown, heads={**shown.heads, "input": head})
        lines = await self._store.log_tail(row.no, path, LOG_LINES + 1)
        return Detail(
            shown,
            board.seq,
            given,
            entry.tries,
            [span for span in entry.spans if span.kind != "backoff"],
            await self._artefacts(row.no, entry),
            lines[-LOG_LINES:],
            len(lines) > LOG_LINES,
        )

    async def _artefacts(self, no: RunNo, entry: Entry) -> list[Artefact]:
        """The files that the output of a step names."""
        sizes = dict(await self._store.artefacts_of_run(no))
        if not sizes or entry.step.joined:
            return []
        text = bytes(await whole(self._store, no, await output_of(self._store, no, entry)))
        if len(text) > ARTEFACTS_READ_BYTES_MAX or SCHEME.encode() not in text:
            return []
        names: dict[str, str] = {}
        _find_files(decode(text), names)
        return [Artefact(sha256, sizes[sha256], name) for sha256, name in names.items() if sha256 in sizes]

    # ------------------------------------------------------------------------------------------------- all

    async def timeline(
        self, row: RunRow, under: str | None, buckets: int, now: Millis
    ) -> tuple[Timeline, int, Any]:
        """The run over time, as of the row that is returned too, with the kinds of its steps."""
        board = await self.boards.of(row)
        kind_of = await self._definitions.kinds(row.tenant, row.version)
        if row.status not in TERMINAL or row.finished_at is None:
            return timeline_of(board, under, buckets, now), board.seq, kind_of
        key = (row.no, under, buckets)
        found = self._timelines.get(key)
        if found is None:
            found = timeline_of(board, under, buckets, row.finished_at)
            self._timelines.put(key, found, len(found.rows) + 1)
        return found, board.seq, kind_of


class Gathering:
    """Gathers the outputs of scopes of a run, which is folded at most once for all of them."""

    def __init__(self, store: Store, plan: Plan, row: RunRow) -> None:
        self._store, self._plan, self._row = store, plan, row
        self._draft: Draft | None = None

    async def fill(self, step: StepView) -> None:
        """Fill in the output of a scope, or an error if it is too large to show."""
        stored = None
        if step.is_top:
            names = output_name(step.path), open_output_name(step)
            stored = await output_named(self._store, self._row.no, *names)
        if stored is not None:
            step.output = msgspec.Raw(stored)
            return
        if self._draft is None:
            row = self._row
            run = await whole_run(self._store, Run(row.no, row.id, row.version, row.tenant))
            self._draft = Draft(self._plan, run, run.at)
        await apart_if_long(self._draft.run, fill_gathered, step, self._draft)


def _find_files(value: Any, names: dict[str, str]) -> None:
    """Collect the references to artefacts in a value, with the names of the files."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo += one
        elif isinstance(one, dict):
            uri = one.get("uri")
            if isinstance(uri, str) and uri.startswith(SCHEME):
                name = one.get("name") or one.get("path") or ""
                names[uri.rpartition("/")[2]] = str(name).rpartition("/")[2]
            todo += one.values()


def _kind(kind_of: Any, step: StepView) -> str:
    """What the definition calls a step; a compensation is no step of it."""
    return COMPENSATE if step.undoes else str(kind_of.get(definition_path(step.path), ""))
