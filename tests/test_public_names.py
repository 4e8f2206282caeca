"""The promise to users: the names of the package, and what it costs to import it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import holdfast
from holdfast import errors

PROMISED = {
    "BackoffKind", "Cancellation", "Client", "Context", "DatabaseInUse", "EngineClosed", "FlowSpec", "Holdfast", "HoldfastError", "InvalidInputs",
    "InvalidSpec", "LimitExceeded", "NodeIsOver", "NotFound", "Problem", "Refused", "RemoteCaller", "RequestConflict",
    "RetryPolicy", "RunCancelled", "RunEnded", "RunEvent", "RunFailed", "RunHandle", "RunInfo", "RunInterrupted", "RunIsOpen", "RunIsOver",
    "SchemaTooNew", "SchemaTooOld", "StepInfo", "StepPolicy", "StoreUnavailable", "SyncClient", "ToolError", "Unavailable", "WorkflowJob",
    "WorkflowSpec", "WorkflowStatus", "WorkflowStep", "run_sync", "tool",
}  # fmt: skip


def test_no_promised_name_is_missing() -> None:
    assert set(holdfast.__all__) >= PROMISED


@pytest.mark.parametrize("name", holdfast.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(holdfast, name) is not None


def test_the_names_that_are_public_can_be_listed() -> None:
    assert set(dir(holdfast)) >= set(holdfast.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = holdfast.no_such_name


def test_the_version_is_that_of_the_distribution() -> None:
    assert holdfast.__version__ == version("holdfast")


def test_the_package_says_that_it_is_typed() -> None:
    from importlib.resources import files

    assert (files("holdfast") / "py.typed").is_file()


def test_importing_the_package_imports_no_driver_and_no_loop() -> None:
    program = "import sys, holdfast; print(sorted({'apsw', 'asyncio', 'yaml', 'msgspec', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)
]


def test_every_error_has_a_stable_code_of_its_own() -> None:
    codes = [kind.code for kind in KINDS]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_public_and_says_what_it_means(kind: type[Exception]) -> None:
    assert getattr(holdfast, kind.__name__) is kind
    assert kind.__doc__


SCRIPT = """
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
        print((await hf.cancel(run.id))["status"], [one.id for one in await hf.runs(status="failed", limit=5)])
        print(WorkflowStatus(await run.status()).is_terminal, holdfast.__version__)


asyncio.run(main())
print(run_sync("n", tools=[add], timeout=1.5))
"""


def test_a_script_that_uses_the_package_is_clean_under_strict_checking(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, "utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        f"--cache-dir={tmp_path}",
        "script.py",
    ]
    environment = {**os.environ, "MYPYPATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "Success: no issues found in 1 source file", done.stdout
