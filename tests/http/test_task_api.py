"""The task paths, from outside: a live server, a worker in another process, and the shapes that old clients know."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from holdfast.config import Settings
from holdfast.http.serve import serving

WORKER = Path(__file__).with_name("push_worker.py")
TERMINAL = ("completed", "failed", "canceled")
PREFIXES = pytest.mark.parametrize("prefix", ["", "/api"])

BRANCHES: dict[str, Any] = {
    "start": "A",
    "nodes": {
        "A": {"kind": "executor", "service": "route", "params": {"action": "$params.action"},
              "post": {"action_key": "action"}},
        "B": {"kind": "executor", "service": "transform", "params": {"op": "upper"},
              "prep": {"input_key": "$params.text"}, "post": {"output_key": "result"}},
        "C": {"kind": "executor", "service": "sum", "prep": {"input_key": "$params.values"},
              "post": {"output_key": "result"}},
    },
    "edges": [
        {"from": "A", "action": "goB", "to": "B"},
        {"from": "A", "action": "goC", "to": "C"},
        {"from": "B", "action": "default", "to": ""},
        {"from": "C", "action": "default", "to": ""},
    ],
}  # fmt: skip
CHAIN = {
    "start": "t1",
    "nodes": {f"t{n}": {"kind": "timer", "params": {"delay_ms": 0}} for n in range(1, 6)},
    "edges": [{"from": f"t{n}", "action": "default", "to": f"t{n + 1}"} for n in range(1, 5)],
}
WAITS = {"start": "t", "nodes": {"t": {"kind": "timer", "params": {"delay_ms": 3_600_000}}}}


class TaskApi:
    """A server, spoken to as a program without any of our code would."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self.address, self.session = address, session
        self.headers: dict[str, str] = {}

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        data = body if isinstance(body, str | None) else json.dumps(body)
        async with self.session.request(
            method, self.address + path, data=data, params=query, headers=self.headers
        ) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str, **query: Any) -> Any:
        status, found = await self.ask("GET", path, **query)
        assert status == 200, found
        return found

    async def post(self, path: str, body: Any = None, **query: Any) -> Any:
        status, found = await self.ask("POST", path, body, **query)
        assert status == 200, found
        return found

    async def flow(self, definition: Any = BRANCHES, **more: Any) -> str:
        """A new flow with a published definition; gives its id."""
        flow_id: str = (await self.post("/flows", {"name": f"flow {uuid4()}"}))["id"]
        await self.post("/flows/version", {"flow_id": flow_id, "definition": definition, **more})
        return flow_id

    async def task(self, flow_id: str, **params: Any) -> str:
        found: str = (await self.post("/tasks", {"flow_id": flow_id, "params": params}))["id"]
        return found

    async def ended(self, task_id: str) -> Any:
        """The task when it is over. Its end is told by the stream of its events."""
        async with self.session.get(f"{self.address}/api/v1/runs/{task_id}/events") as stream:
            async for line in stream.content:
                if b"workflow_terminal" in line:
                    break
        found = await self.get("/tasks/get", id=task_id)
        assert found["status"] in TERMINAL
        return found

    async def shared(self, definition: Any, **params: Any) -> Any:
        """What a task of this definition leaves behind."""
        task = await self.ended(await self.task(await self.flow(definition), **params))
        assert task["status"] == "completed", task
        return json.loads(task["shared_json"])


@pytest.fixture
async def centre(tmp_path: Path) -> AsyncIterator[TaskApi]:
    settings = Settings(
        db=f"sqlite:///{tmp_path / 'h.db'}", port=0, worker_ttl_secs=600, worker_lease_secs=600
    )
    async with serving(settings) as server, aiohttp.ClientSession() as session:
        yield TaskApi(server.address, session)


