"""Starts runs. One record describes what is asked for, and every interface starts runs through this one path.

A start is durable, together with the request that asked for it, when it returns. Does not know which interface
called, or what happens to a run afterwards.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from holdfast import limits
from holdfast.deliveries.destinations import destinations
from holdfast.engine.events import Destination, RunStarted, TriggeredBy
from holdfast.engine.state import Run
from holdfast.errors import InvalidInputs, LimitExceeded, NotFound, RunIsOpen, StoreUnavailable
from holdfast.nearest import did_you_mean
from holdfast.plan.compile import Resolved
from holdfast.plan.graph import Plan
from holdfast.runtime.apart import in_turns
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import ANY_TIME, Door
from holdfast.runtime.entries import Ahead
from holdfast.runtime.gate import Gate
from holdfast.runtime.idempotency import Requests, Started, checked_request_id, digest_of
from holdfast.runtime.plans import Plans, Ready
from holdfast.runtime.rerun import Again, restart
from holdfast.runtime.resident import Residents
from holdfast.runtime.resident_run import ResidentRun
from holdfast.spec.inputs import Inputs
from holdfast.spec.labels import label_problem
from holdfast.spec.notation import Definition, path_beside
from holdfast.store.base import Store
from holdfast.store.records import NewRun, Request, RunRow
from holdfast.store.schedule_records import Firing
from holdfast.tools.secrets import Secrets, SecretUnavailable
from holdfast.values import DEFAULT_TENANT, TERMINAL, Millis, NotJson, RunId, RunNo, decode, encode, is_text

NAMES_READ_MAX: Final = 1_000  # to suggest the closest name for an unknown one
CHECKED_AT_ONCE_BYTES: Final = 64 * 1024  # larger inputs are not validated in one turn of the loop
MEANINGS_MAX: Final = 1_000  # published names whose definition is cached


class StartRun(msgspec.Struct, kw_only=True):
    """What a caller asks for: a run of a definition."""

    definition: Definition
    inputs: dict[str, Any]
    tenant: str = DEFAULT_TENANT
    labels: Mapping[str, str] = {}
    number: int | None = None  # the release of the definition, if it was found by its name
    parent_job_id: str | None = None
    final_callbacks: Sequence[Destination] = ()  # added to those of the workflow
    trace: str = ""  # the traceparent of the caller
    drive: bool = True  # False: only store the run; an engine that drives the file executes it later
    # With an id there is one run, however often it is asked for. `workflow` is what the caller named: a name, or a hash.
    request_id: str | None = None
    workflow: str = ""
    # The occurrence that starts it, and the rows about it for the commit of the start, made once the run has its id.
    trigger: TriggeredBy | None = None
    slot: str = ""
    firing: Callable[[NewRun], Firing] | None = None


class RerunRun(msgspec.Struct, kw_only=True):
    """What a caller asks for: a rerun of a finished run. Outcomes outside `again` are copied; `inputs` replace those
    of the same name."""

    run_id: RunId
    again: Again = Again()
    inputs: Mapping[str, Any] | None = None
    tenant: str = DEFAULT_TENANT
    request_id: str | None = None


class Begun(msgspec.Struct, frozen=True, gc=False):
    no: RunNo
    run_id: RunId
    resident: ResidentRun | None  # None if an earlier request started it


class Entered(msgspec.Struct, frozen=True):
    """A run that the next commit writes, and what is resolved when it is durable."""

    resident: ResidentRun
    ready: Ready
    reply: asyncio.Future[None]


class PreparedStarts(NamedTuple):
    """Runs that were decided before their time."""

    ahead: Ahead
    entered: list[Entered]


class Starts:
    def __init__(
        self,
        store: Store,
        door: Door,
        plans: Plans,
        residents: Residents,
        clock: Clock,
        secrets: Secrets,
        gate: Gate,
        *,
        template_env: frozenset[str],
        resident_max: int,
        admit: Callable[[RunNo], None],
    ) -> None:
        self._store, self._door, self._plans, self._clock = store, door, plans, clock
        self._residents, self._secrets, self._requests = residents, secrets, Requests(store)
        self._template_env, self.resident_max = template_env, resident_max
        self._admit, self._gate = admit, gate
        # By tenant and name. Only this process can publish, so it invalidates the entry when it does.
        self._meanings: dict[tuple[str, str], tuple[Definition, int]] = {}

    # -------------------------------------------------------------------------------------------------- starting

    async def start(self, order: StartRun) -> Begun:
        """Start a run, unless the request already has one. Raises FiringLost if its schedule has decided otherwise
        meanwhile."""
        self._gate.check()
        if order.request_id is None:
            entered = self._at_once(order) or await self._enter(order, None)
            await entered.reply
            return self._stored(entered)
        encoded(order.inputs)
        digest = digest_of(order.workflow, order.inputs)
        return await self._once(order.tenant, order.request_id, digest, partial(self._start, order))

    async def rerun(self, order: RerunRun) -> Begun:
        """Start a run of the same version as a finished one."""
        self._gate.check()
        if order.request_id is None:
            return await self._rerun(order, None)
        encoded(order.inputs)
        wanted = {"again": msgspec.to_builtins(order.again), "inputs": order.inputs or {}}
        digest = digest_of(f"rerun {order.run_id}", wanted)
        return await self._once(order.tenant, order.request_id, digest, partial(self._rerun, order))

    async def _once(
        self,
        tenant: str,
        request_id: str,
        digest: str,
        begin: Callable[[tuple[str, str]], Awaitable[Begun]],
    ) -> Begun:
        begun: Begun | None = None  # of several concurrent callers only one starts the run

        async def made() -> Started:
            nonlocal begun
            begun = await begin((request_id, digest))
            return begun.no, begun.run_id

        no, run_id = await self._requests.once(tenant, checked_request_id(request_id), digest, made)
        return begun or Begun(no, run_id, None)

    async def _start(self, order: StartRun, request: tuple[str, str] | None) -> Begun:
        entered = await self._enter(order, request)
        await entered.reply
        return self._stored(entered)

    async def start_all(self, orders: Sequence[StartRun]) -> list[Exception | None]:
        """Start runs together, so that one commit has them; returns the error of each that was not started. None of the orders
        has a request id."""
        entered: list[Entered | Exception] = []
        for order in orders:
            try:
                self._gate.check()
                entered.append(await self._enter(order, None))
            except Exception as error:  # noqa: BLE001  # it is the outcome of this order, and of no other
                entered.append(error)
        try:
            return [await self._outcome(one) for one in entered]
        except asyncio.CancelledError:
            for one in entered:
                if isinstance(one, Entered):
                    one.reply.cancel()
            raise

    async def _outcome(self, one: Entered | Exception) -> Exception | None:
        if isinstance(one, Exception):
            return one
        try:
            await one.reply
        except Exception as error:  # noqa: BLE001  # as above
            return error
        self._stored(one)
        return None

    async def prepare(self, orders: Sequence[StartRun], at: Millis) -> PreparedStarts:
        """Decide ahead what the start of runs at `at` writes; raises if one of them cannot be started. Nothing is stored
        until `enter`."""
        self._gate.check()
        checked = []
        for order in orders:
            ready = await self.ready(order.tenant, order.definition)
            checked.append((order, ready, await _checked(ready.inputs, order.inputs)))
        if self._door.committer.is_shut:  # each start would be refused, with an error that nothing asks for
            raise StoreUnavailable("the database is unavailable")
        entered: list[Entered] = []
        ahead = self._door.ahead(lambda: entered.extend(self._put(*one, None, at) for one in checked))
        return PreparedStarts(ahead, entered)

    def can_enter(self, count: int) -> bool:
        """Whether runs that were decided ahead may start: there must be room for them in memory."""
        in_memory = len(self._door.residents) + len(self._residents.loading)
        return self._gate.is_open and in_memory + count <= self.resident_max

    def enter(self, prepared: PreparedStarts) -> None:
        """Let the next commit write runs that were decided ahead."""
        self._door.enter(prepared.ahead)

    async def settled(self, prepared: PreparedStarts) -> None:
        """Wait for the commit of runs that were decided ahead."""
        await self._outcome(prepared.entered[-1])

    async def outcomes(self, prepared: PreparedStarts) -> list[Exception | None]:
        """The error of each run that was not started, once all others are durable."""
        return [await self._outcome(one) for one in prepared.entered]

    async def _enter(self, order: StartRun, request: tuple[str, str] | None) -> Entered:
        """Put a run into the next commit."""
        spec, inputs = order.definition, order.inputs
        ready = self._plans.at_hand(spec) or await self.ready(order.tenant, spec)
        return self._put(order, ready, await _checked(ready.inputs, inputs), request)

    def _at_once(self, order: StartRun) -> Entered | None:
        """The same where nothing has to be waited for."""
        ready = self._plans.at_hand(order.definition)
        if ready is None or not ready.inputs.is_plain:
            return None
        return self._put(order, ready, ready.inputs.filled(order.inputs), None)

    def _put(
        self,
        order: StartRun,
        ready: Ready,
        filled: dict[str, Any],
        request: tuple[str, str] | None,
        at: Millis = ANY_TIME,
    ) -> Entered:
        """Put a run whose inputs are checked into the next commit. It starts now, or at `at` if that is later."""
        spec, tenant = order.definition, order.tenant
        started = RunStarted(msgspec.Raw(encoded(filled)), order.drive)
        if ready.plan.env:
            started.env = self._environment(ready.plan)
        started.destinations = destinations(spec, order.final_callbacks)
        labels = spec.labels
        if order.labels:
            labels = {**labels, **order.labels}
            _check_labels(order.labels, len(labels))
        new = self._new_run(tenant, ready, labels)
        new.parent_job_id, new.number = order.parent_job_id, order.number
        firing = None
        if order.trigger is not None:
            by = started.trigger = order.trigger
            new.schedule, new.slot, new.is_catchup = by.schedule_id, order.slot, by.is_catchup
            new.created_at = max(new.created_at, at)
            firing = None if order.firing is None else order.firing(new)
        return self._begin(ready, new, started, request, order.trace, firing, at)

    async def ready(self, tenant: str, spec: Definition) -> Ready:
        """What runs of a definition need, with the workflows that it names as they are published now."""
        return self._plans.at_hand(spec) or await self._plans.of_any(spec, partial(self._named, tenant))

    async def definition_of(self, tenant: str, version: str) -> Resolved:
        """The definition of a run that was started before, with those that it names."""
        return (await self._plans.again(tenant, version)).whole

    async def _rerun(self, order: RerunRun, request: tuple[str, str] | None) -> Begun:
        row, before = await self.past(order.run_id, order.tenant)
        plan, run = before.plan, before.run
        ready = await self._plans.again(row.tenant, row.version)
        given = run.inputs
        if order.inputs:
            given = msgspec.Raw(encoded(ready.inputs.filled({**decode(run.inputs), **order.inputs})))
        had = await restart(self._store, plan, run, order.again)
        started = RunStarted(given, env=run.env, destinations=run.destinations, trigger=run.trigger)
        started.taken, started.vars, started.first = dict(had.taken), dict(had.vars), had.first
        labels = ready.whole.spec.labels
        if row.labels:
            labels = {**labels, **msgspec.json.decode(row.labels, type=dict[str, str])}
        new = self._new_run(order.tenant, ready, labels)
        new.parent_job_id, new.number, new.rerun_of = row.parent_job_id, row.number, order.run_id
        entered = self._begin(ready, new, started, request)
        await entered.reply
        return self._stored(entered)

    def _new_run(self, tenant: str, ready: Ready, labels: Mapping[str, str]) -> NewRun:
        plan = ready.plan
        return NewRun(
            self._store.next_no(),
            tenant,
            self._clock.new_id(),
            plan.version,
            "interrupt" if plan.interrupted_by_restart else None,
            encode(labels).decode() if labels else None,
            self._clock.now(),
            workflow=ready.whole.spec.name,
        )

    def _begin(
        self,
        ready: Ready,
        new: NewRun,
        started: RunStarted,
        request: tuple[str, str] | None,
        trace: str = "",
        firing: Firing | None = None,
        at: Millis = ANY_TIME,
    ) -> Entered:
        """Let the next commit write a run, with its definition and the request or the schedule that asked for it."""
        door, plan, no, tenant = self._door, ready.plan, new.no, new.tenant
        if started.destinations:
            self._check_callbacks(tenant, started)
        resident = ResidentRun(
            Run(no, new.id, plan.version, tenant), plan, owned=True, status=None, trace=trace
        )
        if new.schedule is not None:
            resident.schedule, resident.slot = new.schedule, new.slot or ""
        if ready.stored_for != tenant:
            self._plans.store_with(door.batch, tenant, ready.whole, plan.version, new.created_at)
        if trace and not (door.is_stalled or door.is_over):
            door.batch.traces.append((no, trace))
        self._admit(no)
        if len(door.residents) + len(self._residents.loading) >= self.resident_max:
            started.drive = False
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asked = None if request is None else Request(tenant, *request, no, new.created_at)
        door.begin(resident, new, started, reply, asked, firing, at)
        return Entered(resident, ready, reply)

    def _stored(self, entered: Entered) -> Begun:
        """A run is durable, and so is its definition."""
        resident, ready = entered.resident, entered.ready
        run = resident.run
        if ready.stored_for != run.tenant:
            ready.stored_for = run.tenant
            self._plans.is_durable(run.tenant, run.version)
        return Begun(run.no, run.id, resident)

    def _check_callbacks(self, tenant: str, started: RunStarted) -> None:
        """Refuse a start whose final callbacks could never be signed, while the caller can still get the error."""
        for one in started.destinations:
            if one.secret_env is not None:
                try:
                    self._secrets.for_callback(one.secret_env, tenant)
                except SecretUnavailable as error:
                    raise InvalidInputs(str(error)) from None

    def _environment(self, plan: Plan) -> dict[str, str | None]:
        """The environment variables that a plan names, as they are now. The run keeps these values."""
        return {name: os.environ.get(name) for name in plan.env if name in self._template_env}

    async def past(self, run_id: RunId, tenant: str = DEFAULT_TENANT) -> tuple[RunRow, ResidentRun]:
        """A finished run, to read."""
        row = await self._store.run_by_id(tenant, run_id) if is_text(run_id) else None
        if row is None:
            raise NotFound(f"no run {ascii(run_id)[1:-1]} in this database")
        if row.status not in TERMINAL:
            raise RunIsOpen(run_id, row.status)
        resident = await self._residents.stored(row.no)
        assert resident is not None
        return row, resident

    # ------------------------------------------------------------------------------------------------------ names

    async def published(self, name: str, tenant: str = DEFAULT_TENANT) -> tuple[Definition, int]:
        """The definition that a name refers to now, and the number of its release."""
        self._gate.check()
        meanings = self._meanings
        known = meanings.get((tenant, name))
        if known is not None:
            return known
        found = await self._store.published(tenant, name) if is_text(name) else None
        if found is None:
            near = did_you_mean(name, await self._store.workflow_names(tenant, NAMES_READ_MAX))
            hint = near or "publish it first, or pass a definition or the path of a .yaml file"
            raise NotFound(f"no workflow {name!a} is published; {hint}")
        version, definition, number = found
        meant = await self._plans.spec_of(version, definition), number
        if self._store.look_every is None:  # otherwise another node may publish at any moment
            if len(meanings) >= MEANINGS_MAX:
                meanings.clear()
            meanings[tenant, name] = meant
        return meant

    @property
    def names(self) -> object:
        """Stays the same object as long as every published name refers to the same definition."""
        return self._meanings

    def forget_names(self) -> None:
        """A name refers to another definition from now on."""
        # replaced, not cleared: a definition that is being loaded for the old meaning is added to the old mapping
        self._meanings = {}

    async def _named(self, tenant: str, name: str, by: Definition) -> Definition:
        """What a name in a definition refers to: the file of that name beside it, if it was read from a file,
        otherwise the published release."""
        beside = path_beside(by, name)
        if beside is not None:
            return self._plans.read_file(beside)
        return (await self.published(name, tenant))[0]


def _check_labels(labels: Mapping[Any, Any], count: int) -> None:
    """Refuse labels that a start may not have; `count` is the number of labels of the run, including those of its
    workflow."""
    if count > limits.now.labels_max:
        raise LimitExceeded(
            "too_many_labels",
            f"a run may have at most {limits.now.labels_max} labels, not {count:,}",
            "labels_max",
        )
    for name, value in labels.items():
        problem = label_problem(name, value)
        if problem is not None and problem.is_limit:
            raise LimitExceeded(problem.code, problem.message, "label_chars_max")
        if problem is not None:
            raise InvalidInputs(problem.message)


async def _checked(declared: Inputs, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs with defaults, checked against a schema: large ones in a thread, unless their types alone settle it."""
    if declared.is_plain:
        return declared.filled(inputs)
    try:
        is_large = len(encode(inputs)) > CHECKED_AT_ONCE_BYTES
    except NotJson:
        is_large = False  # which the check says in the words of the schema
    return await in_turns(partial(declared.filled, inputs)) if is_large else declared.filled(inputs)


def encoded(value: Any, what: str = "the inputs are") -> bytes:
    try:
        text = encode(value)
    except NotJson as error:
        raise InvalidInputs(f"{what} not JSON: {error}") from None
    if len(text) > limits.now.value_bytes_max:
        raise LimitExceeded(
            "input_too_large",
            f"{what} larger than {limits.size(limits.now.value_bytes_max)}; pass a path or a reference instead",
            "value_bytes_max",
        )
    return text
