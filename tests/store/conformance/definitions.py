"""What every store promises about requests, workflows, releases and definitions."""

from __future__ import annotations

import pytest

from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import (
    Request,
    Version,
    Wanted,
    Workflow,
)
from holdfast.values import DEFAULT_TENANT, Millis, RunNo
from tests.store.conformance.batches import (
    T0,
    commit,
    listed,
    outcome_of,
    publication,
    row_of,
    rows_of,
    run_id,
    started,
)


class DefinitionsConformance:
    async def test_a_request_is_found_with_the_run_that_it_made(self, store: Store) -> None:
        batch = started(1, 2)
        batch.requests.append(Request(DEFAULT_TENANT, "order-7", "digest", RunNo(2), Millis(T0)))
        await commit(store, batch)
        assert await store.request(DEFAULT_TENANT, "order-7") == ("digest", 2, run_id(2))
        assert await store.request(DEFAULT_TENANT, "order-8") is None
        assert await store.request("another", "order-7") is None

    async def test_a_second_run_under_one_request_id_is_not_written(self, store: Store) -> None:
        for no in (1, 2):
            batch = started(no)
            batch.requests.append(Request(DEFAULT_TENANT, "a", "digest", RunNo(no), Millis(T0)))
            outcome = await outcome_of(store, batch)
        assert outcome is not None
        assert (await store.run_by_no(RunNo(2)), await rows_of(store, 2)) == (None, {2: []})

    async def test_a_request_belongs_to_its_run_in_a_part_of_a_batch(self, store: Store) -> None:
        batch = started(1, 2)
        batch.requests += [
            Request(DEFAULT_TENANT, name, "digest", RunNo(no), Millis(T0))
            for no, name in ((1, "a"), (2, "b"))
        ]
        await commit(store, batch.without({RunNo(1)}))
        assert await store.request(DEFAULT_TENANT, "a") is None
        assert await store.request(DEFAULT_TENANT, "b") == ("digest", 2, run_id(2))

    async def test_a_name_means_the_version_that_was_published_last(self, store: Store) -> None:
        for number, version in ((1, "v1"), (2, "v2"), (2, "v2")):
            await commit(store, publication(version, number))
        assert await store.published(DEFAULT_TENANT, "n") == ("v2", "definition v2", 2)
        assert await store.published(DEFAULT_TENANT, "m") is None
        assert await store.workflow_names(DEFAULT_TENANT, 10) == ["n"]
        assert await store.workflow_names("another", 10) == []

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            (Wanted(), [4, 3, 2, 1]),
            (Wanted(status="failed"), [2]),
            (Wanted(status=("failed", "running")), [4, 3, 2, 1]),
            (Wanted(status=("completed", "waiting")), []),
            (Wanted(workflow="n"), [4, 3, 2, 1]),
            (Wanted(workflow="m"), []),
            (Wanted(label=("team", None)), [4, 3]),
            (Wanted(label=("team", "x")), [3]),
            (Wanted(label=("team", "x"), status="failed"), []),
            (Wanted(label=("no", None)), []),
            (Wanted(workflow="n", number=7), []),
            (Wanted(workflow="n", status="running", label=("x", "team")), [4]),
        ],
    )
    async def test_a_list_has_the_runs_that_are_wanted(
        self, store: Store, wanted: Wanted, found: list[int]
    ) -> None:
        batch = started(1, 3, 4)
        batch.versions.append(Version(DEFAULT_TENANT, "v1", "n", "definition", Millis(T0)))
        batch.new_runs[RunNo(3)].labels = '{"team":"x"}'
        batch.new_runs[RunNo(4)].labels = '{"team":"y","x":"team"}'
        await commit(store, batch)
        await commit(store, started(2, status="failed", owned=False, finished_at=T0))
        assert await listed(store, wanted) == found

    async def test_a_run_is_shown_with_its_workflow_and_the_job_above_it(self, store: Store) -> None:
        batch = started(1, 2)
        batch.versions.append(Version(DEFAULT_TENANT, "v1", "n", "definition", Millis(T0)))
        batch.new_runs[RunNo(1)].parent_job_id = "job-1"
        await commit(store, batch)
        first, second = await row_of(store, 1), await row_of(store, 2)
        assert (first.workflow, first.parent_job_id, second.parent_job_id) == ("n", "job-1", None)

    async def test_a_workflow_may_exist_before_anything_of_it_is_published(self, store: Store) -> None:
        batch = Batch()
        batch.workflows.append((DEFAULT_TENANT, Workflow("flow-1", "n", "what it does", Millis(T0))))
        await commit(store, batch)
        expected = Workflow("flow-1", "n", "what it does", Millis(T0))
        assert await store.workflow(DEFAULT_TENANT, "n") == expected
        assert await store.workflow_by_id(DEFAULT_TENANT, "flow-1") == expected
        assert await store.published(DEFAULT_TENANT, "n") is None

    async def test_a_workflow_that_is_there_stays_as_it_is(self, store: Store) -> None:
        for name_id in ("flow-1", "flow-2"):
            batch = Batch()
            batch.workflows.append((DEFAULT_TENANT, Workflow(name_id, "n", name_id, Millis(T0))))
            await commit(store, batch)
        found = await store.workflow(DEFAULT_TENANT, "n")
        assert found is not None
        assert (found.id, found.description) == ("flow-1", "flow-1")

    async def test_releases_are_listed_from_the_newest_back(self, store: Store) -> None:
        for number in (1, 2, 3):
            await commit(store, publication(f"v{number}", number))
        first = await store.releases(DEFAULT_TENANT, "n", 2**62, 2)
        rest = await store.releases(DEFAULT_TENANT, "n", first[-1].number, 2)
        assert [(each.number, each.version) for each in first + rest] == [(3, "v3"), (2, "v2"), (1, "v1")]
        assert await store.release_by_id(DEFAULT_TENANT, "ver-2") == first[1]

    async def test_a_release_keeps_its_content_for_ever(self, store: Store) -> None:
        await commit(store, publication("v1", 1))
        assert await outcome_of(store, publication("v2", 1)) is not None
        found = await store.release_numbered(DEFAULT_TENANT, "n", 1)
        assert found is not None
        assert found.version == "v1"

    async def test_a_draft_is_stored_and_not_what_the_name_means(self, store: Store) -> None:
        await commit(store, publication("v1", 1))
        await commit(store, publication("v2", 2, status="draft", is_current=False))
        assert await store.published(DEFAULT_TENANT, "n") == ("v1", "definition v1", 1)
        newest = await store.newest_published(DEFAULT_TENANT, "n")
        assert newest is not None
        assert newest.number == 1

    async def test_a_draft_becomes_published_and_never_a_draft_again(self, store: Store) -> None:
        for status in ("draft", "published", "draft"):
            await commit(store, publication("v1", 1, status=status, is_current=False))
        found = await store.release_numbered(DEFAULT_TENANT, "n", 1)
        assert found is not None
        assert found.status == "published"

    async def test_workflows_and_releases_are_their_tenants_own(self, store: Store) -> None:
        await commit(store, publication("v1", 1, tenant="a"))
        await commit(store, publication("v2", 1, tenant="b"))
        assert await store.published("a", "n") == ("v1", "definition v1", 1)
        assert await store.published("b", "n") == ("v2", "definition v2", 1)
        assert await store.workflows("c", "", 10) == []
        assert await store.release_by_id("c", "ver-1") is None

    async def test_workflows_are_paged_by_name(self, store: Store) -> None:
        batch = Batch()
        for name in ("c", "a", "b"):
            batch.workflows.append((DEFAULT_TENANT, Workflow(f"flow-{name}", name, "", Millis(T0))))
        await commit(store, batch)
        first = await store.workflows(DEFAULT_TENANT, "", 2)
        rest = await store.workflows(DEFAULT_TENANT, first[-1].name, 2)
        assert [each.name for each in first + rest] == ["a", "b", "c"]
