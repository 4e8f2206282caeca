"""The synchronous client for scripts and notebooks: the methods of `Client`, each of which blocks.

with SyncClient() as client:
    run = client.start("hello", {"name": "Ada"})
    print(client.wait(run.run_id, timeout=30).output)
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.api.types import (
    Approval,
    ApprovalLink,
    BulkPage,
    Explanation,
    JournalPage,
    LogPage,
    RerunPreview,
    Resumed,
    Run,
    RunPage,
    Started,
    StepPage,
)
from holdfast.sdk.calls import Spec
from holdfast.sdk.client import Client, LiveEvent
from holdfast.sdk.connection import PATIENCE_SECS, TIMEOUT_SECS
from holdfast.sdk.operations import SyncOperationCalls
from holdfast.sdk.reads import SyncReads
from holdfast.sdk.schedules import SyncScheduleCalls
from holdfast.sdk.workflows import SyncWorkflowCalls

T = TypeVar("T")


class SyncClient(SyncScheduleCalls, SyncWorkflowCalls, SyncOperationCalls, SyncReads):
    """`Client` without an event loop of your own. Inside a running loop, use `Client`."""

    _client: Client

    def __init__(
        self,
        server: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECS,
        patience: float = PATIENCE_SECS,
    ) -> None:
        self._client = Client(server, key, timeout=timeout, patience=patience)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._do(self._client.close())
        self._runner.close()

    @property
    def server(self) -> str:
        return self._client.server

    def _do(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(call)
        except RuntimeError:
            call.close()
            raise

    # ---------------------------------------------------------------------------------------------------- runs

    def start(
        self,
        workflow: Spec,
        inputs: Mapping[str, Any] | None = None,
        *,
        number: int | None = None,
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent_job_id: str | None = None,
        final_callback: str | Mapping[str, str] | None = None,
        plan_hash: str | None = None,
    ) -> Started:
        return self._do(
            self._client.start(
                workflow,
                inputs,
                number=number,
                request_id=request_id,
                labels=labels,
                parent_job_id=parent_job_id,
                final_callback=final_callback,
                plan_hash=plan_hash,
            )
        )

    def run(self, run_id: str, *, values: str = "all") -> Run:
        return self._do(self._client.run(run_id, values=values))

    def wait(self, run_id: str, timeout: float | None = None) -> Run:
        return self._do(self._client.wait(run_id, timeout))

    def runs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow: str | None = None,
        number: int | None = None,
        label: str | Sequence[str] | None = None,
        created_from: datetime | str | None = None,
        created_to: datetime | str | None = None,
        id_part: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> RunPage:
        return self._do(
            self._client.runs(
                status=status,
                workflow=workflow,
                number=number,
                label=label,
                created_from=created_from,
                created_to=created_to,
                id_part=id_part,
                cursor=cursor,
                limit=limit,
            )
        )

    def steps(
        self,
        run_id: str,
        *,
        every: bool = False,
        under: str | None = None,
        status: Sequence[str] = (),
        kind: Sequence[str] = (),
        values: str = "all",
        cursor: str | None = None,
        limit: int = 100,
    ) -> StepPage:
        return self._do(
            self._client.steps(
                run_id,
                every=every,
                under=under,
                status=status,
                kind=kind,
                values=values,
                cursor=cursor,
                limit=limit,
            )
        )

    def journal(self, run_id: str, *, after: int = 0, limit: int = 100) -> JournalPage:
        return self._do(self._client.journal(run_id, after=after, limit=limit))

    def logs(
        self,
        run_id: str,
        *,
        step: str | None = None,
        level: str | None = None,
        cursor: int | None = None,
        limit: int = 100,
    ) -> LogPage:
        return self._do(self._client.logs(run_id, step=step, level=level, cursor=cursor, limit=limit))

    def explain(self, run_id: str) -> Explanation:
        return self._do(self._client.explain(run_id))

    def cancel(self, run_id: str, reason: str = "") -> Started:
        return self._do(self._client.cancel(run_id, reason))

    def retry(self, run_id: str) -> Started:
        return self._do(self._client.retry(run_id))

    def rerun(
        self,
        run_id: str,
        *,
        from_step: str | None = None,
        failed: bool = False,
        paths: Sequence[str] = (),
        inputs: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> Started:
        work = self._client.rerun(
            run_id, from_step=from_step, failed=failed, paths=paths, inputs=inputs, request_id=request_id
        )
        return self._do(work)

    def bulk(
        self,
        action: str,
        *,
        ids: Sequence[str] = (),
        status: str | Sequence[str] | None = None,
        workflow: str | None = None,
        number: int | None = None,
        label: str | Sequence[str] | None = None,
        created_from: datetime | str | None = None,
        created_to: datetime | str | None = None,
        failed: bool = False,
        reason: str = "",
        preview: bool = False,
        cursor: str | None = None,
        limit: int = 100,
        request_id: str | None = None,
    ) -> BulkPage:
        work = self._client.bulk(
            action,
            ids=ids,
            status=status,
            workflow=workflow,
            number=number,
            label=label,
            created_from=created_from,
            created_to=created_to,
            failed=failed,
            reason=reason,
            preview=preview,
            cursor=cursor,
            limit=limit,
            request_id=request_id,
        )
        return self._do(work)

    def preview(
        self, run_id: str, *, from_step: str | None = None, failed: bool = False, paths: Sequence[str] = ()
    ) -> RerunPreview:
        return self._do(self._client.preview(run_id, from_step=from_step, failed=failed, paths=paths))

    def events(self, run_id: str | None = None, *, after: str | None = None) -> Iterator[LiveEvent]:
        events = self._client.events(run_id, after=after)

        async def following() -> LiveEvent | None:
            return await anext(events, None)

        try:
            while (event := self._do(following())) is not None:
                yield event
        finally:
            self._do(events.aclose())

    # ------------------------------------------------------------------------------------- what runs wait for

    def signal(self, run_id: str, key: str, value: Any = None, *, correlation: str | None = None) -> Started:
        return self._do(self._client.signal(run_id, key, value, correlation=correlation))

    def approve(
        self,
        run_id: str,
        path: str,
        *,
        approved: bool = True,
        reason: str = "",
        by: str = "",
        form: Any = None,
    ) -> Approval:
        return self._do(
            self._client.approve(run_id, path, approved=approved, reason=reason, by=by, form=form)
        )

    def approval_link(self, run_id: str, path: str, *, by: str = "") -> ApprovalLink:
        return self._do(self._client.approval_link(run_id, path, by=by))

    def resume(self, task_id: str, answer: Any, *, run_id: str | None = None) -> Resumed:
        return self._do(self._client.resume(task_id, answer, run_id=run_id))
