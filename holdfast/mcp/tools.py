"""The table of the tools about runs, workflows and schedules."""

from __future__ import annotations

from typing import Final

from holdfast.mcp import acting_tools as act
from holdfast.mcp import keeping_tools as keep
from holdfast.mcp import learning_tools as learn
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
        "Status, progress, output, error and open questions of a run; with `wait_secs`, once it has finished or asks something.",
        read.GetStatus, READS, read.get_status, refusal=read.id_refusal,
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
        "workflows_publish", "run", "Publish a workflow",
        "Keeps a definition under its name: it is a tool of its own then, schedules can start it, and other workflows can run it."
        " Publishing it again makes a new version; open runs keep theirs.",
        keep.Publish, Hints(idempotent=True), keep.publish, refusal=read.spec_refusal,
    ),
    Tool(
        "workflows_help", "read", "Learn to write a workflow",
        "How to write a workflow or a schedule, and worked examples, by topic. Read it before you write the first one.",
        learn.Help, READS, learn.help_,
    ),
    Tool(
        "tools_list", "read", "List the tools for steps",
        "The tools and services that the steps of a workflow may call here, with the schema of their args. `destructive` ones need a"
        " step `kind: approve` before them.",
        learn.ToolsList, READS, learn.tools_list,
    ),
    Tool(
        "runs_steps", "read", "List the steps of a run",
        "The steps that a run has reached: status, attempts, output and error of each.",
        read.Steps, READS, read.runs_steps,
    ),
    Tool(
        "runs_logs", "read", "Read the log of a run",
        "What the tools of a run have logged and printed, oldest first.",
        read.Logs, READS, read.runs_logs,
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
    Tool(
        "schedules_why", "read", "Explain a schedule",
        "Why a schedule fired or did not: its last occurrences, or those of a time or a day, past or future.",
        read.SchedulesWhy, READS, read.schedules_why,
    ),
    Tool(
        "schedules_put", "admin", "Create or replace a schedule",
        "Starts a published workflow at its times: cron, an interval, given times, or the end of other runs. Answers with the next times.",
        keep.Put, Hints(idempotent=True, open_world=True), keep.schedules_put,
    ),
    Tool(
        "schedules_pause", "run", "Pause a schedule",
        "Occurrences that become due do not fire until schedules_resume, and are recorded.",
        keep.OneSchedule, Hints(idempotent=True), keep.schedules_pause,
    ),
    Tool(
        "schedules_resume", "run", "Resume a schedule",
        "Lets a paused schedule fire again; with `missed`, what the pause left out is caught up.",
        keep.ResumeSchedule, Hints(idempotent=True, open_world=True), keep.schedules_resume,
    ),
    Tool(
        "schedules_delete", "admin", "Delete a schedule",
        "Its runs go on, and its record of occurrences stays.",
        keep.OneSchedule, Hints(destructive=True, idempotent=True), keep.schedules_delete,
    ),
)  # fmt: skip

BY_NAME: Final = {tool.name: tool for tool in TOOLS}
# The tools of the steps dialect are also called by these names.
ALIASES: Final = {tool.name.replace("_", ".", 1): tool.name for tool in TOOLS}


def tool_of(name: str) -> Tool | None:
    return BY_NAME.get(ALIASES.get(name, name))
