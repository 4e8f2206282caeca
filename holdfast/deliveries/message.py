"""The message of a final callback: the run as the API shows it, and the headers that prove its sender.

Knows no sockets, no store and no retries.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.plan import composed
from holdfast.signing import signature, webhook_signature
from holdfast.store.records import CallbackDelivery
from holdfast.values import Millis, rfc3339, written
from holdfast.views.run_view import RunView

ENVELOPE_BYTES: Final = 64 * 1024  # more than everything else in the message


def text_of(view: RunView) -> bytes:
    """Return the run as the API shows it. A finished run does not change, so every try sends the same text.

    The size limit for values applies. If inputs and output together are too large, the inputs are left out; if the output alone is
    too large, it is left out too. `omitted` names what was left out.
    """
    fields = {name.removesuffix("_text"): part for name, part in msgspec.structs.asdict(view).items()}
    del fields["is_left"]  # says something of open runs alone
    sizes = {name: len(bytes(fields[name])) for name in ("inputs", "output")}
    left, omitted = composed.LIMIT - ENVELOPE_BYTES - sum(sizes.values()), list[str]()
    for name, size in sizes.items():
        if left < 0:
            omitted.append(name)
            left += size
    fields |= dict.fromkeys(omitted)
    if omitted:
        fields["omitted"] = omitted
    for name in ("created_at", "started_at", "finished_at"):
        fields[name] = None if fields[name] is None else rfc3339(fields[name])
    return written(fields)


def headers_of(delivery: CallbackDelivery, text: bytes, at: Millis, secret: str | None) -> dict[str, str]:
    """Headers that identify the delivery and prove its sender."""
    seconds = at // 1000
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "holdfast",
        "webhook-id": delivery.id,
        "webhook-timestamp": str(seconds),
    }
    if secret is not None:
        headers["webhook-signature"] = webhook_signature(secret, delivery.id, seconds, text)
        headers["X-Hub-Signature-256"] = signature(secret, text)
    return headers
