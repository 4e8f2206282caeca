"""The official conformance suite against an ordinary server, and SDK clients of the older era."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mcp.suite import ROOT, NoRegistry, node, older_sdk, suite

FOLDER = Path(__file__).parent
EXPECTED = FOLDER / "expected-failures.yaml"
FAILURES_MAX = 8
TASKS = (
    "tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal",
    "tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-status-notifications",
    "tasks-required-task-error", "tasks-mrtr-composition",
)  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.mcp.fixtures", "--port", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def checked(url: str, *words: str) -> None:
    try:
        command = [str(node()), str(suite()), "server", "--url", url, *words]
    except NoRegistry as error:
        pytest.skip(f"no registry to fetch the conformance suite from: {error}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    summary = done.stdout[done.stdout.find("=== SUMMARY") :] if "=== SUMMARY" in done.stdout else done.stdout
    assert done.returncode == 0, summary[-6000:] + done.stderr[-2000:]


@pytest.mark.long  # the suite has time limits of its own, down to half a second
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_the_server_conforms_to_the_revision(url: str, revision: str) -> None:
    checked(url, "--requirements", revision, "--expected-failures", str(EXPECTED))


@pytest.mark.parametrize("scenario", TASKS)
def test_the_server_conforms_to_the_tasks_extension(url: str, scenario: str) -> None:
    checked(url, "--scenario", scenario)


def test_few_failures_are_expected_and_each_has_its_reason() -> None:
    lines = [line for line in EXPECTED.read_text().splitlines() if line.strip().startswith("- ")]
    assert 0 < len(lines) <= FAILURES_MAX
    assert all("#" in line for line in lines)


def test_a_client_of_the_older_sdk_runs_the_same_script_over_http_and_stdio(url: str, tmp_path: Path) -> None:
    try:
        older = older_sdk()
    except NoRegistry as error:
        pytest.skip(f"no registry to fetch the older SDK from: {error}")
    (tmp_path / "holdfast.toml").write_text("[mcp]\nwait_secs = 60\n")
    holdfast = Path(sys.executable).with_name("holdfast")
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            str(FOLDER / "older_client.py"),
            str(older),
            url,
            str(holdfast),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["http", "ok", "stdio", "ok"]
