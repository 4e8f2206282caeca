"""External messages to runs: callbacks of pending calls, signals, and answers to approvals.

Knows the shapes of the requests and who may send what. The runtime decides what a message means, and that it counts
once.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.api.types import (
    ANSWER_BYTES_MAX,
    AnswerApproval,
    Approval,
    NoQuery,
    ResumeCall,
    Resumed,
    ResumeTask,
    SendSignal,
    Started,
)
from holdfast.errors import InvalidRequest, Problem, Unauthorised
from holdfast.http.auth import ANONYMOUS
from holdfast.http.json_body import Members
from holdfast.http.table import Ask, Reply, Route, Signed
from holdfast.signing import is_signed
from holdfast.values import JsonText, Status, decode, written
from holdfast.waits import callbacks
from holdfast.waits.callback_urls import RESUME_PATH

SIGNATURE: Final = "x-hub-signature-256"


class Callback(msgspec.Struct, frozen=True):
    """The answer is JSON text: it may have 25 MiB, and it is not parsed here."""

    task_id: Any
    run_id: Any
    answer: JsonText


async def resume(ask: Ask) -> Reply:
    said: Callback = ask.body
    task_id, run_id = said.task_id, said.run_id
    if not isinstance(task_id, str) or not (run_id is None or isinstance(run_id, str)):
        raise InvalidRequest("a callback has a task_id, which is text, and perhaps a run_id, which is too")
    if not task_id:
        problem = Problem("empty_task_id", "task_id is empty", "/task_id")
        raise InvalidRequest("the task_id is empty; send the id that the pending answer gave", [problem])
    resumed = await ask.services.commands.resume(ask.tenant, task_id, said.answer, run_id)
    return _resumed(resumed)


async def resume_by(ask: Ask) -> Reply:
    said: Callback = ask.body
    return _resumed(await ask.services.commands.resume_by(ask.path["capability"], said.answer))


def _resumed(resumed: callbacks.Resumed) -> Reply:
    """Only a result that was taken is kept under the key of its sender, so senders cannot fill the database with keys."""
    return Reply(Resumed(resumed.resumed, resumed.reason), is_kept=resumed.reason in ("resumed", "parked"))


def _callback(members: Members) -> Callback:
    return Callback(_id(members.get("task_id")), _id(members.get("run_id")), _answer_in(members))


def _id(member: JsonText | None) -> Any:
    """Text or null is decoded; anything else is not an id, however large it is."""
    return decode(member.text) if member is not None and member.text[:1] in (b'"', b"n") else member


def _answer_in(members: Members) -> JsonText:
    """The content of a callback in either form: `result`, or all members except the ids."""
    if "result" in members:
        return members["result"]
    parts = [b"{"]
    for key, member in members.items():
        if key not in ("task_id", "run_id"):
            parts += (
                b"," if len(parts) > 1 else b"",
                written(key),
                b":",
                member.text,
            )  # joined at once: a text may have 25 MiB
    return JsonText(b"".join([*parts, b"}"]))


def _may_resume(ask: Ask) -> Signed | None:
    """A key can resume runs of its tenant; a signed body, runs of the tenant `default`."""
    if ask.principal is not ANONYMOUS:
        ask.principal.need("resume")
        return None
    secret, given = ask.services.settings.resume_secret, ask.headers.get(SIGNATURE)
    refusal = Unauthorised(
        "a key with the scope resume is needed here, or a body that is signed (X-Hub-Signature-256) with the"
        " secret in HOLDFAST_RESUME_SECRET"
    )
    if not secret or given is None:
        raise refusal
    return Signed(lambda raw: is_signed(secret, raw, given), refusal)


def _has_capability(ask: Ask) -> Reply | None:
    """Only the holder of an address that this server gave out gets its body read. A request without a body is refused as such."""
    has_body = ask.headers.get("content-length", "0") != "0" or "transfer-encoding" in ask.headers
    if not has_body or ask.services.commands.is_callback(ask.path["capability"]):
        return None
    return Reply(Resumed(False, "unknown_task"))


async def signal(ask: Ask) -> Started:
    said: SendSignal = ask.body
    run_id = ask.path["id"]

    def answer(status: Status) -> Started:
        return Started(run_id, status)

    status = await ask.services.commands.signal(
        ask.tenant, run_id, said.key, said.value, said.correlation, keep=ask.keeps(answer)
    )
    return answer(status)


async def approve(ask: Ask) -> Approval:
    said: AnswerApproval = ask.body
    run_id, path = ask.path["id"], ask.path["path"]
    decided = await ask.services.commands.approve(
        ask.tenant,
        run_id,
        path,
        approved=said.approved,
        reason=said.reason,
        by=_who(ask),
        form=said.form,
        keep=ask.keeps(lambda decided: Approval(run_id, path, decided)),
    )
    return Approval(run_id, path, decided)


def _who(ask: Ask) -> str:
    """Who answers: the owner of the key. Only an admin may answer for another person."""
    if ask.body.by and ask.principal.may("admin"):
        return str(ask.body.by)
    return ask.services.api_keys.name_of(ask.tenant, ask.principal.key_id)


TAG: Final = "waits"

ROUTES: Final = (
    Route(
        "POST",
        RESUME_PATH,
        None,
        resume,
        "Deliver the result of a pending call by its task id.",
        TAG,
        body=ResumeTask,
        reads_members=_callback,
        admits=_may_resume,
        answer=Resumed,
        errors=("unauthorised", "ambiguous_task", "limit_exceeded"),
        body_max=ANSWER_BYTES_MAX,
    ),
    Route(
        "POST",
        f"{RESUME_PATH}/{{capability}}",
        None,
        resume_by,
        "Deliver the result of a pending call through its callback_url.",
        TAG,
        body=ResumeCall,
        reads_members=_callback,
        admits=_has_capability,
        answer=Resumed,
        errors=("limit_exceeded",),
        body_max=ANSWER_BYTES_MAX,
    ),
    Route(
        "POST",
        "/api/v1/runs/{id}/signals",
        "run",
        signal,
        "Send a signal to a run. The step that waits for the key consumes it, now or when it is reached.",
        TAG,
        query=NoQuery,
        body=SendSignal,
        answer=Started,
        errors=("run_is_over", "invalid_inputs", "limit_exceeded"),
    ),
    Route(
        "POST",
        "/api/v1/runs/{id}/approvals/{path}",
        "approve",
        approve,
        "Answer the approval at a step.",
        TAG,
        query=NoQuery,
        body=AnswerApproval,
        answer=Approval,
        errors=("not_waiting", "invalid_inputs", "limit_exceeded"),
    ),
)