@contextmanager
def worker(centre: TaskApi, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(WORKER), centre.address, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate(timeout=120)


@pytest.fixture
async def served(centre: TaskApi) -> AsyncIterator[TaskApi]:
    """The same with a worker that is registered."""
    with worker(centre, "worker-1") as process:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        yield centre
        await asyncio.to_thread(process.communicate)


# -------------------------------------------------------------------------------------------------------- end to end


@pytest.mark.anyio
async def test_two_tasks_take_the_branches_that_their_params_choose(served: TaskApi) -> None:
    flow_id = await served.flow()
    to_b = await served.ended(await served.task(flow_id, action="goB", text="hello"))
    to_c = await served.ended(await served.task(flow_id, action="goC", values=[1, "2", 3]))
    assert (to_b["status"], json.loads(to_b["shared_json"])) == ("completed", {"result": "HELLO"})
    assert (to_c["status"], json.loads(to_c["shared_json"])) == ("completed", {"result": 6.0})


@pytest.mark.anyio
async def test_a_finished_task_has_every_key_of_its_dialect(served: TaskApi) -> None:
    flow_id = await served.flow()
    task = await served.ended(await served.task(flow_id, action="goB", text="a"))
    assert set(task) >= {
        "id", "flow_version_id", "status", "params_json", "shared_json", "current_node_key", "last_action", "step_count",
        "retry_state_json", "lease_owner", "lease_expiry", "request_id", "created_at", "updated_at", "flow_id",
        "flow_name", "flow_version",
    }  # fmt: skip
    assert json.loads(task["params_json"]) == {"action": "goB", "text": "a"}
    assert (task["flow_id"], task["flow_version"], task["step_count"]) == (flow_id, 1, 2)
    assert task["created_at"] <= task["updated_at"] < 10**11  # seconds, not milliseconds


@pytest.mark.anyio
async def test_node_runs_tell_what_each_node_was_given_and_by_whom_it_was_done(served: TaskApi) -> None:
    task_id = await served.task(await served.flow(), action="goB", text="hello")
    await served.ended(task_id)
    first, second = await served.get("/tasks/runs", task_id=task_id)
    assert set(first) >= {
        "id", "task_id", "node_key", "attempt_no", "status", "sub_status", "branch_id", "prep_json", "exec_input_json",
        "exec_output_json", "error_text", "action", "started_at", "finished_at", "worker_id", "worker_url",
    }  # fmt: skip
    assert (first["node_key"], first["status"], first["action"], first["attempt_no"]) == ("A", "ok", "goB", 1)
    assert (second["node_key"], second["worker_id"]) == ("B", "worker-1")
    assert json.loads(second["exec_output_json"]) == "HELLO"
    assert second["worker_url"].startswith("http://127.0.0.1:")


@pytest.mark.anyio
async def test_a_foreach_keeps_the_order_of_its_items(served: TaskApi) -> None:
    definition = {
        "start": "each",
        "nodes": {
            "each": {
                "kind": "foreach",
                "service": "transform",
                "prep": {"input_key": "$params.items"},
                "params": {"mul": 2.0},
                "post": {"output_key": "mapped", "action_static": "next"},
                "parallel_mode": "concurrent",
                "max_parallel": 8,
            }
        },
    }
    assert await served.shared(definition, items=[3, 1, 2]) == {"mapped": [6.0, 2.0, 4.0]}


@pytest.mark.anyio
async def test_a_timer_a_choice_and_a_subflow_run_without_any_worker(centre: TaskApi) -> None:
    definition = {
        "start": "wait",
        "nodes": {
            "wait": {"kind": "timer", "params": {"delay_ms": 1}, "post": {"action_static": "next"}},
            "choose": {
                "kind": "choice",
                "prep": {"input_key": "$params.n"},
                "choice_cases": [{"action": "big", "expr": {"gt": ["$input", 10]}}],
                "default_action": "small",
            },
            "inner": {
                "kind": "subflow",
                "subflow": {
                    "start": "t",
                    "nodes": {"t": {"kind": "timer", "prep": {"input_key": "$params.n"},
                                    "params": {"delay_ms": 0}, "post": {"output_key": "seen"}}},
                },
                "post": {"output_key": "child"},
            },
        },
        "edges": [
            {"from": "wait", "action": "next", "to": "choose"},
            {"from": "choose", "action": "big", "to": "inner"},
        ],
    }  # fmt: skip
    assert await centre.shared(definition, n=11) == {"child": {"seen": 11}}
    assert await centre.shared(definition, n=1) == {}


@pytest.mark.anyio
async def test_a_failure_without_an_edge_fails_the_task_after_its_retries(served: TaskApi) -> None:
    definition = {"start": "f", "nodes": {"f": {"kind": "executor", "service": "fail", "max_retries": 2}}}
    task_id = await served.task(await served.flow(definition))
    assert (await served.ended(task_id))["status"] == "failed"
    runs = await served.get("/tasks/runs", task_id=task_id)
    assert [(run["attempt_no"], run["status"]) for run in runs] == [(1, "error"), (2, "error"), (3, "error")]
    assert "told to fail" in runs[0]["error_text"]


@pytest.mark.anyio
async def test_nothing_but_curl_is_needed(served: TaskApi) -> None:
    async def curl(*words: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            "curl",
            "-sS",
            "--noproxy",
            "*",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err
        return json.loads(out)

    at = served.address
    flow = await curl(f"{at}/flows", "-d", '{"Name": "curl"}')
    body = {"FlowID": flow["id"], "Version": 1, "DefinitionJSON": json.dumps(BRANCHES), "Status": "published"}
    await curl(f"{at}/flows/version", "-d", json.dumps(body))
    params = json.dumps({"action": "goC", "values": [1, 2]})
    task = await curl(f"{at}/tasks", "-d", json.dumps({"FlowID": flow["id"], "ParamsJSON": params}))
    await served.ended(task["id"])
    found = await curl("-G", f"{at}/tasks/get", "-d", f"id={task['id']}")
    assert json.loads(found["shared_json"]) == {"result": 3.0}


# ------------------------------------------------------------------------------------------------ flows and versions


@PREFIXES
@pytest.mark.anyio
async def test_a_known_name_answers_the_same_flow(centre: TaskApi, prefix: str) -> None:
    first = await centre.post(f"{prefix}/flows", {"Name": "orders", "Description": "all of them"})
    assert await centre.post(f"{prefix}/flows", {"name": "orders"}) == first
    assert first["id"].startswith("flow-")


@pytest.mark.parametrize(
    "spelled",
    [
        lambda flow_id: {"FlowID": flow_id, "DefinitionJSON": json.dumps(WAITS)},
        lambda flow_id: {"flow_id": flow_id, "definition_json": WAITS},
        lambda flow_id: {"flowId": flow_id, "DEFINITION": WAITS, "unknown": [1]},
        lambda flow_id: {"flowid": flow_id, "definition": json.dumps(WAITS)},
        lambda flow_id: {
            "FlowID": flow_id,
            "Version": 0,
            "DefinitionJSON": json.dumps(WAITS),
            "DefinitionYAML": "",
            "Status": "",
            "Definition": None,
        },
        lambda flow_id: {
            "FLOW_ID": flow_id,
            "DefinitionYAML": "start: t\nnodes:\n  t: {kind: timer, params: {delay_ms: 1}}\n",
        },
    ],
)
@pytest.mark.anyio
async def test_keys_are_read_however_they_are_spelled(centre: TaskApi, spelled: Any) -> None:
    flow = await centre.post("/flows", {"NAME": "spelled"})
    version = await centre.post("/flows/version", spelled(flow["id"]))
    assert version["id"].startswith("ver-")


@pytest.mark.anyio
async def test_a_task_takes_the_highest_published_version_unless_it_names_one(centre: TaskApi) -> None:
    flow_id = await centre.flow(_timer(1))
    await centre.post("/flows/version", {"flow_id": flow_id, "definition": _timer(2)})
    await centre.post("/flows/version", {"flow_id": flow_id, "definition": _timer(3), "status": "draft"})
    newest = await centre.ended(await centre.task(flow_id))
    named = await centre.post("/tasks", {"flow_id": flow_id, "version": 1})
    assert newest["flow_version"] == 2
    assert (await centre.ended(named["id"]))["flow_version"] == 1


@pytest.mark.anyio
async def test_a_number_has_one_content_for_ever(centre: TaskApi) -> None:
    flow_id = await centre.flow(_timer(1), version=7)
    again = await centre.ask(
        "POST", "/flows/version", {"flow_id": flow_id, "version": 7, "definition": _timer(2)}
    )
    assert again[0] == 409
    assert again[1]["error"] == "version_conflict"


@pytest.mark.anyio
async def test_a_task_keeps_its_version_when_another_is_published(centre: TaskApi) -> None:
    flow_id = await centre.flow(WAITS)
    task_id = await centre.task(flow_id)
    await centre.post("/flows/version", {"flow_id": flow_id, "definition": _timer(1)})
    assert (await centre.get("/tasks/get", id=task_id))["flow_version"] == 1


def _timer(delay_ms: int) -> dict[str, Any]:
    return {"start": "t", "nodes": {"t": {"kind": "timer", "params": {"delay_ms": delay_ms}}}}


@pytest.mark.parametrize(
    "definition", [{}, {"nodes": WAITS["nodes"]}, {"start": "", "nodes": WAITS["nodes"]}, "{}"]
)
@pytest.mark.anyio
async def test_a_definition_without_a_start_is_refused_in_those_words(
    centre: TaskApi, definition: Any
) -> None:
    flow = await centre.post("/flows", {"name": "broken"})
    status, found = await centre.ask(
        "POST", "/flows/version", {"flow_id": flow["id"], "definition": definition}
    )
    assert (status, found["error"]) == (400, "no start")


@pytest.mark.anyio
async def test_every_problem_of_a_definition_is_reported_at_once_with_its_place(centre: TaskApi) -> None:
    flow = await centre.post("/flows", {"name": "broken"})
    definition = {
        "start": "a",
        "nodes": {"a": {"kind": "zzz"}, "b": {"kind": "executor"}},
        "edges": [{"from": "a", "action": "x", "to": "nowhere"}],
    }
    status, found = await centre.ask(
        "POST", "/flows/version", {"flow_id": flow["id"], "definition": definition}
    )
    assert (status, found["error"]) == (400, "invalid_spec")
    places = {problem["pointer"] for problem in found["details"]}
    assert places >= {"/nodes/a/kind", "/edges/0/to"}
    assert (await centre.ask("POST", "/tasks", {"flow_id": flow["id"]}))[0] == 404


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "body"),
        ("[]", "object"),
        ({}, "flow_id"),
        ({"flow_id": "x", "version": "one", "definition": WAITS}, "version"),
        ({"flow_id": "x", "version": -1, "definition": WAITS}, "version"),
        ({"flow_id": "x", "status": "gone", "definition": WAITS}, "status"),
    ],
)
@pytest.mark.anyio
async def test_a_body_that_cannot_be_read_is_400(centre: TaskApi, body: Any, says: str) -> None:
    status, found = await centre.ask("POST", "/flows/version", body)
    assert (status, found["error"]) == (400, "invalid_request")
    assert says in found["message"]


