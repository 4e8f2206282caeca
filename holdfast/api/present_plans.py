"""Presents validations and plans: turns what commands return into the records of types/plans.py."""

from __future__ import annotations

import msgspec

from holdfast.api import types
from holdfast.runtime.planning import Validation
from holdfast.views.outline import Outline


def plan(outline: Outline) -> types.Plan:
    """The same records under the names that clients see."""
    return msgspec.convert(msgspec.to_builtins(outline), types.Plan)


def validation(found: Validation) -> types.Validation:
    return types.Validation(
        valid=not found.problems,
        problems=list(found.problems),
        notes=list(found.notes),
        patch=list(found.patch),
        left=list(found.left),
        repaired=found.repaired if found.patch else None,
        plan=None if found.outline is None else plan(found.outline),
        inputs=found.inputs,
    )
