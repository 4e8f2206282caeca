"""Settings: holdfast.toml < environment < flags. Knows their names and where they come from, not what any of them does.

holdfast.toml is searched for in the working folder and its parents; the nearest one is used. One above is ignored
unless it belongs to this user or to root: its tools are code that would be run. Paths in it start from its folder.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError, Problem
from holdfast.nearest import did_you_mean

FILE: Final = "holdfast.toml"
FILE_BYTES_MAX: Final = 256 * 1024
DEFAULT_DB: Final = "sqlite:///holdfast.db"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8070
PORT_MAX: Final = 65_535
DIGITS_MAX: Final = 20  # longest number in an environment variable
WORKER_TTL_SECS: Final = 15
PENDING_TTL_SECS: Final = 86_400
WORKER_LEASE_SECS: Final = 10
NO_WORKER_WAIT_SECS: Final = 60
RATE_PER_KEY: Final = 2_000  # requests a second
RATE_PER_ADDRESS: Final = 100  # requests of callers without a key
RATE_PER_WEBHOOK: Final = 1_000  # requests per sender; behind a proxy all senders have its address
RETENTION_DAYS: Final = 30
SQLITE: Final = "sqlite:///"


class InvalidSettings(HoldfastError, ValueError):
    """holdfast.toml or the environment cannot be used; carries every Problem."""

    code = "invalid_settings"

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class OAuth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An issuer whose access tokens are accepted at /mcp. `audience` is what a token must have been issued for, `scopes` are
    the scopes that it must have, and `jwks_url` is where the issuer's keys are; without it, the metadata of the issuer says so."""

    issuer: str
    audience: str
    scopes: tuple[str, ...] = ()
    jwks_url: str | None = None
    tenant: str = "default"


class Mcp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How workflows are offered over MCP: which ones, how long a call waits for its run, and the size of an answer."""

    enabled: bool = True  # whether any tool is listed
    expose: tuple[str, ...] = ("*",)  # patterns of workflow names
    wait_secs: Annotated[float, msgspec.Meta(ge=0, le=60)] = 10
    max_tokens: Annotated[int, msgspec.Meta(ge=100, le=100_000)] = 2_000
    # Definitions of callers without a key need no approval before destructive tools.
    skip_gate: bool = False
    oauth: OAuth | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, each from the strongest source that has it."""

    db: str = DEFAULT_DB
    server: str | None = None  # None: the process that owns the database
    key: str | None = None
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    flows: str | None = None
    skills: str | None = None
    schedules: str | None = None
    tools: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    log: str = "text"
    template_env: tuple[str, ...] = ()
    artefacts: str | None = None  # a folder or s3://BUCKET/PREFIX; None: a folder beside the database
    artefact_roots: tuple[str, ...] = ()  # folders that files may be taken from
    callback_env: tuple[str, ...] = ()  # variables that may sign callbacks on a guarded server
    allow_networks: tuple[str, ...] | None = None  # None: not set
    public_url: str | None = None
    resume_secret: str | None = None  # signs callbacks to /workflows/resume that have no key
    allow_hosts: tuple[str, ...] = ()  # names by which the server is called, besides its own address
    rate_per_key: int = RATE_PER_KEY
    rate_per_address: int = RATE_PER_ADDRESS
    rate_per_webhook: int = RATE_PER_WEBHOOK  # from one address to one path
    otel: str | None = None
    retention_days: int | None = RETENTION_DAYS  # None: no limit
    attempts_max: int | None = None  # None, here and below: the engine's default
    threads: int | None = None
    processes: int | None = None
    process_memory_bytes: int | None = None
    pending_ttl_secs: int = PENDING_TTL_SECS
    no_worker_wait_secs: int = (
        NO_WORKER_WAIT_SECS  # how long a call of a graph waits for a worker; 0: it fails at once
    )
    worker_ttl_secs: int = WORKER_TTL_SECS
    worker_lease_secs: int = WORKER_LEASE_SECS
    servers: Mapping[str, Mapping[str, Any]] = {}
    mcp: Mcp = Mcp()
    tenants: Mapping[str, Mapping[str, Any]] = {}  # by name: the secrets of the environment that it may use
    limits: Mapping[str, int] = {}  # by name, those that are not the default
    fires: bool = True  # whether schedules fire; only a program that serves can say no
    folder: Path = Path()  # that of holdfast.toml, else the working folder: tools are imported from it
    file: Path | None = None


