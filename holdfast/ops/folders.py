"""A folder of definitions → published workflows, now and whenever a file of it changes.

    files ──► scan (which have changed?) ──► read, check ──► publish
                  ▲                              └── broken: reported; the published version stays
    watchfiles ── "something changed"

The whole folder is scanned each time, so bursts, renames and lost notices need no rules of their own. Each file
counts by itself: a broken one holds up no other, and one that is deleted leaves what was published. Knows files and
their states, not what is in a definition or how it is stored. Hidden files and what editors leave are passed over, and a
folder inside that has a holdfast.toml: that is a project of its own, with tools of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from holdfast import config, limits
from holdfast.errors import HoldfastError, InvalidSpec, LimitExceeded, NotFound, Problem, Unavailable
from holdfast.spec.notation import Definition, definition_from_file
from holdfast.tools.threads import in_thread
from holdfast.values import DEFAULT_TENANT

log = logging.getLogger("holdfast.flows")

SUFFIXES: Final = (".yaml", ".yml", ".json")
SCHEMA: Final = (
    ".schema.json"  # what `holdfast init` and `holdfast schema` put beside definitions, for editors
)
BURST_MS: Final = 50  # without a change for so long, a burst of changes has ended
BURST_MS_MAX: Final = 1_000
LOOK_AGAIN_MS: Final = 5_000  # without any notice: some file systems give none

Publish = Callable[[str, Definition], Awaitable[object]]
Seen = tuple[int, int, int]  # inode, size, time of change: another one means that the file is read again


class FolderFile(msgspec.Struct, frozen=True):
    """One file. `broken` ones have problems; what was published from them before stays."""

    file: str  # beneath the folder
    name: str | None
    status: Literal["published", "broken"]
    problems: tuple[Problem, ...] = ()


class Folder:
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
        self.problem = ""  # of the folder as a whole

    @property
    def files(self) -> list[FolderFile]:
        return [self._files[file] for file in sorted(self._files)]

    @property
    def broken(self) -> list[FolderFile]:
        return [one for one in self.files if one.status == "broken"]

    async def load(self) -> None:
        """Publish what is there; raises NotFound if there is no such folder. Broken files are reported, not raised."""
        if not self.root.is_dir():
            raise NotFound(f"there is no folder {self.root}; --flows names a folder of definitions")
        await self.look()

    async def watch(self) -> None:
        """Look again after every change, until cancelled."""
        from watchfiles import awatch

        while True:
            try:
                async for _ in awatch(
                    self.root,
                    watch_filter=None,
                    debounce=BURST_MS_MAX,
                    step=BURST_MS,
                    rust_timeout=LOOK_AGAIN_MS,
                    yield_on_timeout=True,
                    ignore_permission_denied=True,
                ):
                    await self.look()
                    if not self.root.is_dir():
                        break
            except OSError as error:  # the folder is missing; it may return
                self._tell_folder(f"cannot be watched: {error.strerror or error}")
            await asyncio.sleep(LOOK_AGAIN_MS / 1000)
            await self.look()

    async def look(self) -> None:
        """Read what has changed since the last scan, and publish what differs."""
        try:
            found = await in_thread(self._walk)
        except (OSError, LimitExceeded) as error:
            return self._tell_folder(str(error))
        self._tell_folder("")
        for file in sorted(self._files.keys() - found.keys()):
            self._forget(file)
        for file, seen in found.items():
            if self._seen.get(file) != seen and await self._take(file):
                self._seen[file] = seen

    # --------------------------------------------------------------------------------------------------- one file

    async def _take(self, file: str) -> bool:
        """Read one file and publish it if it says something new. False: what keeps it from that is not in the file
        itself, so it is scanned again."""
        try:
            definition = await in_thread(self._read, file)
            if (other := self._other_of(file, definition.name)) is not None:
                return self._break(file, (_duplicate(definition.name, file, other),))
            text = definition.canonical()
            if self._published.get(file) != text:
                await self._publish(self.tenant, definition)
                self._published[file] = text
                log.info("%s: published %s", file, definition.name)
        except Unavailable as error:
            log.warning("%s: not published now: %s", file, error)
            return False
        except (InvalidSpec, OSError, HoldfastError) as error:
            self._break(file, _problems(error, str(self.root / file)))
            return True
        self._files[file] = FolderFile(file, definition.name, "published")
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
        """A name is one file's: else which of two counts would depend on which was saved last."""
        return next((one.file for one in self._files.values() if one.name == name and one.file != file), None)

    def _break(self, file: str, problems: tuple[Problem, ...]) -> bool:
        before = self._files.get(file)
        name = before.name if before is not None and file in self._published else None
        self._files[file] = FolderFile(file, name, "broken", problems)
        if before is None or before.problems != problems:
            stays = f"; {name} goes on to mean what it did" if name else ""
            more = f" (and {len(problems) - 1} more problems)" if len(problems) > 1 else ""
            log.warning("%s: cannot be used%s: %s%s", file, stays, problems[0], more)
        return False

    def _forget(self, file: str) -> None:
        """It is gone: its name goes on to mean what was published, and another file may have the name from now on."""
        gone = self._files.pop(file)
        self._seen.pop(file, None)
        if self._published.pop(file, None) is not None:
            log.info("%s: is gone; what was published as %s stays", file, gone.name)

    def _tell_folder(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("%s: %s", self.root, problem)
        self.problem = problem

    # ----------------------------------------------------------------------------------------------- the folder

    def _walk(self) -> dict[str, Seen]:
        """Every file that may be a definition, with the stat fields that show whether it has changed."""
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
    """Files by their names, in order; hidden ones and linked folders are not entered."""
    looked_at = 0
    if not root.is_dir():
        raise NotADirectoryError(f"there is no folder {root}")
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(one for one in folders if not (one.startswith(".") or _is_project(folder, one)))
        looked_at += 1 + len(files)
        if looked_at > limits.now.folder_walk_max:
            raise LimitExceeded(
                "folder_walk_max", f"{root} holds more than {limits.now.folder_walk_max:,} files and folders"
            )
        yield from (Path(folder, file) for file in sorted(files) if _is_definition(file))


def _is_project(folder: str, inner: str) -> bool:
    return os.path.exists(os.path.join(folder, inner, config.FILE))


def _is_definition(file: str) -> bool:
    """By its name alone. Editors save beside a file under `.x.swp`, `x~`, `.#x`, `#x#`."""
    is_other = file.endswith(SCHEMA) or file.startswith((".", "#", "~"))
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
