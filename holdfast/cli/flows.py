"""`holdfast flows`: publish, list, show, diff and rollback, at a server or in a file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.api.types import FolderFile, FolderReport, Release, WorkflowLine
from holdfast.cli.file import finished
from holdfast.cli.options import Usage, checked_spec, read_text, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import ms_of, now_ms, painted, problem_lines, span, table
from holdfast.cli.safe import harmless, one_line
from holdfast.cli.source import opened
from holdfast.cli.streams import UNWRITTEN, give, put, say, show
from holdfast.config import Settings
from holdfast.errors import InvalidSpec, Problem

VERSION_SHOWN: Final = 12  # characters of a hash, and of a description
DESCRIPTION_SHOWN: Final = 60
Text = str | dict[str, Any]  # a definition: its text, or its data


# ----------------------------------------------------------------------------------------------------- publish


def publish_command(given: Given) -> int:
    settings = settings_of(given)
    files = _read_all([Path(file) for file in given.arguments], settings)
    return finished(
        _publish(
            settings,
            files,
            is_draft=given.has("--draft"),
            is_strict=given.has("--strict"),
            as_json=given.has("--json"),
        )
    )


def _read_all(files: list[Path], settings: Settings) -> dict[Path, Text]:
    """Parse every file, or raise with the problems of all of them. Returns their texts, which are published as they are written."""
    texts: dict[Path, Text] = {}
    problems: list[Problem] = []
    for file in files:
        try:
            text = read_text(file)
            spec = checked_spec(text, file, settings)
            document = spec.origin.document
            # A graph may take its name from its file, which the server does not see.
            is_named = document is not None and "name" in document.data
            texts[file] = text.decode() if is_named else spec.to_data()
        except InvalidSpec as error:
            problems += error.problems
    if problems:
        raise InvalidSpec(problems)
    return texts


async def _publish(
    settings: Settings, texts: dict[Path, Text], *, is_draft: bool, is_strict: bool, as_json: bool
) -> int:
    made: list[Release] = []
    async with opened(settings) as source:
        for file, text in texts.items():
            try:
                made.append(await source.publish(text, draft=is_draft, strict=is_strict))
            except InvalidSpec as error:
                raise InvalidSpec([replace(one, source=str(file)) for one in error.problems]) from None
    if as_json:
        return _written(give({"items": made}))
    for file, release in zip(texts, made, strict=True):
        done = "stored as a draft" if release.status == "draft" else "published"
        say(
            f"{release.name}: {done} as number {release.number} ({release.version[:VERSION_SHOWN]}) at {source.place}"
        )
        for warning in release.warnings:
            place = file if warning.startswith("spec:") else f"{file}: "
            say(harmless(f"warning: {place}{warning.removeprefix('spec')}"))
    return 0


# -------------------------------------------------------------------------------------------------------- list


def list_command(given: Given) -> int:
    return finished(_list(settings_of(given), as_json=given.has("--json")))


async def _list(settings: Settings, *, as_json: bool) -> int:
    async with opened(settings) as source:
        found, folder = await source.workflows(), await source.folder()
        skills = await source.folder("skills")
    if as_json:
        return _written(give({"items": found, "folder": folder, "skills": skills}))
    code = 0
    if found:
        now = now_ms()
        code = _written(show(table(_HEADS, [_cells(one, now) for one in found])))
    else:
        say(f"no workflows are published in {source.place}")
    for line in (*_folder_lines(folder), *_folder_lines(skills)):
        say(line)
    return code


_HEADS: Final = ("WORKFLOW", "NUMBER", "VERSION", "AGE", "DESCRIPTION")


def _cells(one: WorkflowLine, now: int) -> tuple[str, ...]:
    """`-` if nothing is published under the name."""
    number = "-" if one.number is None else str(one.number)
    version = "-" if one.version is None else one.version[:VERSION_SHOWN]
    said = " ".join(one.description.split())
    description = said if len(said) <= DESCRIPTION_SHOWN else f"{said[: DESCRIPTION_SHOWN - 1]}…"
    return one.name, number, version, span(now - ms_of(one.published_at or one.created_at)), description


def _folder_lines(folder: FolderReport) -> list[str]:
    """Report the files in the server's folder that have problems, in the format that editors can jump to."""
    lines = [painted(f"{folder.folder}: {folder.problem}", "failed", fd=2)] if folder.problem else []
    for file in folder.items:
        lines += _file_lines(file)
    return lines


def _file_lines(file: FolderFile) -> list[str]:
    if file.status != "broken":
        return []
    stays = f"; the published version of {file.name} stays" if file.name else ""
    return [one_line(f"{file.file} has problems{stays}:"), *problem_lines(file.problems)]


# -------------------------------------------------------------------------------------------------------- show


def show_command(given: Given) -> int:
    number = given.text("--number")
    wanted = None if number is None else _number(number, "--number")
    return finished(_show(settings_of(given), given.argument or "", wanted, as_json=given.has("--json")))


async def _show(settings: Settings, name: str, number: int | None, *, as_json: bool) -> int:
    async with opened(settings) as source:
        found = await source.workflow(name, number)
        versions = await source.versions(found.name)
    if as_json:
        return _written(give(msgspec.to_builtins(found) | {"versions": versions}))
    from holdfast.spec.notation import definition_from

    others = ", ".join(_numbered(one) for one in versions)
    say(
        f"{found.name}, number {found.number} ({found.version[:VERSION_SHOWN]}), {found.status}; versions: {others}"
    )
    text = definition_from(found.definition).to_yaml()
    # Written to a file byte for byte; on a terminal control characters are escaped.
    return _written(show(text) if os.isatty(1) else put(text.encode(errors="surrogateescape")))


def _numbered(release: Release) -> str:
    return f"{release.number} (draft)" if release.status == "draft" else str(release.number)


# ---------------------------------------------------------------------------------------------- diff, rollback


def diff_command(given: Given) -> int:
    name, a, b = given.arguments
    wanted = (_number(a, "A"), _number(b, "B"))
    return finished(_diff(settings_of(given), name, *wanted, as_json=given.has("--json")))


async def _diff(settings: Settings, name: str, a: int, b: int, *, as_json: bool) -> int:
    async with opened(settings) as source:
        found = await source.diff(name, a, b)
    if as_json:
        return _written(give(found))
    if not found.text:
        say(f"{name} {a} and {b} are the same")
    return _written(show(found.text))


def rollback_command(given: Given) -> int:
    name, number = given.arguments
    return finished(_roll_back(settings_of(given), name, _number(number, "N"), as_json=given.has("--json")))


async def _roll_back(settings: Settings, name: str, number: int, *, as_json: bool) -> int:
    async with opened(settings) as source:
        release = await source.roll_back(name, number)
        folders = [await source.folder(), await source.folder("skills")]
    if as_json:
        return _written(give(release))
    say(
        f"{release.name} is now number {release.number} ({release.version[:VERSION_SHOWN]}) again at {source.place}"
    )
    for folder in folders:
        for file in folder.items:
            if file.name == release.name:
                say(
                    f"{folder.folder}/{file.file} has another definition: correct it, or it is published again at the next start"
                )
    return 0


def _number(text: str, what: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,9}", text):
        raise Usage(f"{what} must be the number of a version, from 1, not {text!r}")
    return int(text)


def _written(is_written: Any) -> int:
    return 0 if is_written else UNWRITTEN
