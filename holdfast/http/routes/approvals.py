"""`/approve/…`: links by which people answer approvals from a mail or a chat. GET shows the question, POST answers it.

The signed link is the credential: no API key is needed. A mail scanner that opens every link decides nothing. Knows pages, forms and
who may get which link; the runtime decides what an answer means, and that it counts once.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import Response

from holdfast.api.present import Links, no_links
from holdfast.api.types import AnswerLink, Approval, ApprovalLink, MakeLink, NoQuery, status_of
from holdfast.errors import HoldfastError, InvalidInputs, InvalidRequest, NotFound, NotWaiting
from holdfast.http.json_body import check_keys
from holdfast.http.routes import approval_pages
from holdfast.http.table import JSON, Ask, Route
from holdfast.views.open_waits import Wait
from holdfast.waits.approval_links import APPROVE_PATH, NO_LINK, Question
from holdfast.waits.approvals import answerers

FORM: Final = "application/x-www-form-urlencoded"
HTML: Final = "text/html; charset=utf-8"
FIELDS_MAX: Final = 1_000
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with none at all a browser would not say whose page the answer comes from
    "cache-control": "no-store",
    "x-robots-tag": "noindex",
}


class Filled(msgspec.Struct, frozen=True):
    """The submitted form of a page."""

    fields: dict[str, str]

    @property
    def approved(self) -> bool:
        if self.fields.get("answer") not in ("approve", "deny"):
            raise InvalidRequest("an answer is approve or deny")
        return self.fields["answer"] == "approve"


# ------------------------------------------------------------------------------------------------------- asking


async def show(ask: Ask) -> Response:
    try:
        asked = await ask.services.links.question(ask.path["capability"])
    except NotFound:
        return _page(approval_pages.nothing(), 404)
    return (
        _page(approval_pages.question(asked))
        if asked.outcome is None
        else _page(approval_pages.over(asked), 410)
    )


async def answer(ask: Ask) -> Any:
    """A program is answered as everywhere, a person with a page."""
    question = ask.services.links.question(ask.path["capability"])
    if isinstance(ask.body, AnswerLink):
        asked, said = await question, ask.body

        def counted(decided: bool) -> Approval:
            return Approval(asked.run_id, asked.path, decided)

        decided = await _decide(
            ask, asked, approved=said.approved, reason=said.reason, form=said.form, keep=ask.keeps(counted)
        )
        return counted(decided)
    try:
        return await _answered(ask, await question, ask.body)
    except NotFound:
        return _page(approval_pages.nothing(), 404)


def _has_link(ask: Ask) -> Response | None:
    """Read the body only if the path is a link that this server has created."""
    if ask.services.links.is_link(ask.path["capability"]):
        return None
    is_form = ask.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM
    if is_form and ask.headers.get("content-length", "0") != "0":  # a person filled it in
        return _page(approval_pages.nothing(), 404)
    raise NotFound(NO_LINK)


async def _decide(ask: Ask, asked: Question, **answer: Any) -> bool:
    return await ask.services.commands.approve(asked.tenant, asked.run_id, asked.path, by=asked.by, **answer)


async def _answered(ask: Ask, asked: Question, filled: Filled) -> Response:
    if asked.outcome is not None:
        return _page(approval_pages.over(asked), 409)
    try:
        approved, reason = filled.approved, filled.fields.get("reason", "")
        form = approval_pages.form_of(asked.form, filled.fields) if approved else None
        decided = await _decide(ask, asked, approved=approved, reason=reason, form=form)
    except NotWaiting as error:
        now = await ask.services.links.question(ask.path["capability"])
        page = approval_pages.over(now) if now.outcome else approval_pages.said(now, f"Not counted: {error}.")
        return _page(page, 409)
    except (InvalidInputs, InvalidRequest) as error:
        return _page(approval_pages.question(asked, filled.fields, str(error)), status_of(error.code))
    except HoldfastError as error:
        return _page(approval_pages.said(asked, f"Not counted: {error}."), status_of(error.code))
    return _page(approval_pages.counted(asked, approved=approved, decided=decided))


def _page(text: str, status: int = 200) -> Response:
    return Response(text, status, headers=HEADERS, media_type=HTML)


def _read(raw: bytes, media: str) -> AnswerLink | Filled:
    if media == JSON:
        check_keys(raw)
        return msgspec.json.decode(raw, type=AnswerLink)
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise InvalidRequest(f"the form cannot be read: {error}") from None
    return Filled({name: value.replace("\r\n", "\n") for name, value in pairs})


async def style(ask: Ask) -> Response:
    return Response(
        (files("holdfast.http") / "pages" / "approve.css").read_bytes(),
        media_type="text/css",
        headers=HEADERS,
    )


# ------------------------------------------------------------------------------------------------- giving links


async def make(ask: Ask) -> ApprovalLink:
    """For the caller, for no particular person, or, as an admin, for any person."""
    by = ask.body.by
    if by and by != _own_name(ask):
        ask.principal.need("admin")
    base = ask.services.settings.public_url or ask.services.address
    assert base is not None, "a server has an address"
    url = await ask.services.links.make(ask.tenant, ask.path["id"], ask.path["path"], base, by)
    return ApprovalLink(url, by)


def links_for(ask: Ask) -> Links:
    """The links of an approval that the caller may give out: for other people only with the scope `admin`."""
    base = ask.services.settings.public_url
    if base is None or not ask.principal.may("approve"):
        return no_links

    def of(run_id: str, wait: Wait) -> list[ApprovalLink]:
        if wait.kind != "approval":
            return []
        names = [name for name in _names(ask, wait.detail) if name not in wait.answered]
        address = ask.services.links.address
        return [ApprovalLink(address(ask.tenant, run_id, wait.path, base, name), name) for name in names]

    return of


def _names(ask: Ask, detail: dict[str, Any]) -> list[str]:
    allowed, own = answerers(detail), _own_name(ask)
    if allowed:
        return allowed if ask.principal.may("admin") else [name for name in allowed if name == own]
    return [own] if detail.get("need", 1) > 1 else [""]


def _own_name(ask: Ask) -> str:
    return ask.services.api_keys.name_of(ask.tenant, ask.principal.key_id)


TAG: Final = "waits"
LINK: Final = f"{APPROVE_PATH}/{{capability}}"

ROUTES: Final = (
    Route(
        "GET",
        LINK,
        None,
        show,
        "Show the question of an approval link. Does not answer it.",
        TAG,
        answer_media="text/html",
        also={404: None},
    ),
    Route(
        "POST",
        LINK,
        None,
        answer,
        "Answer an approval through a link, once.",
        TAG,
        body=AnswerLink,
        reads=_read,
        admits=_has_link,
        media=(JSON, FORM),
        answer=Approval,
        errors=("not_waiting", "invalid_inputs", "limit_exceeded"),
    ),
    Route(
        "GET",
        f"{APPROVE_PATH}.css",
        None,
        style,
        "Get the style sheet of the approval pages.",
        TAG,
        answer_media="text/css",
        is_listed=False,
    ),
    Route(
        "POST",
        "/api/v1/runs/{id}/approvals/{path}/links",
        "approve",
        make,
        "Create a link with which anyone who has it can answer an approval once.",
        TAG,
        query=NoQuery,
        body=MakeLink,
        body_optional=True,
        answer=ApprovalLink,
        errors=("not_waiting", "invalid_inputs"),
    ),
)
