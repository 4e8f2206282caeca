"""The engine in your own process: the Holdfast class, handles of runs, and run_sync. No HTTP, no SQL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holdfast import limits as bounds
from holdfast.answering import Answering
from holdfast.arguments import checked
from holdfast.config import PENDING_TTL_SECS, RETENTION_DAYS, Settings
from holdfast.deliveries.destinations import Given as FinalCallback
from holdfast.deliveries.destinations import destination
from holdfast.embed.handle import RunHandle
from holdfast.embed.records import Cancellation, Resumption, RunInfo, StepInfo, run_info
from holdfast.errors import EngineClosed, InvalidInputs, LimitExceeded, NotFound, RunIsOver, ToolMissing
from holdfast.execution.dispatcher import ATTEMPTS_MAX, THREADS_MAX
from holdfast.plugins.call import add_tools
from holdfast.plugins.find import Found, given
from holdfast.plugins.load import load
from holdfast.runtime.clock import Clock
from holdfast.runtime.commands import check_parent, checked_inputs
from holdfast.runtime.compose import Options, database_path, embedded, lock_of
from holdfast.runtime.planning import Validation
from holdfast.runtime.rerun import Again
from holdfast.runtime.starts import RerunRun, StartRun
from holdfast.spec.flow import FlowSpec
from holdfast.spec.notation import Definition
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.base import DURABILITIES
from holdfast.tools.guard import Guard
from holdfast.tools.registry import Registry
from holdfast.tools.remote import RemoteCaller
from holdfast.tools.results import refuse_bent
from holdfast.tools.secrets import Provider, Secrets
from holdfast.values import DEFAULT_TENANT, RunId
from holdfast.views.events import RunEvent
from holdfast.views.outline import Outline
from holdfast.views.runs import list_runs

__all__ = [
    "Cancellation",
    "Holdfast",
    "Resumption",
    "RunEvent",
    "RunHandle",
    "RunInfo",
    "Spec",
    "StepInfo",
    "database_path",
    "run_sync",
]

Spec = WorkflowSpec | FlowSpec | str | os.PathLike[str] | Mapping[str, Any]


class Holdfast:
    """A durable engine in your program, on a SQLite file or a PostgreSQL database.

        async with Holdfast("sqlite:///holdfast.db", tools=[add]) as hf:
            run = await hf.start("hello.yaml", {"a": 1})
            print(await run.result())

    Entering the context continues every open run in the database.

    - `tools`: functions, or `@tool` objects, that steps call by name. `remote` calls tools on other servers.
    - `plugins`: all scheduled plugins of the database; schedules of other plugins are removed, but their history is kept. A plugin
      that cannot be loaded is logged with all its problems. With None, schedules of plugins are not fired, so that another process
      can fire them.
    - `secrets`: functions that return the value of a secret by name, or None. One with a parameter `tenant` receives the tenant of
      the run, any other is called only for the tenant `default`.
    - `template_env`: the environment variables that templates may use.
    - `artefacts`: where files of runs are stored: a folder, or `s3://BUCKET/PREFIX` (extra `s3`). Default: beside the database.
    - `artefact_roots`: folders from which tools may return files, besides the work folder of each attempt.
    - `allow_networks`: `http_request` may call only public addresses and these networks. None is no limit.
    - `public_url`: the address of a server on this database. Calls with `supports_async_callback` get a `callback_url` there.
    - `pending_ttl_secs`: how long a step waits for a callback, unless it sets its own.
    - `retention_days`: finished runs are deleted after so many days (None: never).
    - `attempts_max`: attempts in progress at a time. Sync tools use `threads` threads, and isolated tools `processes` processes (None:
      one per core), each with at most `process_memory_bytes` of memory (None: half of the machine's).
    - `durability`: with `full`, what was committed survives a power cut; with `relaxed`, only the end of the process.
    - `limits`: those of `[limits]` in the settings by name, such as `{"signals_max": 100}`. They apply to the whole process: while one
      engine is open, another with different limits is refused.
    - `tune_gc`: tune Python's garbage collector for thousands of runs in memory, as a server does: what is loaded is excluded from
      collections (`gc.freeze`) and collections are rarer, in the whole process.
    - `clock`: another clock, for tests.
    """

    _manual_clock = False  # whether the clock only moves when a test moves it

    @checked
    def __init__(
        self,
        database: str = "sqlite:///holdfast.db",
        *,
        tools: Iterable[Any] = (),
        plugins: Iterable[Any] | None = None,
        remote: RemoteCaller | None = None,
        secrets: Iterable[Provider] = (),
        template_env: Collection[str] = (),
        artefacts: str | os.PathLike[str] | None = None,
        artefact_roots: Iterable[str | os.PathLike[str]] = (),
        allow_networks: Iterable[str] | None = None,
        public_url: str | None = None,
        pending_ttl_secs: float = PENDING_TTL_SECS,
        retention_days: float | None = RETENTION_DAYS,
        attempts_max: int = ATTEMPTS_MAX,
        threads: int = THREADS_MAX,
        processes: int | None = None,
        process_memory_bytes: int | None = None,
        durability: str = "full",
        limits: Mapping[str, int] | None = None,
        tune_gc: bool = False,
        clock: Clock | None = None,
    ) -> None:
        _check_limits(
            pending_ttl_secs=pending_ttl_secs,
            retention_days=retention_days,
            attempts_max=attempts_max,
            threads=threads,
            processes=processes,
            process_memory_bytes=process_memory_bytes,
        )
        _check_words(template_env, durability)
        # Where a test moves the clock, a socket that waits for callers would look like work in progress.
        self._lock = lock_of(database, answers=None if self._manual_clock else "all")

        guard = Guard(guarded=allow_networks is not None, allowed=allow_networks or ())
        options = Options(
            attempts_max=attempts_max,
            threads=threads,
            processes=processes,
            process_memory_bytes=process_memory_bytes,
            template_env=template_env,
            pending_ttl_ms=max(1, round(1000 * pending_ttl_secs)),
            public_url=public_url,
            secrets=Secrets(secrets),
            limits=None if limits is None else _limits(limits),
            tunes_gc=tune_gc,
            manual_clock=self._manual_clock,
            retention_days=retention_days,
        )
        self._engine = embedded(
            database,
            Registry(tools, guard=guard, remote=remote),
            clock,
            options,
            durability=durability,
            artefacts=None if artefacts is None else os.fspath(artefacts),
            artefact_roots=artefact_roots,
        )
        self._plugins = None if plugins is None else given(plugins)
        self._was_opened = False
        settings = Settings(db=database, template_env=tuple(template_env), public_url=public_url)
        self._answering = Answering(self._lock.socket, self._engine, settings)

    async def __aenter__(self) -> Self:
        if self._was_opened:
            raise EngineClosed("a Holdfast can be opened only once; create a new one")
        self._was_opened = True
        self._lock.take()
        try:
            if self._plugins is not None:
                await self._use_plugins(self._plugins)
            await self._engine.open()
        except BaseException:
            self._lock.free()
            raise
        self._answering.begin()
        return self

    async def _use_plugins(self, found: list[Found]) -> None:
        loaded = await load(found)
        add_tools(self._engine.registry, loaded.plugins)
        self._engine.plugins.use(loaded)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._answering.end()
            await self._engine.close()
        finally:
            self._lock.free()

    @checked
    async def start(
        self,
        spec: Spec,
        inputs: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent_job_id: str | None = None,
        final_callback: FinalCallback | None = None,
        plan_hash: str | None = None,
    ) -> RunHandle:
        """Start a run. When this returns, the run is durable: it will finish even if this process crashes.

        `spec` is a WorkflowSpec or FlowSpec, YAML text, the path of a file, a dict, or the name of a published workflow. With a
        `request_id` there is one run however often this is called; the same id with another workflow or other inputs
        raises RequestConflict. `parent_job_id` is stored with the run and shown with it. `final_callback` is called when the run
        ends: a URL, or `{"url": …, "secret_env": …}` for a signed request. With a `plan_hash`, as `plan` gives it, nothing is
        started if the plan has changed since: PlanChanged is raised.
        """
        given = checked_inputs(inputs)
        refuse_bent(given, "inputs")
        check_parent(parent_job_id)
        name, number = _published_name(spec), None
        if name is None:
            read = self._read(spec)
        else:
            read, number = await self._engine.starts.published(name)
        if plan_hash is not None:
            await self._engine.commands.planning.check_hash(DEFAULT_TENANT, read, plan_hash)
        order = StartRun(
            definition=read,
            inputs=given,
            labels=labels or {},
            number=number,
            parent_job_id=parent_job_id,
            final_callbacks=() if final_callback is None else [destination(final_callback)],
        )
        if request_id is not None:
            order.request_id, order.workflow = request_id, name or self._engine.plans.content_of(read)
        begun = await self._engine.starts.start(order)
        return RunHandle(self._engine, begun.no, begun.run_id)

    async def _refuse_missing(self, spec: Spec) -> None:
        """Raise ToolMissing if a run would wait for a tool or worker that no other process can bring."""
        name, starts = _published_name(spec), self._engine.starts
        read = self._read(spec) if name is None else (await starts.published(name))[0]
        whole = (await starts.ready(DEFAULT_TENANT, read)).whole
        if lacks := self._engine.commands.planning.lacks(DEFAULT_TENANT, whole):
            known = ", ".join(sorted(self._engine.registry.names()))
            raise ToolMissing(
                "\n".join(map(str, lacks))
                + f"\ntools were looked for in `tools` and the built-in ones: {known}"
            )

    async def validate(self, spec: Mapping[str, Any] | str) -> Validation:
        """Check a definition, as data or YAML text: every problem with the JSON Patch that repairs it, and the plan of a
        valid one. Nothing is stored or executed."""
        return await self._engine.commands.validate(DEFAULT_TENANT, spec)

    async def plan(self, spec: Spec) -> Outline:
        """Return what a run would do: its steps, the tools that it calls, and a hash that `start` can require. Nothing is stored
        or executed."""
        what = _published_name(spec)
        return await self._engine.commands.plan_of(DEFAULT_TENANT, what or self._read(spec))

    async def publish(self, spec: Spec) -> str:
        """Publish a workflow under its name, so that `start("name")` starts it; returns its version.

        A version is the hash of the definition and never changes; the name refers to the version published last.
        """
        return (await self._engine.commands.publish(DEFAULT_TENANT, self._read(spec))).version

    @checked
    async def run(self, run_id: str) -> RunHandle:
        """Get a handle of an existing run, also after a crash."""
        row = await self._engine.runs.row_of(RunId(run_id))
        return RunHandle(self._engine, row.no, row.id)

    @checked
    async def runs(
        self,
        *,
        status: str | None = None,
        workflow: str | None = None,
        label: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[RunInfo]:
        """List runs, newest first. `label` is `team=x`, or `team` for any value. The page starts after the run whose
        id is `before`."""
        if not 1 <= limit <= bounds.now.page_max:
            raise LimitExceeded(
                "page_max", f"limit must be a number from 1 to {bounds.now.page_max}, not {limit}"
            )
        after = None if before is None else (await self._engine.runs.row_of(RunId(before))).no
        rows = await list_runs(
            self._engine.store, status=status, workflow=workflow, label=label, before=after, limit=limit
        )
        return [run_info(row) for row in rows]

    @checked
    async def rerun(
        self,
        run_id: str,
        *,
        from_step: str | None = None,
        failed: bool = False,
        paths: Sequence[str] = (),
        inputs: Mapping[str, Any] | None = None,
    ) -> RunHandle:
        """Rerun a finished run as a new run of the same version. By default the whole run is repeated.

        `from_step` is the step to start from, by id or path (`br.s`, `loop[3].s`), or an item (`loop[3]`); `paths` names
        several. `failed` repeats what failed, only inside those paths if any are given. The outcomes of all other steps are copied.
        `inputs` replace inputs of the same name.
        """
        again = Again((*(() if from_step is None else (from_step,)), *paths), failed)
        refuse_bent(inputs, "inputs")
        begun = await self._engine.starts.rerun(RerunRun(run_id=RunId(run_id), again=again, inputs=inputs))
        return RunHandle(self._engine, begun.no, begun.run_id)

    @checked
    def artefact(self, uri: str) -> Path:
        """The path of the file of `artefact://sha256/…`, for reading. Where files are in a bucket, use `await hf.fetch(uri, folder)`."""
        artefacts = self._engine.artefacts
        assert artefacts is not None
        if artefacts.is_remote:
            raise RuntimeError("the files of this engine are in a bucket: use await hf.fetch(uri, folder)")
        return artefacts.fetch(uri, Path)

    @checked
    async def fetch(self, uri: str, folder: str | os.PathLike[str]) -> Path:
        """The path of the file of `artefact://sha256/…`, for reading: where it is stored, or a copy of it in `folder` if it is in a
        bucket."""
        artefacts = self._engine.artefacts
        assert artefacts is not None
        return await artefacts.work(artefacts.fetch, uri, lambda: Path(folder))

    @checked
    async def cancel(self, run_id: str, reason: str = "") -> Cancellation:
        """Cancel a run: no new step starts, calls in progress are asked to stop, and the run ends as `cancelled`.

        A finished run is not changed, and the result says so.
        """
        try:
            await self._engine.runs.cancel(RunId(run_id), reason)
        except RunIsOver as over:
            return {"cancelled": False, "status": over.status}
        return {"cancelled": True, "status": (await self._engine.runs.row_of(RunId(run_id))).status}

    @checked
    async def signal(
        self, run_id: str, key: str, value: Any = None, *, correlation: str | None = None
    ) -> None:
        """Send a signal to a run: the step that waits for `key` consumes it, now or when it is reached.

        In a graph it is written to shared state, and waiting nodes check their conditions again. Durable when this returns.
        """
        refuse_bent(value, "the value of the signal")
        await self._engine.commands.signal(DEFAULT_TENANT, run_id, key, value, correlation)

    @checked
    async def approve(
        self,
        run_id: str,
        path: str,
        *,
        approved: bool = True,
        reason: str = "",
        by: str = "",
        form: Any = None,
    ) -> bool:
        """Answer the approval at a step. Returns whether this decided it; a quorum takes several answers.

        `by` names the person who answers. An approval that is not open, or was decided already, raises NotWaiting.
        """
        refuse_bent(form, "form")
        return await self._engine.commands.approve(
            DEFAULT_TENANT, run_id, path, approved=approved, reason=reason, by=by, form=form
        )

    @checked
    async def resume(self, task_id: str, answer: Any, *, run_id: str | None = None) -> Resumption:
        """Deliver the result of a call that returned `{"pending": true, "task_id": …}`: it becomes the output of the step.

        A result that arrives before the call returned is kept for a day. `{"success": false, "error": …}` fails the step.
        """
        refuse_bent(answer, "the answer")
        resumed = await self._engine.commands.resume(DEFAULT_TENANT, task_id, answer, run_id)
        return {"resumed": resumed.resumed, "reason": resumed.reason}

    def _read(self, spec: Spec) -> Definition:
        """Parse a definition in any of its forms; equal content is parsed once."""
        if isinstance(spec, WorkflowSpec | FlowSpec):
            return spec
        if isinstance(spec, Mapping):
            return self._engine.plans.read(spec)
        if not isinstance(spec, str | os.PathLike):
            raise InvalidInputs(
                f"spec must be a WorkflowSpec, a FlowSpec, YAML text, a path or a dict, not {type(spec).__name__}"
            )
        text = os.fspath(spec)
        if isinstance(spec, os.PathLike) or _is_file_name(text):
            return self._from_file(text)
        return self._engine.plans.read(text)

    def _from_file(self, path: str) -> Definition:
        try:
            return self._engine.plans.read_file(path)
        except FileNotFoundError:
            raise NotFound(f"there is no file {path} in {os.getcwd()}") from None


def run_sync(
    spec: Spec,
    inputs: Mapping[str, Any] | None = None,
    *,
    tools: Iterable[Any] = (),
    database: str = "sqlite:///holdfast.db",
    durability: str = "full",
    request_id: str | None = None,
    labels: Mapping[str, str] | None = None,
    parent_job_id: str | None = None,
    timeout: float | None = None,
) -> Any:
    """Run a workflow to its end and return its output: for scripts and notebooks.

    After `timeout` seconds it raises TimeoutError; the run stays open, and continues when the database is opened again. A workflow
    that calls a tool which is not among `tools`, or a service, which would need a worker, raises ToolMissing and starts nothing.
    """

    async def main() -> Any:
        async with Holdfast(database, tools=tools, durability=durability) as hf:
            await hf._refuse_missing(spec)
            run = await hf.start(
                spec, inputs, request_id=request_id, labels=labels, parent_job_id=parent_job_id
            )
            return await run.result(timeout)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    # A notebook already runs an event loop in this thread, so use one in another thread.
    with ThreadPoolExecutor(1) as other:
        return other.submit(lambda: asyncio.run(main())).result()


def _check_words(template_env: Collection[str], durability: str) -> None:
    if own := [name for name in template_env if name.upper().startswith("HOLDFAST_")]:
        raise ValueError(
            f"template_env names {own[0]}, which is a variable of Holdfast itself and may hold a secret"
        )
    if durability not in DURABILITIES:
        raise InvalidInputs(f"durability must be {' or '.join(DURABILITIES)}, not {durability!a:.50}")


def _check_limits(**limits: float | None) -> None:
    for name, value in limits.items():
        if value is not None and value <= 0:
            raise ValueError(f"{name} must be more than 0, not {value}")


def _limits(given: Mapping[str, int]) -> bounds.Limits:
    try:
        return bounds.chosen(given)
    except bounds.WrongLimit as wrong:
        raise InvalidInputs(str(wrong)) from None


def _published_name(spec: Spec) -> str | None:
    """Whether this text is neither a definition nor a file. A definition in one line has a colon, or is a mapping in
    braces."""
    if not isinstance(spec, str) or not spec.strip() or _is_file_name(spec):
        return None
    is_text = "\n" in spec or ": " in spec or spec.endswith(":") or spec.lstrip().startswith("{")
    return None if is_text else spec


def _is_file_name(text: str) -> bool:
    return "\n" not in text and text.endswith((".yaml", ".yml", ".json"))
