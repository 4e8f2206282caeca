"""The notations as JSON Schemas, for interfaces that show them to people and agents who write workflows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.spec import schema as _schema
from holdfast.spec.schedule import file_schema

SCHEMAS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "steps": _schema.schema,
    "graph": _schema.flow_schema,
}
# Those of workflows, and of schedule files.
EVERY_SCHEMA: Final = {**SCHEMAS, "schedules": file_schema}
