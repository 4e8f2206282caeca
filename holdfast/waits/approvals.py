"""Answers to approvals: which approval is meant, who may answer it, and whether the form is valid.

Knows no links and no HTTP. The engine decides what an answer means for the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.engine.events import ApprovalAnswered
from holdfast.engine.state import timer_key
from holdfast.errors import Forbidden, InvalidInputs, NotWaiting
from holdfast.execution.outputs import Outputs
from holdfast.runtime.door import Door
from holdfast.runtime.idempotency import Kept
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.runs import Runs
from holdfast.spec.jsonschema import Judge, count_rules
from holdfast.store.base import Store
from holdfast.store.records import RunRow, WaitRow
from holdfast.values import RunId, decode, is_text, split
from holdfast.waits.checks import all_durable, answer_text

WAITS_SHOWN_MAX: Final = 1_000


class Approvals:
    def __init__(self, store: Store, door: Door, runs: Runs, outputs: Outputs) -> None:
        self._store, self._door, self._runs, self._outputs = store, door, runs, outputs

    async def approve(
        self,
        tenant: str,
        run_id: str,
        path: str,
        *,
        approved: bool,
        reason: str = "",
        by: str = "",
        form: Any = None,
        keep: Callable[[bool], Kept] | None = None,
    ) -> bool:
        """Answer an approval; returns whether this decided it. A later answer gets the final decision."""
        filled_in = msgspec.Raw(await self._outputs.redacted(answer_text(form)))
        row = await self._runs.row_of(RunId(run_id), tenant)
        found = await self.gate(row, path)
        resident = await self._runs.hold(row)
        step = resident.run.steps.get(found.path)
        if step is None or step.wait is None:
            await all_durable(self._door)
            raise await self._was_answered(row, found.path)
        is_escalated = timer_key("escalate", found.path) not in resident.run.timers
        detail = decode(step.wait.detail)
        _check_allowed(detail, by, is_escalated=is_escalated)
        if by and by in step.wait.got:
            await all_durable(self._door)  # the earlier answer may be about to become durable
            raise NotWaiting(by, "has answered already")
        if approved:  # a rejection needs no form
            _check_form(detail, form)
        reason = self._outputs.secrets.redact(reason)
        event = ApprovalAnswered(found.path, approved, reason, by, filled_in)
        durable = self._runs.offer(
            resident, event, None if keep is None else lambda: keep(_is_decided(resident, found.path))
        )
        decides = _is_decided(resident, found.path)  # now: until it is durable another answer may decide
        await durable
        return decides

    async def open_gate(self, tenant: str, run_id: str, path: str) -> WaitRow:
        return await self.gate(await self._runs.row_of(RunId(run_id), tenant), path)

    async def gate(self, row: RunRow, path: str) -> WaitRow:
        """The open approval at a path. The id of its step is enough if only one approval of that step is open and
        none was ever at exactly that path: a late answer must not be taken for an answer to another approval."""
        meant = await self._meant(row, path)
        if not meant:  # the approval that a run shows may be about to become durable
            await all_durable(self._door)
            meant = await self._meant(row, path)
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise InvalidInputs(
                f"{len(meant)} approvals of run {row.id} are named {path!r}; give the path of one"
            )
        raise await self._was_answered(row, path)

    async def _meant(self, row: RunRow, path: str) -> list[WaitRow]:
        if not is_text(path):
            return []
        gate = await self._store.wait_at(row.no, path, "approval")
        if gate is not None:
            return [gate] if gate.resolved_at is None else []
        gates = await self._store.gates_named(row.no, path, WAITS_SHOWN_MAX)
        return [gate for gate in gates if split(gate.path)[1] == path]

    async def _was_answered(self, row: RunRow, path: str) -> NotWaiting:
        over = await self._store.gate_decided(row.no, path) if is_text(path) else None
        if over is None:
            return NotWaiting(path, "has no open approval")
        return NotWaiting(over.path, f"has already {_decided(over)}")

    async def of_run(self, tenant: str, run_id: str) -> list[WaitRow]:
        row = await self._runs.row_of(RunId(run_id), tenant)
        return await self._store.waits_of_run(row.no, WAITS_SHOWN_MAX)


def _decided(gate: WaitRow) -> str:
    """The outcome of an approval. An approval in a graph is decided by a value, which need not be yes or no."""
    is_condition = "answers_to" in (decode(gate.detail) or {})
    words = {
        "answered": "been answered" if is_condition else "been approved",
        "expired": "expired without an answer",
    }
    return words.get(gate.outcome or "", f"been {gate.outcome}")


def answerers(detail: dict[str, Any]) -> list[str]:
    """Who may answer, including approvers after escalation; empty if any approver may."""
    allowed = list(detail.get("of", ()))
    return list(dict.fromkeys([*allowed, *escalated_to(detail)])) if allowed else allowed


def escalated_to(detail: dict[str, Any]) -> list[str]:
    """Who may answer after escalation. Up to release 0.3 this was one name."""
    named = detail.get("escalate_to", [])
    return [named] if isinstance(named, str) else list(named)


def _check_allowed(detail: Any, by: str, *, is_escalated: bool) -> None:
    allowed = detail.get("of") if isinstance(detail, dict) else None
    if allowed and is_escalated:
        allowed = answerers(detail)
    if allowed and by not in allowed:
        raise Forbidden(
            f"{by or 'an anonymous caller'} may not answer this approval; only {', '.join(allowed)} may"
        )
    if not by and isinstance(detail, dict) and detail.get("need", 1) > 1:
        raise InvalidInputs(
            f"{detail['need']} approvals are needed: say who answers, so that each person counts once"
        )


def _check_form(detail: Any, form: Any) -> None:
    schema = detail.get("form") if isinstance(detail, dict) else None
    if schema is not None and (mismatches := Judge(schema, count_rules(schema)).mismatches(form)):
        problems = [
            ": ".join(filter(None, (".".join(map(str, one.path)), one.message))) for one in mismatches
        ]
        raise InvalidInputs(f"the form: {'; '.join(problems)}")


def _is_decided(resident: ResidentRun, path: str) -> bool:
    step = resident.run.steps.get(path)
    return step is None or step.wait is None
