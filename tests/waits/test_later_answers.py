"""A later answer is an answer like any: files, keys, routes, retries, nesting and secrets, in both notations, by hand of time."""

from __future__ import annotations

import base64
import itertools
from typing import Any

import pytest

from holdfast import Context, RunFailed
from holdfast.embed import RunHandle
from holdfast.testing import TestEngine
from holdfast.values import DEFAULT_TENANT
from holdfast.views.explain import Explanation


def asks(engine: TestEngine, **more: Any) -> list[str]:
    """A tool `ask` whose every call gets a task id of its own: T1, T2, …; gives those that there were."""
    numbers, ids = itertools.count(1), list[str]()

    def ask(**args: Any) -> dict[str, Any]:
        ids.append(f"T{next(numbers)}")
        return {"pending": True, "task_id": ids[-1], **more}

    engine.fake_tool("ask", side_effect=ask)
    return ids


def node(kind: str = "local", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "service": "ask", **more}


async def graph(
    engine: TestEngine, nodes: dict[str, Any], edges: list[tuple[str, str, str]], **inputs: Any
) -> RunHandle:
    lines = [{"from": a, "to": b, "action": action} for a, action, b in edges]
    spec = {"name": "g", "start": next(iter(nodes)), "nodes": nodes, "edges": lines}
    return await engine.start(spec, inputs)


# --------------------------------------------------------------------------------------------------------- files


FILES = """
name: files
steps:
  - {id: a, tool: ask, RULES}
  - {id: r, tool: read, args: {uri: "{{ steps.a.file_refs[0].uri }}"}}
output: "{{ r }}"
"""


@pytest.mark.parametrize("wraps", [False, True])
async def test_files_of_a_later_answer_are_stored_as_those_of_any(engine: TestEngine, wraps: bool) -> None:
    asks(engine)

    def read(ctx: Context, uri: str) -> str:
        return ctx.artefact(uri).read_text()

    engine.tool(read)
    answer = {"file_refs": [{"inline_b64": base64.b64encode(b"hello").decode()}]}
    rules = "result: {select: $.data}" if wraps else "timeout_secs: 60"
    run = await engine.start(FILES.replace("RULES", rules))
    await engine.resume("T1", {"data": answer} if wraps else answer)
    assert await engine.finish(run) == "hello"


@pytest.mark.parametrize(
    ("entry", "reason"),
    [({"path": "pyproject.toml"}, "cannot name files of this machine"), ({"inline_b64": "%"}, "base64")],
)
async def test_a_file_that_cannot_be_stored_is_the_failure_of_the_step(
    engine: TestEngine, entry: Any, reason: str
) -> None:
    asks(engine)
    engine.fake_tool("read")
    run = await engine.start(FILES.replace("RULES", "timeout_secs: 60"))
    assert (await engine.resume("T1", {"file_refs": [entry]}))["resumed"]
    with pytest.raises(RunFailed, match=reason):
        await engine.finish(run)


# ---------------------------------------------------------------------------------------------------------- keys


async def test_a_later_answer_is_stored_under_the_key_of_its_step(engine: TestEngine) -> None:
    ids = asks(engine)
    spec = (
        "{name: k, steps: [{id: a, tool: ask, idempotency_key: one, idempotency_scope: global}],"
        ' output: "{{ a }}"}'
    )
    first, second = await engine.start(spec), await engine.start(spec)
    assert ids == ["T1"]  # whoever comes second waits for the first
    await engine.resume("T1", {"n": 1})
    third = await engine.start(spec)
    assert [await engine.finish(run) for run in (first, second, third)] == [{"n": 1}] * 3
    assert ids == ["T1"]


# ------------------------------------------------------------------------------------------------ failures, routes


async def test_each_try_has_a_task_of_its_own_and_the_last_failure_is_the_step_s(engine: TestEngine) -> None:
    ids = asks(engine)
    run = await engine.start(
        "{name: f, steps: [{id: a, tool: ask, retry: {max_attempts: 3, initial_delay_ms: 1000}}]}"
    )
    for number in range(3):
        await engine.advance(seconds=10)
        assert (await engine.resume(ids[-1], {"success": False, "error": f"no {number}"}))["resumed"]
    with pytest.raises(RunFailed, match="no 2"):
        await engine.finish(run)
    assert ids == ["T1", "T2", "T3"]


async def test_a_wait_whose_time_is_over_is_tried_again(engine: TestEngine) -> None:
    ids = asks(engine)
    run = await engine.start(
        "{name: f, steps: [{id: a, tool: ask, pending_ttl_secs: 60, retry: {max_attempts: 2, initial_delay_ms: 0}}],"
        ' output: "{{ a }}"}'
    )
    await engine.advance(seconds=61)
    assert ids == ["T1", "T2"]
    assert await engine.resume("T1", 1) == {"resumed": False, "reason": "expired"}
    await engine.resume("T2", 2)
    assert await engine.finish(run) == 2


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([("a", "timeout", "late"), ("a", "error", "bad"), ("a", "default", "on")], "late"),
        ([("a", "error", "bad"), ("a", "default", "on")], "bad"),
        ([("a", "default", "on")], "on"),
    ],
)
async def test_a_wait_whose_time_is_over_takes_the_edge_of_a_time_out(
    engine: TestEngine, edges: list[tuple[str, str, str]], expected: str
) -> None:
    asks(engine)
    engine.fake_tool("note", side_effect=lambda **args: "here")
    ends = {
        name: {"kind": "local", "service": "note", "post": {"output_key": name}}
        for name in ("late", "bad", "on")
    }
    nodes = {"a": node(pending_ttl_secs=60), **{to: ends[to] for _, _, to in edges}}
    run = await graph(engine, nodes, edges)
    assert await engine.finish(run) == {expected: "here"}