@pytest.mark.anyio
async def test_a_version_without_a_definition_is_400(centre: TaskApi) -> None:
    flow = await centre.post("/flows", {"name": "empty"})
    status, found = await centre.ask("POST", "/flows/version", {"flow_id": flow["id"]})
    assert status == 400
    assert "DefinitionJSON" in found["message"]


@pytest.mark.parametrize("text", ["{nope", "[1]", "3", "null", '"text"', "1e999", "[" * 10_000])
@pytest.mark.anyio
async def test_a_definition_that_is_no_object_is_400(centre: TaskApi, text: str) -> None:
    flow = await centre.post("/flows", {"name": "empty"})
    for key in ("definition_json", "definition", "definition_yaml"):
        status, _ = await centre.ask("POST", "/flows/version", {"flow_id": flow["id"], key: text})
        assert (key, status) == (key, 400)


@pytest.mark.anyio
async def test_params_that_nest_too_deep_are_400(centre: TaskApi) -> None:
    deep = '{"a": ' + "[" * 100 + "]" * 100 + "}"
    asked = {"flow_id": await centre.flow(WAITS), "params_json": deep}
    assert (await centre.ask("POST", "/tasks", asked))[0] == 400


# ------------------------------------------------------------------------------------------------------------- tasks


@PREFIXES
@pytest.mark.anyio
async def test_what_is_not_there_is_404_not_found(centre: TaskApi, prefix: str) -> None:
    missing = (404, {"error": "not found"})
    unknown = str(uuid4())
    assert await centre.ask("GET", f"{prefix}/tasks/get", id=unknown) == missing
    assert await centre.ask("GET", f"{prefix}/tasks/runs", task_id=unknown) == missing
    assert await centre.ask("POST", f"{prefix}/tasks/cancel", id=unknown) == missing
    assert await centre.ask("POST", f"{prefix}/tasks", {"flow_id": unknown}) == missing
    signal = {"task_id": unknown, "key": "k", "value": 1}
    assert await centre.ask("POST", f"{prefix}/tasks/signal", signal) == missing
    version = {"flow_id": unknown, "definition": WAITS}
    assert await centre.ask("POST", f"{prefix}/flows/version", version) == missing


