"""Approval links: what they contain, for which approvals they may be made, and which question they show.

The signature in a link proves that this server issued it, and the link says in whose name it answers. Opening a link
decides nothing. Does not know how a link is sent, shown or answered; an answer by a link counts once, like any other.
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
NO_LINK: Final = "this link is not valid, or has expired"


class Question(msgspec.Struct, frozen=True):
    """The question of a link. `outcome` is None while the approval is open; `by` is the person in whose name the link
    answers."""

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
        """A link to an open approval. `base` is the public URL of the server. Raises NotWaiting or InvalidInputs."""
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
        """Whether this is the token of a link that this server issued. Needs no database access."""
        return opened(self._store.server_key, segment, PURPOSE) is not None

    async def question(self, segment: str) -> Question:
        """The question that the token of a link refers to. An invalid token raises NotFound, always with the same
        message."""
        capability = opened(self._store.server_key, segment, PURPOSE)
        found = None if capability is None else await self._asked(capability)
        if capability is None or found is None or found[1].outcome == "expired":
            raise NotFound(NO_LINK)
        row, wait = found
        detail = decode(wait.detail) or {}
        outcome = wait.outcome
        if outcome == "answered" and "answers_to" not in detail:
            # in a graph either answer completes an approval; in the steps notation only an approval does
            outcome = "approved"
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
