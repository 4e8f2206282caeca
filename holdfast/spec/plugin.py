"""What a scheduled plugin declares, from plain data to schedules: all problems of all its schedules at once.

A schedule of a plugin has the id `plugin:<name>:<id>`, and starts a workflow of the same name that has one step: the plugin's run.
Knows the keys and the records they become. Must not know how plugins are found, or called.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import InvalidSpec, Problem
from holdfast.spec.field_types import make, read_table, required_in
from holdfast.spec.names import check_name
from holdfast.spec.policy import NAME_CHARS_MAX, StepPolicy
from holdfast.spec.problems import Fields, Report, Where, quoted, type_name
from holdfast.spec.read import plain_from
from holdfast.spec.schedule_keys import CONFIG_CHARS_MAX, DESCRIPTION_CHARS_MAX, PLUGIN_KEYS, PRIORITY_MAX
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.steps import ToolBody, WorkflowStep
from holdfast.spec.triggers import PLUGIN, PluginTrigger
from holdfast.spec.workflow import WorkflowSpec

STEP: Final = "run"
PLUGIN_NAME_CHARS_MAX: Final = 100
SCHEDULES_MAX: Final = 1_000  # schedules of one plugin

_TEXTS: Final = {"description": DESCRIPTION_CHARS_MAX, "config_json": CONFIG_CHARS_MAX}


def tool_of(plugin: str) -> str:
    """The name of the tool that runs a plugin. No author can write it: names of tools have no colon."""
    return PLUGIN + plugin


def schedule_id(plugin: str, name: str) -> str:
    return f"{PLUGIN}{plugin}:{name}"


def own_id(spec: ScheduleSpec) -> str:
    """The id of a schedule within its plugin, as the plugin declared it."""
    assert isinstance(spec.trigger, PluginTrigger)
    return spec.id.removeprefix(schedule_id(spec.trigger.plugin, ""))


def name_problems(name: Any) -> list[Problem]:
    """Check the name of a plugin."""
    report = Report(None, "")
    if not isinstance(name, str) or not name.strip():
        hint = 'return a text, such as "daily-reports"'
        report.add("empty_name", (), f"name() returned {quoted(name)}, which is not a name", hint)
    elif ":" in name or len(name) > PLUGIN_NAME_CHARS_MAX:
        message = f"the name {quoted(name)} has a colon, or more than {PLUGIN_NAME_CHARS_MAX} characters"
        report.add(
            "invalid_name", (), message, "it becomes a part of ids: write it with letters, digits and -"
        )
    else:
        check_name(report, (), name)
    return report.problems


def priority_problems(priority: Any) -> list[Problem]:
    """Check the priority of a plugin."""
    is_whole = isinstance(priority, int) and not isinstance(priority, bool)
    if is_whole and 0 <= priority <= PRIORITY_MAX:
        return []
    message = f"priority() must return a number from 0 to {PRIORITY_MAX:,}, not {quoted(priority)}"
    return [Problem("out_of_range", message, hint="return 1000, which is the default")]


def schedules_of(
    plugin: str, priority: int, declared: Sequence[Mapping[str, Any]]
) -> tuple[ScheduleSpec, ...]:
    """The schedules of a plugin; raise InvalidSpec with every problem of all of them."""
    data = plain_from(declared)
    if len(data) > SCHEDULES_MAX:
        message = f"{len(data):,} schedules; a plugin may have {SCHEDULES_MAX:,}"
        raise InvalidSpec([Problem("too_many_schedules", message, hint="use several plugins")])
    report = Report(None, "")
    specs = [_schedule(item, (index,), report, plugin, priority) for index, item in enumerate(data)]
    _refuse_same_ids(specs, report)
    if report.problems:
        raise report.refusal()
    return tuple(specs)


def _schedule(data: Any, at: Where, report: Report, plugin: str, priority: int) -> ScheduleSpec:
    if not isinstance(data, dict):
        message = f"schedules()[{at[0]}] must be a Schedule, not {type_name(data)}"
        report.add("wrong_type", at, message, "return Schedule(id=…, cron=…)")
        return ScheduleSpec("", "", PluginTrigger(plugin, ""))
    name = data.get("id")
    is_named = isinstance(name, str) and name.strip()
    who = f"schedule {quoted(name)}: " if is_named else f"schedules()[{at[0]}]: "
    fields = Fields(report, data, at, who)
    fields.expect(PLUGIN_KEYS, required_in(PLUGIN_KEYS))
    found = read_table(PLUGIN_KEYS, fields)
    _check_texts(fields, found, plugin)
    own = found.pop("id", "")
    rules = {key: found.pop(key) for key in ("locking",) if key in found}
    policy = found.pop("missed_run_policy", "run_once")
    trigger = make(PluginTrigger, found | {"plugin": plugin, "priority": priority})
    whole = schedule_id(plugin, own)
    return ScheduleSpec(whole, whole, trigger, missed_run_policy=policy, **rules)


def _check_texts(fields: Fields, found: Mapping[str, Any], plugin: str) -> None:
    name = found.get("id")
    if isinstance(name, str):
        room = NAME_CHARS_MAX - len(schedule_id(plugin, ""))
        if not name.strip():
            fields.wrong("empty_name", "id", "schedule id is empty", 'write a name, such as "hourly"')
        elif len(name) > room:
            message = f"the id is longer than {room} characters, which the name of the plugin leaves"
            fields.wrong("name_too_long", "id", message, "shorten it")
        else:
            check_name(fields.report, (*fields.at, "id"), name)
    for key, limit in _TEXTS.items():
        if len(found.get(key, "")) > limit:
            fields.wrong("text_too_long", key, f"{key} is longer than {limit:,} characters", "shorten it")


def _refuse_same_ids(specs: Sequence[ScheduleSpec], report: Report) -> None:
    seen: set[str] = set()
    for index, spec in enumerate(specs):
        own = own_id(spec)
        if own in seen:
            message = f"duplicate schedule id {quoted(own)}"
            report.add("duplicate_id", (index, "id"), message, "ids are unique within a plugin")
        elif own:
            seen.add(own)


class PluginWorkflow(WorkflowSpec, frozen=True):
    """The workflow of one step that a schedule of a plugin starts. It names a tool that no author can name, and is not checked."""

    def validate(self, template_env: Collection[str] = ()) -> None:
        pass


def workflow_of(spec: ScheduleSpec, timeout_secs: float | None = None) -> WorkflowSpec:
    """The workflow that a schedule of a plugin starts. It has one attempt: the plugin decides whether to retry."""
    assert isinstance(spec.trigger, PluginTrigger)
    call = ToolBody(tool_of(spec.trigger.plugin), {"ctx": "{{inputs}}"})
    limit = None if timeout_secs is None else float(timeout_secs)
    policy = StepPolicy(timeout_secs=limit, on_crash="fail")
    return PluginWorkflow(spec.workflow, steps=(WorkflowStep(STEP, "tool", call, policy=policy),))
