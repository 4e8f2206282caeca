"""A folder of schedule files, and the schedule files of skills → one set of schedules, now and whenever a file changes.

    schedules/*.schedules.yaml ─┐
    schedules of skills ────────┴► read all ──► check together ──► plan (+2 ~1 -0) ──► the whole set in one commit
                                       └── a problem anywhere: all are reported, and the set that is in use stays

Unlike workflows, schedules are not taken file by file: half of a change could fire what the other half replaces. Knows files
and sets, not how schedules are stored or when they are due.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from holdfast import limits
from holdfast.errors import HoldfastError, InvalidSpec, LimitExceeded, NotFound, Problem, Unavailable
from holdfast.nearest import did_you_mean
from holdfast.ops.folders import FolderFile, Seen
from holdfast.ops.schedule_plan import first_fires
from holdfast.ops.skills import Skill, SkillFolder
from holdfast.ops.watching import watch
from holdfast.runtime.engine import Engine
from holdfast.schedule.of_spec import notes_on
from holdfast.spec.problems import quoted
from holdfast.spec.schedule import of_skill, schedule_files, schedules_from_files
from holdfast.spec.schedule_check import check_signed
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import RunTrigger
from holdfast.threads import in_thread
from holdfast.triggers.definitions import Declared, Plan
from holdfast.values import DEFAULT_TENANT

log = logging.getLogger("holdfast.schedules")

PAGE: Final = 1_000
WARNINGS_MAX: Final = 20  # names of schedules logged for one set


class Registry(Protocol):
    """Where schedules are kept."""

    async def origins(self, tenant: str) -> Mapping[str, str]:
        """The origin of each schedule of a tenant, by id: `file`, `api`, `plugin` or `code`."""

    async def swap(self, tenant: str, declared: Sequence[Declared]) -> Plan:
        """Store these, and only these, as the schedules of files, in one commit."""

    async def workflows(self, tenant: str) -> Sequence[str]:
        """The names under which a workflow is published."""


class StoredSchedules:
    """The schedules of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._store, self._schedules = engine.store, engine.schedules

    async def origins(self, tenant: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        after = ""
        while rows := await self._store.schedules(tenant, after, PAGE):
            found |= {row.id: row.origin for row in rows}
            after = rows[-1].id
        return found

    async def swap(self, tenant: str, declared: Sequence[Declared]) -> Plan:
        # The sources of all files are absolute, so that all of them are in this one set.
        return await self._schedules.swap(tenant, "file", "", declared)

    async def workflows(self, tenant: str) -> Sequence[str]:
        found: list[str] = []
        while rows := await self._store.workflows(tenant, found[-1] if found else "", PAGE):
            found += [row.name for row in rows]
        return found


class Read(NamedTuple):
    declared: tuple[Declared, ...]
    notes: tuple[Problem, ...]


class ScheduleFolder:
    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        skills: SkillFolder | None,
        registry: Registry,
        *,
        now: Callable[[], int],
        is_guarded: Callable[[], bool],
        tenant: str = DEFAULT_TENANT,
    ) -> None:
        self.root, self.tenant = None if root is None else Path(root), tenant
        self._skills, self._registry = skills, registry
        self._now, self._is_guarded = now, is_guarded
        self._seen: object = None  # everything that the last set depended on
        self._sources: dict[str, Skill | None] = {}  # each file by its path, and the skill that it belongs to
        self.problem = ""  # what is wrong with the folder as a whole
        self.plan = Plan()  # the changes that the last accepted set made
        self._first = ""  # the schedule that fires first
        self.problems: tuple[Problem, ...] = ()  # why the schedules in use differ from the files

    @property
    def files(self) -> list[FolderFile]:
        by_source: dict[str, list[Problem]] = {}
        for problem in self.problems:
            by_source.setdefault(problem.source, []).append(problem)
        paths = sorted(self._sources.keys() | by_source.keys())  # of problems too: a SKILL.md may have one
        return [
            FolderFile(
                path, None, "broken" if path in by_source else "published", tuple(by_source.get(path, ()))
            )
            for path in paths
        ]

    def said(self) -> str:
        """What the last change added, edited and removed, and what fires next: `+2 ~1 -0; next: nightly at
        2026-11-18T03:00:00Z`."""
        return f"{self.plan}; next: {self._first}" if self._first else str(self.plan)

    async def load(self) -> None:
        """Start using the schedules; raises NotFound if there is no such folder. Problems are reported, not raised."""
        if self.root is not None and not self.root.is_dir():
            raise NotFound(f"there is no folder {self.root}; --schedules names a folder")
        await self.scan()

    async def watch(self) -> None:
        """Read the files again after every change of a schedule or of a skill, until cancelled."""
        roots = (self.root, self._skills.root if self._skills else None)
        await watch([root for root in roots if root is not None], self.scan_all, self._report_folder)

    async def scan_all(self) -> None:
        if self._skills is not None:
            await self._skills.scan()  # first: a schedule may name a workflow that is new
        await self.scan()

    async def scan(self) -> None:
        """Read all files again if one has changed, and take their schedules into use if they differ."""
        try:
            seen = await in_thread(self._scan)
        except (OSError, LimitExceeded) as error:
            return self._report_folder(str(error))
        self._report_folder("")
        if seen == self._seen:
            return
        try:
            await self._take()
        except Unavailable as error:
            return log.warning("schedules are not changed now: %s", error)  # the next scan tries again
        except InvalidSpec as refused:
            self._refuse(refused.problems)
        except HoldfastError as error:
            self._refuse([Problem(error.code, str(error), source=str(self.root or ""))])
        self._seen = seen

    # ------------------------------------------------------------------------------------------------- one set

    async def _take(self) -> None:
        read = await in_thread(self._read)
        specs = [one.spec for one in read.declared]
        problems = _taken(specs, await self._registry.origins(self.tenant))
        problems += check_signed(specs) if self._is_guarded() else []
        if problems:
            raise InvalidSpec(problems)
        self.plan = await self._registry.swap(self.tenant, read.declared)
        self.problems = ()
        log.info("%s", self.said())
        _warn([*read.notes, *unknown_workflows(specs, await self._registry.workflows(self.tenant))])

    def _read(self) -> Read:
        """Every schedule of every file; raises InvalidSpec with the problems of all of them."""
        skills = self._skills.skills if self._skills else ()
        problems = [problem for skill in skills for problem in skill.problems]
        try:
            files = schedules_from_files(self._sources)
        except InvalidSpec as refused:
            raise InvalidSpec([*problems, *refused.problems]) from None
        if problems:
            raise InvalidSpec(problems)
        declared = tuple(
            Declared(_resolved(spec, self._sources[file.source]), file.source)
            for file in files
            for spec in file.schedules
        )
        now = self._now()
        notes = [note for file in files for note in file.notes]
        notes += [note for one in declared for note in notes_on(one.spec, now)]
        self._first = first_fires((one.spec for one in declared), now)
        return Read(declared, tuple(notes))

    def _refuse(self, problems: Sequence[Problem]) -> None:
        if tuple(problems) != self.problems:
            log.warning("the schedules in use stay, because of %s:", _counted(len(problems), "problem"))
            for problem in problems:
                log.warning("%s", problem)
        self.problems = tuple(problems)

    def _report_folder(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("%s: %s", self.root or "schedules of skills", problem)
        self.problem = problem

    # ---------------------------------------------------------------------------------------------- the folder

    def _scan(self) -> object:
        """Find the schedule files. Return everything that the set of schedules depends on; the files are read again only if it changes."""
        sources: dict[str, Skill | None] = {}
        if self.root is not None:
            sources = {os.path.realpath(path): None for path in schedule_files(self.root)}
        for skill in self._skills.skills if self._skills else ():
            sources |= dict.fromkeys(skill.schedules, skill)
        if len(sources) > limits.now.folder_files_max:
            message = f"there are more than {limits.now.folder_files_max:,} schedule files"
            raise LimitExceeded("folder_files_max", message)
        self._sources = sources
        broken = tuple(skill for skill in (self._skills.skills if self._skills else ()) if skill.problems)
        return [(path, skill, _seen(path)) for path, skill in sources.items()], broken, self._is_guarded()


def _seen(path: str) -> Seen | None:
    try:
        stat = os.stat(path)
    except OSError:  # gone meanwhile; reading it says so
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _resolved(spec: ScheduleSpec, skill: Skill | None) -> ScheduleSpec:
    return spec if skill is None else of_skill(spec, skill.name, set(skill.workflows.values()))


def _taken(specs: Sequence[ScheduleSpec], origins: Mapping[str, str]) -> list[Problem]:
    """Ids of schedules that were not made by files."""
    problems = []
    for spec in specs:
        origin = origins.get(spec.id, "file")
        if origin != "file":
            message = f"duplicate schedule id {quoted(spec.id)}"
            hint = f"a schedule made by {_MADE_BY[origin]} has it; use another id, or delete that schedule"
            problems.append(spec.problem("duplicate_id", ("id",), message, hint))
    return problems


_MADE_BY = {"api": "the API", "plugin": "a plugin", "code": "a program"}


def unknown_workflows(specs: Sequence[ScheduleSpec], published: Sequence[str]) -> list[Problem]:
    """Warnings about workflows that are not published, each once: until they are, fires fail, or do not happen."""
    known = set(published)
    first = {spec.workflow: spec for spec in reversed(specs) if spec.workflow not in known}
    watched = [
        spec.problem(
            "unknown_workflow",
            ("trigger", "workflow"),
            f"schedule {quoted(spec.id)}: no workflow {quoted(spec.trigger.workflow)} is published",
            did_you_mean(spec.trigger.workflow, known)
            or "no run of it ends until it is published, or sent as a definition",
        )
        for spec in specs
        if isinstance(spec.trigger, RunTrigger) and spec.trigger.workflow not in known
    ]
    return watched[: WARNINGS_MAX + 1] + [
        spec.problem(
            "unknown_workflow",
            ("workflow",),
            f"schedule {quoted(spec.id)}: no workflow {quoted(name)} is published",
            did_you_mean(name, known) or "publish it, or the schedule cannot start a run",
        )
        for name, spec in islice(reversed(first.items()), WARNINGS_MAX + 1)
    ]


def _warn(notes: Sequence[Problem]) -> None:
    for note in notes[:WARNINGS_MAX]:
        log.warning("%s", note)
    if len(notes) > WARNINGS_MAX:
        log.warning("there are more such warnings; holdfast validate shows the warnings of a file")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
