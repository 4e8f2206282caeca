"""Links that let their holder answer an approval: their contents, for whom they may be made, what they ask.

A link proves that we made it, and says in whose name it answers. Looking at it decides nothing. Does not know
how it is sent, shown or answered; an answer by a link is one as any other, and counts once.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.errors import InvalidInputs, NotFound
from holdfast.signing import Capability, opened, sealed
from holdfast.store.base import Store
from holdfast.store.records import RunRow, WaitRow
from holdfast.values import Millis, RunId, decode
from holdfast.waits.approvals import Approvals, answerers

APPROVE_PATH: Final = "/approve"
PURPOSE: Final = "approve"
NO_LINK: Final = "this link does not hold, or holds no more"


class Question(msgspec.Struct, frozen=True):
    """What a link asks. `outcome` is None while it is open; `by` is in whose name the link answers."""

    tenant: str
    run_id: str
    workflow: str
    path: str
    by: str
    prompt: str
    form: Any
    of: list[str]
    need: int
    until: Millis | None
    outcome: str | None
    resolved_at: Millis | None


class Links:
    def __init__(self, store: Store, approvals: Approvals) -> None:
        self._store, self._approvals = store, approvals

    async def make(self, tenant: str, run_id: str, path: str, base: str, by: str = "") -> str:
        """A link to an approval that is open. `base` is where the server is reached; raises NotWaiting, InvalidInputs."""
        gate = await self._approvals.open_gate(tenant, run_id, path)
        detail = decode(gate.detail) or {}
        allowed = answerers(detail)
        if allowed and by not in allowed:
            raise InvalidInputs(
                f"step {gate.path} can only be answered by {', '.join(allowed)}: name the approver the link is for"
            )
        if not by and detail.get("need", 1) > 1:
            raise InvalidInputs(
                f"step {gate.path} needs {detail['need']} answers: name the approver each link is for, so that each counts once"
            )
        return self.address(tenant, run_id, gate.path, base, by)

    def address(self, tenant: str, run_id: str, path: str, base: str, by: str) -> str:
        capability = Capability(tenant, run_id, path, 0, PURPOSE, by)
        return f"{base.rstrip('/')}{APPROVE_PATH}/{sealed(self._store.server_key, capability)}"

    def is_link(self, segment: str) -> bool:
        """Whether this is the last part of a link of ours. Needs no database access."""
        return opened(self._store.server_key, segment, PURPOSE) is not None

    async def question(self, segment: str) -> Question:
        """What the last part of a link asks; raises NotFound, always in the same words, for one that does not hold."""
        capability = opened(self._store.server_key, segment, PURPOSE)
        found = None if capability is None else await self._asked(capability)
        if capability is None or found is None or found[1].outcome == "expired":
            raise NotFound(NO_LINK)
        row, wait = found
        detail = decode(wait.detail) or {}
        outcome = wait.outcome
        if outcome == "answered" and "answers_to" not in detail:
            outcome = "approved"  # either answer ends an approval of a graph; in the steps notation only this one does
        return Question(
            capability.tenant,
            row.id,
            row.workflow,
            wait.path,
            capability.by,
            detail.get("prompt", ""),
            detail.get("form"),
            answerers(detail),
            detail.get("need", 1),
            wait.expires_at,
            outcome,
            wait.resolved_at,
        )

    async def _asked(self, capability: Capability) -> tuple[RunRow, WaitRow] | None:
        row = await self._store.run_by_id(capability.tenant, RunId(capability.run_id))
        wait = None if row is None else await self._store.wait_at(row.no, capability.path, "approval")
        return None if row is None or wait is None else (row, wait)