@pytest.mark.anyio
async def test_a_flow_of_which_nothing_is_published_starts_no_task(centre: TaskApi) -> None:
    flow = await centre.post("/flows", {"name": "bare"})
    for _ in range(2):
        status, refusal = await centre.ask("POST", "/tasks", {"flow_id": flow["id"]})
        assert (status, refusal["error"]) == (404, "not found")
        assert "no workflow 'bare' is published" in refusal["message"]
        await centre.post("/flows/version", {"flow_id": flow["id"], "definition": WAITS, "status": "draft"})
    assert await centre.get("/tasks") == []


@PREFIXES
@pytest.mark.anyio
async def test_another_method_is_405_method(centre: TaskApi, prefix: str) -> None:
    for method, path in (("GET", "/flows"), ("POST", "/tasks/get"), ("GET", "/tasks/cancel"), ("PUT", "/tasks"),
                         ("GET", "/workers/register"), ("POST", "/workers/list"), ("DELETE", "/register")):  # fmt: skip
        assert await centre.ask(method, prefix + path) == (405, {"error": "method"})


@pytest.mark.parametrize("path", ["/tasks/get", "/tasks/runs"])
@pytest.mark.anyio
async def test_a_question_about_no_task_is_400(centre: TaskApi, path: str) -> None:
    assert (await centre.ask("GET", path))[0] == 400


