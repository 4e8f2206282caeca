"""Waiting for others: an answer may come in time, early, twice, late or never, and ends its wait exactly once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.engine.decisions import KeepSignal, Poll
from holdfast.values import decode
from tests.engine.driver import Case, armed, failures, finish, starts

CALL = """
name: w
steps:
  - {id: a, tool: t, RULES}
  - {id: b, tool: t, args: {x: "{{ a }}"}}
"""


def begun(definition: str, inputs: dict[str, Any] | None = None, **options: Any) -> Case:
    case = Case(definition, inputs, **options)
    case.start()
    return case


def paused(rules: str = "", poll_url: str = "") -> Case:
    case = begun(CALL.replace(", RULES", rules and f", {rules}"))
    case.pause("a", "T1", poll_url)
    return case


def outcomes(case: Case) -> list[tuple[str, str | None]]:
    return [(work.path, work.outcome) for work in case.wait_work()]


# ------------------------------------------------------------------------------------------------- callbacks


def test_a_call_that_will_be_answered_later_waits_and_nothing_follows() -> None:
    case = paused()
    assert (case.run.status, case.open, case.step("a").state) == ("waiting", [], "waiting")
    assert outcomes(case) == [("a", None)]


def test_the_later_answer_is_the_output_as_if_it_had_come_at_once() -> None:
    case = paused()
    assert starts(case.call_back("a", {"n": 5})) == ["b"]
    assert case.args("b") == {"x": {"n": 5}}
    assert outcomes(case) == [("a", None), ("a", "resume")]
    assert case.run.timers == {}


def test_an_answer_that_comes_first_is_kept_and_taken_by_the_pause() -> None:
    case = begun(CALL.replace(", RULES", ""))
    assert case.call_back("a", 7) == []
    assert starts(case.pause("a")) == ["b"]
    assert case.args("b") == {"x": 7}


def test_an_answer_that_comes_first_is_late_if_the_call_answers_after_all() -> None:
    case = begun(CALL.replace(", RULES", ""))
    case.call_back("a", "early")
    case.succeed("a", "itself")
    assert case.args("b") == {"x": "itself"}


def test_a_second_answer_changes_nothing() -> None:
    case = paused()
    case.call_back("a", 1)
    assert case.call_back("a", 2, attempt=1) == []
    assert case.args("b") == {"x": 1}


def test_an_answer_of_a_former_attempt_changes_nothing() -> None:
    case = paused("retry: {max_attempts: 2, initial_delay_ms: 0}")
    case.call_back("a", error="no")
    assert case.open == ["a"]
    assert case.call_back("a", "late", attempt=1) == []
    assert case.open == ["a"]


def test_an_answer_that_is_a_failure_is_retried_as_the_policy_says_and_then_fails_the_step() -> None:
    case = paused("retry: {max_attempts: 2, initial_delay_ms: 100}")
    assert armed(case.call_back("a", error="no")) == {"retry a": case.now + 100}
    case.fire("retry", "a")
    case.pause("a", "T2")
    assert finish(case.call_back("a", error="never")).status == "failed"


def test_without_an_answer_in_its_time_the_step_fails() -> None:
    case = paused("pending_ttl_secs: 5")
    assert list(case.run.timers.values()) == [case.now + 5000]
    end = finish(case.fire("expiry", "a"))
    assert end.error is not None and end.error.kind == "resume_timeout"
    assert outcomes(case) == [("a", None), ("a", "expired")]


def test_an_answer_is_waited_for_a_day_where_nothing_is_said() -> None:
    assert list(paused().run.timers.values()) == [paused().now + 86_400_000]


def test_a_wait_that_is_over_may_be_tried_again() -> None:
    case = paused("pending_ttl_secs: 5, retry: {max_attempts: 2, initial_delay_ms: 0}")
    assert starts(case.fire("expiry", "a")) == ["a"]


def test_a_cancelled_run_ends_its_waits_at_once() -> None:
    case = paused()
    assert finish(case.cancel()).status == "cancelled"
    assert outcomes(case) == [("a", None), ("a", "cancelled")]


def test_a_pause_of_an_attempt_that_was_asked_to_stop_is_its_answer() -> None:
    case = begun(CALL.replace(", RULES", ""))
    case.cancel()
    assert finish(case.pause("a")).status == "cancelled"


def test_a_wait_survives_the_process() -> None:
    case = paused()
    assert starts(case.crash()) == []
    case.call_back("a", 3)
    assert case.args("b") == {"x": 3}


def test_the_answer_that_is_kept_survives_a_process_that_did_not_drive() -> None:
    case = begun(CALL.replace(", RULES", ""))
    case.call_back("a", 7)
    assert case.step("a").parked is not None
    assert case.replayed().steps["a"].parked is not None


def test_items_of_a_loop_wait_each_for_themselves() -> None:
    loop = "{name: l, steps: [{id: f, kind: foreach, items: $.inputs.xs, concurrency: 2, steps: [{id: s, tool: t}]}]}"
    case = begun(loop, {"xs": [1, 2, 3]})
    case.pause("f[0].s", "T0")
    assert case.run.status == "running"
    case.succeed("f[1].s", "b")
    assert case.open == ["f[2].s"]
    case.call_back("f[0].s", "a")
    finish(case.succeed("f[2].s", "c"))
    assert case.output()["f"] == {"iterations": [{"s": "a"}, {"s": "b"}, {"s": "c"}]}


def test_aborting_a_loop_ends_the_waits_in_it() -> None:
    loop = "{name: l, steps: [{id: f, kind: foreach, items: $.inputs.xs, concurrency: 2, steps: [{id: s, tool: t}]}]}"
    case = begun(loop, {"xs": [1, 2]})
    case.pause("f[0].s", "T0")
    finish(case.fail("f[1].s"))
    assert outcomes(case) == [("f[0].s", None), ("f[0].s", "cancelled")]
    assert (case.run.waits, case.run.timers) == (0, {})


# ---------------------------------------------------------------------------------------------------- polling


def polls(decisions: Any) -> list[tuple[str, int]]:
    return [(order.path, order.attempt) for order in decisions if isinstance(order, Poll)]


def test_a_poll_doubles_its_interval_up_to_the_limit() -> None:
    case = paused("poll: {interval_ms: 100, max_ms: 300}", "http://x/1")
    delays = []
    for _ in range(4):
        before = case.now
        decisions = case.fire("poll", "a")
        delays.append(case.now - before)
        assert polls(decisions) == [("a", 1)]
    assert delays == [100, 200, 300, 300]


def test_without_an_address_there_is_nothing_to_poll() -> None:
    assert "poll a" not in paused("poll: {interval_ms: 100, max_ms: 300}").run.timers


def test_when_the_time_is_over_the_address_is_asked_once_more() -> None:
    case = paused("pending_ttl_secs: 5", "http://x/1")
    assert polls(case.fire("expiry", "a")) == [("a", 1)]
    case.call_back("a", "at last")
    assert case.args("b") == {"x": "at last"}


def test_if_the_last_look_brings_nothing_the_step_fails() -> None:
    case = paused("pending_ttl_secs: 5", "http://x/1")
    case.fire("expiry", "a")
    assert finish(case.fire("expiry", "a")).status == "failed"


POLL = """
name: p
steps:
  - {id: p, kind: poll, tool: look, args: {id: 7}, until: $.done, interval_ms: 100, max_ms: 300, timeout_secs: 60}
  - {id: b, tool: t, args: {x: "{{ p }}"}}
