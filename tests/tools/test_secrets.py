"""Secrets come from providers, and their values go into nothing that is written."""

from __future__ import annotations

import base64
import html
import json
import os
import shlex
import threading
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.secrets import (
    REDACTED_CHARS_MIN,
    REMEMBERED_MAX,
    SEARCHED_AT_ONCE_BYTES,
    Secrets,
    SecretUnavailable,
)

SPECIAL = """s3cr3t-p&ss w0rd/"quote'<x>"""


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


def test_secrets_of_the_environment_are_those_of_default_and_of_tenants_that_they_are_listed_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", "from-there")
    secrets = Secrets(tenants={"acme": ["TOKEN"], "other": ["ELSE"]})
    assert [secrets.get("TOKEN", tenant) for tenant in ("default", "acme", "other", "fourth")] == [
        "from-there",
        "from-there",
        None,
        None,
    ]
    assert secrets.get("token", "acme") == "from-there"
    with pytest.raises(
        SecretUnavailable, match=r"no secret 'TOKEN' of tenant 'other'; .*\[tenants.other\] secrets"
    ):
        secrets.require("TOKEN", "other")


def test_a_variable_that_differs_in_case_from_the_listed_one_is_not_the_tenants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", "listed-one")
    monkeypatch.setenv("HOLDFAST_SECRET_token", "another-one")
    assert Secrets(tenants={"acme": ["TOKEN"]}).get("token", "acme") == "listed-one"


def test_a_provider_is_told_the_tenant_or_asked_for_default_alone() -> None:
    def told(name: str, tenant: str) -> str | None:
        return f"{name} of {tenant}" if name == "A" else None

    secrets = Secrets([told, {"B": "of default"}.get])
    assert (secrets.get("A", "acme"), secrets.get("A")) == ("A of acme", "A of default")
    assert (secrets.get("B", "acme"), secrets.get("B")) == (None, "of default")


@pytest.mark.parametrize(
    ("tenant", "is_guarded", "listed", "found"),
    [
        ("default", False, (), True),
        ("default", True, (), False),
        ("default", True, ("PLAIN",), True),
        ("acme", False, ("PLAIN",), False),
        ("acme", True, ("PLAIN",), False),
    ],
)
def test_a_plain_variable_signs_callbacks_of_default_where_the_operator_lets_it(
    monkeypatch: pytest.MonkeyPatch, tenant: str, is_guarded: bool, listed: tuple[str, ...], found: bool
) -> None:
    monkeypatch.setenv("PLAIN", "a plain one")
    secrets = Secrets(callback_env=listed)
    secrets.is_guarded = is_guarded
    if found:
        assert secrets.for_callback("PLAIN", tenant) == "a plain one"
    else:
        with pytest.raises(SecretUnavailable, match="secret_env: there is no secret 'PLAIN'"):
            secrets.for_callback("PLAIN", tenant)


@pytest.mark.parametrize(
    ("tenant", "is_guarded", "is_operators", "found"),
    [
        ("default", False, False, True),
        ("default", True, False, False),
        ("default", True, True, True),  # the operator wrote the schedule file, and sets the variables
        ("acme", False, True, False),
    ],
)
def test_a_plain_variable_is_the_secret_of_a_webhook_where_the_operator_lets_it(
    monkeypatch: pytest.MonkeyPatch, tenant: str, is_guarded: bool, is_operators: bool, found: bool
) -> None:
    monkeypatch.setenv("PLAIN", "a plain one")
    secrets = Secrets()
    secrets.is_guarded = is_guarded
    secret = secrets.for_webhook("PLAIN", tenant, is_operators=is_operators)
    assert secret == ("a plain one" if found else None)


@pytest.mark.parametrize("name", ["HOLDFAST_API_KEY", "HOLDFAST_RESUME_SECRET"])
def test_none_of_our_own_variables_is_the_secret_of_a_webhook(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "one of ours")
    assert Secrets().for_webhook(name, is_operators=True) is None


def test_an_empty_variable_is_no_secret_of_a_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN", "")
    assert Secrets().for_webhook("PLAIN", is_operators=True) is None


@pytest.mark.parametrize("name", ["HOLDFAST_API_KEY", "HOLDFAST_SECRET_X"])
def test_none_of_our_own_variables_signs_a_callback(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "one of ours")
    with pytest.raises(SecretUnavailable):
        Secrets(callback_env=[name]).for_callback(name)


