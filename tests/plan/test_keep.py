"""What compiling marks to be kept: the outputs that a later expression can name, and nothing else."""

from __future__ import annotations

import pytest

from holdfast.plan.compile import compile_workflow
from holdfast.plan.graph import KEEP_NAMED, KEEP_NOTHING, KEEP_RESULT, Block, Choice, FanOut, Plan
from holdfast.spec.workflow import WorkflowSpec


def plan_of(steps: str, more: str = "") -> Plan:
    spec = WorkflowSpec.from_yaml_str(f"name: n\n{more}steps: [{steps}]")
    spec.validate()
    return compile_workflow(spec)


def keeps(plan: Plan) -> dict[str, int]:
    found: dict[str, int] = {}

    def visit(block: Block) -> None:
        for node in block.nodes.values():
            found[node.name] = node.keep
            for inner in (
                [node.block] if isinstance(node, Choice) else node.blocks if isinstance(node, FanOut) else []
            ):
                visit(inner)

    visit(plan.root)
    return found


@pytest.mark.parametrize(
    "second",
    [
        "{id: b, tool: t, args: {x: '{{ steps.a.output.y }}'}}",
        "{id: b, tool: t, args: {x: '{{ a }}'}}",
        "{id: b, tool: t, args: {x: ['text {{ a.y[0] }} text']}}",
        "{id: b, kind: foreach, items: $.a.list, steps: []}",
        "{id: b, kind: foreach, items: '$.steps.a.output', steps: []}",
        "{id: b, kind: branch, on: $.a, then: []}",
        "{id: b, kind: branch, on: '$..anything', then: []}",  # a search may meet anything
        "{id: b, kind: branch, on: '$.inputs.xs[?@ == $.a.n]', then: []}",  # named inside a filter
        "{id: b, kind: timer, delay_ms: '{{ a.ms }}'}",
        "{id: l, kind: foreach, items: $.inputs.xs, steps: [{id: b, tool: t, args: {x: '{{ a }}'}}]}",
    ],
)
def test_what_a_later_expression_can_name_is_kept(second: str) -> None:
    assert keeps(plan_of(f"{{id: a, tool: t}}, {second}"))["a"] == KEEP_NAMED


def test_what_only_the_result_needs_is_kept_for_it() -> None:
    assert keeps(plan_of("{id: a, tool: t}, {id: b, tool: t}")) == {"a": KEEP_RESULT, "b": KEEP_RESULT}


def test_what_only_an_explicit_output_names_is_kept() -> None:
    assert keeps(plan_of("{id: a, tool: t}, {id: b, tool: t}", "output: '{{ b }}'\n")) == {
        "a": KEEP_NOTHING,
        "b": KEEP_NAMED,
    }


def test_a_loop_that_is_named_keeps_what_its_result_is_made_of() -> None:
    steps = """
      {id: l, kind: foreach, items: $.inputs.xs, steps: [{id: s, tool: t}, {id: p, kind: parallel, steps: [{id: q, tool: t}]}]},
      {id: b, tool: t, args: {x: '{{ l }}'}}
    """
    found = keeps(plan_of(steps))
    assert [found[name] for name in ("l", "s", "p", "q")] == [KEEP_NAMED] * 4


def test_a_loop_that_only_the_result_names_keeps_its_body_for_that_alone() -> None:
    found = keeps(
        plan_of("{id: l, kind: foreach, items: $.inputs.xs, steps: [{id: s, tool: t}]}, {id: b, tool: t}")
    )
    assert found["s"] == KEEP_RESULT


def test_a_loop_that_collects_nothing_keeps_nothing_of_its_body_though_it_is_named() -> None:
    steps = """
      {id: l, kind: foreach, items: $.inputs.xs, collect: none, steps: [{id: s, tool: t}]},
      {id: b, tool: t, args: {x: '{{ l.count }}'}}
    """
    assert keeps(plan_of(steps))["s"] == KEEP_NOTHING


def test_a_body_step_that_the_body_itself_names_is_kept_while_its_iteration_lasts() -> None:
    steps = """
      {id: l, kind: foreach, items: $.inputs.xs, collect: none, steps: [{id: s, tool: t}, {id: u, tool: t, args: {x: '{{ s }}'}}]}
    """
    found = keeps(plan_of(steps))
    assert (found["s"], found["u"]) == (KEEP_NAMED, KEEP_NOTHING)


def test_steps_inside_a_parallel_that_are_named_after_it_keep_their_frame() -> None:
    found = keeps(
        plan_of(
            "{id: p, kind: parallel, steps: [{id: q, tool: t}, {id: r, tool: t}]}, {id: b, tool: t, args: {x: '{{ q }}'}}"
        )
    )
    assert (found["p"], found["q"], found["r"]) == (KEEP_NAMED, KEEP_NAMED, KEEP_RESULT)


def test_steps_inside_a_branch_that_are_named_after_it_are_kept() -> None:
    found = keeps(
        plan_of(
            "{id: br, kind: branch, on: $.inputs.x, then: [{id: q, tool: t}]}, {id: b, tool: t, args: {x: '{{ q }}'}}"
        )
    )
    assert found["q"] == KEEP_NAMED


def test_the_same_definition_is_the_same_version_however_it_is_written() -> None:
    first = plan_of("{id: a, tool: t}")
    again = compile_workflow(
        WorkflowSpec.from_yaml_str("steps:\n- tool: t\n  kind: tool\n  id: a\nname: n\n")
    )
    other = plan_of("{id: a, tool: u}")
    assert first.version == again.version != other.version


def test_steps_are_counted_through_the_whole_tree() -> None:
    assert plan_of("{id: p, kind: parallel, steps: [{id: q, tool: t}, {id: r, tool: t}]}").steps_total == 3