@pytest.mark.anyio
async def test_the_same_request_id_answers_the_first_tasks_id(centre: TaskApi) -> None:
    flow_id = await centre.flow(WAITS)
    asked = {"FlowID": flow_id, "ParamsJSON": '{"a": 1}', "RequestID": "order-7"}
    found = await asyncio.gather(*(centre.post("/tasks", asked) for _ in range(20)))
    assert len({one["id"] for one in found}) == 1
    assert (await centre.get("/api/tasks"))["total"] == 1
    assert (await centre.get("/tasks/get", id=found[0]["id"]))["request_id"] == "order-7"


@pytest.mark.anyio
async def test_a_task_may_be_asked_for_with_every_key_empty(centre: TaskApi) -> None:
    asked = {
        "FlowID": await centre.flow(WAITS),
        "Version": 0,
        "ParamsJSON": "",
        "Params": None,
        "RequestID": "",
    }
    first, second = await centre.post("/tasks", asked), await centre.post("/tasks", asked)
    assert first != second
    assert (await centre.get("/tasks/get", id=first["id"]))["params_json"] == "{}"


@pytest.mark.anyio
async def test_an_idempotency_key_is_kept_with_its_task_and_not_with_an_answer(centre: TaskApi) -> None:
    """Each address keeps its own answers, so the other one knows of the first task by the task alone."""
    asked = {"FlowID": await centre.flow(), "ParamsJSON": '{"a": 1}'}
    centre.headers["Idempotency-Key"] = "order-7"
    assert await centre.post("/tasks", asked) == await centre.post("/api/tasks", asked)