"""


def test_a_poll_step_calls_until_the_answer_has_what_it_looks_for() -> None:
    case = begun(POLL)
    delays = []
    for number in ("", "~2", "~3"):
        assert case.args(f"p.call{number}") == {"id": 7}
        before = case.now
        case.succeed(f"p.call{number}", {"done": False})
        case.fire("delay", f"p.pause{number}")
        delays.append(case.now - before)
    assert delays == [100, 200, 300]
    case.succeed("p.call~4", {"done": True, "n": 5})
    assert case.args("b") == {"x": {"done": True, "n": 5}}


def test_a_poll_step_that_takes_too_long_fails_with_a_time_out() -> None:
    case = begun(POLL)
    case.succeed("p.call", {"done": False})
    end = finish(case.fire("deadline", "p"))
    assert end.error is not None and end.error.kind == "timeout"


def test_a_poll_step_fails_with_its_call() -> None:
    end = finish(begun(POLL).fail("p.call", "quota"))
    assert end.error is not None and end.error.kind == "quota"


# ---------------------------------------------------------------------------------------------------- signals


def waiting_for(rules: str) -> str:
    return f"""
name: s
steps:
  - {{id: first, tool: t}}
  - {{id: w, kind: wait_event, {rules}}}
  - {{id: b, tool: t, args: {{x: "{{{{ w }}}}"}}}}
