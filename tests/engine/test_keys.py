"""Idempotency keys in the core: asked for before a step begins, kept while it is open, let go when it ends."""

from __future__ import annotations

import pytest

from holdfast.engine import draft
from holdfast.engine.codec import decode_parts, encode_parts
from holdfast.engine.decisions import CompleteStep, ReserveKey, StartAttempt
from holdfast.engine.effects import KeyWork
from holdfast.engine.events import StepSucceeded
from holdfast.engine.state import Key
from tests.engine.driver import Case, failures, finish, starts, state_of

ONE = """
name: pay
inputs: {order: {type: string, default: a}}
steps:
  - id: charge
    tool: charge
    args: {order: "{{ inputs.order }}"}
    idempotency_key: "order-{{ inputs.order }}"
    KEYS
  - {id: after, tool: t, args: {charged: "{{ charge }}"}}
"""
TWO = """
name: two
steps:
  - id: par
    kind: parallel
    on_any_fail: HOW
    branches:
      - [{id: a, tool: t, idempotency_key: k, idempotency_scope: global}]
      - [{id: b, tool: t}]
"""
LOOP = """
name: loop
steps:
  - id: loop
    kind: foreach
    items: $.inputs.xs
    concurrency: 5
    steps: [{id: s, tool: t, args: {x: "{{ item }}"}, idempotency_key: "x-{{ item }}"}]
"""


def one(keys: str = "idempotency_scope: global", **inputs: str) -> Case:
    return Case(ONE.replace("KEYS", keys), inputs)


def two(how: str = "abort") -> Case:
    case = Case(TWO.replace("HOW", how))
    case.start()
    return case


def let_go(case: Case) -> list[str]:
    """The paths whose keys were let go since the last look."""
    return [work.path for work in case.key_work() if not work.asks]


def test_a_keyed_step_asks_for_its_key_and_does_not_begin() -> None:
    case = one(order="7")
    (asked,) = case.start()
    assert isinstance(asked, ReserveKey)
    assert (asked.path, asked.key, asked.is_global) == ("charge", "order-7", True)
    assert case.open == []
    assert case.key_work() == [KeyWork("charge", Key("order-7", True), asks=True)]


def test_a_key_is_its_runs_own_unless_it_says_otherwise() -> None:
    (asked,) = one("on_conflict: wait").start()
    assert isinstance(asked, ReserveKey) and not asked.is_global


def test_a_step_that_asks_is_ready_and_its_run_is_running() -> None:
    case = one()
    case.start()
    assert (case.step("charge").state, case.step("charge").reason, case.run.status) == (
        "ready",
        "key",
        "running",
    )


def test_a_granted_key_starts_the_first_attempt_with_the_inputs_that_were_rendered() -> None:
    case = one(order="7")
    case.start()
    (start,) = case.grant("charge")
    assert start == StartAttempt("charge", 1, keep=start.keep)  # type: ignore[union-attr]
    assert case.args("charge") == {"order": "7"}


def test_a_held_key_lets_the_step_wait_and_its_run_with_it() -> None:
    case = one()
    case.start()
    assert case.hold("charge") == []
    assert (case.step("charge").state, case.run.status, case.run.waits_for_key()) == (
        "waiting",
        "waiting",
        True,
    )


def test_a_step_that_waits_begins_when_its_key_is_granted() -> None:
    case = one()
    case.start()
    case.hold("charge")
    assert starts(case.grant("charge")) == ["charge"]
    assert not case.run.waits_for_key()


@pytest.mark.parametrize("held", [False, True])
def test_an_answered_key_completes_the_step_with_that_output_and_no_attempt(held: bool) -> None:
    case = one()
    case.start()
    if held:
        case.hold("charge")
    done, then = case.answer("charge", {"paid": 3})
    assert isinstance(done, CompleteStep) and (done.path, bytes(done.value)) == ("charge", b'{"paid":3}')
    assert starts([then]) == ["after"]
    assert case.args("after") == {"charged": {"paid": 3}}


def test_on_conflict_fail_fails_the_step_that_meets_a_held_key() -> None:
    case = one("on_conflict: fail")
    case.start()
    ended = case.hold("charge")
    assert failures(ended)["charge"].kind == "key_conflict"
    assert finish(ended).status == "failed"
    assert let_go(case) == ["charge"]


