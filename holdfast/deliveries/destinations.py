"""The final callbacks of a run: their destinations, ids, and retry times.

Knows no sockets, no store, and not the message itself (message.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast import limits
from holdfast.engine.events import Destination
from holdfast.engine.state import Run
from holdfast.errors import InvalidInputs
from holdfast.spec.notation import Definition
from holdfast.spec.step_keys import CALLBACK_URL
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.records import CallbackDelivery, CallbackDeliveryTried, NewCallbackDelivery
from holdfast.values import Millis, is_text

ERROR_CHARS_MAX: Final = 1_000
FIRST_DELAYS_SECS: Final = (1, 5, 30)
GROWTH: Final = 4  # from then on
DELAY_SECS_MAX: Final = 12 * 3_600
TRYING_SECS: Final = 3 * 86_400

_URL: Final = re.compile(CALLBACK_URL)
_VARIABLE: Final = re.compile(r"(?!HOLDFAST_)[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)


def _delays() -> Iterator[int]:
    """Return the delays in seconds before each retry. Their sum is the whole retry period; the last one is shortened to fit."""
    left, delay = TRYING_SECS, 0
    for delay in FIRST_DELAYS_SECS:
        left -= delay
        yield delay
    while left > 0:
        delay = min(GROWTH * delay, DELAY_SECS_MAX, left)
        left -= delay
        yield delay


# Counted in attempts, not in time: time in which no attempt could be made does not count.
DELAYS_SECS: Final = tuple(_delays())


# -------------------------------------------------------------------------------------------------- destinations

Given = str | Mapping[str, Any]  # a URL, or {url, secret_env}


def destination(given: Given) -> Destination:
    """Read a destination given by a caller. Raise InvalidInputs if it cannot be used."""
    if not isinstance(given, str | Mapping):
        raise InvalidInputs(f"final_callback must be a URL or a mapping, not {type(given).__name__}")
    fields = {"url": given} if isinstance(given, str) else dict(given)
    unknown = sorted(map(str, fields.keys() - {"url", "secret_env"}))
    if unknown:
        raise InvalidInputs(f"a final callback may have url and secret_env, not {unknown[0]!a:.50}")
    url, secret_env = fields.get("url"), fields.get("secret_env")
    _check_url(url)
    if secret_env is not None and not (isinstance(secret_env, str) and _VARIABLE.fullmatch(secret_env)):
        hint = "give the name of the variable with the secret, such as CALLBACK_KEY; Holdfast's own variables are not allowed"
        raise InvalidInputs(f"secret_env is not the name of an environment variable; {hint}")
    return Destination(url, secret_env)  # type: ignore[arg-type]  # it was checked


def _check_url(url: Any) -> None:
    if not isinstance(url, str) or not is_text(url) or not _URL.fullmatch(url):
        raise InvalidInputs(
            f"{url!a:.80} is not a valid URL for a final callback; it must start with https:// or http:// and "
            "have no user or password"
        )
    if len(url) > limits.now.url_chars_max:
        most = f"{limits.now.url_chars_max:,} characters ({limits.met('url_chars_max')})"
        raise InvalidInputs(f"the URL of a final callback may have at most {most}")
    try:
        _ = urlsplit(url).port  # accessing it validates it
    except ValueError as error:
        raise InvalidInputs(f"the URL of a final callback is not valid: {error}") from None


def destinations(spec: Definition, given: Sequence[Destination]) -> tuple[Destination, ...]:
    """Return all destinations of a run's final callback: those of its workflow and of its start, without duplicates."""
    own = spec.on_complete if isinstance(spec, WorkflowSpec) else ()
    if not (own or given):
        return ()
    return tuple(dict.fromkeys([*(Destination(one.url, one.secret_env) for one in own), *given]))


# ------------------------------------------------------------------------------------------------------ deliveries


def callback_deliveries_of(run: Run) -> Iterator[NewCallbackDelivery]:
    """Return the deliveries of a run that ends now. The id of a delivery never changes, so that the receiver can deduplicate."""
    for n, one in enumerate(run.destinations):
        delivery_id = f"msg_{run.id}_{n}"
        yield NewCallbackDelivery(
            run.tenant, delivery_id, run.no, n, one.url, _origin(one.url), one.secret_env, Millis(run.at)
        )


def _origin(url: str) -> str:
    return url.partition("//")[2].partition("/")[0].partition("?")[0].rpartition("@")[2].lower()


def delivered(delivery: CallbackDelivery, at: Millis) -> CallbackDeliveryTried:
    return CallbackDeliveryTried(delivery.tries + 1, delivery.due_at, at, "delivered", "", delivery.pos)


def failed(delivery: CallbackDelivery, at: Millis, error: str, *, for_good: bool) -> CallbackDeliveryTried:
    """Return the state after a failed try: due later, or dead if retrying is pointless or the retry period has passed."""
    tries, message = delivery.tries + 1, error[:ERROR_CHARS_MAX]
    if for_good or delivery.tries >= len(DELAYS_SECS):
        return CallbackDeliveryTried(tries, delivery.due_at, at, "dead", message, delivery.pos)
    return CallbackDeliveryTried(
        tries, Millis(at + DELAYS_SECS[delivery.tries] * 1000), None, None, message, delivery.pos
    )


def replayed(delivery: CallbackDelivery, at: Millis) -> CallbackDeliveryTried:
    """Return a dead letter as pending again, like a new one."""
    return CallbackDeliveryTried(0, at, None, None, delivery.last_error, delivery.pos, "dead")


def discarded(delivery: CallbackDelivery, at: Millis) -> CallbackDeliveryTried:
    return CallbackDeliveryTried(
        delivery.tries, delivery.due_at, at, "discarded", delivery.last_error, delivery.pos, "dead"
    )