def test_every_configured_value_is_redacted_before_it_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_A", "hunter2hunter2")
    monkeypatch.setenv("LISTED", "listed-value")
    secrets = Secrets(callback_env=["LISTED"], known=["the-admin-key", None])
    assert secrets.redact("hunter2hunter2 listed-value the-admin-key") == "*** *** ***"


def test_nothing_is_looked_for_where_no_secret_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HOLDFAST_SECRET_")]:
        monkeypatch.delenv(name)
    secrets = Secrets()
    assert not secrets.are_known
    text = b'"any"'
    assert secrets.redact_json(text) is text


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "another name:"])
@pytest.mark.parametrize("after", ["", "!", "!!", " and more"])
@pytest.mark.parametrize("value", ["hunter2hunter2", "pässwörd/+?>~~~", "six666"])
def test_a_value_is_found_in_base64_wherever_it_begins(before: str, after: str, value: str) -> None:
    raw = (before + value + after).encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        written = encode(raw).decode()
        for text in (written, written.rstrip("="), f"Basic {written} x"):
            redacted = knowing(value).redact(text)
            assert "***" in redacted
            assert len(redacted) <= len(text) - len(value) + 3
        found = knowing(value).redact_json(msgspec.json.encode([written]))
        assert b"***" in found


@pytest.mark.parametrize("value", ["hunter2hunter2", "pässwörd/+?>~~~"])
def test_a_value_is_found_in_hexadecimal_and_in_addresses(value: str) -> None:
    raw = value.encode()
    every = "".join(f"%{byte:02x}" for byte in raw)
    for text in (raw.hex(), raw.hex().upper(), every, every.upper(), quote(value, safe="").lower()):
        assert knowing(value).redact(f"x={text}&y") == "x=***&y"


@pytest.mark.parametrize(
    "written",
    [
        quote(quote(SPECIAL, safe=""), safe=""),
        html.escape(SPECIAL),
        html.escape(SPECIAL).replace("&#x27;", "&#39;"),
        SPECIAL.encode().hex(":"),
        SPECIAL.encode().hex(" ").upper(),
        "".join(f"\\x{byte:02x}" for byte in SPECIAL.encode()),
        repr(repr(SPECIAL)),
        shlex.quote(SPECIAL),
        base64.b64encode(base64.b64encode(SPECIAL.encode())).decode(),
        base64.b64encode(json.dumps({"password": SPECIAL}).encode()).decode(),
        quote(base64.b64encode(b"user:" + SPECIAL.encode()).decode(), safe=""),
        base64.encodebytes(b"x" * 40 + SPECIAL.encode() + b"y" * 40).decode(),
        f"{SPECIAL[:9]}\n{SPECIAL[9:]}",
        "".join(f"&#{ord(character)};" for character in SPECIAL),
        "".join(f"&#x{ord(character):x};" for character in SPECIAL),
        "".join(f"\\u{ord(character):04x}" for character in SPECIAL),
        "".join(f"\\{byte:03o}" for byte in SPECIAL.encode()),
        SPECIAL.encode("utf-16-le").hex(),
        SPECIAL.encode("utf-16-be").hex().upper(),
        base64.b64encode(f"$x = '{SPECIAL}'".encode("utf-16-le")).decode(),
    ],
    ids=[
        "address in an address",
        "HTML",
        "HTML by number",
        "colons",
        "spaces",
        "escaped bytes",
        "quoted twice",
        "shell",
        "base64 twice",
        "JSON in base64",
        "base64 in an address",
        "lines of base64",
        "lines",
        "HTML, every character by number",
        "HTML, every character in hexadecimal",
        "JSON, every character escaped",
        "octal escapes",
        "UTF-16 in hexadecimal",
        "UTF-16 of the other order",
        "UTF-16 in base64",
    ],
)
def test_a_value_is_found_in_what_programs_print(written: str) -> None:
    secrets = knowing(SPECIAL)
    assert "***" in secrets.redact(f"before {written} after")
    kept = msgspec.json.decode(secrets.redact_json(msgspec.json.encode({"a": [f"before {written} after"]})))
    assert "***" in kept["a"][0]
    assert kept["a"][0].startswith("before ") and kept["a"][0].endswith(" after")