def test_on_conflict_fail_is_no_failure_where_the_key_is_answered() -> None:
    case = one("on_conflict: fail")
    case.start()
    assert starts(case.answer("charge", 1)) == ["after"]


def test_a_retry_keeps_the_key_through_its_back_off() -> None:
    case = one("retry: {max_attempts: 2, initial_delay_ms: 100}")
    case.start()
    case.grant("charge")
    case.key_work()
    case.fail("charge")
    assert case.step("charge").key == Key("order-a")
    (again,) = case.fire("retry", "charge")
    assert isinstance(again, StartAttempt)
    assert case.key_work() == []


def test_a_step_that_succeeds_lets_its_key_go() -> None:
    case = one()
    case.start()
    case.grant("charge")
    case.key_work()
    case.succeed("charge", 1)
    assert let_go(case) == ["charge"]
    assert case.run.keyed == 0


def test_a_step_that_fails_for_good_lets_its_key_go() -> None:
    case = one()
    case.start()
    case.grant("charge")
    case.key_work()
    case.fail("charge")
    assert let_go(case) == ["charge"]


def test_a_time_out_keeps_the_key_until_the_attempt_has_answered_and_then_lets_it_go() -> None:
    case = one("timeout_secs: 1")
    case.start()
    case.grant("charge")
    case.key_work()
    case.time_out("charge")
    assert let_go(case) == []
    case.fail("charge", "cancelled")
    assert let_go(case) == ["charge"]


def test_a_late_success_of_a_timed_out_step_is_no_answer() -> None:
    case = one("timeout_secs: 1")
    case.start()
    case.grant("charge")
    case.key_work()
    case.time_out("charge")
    case.apply(StepSucceeded("charge", 1, case.run.inputs))
    assert [(work.path, work.output) for work in case.key_work()] == [("charge", None)]


def test_a_success_says_so_when_it_lets_its_key_go() -> None:
    case = one()
    case.start()
    case.grant("charge")
    case.key_work()
    case.succeed("charge", 1)
    assert [work.output is not None for work in case.key_work()] == [True]


@pytest.mark.parametrize("state", ["asking", "waiting", "running"])
def test_a_cancelled_run_lets_its_keys_go(state: str) -> None:
    case = one()
    case.start()
    if state == "waiting":
        case.hold("charge")
    elif state == "running":
        case.grant("charge")
    case.key_work()
    case.cancel()
    if state == "running":
        assert let_go(case) == []  # it may still be at work
        case.fail("charge", "cancelled")
    assert let_go(case) == ["charge"]
    assert case.run.status == "cancelled"


def test_a_run_out_of_time_lets_its_keys_go() -> None:
    case = Case(ONE.replace("KEYS", "on_conflict: wait").replace("name: pay", "name: pay\ntimeout_secs: 5"))
    case.start()
    case.hold("charge")
    case.key_work()
    assert finish(case.fire("deadline")).status == "failed"
    assert let_go(case) == ["charge"]


@pytest.mark.parametrize("held", [False, True])
def test_an_aborted_scope_lets_the_keys_beneath_it_go(held: bool) -> None:
    case = two()
    if held:
        case.hold("par[0].a")
    case.key_work()
    case.fail("par[1].b")
    assert let_go(case) == ["par[0].a"]


def test_a_step_that_asks_in_the_row_that_stops_its_scope_lets_go_in_the_same_row() -> None:
    case = Case(
        """
        name: n
        steps:
          - id: par
            kind: parallel
            branches:
              - [{id: a, tool: t, idempotency_key: k}]
              - [{id: b, tool: t, args: {x: "{{ inputs.n.m }}"}, idempotency_key: "{{ inputs.none }}"}]
        """,
        {"n": {}},
    )
    ended = case.start()
    assert finish(ended).status == "failed"
    assert [(work.path, work.asks) for work in case.key_work()] == [("par[0].a", True), ("par[0].a", False)]


@pytest.mark.parametrize("verdict", ["grant", "hold", "answer"])
def test_a_verdict_for_a_step_that_is_gone_changes_nothing(verdict: str) -> None:
    case = two("continue")
    case.fail("par[1].b")
    case.answer("par[0].a", 1)
    assert case.run.over
    before = state_of(case.run)
    assert getattr(case, verdict)("par[0].a") == []
    assert {**state_of(case.run), "seq": 0} == {**before, "seq": 0}


