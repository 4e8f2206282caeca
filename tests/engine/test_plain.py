"""Plain rows: the success of a call and the start of the next one, without an event and a decision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.engine.codec import INLINE_BYTES_MAX, encode_row
from holdfast.engine.events import AttemptReleased, StepSucceeded
from holdfast.engine.plain import is_straight, pass_on
from holdfast.engine.state import Run
from holdfast.engine.step import step
from holdfast.plan.graph import Call
from holdfast.values import Millis, encode
from tests.engine.driver import BEGAN, Case

CHAIN = """
name: chain
inputs: {who: {type: string}}
steps:
  - {id: a, tool: t, args: {who: "{{inputs.who}}"}}
  - {id: b, tool: t, args: {given: "{{a.output}}"}}
  - {id: c, tool: t, args: {}}
"""
AT = Millis(BEGAN + 5)


def begun(who: Any = "me") -> Case:
    case = Case(CHAIN, {"who": who})
    case.start()
    return case


def passed_on(case: Case, output: bytes, ran_ms: int = 0) -> tuple[str | None, Run]:
    """The row of the success of `a`, and the run after it, which is a copy."""
    run = msgspec.json.decode(msgspec.json.encode(case.run), type=Run)
    way = case.plan.root.plain["a"]
    assert is_straight(run, "a", case.epoch)
    return pass_on(case.plan, run, way, "a", output, ran_ms, AT), run


@pytest.mark.parametrize(("output", "ran_ms"), [(b"17", 0), ('{"text":"\u00e9\u4e2d"}'.encode(), 1_234)])
def test_a_plain_row_is_the_row_of_its_event_and_its_decision(output: bytes, ran_ms: int) -> None:
    case = begun()
    body, run = passed_on(case, output, ran_ms)
    event = StepSucceeded("a", 1, msgspec.Raw(output), ran_ms)
    decisions, _ = step(case.plan, case.run, event, AT, case.epoch)
    assert body == encode_row(event, decisions)[0]
    assert msgspec.json.encode(run) == msgspec.json.encode(case.run)


@pytest.mark.parametrize("output", [b'{"$blob":1}', b'"%b"' % (b"x" * INLINE_BYTES_MAX)])
def test_a_value_that_may_be_stored_elsewhere_or_looks_like_a_reference_makes_no_plain_row(
    output: bytes,
) -> None:
    case = begun()
    before = msgspec.json.encode(case.run)
    body, run = passed_on(case, output)
    assert body is None
    assert msgspec.json.encode(run) == before


@pytest.mark.parametrize(
    ("args", "is_short"),
    [
        ("{}", True),
        ('{who: "{{inputs.who}}"}', True),
        ('{a: ["{{inputs.who}}", "{{inputs.n}}"], "$b": "{{inputs.missing}}"}', True),
        ('{who: "{{inputs.large}}"}', False),
        ('{who: "{{inputs.list}}", n: "{{inputs.n}}"}', False),
    ],
)
def test_arguments_of_short_inputs_are_what_the_general_way_renders(args: str, is_short: bool) -> None:
    given = {"who": 'a"$\u4e2d', "n": 3, "large": "x" * 2_000, "list": [{"$of": 1}], "missing": None}
    names = ", ".join(f"{name}: {{}}" for name in given)
    case = Case(f"name: n\ninputs: {{{names}}}\nsteps: [{{id: a, tool: t, args: {args}}}]", given)
    call = case.plan.root.nodes["a"]
    assert isinstance(call, Call) and call.of_inputs is not None
    text = call.of_inputs(given)
    assert (text is not None) == is_short
    case.start()
    assert text in (None, bytes(case.run.steps["a"].inputs))


def test_arguments_of_anything_else_have_no_short_way() -> None:
    assert [
        node.of_inputs is None for node in begun().plan.root.nodes.values() if isinstance(node, Call)
    ] == [
        False,
        True,
        False,
    ]


def test_a_run_in_which_a_call_was_given_back_is_not_straight_until_the_next_one() -> None:
    case = begun()
    case.apply(AttemptReleased("a", 1, "no_tool", waits=True))
    assert not is_straight(case.run, "a", case.epoch)
    assert encode(case.run.steps["a"].attempt) == b"1"
