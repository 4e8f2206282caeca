"""The trigger of a schedule, from data to its record: which kind it is, and the path of a webhook."""

from __future__ import annotations

import re
from typing import Any, Final

from holdfast.spec import foreign
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.cron import expression_like
from holdfast.spec.field_types import Table, make, read_table, required_in
from holdfast.spec.patch import NO_PATCH, Patch, move, put, replace
from holdfast.spec.problems import Fields, Report, quoted, type_name
from holdfast.spec.problems import meant as meant_word
from holdfast.spec.repairs import name_from
from holdfast.spec.schedule_keys import (
    FILE_FIELD_COUNTS,
    SCHEDULE_KEYS,
    STORED_TRIGGER_KEYS,
    TRIGGER_KEYS,
    Kinds,
)
from holdfast.spec.triggers import CronTrigger, Trigger, TriggerKind, WebhookTrigger

# The first segments of paths that the server itself answers.
SERVER_PATHS: Final = frozenset({
    "api", "mcp", "workers", "tasks", "flows", "workflows", "register", "heartbeat", "list", "allocate", "approve", "approve.css", "docs",
    "openapi.json", "healthz", "readyz", "metrics", "favicon.ico", "assets", "ui",
})  # fmt: skip

NO_TRIGGER: Final = CronTrigger(())


def trigger_has(key: str) -> str:
    """Where a key of a schedule belongs, if it belongs in the trigger, possibly under its name in another system."""
    ours = key
    if foreign.ours("key", key, SCHEDULE_KEYS) in (None, "trigger"):
        words = (foreign.ours("key", key, table) for _, table in TRIGGER_KEYS.values())
        ours = next((word for word in words if word), key)
    kinds = [kind for kind, (_, table) in TRIGGER_KEYS.items() if ours in table]
    name = "" if ours == key else f" as `{ours}`"
    return f"put it under `trigger:`{name}, which has it for kind {', '.join(kinds)}" if kinds else ""


def into_trigger(fields: Fields, key: str) -> Patch:
    """Move a key that belongs in the trigger into it."""
    kinds = [kind for kind, (_, table) in TRIGGER_KEYS.items() if key in table]
    if not kinds:
        return NO_PATCH
    at, trigger = (*fields.at, "trigger"), fields.data.get("trigger")
    if isinstance(trigger, dict):
        return move((*fields.at, key), (*at, key))
    made = {"kind": kinds[0]} | {
        name: value for name, value in fields.data.items() if name in TRIGGER_KEYS[kinds[0]][1]
    }
    others = {name: value for name, value in fields.data.items() if name not in made}
    return (
        replace(fields.at, others | {"trigger": made}) if fields.at else put((), others | {"trigger": made})
    )


def blank_of(fields: Fields, key: str) -> Any:
    """A schedule or workflow without a name gets the name of the other."""
    other = fields.data.get({"id": "workflow", "workflow": "id"}.get(key, ""))
    if isinstance(other, str) and other.strip():
        return other
    return f"schedule_{fields.at[-1]}" if key == "id" and fields.at else UNKNOWN


def _trigger_like(value: Any) -> Any:
    """The trigger that a single text means: a cron expression, an interval or a path; or UNKNOWN."""
    if not isinstance(value, str):
        return UNKNOWN
    if value.startswith("/"):
        return {"kind": "webhook", "path": value}
    found = expression_like(value.strip()[:200], FILE_FIELD_COUNTS)
    if found is None:
        return UNKNOWN
    return {"kind": "cron", "expression": found if isinstance(found, str) else [*found]}


def read_trigger(data: Any, fields: Fields) -> Trigger:
    at = (*fields.at, "trigger")
    if data is None:
        return NO_TRIGGER
    if not isinstance(data, dict):
        hint = 'write `trigger: {kind: cron, expression: "0 0 3 * * *"}`'
        message, near = f"trigger must be a mapping, not {type_name(data)}", _trigger_like(data)
        fields.wrong("wrong_type", "trigger", message, hint, near)
        return NO_TRIGGER
    inner = Fields(fields.report, data, at, f"{fields.who}trigger: ")
    kind = _kind(inner)
    if kind is None:
        return NO_TRIGGER
    record, table = _kinds(fields.report)[kind]
    inner.expect(
        {"kind", *table},
        required_in(table),
        hint_of=_schedule_has,
        elsewhere=lambda key: move((*at, key), (*fields.at, key)) if key in SCHEDULE_KEYS else NO_PATCH,
    )
    trigger: Any = make(record, _blank(table) | read_table(table, inner))
    if isinstance(trigger, WebhookTrigger):
        _check_path(trigger.path, inner)
        _check_secrets(trigger.secret_env, inner)
    return trigger  # type: ignore[no-any-return]