TEXT, LIST, COUNT, CHOICE, TABLES = "text", "a list of texts", "a whole number", "json or text", "tables"
COUNT_OR_0 = "a whole number from 0"
DAYS = 'a whole number, or "forever"'
PORT = "a port from 0 (any that is free) to 65535"
TENANTS = 'a table for each tenant other than default, with secrets = ["NAME"]'
LIMITS = "a table of limits by name"
MCP = "a table with enabled, expose, wait_secs, max_tokens, skip_gate and oauth"
FOREVER: Final = "forever"
FOLDERS: Final = frozenset({"flows", "skills", "schedules"})  # in the file, they start from its folder

# name → what it is, and the environment variables that say it, the first found counts.
SETTINGS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "db": (TEXT, ("HOLDFAST_DB", "SCHEDULER_DB")),
    "server": (TEXT, ("HOLDFAST_SERVER", "SCHEDULER_BASE")),
    "key": (TEXT, ("HOLDFAST_API_KEY",)),
    "host": (TEXT, ("HOLDFAST_HOST",)),
    "port": (PORT, ("HOLDFAST_PORT",)),
    "flows": (TEXT, ("HOLDFAST_FLOWS",)),
    "skills": (TEXT, ("HOLDFAST_SKILLS",)),
    "schedules": (TEXT, ("HOLDFAST_SCHEDULES",)),
    "tools": (LIST, ("HOLDFAST_TOOLS",)),
    "plugins": (LIST, ("HOLDFAST_PLUGINS",)),
    "log": (CHOICE, ("HOLDFAST_LOG",)),
    "template_env": (LIST, ("HOLDFAST_TEMPLATE_ENV",)),
    "artefacts": (TEXT, ("HOLDFAST_ARTEFACTS",)),
    "artefact_roots": (LIST, ("HOLDFAST_ARTEFACT_ROOTS",)),
    "callback_env": (LIST, ("HOLDFAST_CALLBACK_ENV",)),
    "allow_networks": (LIST, ("HOLDFAST_ALLOW_NETWORKS",)),
    "public_url": (TEXT, ("HOLDFAST_PUBLIC_URL", "PUBLIC_BASE_URL")),
    "resume_secret": (TEXT, ("HOLDFAST_RESUME_SECRET",)),
    "allow_hosts": (LIST, ("HOLDFAST_ALLOW_HOSTS",)),
    "rate_per_key": (COUNT, ("HOLDFAST_RATE_PER_KEY",)),
    "rate_per_address": (COUNT, ("HOLDFAST_RATE_PER_ADDRESS",)),
    "rate_per_webhook": (COUNT, ("HOLDFAST_RATE_PER_WEBHOOK",)),
    "otel": (TEXT, ("HOLDFAST_OTEL", "OTEL_EXPORTER_OTLP_ENDPOINT")),
    "retention_days": (DAYS, ("HOLDFAST_RETENTION_DAYS",)),
    "attempts_max": (COUNT, ("HOLDFAST_ATTEMPTS_MAX",)),
    "threads": (COUNT, ("HOLDFAST_THREADS",)),
    "processes": (COUNT, ("HOLDFAST_PROCESSES",)),
    "process_memory_bytes": (COUNT, ("HOLDFAST_PROCESS_MEMORY_BYTES",)),
    "pending_ttl_secs": (COUNT, ("HOLDFAST_PENDING_TTL_SECS",)),
    "no_worker_wait_secs": (COUNT_OR_0, ("HOLDFAST_NO_WORKER_WAIT_SECS",)),
    "worker_ttl_secs": (COUNT, ("HOLDFAST_WORKER_TTL_SECS",)),
    "worker_lease_secs": (COUNT, ("HOLDFAST_WORKER_LEASE_SECS",)),
    "servers": (TABLES, ()),
    "tenants": (TENANTS, ()),
    "mcp": (MCP, ()),
    "limits": (LIMITS, ()),  # and HOLDFAST_LIMIT_<NAME> for each
}


