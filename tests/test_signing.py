"""Which signatures of a body are accepted."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
import standardwebhooks
import svix
from hypothesis import given
from hypothesis import strategies as st

from holdfast.signing import (
    hidden_number,
    is_signed,
    is_webhook_signed,
    shown_number,
    signature,
    webhook_signature,
)

BODY = b'{"a": 1}'
HEX = signature("secret", BODY).removeprefix("sha256=")

ID, NOW = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", 1_790_000_000
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_example_in_the_documentation_of_github_is_accepted() -> None:
    given = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert is_signed("It's a Secret to Everybody", b"Hello, World!", given)


@pytest.mark.parametrize("prefix", ["sha256=", "SHA256=", "Sha256=", "sHA256="])
def test_the_prefix_may_be_in_any_case(prefix: str) -> None:
    assert is_signed("secret", BODY, prefix + HEX)


@pytest.mark.parametrize(
    "given",
    [
        "",
        HEX,
        "sha256=",
        "\udcff",
        f"sha1={HEX}",
        f"sha256={HEX.upper()}",
        f" sha256={HEX}",
        f"sha256= {HEX}",
        f"sha256={HEX} ",
        f"sha256={HEX}0",
        f"sha256={HEX[:-1]}",
        f"sha256:{HEX}",
        f"\u017fha256={HEX}",
    ],
)
def test_any_other_form_is_refused(given: str) -> None:
    assert not is_signed("secret", BODY, given)


@pytest.mark.parametrize("position", range(len(HEX)))
def test_a_signature_with_one_other_digit_is_refused(position: int) -> None:
    other = "0" if HEX[position] != "0" else "1"
    assert not is_signed("secret", BODY, f"sha256={HEX[:position]}{other}{HEX[position + 1 :]}")


@pytest.mark.parametrize("position", range(len(BODY)))
def test_a_body_with_one_other_bit_is_refused(position: int) -> None:
    changed = BODY[:position] + bytes([BODY[position] ^ 1]) + BODY[position + 1 :]
    assert not is_signed("secret", changed, f"sha256={HEX}")


# ------------------------------------------------------------------------------------------- Standard Webhooks


def _is_accepted(
    given: str,
    *,
    secret: str = WHSEC,
    message_id: str = ID,
    timestamp: str = str(NOW),
    body: bytes = BODY,
    now: float = NOW,
) -> bool:
    return is_webhook_signed(secret, message_id, timestamp, body, given, now)


GOOD = webhook_signature(WHSEC, ID, NOW, BODY)


@pytest.mark.parametrize("library", [standardwebhooks.Webhook, svix.Webhook])
def test_what_the_published_libraries_sign_is_accepted(library: type[standardwebhooks.Webhook]) -> None:
    signed = library(WHSEC).sign(ID, datetime.fromtimestamp(NOW, UTC), BODY.decode())
    assert _is_accepted(signed)


def test_what_holdfast_signs_is_accepted_by_the_published_libraries() -> None:
    now = int(datetime.now(UTC).timestamp())
    headers = {"id": ID, "timestamp": str(now), "signature": webhook_signature(WHSEC, ID, now, BODY)}
    for library in (standardwebhooks.Webhook, svix.Webhook):
        sent = {f"webhook-{name}": value for name, value in headers.items()}
        library(WHSEC).verify(BODY.decode(), sent)  # raises if the signature does not match


def test_one_of_several_signatures_is_enough() -> None:
    other = webhook_signature("whsec_" + base64.b64encode(b"other").decode(), ID, NOW, BODY)
    assert _is_accepted(f"{other} v1a,{GOOD.removeprefix('v1,')} {GOOD}")


def test_a_secret_without_the_prefix_is_the_key_itself() -> None:
    assert _is_accepted(webhook_signature("plain", ID, NOW, BODY), secret="plain")


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "v1,",
        "v1",
        "\udcff",
        "v1,\u00e9",
        GOOD.removeprefix("v1,"),
        GOOD.replace("v1,", "V1,"),
        GOOD.replace("v1,", "v1a,"),
        GOOD.replace("v1,", "v2,"),
        GOOD.replace("v1,", "v1, "),
        GOOD[:-1],
        GOOD + "=",
        f"{GOOD},{GOOD}",
        " ".join(["v1,AAAA"] * 20 + [GOOD]),
    ],
)
def test_any_other_form_of_the_header_is_refused(given: str) -> None:
    assert not _is_accepted(given)


@pytest.mark.parametrize(
    "timestamp", ["", "0", "now", f"{NOW}.0", f" {NOW}", f"+{NOW}", "-1", "\u0661", "9" * 13, "9" * 5_000]
)
def test_a_time_that_is_not_written_in_whole_seconds_is_refused(timestamp: str) -> None:
    assert not _is_accepted(GOOD, timestamp=timestamp)


@pytest.mark.parametrize(
    ("late", "is_accepted"), [(0, True), (300, True), (-300, True), (301, False), (-301, False)]
)
def test_a_message_is_accepted_within_300_seconds_of_its_time(late: int, is_accepted: bool) -> None:
    assert _is_accepted(GOOD, now=NOW + late) == is_accepted


def test_the_signature_covers_the_id_the_time_and_the_body() -> None:
    assert _is_accepted(GOOD)
    assert not _is_accepted(GOOD, message_id="msg_other")
    assert not _is_accepted(GOOD, timestamp=str(NOW + 1))
    assert not _is_accepted(GOOD, body=BODY + b" ")


def test_a_secret_that_cannot_be_read_accepts_nothing() -> None:
    assert not _is_accepted(GOOD, secret="whsec_no base64")


@given(st.integers(0, 2**62))
def test_a_hidden_number_is_read_by_its_key_and_purpose_alone(number: int) -> None:
    text = hidden_number(b"k" * 32, "runs acme", number)
    assert shown_number(b"k" * 32, "runs acme", text) == number
    assert shown_number(b"j" * 32, "runs acme", text) is None
    assert shown_number(b"k" * 32, "runs other", text) is None
    assert (
        shown_number(b"k" * 32, "runs acme", text[:-2] + ("A" if text[-2] != "A" else "B") + text[-1]) is None
    )


@pytest.mark.parametrize("text", ["", "1", "é" * 22, "=" * 22, "A" * 22, "A" * 2_000])
def test_a_text_that_hides_no_number_is_refused(text: str) -> None:
    assert shown_number(b"k" * 32, "runs acme", text) is None