def _blank(table: Table) -> dict[str, Any]:
    """Placeholders for required lists that could not be read, which has been reported."""
    return {key: () for key in ("expression", "at") if key in table}


def _schedule_has(key: str) -> str:
    return "put it on the schedule, beside `trigger:`" if key in SCHEDULE_KEYS else ""


def _kinds(report: Report) -> Kinds:
    return STORED_TRIGGER_KEYS if report.is_stored else TRIGGER_KEYS


def _kind(fields: Fields) -> TriggerKind | None:
    kinds = [*TRIGGER_KEYS]
    if fields.data.get("kind") is None:
        meant = [
            kind for kind, (_, table) in TRIGGER_KEYS.items() if not table.keys().isdisjoint(fields.data)
        ]
        hint = f"did you mean kind: {meant[0]}?" if meant else f"the kinds are {', '.join(kinds)}"
        fields.wrong(
            "missing_key",
            "kind",
            'the key "kind" is missing',
            hint,
            meant[0] if meant else _kind_like(fields),
        )
        return None
    word = fields.get("kind", str, "text")
    for kind in _kinds(fields.report):
        if word == kind:
            return kind
    if word is not None:
        message = f"unknown kind {quoted(word)}; the kinds are {', '.join(kinds)}"
        near = UNKNOWN if fields.report.is_full else meant_word("kind", word, kinds)
        hint = "choose one of them" if near is UNKNOWN else f"did you mean {near}?"
        fields.wrong("unknown_kind", "kind", message, hint, _kind_like(fields) if near is UNKNOWN else near)
    return None


def _kind_like(fields: Fields) -> Any:
    """The kind of trigger whose keys are given, under any of their names."""
    for kind, (_, table) in TRIGGER_KEYS.items():
        if any(key in table or fields.meant_key(key, table) for key in fields.data if key != "kind"):
            return kind
    return UNKNOWN


def _check_path(path: str, fields: Fields) -> None:
    """Check that a path is literal, and that the server has no route of its own there."""
    if not path:
        return
    message, hint = "", "write its own path, such as /hooks/upload"
    if not path.startswith("/"):
        message, hint = "webhook path must start with '/'", f"write /{path}"
    elif path.split("/")[1] in SERVER_PATHS or path == "/":
        message = f"the path {quoted(path)} belongs to the server"
    elif (
        any(character in path for character in "{}?#%*\\ ")
        or "//" in path
        or not path.isprintable()
        or path.endswith("/")
    ):
        message, hint = (
            f"the path {quoted(path)} is not a literal path",
            "write /hooks/upload: no braces, blanks or query",
        )
    elif not {".", ".."}.isdisjoint(path.split("/")):
        # Senders resolve these before they send the request, so no request would ever have this path.
        message, hint = f"the path {quoted(path)} has a segment . or ..", f"write {_path_like(path)}"
    if message:
        fields.wrong("invalid_path", "path", message, hint, _path_like(path))


def _check_secrets(names: tuple[str, ...], fields: Fields) -> None:
    """Refuse blank names: the lookup would fail at every request."""
    if any(not name.strip() for name in names):
        hint = "name the environment variable that has the secret, or leave the key out"
        fields.wrong("empty_name", "secret_env", "secret_env is empty", hint)


def _path_like(path: str) -> str:
    """A literal path for which the server has no route of its own."""
    parts = [name_from(part) for part in re.sub(r"^\w+://[^/]*", "", path[:500]).split("/")]
    parts = [part for part in parts if part]
    if not parts or parts[0] in SERVER_PATHS:
        parts = ["hooks", *(parts or ["event"])]
    return "/" + "/".join(parts)