@pytest.mark.anyio
async def test_a_request_id_that_asked_for_something_else_is_a_conflict(centre: TaskApi) -> None:
    flow_id = await centre.flow(WAITS)
    await centre.post("/tasks", {"flow_id": flow_id, "params": {"a": 1}, "request_id": "order-7"})
    status, found = await centre.ask(
        "POST", "/tasks", {"flow_id": flow_id, "params": {"a": 2}, "request_id": "order-7"}
    )
    assert (status, found["error"]) == (409, "request_conflict")


@pytest.mark.parametrize("params", ["[1]", "nope", 3, [1]])
@pytest.mark.anyio
async def test_params_that_are_no_object_start_no_task(centre: TaskApi, params: Any) -> None:
    flow_id = await centre.flow(WAITS)
    assert (await centre.ask("POST", "/tasks", {"flow_id": flow_id, "params_json": params}))[0] == 400
    assert await centre.get("/tasks") == []


@pytest.mark.anyio
async def test_a_task_is_known_with_and_without_its_prefix(centre: TaskApi) -> None:
    task_id = await centre.task(await centre.flow(WAITS))
    assert (await centre.get("/tasks/get", id=f"task-{task_id}"))["id"] == task_id
    assert [run["task_id"] for run in await centre.get("/tasks/runs", task_id=f"task-{task_id}")] == [task_id]


@pytest.mark.anyio
async def test_one_list_is_bare_and_the_other_has_pages(centre: TaskApi) -> None:
    flow_id = await centre.flow(WAITS)
    made = [await centre.task(flow_id) for _ in range(3)]
    newest_first = list(reversed(made))
    assert [task["id"] for task in await centre.get("/tasks")] == newest_first
    page = await centre.get("/api/tasks", page=2, page_size=2)
    assert (page["total"], page["page"], page["size"]) == (3, 2, 2)
    assert [task["id"] for task in page["data"]] == newest_first[2:]
    assert [task["id"] for task in await centre.get("/tasks", page=1, page_size=2)] == newest_first[:2]


@pytest.mark.anyio
async def test_node_runs_beyond_an_answer_are_where_its_link_says(centre: TaskApi) -> None:
    task_id = await centre.task(await centre.flow(CHAIN))
    await centre.ended(task_id)
    whole = await centre.get("/tasks/runs", task_id=task_id)
    pages, address = [], f"{centre.address}/tasks/runs?task_id={task_id}&limit=2"
    while address:
        async with centre.session.get(address) as answer:
            pages.append(await answer.json())
            address = str(answer.links["next"]["url"]) if "next" in answer.links else ""
    assert [run for page in pages for run in page] == whole
    assert [len(page) for page in pages] == [2, 2, 1]


@pytest.mark.parametrize("query", [{"cursor": "x"}, {"limit": 0}, {"limit": 10_001}])
@pytest.mark.anyio
async def test_a_page_of_node_runs_that_cannot_be_is_400(centre: TaskApi, query: dict[str, Any]) -> None:
    task_id = await centre.task(await centre.flow(WAITS))
    assert (await centre.ask("GET", "/tasks/runs", task_id=task_id, **query))[0] == 400


