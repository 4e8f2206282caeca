"""What a run waits for, and the answers: signals, approvals, later results of calls."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from holdfast.api.types.common import NAME_CHARS_MAX, Name, most


class ApprovalLink(msgspec.Struct, frozen=True):
    """A link that lets its holder answer one approval. `by` is the approver it was made for, if any."""

    url: str
    by: str = ""


class Wait(msgspec.Struct, frozen=True):
    """What a step waits for; `until` is when it continues by itself. `name` is the task id of a callback; `detail` is what
    a caller needs to end the wait: a prompt and its form, the names of signals, a poll_url. `links` are the approval
    links that this key may give out, if the server has a public URL."""

    path: str
    kind: str
    until: str | None
    since: str | None = None
    name: str = ""
    detail: dict[str, Any] = {}
    links: list[ApprovalLink] = []


class SendSignal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: Name
    value: Any = None
    correlation: Name | None = None


class AnswerApproval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`by` is who answers, if it is not the owner of the key: only an admin, or any caller of a server without keys, sets it."""

    approved: bool
    reason: Annotated[str, msgspec.Meta(max_length=most("text_chars_max"))] = ""
    form: Any = None
    by: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""


class MakeLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`by` is who is to answer; only an admin, or any caller of a server without keys, may name another person."""

    by: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""


class AnswerLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer counts for the person that the link was made for."""

    approved: bool
    reason: Annotated[str, msgspec.Meta(max_length=most("text_chars_max"))] = ""
    form: Any = None


class Approval(msgspec.Struct, frozen=True):
    """`decided`: the wait has ended. With a quorum, several answers are needed."""

    run_id: str
    path: str
    decided: bool


class ResumeTask(msgspec.Struct, frozen=True):
    """The later result of a call: `result`, or else every field except `task_id` and `run_id`."""

    task_id: Annotated[str, msgspec.Meta(min_length=1)]
    run_id: str | None = None
    result: Any = None
    success: Any = None  # false: the call failed
    data: Any = None
    error: Any = None


class ResumeCall(msgspec.Struct, frozen=True):
    """The same, sent to the callback URL of the call."""

    result: Any = None
    success: Any = None
    data: Any = None
    error: Any = None


class Resumed(msgspec.Struct, frozen=True):
    resumed: bool
    reason: Literal["resumed", "parked", "already_resumed", "expired", "unknown_task"]
