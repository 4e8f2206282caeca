"""Signatures: addresses that only we can have given out, and bodies that only a holder of a secret can have sent.

Knows HMAC, and what a signature covers. Does not know requests, runs, or where keys are kept.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final

import msgspec

KEY_BYTES: Final = 32
WEBHOOK_SECRET: Final = "whsec_"
SIGNATURE_PREFIX: Final = "sha256="
WEBHOOK_SECS_MAX: Final = 300  # between the time in a signed message and now, either way
WEBHOOK_SIGNATURES_MAX: Final = 20  # in one header: a sender signs with each secret that it is replacing
SEGMENT_CHARS_MAX: Final = 4_096  # longest segment of an address; no path in a run is longer


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


class Capability(msgspec.Struct, array_like=True, frozen=True):
    """The right to answer one attempt of one step, carried in a URL; `by` is the approver it was issued to, if any."""

    tenant: str
    run_id: str
    path: str
    attempt: int
    purpose: str = "resume"
    by: str = ""


def sealed(key: bytes, capability: Capability) -> str:
    """A capability as one segment of an address: its content, and a signature that proves that this server made it."""
    said = msgspec.json.encode(capability)
    return f"{_text(said)}.{_text(_proof(key, said))}"


def opened(key: bytes, segment: str, purpose: str) -> Capability | None:
    """What a segment says, if we gave it out for this purpose; nothing else about it is believed before that."""
    said, dot, proof = segment.partition(".")
    if not dot or len(segment) > SEGMENT_CHARS_MAX:
        return None
    try:
        raw, given = _bytes(said), _bytes(proof)
    except ValueError:
        return None
    if not hmac.compare_digest(_proof(key, raw), given):
        return None
    capability = msgspec.json.decode(raw, type=Capability)
    return capability if capability.purpose == purpose else None


# -------------------------------------------------------------------------------------------------- hidden numbers

ROUNDS: Final = 4  # of a Feistel network, which is enough to make a permutation look random
HALF_BYTES: Final = 8


def hidden_number(key: bytes, what: str, number: int) -> str:
    """Encrypt a number, as text that only the holder of the key can make or read."""
    left, right = number.to_bytes(HALF_BYTES), bytes(HALF_BYTES)
    for turn in range(ROUNDS):
        left, right = right, _mixed(left, _round(key, what, turn, right))
    return _text(left + right)


def shown_number(key: bytes, what: str, text: str) -> int | None:
    """Return the number that a text hides; None if the text was not made for this by the holder of the key."""
    try:
        both = _bytes(text) if len(text) <= 4 * HALF_BYTES else b""
    except ValueError:
        return None
    if len(both) != 2 * HALF_BYTES or _text(both) != text:
        return None
    left, right = both[:HALF_BYTES], both[HALF_BYTES:]
    for turn in reversed(range(ROUNDS)):
        left, right = _mixed(right, _round(key, what, turn, left)), left
    return None if any(right) else int.from_bytes(left)


def _round(key: bytes, what: str, turn: int, half: bytes) -> bytes:
    said = f"cursor {turn} {what} ".encode("utf-8", "surrogatepass") + half
    return hmac.digest(key, said, "sha256")[:HALF_BYTES]


def _mixed(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def signature(secret: str | bytes, body: bytes) -> str:
    """The signature of a body, as `sha256=<hex>`."""
    key = secret.encode() if isinstance(secret, str) else secret
    return SIGNATURE_PREFIX + hmac.new(key, body, hashlib.sha256).hexdigest()


def is_signed(secret: str | bytes, body: bytes, given: str) -> bool:
    """Whether a body has this signature. The prefix may be in any case, as senders write it; the hex is lower case."""
    prefix, digits = given[: len(SIGNATURE_PREFIX)], given[len(SIGNATURE_PREFIX) :]
    wanted = signature(secret, body).removeprefix(SIGNATURE_PREFIX)
    is_same = hmac.compare_digest(wanted.encode(), digits.encode("utf-8", "surrogateescape"))
    return is_same and prefix.lower() == SIGNATURE_PREFIX


def webhook_signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The signature of a message as Standard Webhooks has it, so that a body cannot be sent again under another id or time.

    A secret that begins with `whsec_` is base64 of the key; any other is the key itself.
    """
    return "v1," + base64.b64encode(_webhook_digest(secret, f"{message_id}.{timestamp}.", body)).decode()


def is_webhook_signed(
    secret: str, message_id: str, timestamp: str, body: bytes, given: str, now_secs: float
) -> bool:
    """Whether one of the signatures in `given`, separated by spaces, is the one of this message (Standard Webhooks).

    Id and timestamp are the text of their headers, which are signed too. A message whose time is more than 300 seconds from
    now is refused, and so is every message if the secret is `whsec_` without base64 behind it.
    """
    if not (message_id and timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12):
        return False
    if abs(int(timestamp) - now_secs) > WEBHOOK_SECS_MAX:
        return False
    try:
        wanted = _webhook_digest(secret, f"{message_id}.{timestamp}.", body)
    except ValueError:
        return False
    signatures = given.split(" ")[:WEBHOOK_SIGNATURES_MAX]
    return any(hmac.compare_digest(wanted, _webhook_bytes(one)) for one in signatures)


def _webhook_digest(secret: str, head: str, body: bytes) -> bytes:
    signing = hmac.new(_webhook_key(secret), head.encode("utf-8", "surrogateescape"), hashlib.sha256)
    signing.update(body)
    return signing.digest()


def _webhook_bytes(one: str) -> bytes:
    """The digest in one signature; empty for any version other than v1, and for text that is not base64."""
    version, _, digest = one.partition(",")
    if version != "v1":
        return b""
    try:
        return base64.b64decode(digest.encode("ascii"), validate=True)
    except ValueError:
        return b""


def _webhook_key(secret: str) -> bytes:
    if not secret.startswith(WEBHOOK_SECRET):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(WEBHOOK_SECRET), validate=True)
    except ValueError:
        raise ValueError(f"a secret that begins with {WEBHOOK_SECRET} goes on with base64") from None


def _proof(key: bytes, said: bytes) -> bytes:
    return hmac.new(key, b"holdfast capability\0" + said, hashlib.sha256).digest()


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
