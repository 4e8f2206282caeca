"""The table of the tools about runs, workflows and schedules."""

from __future__ import annotations

from typing import Final

from holdfast.mcp import acting_tools as act
from holdfast.mcp import reading_tools as read
from holdfast.mcp.lookup import Lookup, lookup
from holdfast.mcp.table import READS, Hints, Tool

_RUNS: Final = (
    "Runs a workflow durably: it goes on after crashes and restarts, and after this call has ended."
)

TOOLS: Final = (
    Tool(
        "workflows_run", "run", "Run a workflow",
        f"{_RUNS} Give `spec` (YAML text or an object), or the name of a published workflow. Answers with the output if it"
        " finishes soon, else with its run_id.",
        act.Run, Hints(destructive=True, open_world=True), act.run, refusal=read.spec_refusal,
    ),
    Tool(
        "workflows_get_status", "read", "Get the status of a run",
        "Status, progress, output, error and open questions of a run.",
        read.OneRun, READS, read.get_status, refusal=read.id_refusal,
    ),
    Tool(
        "workflows_cancel", "run", "Cancel a run",
        "Stops a run: no new step starts, and calls in progress are asked to stop.",
        act.Cancel, Hints(destructive=True, idempotent=True), act.cancel, refusal=read.id_refusal,
    ),
    Tool(
        "workflows_lookup", "read", "Find workflows",
        "Published workflows with their inputs, by skill, name or text, and files that cannot be used, with their problems.",
        Lookup, READS, lookup,
    ),
    Tool(
        "workflows_resume", "resume", "Deliver the result of a pending call",
        "Delivers the later result of a call that answered with a task id.",
        act.Resume, Hints(idempotent=True), act.resume,
    ),
    Tool(
        "workflows_rerun", "run", "Run a finished run again",
        "Starts a new run from a finished one: from its beginning, from a step, or only what failed.",
        act.Rerun, Hints(destructive=True, open_world=True), act.rerun,
    ),
    Tool(
        "workflows_approve", "approve", "Answer an approval",
        "Approves or denies what a run waits for. The first answer counts.",
        act.Approve, Hints(destructive=True), act.approve, is_once=True,
    ),
    Tool(
        "workflows_signal", "run", "Send a signal to a run",
        "Gives a waiting step its value; a signal that comes early is kept.",
        act.Signal, Hints(), act.signal, is_once=True,
    ),
    Tool(
        "workflows_validate", "read", "Check a workflow",
        "Checks a definition without running it, and reports every problem with its place and how to fix it.",
        read.Validate, READS, read.validate, refusal=read.spec_refusal,
    ),
    Tool(
        "workflows_plan", "read", "Show what a workflow would do",
        "The steps of a workflow, the tools that they call, which of them are destructive, and a plan_hash that workflows_run"
        " can require. Runs nothing.",
        read.Plan, READS, read.plan, refusal=read.spec_refusal,
    ),
    Tool(
        "workflows_explain", "read", "Explain a run",
        "Why a run failed or does not go on, what would unblock it, and which schedule started it.",
        read.OneRun, READS, read.explain, refusal=read.id_refusal,
    ),
    Tool(
        "runs_list", "read", "List runs",
        "Runs, newest first, by status, workflow or label.",
        read.RunsList, READS, read.runs_list,
    ),
    Tool(
        "schedules_list", "read", "List schedules",
        "Schedules with the time of their next fire and their last error.",
        read.SchedulesList, READS, read.schedules_list,
    ),
    Tool(
        "schedules_fire", "run", "Fire a schedule now",
        "Starts a run of a schedule at once, besides its own times.",
        act.Fire, Hints(destructive=True, open_world=True), act.schedules_fire, is_once=True,
    ),
)  # fmt: skip

BY_NAME: Final = {tool.name: tool for tool in TOOLS}
# The tools of the steps dialect are also called by these names.
ALIASES: Final = {tool.name.replace("_", ".", 1): tool.name for tool in TOOLS}


def tool_of(name: str) -> Tool | None:
    return BY_NAME.get(ALIASES.get(name, name))
