"""Placeholders in the inputs of a schedule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.events import TriggeredBy
from holdfast.errors import LimitExceeded
from holdfast.schedule import template
from holdfast.schedule.template import Rendered, render
from holdfast.spec.placeholders import NAMES
from holdfast.triggers.starting import Occasion
from holdfast.values import Millis
from tests.triggers.scheduled import cron

PAYLOAD = {
    "path": "/a b",
    "n": 5,
    "ok": True,
    "none": None,
    "o": {"a": 1},
    "items": [{"name": "x"}, 7],
    "0": "zero",
    "t": "{{trigger.kind}}",
}
TRIGGER = {
    "payload": PAYLOAD,
    "schedule_id": "s",
    "workflow": "w",
    "kind": "webhook",
    "scheduled_at": "2026-03-29T01:00:00Z",
    "fired_at": "2026-03-29T01:00:01Z",
    "is_catchup": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("{{trigger.payload.path}}", "/a b"),
        ("{{trigger.payload.n}}", 5),  # one placeholder keeps the type
        (" {{ trigger.payload.ok }}\n", True),
        ("{{trigger.payload.none}}", None),
        ("{{trigger.payload.o}}", {"a": 1}),
        ("{{trigger.payload}}", PAYLOAD),
        ("{{trigger.payload.items.0.name}}", "x"),
        ("{{trigger.payload.items.1}}", 7),
        ("{{trigger.payload.0}}", "zero"),  # a number reaches a key of an object too
        ("{{trigger.schedule_id}}/{{trigger.workflow}}", "s/w"),
        ("{{trigger.kind}} {{trigger.scheduled_at}} {{trigger.fired_at}}", "webhook 2026-03-29T01:00:00Z 2026-03-29T01:00:01Z"),
        ("{{trigger.is_catchup}}", False),
        ("n={{trigger.payload.n}} ok={{trigger.payload.ok}} {{trigger.payload.none}} {{trigger.payload.o}}", 'n=5 ok=true null {"a":1}'),
        ("{{trigger.payload.n}}{{trigger.payload.n}}", "55"),  # two are a text
        ("{{trigger.payload.t}}", "{{trigger.kind}}"),  # what was filled in is not looked at again
        ("x {{trigger.payload.t}}", "x {{trigger.kind}}"),
        ("{{ unterminated", "{{ unterminated"),
        ("a {{trigger.payload.n}} {{ b", "a 5 {{ b"),
    ],
)  # fmt: skip
def test_a_placeholder_is_filled_in(text: str, value: Any) -> None:
    assert render(text, TRIGGER) == Rendered(value)


@pytest.mark.parametrize(
    ("text", "value", "unresolved"),
    [
        ("{{trigger.payload.gone}}", "{{trigger.payload.gone}}", ("trigger.payload.gone",)),
        (" {{ trigger.nope }} ", " {{ trigger.nope }} ", ("trigger.nope",)),  # alone: as it was
        ("a {{ trigger.nope }}", "a {{trigger.nope}}", ("trigger.nope",)),  # within a text: trimmed
        ("{{inputs.x}} {{inputs.x}}", "{{inputs.x}} {{inputs.x}}", ("inputs.x",)),
        ("{{trigger}}", "{{trigger}}", ("trigger",)),
        ("{{}}", "{{}}", ("",)),
        ("{{trigger.payload.items.9}}", "{{trigger.payload.items.9}}", ("trigger.payload.items.9",)),
        ("{{trigger.payload.items.-1}}", "{{trigger.payload.items.-1}}", ("trigger.payload.items.-1",)),
        ("{{trigger.payload.path.x}}", "{{trigger.payload.path.x}}", ("trigger.payload.path.x",)),
    ],
)
def test_a_placeholder_that_leads_nowhere_stays_and_is_reported(
    text: str, value: str, unresolved: tuple[str, ...]
) -> None:
    assert render(text, TRIGGER) == Rendered(value, unresolved)


def test_the_payload_of_a_clock_is_empty() -> None:
    trigger = {**TRIGGER, "payload": {}}
    assert render({"all": "{{trigger.payload}}", "one": "{{trigger.payload.x}}"}, trigger) == Rendered(
        {"all": {}, "one": "{{trigger.payload.x}}"}, ("trigger.payload.x",)
    )


def test_texts_in_objects_and_lists_are_filled_in_and_keys_are_not() -> None:
    inputs = {"{{trigger.kind}}": [{"a": "{{trigger.kind}}"}, 5, None]}
    assert render(inputs, TRIGGER).value == {"{{trigger.kind}}": [{"a": "webhook"}, 5, None]}


def test_a_payload_that_is_not_an_object_is_reached_too() -> None:
    assert render("{{trigger.payload.1}}", {"payload": [1, 2]}).value == 2
    assert render("{{trigger.payload}}", {"payload": 3}).value == 3


@pytest.mark.parametrize("text", ["{{trigger.payload}}", "x{{trigger.payload}}"])
def test_what_is_filled_in_is_counted_each_time(text: str) -> None:
    with pytest.raises(LimitExceeded):
        render([text] * 1_000, {"payload": ["y" * 100_000]})


@given(st.text("{} trige.payload\n0"), st.text(max_size=5))
def test_any_text_is_rendered(text: str, payload: str) -> None:
    rendered = render(text, {"payload": payload})
    if "{{" not in text:
        assert rendered == Rendered(text)


def test_many_open_braces_take_no_time() -> None:
    text = "{{" * 100_000
    assert render(text, TRIGGER).value == text


def test_every_name_that_a_placeholder_may_have_is_filled_in() -> None:
    by = TriggeredBy("s", "cron", "x", Millis(0), False, "")
    occasion = Occasion("default", cron(), by, Millis(0))
    assert tuple(occasion.trigger) == NAMES


def test_a_long_text_is_rendered_and_not_kept() -> None:
    kept = template.parsed_once.cache_info().currsize
    value = render("x" * template.KEPT_CHARS_MAX + "{{trigger.payload.n}}", TRIGGER).value
    assert value == "x" * template.KEPT_CHARS_MAX + "5"
    assert template.parsed_once.cache_info().currsize == kept
