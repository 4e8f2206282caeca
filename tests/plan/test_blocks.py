"""A plan finds the block that runs in a frame, however many frames it is asked about."""

from __future__ import annotations

from holdfast import WorkflowSpec
from holdfast.plan.compile import compile_workflow
from holdfast.plan.graph import RECENT_BLOCKS_MAX


def test_frames_beyond_the_remembered_ones_have_their_block_too() -> None:
    inner = {
        "id": "inner",
        "kind": "foreach",
        "items": "$.inputs.b",
        "steps": [{"id": "s", "tool": "echo", "args": {}}],
    }
    outer = {"id": "outer", "kind": "foreach", "items": "$.inputs.a", "steps": [inner]}
    plan = compile_workflow(WorkflowSpec.from_data({"name": "n", "steps": [outer]}))
    for index in range(2 * RECENT_BLOCKS_MAX):
        assert list(plan.block(f"outer[{index}]").nodes) == ["inner"]
        assert list(plan.block(f"outer[{index}].inner[0]").nodes) == ["s"]
    assert len(plan.recent_blocks) <= RECENT_BLOCKS_MAX
