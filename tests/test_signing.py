"""Which signatures of a body are accepted."""

from __future__ import annotations

import pytest

from holdfast.signing import is_signed, signature

BODY = b'{"a": 1}'
HEX = signature("secret", BODY).removeprefix("sha256=")


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
