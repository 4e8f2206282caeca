"""Programs that users have already, with only the name of the import changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spec.schedule_files import NIGHTLY_AND_UPLOAD

CONFIG = """
from holdfast import McpHttpConfig

cfg = McpHttpConfig(port=8765)
cfg.enable_scheduler = True
cfg.schedules_dir = "/opt/dcc-mcp/schedules"
"""

WORKFLOWS = """
from holdfast import McpHttpConfig
cfg = McpHttpConfig(port=8765)
cfg.enable_workflows = True
"""

DECLARED = """
from holdfast import (
    ScheduleSpec, TriggerSpec,
    parse_schedules_yaml,
    hmac_sha256_hex, verify_hub_signature_256,
)

spec = ScheduleSpec(
    id="nightly_cleanup",
    workflow="scene_cleanup",
    trigger=TriggerSpec.cron("0 0 3 * * *", timezone="UTC", jitter_secs=120),
    inputs='{"scope": "all-scenes"}',
    max_concurrent=1,
)
spec.validate()

specs = parse_schedules_yaml(open("./schedules.yaml").read())

sig = hmac_sha256_hex(b"shared-secret", request_body)
assert verify_hub_signature_256(b"shared-secret", request_body, sig)
"""


def run(program: str, **names: Any) -> dict[str, Any]:
    exec(program, names)
    return names


def test_the_configuration_of_a_server_runs_as_it_is() -> None:
    cfg = run(CONFIG)["cfg"]
    assert (cfg.port, cfg.enable_scheduler, cfg.schedules_dir) == (8765, True, "/opt/dcc-mcp/schedules")


def test_workflows_can_be_enabled_as_it_is() -> None:
    assert run(WORKFLOWS)["cfg"].enable_workflows is True


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_program_that_declares_schedules_runs_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "schedules.yaml").write_text(NIGHTLY_AND_UPLOAD)
    monkeypatch.chdir(tmp_path)
    names = run(DECLARED, request_body=b'{"file_path": "/a"}')
    assert names["specs"][0] == names["spec"]