def test_a_second_grant_starts_nothing() -> None:
    case = one()
    case.start()
    case.grant("charge")
    assert case.grant("charge") == []
    assert case.step("charge").attempt == 1


@pytest.mark.parametrize("state", ["asking", "waiting"])
def test_the_process_that_adopts_the_run_asks_again(state: str) -> None:
    case = one()
    case.start()
    if state == "waiting":
        case.hold("charge")
    case.key_work()
    (asked,) = case.crash()
    assert isinstance(asked, ReserveKey) and bytes(asked.inputs) == b"null"
    assert case.key_work() == [KeyWork("charge", Key("order-a", True), asks=True)]
    assert starts(case.grant("charge")) == ["charge"]
    assert case.args("charge") == {"order": "a"}


def test_an_adoption_that_drives_nothing_asks_for_nothing() -> None:
    case = one()
    case.start()
    case.hold("charge")
    case.key_work()
    assert case.crash(drive=False) == []
    assert case.key_work() == []
    assert case.run.is_idle


def test_a_lost_attempt_keeps_its_key_and_starts_without_asking() -> None:
    case = one()
    case.start()
    case.grant("charge")
    case.key_work()
    assert starts(case.crash()) == ["charge"]
    assert case.key_work() == []
    assert case.step("charge").key == Key("order-a", True)


def test_a_step_given_back_keeps_its_key() -> None:
    case = one()
    case.start()
    case.grant("charge")
    case.key_work()
    case.release("charge")
    assert case.key_work() == []
    assert starts(case.crash()) == ["charge"]


def test_on_crash_fail_lets_the_key_of_a_lost_step_go() -> None:
    case = one("on_crash: fail")
    case.start()
    case.grant("charge")
    case.key_work()
    assert failures(case.crash())["charge"].kind == "lost"
    assert let_go(case) == ["charge"]


def test_each_item_of_a_loop_asks_for_its_own_key() -> None:
    case = Case(LOOP, {"xs": [1, 2, 1]})
    asked = case.start()
    assert [order.key for order in asked if isinstance(order, ReserveKey)] == ["x-1", "x-2", "x-1"]


def test_items_of_a_loop_with_one_key_take_the_output_of_the_first() -> None:
    case = Case(LOOP, {"xs": [1, 1]})
    case.start()
    case.grant("loop[0].s")
    case.hold("loop[1].s")
    case.succeed("loop[0].s", "done")
    assert finish(case.answer("loop[1].s", "done")).status == "completed"
    assert case.output() == {"loop": {"iterations": [{"s": "done"}, {"s": "done"}]}}


def test_a_key_that_renders_to_nothing_fails_its_step_without_asking() -> None:
    case = Case(ONE.replace("KEYS", "on_conflict: wait").replace("order-{{", "{{"), {"order": ""})
    assert failures(case.start())["charge"].kind == "template"
    assert case.key_work() == []


def test_a_key_of_a_thousand_characters_is_the_longest() -> None:
    assert isinstance(one(order="x" * 994).start()[0], ReserveKey)
    assert failures(one(order="x" * 995).start())["charge"].kind == "template"


@pytest.mark.parametrize("state", ["asking", "waiting", "running"])
def test_a_snapshot_brings_back_steps_with_keys_as_they_were(state: str) -> None:
    case = one()
    case.start()
    if state == "waiting":
        case.hold("charge")
    elif state == "running":
        case.grant("charge")
    assert state_of(decode_parts(encode_parts(case.run))) == state_of(case.run)


def test_a_cut_decision_asks_for_the_rest_in_the_next_row() -> None:
    case = Case(LOOP.replace("concurrency: 5", "concurrency: 2000"), {"xs": list(range(1500))}, checks=False)
    asked = case.start()
    # and the loop itself
    assert len([order for order in asked if isinstance(order, ReserveKey)]) == draft.DECISIONS_MAX - 1
    case.go_on()
    assert case.run.keyed == 1500
    assert len(case.key_work()) == 1500


def test_work_that_was_cut_does_not_start_a_step_whose_key_was_granted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(LOOP, {"xs": [1, 2, 3]})
    case.start()
    monkeypatch.setattr(draft, "DECISIONS_MAX", 1)
    case.crash()
    (_, path, _) = case.run.todo[0]
    case.grant(path)
    assert case.step(path).attempt == 1
    case.go_on()
    assert case.step(path).attempt == 1