def load(
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Load the settings for a working folder. Raise InvalidSettings with every problem. A flag that is None was not given."""
    start = folder or Path.cwd()
    file = find(start)
    said: dict[str, Any] = {} if file is None else _of_file(file)
    variables = os.environ if env is None else env
    of_file = said.get("limits", {})
    said |= _of_environment(variables)
    if own := {**of_file, **_limits_of_environment(variables)}:
        said["limits"] = own
    said |= {name: value for name, value in (flags or {}).items() if value is not None and value != ()}
    if said.get("retention_days") == FOREVER:
        said["retention_days"] = None
    home = start if file is None else file.parent
    return Settings(**said, folder=home, file=file)


def find(start: Path) -> Path | None:
    """Return the holdfast.toml that applies to a folder."""
    for folder in (start.absolute(), *start.absolute().parents):
        file = folder / FILE
        if file.is_file() and (folder == start.absolute() or file.stat().st_uid in (os.getuid(), 0)):
            return file
    return None


# ------------------------------------------------------------------------------------------------------ the file


def _of_file(file: Path) -> dict[str, Any]:
    try:
        raw = file.read_bytes()
        if len(raw) > FILE_BYTES_MAX:
            raise InvalidSettings(
                [Problem("too_large", f"over {FILE_BYTES_MAX // 1024} KiB", source=str(file))]
            )
        text = raw.decode()
        data = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings([Problem("unreadable", f"cannot be read: {error}", source=str(file))]) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidSettings([_not_toml(str(error), str(file))]) from None
    problems = [found for name, value in data.items() if (found := _problem(name, value))]
    problems += _wrong_limits(data.get("limits"))
    if problems:
        raise InvalidSettings([_placed(problem, name, text, file) for name, problem in problems])
    said: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
    if "mcp" in said:
        said["mcp"] = msgspec.convert(said["mcp"], Mcp)
    if "plugins" in said:
        said["plugins"] = tuple(
            str(file.parent / one) if one.endswith(".wasm") else one for one in said["plugins"]
        )
    if "artefacts" in said and "://" not in said["artefacts"]:
        said["artefacts"] = str(file.parent / said["artefacts"])
    if "artefact_roots" in said:
        said["artefact_roots"] = tuple(str(file.parent / root) for root in said["artefact_roots"])
    for folder in FOLDERS & said.keys():
        said[folder] = str(file.parent / said[folder])
    if "db" in said:
        said["db"] = _from_folder(said["db"], file.parent)
    elif file.parent != Path.cwd():
        said["db"] = _from_folder(DEFAULT_DB, file.parent)
    return said


def _problem(name: str, value: Any) -> tuple[str, Problem] | None:
    """Return what is wrong with one key of the file, and the key."""
    if name not in SETTINGS:
        hint = did_you_mean(name, SETTINGS) or f"known keys are {', '.join(SETTINGS)}"
        return name, Problem("unknown_key", f'unknown key "{name}"', f"/{name}", hint=hint)
    wanted, _ = SETTINGS[name]
    own = [one for one in value if _is_own(name, one)] if isinstance(value, list) else []
    if own:
        message = f"{name} names {own[0]}, which is Holdfast's own and may hold a secret"
        return name, Problem("forbidden_variable", message, f"/{name}")
    if wanted == MCP:
        return _wrong_mcp(value)
    if not _fits(wanted, value):
        example = 'such as tools = ["tools"]' if wanted == LIST else ""
        return name, Problem("wrong_type", f"{name} must be {wanted}", f"/{name}", hint=example)
    return None


def _wrong_mcp(table: Any) -> tuple[str, Problem] | None:
    strange = unknown_in(table, Mcp)
    if strange is not None:
        hint = did_you_mean(strange, Mcp.__struct_fields__) or f"it is {MCP}"
        return "mcp", Problem("unknown_key", f'mcp: unknown key "{strange}"', "/mcp", hint=hint)
    try:
        msgspec.convert(table, Mcp)
    except msgspec.ValidationError as error:
        return "mcp", Problem("wrong_type", f"mcp: {error}", "/mcp", hint=f"it is {MCP}")
    return None


def unknown_in(table: Any, record: type[msgspec.Struct]) -> str | None:
    """The first key of a table that a record does not have."""
    known = record.__struct_fields__
    return next((key for key in table if key not in known), None) if isinstance(table, dict) else None


def _wrong_limits(table: Any) -> list[tuple[str, Problem]]:
    """Return what is wrong with the limits of the file, each with its name."""
    given = table if isinstance(table, dict) else {}
    wrong = [one for name, value in given.items() if (one := limits.check(name, value)) is not None]
    return [(one.name, Problem(one.code, one.message, f"/limits/{one.name}", hint=one.hint)) for one in wrong]


def _is_own(setting: str, variable: Any) -> bool:
    """Return whether a variable is one of Holdfast's own, which templates and callbacks may never read."""
    return setting in ("template_env", "callback_env") and str(variable).upper().startswith("HOLDFAST_")


def _fits(wanted: str, value: Any) -> bool:
    if wanted == LIST:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if wanted == DAYS and value == FOREVER:
        return True
    if wanted in (COUNT, DAYS):
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    if wanted == COUNT_OR_0:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if wanted == PORT:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PORT_MAX
    if wanted == CHOICE:
        return value in ("json", "text")
    if wanted == TENANTS:
        return isinstance(value, dict) and all(map(_is_tenant, value, value.values()))
    if wanted == LIMITS:
        return isinstance(value, dict)
    if wanted == TABLES:
        return isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())
    return isinstance(value, str)


