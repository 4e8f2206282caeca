"""A script as a user writes it against the public names. It is never run: `make test` checks it with mypy --strict."""

import asyncio
from collections.abc import AsyncIterator

import holdfast
from holdfast import Context, Holdfast, RunFailed, RunHandle, WorkflowSpec, WorkflowStatus, run_sync, tool


@tool
async def add(a: int, b: int, context: Context) -> int:
    return a + b


async def follow(run: RunHandle) -> AsyncIterator[str]:
    async for event in run.events():
        step: str | None = event["current_step_id"]
        yield f"{event['detail']['kind']} {step} {event['progress']['completed_steps']}"


async def main() -> None:
    spec = WorkflowSpec.from_yaml_str("name: n")
    async with Holdfast("sqlite:///h.db", tools=[add]) as hf:
        version: str = await hf.publish(spec)
        run = await hf.start("n", {"a": 1}, request_id="r", labels={"team": version}, parent_job_id="p")
        try:
            print(await run.result(timeout=3))
        except RunFailed as failed:
            print(failed.error.kind, failed.error.path, failed.error.attempt, failed.error.cause)
        for step in (await run.steps(every=True)).values():
            print(step.status, step.finished_at, step.output)
        print(
            (await hf.cancel(run.id))["status"], [one.id for one in await hf.runs(status="failed", limit=5)]
        )
        print(WorkflowStatus(await run.status()).is_terminal, holdfast.__version__)


asyncio.run(main())
print(run_sync("n", tools=[add], timeout=1.5))
