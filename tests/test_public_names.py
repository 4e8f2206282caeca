"""The promise to users: the names of the package, and what it costs to import it."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import holdfast
from holdfast import errors

PROMISED = {
    "BackoffKind", "Cancellation", "Client", "Context", "DatabaseInUse", "DatabaseMoved", "EngineClosed", "FlowSpec", "Holdfast", "HoldfastError", "InvalidInputs",
    "InvalidSpec", "JobSink", "LimitExceeded", "LockingHint", "McpHttpConfig", "MissedRunPolicy", "NodeIsOver", "NotFound", "Problem", "Refused", "RemoteCaller", "RequestConflict",
    "RetryPolicy", "RunCancelled", "RunEnded", "RunEvent", "RunFailed", "RunHandle", "RunInfo", "RunInterrupted", "RunIsOpen", "RunIsOver",
    "Schedule", "ScheduleSpec", "ScheduledPlugin", "ScheduledRunCtx", "SchedulerConfig", "SchemaTooNew", "SchemaTooOld", "StepInfo", "StepPolicy", "StoreUnavailable", "SyncClient", "ToolError", "TriggerFire", "TriggerSpec", "Unavailable", "WorkflowJob",
    "WorkflowSpec", "WorkflowStatus", "WorkflowStep", "hmac_sha256_hex", "parse_schedules_yaml", "run_sync",
    "tool", "verify_hub_signature_256",
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
    assert holdfast.__version__ == version("holdfast-engine")


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