"""


def at_the_wait(rules: str, inputs: dict[str, Any] | None = None) -> Case:
    case = begun(waiting_for(rules), inputs)
    case.succeed("first")
    return case


def test_a_signal_ends_the_wait_and_its_value_is_the_output() -> None:
    case = at_the_wait("signal_key: go")
    assert case.run.status == "waiting"
    case.signal("go", {"n": 1})
    assert case.args("b") == {"x": {"n": 1}}


def test_a_signal_sent_before_the_wait_is_kept_and_taken_once_the_oldest_first() -> None:
    case = begun(waiting_for("signal_key: go"))
    case.signal("go", 1)
    case.signal("go", 2)
    case.succeed("first")
    assert case.args("b") == {"x": 1}
    assert [decode(signal.value) for signal in case.run.signals] == [2]


def test_a_signal_of_another_name_is_kept() -> None:
    case = at_the_wait("signal_key: go")
    (kept,) = case.signal("stop", 1)
    assert isinstance(kept, KeepSignal)
    assert case.run.status == "waiting"


def test_any_of_several_signals_is_enough() -> None:
    case = at_the_wait("any: [yes, no]")
    case.signal("no", 0)
    assert case.args("b") == {"x": {"no": 0}}


def test_all_of_several_signals_are_gathered_from_before_and_after() -> None:
    case = begun(waiting_for("all: [left, right]"))
    case.signal("right", 2)
    case.succeed("first")
    assert case.run.status == "waiting"
    case.signal("right", 3)
    assert [decode(signal.value) for signal in case.run.signals] == [3]
    case.signal("left", 1)
    assert case.args("b") == {"x": {"right": 2, "left": 1}}


def test_only_a_signal_with_the_same_correlation_is_taken() -> None:
    case = at_the_wait('signal_key: paid, correlation: "{{ inputs.order }}"', {"order": 7})
    case.signal("paid", 1, "8")
    assert case.run.status == "waiting"
    case.signal("paid", 2, "7")
    assert case.args("b") == {"x": 2}


@pytest.mark.parametrize(
    ("correlation", "text"),
    [("7", "7"), ("true", "true"), ("{order: '{{ inputs.order }}', n: [1]}", '{"order":7,"n":[1]}')],
)
def test_a_correlation_that_is_no_text_is_the_text_of_its_json(correlation: str, text: str) -> None:
    case = at_the_wait(f"signal_key: paid, correlation: {correlation}", {"order": 7})
    case.signal("paid", 2, text)
    assert case.args("b") == {"x": 2}


def test_of_two_that_wait_the_one_that_waits_longer_gets_it() -> None:
    case = begun("""
name: two
steps:
  - id: p
    kind: parallel
    branches:
      - [{id: t, tool: t}, {id: late, kind: wait_event, signal_key: go}]
      - [{id: early, kind: wait_event, signal_key: go}]
""")
    case.wait(5)
    case.succeed("p[0].t")
    case.signal("go", "one")
    assert set(case.run.steps) == {"p[0].late"}
    finish(case.signal("go", "two"))


def test_of_many_that_wait_each_gets_what_is_meant_for_it_the_oldest_first() -> None:
    case = begun("""
name: many
steps:
  - id: p
    kind: parallel
    branches:
      - [{id: any, kind: wait_event, any: [go, gone]}]
      - [{id: paid, kind: wait_event, signal_key: go, correlation: "7"}]
      - [{id: both, kind: wait_event, all: [go, stay]}]
      - [{id: t, tool: t}, {id: late, kind: wait_event, signal_key: go}]
""")
    case.signal("other", 0)
    case.signal("go", 1, "8")
    assert set(case.run.steps) == {"p[1].paid", "p[2].both", "p[3].t"}
    case.signal("go", 2)  # to the one that needs another one too
    case.wait(5)
    case.succeed("p[3].t")
    case.signal("go", 3, "7")
    assert set(case.run.steps) == {"p[2].both", "p[3].late"}
    case.signal("go", 4, "7")
    assert set(case.run.steps) == {"p[2].both"}
    finish(case.signal("stay", 5))


def test_a_signal_that_does_not_come_in_time_is_a_time_out() -> None:
    case = at_the_wait("signal_key: go, timeout_secs: 5")
    end = finish(case.fire("expiry", "w"))
    assert end.error is not None and end.error.kind == "timeout"


# -------------------------------------------------------------------------------------------------- approvals


def gate(rules: str = "") -> Case:
    return begun(f"""
name: g
steps:
  - {{id: gate, kind: approve, prompt: "Pay {{{{ inputs.sum }}}}?"{rules and ", " + rules}}}
  - {{id: b, tool: t, args: {{x: "{{{{ gate }}}}"}}}}
