"""Timer steps: due times from numbers, templates and instants, and what firing gives."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.engine.events import TimerFired
from tests.engine.driver import BEGAN, Case, armed, finish, starts

THEN = "{id: after, tool: t, args: {at: '{{ w.fired_at }}'}}"


def timer(keys: str, inputs: dict[str, Any] | None = None) -> Case:
    return Case(f"name: n\nsteps: [{{id: w, kind: timer, {keys}}}, {THEN}]", inputs)


@pytest.mark.parametrize(
    ("keys", "inputs", "due"),
    [
        ("delay_ms: 1500", {}, BEGAN + 1500),
        ("delay_ms: '{{ inputs.d }}'", {"d": 250}, BEGAN + 250),
        ("delay_ms: '{{ inputs.d }}'", {"d": "250"}, BEGAN + 250),
        ("delay_ms: '{{ inputs.d }}'", {"d": 0.6}, BEGAN + 1),
        ("until: '2030-01-01T00:00:00Z'", {}, 1_893_456_000_000),
        ("until: '2030-01-01T02:00:00+02:00'", {}, 1_893_456_000_000),
        ("until: 1893456000", {}, 1_893_456_000_000),  # seconds
        ("until: 1893456000000", {}, 1_893_456_000_000),  # milliseconds
        ("until: '{{ inputs.at }}'", {"at": "2030-01-01T00:00:00.250Z"}, 1_893_456_000_250),
    ],
)
def test_a_timer_is_due_when_its_definition_says(keys: str, inputs: dict[str, Any], due: int) -> None:
    case = timer(keys, inputs)
    assert armed(case.start()) == {"delay w": due}
    assert (case.run.status, case.run.wake_at) == ("waiting", due)


def test_a_fired_timer_gives_the_time_of_its_firing_and_the_run_goes_on() -> None:
    case = timer("delay_ms: 1500")
    case.start()
    assert starts(case.fire("delay", "w")) == ["after"]
    assert case.args("after") == {"at": "2023-11-14T22:13:21.500Z"}


@pytest.mark.parametrize("keys", ["delay_ms: 0", "until: 1000", "until: '2001-01-01T00:00:00Z'"])
def test_a_timer_that_is_due_already_takes_no_row_of_its_own(keys: str) -> None:
    case = timer(keys)
    assert starts(case.start()) == ["after"]


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ("delay_ms: '{{ inputs.v }}'", "soon"),
        ("delay_ms: '{{ inputs.v }}'", None),
        ("delay_ms: '{{ inputs.v }}'", [1]),
        ("delay_ms: '{{ inputs.v }}'", "inf"),
        ("delay_ms: '{{ inputs.v }}'", "nan"),
        ("delay_ms: '{{ inputs.v }}'", 1e300),
        ("until: '{{ inputs.v }}'", "2030-01-01T00:00:00"),  # without a zone it is no instant
        ("until: '{{ inputs.v }}'", "inf"),
        ("until: '{{ inputs.v }}'", 1e300),
        ("until: '{{ inputs.v }}'", {"year": 2030}),
    ],
)
def test_a_timer_whose_time_is_no_time_fails_its_step(keys: str, value: Any) -> None:
    end = finish(timer(keys, {"v": value}).start())
    assert end.status == "failed"
    assert end.error is not None and (end.error.kind, end.error.path) in [("template", "w"), ("limit", "w")]


def test_a_timer_that_fires_twice_is_heard_once() -> None:
    case = timer("delay_ms: 10")
    case.start()
    case.fire("delay", "w")
    assert case.apply(TimerFired("w", "delay")) == []
    assert case.open == ["after"]


def test_a_timer_survives_a_takeover_unchanged() -> None:
    case = timer("delay_ms: 60000")
    case.start()
    case.wait(1_000)
    case.crash()
    assert case.run.timers == {"delay w": BEGAN + 60_000}
