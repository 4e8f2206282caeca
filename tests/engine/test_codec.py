"""Rows and snapshots as text and back: nothing is lost, large values stand elsewhere, no value passes for a reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.engine import decisions as orders
from holdfast.engine import events as facts
from holdfast.engine.codec import (
    INLINE_BYTES_MAX,
    SNAPSHOT_PART_BYTES_MAX,
    blob_of,
    decode_parts,
    decode_row,
    encode_parts,
    encode_row,
)
from holdfast.engine.decisions import Decision
from holdfast.engine.events import Event
from holdfast.engine.state import Run
from holdfast.values import Error, Millis, encode, sha256
from tests.engine.driver import Case, state_of

CAUSE = Error("timeout", 'it said "no"', "p[1].b", 3, Error("error", "é \U0001f600 \n", "x"))
RAW = msgspec.Raw(b'{"a":[1,2.5,null,"\\u0000"]}')

EVENTS: list[Event] = [
    facts.RunStarted(RAW, False, {"HOME": None}, {"a": RAW}, "b", {"x": RAW}),
    facts.Adopted(["a", "b[1].c"], "a", False),
    facts.StepSucceeded("a", 2, RAW, 17, ("worker-1", "http://127.0.0.1:8080")),
    facts.StepFailed("a", 2, CAUSE, 17, ("worker-1", "")),
    facts.AttemptTimedOut("a", 2),
    facts.AttemptReleased("a", 2, "no_tool"),
    facts.AttemptReleased("a", 2, "no_worker", True, 1),
    facts.Supplied(["a", "b[1].c"]),
    facts.SuspectsTurn("a"),
    facts.TimerFired("a", "retry"),
    facts.CancelRequested("enough"),
    facts.Continued(),
    facts.KeyGranted("a"),
    facts.KeyHeld("a"),
    facts.KeyAnswered("a", RAW),
    facts.StepPaused("a", 2, "T9", "http://x/9", 3.5, 17, ("worker-1", "")),
    facts.CallbackReceived("a", 2, RAW, CAUSE, "poll"),
    facts.SignalReceived("go", RAW, "order-7"),
    facts.ApprovalAnswered("a", True, "fine", "Ada", RAW),
]
DECISIONS: list[Decision] = [
    orders.StartAttempt("a", 3, RAW, 2, True),
    orders.ReserveKey("a", "order-7", True, RAW, 1),
    orders.StopAttempt("a", "p"),
    orders.BeginStop("p", CAUSE, True),
    orders.SetGuard("p", "final", CAUSE, True),
    orders.NoteUndo("a", RAW),
    orders.BeginEnd("cancelled", CAUSE),
    orders.Undo("a"),
    orders.ArmTimer("a", "grace", Millis(1_700_000_000_000)),
    orders.OpenScope("p", 4, RAW, RAW, 1, True, True),
    orders.CompleteStep("p", RAW, 1, True, True),
    orders.FailStep("p", CAUSE),
    orders.OpenWait("a", "callback", "T9", Millis(1_700_000_000_000), RAW, 1),
    orders.NoteAnswer("a", "go", RAW),
    orders.KeepSignal("go", RAW, "order-7"),
    orders.TakeSignal(3),
    orders.Poll("a", 2),
    orders.SetVar("s", "x", RAW),
    orders.Take("a", "go", "b", 2),
    orders.Continue([("fill", "p", ""), ("enter", "q", "r")]),
    orders.FinishRun("failed", RAW, CAUSE, True),
]


def test_every_kind_of_event_and_decision_is_tried_here() -> None:
    assert {type(event) for event in EVENTS} == set(Event.__args__)
    assert {type(decision) for decision in DECISIONS} == set(Decision.__args__)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_row_comes_back_as_it_was_written(event: Event) -> None:
    body, blobs = encode_row(event, DECISIONS)
    assert (decode_row(body), blobs) == ((event, DECISIONS), [])


def test_a_body_is_json_that_begins_with_its_format() -> None:
    body, _ = encode_row(facts.Continued(), [])
    assert msgspec.json.decode(body) == [1, ["continued"], []]


def test_a_row_of_a_release_that_knew_fewer_fields_can_be_read() -> None:
    event, decisions = decode_row('[1,["step_succeeded","a",1,5],[["start","b",1]]]')
    assert event == facts.StepSucceeded("a", 1, msgspec.Raw(b"5"))
    assert decisions == [orders.StartAttempt("b", 1)]


def test_a_row_of_a_release_that_knew_more_fields_can_be_read() -> None:
    event, _ = decode_row('[1,["step_succeeded","a",1,5,7,["w"],"something new"],[]]')
    assert event == facts.StepSucceeded("a", 1, msgspec.Raw(b"5"), 7, ("w",))


# -------------------------------------------------------------------------------------------------------- blobs


def text_of(size: int) -> msgspec.Raw:
    return msgspec.Raw(encode("x" * (size - 2)))


def test_a_value_of_32_kib_stands_in_the_row() -> None:
    body, blobs = encode_row(facts.StepSucceeded("a", 1, text_of(INLINE_BYTES_MAX)), [])
    assert (len(body) > INLINE_BYTES_MAX, blobs) == (True, [])


def test_a_larger_value_stands_elsewhere_and_the_row_names_it() -> None:
    value = text_of(INLINE_BYTES_MAX + 1)
    body, blobs = encode_row(facts.StepSucceeded("a", 1, value), [orders.CompleteStep("b", value, 1)])
    assert blobs == [(sha256(bytes(value)), bytes(value))]
    assert len(body) < 500
    event, (order,) = decode_row(body)
    assert isinstance(event, facts.StepSucceeded) and isinstance(order, orders.CompleteStep)
    assert blob_of(event.output) == blob_of(order.value) == blobs[0][0]


def test_many_small_values_of_a_large_row_stay_in_it() -> None:
    starts: list[Decision] = [orders.StartAttempt(f"a[{n}]", 1, text_of(1_000)) for n in range(100)]
    body, blobs = encode_row(facts.Continued(), starts)
    assert (decode_row(body)[1], blobs) == (starts, [])


@pytest.mark.parametrize(
    "value",
    [
        {"$blob": "0" * 64},
        {"$blob": "short"},
        {"$blob": None, "more": 1},
    ],
)
def test_a_value_that_looks_like_a_reference_comes_back_as_itself(value: Any) -> None:
    text = encode(value)
    body, blobs = encode_row(facts.StepSucceeded("a", 1, msgspec.Raw(text)), [])
    event, _ = decode_row(body)
    assert isinstance(event, facts.StepSucceeded)
    found = blob_of(event.output)
    assert found is not None and dict(blobs)[found] == text


@pytest.mark.parametrize("value", [{"a": {"$blob": "x"}}, ['{"$blob":"x"}'], "$blob", {"blob": 1}])
def test_a_value_that_only_holds_such_a_thing_stays_in_the_row(value: Any) -> None:
    body, blobs = encode_row(facts.StepSucceeded("a", 1, msgspec.Raw(encode(value))), [])
    event, _ = decode_row(body)
    assert isinstance(event, facts.StepSucceeded)
    assert (blob_of(event.output), msgspec.json.decode(event.output), blobs) == (None, value, [])


NAMED = """
name: n
steps:
  - {id: a, tool: t}
  - {id: loop, kind: foreach, items: $.inputs.xs, concurrency: 9, steps: [{id: s, tool: t, args: {a: "{{ a }}"}}]}
  - {id: after, tool: t, args: {all: "{{ loop }}"}}
