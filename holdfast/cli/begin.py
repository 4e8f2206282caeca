"""How a run begins that a command drives or follows: a new run of a workflow, or an open run that is continued."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from holdfast.cli.file import finished, found
from holdfast.cli.options import Usage, likely_file, pairs_of, read_inputs, read_spec
from holdfast.cli.parser import Given
from holdfast.cli.server_source import ServerSource
from holdfast.cli.source import opened
from holdfast.cli.streams import say
from holdfast.config import Settings
from holdfast.deliveries.destinations import destination
from holdfast.errors import NotFound
from holdfast.runtime.engine import Engine
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.starts import Begun, StartRun
from holdfast.spec.notation import Definition, definition_from_stored
from holdfast.store.records import RunRow
from holdfast.values import encode
from holdfast.views.step_pages import steps_so_far
from holdfast.views.steps import Steps

FILE_ENDINGS: Final = (".yaml", ".yml", ".json")


class Begin(Protocol):
    """Takes a run into this command. What happened in the run before is read first, so that it can be shown."""

    @property
    def may_create(self) -> bool: ...  # the database, if there is none

    async def before(self, engine: Engine, *, every: bool) -> Steps: ...
    async def begin(self, engine: Engine) -> ResidentRun: ...
    async def begin_at(self, server: ServerSource) -> str: ...  # the run's id


class Start(NamedTuple):
    """A new run. `name` is that of a published workflow; without one, the definition itself is started."""

    spec: Definition
    inputs: dict[str, Any]
    name: str | None = None
    labels: Mapping[str, str] = {}
    request_id: str | None = None
    final_callback: Mapping[str, str] | None = None  # {url, secret_env?}
    may_create: bool = True

    async def before(self, engine: Engine, *, every: bool) -> Steps:
        return Steps(every=every)

    async def begin(self, engine: Engine) -> ResidentRun:
        begun = await self.begun(engine)
        return begun.resident or await engine.runs.take_up(begun.run_id)

    async def begun(self, engine: Engine, *, drive: bool = True) -> Begun:
        """The start, durable; or the run that the same request started before. Without `drive` nothing of it is executed."""
        spec, number = (self.spec, None) if self.name is None else await engine.starts.published(self.name)
        order = StartRun(definition=spec, inputs=self.inputs, labels=self.labels, number=number, drive=drive)
        if self.final_callback is not None:
            order.final_callbacks = [destination(self.final_callback)]
        if self.request_id is not None:
            order.request_id = self.request_id
            order.workflow = self.name or engine.plans.content_of(spec)
        return await engine.starts.start(order)

    async def begin_at(self, server: ServerSource) -> str:
        what = self.name or self.spec.to_data()
        started = await server.client.start(
            what,
            self.inputs,
            labels=self.labels or None,
            request_id=self.request_id,
            final_callback=self.final_callback,
        )
        return started.run_id


class Continue(NamedTuple):
    """An open run, with the definition that it started with."""

    run_id: str
    spec: Definition | None
    file: Path | None
    may_create: bool = False

    async def before(self, engine: Engine, *, every: bool) -> Steps:
        row = await self._row(engine)
        stored = await engine.store.definition(row.tenant, row.version)
        if self.spec is not None and stored is not None:
            started_with = definition_from_stored(stored[0])
            if started_with.canonical() != self.spec.canonical():
                self._say_file_is_not_used(row.workflow)
        return await steps_so_far(engine.store, row.no, every=every)

    async def begin(self, engine: Engine) -> ResidentRun:
        return await engine.runs.take_up((await self._row(engine)).id)

    async def begin_at(self, server: ServerSource) -> str:
        return await server.find(self.run_id, is_open=True)

    async def _row(self, engine: Engine) -> RunRow:
        return await found(engine.store, self.run_id, is_open=True)

    def _say_file_is_not_used(self, name: str) -> None:
        if self.spec is not None and self.spec.name == name:
            say(f"{self.file} has changed since; the run continues with the version that it started with")
        else:
            say(f"the run is of {name}; {self.file} is not used")


def start_of(given: Given, settings: Settings) -> Start:
    """The start that a command line asks for: of a file, or of a published workflow by name."""
    word = given.argument or ""
    if _is_file(word):
        name, spec = None, read_spec(Path(word), settings)
    else:
        name, spec = word, _published(settings, word)
    return Start(
        spec,
        read_inputs(spec, given.text("--inputs"), given.texts("--input")),
        name,
        dict(pairs_of("--label", given.texts("--label"))),
        given.text("--request-id"),
        _final_callback(given),
    )


def _final_callback(given: Given) -> dict[str, str] | None:
    url, secret = given.text("--final-callback"), given.text("--final-callback-secret")
    if url is None:
        if secret is not None:
            raise Usage("--final-callback-secret signs a final callback; give its URL with --final-callback")
        return None
    return {"url": url} if secret is None else {"url": url, "secret_env": secret}


def _is_file(word: str) -> bool:
    path = Path(word)
    return word.endswith(FILE_ENDINGS) or len(path.parts) > 1 or path.is_file()


def _published(settings: Settings, name: str) -> Definition:
    """What a name means at the server, or in the database file."""
    definitions: list[Definition] = []

    async def read() -> int:
        async with opened(settings) as source:
            workflow = await source.workflow(name, None)
        definitions.append(definition_from_stored(encode(workflow.definition)))
        return 0

    try:
        finished(read())
    except NotFound as error:
        raise Usage(f"there is no file {name}, and {error}{likely_file(Path(name))}") from None
    return definitions[0]
