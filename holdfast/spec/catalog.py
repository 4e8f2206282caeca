"""The workflows of a skill: finds them by the patterns in its metadata, reads them and searches them.

    metadata: {dcc-mcp.workflows: "workflows/*.yaml, more/**/*.yml", dcc-mcp.workflows.search-hint: "render, export"}
    metadata: {dcc-mcp: {workflow: {specs: [workflows/*.yaml], schedules: [schedules/*.yaml]}}}

A key may be written flat or nested, and patterns as a list or as one text with commas.

Knows folders and patterns; the only file here that reads the disk. Must not know databases, or who asks.

Patterns may be hostile. They stay under the folder of the skill, links out of it are not followed, and the folder is
walked once for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.errors import InvalidSpec, LimitExceeded, Problem
from holdfast.nearest import did_you_mean
from holdfast.spec.notation import definition_from_file
from holdfast.spec.problems import quoted, type_name
from holdfast.spec.schedule import is_schedule_file

WORKFLOW_KEYS: Final = ("dcc-mcp.workflows", "dcc-mcp.workflow.specs")
SCHEDULES_KEY: Final = "dcc-mcp.workflow.schedules"
HINT_KEY: Final = "dcc-mcp.workflows.search-hint"
KEYS: Final = frozenset({*WORKFLOW_KEYS, SCHEDULES_KEY, HINT_KEY})
OURS: Final = "dcc-mcp.workflow"  # the prefix of our own keys
PATTERN_PARTS_MAX: Final = 32


class CatalogEntry(msgspec.Struct, frozen=True):
    """A workflow that was found. If it has problems, it is listed but cannot be started."""

    skill: str
    name: str
    description: str
    path: str
    inputs: Any = None
    search_hint: str = ""
    problems: tuple[Problem, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.skill}::{self.name}"


class WorkflowCatalog:
    """The workflows of a skill, found by the globs in its metadata. `schedules` are the schedule files that the metadata points at, and
    `warnings` the patterns that match no file."""

    def __init__(
        self,
        entries: Sequence[CatalogEntry],
        schedules: Sequence[str] = (),
        warnings: Sequence[Problem] = (),
    ) -> None:
        self._entries = tuple(sorted(entries, key=lambda entry: (entry.skill, entry.name, entry.path)))
        self.schedules, self.warnings = tuple(schedules), tuple(warnings)

    @classmethod
    def from_skill(cls, meta: Any, root: str | os.PathLike[str]) -> WorkflowCatalog:
        """The workflows of a skill. `meta` has its `name` and `metadata`, as keys or as attributes."""
        skill, metadata = _part(meta, "name", ""), _part(meta, "metadata", {}) or {}
        warnings = _unknown(metadata)
        workflows = [text for key in WORKFLOW_KEYS for text in _texts(metadata, key, warnings)]
        schedules = _texts(metadata, SCHEDULES_KEY, warnings)
        hint = next((str(said) for said in _said(metadata, HINT_KEY) if said), "")
        matched = _matched(Path(root), _patterns([*workflows, *schedules]))
        warnings += [_matches_nothing(text) for text, files in matched.items() if not files]
        named = {file for text in schedules for file in matched[text]}
        # A wide pattern such as **/*.yaml matches schedule files too.
        files = {file for text in workflows for file in matched[text] if not is_schedule_file(file.name)}
        entries = [_entry(file, str(skill), hint) for file in sorted(files - named)]
        return cls(entries, sorted(map(str, named)), warnings)

    def entries(self) -> tuple[CatalogEntry, ...]:
        return self._entries

    def search(self, query: str = "") -> tuple[CatalogEntry, ...]:
        """Workflows whose name, description or hint contains a text, ignoring case."""
        wanted = query.casefold()
        return tuple(entry for entry in self._entries if wanted in _searched(entry))


def _part(meta: Any, name: str, default: Any) -> Any:
    return meta.get(name, default) if isinstance(meta, Mapping) else getattr(meta, name, default)


def _searched(entry: CatalogEntry) -> str:
    return f"{entry.name}\n{entry.description}\n{entry.search_hint}".casefold()


def _entry(file: Path, skill: str, hint: str) -> CatalogEntry:
    fallback = file.stem.removesuffix(".workflow")
    try:
        spec = definition_from_file(file)
    except InvalidSpec as refused:
        return CatalogEntry(skill, fallback, "", str(file), None, hint, refused.problems)
    except OSError as error:
        problem = Problem("unreadable", f"cannot be read: {error.strerror}", source=str(file))
        return CatalogEntry(skill, fallback, "", str(file), None, hint, (problem,))
    problems: tuple[Problem, ...] = ()
    try:
        spec.validate()
    except InvalidSpec as refused:
        problems = refused.problems
    name = spec.name.strip() or fallback
    return CatalogEntry(skill, name, spec.description, str(file), spec.inputs, hint, problems)


# ----------------------------------------------------------------------------------------------------- patterns


def _said(metadata: Any, key: str) -> list[Any]:
    """The value of a dotted key, in any spelling: `a.b`, `a: {b: …}` or both."""
    if not isinstance(metadata, Mapping):
        return []
    found = [] if metadata.get(key) is None else [metadata[key]]
    parts = key.split(".")
    for count in range(1, len(parts)):
        inner = metadata.get(".".join(parts[:count]))
        found += _said(inner, ".".join(parts[count:]))
    return found


def _unknown(metadata: Any) -> list[Problem]:
    """Our keys that are unknown. Keys of other programs are ignored."""
    unknown = (key for key in _dotted(metadata) if key.startswith(OURS) and key not in KEYS)
    return [
        Problem("unknown_key", f"unknown key {quoted(key)}", hint=did_you_mean(key, KEYS)) for key in unknown
    ]


def _dotted(metadata: Any, before: str = "") -> Iterator[str]:
    """Every key that holds a value, as one text with dots."""
    for name, value in metadata.items() if isinstance(metadata, Mapping) else ():
        key = f"{before}{name}"
        if isinstance(value, Mapping) and key not in KEYS:
            yield from _dotted(value, f"{key}.")
        else:
            yield key


def _texts(metadata: Any, key: str, warnings: list[Problem]) -> list[str]:
    """The patterns under a key: a text with commas, or a list of texts."""
    texts: list[Any] = []
    for said in _said(metadata, key):
        if isinstance(said, str):
            texts += said.split(",")
        elif isinstance(said, list | tuple):
            texts += said
        else:
            texts.append(said)
    wrong = [text for text in texts if not isinstance(text, str)]
    hint = "write a list of patterns, or one text with commas"
    warnings += [
        Problem("wrong_type", f"{key} holds {type_name(one)}, not a pattern", hint=hint) for one in wrong
    ]
    stripped = (text.strip() for text in texts if isinstance(text, str))
    return list(dict.fromkeys(text for text in stripped if text))


def _matches_nothing(pattern: str) -> Problem:
    hint = "patterns are relative to the folder of the skill"
    return Problem("matches_nothing", f'the pattern "{pattern[:100]}" matches no file', hint=hint)


def _patterns(texts: list[str]) -> dict[str, tuple[str, ...]]:
    """Patterns, each as the parts between its slashes; raises InvalidSpec if one cannot be followed."""
    problems = [problem for pattern in texts if (problem := _wrong(pattern))]
    if problems:
        raise InvalidSpec(problems)
    return {text: tuple(part for part in text.split("/") if part not in ("", ".")) for text in texts}


def _wrong(pattern: str) -> Problem | None:
    parts = pattern.split("/")
    if pattern.startswith(("/", "~")) or ".." in parts or "\\" in pattern:
        reason = "it must stay under the folder of the skill"
    elif any("**" in part and part != "**" for part in parts):
        reason = "** stands for folders, alone between slashes"
    elif any(part.count("[") != part.count("]") for part in parts):
        reason = "a bracket is not closed"
    elif len(parts) > PATTERN_PARTS_MAX:
        reason = f"it has more than {PATTERN_PARTS_MAX} parts"
    else:
        return None
    return Problem("invalid_pattern", f'the pattern "{pattern[:100]}" cannot be followed', hint=reason)


def _matched(root: Path, patterns: dict[str, tuple[str, ...]]) -> dict[str, list[Path]]:
    """The files that each pattern matches; the folder is walked once."""
    found: dict[str, list[Path]] = {text: [] for text in patterns}
    if not patterns:
        return found
    home, count = root.resolve(), 0
    for parts in _walked(home):
        fitting = [text for text, pattern in patterns.items() if _matches(parts, pattern)]
        if not fitting or not _is_inside(file := home.joinpath(*parts), home):
            continue
        count += 1
        if count > limits.now.folder_files_max:
            message = (
                f"the patterns of the skill in {root} match more than {limits.now.folder_files_max:,} files"
            )
            raise LimitExceeded("catalog_files_max", message, "folder_files_max")
        for text in fitting:
            found[text].append(file)
    return found


def _walked(home: Path) -> Iterator[tuple[str, ...]]:
    """Every file under a folder, as the parts of its path. Linked folders are not entered."""
    seen = 0
    for folder, folders, files in os.walk(home):
        folders.sort()
        seen += 1 + len(files)
        if seen > limits.now.folder_walk_max:
            message = f"{home} holds more than {limits.now.folder_walk_max:,} files and folders"
            raise LimitExceeded("catalog_walk_max", message, "folder_walk_max")
        around = Path(folder).relative_to(home).parts
        yield from ((*around, file) for file in sorted(files))


def _is_inside(file: Path, home: Path) -> bool:
    return file.is_file() and file.resolve().is_relative_to(home)


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Return whether a path matches, part by part. The matching prefixes are remembered, so many `**` cost no more than one."""
    fits = [True, *([False] * len(parts))]
    for wanted in pattern:
        if wanted == "**":
            first = fits.index(True) if True in fits else len(fits)
            fits = [i >= first for i in range(len(fits))]
        else:
            fits = [False, *(fits[i] and fnmatchcase(part, wanted) for i, part in enumerate(parts))]
    return fits[-1]
