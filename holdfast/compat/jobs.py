"""A workflow that is to be started, as a record over the engine in your own process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from holdfast.embed import Holdfast, RunHandle, Spec
from holdfast.values import WorkflowStatus


class WorkflowJob(msgspec.Struct, frozen=True):
    """A workflow that is to be started."""

    spec: Spec
    status: WorkflowStatus

    @classmethod
    def pending(cls, spec: Spec) -> Self:
        return cls(spec, WorkflowStatus.PENDING)

    async def start(
        self, hf: Holdfast, inputs: Mapping[str, Any] | None = None, *, parent_job_id: str | None = None
    ) -> RunHandle:
        """Start a run of it; when this returns, the run is durable."""
        return await hf.start(self.spec, inputs, parent_job_id=parent_job_id)
