"""The commands of the engine, used by every interface: publish, start, cancel, signal, approve, resume, rerun.

The tenant is always the first argument. Knows workflows, releases and requests; does not know which interface calls,
and contains no SQL. When a command returns, its effect is durable.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from holdfast import limits
from holdfast.deliveries.destinations import Given as FinalCallback
from holdfast.deliveries.destinations import destination
from holdfast.errors import (
    Forbidden,
    InvalidInputs,
    InvalidSpec,
    LimitExceeded,
    NotFound,
    Problem,
    RunIsOver,
    VersionConflict,
)
from holdfast.plan.compile import Resolved
from holdfast.runtime.clock import Clock
from holdfast.runtime.gate import Gate
from holdfast.runtime.idempotency import Kept
from holdfast.runtime.planning import Planning, Validation
from holdfast.runtime.plans import Given, Plans, text_as_written
from holdfast.runtime.rerun import Again
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.rights import EVERY_RIGHT, Rights
from holdfast.runtime.runs import Runs
from holdfast.runtime.seen_runs import SeenRuns
from holdfast.runtime.starts import RerunRun, StartRun, Starts
from holdfast.signing import opened
from holdfast.spec.notation import Definition
from holdfast.spec.policy import NAME_CHARS_MAX
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import Publication, Release, RunRow, Workflow
from holdfast.values import RunId, Status, encode, is_text
from holdfast.views.outline import Outline
from holdfast.waits.approvals import Approvals
from holdfast.waits.callbacks import Callbacks, Resumed

NUMBER_MAX: Final = 2**31 - 1
NO_BOUND: Final = 2**62

Made = TypeVar("Made")


class Commands:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        gate: Gate,
        plans: Plans,
        starts: Starts,
        runs: Runs,
        approvals: Approvals,
        callbacks: Callbacks,
        planning: Planning,
    ) -> None:
        self._store, self._clock, self._gate, self._plans = store, clock, gate, plans
        self.planning = planning
        self._starts, self._runs, self._approvals, self._callbacks = starts, runs, approvals, callbacks
        self._seen: SeenRuns | None = None  # the runs that the caller may act on; None: all
        self.drives = True  # False: runs that callers start are only stored, and executed by the next server
        self._publishing = asyncio.Lock()  # a release number always belongs to the same content
        self._at_work: set[asyncio.Task[Any]] = set()
        # Called with a tenant when one of its names means another definition from now on.
        self.when_published: list[Callable[[str], None]] = []

    def seen_by(self, sees: Callable[[str], bool]) -> Commands:
        """The same commands for a caller that sees only some workflows: it cannot act on runs of others."""
        own = copy.copy(self)
        own._seen = SeenRuns(self._store, sees)
        return own

    async def _check_seen(self, tenant: str, run_id: str) -> None:
        if self._seen is not None:
            await self._seen.check(tenant, run_id)

    # ------------------------------------------------------------------------------------------- workflows

    async def read(self, definition: Given, name: str | None = None) -> Definition:
        """A definition as a record; equal content is parsed once. `name`, if given, replaces the name in the
        definition."""
        return await self._plans.read_in_turns(definition, name)

    async def validate(
        self, tenant: str, definition: str | Mapping[str, Any], rights: Rights = EVERY_RIGHT
    ) -> Validation:
        """Every problem of a definition with its repair, and the plan of a valid one. Nothing is stored."""
        return await self.planning.validate(tenant, definition, rights)

    async def plan_of(
        self,
        tenant: str,
        what: Definition | Mapping[str, Any] | str,
        number: int | None = None,
        rights: Rights = EVERY_RIGHT,
    ) -> Outline:
        """What a definition, or the release that a name refers to, would do. Nothing is stored or executed."""
        spec, _, _ = await self._meant(tenant, what, number, rights)
        return await self.planning.outline(tenant, spec)

    async def create_flow(
        self, tenant: str, name: str, description: str = "", rights: Rights = EVERY_RIGHT
    ) -> str:
        """Create a workflow without a published release and return its id. An existing workflow of that name is left
        unchanged."""
        _check_name(name, rights)
        _check_text("the name of a workflow", name, NAME_CHARS_MAX)
        _check_prose("a description", description)
        return await self._to_its_end(self._create_flow(tenant, name, description))

    async def _create_flow(self, tenant: str, name: str, description: str) -> str:
        async with self._publishing:
            known = await self._store.workflow(tenant, name)
            if known is None:
                batch, known = Batch(), self._new_workflow(name, description)
                batch.workflows.append((tenant, known))
                await self._gate.commit(batch)
        return known.id

    async def publish(
        self,
        tenant: str,
        definition: Given,
        *,
        number: int | None = None,
        draft: bool = False,
        strict: bool = False,
        rights: Rights = EVERY_RIGHT,
    ) -> Release:
        """Store a definition as a release of its name; unless it is a draft, the name refers to it from now on.

        If the name already refers to this content, or the latest release has it, no new number is assigned. A release
        never changes: publishing different content under an existing number raises VersionConflict. Without a number,
        the next one is used. With `strict`, a definition is refused whose calls would wait now, because no engine has a tool or
        no worker serves a service.
        """
        spec = await self.read(definition)
        self._plans.content_of(spec)  # refused unless it is valid
        if strict and (lacks := self.planning.lacks(tenant, Resolved(spec, {}))):
            raise InvalidSpec(lacks)
        _check_number(number)
        if rights.are_limited:
            _check_name(spec.name, rights)
            await self.planning.hold(tenant, spec, rights)
        return await self._to_its_end(self._publish(tenant, spec, number, draft=draft))

    async def lacks(self, tenant: str, definition: Given) -> tuple[Problem, ...]:
        """What the calls of a definition would wait for now."""
        return self.planning.lacks(tenant, Resolved(await self.read(definition), {}))

    async def _publish(self, tenant: str, spec: Definition, number: int | None, *, draft: bool) -> Release:
        own = Resolved(spec, {})  # the workflows it names are resolved when a run starts
        async with self._publishing:
            workflow = await self._store.workflow(tenant, spec.name)
            flow = workflow or self._new_workflow(spec.name, spec.description)
            release = await self._release(tenant, flow, own.version, number, draft=draft)
            newest = await self._store.newest_published(tenant, spec.name)
            is_current = release.status == "published" and (
                number is None or newest is None or release.number >= newest.number
            )
            batch, at = Batch(), self._clock.now()
            if workflow is None:
                batch.workflows.append((tenant, flow))
            self._plans.store_with(batch, tenant, own, own.version, at)
            if (text := text_as_written(spec)) is not None and not batch.sources:
                batch.sources.append((text, tenant, own.version))  # other comments than before, perhaps
            described = spec.description if is_current and spec.description != flow.description else None
            batch.published.append(Publication(tenant, release, is_current, at, described))
            await self._gate.commit(batch, partial(self._meaning_changed, tenant))
        self._plans.is_durable(tenant, own.version)
        return release

    async def _release(
        self, tenant: str, flow: Workflow, version: str, number: int | None, *, draft: bool
    ) -> Release:
        """Return the release that has this content, or assign a new one."""
        status = "draft" if draft else "published"
        if number is not None:
            known = await self._store.release_numbered(tenant, flow.name, number)
            if known is not None and known.version != version:
                raise VersionConflict(flow.name, number)
        else:
            newest = next(iter(await self._store.releases(tenant, flow.name, NO_BOUND, 1)), None)
            known = await self._same(tenant, flow, newest, version, draft=draft)
            number = 1 if newest is None else newest.number + 1
        if known is not None:
            return known if draft else msgspec.structs.replace(known, status="published")
        new_id = f"ver-{self._clock.new_id()}"
        return Release(new_id, flow.id, flow.name, number, version, status, self._clock.now())  # type: ignore[arg-type]

    async def _same(
        self, tenant: str, flow: Workflow, newest: Release | None, version: str, *, draft: bool
    ) -> Release | None:
        """Whether the name refers to this content already, or the latest release has it. Then its number is used
        again."""
        if newest is not None and newest.version == version:
            return newest  # also a draft, which is published by this call
        if draft or flow.number is None:
            return None
        if flow.version == version:
            return await self._store.release_numbered(tenant, flow.name, flow.number)
        last = await self._store.newest_published(tenant, flow.name)
        return last if last is not None and last.version == version else None

    async def roll_back(self, tenant: str, name: str, number: int) -> Release:
        """Point a name at an earlier release again. The next published release still gets a number above the highest
        one."""
        _check_number(number)
        return await self._to_its_end(self._roll_back(tenant, name, number))

    async def _roll_back(self, tenant: str, name: str, number: int) -> Release:
        async with self._publishing:
            release = await self._release_of(tenant, name, number)
            if release.status == "draft":
                raise InvalidInputs(f"release {number} of {name!r} is a draft; publish it first")
            batch = Batch()
            batch.published.append(Publication(tenant, release, True, self._clock.now()))
            await self._gate.commit(batch, partial(self._meaning_changed, tenant))
        return release

    async def _release_of(self, tenant: str, name: str, number: int) -> Release:
        release = await self._store.release_numbered(tenant, name, number) if is_text(name) else None
        if release is None:
            raise NotFound(f"there is no release {number} of a workflow {name!a} here")
        return release

    def _meaning_changed(self, tenant: str) -> None:
        self._starts.forget_names()
        for watcher in self.when_published:
            watcher(tenant)

    async def _to_its_end(self, work: Coroutine[Any, Any, Made]) -> Made:
        """Finish the work even if the caller disconnects. The next caller waits until it is done."""
        task = asyncio.ensure_future(work)
        self._at_work.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._at_work.discard(task)
        if not task.cancelled():
            task.exception()  # raised in the caller, if it still waits

    def _new_workflow(self, name: str, description: str | None) -> Workflow:
        return Workflow(f"flow-{self._clock.new_id()}", name, description or "", self._clock.now())

    # ------------------------------------------------------------------------------------------------ runs

    async def start(
        self,
        tenant: str,
        what: Definition | Mapping[str, Any] | str,
        inputs: Mapping[str, Any] | None = None,
        *,
        number: int | None = None,
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent_job_id: str | None = None,
        trace: str = "",
        final_callbacks: Iterable[FinalCallback] = (),
        plan_hash: str | None = None,
        rights: Rights = EVERY_RIGHT,
    ) -> tuple[RunRow, bool]:
        """Start a run of a definition, or of the release that a name refers to; `number` selects another release,
        also a draft.

        With a `request_id`, repeated calls return the same run; the second value says whether the run is new. `trace`
        is the traceparent of the caller. A new run is returned in the state in which it was accepted. Each entry of
        `final_callbacks` is a URL, or {url, secret_env}. With a `plan_hash`, the run starts only if the plan still has it.
        A definition is held against the `rights` of the caller; of a published one, only its name.
        """
        given = checked_inputs(inputs)
        check_parent(parent_job_id)
        spec, number, word = await self._meant(tenant, what, number, rights)
        if rights.are_limited and number is None:
            await self.planning.hold(tenant, spec, rights)
        if plan_hash is not None:
            await self.planning.check_hash(tenant, spec, plan_hash)
        order = StartRun(
            definition=spec,
            inputs=given,
            tenant=tenant,
            labels=labels or {},
            number=number,
            parent_job_id=parent_job_id,
            final_callbacks=[destination(one) for one in final_callbacks],
            trace=trace,
            request_id=request_id,
            workflow=word,
            drive=self.drives,
        )
        begun = await self._starts.start(order)
        if request_id is None and begun.resident is not None:
            return _accepted(begun.resident, {**spec.labels, **order.labels}, parent_job_id, number), True
        return await self._row(begun.no), begun.resident is not None

    async def _meant(
        self, tenant: str, what: Definition | Mapping[str, Any] | str, number: int | None, rights: Rights
    ) -> tuple[Definition, int | None, str]:
        """The definition to run, its release, and a fingerprint by which a repeated request is recognised."""
        _check_number(number)
        if not isinstance(what, str):
            if number is not None:
                raise InvalidInputs("a number chooses a release of a workflow; give the name of one")
            spec = await self.read(what)
            return spec, None, self._plans.content_of(spec)
        if not rights.sees(what):
            raise NotFound(f"no workflow {what!a} is published")
        if number is None:
            spec, number = await self._starts.published(what, tenant)
            return spec, number, what
        release = await self._release_of(tenant, what, number)
        found = await self._store.definition(tenant, release.version)
        assert found is not None, f"the definition of release {number} of {what} is missing"
        return await self._plans.spec_of(release.version, found[0]), number, f"{what} {number}"

    async def cancel(self, tenant: str, run_id: str, reason: str = "") -> RunRow:
        """Cancel a run. A finished run is left unchanged, which is not an error; the returned row has its status."""
        await self._check_seen(tenant, run_id)
        with contextlib.suppress(RunIsOver):
            await self._runs.cancel(RunId(run_id), reason, tenant=tenant)
        return await self._runs.row_of(RunId(run_id), tenant)

    async def signal(
        self,
        tenant: str,
        run_id: str,
        key: str,
        value: Any,
        correlation: str | None = None,
        *,
        keep: Callable[[Status], Kept] | None = None,
    ) -> Status:
        """Send a signal to a run. A waiting step consumes it, otherwise it is kept; in a graph it is written to a
        variable.

        The response that `keep` makes of the run's status is stored in the same commit.
        """
        _check_text("the key of a signal", key, NAME_CHARS_MAX)
        if correlation is not None:
            _check_text("the correlation of a signal", correlation, NAME_CHARS_MAX)
        await self._check_seen(tenant, run_id)
        return await self._runs.signal(
            RunId(run_id), key, value, correlation=correlation, tenant=tenant, keep=keep
        )

    async def approve(
        self,
        tenant: str,
        run_id: str,
        path: str,
        *,
        approved: bool,
        reason: str = "",
        by: str = "",
        form: Any = None,
        keep: Callable[[bool], Kept] | None = None,
    ) -> bool:
        """Approve or reject an approval step; returns whether this call decided it. Raises NotWaiting if the approval
        is not open.

        The response that `keep` makes of the result is stored in the same commit.
        """
        for what, text in (("a reason", reason), ("who answers", by)):
            _check_prose(what, text)
        if not isinstance(approved, bool):
            raise InvalidInputs(f"an answer to an approval is true or false, not {approved!a}")
        await self._check_seen(tenant, run_id)
        return await self._approvals.approve(
            tenant, run_id, path, approved=approved, reason=reason, by=by, form=form, keep=keep
        )

    async def resume(self, tenant: str, task_id: str, answer: Any, run_id: str | None = None) -> Resumed:
        """Deliver the callback of a paused call, found by the task id that its service assigned."""
        if self._seen is not None:
            try:
                run_id = await self._seen.called(tenant, task_id, run_id)
            except NotFound:
                return Resumed(False, "unknown_task")
        return await self._callbacks.resume(tenant, task_id, answer, run_id)

    def is_callback(self, address: str) -> bool:
        """Whether this is the token of a callback URL that this server issued. Needs no database access."""
        return opened(self._store.server_key, address, "resume") is not None

    async def resume_by(self, address: str, answer: Any) -> Resumed:
        """Deliver a callback by the token of its URL. An unknown token changes nothing."""
        capability = opened(self._store.server_key, address, "resume")
        if capability is None:
            return Resumed(False, "unknown_task")
        return await self._callbacks.resume_by(capability, answer)

    async def rerun(
        self,
        tenant: str,
        run_id: str,
        again: Again | None = None,
        inputs: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        rights: Rights = EVERY_RIGHT,
    ) -> RunRow:
        """Re-run a finished run as a new run of the same version. `again` selects the steps to repeat; the outcomes
        of the others are copied. `inputs` replace inputs of the same name."""
        await self._check_seen(tenant, run_id)
        if rights.are_limited:
            row = await self._runs.row_of(RunId(run_id), tenant)
            is_whole = again is None or again.is_whole
            await self.planning.hold_again(tenant, row, rights, is_whole=is_whole)
        order = RerunRun(
            run_id=RunId(run_id),
            again=again or Again(),
            inputs=checked_inputs(inputs),
            tenant=tenant,
            request_id=request_id,
        )
        return await self._row((await self._starts.rerun(order)).no)

    async def _row(self, no: Any) -> RunRow:
        row = await self._store.run_by_no(no)
        assert row is not None
        return row


def _accepted(
    resident: ResidentRun, labels: Mapping[str, str], parent_job_id: str | None, number: int | None
) -> RunRow:
    """A new run as its first row describes it, without reading the store: later rows may not be durable yet."""
    run = resident.run
    return RunRow(
        no=run.no,
        tenant=run.tenant,
        id=run.id,
        version=run.version,
        status="running" if run.begun else "pending",
        epoch=0,
        owner=None,
        owner_epoch=None,
        wake_at=None,
        needs=None,
        labels=encode(labels).decode() if labels else None,
        created_at=run.created_at,
        finished_at=None,
        parent_job_id=parent_job_id,
        workflow=resident.plan.name,
        number=number,
    )


def _check_name(name: Any, rights: Rights) -> None:
    if isinstance(name, str) and not rights.sees(name):
        raise Forbidden(f"this caller may not publish a workflow {name[:100]!a}")


def checked_inputs(inputs: Any) -> dict[str, Any]:
    if inputs is not None and type(inputs) is not dict and not isinstance(inputs, Mapping):
        raise InvalidInputs(f"inputs must be a mapping of names to values, not {type(inputs).__name__}")
    return dict(inputs or {})


def check_parent(parent_job_id: Any) -> None:
    if parent_job_id is not None and not (isinstance(parent_job_id, str) and is_text(parent_job_id)):
        raise InvalidInputs(f"parent_job_id must be text, not {type(parent_job_id).__name__}")


def _check_number(number: Any) -> None:
    if number is not None and (type(number) is not int or not 1 <= number <= NUMBER_MAX):
        raise InvalidInputs(f"a release number must be from 1 to {NUMBER_MAX:,}, not {number!r:.50}")


def _check_prose(what: str, text: str) -> None:
    if not is_text(text) or len(text) > limits.now.text_chars_max:
        most = f"{limits.now.text_chars_max:,} characters ({limits.met('text_chars_max')})"
        raise InvalidInputs(f"{what} must be text of at most {most}")


def _check_text(what: str, text: Any, chars_max: int) -> None:
    if not isinstance(text, str) or not text.strip() or not text.isprintable() or not is_text(text):
        raise InvalidInputs(f"{what} must be a non-empty line of text, not {text!a:.50}")
    if len(text) > chars_max:
        raise LimitExceeded("name_chars_max", f"{what} must have at most {chars_max} characters")
