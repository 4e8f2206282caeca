"""A limit that an operator sets is the one in force: in an engine, at a server, and in each of its lists."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast import Holdfast, RunFailed, tool
from holdfast.config import Settings
from holdfast.errors import HoldfastError
from holdfast.http.serve import ROUTES, Serving, serving
from holdfast.http.table import Route
from tests.small_limits import defaults_before_and_after

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _defaults_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with defaults_before_and_after(monkeypatch):
        yield


def echo(value: Any, step: str = "s") -> dict[str, Any]:
    return {"id": step, "tool": "echo", "args": {"value": value}}


def flow(*steps: dict[str, Any], name: str = "n") -> dict[str, Any]:
    return {"name": name, "steps": list(steps)}


# ------------------------------------------------------------------------------------------------- in an engine

PENDING = flow(echo({"pending": True, "task_id": "T"}))
WAITS = flow({"id": "w", "kind": "wait_event", "signal_key": "go"})
LOOP = flow({"id": "l", "kind": "foreach", "items": "$.inputs.n", "steps": [echo("{{item}}")]})
KEPT = flow(echo("x" * 900, "a"), echo("x" * 900, "b"), echo(["{{a}}", "{{b}}"]))
BIG = flow(echo("x" * 2_000, "a"), echo("{{a}}", "b"), {"id": "f", "tool": "fail"})
FILES = flow(echo({"file_refs": [{"inline_b64": "AA=="}] * 2}))
LARGE_FILE = flow(echo({"file_refs": [{"inline_b64": "AAAA" * 400}]}))
VARS = {
    "name": "g",
    "start": "a",
    "nodes": {"a": {"kind": "local", "service": "echo", "params": {"value": "x" * 2_000}, "post": {"output_key": "v"}}},
    "edges": [],
}  # fmt: skip


async def nested(hf: Holdfast) -> None:
    await hf.publish(flow(echo(1), name="inner"))
    await hf.publish(flow({"id": "w", "workflow": "inner"}, name="middle"))
    await hf.start(flow({"id": "w", "workflow": "middle"}))


async def early_callbacks(hf: Holdfast) -> None:
    for task_id in ("A", "B"):
        await hf.resume(task_id, {"result": 1})


async def signals_of_one_key(hf: Holdfast) -> None:
    run = await hf.start(WAITS)
    for _ in range(2):
        await hf.signal(run.id, "other", 1)


async def many_paths(hf: Holdfast) -> None:
    run = await hf.start(LOOP, {"n": [1, 2]})
    await run.result(10)
    await hf.rerun(run.id, paths=["l[0]", "l[1]"])


async def large_rerun(hf: Holdfast) -> None:
    run = await hf.start(BIG)
    with pytest.raises(RunFailed):
        await run.result(10)
    await hf.rerun(run.id, from_step="f")


def ends(spec: dict[str, Any]) -> Any:
    async def end(hf: Holdfast) -> None:
        await (await hf.start(spec)).result(10)

    return end


IN_AN_ENGINE = {
    "nesting_max": (1, nested),
    "parked_callbacks_max": (1, early_callbacks),
    "signals_of_key_max": (1, signals_of_one_key),
    "rerun_paths_max": (1, many_paths),
    "rerun_bytes_max": (1_024, large_rerun),
    "kept_bytes_max": (1_024, ends(KEPT)),
    "vars_bytes_max": (1_024, ends(VARS)),
    "file_refs_max": (1, ends(FILES)),
    "artefact_bytes_max": (1_024, ends(LARGE_FILE)),
}


@pytest.mark.parametrize("name", IN_AN_ENGINE)
async def test_an_engine_has_the_limit_that_is_set(tmp_path: Path, name: str) -> None:
    most, meet = IN_AN_ENGINE[name]
    async with Holdfast(str(tmp_path / "h.db")) as hf:
        await meet(hf)
    async with Holdfast(str(tmp_path / "h.db"), limits={name: most}) as hf:
        with pytest.raises(HoldfastError, match=rf"setting limits\.{name}\)"):
            await meet(hf)


@pytest.mark.parametrize("setting", ["attempts_max", "threads"])
async def test_no_more_calls_are_in_progress_than_are_set(tmp_path: Path, setting: str) -> None:
    began, most, now, lock = threading.Event(), 0, 0, threading.Lock()

    @tool
    def count() -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        began.wait(0.01)
        with lock:
            now -= 1

    given: dict[str, Any] = {setting: 1}
    spec = flow({"id": "l", "kind": "foreach", "items": "$.inputs.n", "concurrency": 10, "steps": [{"id": "c", "tool": "count"}]})  # fmt: skip
    async with Holdfast(str(tmp_path / "h.db"), tools=[count], **given) as hf:
        await (await hf.start(spec, {"n": [1, 2, 3]})).result(60)
    assert most == 1


# ------------------------------------------------------------------------------------------------- at a server


@asynccontextmanager
async def server(tmp_path: Path, **limits: int) -> AsyncIterator[tuple[Serving, aiohttp.ClientSession]]:
    settings = Settings(db=f"sqlite:///{tmp_path / 'h.db'}", port=0, key="k" * 32, limits=limits)
    headers = {"Authorization": f"Bearer {'k' * 32}"}
    async with serving(settings) as made, aiohttp.ClientSession(made.address, headers=headers) as session:
        yield made, session


def is_list(route: Route) -> bool:
    query = getattr(route.query, "__struct_fields__", ())
    is_plain = "{" not in route.path and "task_id" not in query
    return route.method == "GET" and is_plain and bool({"limit", "page_size"} & set(query))


@pytest.mark.parametrize("route", [route.path for route in ROUTES if is_list(route)])
async def test_no_page_of_a_list_has_more_items_than_are_set(tmp_path: Path, route: str) -> None:
    """Nor is a caller refused that does not know of the lower limit."""
    async with server(tmp_path, page_max=2) as (_, session):
        for number in range(3):
            for path, body in (
                ("/api/v1/runs", {"spec": flow(echo(1))}),
                ("/api/v1/workflows", flow(echo(1), name=f"n{number}")),
                ("/api/v1/workers", {"id": f"w{number}", "kind": "pull", "services": ["s"]}),
                ("/api/v1/keys", {"name": f"k{number}", "scopes": ["read"]}),
            ):
                async with session.post(path, json=body) as answer:
                    assert answer.status < 300, await answer.text()
        for query in ("", "?limit=500", "?page_size=500"):
            async with session.get(route + query) as answer:
                found = await answer.json()
                if answer.status == 400 and query:
                    continue  # it does not know this name
                assert answer.status == 200, found
                listed = (
                    [found]
                    if isinstance(found, list)
                    else [one for one in found.values() if isinstance(one, list)]
                )
                assert max(map(len, listed)) <= 2


AT_A_SERVER: dict[str, tuple[int, list[tuple[str, str, Any]]]] = {
    "worker_services_max": (1, [("POST", "/api/v1/workers", {"id": "w", "kind": "pull", "services": ["a", "b"]})]),
    "workers_max": (1, [("POST", "/api/v1/workers", {"id": f"w{n}", "kind": "pull", "services": ["a"]}) for n in range(2)]),
    "keys_max": (1, [("POST", "/api/v1/keys", {"name": "k", "scopes": ["read"]})] * 2),
    "schedules_max": (1, [
        ("PUT", f"/api/v1/schedules/s{n}", {"workflow": "w", "trigger": {"kind": "interval", "every": "366d"}}) for n in range(2)]),
    "offset_max": (1, [("GET", "/api/tasks?page=3&page_size=1", None)]),
    "diff_lines_max": (1, [
        ("POST", "/api/v1/workflows", flow(echo(1))), ("POST", "/api/v1/workflows", flow(echo([1, 2, 3]))),
        ("GET", "/api/v1/workflows/n/diff?from=1&to=2", None)]),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_A_SERVER)
async def test_a_server_has_the_limit_that_is_set(tmp_path: Path, name: str) -> None:
    most, asked = AT_A_SERVER[name]
    async with server(tmp_path, **{name: most}) as (_, session):
        for method, path, body in asked:
            async with session.request(method, path, json=body) as answer:
                said = await answer.text()
    assert answer.status >= 400 and f"setting limits.{name})" in said, said