"""


def test_a_run_with_large_values_folds_to_the_same_state_from_its_rows() -> None:
    """The driver compares after every row, counters of kept bytes included."""
    case = Case(NAMED, {"xs": ["y" * 40_000, 2]})
    case.start()
    case.succeed("a", "x" * 50_000)
    case.succeed("loop[0].s", "z" * 60_000)
    case.succeed("loop[1].s")
    assert case.run.kept_bytes > 110_000


# ---------------------------------------------------------------------------------------------------- snapshots


def rebuilt(parts: list[tuple[int, bytes]]) -> Run:
    return decode_parts(sorted(parts))


def many_outputs() -> Case:
    case = Case(NAMED, {"xs": list(range(9))})
    case.start()
    case.succeed("a", {"big": "x" * 2_000})
    return case


def test_a_snapshot_gives_the_run_back() -> None:
    case = many_outputs()
    case.succeed("loop[3].s", [1, {"$x": None}])
    assert state_of(rebuilt(encode_parts(case.run))) == state_of(case.run)


def test_a_run_goes_on_from_a_snapshot_as_from_its_rows() -> None:
    case = many_outputs()
    case.succeed("loop[3].s", 3)
    case.run = rebuilt(encode_parts(case.run))
    for index in (0, 1, 2, 4, 5, 6, 7, 8):
        case.succeed(f"loop[{index}].s", index)
    got = case.args("after")["all"]["iterations"]
    assert got == [{"s": index} for index in range(9)]


def test_a_finished_output_is_written_once_over_many_snapshots() -> None:
    case = many_outputs()
    written: dict[int, bytes] = {}
    for index in range(8):  # the ninth would start the step that names them all
        case.succeed(f"loop[{index}].s", f"the output {index}")
        fresh = encode_parts(case.run)
        assert all(number == 0 or number not in written for number, _ in fresh)
        written.update(fresh)
    text = b"".join(body for number, body in written.items())
    assert [text.count(f"the output {index}".encode()) for index in range(8)] == [1] * 8
    assert state_of(rebuilt(list(written.items()))) == state_of(case.run)


def test_a_snapshot_taken_again_after_loading_one_repeats_nothing() -> None:
    case = many_outputs()
    first = encode_parts(case.run)
    again = encode_parts(rebuilt(first))
    assert [number for number, _ in again] == [0]


def test_parts_of_finished_outputs_are_bounded() -> None:
    case = Case(NAMED, {"xs": list(range(400))}, checks=False)
    case.start()
    case.succeed("a")
    for index in range(400):
        case.succeed(f"loop[{index}].s", "x" * 10_000)
    parts = encode_parts(case.run)
    assert len(parts) > 3
    assert max(len(body) for number, body in parts if number) <= SNAPSHOT_PART_BYTES_MAX + 20_000


def test_outputs_of_frames_that_closed_since_are_passed_over() -> None:
    case = Case(
        NAMED.replace('- {id: after, tool: t, args: {all: "{{ loop }}"}}', "- {id: after, tool: t}"),
        {"xs": [1, 2]},
    )
    case.start()
    case.succeed("a", 1)
    parts = dict(encode_parts(case.run))
    case.succeed("loop[0].s", "gone")
    case.succeed("loop[1].s", "gone")
    parts.update(encode_parts(case.run))
    assert state_of(rebuilt(list(parts.items()))) == state_of(case.run)


@pytest.mark.parametrize("at", range(6))
def test_a_snapshot_while_something_is_being_stopped_gives_the_run_back(at: int) -> None:
    case = Case(
        """
        name: n
        timeout_secs: 99
        steps:
          - id: p
            kind: parallel
            steps:
              - {id: a, tool: t, timeout_secs: 1, retry: {max_attempts: 2, jitter: 0.5}}
              - {id: b, tool: t}
              - {id: w, kind: timer, delay_ms: 5000}
        """
    )
    moves: list[Callable[[], Any]] = [
        case.start,
        lambda: case.time_out("p[0].a"),
        lambda: case.fire("grace", "p[0].a"),
        lambda: case.fail("p[1].b"),
        case.cancel,
        lambda: case.crash(drive=False),
    ]
    for move in moves[: at + 1]:
        move()
    assert state_of(rebuilt(encode_parts(case.run))) == state_of(case.run)


def test_a_snapshot_holds_a_value_that_looks_like_a_reference_as_what_it_is() -> None:
    """Whoever loads a snapshot looks for references in it: the user's own must not be taken for one."""
    case = Case(NAMED, {"xs": [1]})
    case.start()
    case.succeed("a", {"$blob": "mine"})
    kept = rebuilt(encode_parts(case.run)).frames[""].outputs["a"]
    reference = blob_of(kept)
    assert reference is None or reference == sha256(b'{"$blob":"mine"}')