def _is_tenant(name: str, table: Any) -> bool:
    """Return whether a tenant may be listed; `default` has every secret of the environment, so it is not."""
    return (
        name != "default"
        and isinstance(table, dict)
        and table.keys() <= {"secrets"}
        and _fits(LIST, table.get("secrets", []))
    )


def _placed(problem: Problem, key: str, text: str, file: Path) -> Problem:
    """The problem with line and column of its key: before the first table, or the header of its own."""
    named = re.escape(key)
    where = re.compile(rf'^[ \t]*(?:\[+[ \t]*)?["\']?({named})["\']?[ \t]*(?:[=.\]])', re.MULTILINE)
    found = where.search(text)
    line, column = (0, 0)
    if found:
        before = text[: found.start(1)]
        line, column = before.count("\n") + 1, found.start(1) - (before.rfind("\n") + 1) + 1
    return msgspec.structs.replace(problem, line=line, column=column, source=str(file))


def _not_toml(message: str, source: str) -> Problem:
    found = re.search(r"\(at line (\d+), column (\d+)\)", message)
    line, column = (int(found[1]), int(found[2])) if found else (0, 0)
    reason = re.sub(r" \(at .*\)$", "", message)
    return Problem("not_toml", f"is not TOML: {reason}", line=line, column=column, source=source)


def _from_folder(db: str, folder: Path) -> str:
    """Resolve the path of a database from a folder."""
    if not db.startswith(SQLITE) and "://" in db:
        return db
    return f"{SQLITE}{folder / db.removeprefix(SQLITE)}"


# ----------------------------------------------------------------------------------------------- the environment


def _of_environment(env: Mapping[str, str]) -> dict[str, Any]:
    said, problems = {}, []
    for name, (wanted, variables) in SETTINGS.items():
        variable = next((one for one in variables if env.get(one)), None)
        if variable is None:
            continue
        value = _read(wanted, env[variable])
        if value is None:
            problems.append(Problem("invalid_choice", f"{variable} must be {wanted}, not {env[variable]!r}"))
        elif wanted == LIST and (found := _problem(name, list(value))) is not None:
            problems.append(found[1])
        said[name] = value
    if problems:
        raise InvalidSettings([msgspec.structs.replace(one, source="environment") for one in problems])
    return said


def _limits_of_environment(env: Mapping[str, str]) -> dict[str, int]:
    """`HOLDFAST_LIMIT_<NAME>` says the limit `<name>`."""
    said: dict[str, int] = {}
    problems = []
    for variable, text in env.items():
        if not variable.startswith(limits.VARIABLE_PREFIX) or not text:
            continue
        name = variable.removeprefix(limits.VARIABLE_PREFIX).lower()
        value = int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else text
        if (wrong := limits.check(name, value)) is not None:
            problems.append(
                Problem(wrong.code, f"{variable}: {wrong.message}", hint=wrong.hint, source="environment")
            )
        elif isinstance(value, int):
            said[name] = value
    if problems:
        raise InvalidSettings(problems)
    return said


def _read(wanted: str, text: str) -> Any:
    """Read the value of an environment variable; None if it is invalid."""
    if wanted == LIST:
        return tuple(text.replace(",", " ").split())
    if wanted == DAYS and text == FOREVER:
        return text
    if wanted in (COUNT, DAYS):
        return int(text) if text.isdecimal() and int(text) > 0 else None
    if wanted == COUNT_OR_0:
        return int(text) if text.isdecimal() else None
    if wanted == PORT:
        return int(text) if text.isdecimal() and int(text) <= PORT_MAX else None
    if wanted == CHOICE:
        return text if text in ("json", "text") else None
    return text
