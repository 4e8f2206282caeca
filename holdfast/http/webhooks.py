"""Webhooks: a POST to the path of a schedule starts a run. The paths come and go with the schedules, so they are looked up
beside the route table, which is built once.

    rate ──► method ──► secret ──► body ──► signature ──► JSON, inputs ──► ledger row and run in one commit ──► 202

Knows what senders send and what they get back. Whether an event starts a run, waits or is a repetition is decided by
triggers/occurrences.py.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast import limits
from holdfast.api.types import ID_CHARS_MAX, KEY_PATTERN, status_of
from holdfast.errors import InvalidRequest, MethodNotAllowed
from holdfast.http.request import LargeBodies, Request, sent_twice
from holdfast.http.table import Reply
from holdfast.runtime.apart import in_turns
from holdfast.runtime.clock import Clock
from holdfast.signing import is_signed, is_webhook_signed
from holdfast.triggers.hooks import Hook, Hooks
from holdfast.triggers.occurrences import Accepted, Delivered, Delivery, Occurrences
from holdfast.triggers.payloads import SMALL_BYTES, InvalidPayload
from holdfast.values import sha256, written

log = logging.getLogger("holdfast.webhooks")

LABEL: Final = "/{webhook}"  # in metrics and logs: paths are the users', and there may be many
RETRY_AFTER_SECS: Final = 5  # at the limit of open runs
HUB: Final = "x-hub-signature-256"
GITHUB_ID: Final = "x-github-delivery"
# Senders of Standard Webhooks write their headers under one of these names.
STANDARD: Final = ("webhook", "svix")


class Admission(Protocol):
    """What a server lets in."""

    @property
    def is_guarded(self) -> bool:
        """Whether callers need a key: then a webhook is signed, unless its schedule says otherwise."""

    def count_webhook(self, path: str, client: str) -> None:
        """Count a request to a webhook by its path and its sender's address; raises TooManyRequests."""


class Webhooks:
    def __init__(
        self,
        hooks: Hooks,
        occurrences: Occurrences,
        clock: Clock,
        admission: Admission,
        large_bodies: LargeBodies,
    ) -> None:
        self._hooks, self._occurrences = hooks, occurrences
        self._clock, self._admission, self._large_bodies = clock, admission, large_bodies

    def find(self, request: Request) -> Hook | None:
        """The webhook at the path of a request. A slash that was sent as %2F separates nothing, so it matches no path."""
        if b"%2f" in request.raw_path.lower():
            return None
        return self._hooks.at(request.path)

    async def answer(self, hook: Hook, request: Request) -> Reply:
        request.label = LABEL
        self._admission.count_webhook(hook.path, request.client)
        if request.method != "POST":
            raise MethodNotAllowed(request.method, ["POST"])
        secrets = self._secrets(hook)
        if isinstance(secrets, Reply):
            return secrets
        if request.signed_twice:
            if not secrets:
                raise sent_twice(request.signed_twice)
            return _refused()
        proof = _Proof(request.headers)
        if secrets and proof.is_missing or not secrets and not self._may_be_unsigned(hook):
            return _refused()
        with self._large_bodies.unproved(request):
            raw = await request.body(limits.now.webhook_bytes_max, "webhook_bytes_max")
            if not secrets:
                return await self._deliver(hook, proof, raw)
            if not await self._is_genuine(proof, secrets, raw):
                return _refused()
        async with self._large_bodies.place_of(request, hook.tenant):
            return await self._deliver(hook, proof, raw)

    def _secrets(self, hook: Hook) -> Sequence[str] | Reply:
        """The available secrets of a webhook; one is enough while a secret is being replaced. Empty if the webhook
        names none."""
        names, secrets = hook.secret_env, self._hooks.secrets_of(hook)
        if names and not secrets:
            log.error("webhook %a: no secret %s is set", hook.path, " or ".join(names))
            return _reply("webhook_secret_missing", env=names[0])
        return secrets

    def _may_be_unsigned(self, hook: Hook) -> bool:
        """A server may have become guarded since the schedule was loaded."""
        return hook.spec.allow_unsigned or not self._admission.is_guarded

    async def _is_genuine(self, proof: _Proof, secrets: Sequence[str], raw: bytes) -> bool:
        now_secs = self._clock.now() / 1000
        if len(raw) <= SMALL_BYTES:
            return proof.is_by(secrets, raw, now_secs)
        return await in_turns(lambda: proof.is_by(secrets, raw, now_secs))

    async def _deliver(self, hook: Hook, proof: _Proof, raw: bytes) -> Reply:
        delivery = Delivery(
            tenant=hook.tenant,
            spec=hook.spec,
            occurrence=self._occurrence(hook, proof, raw),
            payload=raw,
            scheduled_at=self._clock.now(),
            reply=_accepted,
            may_come_again=True,
        )
        try:
            delivered = await self._occurrences.deliver(delivery)
        except InvalidPayload as error:
            return _reply(error.code, message=str(error))
        if delivered.reply is not None:
            return Reply(msgspec.Raw(delivered.reply), 202)
        return _not_started(hook, delivered)

    def _occurrence(self, hook: Hook, proof: _Proof, raw: bytes) -> str:
        """The id of a delivery. A repeated delivery with the same id starts nothing."""
        match hook.spec.dedup:
            case "body":
                return f"sha256:{sha256(raw)}"
            case "delivery" if proof.delivery_id:
                return proof.delivery_id
            case _:
                return self._clock.new_id()


