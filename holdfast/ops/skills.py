"""A folder of skills → the workflows of each, published as `skill::name`, and the schedule files that its metadata names.

    skills/maya/SKILL.md ──front matter──► patterns ──► workflows/*.yaml   published as maya::cleanup
                                                   └──► schedules.yaml     for ops/schedule_folder.py

A folder with a SKILL.md is one skill; folders inside it belong to it. Workflows count file by file, as in any folder of
definitions. Knows where skills are and what belongs to them, not what a schedule means.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

import msgspec

from holdfast import limits
from holdfast.errors import InvalidSpec, LimitExceeded, Problem
from holdfast.ops.folders import Folder, Seen
from holdfast.spec.catalog import WorkflowCatalog
from holdfast.spec.notation import Definition, definition_from_text
from holdfast.spec.read import text_of
from holdfast.spec.skill import skill_from_file

log = logging.getLogger("holdfast.skills")

SKILL: Final = "SKILL.md"


class Skill(NamedTuple):
    """The workflows and schedule files of one SKILL.md, or why it cannot be used."""

    file: str
    name: str = ""
    workflows: Mapping[str, str] = MappingProxyType({})  # file → name within the skill
    schedules: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()
    search_hint: str = ""


class SkillFolder(Folder):
    flag: ClassVar[str] = "--skills"
    skills: tuple[Skill, ...] = ()
    _scanned: dict[str, Seen] | None = None

    def _walk(self) -> dict[str, Seen]:
        """The workflows of all skills, and each SKILL.md that cannot be used. Skills are read again only after a change."""
        scanned = dict(_scan(self.root))
        if scanned != self._scanned:
            self.skills = skills_in(self.root, scanned)
            self._report_skills()
            self._scanned = scanned
        wanted = [file for skill in self.skills for file in skill.workflows]
        wanted += [skill.file for skill in self.skills if skill.problems]
        return {file: self._scanned[file] for file in wanted}

    def _read(self, file: str) -> Definition:
        for skill in self.skills:
            if skill.file == file:
                raise InvalidSpec(skill.problems)
            if file in skill.workflows:
                path = self.root / file
                name = f"{skill.name}::{skill.workflows[file]}"
                definition = definition_from_text(text_of(path), str(path), name)
                definition.validate(self._template_env)
                return definition
        raise FileNotFoundError(2, "no skill has this file any longer")

    def _called(self, file: str) -> str:
        for skill in self.skills:
            if file in skill.workflows:
                return f"{skill.name}::{skill.workflows[file]}"
        return Path(file).parent.name  # a SKILL.md that cannot be used

    def hint_of(self, workflow: str) -> str:
        name, _, _ = workflow.rpartition("::")
        return next((skill.search_hint for skill in self.skills if skill.name == name), "")

    def _report_skills(self) -> None:
        for skill in self.skills:
            for warning in skill.warnings:
                log.warning("%s: %s", skill.file, warning)


def skills_in(root: Path, files: dict[str, Seen]) -> tuple[Skill, ...]:
    """Every skill of a folder, of which these are the files. Of two with one name, the second cannot be used."""
    found: dict[str, Skill] = {}
    broken: list[Skill] = []
    for file in _outermost(files):
        skill = _skill(root, file)
        first = found.setdefault(skill.name, skill) if not skill.problems else skill
        if first is not skill:
            message = f"the skill {skill.name} is defined by {first.file} too"
            problem = Problem("duplicate_name", message, hint="give one of them another name", source=file)
            skill = Skill(file, problems=(problem,))
        if skill.problems:
            broken.append(skill)
    return (*found.values(), *broken)


def _outermost(files: Iterable[str]) -> list[str]:
    """Each SKILL.md that is not inside of another skill or in a hidden folder."""
    found: dict[Path, str] = {}
    for path in sorted((Path(file) for file in files), key=lambda path: (len(path.parts), path)):
        is_hidden = any(part.startswith(".") for part in path.parts)
        if path.name == SKILL and not is_hidden and found.keys().isdisjoint(path.parent.parents):
            found[path.parent] = str(path)
    return sorted(found.values())


def _skill(root: Path, file: str) -> Skill:
    path = root / file
    try:
        meta = skill_from_file(path)
        catalog = WorkflowCatalog.from_skill(meta, path.parent)
    except InvalidSpec as refused:
        problems = [msgspec.structs.replace(problem, source=str(path)) for problem in refused.problems]
        return Skill(file, problems=tuple(problems))
    except (OSError, LimitExceeded) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return Skill(file, problems=(Problem("unreadable", f"cannot be read: {reason}", source=str(path)),))
    home = root.resolve()
    workflows = {str(Path(entry.path).relative_to(home)): entry.name for entry in catalog.entries()}
    hint = next((entry.search_hint for entry in catalog.entries()), "")
    return Skill(file, meta.name, workflows, catalog.schedules, catalog.warnings, search_hint=hint)


def _scan(root: Path) -> Iterator[tuple[str, Seen]]:
    """Every file of the folder with the stat fields that show whether it has changed. Linked folders are not entered."""
    if not root.is_dir():
        raise NotADirectoryError(f"there is no folder {root}")
    seen = 0
    for folder, _, files in os.walk(root):
        seen += 1 + len(files)
        if seen > limits.now.folder_walk_max:
            message = f"{root} holds more than {limits.now.folder_walk_max:,} files and folders"
            raise LimitExceeded("folder_walk_max", message)
        for file in sorted(files):
            path = Path(folder, file)
            try:
                stat = path.stat()
            except OSError:  # gone meanwhile, or a link to nothing
                continue
            yield str(path.relative_to(root)), (stat.st_ino, stat.st_size, stat.st_mtime_ns)
