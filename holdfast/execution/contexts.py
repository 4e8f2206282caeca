"""The Context of an attempt, and the way on which a tool reports logs and progress with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.engine.events import TriggeredBy
from holdfast.engine.state import Run
from holdfast.execution.attempt import Attempt
from holdfast.execution.logs import Logs
from holdfast.store.artefacts import Artefacts
from holdfast.tools.context import Context, Emit, RunTrigger, line_of
from holdfast.tools.secrets import Secrets
from holdfast.values import RunNo, idempotency_key

AttemptListener = Callable[[RunNo, str, int, str, dict[str, Any]], None]


class Contexts:
    def __init__(
        self, logs: Logs, secrets: Secrets, artefacts: Artefacts | None, workdirs: Path | None
    ) -> None:
        self._logs, self._secrets, self._artefacts, self._workdirs = logs, secrets, artefacts, workdirs
        # Called on the event loop with what tools say of their attempts: run, path, attempt, `log` or `progress`, data.
        self.hearers: list[AttemptListener] = []

    def of(self, run: Run, attempt: Attempt) -> Context:
        stable = idempotency_key(run.tenant, run.id, attempt.path)
        return Context(
            run.id,
            attempt.path,
            attempt.number,
            stable,
            emit=self.listener(attempt),
            workdirs=self._workdirs,
            secrets=self._secrets,
            artefacts=None if self._artefacts is None else self._artefacts.of(run.tenant),
            trigger=None if run.trigger is None else _trigger(run.trigger),
        )

    def listener(self, attempt: Attempt) -> Emit:
        """How a tool, in any thread, reports logs and progress of its attempt. Without readers it costs nothing."""
        loop = asyncio.get_running_loop()

        def emit(kind: str, data: dict[str, Any]) -> None:
            if kind == "log":
                self._logs.say(attempt, data.get("stream", "info"), line_of(data))
            if self.hearers:
                with contextlib.suppress(RuntimeError):  # it reported after the engine had closed
                    loop.call_soon_threadsafe(self._publish, attempt, kind, data)

        return emit

    def _publish(self, attempt: Attempt, kind: str, data: dict[str, Any]) -> None:
        for hearer in list(self.hearers):
            hearer(*attempt.key, attempt.number, kind, data)


def _trigger(by: TriggeredBy) -> RunTrigger:
    at = datetime.fromtimestamp(by.scheduled_at / 1_000, UTC)
    return RunTrigger(by.schedule_id, by.kind, by.occurrence, at, by.is_catchup, by.shifted_from)
