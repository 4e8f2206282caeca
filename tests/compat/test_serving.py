"""The configuration of a server as one object."""

from __future__ import annotations

import pytest

from holdfast import McpHttpConfig


def test_nothing_is_enabled_unless_it_is_asked_for() -> None:
    config = McpHttpConfig(port=8765)
    assert (config.port, config.enable_scheduler, config.schedules_dir, config.enable_workflows) == (
        8765, False, None, False,
    )  # fmt: skip


def test_with_scheduler_enables_it_for_a_folder() -> None:
    config = McpHttpConfig(port=8765)
    assert config.with_scheduler("/opt/schedules") is config
    assert (config.enable_scheduler, config.schedules_dir) == (True, "/opt/schedules")


def test_a_misspelt_option_is_an_error() -> None:
    with pytest.raises(AttributeError):
        McpHttpConfig(port=8765).enable_schedular = True  # type: ignore[attr-defined]