@pytest.mark.parametrize(
    ("lines", "redacted"),
    [
        (["a correct-ho", "rse-battery b"], ["a ***", "*** b"]),
        (["correct-hors", "e-", "batt", "ery"], ["***", "***", "***", "***"]),
        (["a corr", "ect-horse-battery b"], ["a corr", "*** b"]),
        (["a correct-horse-battery", "correct-", "b"], ["a ***", "***", "b"]),
        (["a correct-horse-batt", "le"], ["a ***", "le"]),
        (["correct-horse-\n", "battery"], ["***", "***"]),
        (["Y29ycmVjdC1ob3Jz", "ZS1iYXR0ZXJ5 b"], ["***", "*** b"]),
        (["a corre", "ct the horse"], ["a corre", "ct the horse"]),
    ],
    ids=["two", "four", "short first", "whole, then a part", "a part alone", "ends of lines", "base64", "no secret"],
)  # fmt: skip
def test_a_value_that_is_split_over_log_lines_is_redacted(lines: list[str], redacted: list[str]) -> None:
    redact = knowing("correct-horse-battery").lines()
    assert [redact(line).rstrip("\n") for line in lines] == redacted


def test_a_value_that_repeats_itself_is_redacted_whole_at_the_end_of_a_line() -> None:
    assert knowing("hunter2hunter2").lines()("x hunter2hunter2") == "x ***"


@given(st.lists(st.integers(min_value=1, max_value=20), max_size=5))
def test_no_line_shows_more_than_the_short_beginning_of_a_split_value(cuts: list[int]) -> None:
    value = "q0W9e8R7t6Y5u4I3o2P1z"
    ends = [0, *sorted(set(cuts)), len(value)]
    lines = [value[begin:end] for begin, end in pairwise(ends)]
    redact = knowing(value).lines()
    shown = "".join(redact(line) for line in lines).replace("***", "")
    assert shown == value[: len(shown)] and len(shown) < REDACTED_CHARS_MIN


def test_the_lines_of_a_private_key_are_secret_one_by_one() -> None:
    lines = ["-----BEGIN PRIVATE KEY-----", "q1" * 32, "w2" * 32, "-----END PRIVATE KEY-----"]
    secrets = knowing("\n".join(lines))
    assert [secrets.redact(line) for line in lines] == [lines[0], "***", "***", lines[3]]


def test_threads_redact_while_new_values_become_known() -> None:
    values = iter(f"value-{n:06}" for n in range(40))
    secrets = Secrets([lambda _: next(values), {"A": "hunter2hunter2"}.get])
    secrets._remember("hunter2hunter2")
    seen: set[str] = set()
    stop = threading.Event()

    def redact() -> None:
        while not stop.is_set():
            seen.add(secrets.redact("x hunter2hunter2 y"))
            seen.add(secrets.redact_json(b'"x hunter2hunter2 y"').decode().strip('"'))

    thread = threading.Thread(target=redact)
    thread.start()
    for _ in range(40):
        secrets.get("rotating")
        secrets.redact("nothing")
    stop.set()
    thread.join()
    assert seen == {"x *** y"}


def test_a_value_across_the_border_of_two_looks_is_found() -> None:
    secrets = knowing("hunter2hunter2")
    for shift in range(-20, 20):
        text = b'"' + b"x" * (SEARCHED_AT_ONCE_BYTES + shift) + b'hunter2hunter2"'
        assert b"hunter2" not in secrets.redact_json(text)


def test_the_environment_for_processes_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_A", "hunter2hunter2")
    monkeypatch.setenv("HOLDFAST_API_KEY", "the-admin-key")
    monkeypatch.setenv("LISTED", "listed-value")
    monkeypatch.setenv("COPY_OF_A", "x=hunter2hunter2")
    monkeypatch.setenv("HARMLESS", "harmless")
    found = Secrets(callback_env=["LISTED"]).environment()
    assert found["HARMLESS"] == "harmless"
    assert not [name for name in found if name.startswith("HOLDFAST_") or name in ("LISTED", "COPY_OF_A")]


ODD = 'pä"ss\\w/örd\n\t1'


@pytest.mark.parametrize(
    "written",
    [
        ODD, json.dumps(ODD), json.dumps(ODD, ensure_ascii=False), msgspec.json.encode(ODD).decode(), repr(ODD),
        quote(ODD), quote(ODD, safe=""), json.dumps(json.dumps(ODD, ensure_ascii=False), ensure_ascii=False),
        f"ValueError: bad {ODD!r}", ascii(ODD), repr(ODD.encode()),
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
