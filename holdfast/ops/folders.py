"""Publishes the definitions of a folder, at the start and whenever a file changes.

    files ──► scan (which have changed?) ──► read, check ──► publish
                  ▲                              └── broken: reported; the published version stays
    watchfiles ── "something changed"

The whole folder is scanned each time, so bursts, renames and lost notifications need no special rules. Files are
independent: a broken file does not affect the rest, and deleting a file leaves its published workflow. Knows files and
their states, not what is in a definition or how it is stored. Skips hidden files, files left over from editors, and inner
folders with a holdfast.toml, which are projects with their own tools.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import ClassVar, Final, Literal

import msgspec

from holdfast import config, limits
from holdfast.errors import (
    HoldfastError,
    InvalidSpec,
    LimitExceeded,
    NotFound,
    Problem,
    Unavailable,
    path_shown,
)
from holdfast.ops.watching import watch
from holdfast.spec.notation import Definition, definition_from_file
from holdfast.spec.schedule import is_schedule_file
from holdfast.threads import in_thread
from holdfast.values import DEFAULT_TENANT

log = logging.getLogger("holdfast.flows")

SUFFIXES: Final = (".yaml", ".yml", ".json")
# Files that `holdfast init` and `holdfast schema` write beside definitions, for editors.
SCHEMA: Final = ".schema.json"

Publish = Callable[[str, Definition], Awaitable[object]]
Seen = tuple[int, int, int]  # inode, size, time of change: another one means that the file is read again


class FolderFile(msgspec.Struct, frozen=True):
    """One file. A `broken` file has problems; its published version stays."""

    file: str  # its path below the folder, as text
    name: str | None
    status: Literal["published", "broken"]
    problems: tuple[Problem, ...] = ()
    called: str = ""  # the name of the workflow in a broken file, if it can be read


class Folder:
    """A folder of definitions. A subclass may decide which files it has, and their names."""

    flag: ClassVar[str] = "--flows"

    def __init__(
        self,
        root: str | os.PathLike[str],
        publish: Publish,
        *,
        tenant: str = DEFAULT_TENANT,
        template_env: Collection[str] = (),
    ) -> None:
        self.root, self.tenant = Path(root), tenant
        self._publish, self._template_env = publish, template_env
        self._files: dict[str, FolderFile] = {}
        self._seen: dict[str, Seen] = {}
        self._published: dict[str, bytes] = {}  # canonical text by file
        self.problem = ""  # what is wrong with the folder as a whole

    @property
    def files(self) -> list[FolderFile]:
        return [self._files[file] for file in sorted(self._files)]

    @property
    def broken(self) -> list[FolderFile]:
        return [one for one in self.files if one.status == "broken"]

    async def load(self) -> None:
        """Publish the files of the folder. Raise NotFound if it does not exist. Broken files are reported, not raised."""
        if not self.root.is_dir():
            raise NotFound(f"there is no folder {self.root}; {self.flag} names a folder")
        await self.scan()

    async def watch(self) -> None:
        """Scan again after every change, until cancelled."""
        await watch([self.root], self.scan, self._report_folder)

    async def scan(self) -> None:
        """Read the files that changed since the last scan, and publish those whose content differs."""
        try:
            found = await in_thread(self._walk)
        except (OSError, LimitExceeded) as error:
            return self._report_folder(str(error))
        self._report_folder("")
        for file in sorted(self._files.keys() - found.keys()):
            self._forget(file)
        for file, seen in found.items():
            if self._seen.get(file) != seen and await self._take(file):
                self._seen[file] = seen

    # --------------------------------------------------------------------------------------------------- one file

    async def _take(self, file: str) -> bool:
        """Read one file and publish it if its content is new. Return False if that failed for a reason outside the file, so that it is
        scanned again."""
        try:
            definition = await in_thread(self._read, file)
            if (other := self._other_of(file, definition.name)) is not None:
                return self._break(file, (_duplicate(definition.name, file, other),))
            text = definition.canonical()
            if self._published.get(file) != text:
                await self._publish(self.tenant, definition)
                self._published[file] = text
                log.info("%s: published %s", path_shown(file), definition.name)
        except Unavailable as error:
            log.warning("%s: not published now: %s", path_shown(file), error)
            return False
        except (InvalidSpec, OSError, HoldfastError) as error:
            self._break(file, _problems(error, str(self.root / file)))
            return True
        self._files[file] = FolderFile(path_shown(file), definition.name, "published")
        return True

    def _read(self, file: str) -> Definition:
        path = self.root / file
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise InvalidSpec(
                [Problem("outside", "leads out of the folder", hint="put the file itself there", source=file)]
            )
        definition = definition_from_file(path)
        definition.validate(self._template_env)
        return definition

    def _other_of(self, file: str, name: str) -> str | None:
        """Return another file with the same workflow name. Only one file may have it; otherwise the last save would decide."""
        return next(
            (one.file for path, one in self._files.items() if one.name == name and path != file), None
        )

    def _break(self, file: str, problems: tuple[Problem, ...]) -> bool:
        before = self._files.get(file)
        name = before.name if before is not None and file in self._published else None
        self._files[file] = FolderFile(
            path_shown(file), name, "broken", problems, path_shown(self._called(file))
        )
        if before is None or before.problems != problems:
            stays = f"; {name} keeps its published version" if name else ""
            more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
            log.warning("%s: cannot be used%s: %s%s", path_shown(file), stays, problems[0], more)
        return False

    def _called(self, file: str) -> str:
        return Path(file).stem.removesuffix(".workflow")

    def hint_of(self, workflow: str) -> str:
        """Text under which a workflow is found too."""
        return ""

    def _forget(self, file: str) -> None:
        """Forget a deleted file. Its published workflow stays, and another file may use the name."""
        gone = self._files.pop(file)
        self._seen.pop(file, None)
        if self._published.pop(file, None) is not None:
            log.info("%s was deleted; the published version of %s is kept", path_shown(file), gone.name)

    def _report_folder(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("%s: %s", self.root, problem)
        self.problem = problem

    # ----------------------------------------------------------------------------------------------- the folder

    def _walk(self) -> dict[str, Seen]:
        """Yield every file that may be a definition, with the stat fields that show whether it has changed."""
        found: dict[str, Seen] = {}
        for path in _definitions(self.root):
            try:
                stat = path.stat()
            except OSError:  # gone meanwhile, or a link to nothing
                continue
            found[str(path.relative_to(self.root))] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if len(found) > limits.now.folder_files_max:
                raise LimitExceeded(
                    "folder_files_max",
                    f"{self.root} holds more than {limits.now.folder_files_max:,} definitions",
                )
        return found


def _definitions(root: Path) -> Iterator[Path]:
    """Yield files in the order of their names. Hidden files and linked folders are skipped."""
    seen = 0
    if not root.is_dir():
        raise NotADirectoryError(f"there is no folder {root}")
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(one for one in folders if not (one.startswith(".") or _is_project(folder, one)))
        seen += 1 + len(files)
        if seen > limits.now.folder_walk_max:
            raise LimitExceeded(
                "folder_walk_max", f"{root} holds more than {limits.now.folder_walk_max:,} files and folders"
            )
        yield from (Path(folder, file) for file in sorted(files) if _is_definition(file))


def _is_project(folder: str, inner: str) -> bool:
    return os.path.exists(os.path.join(folder, inner, config.FILE))


def _is_definition(file: str) -> bool:
    """Return whether a name is that of a definition. Editors create `.x.swp`, `x~`, `.#x` and `#x#` beside a file."""
    is_other = file.endswith(SCHEMA) or file.startswith((".", "#", "~")) or is_schedule_file(file)
    return file.endswith(SUFFIXES) and not is_other


def _duplicate(name: str, file: str, other: str) -> Problem:
    hint = "give one of them another name, or delete it"
    return Problem("duplicate_name", f"{name} is defined by {other} too", hint=hint, source=file)


def _problems(error: Exception, source: str) -> tuple[Problem, ...]:
    if isinstance(error, InvalidSpec):
        return error.problems
    reason = error.strerror if isinstance(error, OSError) else None
    code = error.code if isinstance(error, HoldfastError) else "unreadable"
    return (Problem(code, reason or str(error), source=source),)
