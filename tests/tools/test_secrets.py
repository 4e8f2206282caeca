"""Secrets come from providers, and their values go into nothing that is written."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.secrets import REMEMBERED_MAX, Secrets, SecretUnavailable


def knowing(*values: str) -> Secrets:
    secrets = Secrets([dict(enumerate_names(values)).get])
    for name, _ in enumerate_names(values):
        secrets.get(name)
    return secrets


def enumerate_names(values: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(f"S{index}", value) for index, value in enumerate(values)]


def test_the_environment_is_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", "from-there")
    assert Secrets().get("TOKEN") == Secrets().get("token") == "from-there"


def test_an_empty_variable_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", "")
    assert Secrets().get("TOKEN") is None


def test_providers_are_asked_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_A", "outer")
    monkeypatch.setenv("HOLDFAST_SECRET_B", "outer")
    secrets = Secrets([{"A": "inner"}.get])
    assert (secrets.get("A"), secrets.get("B")) == ("inner", "outer")


def test_a_missing_secret_says_how_to_give_it() -> None:
    with pytest.raises(SecretUnavailable, match=r"there is no secret 'X'; set HOLDFAST_SECRET_X") as caught:
        Secrets().require("X")
    assert caught.value.kind == "secret"


def test_a_provider_that_fails_says_nothing_of_what_it_knew() -> None:
    def vault(name: str) -> str:
        raise RuntimeError("could not use hunter2hunter2")

    with pytest.raises(
        SecretUnavailable, match="the provider of the secret 'X' failed with RuntimeError"
    ) as caught:
        Secrets([vault]).get("X")
    assert "hunter2" not in str(caught.value)


def test_a_provider_that_gives_no_text_is_refused() -> None:
    wrong: Any = {"X": 123456}.get
    with pytest.raises(SecretUnavailable, match="is not text but int"):
        Secrets([wrong]).get("X")


def test_a_value_that_was_not_handed_out_is_not_known() -> None:
    assert Secrets([{"A": "hunter2hunter2"}.get]).redact("hunter2hunter2") == "hunter2hunter2"


def test_a_short_value_is_not_taken_out_of_texts() -> None:
    assert knowing("abc").redact("abcdef") == "abcdef"


def test_the_longest_value_goes_first() -> None:
    assert knowing("secret", "secret-longer").redact("a secret-longer b secret") == "a *** b ***"


ODD = 'pä"ss\\w/örd\n\t1'


@pytest.mark.parametrize(
    "written",
    [
        ODD, json.dumps(ODD), json.dumps(ODD, ensure_ascii=False), msgspec.json.encode(ODD).decode(), repr(ODD),
        quote(ODD), quote(ODD, safe=""), json.dumps(json.dumps(ODD, ensure_ascii=False), ensure_ascii=False),
        f"ValueError: bad {ODD!r}",
    ],
)  # fmt: skip
def test_a_value_is_found_however_it_is_written(written: str) -> None:
    redacted = knowing(ODD).redact(written)
    assert "***" in redacted
    assert "rd" not in redacted


def test_json_stays_json() -> None:
    text = msgspec.json.encode({"a": [ODD, 5123456, 12.5, True], ODD: "x" + ODD, "n": "123456"})
    found = msgspec.json.decode(knowing(ODD, "123456").redact_json(text))
    assert found == {"a": ["***", "***", 12.5, True], "***": "x***", "n": "***"}


def test_json_without_a_value_is_left_as_it_is() -> None:
    text = b'{ "a" : 1.0 }'
    assert knowing("hunter2hunter2").redact_json(text) is text


def test_what_is_remembered_is_bounded() -> None:
    values = iter(f"value-{n:06}" for n in range(REMEMBERED_MAX + 5))
    secrets = Secrets([lambda _: next(values)])
    for _ in range(REMEMBERED_MAX + 5):
        secrets.get("rotating")
    assert secrets.redact("value-000000") == "value-000000"
    assert secrets.redact(f"value-{REMEMBERED_MAX:06}") == "***"


@given(st.text(min_size=6, max_size=20).filter(lambda text: "*" not in text), st.text(), st.text())
def test_no_value_survives_in_json(value: str, before: str, after: str) -> None:
    try:
        text = msgspec.json.encode({"k": before + value + after})
    except UnicodeEncodeError:
        return
    assert value not in msgspec.json.decode(knowing(value).redact_json(text))["k"]
