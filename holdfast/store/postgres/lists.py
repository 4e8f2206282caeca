"""Runs by what they are of, on PostgreSQL: lists that take as long with a million runs as with ten, and their counts."""

from __future__ import annotations

from typing import Any, Final

from holdfast.store.postgres.asking import Asking, tuples, value
from holdfast.store.records import Listing, RunRow, Wanted
from holdfast.values import RunNo

LOOKED_AT_MAX: Final = 2_000  # runs that one page of a list by label reads
NO_BOUND: Final = 2**62
EVERY_RUN: Final = Wanted()


class ListReads(Asking):
    run_counts = tuples("run_counts")
    has_pulse = value("has_pulse", bool)

    async def pulse(
        self, tenant: str, workflow: str | tuple[str, ...] | None, first: int, last: int, width: int
    ) -> list[tuple[int, int, int]]:
        """How often each beat of store/beats.py occurred: number of the stretch, beat, runs."""
        return [tuple(row) for row in await self._ask("pulse", tenant, as_list(workflow), first, last, width)]

    async def list_runs(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted = EVERY_RUN
    ) -> Listing:
        """Runs, the newest first."""
        part = self._listed if wanted.label is None else self._labelled
        found, below = await part(tenant, NO_BOUND if before is None else before, limit, wanted)
        return Listing([RunRow(*row) for row in await self._ask("runs_by_no", found)], below)

    async def _listed(
        self, tenant: str, before: int, limit: int, wanted: Wanted
    ) -> tuple[list[int], RunNo | None]:
        found = await self._ask("listed", tenant, *_conditions(wanted), before, wanted.above or 0, limit + 1)
        numbers = [row[0] for row in found]
        return numbers[:limit], RunNo(numbers[limit - 1]) if len(numbers) > limit else None

    async def _labelled(
        self, tenant: str, before: int, limit: int, wanted: Wanted
    ) -> tuple[list[int], RunNo | None]:
        """By label: reads at most LOOKED_AT_MAX runs, so a page may have few and still not be the last."""
        assert wanted.label is not None
        more = ([name for name, _ in wanted.more_labels], [value for _, value in wanted.more_labels])
        asked = (*wanted.label, before, *_conditions(wanted), *more, LOOKED_AT_MAX)
        looked_at = await self._ask("labelled", tenant, *asked)
        above = wanted.above or 0
        found = [no for no, is_wanted in looked_at if is_wanted and no > above]
        if len(found) > limit:
            return found[:limit], RunNo(found[limit - 1])
        is_last = len(looked_at) < LOOKED_AT_MAX or looked_at[-1][0] <= above
        return found, None if is_last else RunNo(looked_at[-1][0])

    async def below_runs(
        self, tenant: str, before: RunNo | None, count: int, wanted: Wanted = EVERY_RUN
    ) -> RunNo | None:
        """What a list begins below that leaves out so many runs; None if it has no more than these."""
        assert wanted.label is None, "labelled runs are not passed over"
        bound = NO_BOUND if before is None else before
        found = await self._ask("listed", tenant, *_conditions(wanted), bound, wanted.above or 0, count + 1)
        return RunNo(found[count][0] + 1) if len(found) > count else None

    async def count_runs(self, tenant: str, wanted: Wanted = EVERY_RUN) -> int:
        """How many runs there are of a status, a workflow, a release: from counters, not by looking at runs."""
        assert wanted.label is None, "labelled runs are not counted"
        return int(await self._value("count_runs", tenant, *_conditions(wanted)))


def as_list(names: str | tuple[str, ...] | None) -> list[str] | None:
    """One name or several as the array that a statement takes; None is no limit."""
    return None if names is None else [names] if isinstance(names, str) else list(names)


def _conditions(wanted: Wanted) -> tuple[Any, ...]:
    """Workflow, number of its release, statuses."""
    return as_list(wanted.workflow), wanted.number, as_list(wanted.status)
