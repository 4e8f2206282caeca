"""`holdfast approve`, `signal` and `resume`: answer waiting runs from the command line, through a server or in a
file."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.cli.file import finished
from holdfast.cli.options import Usage, settings_of, text_given, value_of
from holdfast.cli.parser import Given
from holdfast.cli.source import opened
from holdfast.cli.source_protocol import Answer, Source
from holdfast.cli.streams import UNWRITTEN, give, say, show
from holdfast.config import Settings
from holdfast.errors import NotWaiting
from holdfast.values import TERMINAL, decode

OUTCOMES: Final = {
    "resumed": "the step continues with it",
    "parked": "no step is waiting for it yet; it is kept for a day",
    "already_resumed": "a result was already delivered; nothing changed",
    "expired": "the wait had expired; nothing changed",
    "unknown_task": "no run is waiting for it",
}
IN_VAIN: Final = ("expired", "unknown_task")


# ----------------------------------------------------------------------------------------------------- approve


def approve_command(given: Given) -> int:
    if given.has("--link") and any(map(given.has, ("--deny", "--reason", "--form"))):
        raise Usage("--link only creates a link; omit --deny, --reason and --form")
    return finished(_approve(settings_of(given), given, _json(given, "--form")))


async def _approve(settings: Settings, given: Given, form: Any) -> int:
    word, *rest = given.arguments
    by = given.text("--by") or ""
    async with opened(settings) as source:
        run_id = await source.find(word, is_open=True)
        path = rest[0] if rest else await _only_gate(source, run_id)
        if given.has("--link"):
            return _give_link(given, await source.link(run_id, path, by), run_id, path)
        answer = Answer(not given.has("--deny"), given.text("--reason") or "", by, form)
        decided = await source.approve(run_id, path, answer)
        status = (await source.run(run_id)).status
    data = {"run_id": run_id, "path": path, "approved": answer.approved, "decided": decided}
    if given.has("--json"):
        return _written(give(data))
    say(f"{path} of run {run_id} is {_decided(answer.approved, decided)}")
    _say_how_to_go_on(source, run_id, status)
    return 0


async def _only_gate(source: Source, run_id: str) -> str:
    run = await source.run(run_id)
    gates = [wait.path for wait in run.waits if wait.kind == "approval"]
    if not gates:
        raise NotWaiting(
            f"run {run_id}", f"is {run.status} and has no open approval; holdfast runs explain says why"
        )
    if len(gates) > 1:
        raise Usage(f"run {run_id} has open approvals at {', '.join(gates)}; name one of them")
    return gates[0]


def _decided(approved: bool, decided: bool) -> str:
    word = "approved" if approved else "denied"
    return word if decided else f"{word} by you; more answers are needed"


def _give_link(given: Given, url: str, run_id: str, path: str) -> int:
    if given.has("--json"):
        return _written(give({"run_id": run_id, "path": path, "by": given.text("--by") or "", "url": url}))
    return _written(show(f"{url}\n"))


# ------------------------------------------------------------------------------------------------------ signal


def signal_command(given: Given) -> int:
    return finished(_signal(settings_of(given), given))


async def _signal(settings: Settings, given: Given) -> int:
    word, key, *rest = given.arguments
    value = value_of(rest[0]) if rest else None
    async with opened(settings) as source:
        run_id = await source.find(word, is_open=True)
        status = await source.signal(run_id, key, value, given.text("--correlation"))
    if given.has("--json"):
        return _written(give({"run_id": run_id, "status": status}))
    say(f"run {run_id} has the signal {key}, and is {status}")
    _say_how_to_go_on(source, run_id, status)
    return 0


# ------------------------------------------------------------------------------------------------------ resume


def resume_command(given: Given) -> int:
    if given.has("--result") == given.has("--error"):
        raise Usage("give the result with --result JSON, or a failure with --error TEXT")
    answer = _json(given, "--result")
    if given.has("--error"):
        answer = {"success": False, "error": given.text("--error")}
    return finished(_resume(settings_of(given), given, answer))


async def _resume(settings: Settings, given: Given, answer: Any) -> int:
    task_id, run = given.arguments[0], given.text("--run")
    async with opened(settings) as source:
        run_id = None if run is None else await source.find(run, is_open=True)
        resumed = await source.resume(task_id, answer, run_id)
    if given.has("--json"):
        code = _written(give(resumed))
    else:
        code = 0
        say(f"task {task_id}: {OUTCOMES[resumed.reason]}")
        if resumed.resumed and source.is_unowned:
            say("no process is running it now; continue with: holdfast run --continue RUN_ID, or holdfast up")
    return code or (1 if resumed.reason in IN_VAIN else 0)


# ---------------------------------------------------------------------------------------------------- for each


def _json(given: Given, flag: str) -> Any:
    """The JSON value of a flag, given directly or in a file; null without the flag."""
    text = given.text(flag)
    if text is None:
        return None
    try:
        return decode(text_given(text, flag))
    except msgspec.DecodeError as error:
        raise Usage(f"{flag} is not JSON: {error}; put text in double quotes, such as '\"yes\"'") from None


def _say_how_to_go_on(source: Source, run_id: str, status: str) -> None:
    if source.is_unowned and status not in TERMINAL:
        say(f"no process is running it now; continue with: holdfast run --continue {run_id}")


def _written(is_written: bool) -> int:
    return 0 if is_written else UNWRITTEN