""", {"sum": 5})  # fmt: skip


def test_an_approval_asks_and_waits() -> None:
    case = gate()
    wait = case.step("gate").wait
    assert wait is not None and decode(wait.detail)["prompt"] == "Pay 5?"


def test_an_answer_ends_it_and_later_ones_change_nothing() -> None:
    case = gate()
    case.approve("gate", reason="fine", by="Ada", form={"a": 1})
    assert case.args("b") == {"x": {"approved": True, "reason": "fine", "by": "Ada", "form": {"a": 1}}}
    assert case.approve("gate", False) == []


def test_a_denial_fails_the_step() -> None:
    end = finish(gate().approve("gate", False, "too much"))
    assert end.error is not None and end.error.message == "approval denied: too much"


def test_no_answer_in_time_is_a_denial() -> None:
    end = finish(gate("timeout_secs: 60").fire("expiry", "gate"))
    assert end.error is not None and end.error.message == "approval denied: timeout"


def test_several_must_agree_where_a_quorum_says_so() -> None:
    case = gate("quorum: {need: 2, of: [Ada, Bob, Eve]}")
    assert starts(case.approve("gate", by="Ada")) == []
    assert starts(case.approve("gate", False, by="Eve")) == []
    case.approve("gate", by="Bob")
    assert case.args("b")["x"]["approvers"] == ["Ada", "Bob"]


def test_a_quorum_that_cannot_be_reached_any_more_is_a_denial() -> None:
    case = gate("quorum: {need: 2, of: [Ada, Bob, Eve]}")
    case.approve("gate", False, by="Ada")
    assert finish(case.approve("gate", False, "no", by="Bob")).status == "failed"


def test_where_anybody_may_answer_one_yes_of_several_decides_nothing() -> None:
    case = gate("quorum: {need: 2}")
    assert starts(case.approve("gate", by="Ada")) == []
    case.approve("gate", by="Bob")
    assert case.args("b")["x"]["approvers"] == ["Ada", "Bob"]


def test_where_anybody_may_answer_one_no_is_a_denial() -> None:
    case = gate("quorum: {need: 2}")
    case.approve("gate", by="Ada")
    assert finish(case.approve("gate", False, by="Bob")).status == "failed"


def test_a_no_of_whom_it_was_escalated_to_takes_no_place_of_the_others() -> None:
    case = gate("quorum: {need: 2, of: [Ada, Bob, Eve]}, escalate: {after_secs: 60, to: Boss}")
    case.approve("gate", False, by="Ada")
    case.fire("escalate", "gate")
    case.approve("gate", False, by="Boss")
    case.approve("gate", by="Bob")
    case.approve("gate", by="Eve")
    assert case.args("b")["x"]["approvers"] == ["Bob", "Eve"]


def test_a_quorum_can_be_reached_by_whom_it_was_escalated_to() -> None:
    case = gate("quorum: {need: 2, of: [Ada, Bob, Eve]}, escalate: {after_secs: 60, to: Boss}")
    case.approve("gate", False, by="Ada")
    case.fire("escalate", "gate")
    case.approve("gate", False, by="Bob")
    case.approve("gate", by="Eve")
    case.approve("gate", by="Boss")
    assert case.args("b")["x"]["approvers"] == ["Eve", "Boss"]


# ------------------------------------------------------------------------------------------- waits in graphs


def graph(node: dict[str, Any], *edges: tuple[str, str]) -> str:
    others = {to: {"service": "work"} for _, to in edges}
    joined = [{"from": "w", "action": action, "to": to} for action, to in edges]
    return json.dumps({"name": "g", "start": "w", "nodes": {"w": node, **others}, "edges": joined})


WAIT = {"kind": "wait_event", "params": {"signal_key": "$shared.flag"}, "post": {"output_key": "got"}}
APPROVAL = {"kind": "approval", "params": {"approval_key": "$shared.ok"}}


def test_a_condition_that_holds_on_entry_is_not_waited_for() -> None:
    node = {**WAIT, "params": {"signal_key": "$params.flag"}}
    assert begun(graph(node, ("default", "b")), {"flag": "up"}).open == ["b"]


@pytest.mark.parametrize("value", [None, "", False])
def test_a_signal_that_says_nothing_does_not_end_the_wait(value: Any) -> None:
    case = begun(graph(WAIT, ("default", "b")))
    case.signal("flag", value)
    assert case.run.status == "waiting"


def test_a_signal_writes_its_key_and_wakes_the_node() -> None:
    case = begun(graph(WAIT, ("default", "b")))
    assert starts(case.signal("flag", 0)) == ["b"]
    assert decode(finish(case.succeed("b")).output) == {"flag": 0, "got": 0}


def test_a_wait_in_a_subflow_is_woken_in_its_own_shared_state() -> None:
    inner = {"start": "w", "nodes": {"w": WAIT}}
    case = begun(graph({"kind": "subflow", "subflow": inner, "post": {"output_key": "sub"}}))
    assert decode(finish(case.signal("flag", 1)).output)["sub"] == {"flag": 1, "got": 1}


def test_a_wait_that_takes_too_long_takes_the_timeout_edge() -> None:
    node = {**WAIT, "params": {"signal_key": "$shared.flag", "timeout_ms": 50}}
    case = begun(graph(node, ("timeout", "late"), ("default", "b")))
    assert starts(case.fire("expiry", "w")) == ["late"]


@pytest.mark.parametrize(
    ("value", "action"),
    [(True, "approved"), (False, "rejected"), ("maybe", "maybe"), ("approved", "approved")],
)
@pytest.mark.parametrize("post", [{}, {"action_key": "approval"}])
def test_a_decision_is_the_action(post: dict[str, Any], value: Any, action: str) -> None:
    case = begun(graph({**APPROVAL, "post": post}, (action, "b"), ("default", "c")))
    assert starts(case.signal("ok", value)) == ["b"]


@pytest.mark.parametrize("value", [None, "", 5])
def test_what_is_no_decision_is_waited_through(value: Any) -> None:
    case = begun(graph(APPROVAL, ("default", "b")))
    assert starts(case.signal("ok", value)) == []


def test_an_answer_to_the_approval_writes_its_key() -> None:
    case = begun(graph(APPROVAL, ("rejected", "b"), ("approved", "c")))
    assert starts(case.approve("w", False)) == ["b"]
    assert decode(finish(case.succeed("b")).output) == {"ok": False}


def test_failures_of_waits_are_told_with_their_step() -> None:
    case = at_the_wait("signal_key: go, timeout_secs: 5")
    assert list(failures(case.fire("expiry", "w"))) == ["w"]


# --------------------------------------------------------------------------------------------- many kept signals


def calls_made_by(work: Callable[[], object]) -> int:
    """How many functions are called, which is the same on every machine."""
    made = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


@pytest.mark.parametrize(("name", "left"), [("k5", 1), ("nobody's", 2)])
def test_a_signal_costs_the_same_however_many_steps_wait_for_others(name: str, left: int) -> None:
    def cost(steps: int) -> int:
        loop = f"""
