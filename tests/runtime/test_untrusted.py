"""Definitions that are held against the rights of their author."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.plan.compile import Resolved
from holdfast.runtime.rights import EVERY_RIGHT, Rights
from holdfast.runtime.untrusted import refusals
from holdfast.spec.notation import examined
from holdfast.spec.patch import applied
from holdfast.spec.steps import Definition, WorkflowStep
from holdfast.tools.annotations import Annotations

MARKS = {
    "look": Annotations(read_only=True),
    "plain": Annotations(),
    "wipe": Annotations(destructive=True),
    "disk/wipe": Annotations(destructive=True),
    "disk/look": Annotations(read_only=True),
}
AGENT = Rights(skips_gate=False)
LOOK: dict[str, Any] = {"id": "l", "tool": "look"}
WIPE: dict[str, Any] = {"id": "w", "tool": "wipe"}
OK: dict[str, Any] = {"id": "ok", "kind": "approve", "prompt": "?"}


def resolved(data: dict[str, Any], **uses: dict[str, Any]) -> Resolved:
    found = examined({"name": "n", **data})
    assert found.spec is not None, found.problems
    return Resolved(found.spec, {name: resolved(one) for name, one in uses.items()})


def codes(whole: Resolved, rights: Rights = AGENT) -> list[str]:
    return [problem.code for problem in refusals(whole, rights, MARKS.get)]


def steps(*some: dict[str, Any]) -> dict[str, Any]:
    return {"steps": list(some)}


GATED: list[dict[str, Any]] = [
    steps(LOOK),
    steps({"id": "p", "tool": "plain"}),
    steps(OK, WIPE),
    steps(LOOK, OK, LOOK | {"id": "l2"}, WIPE),
    steps(OK, {"id": "f", "kind": "foreach", "items": "$.inputs.x", "steps": [WIPE]}),
    steps({"id": "f", "kind": "foreach", "items": "$.inputs.x", "steps": [OK, WIPE]}),
    steps({"id": "p", "kind": "parallel", "branches": [[OK, WIPE], [LOOK]]}),
    steps({"id": "b", "kind": "branch", "on": "$.inputs.x", "then": [OK, WIPE]}),
    steps({"id": "s", "service": "wipe"}),
    steps(OK | {"finally": [LOOK]}, WIPE),
    steps(OK, LOOK | {"finally": [WIPE]}),
    steps(OK, LOOK | {"compensate": {"tool": "wipe"}}),
    steps(OK) | {"finally": [OK | {"id": "ok2"}, WIPE]},
]
UNGATED: list[tuple[dict[str, Any], str]] = [
    (steps(WIPE), "/steps/0"),
    (steps(LOOK, WIPE), "/steps/1"),
    (steps(WIPE, OK), "/steps/0"),
    (steps({"id": "u", "tool": "not_known_here"}), "/steps/0"),
    (steps(LOOK, {"id": "f", "kind": "foreach", "items": "$.inputs.x", "steps": [WIPE]}), "/steps/1"),
    (steps({"id": "p", "kind": "parallel", "steps": [OK, WIPE]}), "/steps/0"),
    (steps({"id": "p", "kind": "parallel", "branches": [[OK], [WIPE]]}), "/steps/0"),
    (steps({"id": "b", "kind": "branch", "on": "$.inputs.x", "then": [OK]}, WIPE), "/steps/1"),
    (steps({"id": "b", "kind": "branch", "on": "$.inputs.x", "then": [OK], "else": [WIPE]}), "/steps/0"),
    (steps({"id": "f", "kind": "foreach", "items": "$.inputs.x", "steps": [OK]}, WIPE), "/steps/1"),
    (steps({"id": "p", "kind": "poll", "tool": "wipe", "until": "$.done"}), "/steps/0"),
    (steps(OK | {"when": {"eq": [1, 2]}}, WIPE), "/steps/1"),
    (steps(OK | {"on_error": {"steps": [LOOK]}}, WIPE), "/steps/1"),
    (steps(OK | {"on_error": {"steps": [WIPE]}}), "/steps/0"),
    (steps(OK | {"finally": [WIPE]}), "/steps/0"),
    (steps(LOOK, LOOK | {"id": "l2", "finally": [WIPE]}), "/steps/1"),
    (steps(LOOK | {"compensate": {"tool": "wipe"}}), "/steps/0"),
    (steps(OK) | {"finally": [WIPE]}, "/finally/0"),
    (steps(OK) | {"on_error": {"steps": [LOOK, WIPE]}}, "/on_error/steps/1"),
    (steps(WIPE) | {"finally": [WIPE | {"id": "w2"}]}, "/steps/0"),
    (steps({"id": "sig", "kind": "wait_event", "signal_key": "go"}, WIPE), "/steps/1"),
]


@pytest.mark.parametrize("data", GATED)
def test_a_definition_without_an_ungated_destructive_call_may_run(data: dict[str, Any]) -> None:
    assert codes(resolved({"inputs": {"x": {"type": "array"}}, **data})) == []


@pytest.mark.parametrize(("data", "before"), UNGATED)
def test_an_ungated_destructive_call_is_refused_with_the_patch_that_adds_the_gate(
    data: dict[str, Any], before: str
) -> None:
    given = {"name": "n", "inputs": {"x": {"type": "array"}}, **data}
    (problem,) = refusals(resolved(given), AGENT, MARKS.get)
    assert (problem.code, problem.patch[0]["path"]) == ("approval_missing", before)
    assert codes(resolved(applied(given, problem.patch))) == []


@pytest.mark.parametrize("data", [data for data, _ in UNGATED])
def test_a_caller_that_may_skip_the_gate_needs_none(data: dict[str, Any]) -> None:
    assert codes(resolved({"inputs": {"x": {"type": "array"}}, **data}), EVERY_RIGHT) == []


def test_one_gate_is_offered_for_all_calls_and_its_id_is_free() -> None:
    given = {"name": "n", **steps(LOOK | {"id": "approve"}, WIPE, WIPE | {"id": "again"})}
    (problem,) = refusals(resolved(given), AGENT, MARKS.get)
    assert "w (wipe), again (wipe)" in problem.message
    assert problem.patch[0]["value"]["id"] == "approve_2"
    assert codes(resolved(applied(given, problem.patch))) == []


def test_what_a_nested_workflow_calls_needs_a_gate_too() -> None:
    outer = steps({"id": "c", "workflow": "inner"})
    assert codes(resolved(outer, inner=steps(WIPE))) == ["approval_missing"]
    assert codes(resolved(outer, inner=steps(OK, WIPE))) == []
    assert codes(resolved(steps(OK, {"id": "c", "workflow": "inner"}), inner=steps(WIPE))) == []


def test_the_approval_of_a_graph_is_no_gate() -> None:
    nodes = {
        "ask": {"kind": "approval", "params": {"approval_key": "yes"}},
        "w": {"kind": "local", "service": "wipe"},
    }
    graph = {"start": "ask", "nodes": nodes, "edges": [{"from": "ask", "to": "w"}, {"from": "w", "to": ""}]}
    assert codes(resolved(graph)) == ["approval_missing"]


def test_tools_that_a_key_does_not_name_are_refused_also_in_nested_workflows() -> None:
    outer = steps(LOOK, {"id": "c", "workflow": "inner"}, {"id": "s", "service": "mail"})
    whole = resolved(outer, inner=steps({"id": "p", "tool": "plain"}))
    said = refusals(whole, Rights(tools=frozenset({"look"})), MARKS.get)
    assert [one.message for one in said] == [
        'step "c.p": this caller may not use the tool "plain"',
        'step "s": this caller may not use the service "mail"',
    ]
    assert [one.pointer for one in said] == ["/steps/1", "/steps/2"]
    assert codes(whole, Rights(tools=frozenset({"*"}))) == []
    assert codes(whole, Rights(tools=frozenset())) == ["tool_not_allowed"] * 3


def test_a_pattern_names_the_tools_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.spec.remotes.now", frozenset({"disk", "net"}))
    data = steps(
        {"id": "a", "tool": "disk/look"}, {"id": "b", "kind": "tool_remote", "server": "net", "tool": "get"}
    )
    assert codes(resolved(data), Rights(tools=frozenset({"disk/*"}))) == ["tool_not_allowed"]
    assert codes(resolved(data), Rights(tools=frozenset({"disk/*", "net/get"}))) == []


def test_services_that_a_graph_computes_cannot_be_allowed_by_name() -> None:
    node = {"kind": "parallel", "params": {"services": "$params.who"}}
    whole = resolved({"start": "p", "nodes": {"p": node}})
    assert codes(whole, Rights(tools=frozenset({"mail"}))) == ["tool_not_allowed"]
    assert codes(whole, Rights(tools=frozenset({"*"}))) == []
    outer = resolved(steps({"id": "c", "workflow": "inner"}), inner={"start": "p", "nodes": {"p": node}})
    assert codes(outer, Rights(tools=frozenset({"mail"}))) == ["tool_not_allowed"]


def test_a_workflow_that_a_key_does_not_name_cannot_be_nested() -> None:
    whole = resolved(steps({"id": "c", "workflow": "secret"}), secret=steps(LOOK))
    assert codes(whole, Rights(workflows=frozenset({"report_*"}))) == ["workflow_not_allowed"]
    assert codes(whole, Rights(workflows=frozenset({"sec*"}))) == []


def test_every_key_of_a_step_is_known_to_the_check_of_gates() -> None:
    """A key by which a step is skipped, or goes on after a denial, makes an approval no gate: say so in untrusted.py first."""
    assert WorkflowStep.__struct_fields__ == (
        "id", "kind", "body", "description", "policy", "answer", "when", "on_error", "finally_", "compensate",
    )  # fmt: skip

    assert Definition.__struct_fields__ == (
        "name", "description", "inputs", "steps", "on_error", "finally_", "output", "on_restart", "timeout_secs", "labels", "on_complete", "origin",
    )  # fmt: skip
