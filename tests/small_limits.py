"""Limits of the process made small for one test."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import limits


def with_limits(monkeypatch: pytest.MonkeyPatch, **small: Any) -> None:
    """Put smaller limits in force, below what a setting may be if need be."""
    monkeypatch.setattr(limits, "now", msgspec.structs.replace(limits.now, **small))