class _Proof:
    """The proof of the sender in the headers of a delivery. A sender that signs in both styles must be right in both."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        sent = [name for part in ("signature", "id") for name in STANDARD if f"{name}-{part}" in headers]
        name = sent[0] if sent else STANDARD[0]
        self._hub = headers.get(HUB)
        self._standard = headers.get(f"{name}-signature")
        self._time = headers.get(f"{name}-timestamp", "")
        self._id = headers.get(f"{name}-id", "")
        signed_id = self._id if self._standard is not None else ""
        self.delivery_id = signed_id or headers.get(GITHUB_ID) or self._id
        if self.delivery_id and not _is_id(self.delivery_id):
            raise InvalidRequest(f"the id of a delivery has 1 to {ID_CHARS_MAX} visible ASCII characters")

    @property
    def is_missing(self) -> bool:
        return self._hub is None and self._standard is None

    def is_by(self, secrets: Sequence[str], raw: bytes, now_secs: float) -> bool:
        """Whether each signature that was sent is one of a body signed with one of the secrets."""
        hub, standard = self._hub, self._standard
        if hub is not None and not any(is_signed(secret, raw, hub) for secret in secrets):
            return False
        return standard is None or any(
            is_webhook_signed(secret, self._id, self._time, raw, standard, now_secs) for secret in secrets
        )


def _is_id(text: str) -> bool:
    return len(text) <= ID_CHARS_MAX and re.search(KEY_PATTERN, text) is not None


# ----------------------------------------------------------------------------------------------------- responses


def _accepted(accepted: Accepted) -> bytes:
    """The body of the 202, which is stored: a repeated delivery gets the same bytes."""
    spec = accepted.spec
    status = "buffered" if accepted.is_waiting else "enqueued"
    said: dict[str, Any] = {"status": status, "schedule_id": spec.id, "workflow": spec.workflow}
    if spec.echo_inputs:
        said["inputs"] = accepted.inputs
    if accepted.run_id is not None:
        said["run_id"] = accepted.run_id
    return written(said)


def _refused() -> Reply:
    return _reply("invalid_signature")


def _not_started(hook: Hook, delivered: Delivered) -> Reply:
    """The response to a delivery that the schedule skipped, or whose run could not be started."""
    spec = hook.spec
    match delivered.reason:
        case "overlap":
            about = {"in_flight": delivered.in_flight, "max_concurrent": spec.max_concurrent}
            reply = _reply("max_concurrent_exceeded", schedule_id=spec.id, **about)
            return Reply(reply.value, reply.status, {"retry-after": str(RETRY_AFTER_SECS)})
        case "paused":
            return _reply("schedule_paused", schedule_id=spec.id)
        case "unresolved_template":
            return _reply("unresolved_template", schedule_id=spec.id, placeholders=delivered.placeholders)
        case _:
            return _reply("sink_failed", message=delivered.message)


def _reply(error: str, **rest: Any) -> Reply:
    return Reply({"error": error, **rest}, status_of(error))
