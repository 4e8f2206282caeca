"""What every store promises about the log lines of attempts."""

from __future__ import annotations

from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.values import RunNo
from tests.store.conformance.batches import commit, logged, started


class LogsConformance:
    async def test_log_lines_are_numbered_by_run_in_the_order_of_their_commits(self, store: Store) -> None:
        await commit(store, started(1, 2))
        for run, text in ((1, "a"), (2, "b"), (1, "c")):
            batch = Batch()
            batch.logs.append(logged(run, text))
            await commit(store, batch)
        assert [(line.n, line.text) for line in await store.log_lines(RunNo(1), 0, 10)] == [
            (1, "a"),
            (2, "c"),
        ]
        assert [line.text for line in await store.log_lines(RunNo(1), 1, 10)] == ["c"]
        assert [line.text for line in await store.log_lines(RunNo(2), 0, 10)] == ["b"]

    async def test_a_run_keeps_so_many_log_lines_and_a_mark_as_the_last(self, store: Store) -> None:
        batch = started(1)
        batch.logs += [logged(1, text, most=3) for text in "abcde"]
        await commit(store, batch)
        found = await store.log_lines(RunNo(1), 0, 10)
        assert [line.text for line in found] == ["a", "b", "dropped"]

    async def test_log_lines_are_found_by_step_attempt_and_level(self, store: Store) -> None:
        batch = started(1)
        paths = ("loop", "loop[0].s", "loop~2[1].s", "loop2", "loop.s")
        batch.logs += [logged(1, path, path=path, attempt=n) for n, path in enumerate(paths, 1)]
        batch.logs.append(logged(1, "trace", level="traceback"))
        await commit(store, batch)
        found = await store.log_lines(RunNo(1), 0, 10, path="loop")
        assert [line.text for line in found] == ["loop", "loop[0].s", "loop~2[1].s", "loop.s"]
        assert [line.text for line in await store.log_lines(RunNo(1), 0, 10, path="loop", attempt=2)] == [
            "loop[0].s"
        ]
        assert [line.text for line in await store.log_lines(RunNo(1), 0, 10, level="traceback")] == ["trace"]

    async def test_log_lines_are_forgotten_with_their_run(self, store: Store) -> None:
        batch = started(1)
        batch.logs.append(logged(1, "a"))
        await commit(store, batch)
        batch = Batch()
        batch.forgotten.append(RunNo(1))
        await commit(store, batch)
        assert await store.log_lines(RunNo(1), 0, 10) == []