name: n
inputs: {{n: {{type: array}}}}
steps:
  - id: l
    kind: foreach
    items: $.inputs.n
    concurrency: {steps}
    steps: [{{id: w, kind: wait_event, signal_key: "k{{{{ item }}}}"}}]
"""
        case = begun(loop, {"n": list(range(steps))}, checks=False)
        case.signal("k0")
        made = calls_made_by(lambda: case.signal(name))
        assert len(case.run.steps) == steps - 3 + left
        return made

    # Frames and paths are remembered from one call to the next: a few calls more or less.
    assert cost(150) <= cost(10) + 20


def test_a_signal_costs_the_same_however_many_are_kept() -> None:
    steps = ", ".join(f"{{id: s{n}, kind: wait_event, signal_key: k{n}}}" for n in range(4))
    case = Case(f"name: n\nsteps: [{steps}]", checks=False)
    case.start()
    few: list[int] = []
    many: list[int] = []
    for cost, kept in ((few, 10), (many, 3_000)):
        for number in range(kept):
            case.signal("other", number)
        cost.append(calls_made_by(lambda: case.signal("other")))  # kept
        at = 2 if cost is many else 0
        cost.append(calls_made_by(lambda at=at: case.signal(f"k{at + 1}")))  # type: ignore[misc]  # kept, then taken:
        cost.append(calls_made_by(lambda at=at: case.signal(f"k{at}")))  # type: ignore[misc]
    assert case.run.status == "completed"
    # Finding a kept signal by its number halves the list each time: a few comparisons more for many.
    assert all(after <= before + 20 for before, after in zip(few, many, strict=True))


def test_an_approval_is_escalated_to_each_of_a_list() -> None:
    case = gate("quorum: {need: 2, of: [Ada, Bob]}, escalate: {after_secs: 60, to: [Boss, Chief]}")
    case.fire("escalate", "gate")
    case.approve("gate", approved=False, by="Ada")
    case.approve("gate", approved=False, by="Bob")
    case.approve("gate", by="Boss")
    assert not case.run.over
    assert starts(case.approve("gate", by="Chief")) == ["b"]


def test_the_reason_and_the_form_of_an_approval_are_null_when_not_given() -> None:
    case = gate("")
    case.approve("gate", by="Ada")
    assert case.output()["gate"] == {"approved": True, "reason": None, "by": "Ada", "form": None}