@pytest.mark.anyio
async def test_tasks_are_filtered_by_status_in_this_spelling(centre: TaskApi) -> None:
    flow_id = await centre.flow(WAITS)
    stopped, left = await centre.task(flow_id), await centre.task(flow_id)
    assert await centre.post("/tasks/cancel", id=stopped) == {"ok": "1"}
    await centre.ended(stopped)
    assert [task["id"] for task in await centre.get("/tasks", status="canceled")] == [stopped]
    assert [task["id"] for task in await centre.get("/tasks", status="running")] == [left]
    assert (await centre.get("/api/tasks", status="canceled"))["total"] == 1
    assert await centre.get("/tasks", status="completed") == []
    assert (await centre.ask("GET", "/tasks", status="cancelled"))[0] == 400


@pytest.mark.anyio
async def test_tasks_are_filtered_by_the_version_of_their_flow(centre: TaskApi) -> None:
    one, other = await centre.flow(WAITS), await centre.flow(WAITS)
    of_one, _ = await centre.task(one), await centre.task(other)
    version = (await centre.get("/tasks/get", id=of_one))["flow_version_id"]
    assert version.startswith("ver-")
    assert [task["id"] for task in await centre.get("/tasks", flow_version_id=version)] == [of_one]
    assert (await centre.get("/api/tasks", flow_version_id="ver-none"))["total"] == 0


@pytest.mark.parametrize("query", [{"page": 0}, {"page_size": 501}, {"page_size": 0}, {"page": "x"}])
@pytest.mark.anyio
async def test_a_page_that_cannot_be_is_400(centre: TaskApi, query: dict[str, Any]) -> None:
    assert (await centre.ask("GET", "/tasks", **query))[0] == 400


@pytest.mark.anyio
async def test_a_canceled_task_has_one_canceled_node_run(centre: TaskApi) -> None:
    task_id = await centre.task(await centre.flow(WAITS))
    assert await centre.post("/api/tasks/cancel", id=task_id) == {"ok": "1"}
    assert (await centre.ended(task_id))["status"] == "canceled"
    runs = await centre.get("/tasks/runs", task_id=task_id)
    canceled = [run for run in runs if run["status"] == "canceled"]
    assert [(run["attempt_no"], run["action"]) for run in canceled] == [(0, "canceled")]


@pytest.mark.anyio
async def test_canceling_again_changes_nothing(centre: TaskApi) -> None:
    task_id = await centre.task(await centre.flow(WAITS))
    await centre.post("/tasks/cancel", id=task_id)
    before = await centre.ended(task_id)
    assert await centre.post("/tasks/cancel", {"task_id": task_id}) == {"ok": "1"}
    assert await centre.get("/tasks/get", id=task_id) == before


# ----------------------------------------------------------------------------------------------------------- signals


@pytest.mark.anyio
async def test_a_signal_writes_one_key_of_the_shared_state(centre: TaskApi) -> None:
    task_id = await centre.task(await centre.flow(WAITS))
    assert await centre.post("/tasks/signal", {"task_id": task_id, "key": "flag", "value": {"by": "me"}}) == {
        "ok": "1"
    }
    task = await centre.get("/tasks/get", id=task_id)
    assert json.loads(task["shared_json"]) == {"flag": {"by": "me"}}


@pytest.mark.parametrize(
    "body", [{}, {"task_id": "x"}, {"key": "k", "value": 1}, {"task_id": "", "key": "k"}]
)
@pytest.mark.anyio
async def test_a_signal_without_ids_is_400(centre: TaskApi, body: dict[str, Any]) -> None:
    assert (await centre.ask("POST", "/tasks/signal", body))[0] == 400


