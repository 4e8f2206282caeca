"""Limits of the process made small for one test."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.plan import composed


def with_limits(monkeypatch: pytest.MonkeyPatch, **small: Any) -> None:
    """Put smaller limits in force, below what a setting may be if need be."""
    monkeypatch.setattr(limits, "now", msgspec.structs.replace(limits.now, **small))


@contextmanager
def defaults_before_and_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No engine of an earlier test holds limits, and this one leaves none in force.

    Crash tests leave engines that were never closed, as a killed process does; no other process shares their limits.
    """
    monkeypatch.setattr(limits, "holders", weakref.WeakSet())
    yield
    assert limits.now is limits.DEFAULTS, "a test left limits in force"
    assert limits.DEFAULTS.value_bytes_max == composed.LIMIT
