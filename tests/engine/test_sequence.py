"""Steps one after another: order, outputs, failure, and what comes late."""

from __future__ import annotations

import pytest

from holdfast.engine.decisions import FinishRun, StartAttempt
from holdfast.engine.events import StepSucceeded
from holdfast.values import NULL
from tests.engine.driver import Case, finish, starts

TWO = """
name: two
steps:
  - {id: a, tool: one}
  - {id: b, tool: two, args: {seen: "{{ steps.a.output }}"}}
"""


def test_a_run_begins_with_its_first_step_alone() -> None:
    case = Case(TWO)
    assert starts(case.start()) == ["a"]


def test_the_next_step_starts_in_the_row_of_the_one_before() -> None:
    case = Case(TWO)
    case.start()
    assert starts(case.succeed("a", {"n": 1})) == ["b"]
    assert case.args("b") == {"seen": {"n": 1}}


def test_a_run_ends_completed_in_the_row_of_its_last_step() -> None:
    case = Case(TWO)
    case.start()
    case.succeed("a", 1)
    assert case.succeed("b", 2) == [FinishRun("completed")]
    assert case.run.status == "completed"
    assert case.output() == {"a": 1, "b": 2}


def test_a_plain_step_costs_one_row() -> None:
    case = Case(TWO)
    case.start()
    case.succeed("a")
    case.succeed("b")
    assert [kind for _, _, _, kind, _ in case.rows] == ["run_started", "step_succeeded", "step_succeeded"]


def test_a_run_of_calls_alone_is_written_in_plain_rows() -> None:
    case = Case(TWO)
    case.start()
    case.succeed("a")
    case.succeed("b")
    assert case.plain_rows == 3


def test_the_first_failure_fails_the_run_and_nothing_follows() -> None:
    case = Case(TWO)
    case.start()
    end = finish(case.fail("a", message="broken"))
    assert (end.status, end.error and end.error.kind, end.error and end.error.message) == (
        "failed",
        "error",
        "broken",
    )
    assert end.error is not None and (end.error.path, end.error.attempt) == ("a", 1)


@pytest.mark.parametrize("attempt", [0, 2, 7])
def test_the_answer_of_another_attempt_is_late(attempt: int) -> None:
    case = Case(TWO)
    case.start()
    assert case.apply(StepSucceeded("a", attempt, NULL)) == []
    assert case.open == ["a"]


def test_an_answer_after_the_end_decides_nothing() -> None:
    case = Case(TWO)
    case.start()
    case.fail("a")
    assert case.apply(StepSucceeded("a", 1, NULL)) == []
    assert case.run.status == "failed"


def test_an_answer_for_a_step_that_never_was_is_late() -> None:
    case = Case(TWO)
    case.start()
    assert case.apply(StepSucceeded("nowhere[3].x", 1, NULL)) == []
    assert case.open == ["a"]


def test_a_run_that_is_only_accepted_starts_nothing_until_it_is_taken_up() -> None:
    case = Case(TWO)
    assert case.start(drive=False) == []
    assert not case.run.begun
    assert starts(case.crash()) == ["a"]
    assert case.run.status == "running"


def test_inputs_are_rendered_before_the_start_is_written() -> None:
    case = Case(
        "name: n\ninputs: {x: {type: integer}}\nsteps: [{id: a, tool: t, args: {x: '{{ x }}'}}]", {"x": 4}
    )
    (start,) = case.start()
    assert isinstance(start, StartAttempt) and bytes(start.inputs) == b'{"x":4}'


def test_a_template_that_cannot_be_rendered_fails_the_step_without_an_attempt() -> None:
    """A value nested 60 deep fits by itself, and not inside eight more levels."""
    deep: object = 1
    for _ in range(60):
        deep = [deep]
    args = "{a: {b: {c: {d: {e: {f: {g: {h: '{{ inputs.deep }}'}}}}}}}}"
    case = Case(
        f"name: n\nsteps: [{{id: s, tool: t, args: {args}, retry: {{max_attempts: 5}}}}]", {"deep": deep}
    )
    end = finish(case.start())
    assert end.error is not None and (end.error.kind, end.error.path, end.error.attempt) == (
        "template",
        "s",
        0,
    )


def test_ids_with_other_characters_are_quoted_in_paths() -> None:
    case = Case(
        """
        name: odd
        steps:
          - {id: "a.b", tool: t}
          - {id: "x[1]", tool: t}
          - id: "say \\"hi\\""
            kind: foreach
            items: $.inputs.xs
            steps: [{id: "~2", tool: t}]
        """,
        {"xs": [1, 2]},
    )
    assert starts(case.start()) == ['["a.b"]']
    assert starts(case.succeed('["a.b"]')) == ['["x[1]"]']
    assert starts(case.succeed('["x[1]"]')) == [r'["say \"hi\""][0].["~2"]']
    assert starts(case.succeed(r'["say \"hi\""][0].["~2"]')) == [r'["say \"hi\""][1].["~2"]']
    assert finish(case.succeed(r'["say \"hi\""][1].["~2"]')).status == "completed"


def test_an_explicit_output_is_rendered_when_the_run_ends() -> None:
    case = Case("name: n\nsteps: [{id: a, tool: t}]\noutput: {sum: '{{ a.n }}', all: ['{{ a }}']}")
    case.start()
    assert bytes(finish(case.succeed("a", {"n": 3})).output) == b'{"sum":3,"all":[{"n":3}]}'


def test_an_output_that_cannot_be_rendered_fails_the_run_with_kind_template() -> None:
    deep: object = 1
    for _ in range(60):
        deep = [deep]
    output = "{a: {b: {c: {d: {e: {f: {g: {h: '{{ inputs.deep }}'}}}}}}}}"
    case = Case(f"name: n\nsteps: [{{id: s, tool: t}}]\noutput: {output}", {"deep": deep})
    case.start()
    end = finish(case.succeed("s"))
    assert (end.status, end.error and end.error.kind) == ("failed", "template")