async def test_a_later_failure_takes_the_edge_of_an_error(engine: TestEngine) -> None:
    ids = asks(engine)
    engine.fake_tool("note", side_effect=lambda **args: "here")
    bad = {"kind": "local", "service": "note", "post": {"output_key": "bad"}}
    run = await graph(engine, {"a": node(max_retries=1), "bad": bad}, [("a", "error", "bad")])
    for task_id in ("T1", "T2"):
        await engine.resume(task_id, {"success": False, "error": "no"})
        await engine.advance(seconds=1)
    assert ids == ["T1", "T2"]
    assert await engine.finish(run) == {"bad": "here"}


async def test_without_an_edge_for_it_a_wait_whose_time_is_over_fails_the_task(engine: TestEngine) -> None:
    asks(engine)
    run = await graph(engine, {"a": node(pending_ttl_secs=60)}, [])
    with pytest.raises(RunFailed, match="resume_timeout"):
        await engine.finish(run)


# ------------------------------------------------------------------------------------------------------- nesting


async def test_a_node_of_a_graph_writes_its_later_answer_and_takes_its_action(engine: TestEngine) -> None:
    asks(engine)
    engine.fake_tool("note", side_effect=lambda **args: "here")
    end = {"kind": "local", "service": "note", "post": {"output_key": "end"}}
    nodes = {"a": node(post={"output_key": "out", "action_key": "next"}), "end": end}
    run = await graph(engine, nodes, [("a", "go", "end")])
    await engine.resume("T1", {"next": "go", "n": 1})
    assert await engine.finish(run) == {"out": {"next": "go", "n": 1}, "end": "here"}


async def test_branches_items_and_nested_workflows_wait_at_once(engine: TestEngine) -> None:
    ids = asks(engine)
    hf = await engine.open()
    await hf.publish("{name: child, steps: [{id: c, tool: ask}], output: '{{ c }}'}")
    run = await engine.start(
        """
        name: all
        steps:
          - id: p
            kind: parallel
            branches:
              - [{id: w, workflow: child}]
              - [{id: e, kind: foreach, items: $.inputs.xs, concurrency: 2, steps: [{id: i, tool: ask}]}]
              - [{id: s, tool: ask}, {id: t, tool: ask}]
        """,
        {"xs": [1, 2]},
    )
    assert len(ids) == 4
    await engine.restart()
    for task_id in reversed(list(ids)):
        assert (await engine.resume(task_id, task_id))["resumed"]
    assert len(ids) == 5
    await engine.resume(ids[-1], "last")
    branches = (await engine.finish(run))["p"]["branches"]
    assert branches[0]["steps"]["w"] in ids
    assert all(one["i"] in ids for one in branches[1]["steps"]["e"]["iterations"])
    assert branches[2]["steps"]["t"] == "last"


# ------------------------------------------------------------------------------------------------ what is visible


async def explained(engine: TestEngine, run: RunHandle) -> Explanation:
    core = (await engine.open())._engine
    return await core.queries.explain(DEFAULT_TENANT, run.id)


async def test_a_wait_that_ended_stays_visible_with_its_task_since_and_until(engine: TestEngine) -> None:
    asks(engine)
    run = await engine.start("{name: v, steps: [{id: a, tool: ask, pending_ttl_secs: 60}]}")
    with pytest.raises(RunFailed):
        await engine.finish(run)
    core = (await engine.open())._engine
    row = await core.runs.row_of(run.id)
    (wait,) = await core.store.waits_named("default", "T1", 10)
    assert (wait.path, wait.outcome, wait.no) == ("a", "expired", row.no)
    assert wait.expires_at is not None and wait.resolved_at is not None
    assert wait.expires_at - wait.since == 60_000 and wait.resolved_at >= wait.expires_at


async def test_explain_tells_of_the_address_and_the_estimate_of_a_later_answer(engine: TestEngine) -> None:
    asks(engine, poll_url="http://127.0.0.1:9/t1", estimated_seconds=90)
    run = await engine.start("{name: v, steps: [{id: a, tool: ask, pending_ttl_secs: 60}]}")
    (reason,) = (await explained(engine, run)).reasons
    assert (reason.path, reason.reason) == ("a", "callback")
    assert reason.until == reason.since + 60_000
    told = "the result of task 'T1', or a result at http://127.0.0.1:9/t1, expected after 90 s"
    assert reason.unblocks == f"{told}: holdfast resume T1 --result JSON"


async def test_explain_names_the_key_that_a_condition_looks_at(engine: TestEngine) -> None:
    wait = {"kind": "wait_event", "params": {"signal_key": "$shared.go"}}
    run = await graph(engine, {"w": wait}, [])
    (reason,) = (await explained(engine, run)).reasons
    assert reason.unblocks == f"a signal that writes 'go': holdfast signal {run.id} go JSON"


async def test_a_secret_of_a_paused_call_stands_in_no_row(engine: TestEngine) -> None:
    engine.options["secrets"] = [{"TOKEN": "very-secret-value"}.get]
    seen: list[str] = []

    def ask(token: str) -> dict[str, Any]:
        seen.append(token)
        return {"pending": True, "task_id": "T1"}

    engine.fake_tool("ask", side_effect=ask)
    run = await engine.start('{name: s, steps: [{id: a, tool: ask, args: {token: "{{ secrets.TOKEN }}"}}]}')
    assert seen == ["very-secret-value"]
    await engine.resume("T1", {"echo": "very-secret-value"})
    await engine.finish(run)
    assert b"very-secret-value" not in engine.file.read_bytes()
