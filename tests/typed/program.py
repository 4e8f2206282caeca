"""A program of a user, as type checkers see it: it is checked and never run."""

from __future__ import annotations

from typing import assert_type

from holdfast import (
    Cancellation,
    Client,
    Context,
    Holdfast,
    RunFailed,
    RunHandle,
    RunInfo,
    SyncClient,
    WorkflowSpec,
    run_sync,
    tool,
)


@tool
async def add(a: int, b: int = 2) -> int:
    return a + b


@tool(name="greeting", read_only=True)
def greet(name: str, context: Context) -> str:
    context.log("greeting", name=name)
    return f"hello {name}"


@tool(isolate="process")
def crunch(numbers: list[float]) -> float:
    return sum(numbers)


class Service:
    @tool
    async def look_up(self, key: str) -> dict[str, int]:
        return {key: 1}


async def main() -> None:
    assert_type(await add(1), int)
    assert_type(crunch([1.0]), float)
    assert_type(await Service().look_up("a"), dict[str, int])
    spec = WorkflowSpec.from_yaml_str("name: sum\nsteps: [{id: s, tool: add, args: {a: 1}}]")
    async with Holdfast("sqlite:///holdfast.db", tools=[add, greet, Service().look_up]) as hf:
        run = await hf.start(spec, {"a": 1}, request_id="order-7", labels={"team": "x"})
        assert_type(run, RunHandle)
        assert_type(await run.status(), str)
        assert_type(await hf.runs(label="team=x"), list[RunInfo])
        assert_type(await hf.cancel(run.id), Cancellation)
        try:
            await run.result(timeout=30)
        except RunFailed as failed:
            assert_type(failed.error.message, str)
    async with Client("unix:holdfast.db.sock") as client:
        print((await client.runs()).items[0].status)


with SyncClient() as synchronous:
    print(synchronous.runs().items)
run_sync("hello.yaml", {"a": 1}, tools=[add])
