"""What was found valid becomes a plan: no graph that can be published fails to be compiled."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidSpec
from holdfast.plan.flow import block_of
from holdfast.plan.graph import Block
from holdfast.plan.nested import Inner
from holdfast.spec.flow import FlowSpec
from tests.spec.flows import FULL, JSON, REFERENCES
from tests.spec.test_flow import graphs
from tests.spec.test_flow_hostile import PLACES, with_other


def compiled(spec: FlowSpec) -> Block:
    return block_of(spec.graph, 0, lambda name, depth, keep=0: Inner(name, Block({}, ""), None, dict, None))


@given(graphs())
def test_every_graph_becomes_a_block_with_its_nodes(data: dict[str, Any]) -> None:
    spec = FlowSpec.from_data(data, name="f")
    spec.validate()
    assert len(compiled(spec).nodes) == len(spec.nodes)


@given(
    st.sampled_from(PLACES), JSON | REFERENCES | st.sampled_from(["$params.", "a[", "$foo", "'x", "{{ x }}"])
)
def test_whatever_is_found_valid_becomes_a_block(at: tuple[Any, ...], put: Any) -> None:
    try:
        spec = FlowSpec.from_data(with_other(FULL, at, put))
        spec.validate()
    except InvalidSpec:
        return
    assert len(compiled(spec).nodes) == len(spec.nodes)
