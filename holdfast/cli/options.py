"""Reads settings, definition, inputs and tools from a command line, and reports in words what is wrong with them."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast import config, limits
from holdfast.cli import logs
from holdfast.cli.parser import Given
from holdfast.config import Settings
from holdfast.errors import HoldfastError, InvalidInputs, Problem
from holdfast.nearest import nearest
from holdfast.spec import remotes
from holdfast.spec.inputs import means_text, with_defaults
from holdfast.spec.notation import Definition, definition_from_text
from holdfast.spec.read import bytes_of, text_of
from holdfast.tools.guard import Guard
from holdfast.tools.registry import Registry, load
from holdfast.tools.remote import RemoteCaller
from holdfast.values import decode


class Usage(HoldfastError):
    """The command line is not valid."""

    code = "usage"


class UnfitInputs(InvalidInputs):
    """Inputs that do not match their declaration, one problem each, with how to write it on a command line."""

    def __init__(self, error: InvalidInputs) -> None:
        super().__init__(str(error))
        self.problems = tuple(
            msgspec.structs.replace(problem, hint=_hint(problem), source="holdfast")
            for problem in error.problems
        )


def _hint(problem: Problem) -> str:
    missing = re.fullmatch(r'missing input "(.*)"', problem.message)
    return f"give it with -i {missing[1]}=…" if missing else problem.hint


# ---------------------------------------------------------------------------------------------------- settings


def settings_of(given: Given) -> Settings:
    """Settings from holdfast.toml, the environment and flags, each overriding the one before. Configures logging from
    them."""
    flags = {
        "db": given.text("--db"),
        "server": given.text("--server"),
        "host": given.text("--host"),
        "port": _port(given.text("--port")),
        "flows": given.text("--flows"),
        "skills": given.text("--skills"),
        "schedules": given.text("--schedules"),
        "public_url": given.text("--public-url"),
        "tools": given.texts("--tools"),
        "plugins": given.texts("--plugins"),
        "log": given.text("--log"),
        "allow_networks": given.texts("--allow-networks"),
        "artefacts": given.text("--artefacts"),
        "artefact_roots": given.texts("--artefact-root"),
    }
    settings = config.load(flags)
    if given.has("--db") and not given.has("--server"):
        # a database file was named, so use it or its owner
        settings = msgspec.structs.replace(settings, server=None)
    logs.begin(settings.log)
    limits.put_in_force(limits.chosen(settings.limits))
    remotes.put_in_force(settings.servers)
    return settings


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) > config.PORT_MAX:
        raise Usage(f"--port must be {config.PORT}, not {text!r}")
    return int(text)


# ------------------------------------------------------------------------------------------ definition and inputs


def read_spec(path: Path, settings: Settings) -> Definition:
    """Parse and check the definition in a file; raises InvalidSpec with every problem."""
    return checked_spec(read_text(path), path, settings)


def read_text(path: Path) -> bytes:
    """The text of a definition."""
    try:
        return text_of(path)
    except OSError as error:
        likely = likely_file(path) if isinstance(error, FileNotFoundError) else ""
        raise Usage(f"cannot read {path}: {error.strerror}{likely}") from None


def checked_spec(text: bytes, path: Path, settings: Settings) -> Definition:
    spec = definition_from_text(text, str(path))
    spec.validate(settings.template_env)
    return spec


def likely_file(path: Path) -> str:
    """A hint at the definition that was perhaps meant; the ending of its file may have been left out."""
    files = [file for kind in ("yaml", "yml", "json") for file in path.parent.glob(f"*.{kind}")]
    by_stem = {file.stem: file.name for file in files}  # endings are alike and say nothing
    meant = nearest(path.stem, by_stem)
    return f"; did you mean {by_stem[meant]}?" if meant else ""


def read_inputs(spec: Definition, whole: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    """The inputs: those of --inputs, overridden by each -i. Raises InvalidInputs if they do not match the
    declaration."""
    inputs = _whole_inputs(whole) if whole is not None else {}
    for name, text in pairs_of("-i", pairs):
        value = value_of(text)
        inputs[name] = text if means_text(spec.inputs, name, value) else value
    try:
        with_defaults(spec.inputs, inputs)
    except InvalidInputs as error:
        raise UnfitInputs(error) from None
    return inputs


def edited_inputs(before: Any, whole: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    """Inputs that replace those of an earlier run. An input that was text stays text."""
    inputs = _whole_inputs(whole) if whole is not None else {}
    known = before if isinstance(before, dict) else {}
    for name, text in pairs_of("-i", pairs):
        inputs[name] = text if isinstance(known.get(name), str) else value_of(text)
    return inputs


def pairs_of(flag: str, pairs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The name and the value of each NAME=VALUE that a flag was given."""
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise Usage(f"{flag} takes name=value, not {pair!r}")
        yield name, text


# What the shell has opened already: a pipe there has a writer, so reading it does not wait for one.
_OPENED: Final = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")


def text_given(text: str, what: str) -> str:
    """A value as it is given, or after `@` the content of a file."""
    if not text.startswith("@"):
        return text
    path, most = text[1:], limits.now.value_bytes_max
    try:
        if path.startswith(_OPENED) and stat.S_ISFIFO(os.stat(path).st_mode):
            with open(path, "rb") as file:
                content = file.read(most + 1)
        else:
            content = bytes_of(path, most + 1, "such a file")
        if len(content) > most:
            raise Usage(f"cannot read {what} from {path}: it has more than {limits.size(most)}")
        return content.decode("utf-8")
    except (OSError, ValueError) as error:
        raise Usage(f"cannot read {what} from {path}: {getattr(error, 'strerror', None) or error}") from None


def _whole_inputs(text: str) -> dict[str, Any]:
    text = text_given(text, "the inputs")
    try:
        data = decode(text)
    except msgspec.DecodeError as error:
        raise Usage(f"--inputs is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise InvalidInputs('--inputs must be an object, such as {"name": "Ada"}')
    return data


def value_of(text: str) -> Any:
    """A value parsed as JSON (`3`, `true`, `[1, 2]`), otherwise the text itself."""
    try:
        return decode(text)
    except msgspec.DecodeError:
        return text


# ---------------------------------------------------------------------------------------------------------- tools


def importable(settings: Settings) -> None:
    """Let modules be imported from this folder, and from the folder of holdfast.toml."""
    for folder in (str(settings.folder.absolute()), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.insert(0, folder)


def _servers(settings: Settings, guard: Guard) -> RemoteCaller | None:
    """The MCP servers of the settings, none of which is started yet."""
    if not settings.servers:
        return None
    from holdfast.mcp.client import Servers  # most commands call no tool of another server

    return Servers(settings.servers, guard)


def load_tools(settings: Settings) -> Registry:
    """Import the tools of each `module` or `module:object` from this folder or from that of holdfast.toml."""
    importable(settings)
    tools = [tool for reference in settings.tools for tool in load(reference)]
    networks = settings.allow_networks
    try:
        guard = Guard(guarded=networks is not None, allowed=networks or ())
        return Registry(tools, guard=guard, remote=_servers(settings, guard))
    except (
        TypeError,
        ValueError,
    ) as error:  # not a tool, two tools of one name, not a network, or a wrong server
        raise Usage(str(error)) from None