@pytest.mark.anyio
async def test_a_signal_to_a_task_that_is_over_is_409(centre: TaskApi) -> None:
    task_id = await centre.task(await centre.flow(_timer(0)))
    await centre.ended(task_id)
    status, found = await centre.ask("POST", "/tasks/signal", {"task_id": task_id, "key": "k", "value": 1})
    assert (status, found["error"]) == (409, "run_is_over")


# ----------------------------------------------------------------------------------------------------------- workers


@pytest.mark.parametrize("place", ["/workers", "", "/api/workers", "/api"])
@pytest.mark.anyio
async def test_workers_are_known_at_every_place_that_old_workers_know(centre: TaskApi, place: str) -> None:
    said = {"ID": "w1", "URL": "http://127.0.0.1:9/", "Services": ["sum"]}
    assert await centre.post(f"{place}/register", said) == {"ok": "1"}
    assert await centre.post(f"{place}/heartbeat", {"id": "w1", "load": 3}) == {"ok": "1"}
    (found,) = await centre.get(f"{place}/list", service="sum")
    assert set(found) == {"id", "url", "services", "load", "last_heartbeat", "status", "type"}
    assert (found["id"], found["services"], found["load"]) == ("w1", ["sum"], 3)
    assert (found["status"], found["type"]) == ("online", "http")
    assert found["last_heartbeat"] < 10**11
    assert (await centre.get(f"{place}/allocate", service="sum"))["id"] == "w1"


@PREFIXES
@pytest.mark.anyio
async def test_no_worker_is_503_no_worker(centre: TaskApi, prefix: str) -> None:
    assert await centre.ask("GET", f"{prefix}/workers/allocate", service="sum") == (
        503,
        {"error": "no worker"},
    )
    assert await centre.get(f"{prefix}/workers/list", service="sum") == []


@pytest.mark.anyio
async def test_the_least_loaded_worker_is_allocated(centre: TaskApi) -> None:
    for name, load in (("w1", 5), ("w2", 1), ("w3", 3)):
        await centre.post("/register", {"id": name, "url": f"http://127.0.0.1:9/{name}", "services": ["sum"]})
        await centre.post("/heartbeat", {"id": name, "load": load})
    assert (await centre.get("/allocate", service="sum"))["id"] == "w2"


@pytest.mark.anyio
async def test_registering_again_says_anew_what_a_worker_does(centre: TaskApi) -> None:
    await centre.post("/register", {"id": "w1", "url": "http://127.0.0.1:9", "services": ["sum"]})
    await centre.post("/heartbeat", {"url": "http://127.0.0.1:9", "load": 5})
    await centre.post("/register", {"id": "w1", "url": "http://127.0.0.1:9", "services": ["route"]})
    assert await centre.get("/list", service="sum") == []
    assert [one["load"] for one in await centre.get("/list", service="route")] == [0]


@pytest.mark.anyio
async def test_a_heartbeat_of_an_unknown_worker_is_404(centre: TaskApi) -> None:
    assert await centre.ask("POST", "/heartbeat", {"id": "w9"}) == (404, {"error": "not found"})
    assert (await centre.ask("POST", "/heartbeat", {"load": 1}))[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "w1"},
        {"id": "w1", "url": "http://127.0.0.1:9"},
        {"id": "w1", "url": "http://127.0.0.1:9", "services": []},
        {"id": "w1", "url": "http://127.0.0.1:9", "services": "sum"},
        {"id": "w1", "url": "ftp://127.0.0.1:9", "services": ["sum"]},
        {"id": "w1", "url": "nowhere", "services": ["sum"]},
    ],
)
@pytest.mark.anyio
async def test_a_worker_that_cannot_be_called_is_not_registered(
    centre: TaskApi, body: dict[str, Any]
) -> None:
    assert (await centre.ask("POST", "/register", body))[0] == 400
    assert await centre.get("/list") == []
