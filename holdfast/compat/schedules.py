"""Schedules declared in Python: records that are checked by the rules of schedule files.

Knows the constructors and attributes. What a key may hold is known to spec/schedule.py, which reads every schedule.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import msgspec

from holdfast import signing
from holdfast.errors import InvalidSpec
from holdfast.spec.field_types import fields_of
from holdfast.spec.schedule import (
    data_of_trigger,
    schedule_files,
    schedule_from_data,
    schedules_from_files,
    schedules_from_text,
    trigger_from_data,
)
from holdfast.spec.schedule_record import ScheduleSpec as Written
from holdfast.spec.triggers import Dedup, Locking, MissedRunPolicy, Overlap, Trigger
from holdfast.values import decode, encode

_PREFIX: Final = "invalid schedule spec: "


class TriggerSpec(msgspec.Struct, frozen=True):
    """What starts the runs of a schedule. Make one with `cron` or `webhook`, or with `from_data` for any other kind.

    An attribute that the kind does not have is None.
    """

    record: Trigger

    @classmethod
    def cron(cls, expression: str | Sequence[str], timezone: str = "UTC", jitter_secs: int = 0) -> Self:
        """A cron expression of 6 or 7 fields, seconds first, or a list of them. A fire is late by up to `jitter_secs`."""
        data = {"expression": _listed(expression), "timezone": timezone, "jitter_secs": jitter_secs}
        return cls.from_data({"kind": "cron", **data})

    @classmethod
    def webhook(cls, path: str, secret_env: str | Sequence[str] | None = None) -> Self:
        """A path of the server. `secret_env` names the environment variable with the secret that signs request bodies."""
        return cls.from_data({"kind": "webhook", "path": path, "secret_env": _listed(secret_env)})

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """A trigger as schedule files write it, such as `{"kind": "interval", "every": "90s"}`."""
        try:
            return cls(trigger_from_data(data))
        except InvalidSpec as refused:
            raise _prefixed(refused) from None

    def to_data(self) -> dict[str, Any]:
        """The trigger as plain data, without defaults."""
        return data_of_trigger(self.record)

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def expression(self) -> str | tuple[str, ...] | None:
        return _single(getattr(self.record, "expression", ()))

    @property
    def timezone(self) -> str | None:
        return getattr(self.record, "timezone", None)

    @property
    def jitter_secs(self) -> int | None:
        return getattr(self.record, "jitter_secs", None)

    @property
    def path(self) -> str | None:
        return getattr(self.record, "path", None)

    @property
    def secret_env(self) -> str | tuple[str, ...] | None:
        return _single(getattr(self.record, "secret_env", ()))


class ScheduleSpec(msgspec.Struct, frozen=True):
    """A schedule: which workflow starts, by which trigger, with which inputs.

        ScheduleSpec("nightly", "cleanup", TriggerSpec.cron("0 0 3 * * *"), inputs='{"scope": "all"}')

    It is checked when it is made: a mistake raises InvalidSpec, which is a ValueError. `inputs` is JSON text, or the data itself; `inputs_json`
    is the text. The other keys are those of a schedule file, with the same defaults; `dst` and `exclude` are mappings.
    """

    id: str
    workflow: str
    trigger: TriggerSpec
    inputs: Any = None
    enabled: bool = True
    max_concurrent: int = 1
    overlap: Overlap = "skip"
    missed_run_policy: MissedRunPolicy = "skip"
    max_catchup: int = 1_000
    grace_secs: int = 60
    dst: Mapping[str, str] | None = None
    start_at: str | None = None
    end_at: str | None = None
    exclude: Mapping[str, Any] | None = None
    locking: Locking = "require_global"
    pause_after_failures: int = 0
    strict_templates: bool = False
    echo_inputs: bool = True
    dedup: Dedup = "delivery"
    allow_unsigned: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.inputs, str):
            msgspec.structs.force_setattr(self, "inputs", _inputs(self.inputs))
        # A copy: what the caller does to its own data later has not been checked.
        msgspec.structs.force_setattr(self, "inputs", written_from(self).inputs)

    def validate(self) -> None:
        """Raise InvalidSpec, which is a ValueError, with every problem of the schedule."""
        written_from(self)

    def to_data(self) -> dict[str, Any]:
        """The schedule as plain data, as a schedule file writes it, without defaults."""
        given = ((key, getattr(self, name), default) for name, key, default in fields_of(type(self)))
        data = {key: value for key, value, default in given if value != default}
        if isinstance(self.trigger, TriggerSpec):
            data["trigger"] = self.trigger.to_data()
        return data

    @property
    def inputs_json(self) -> str:
        return encode(self.inputs).decode()


def written_from(spec: ScheduleSpec) -> Written:
    """The record that a schedule file would have given."""
    try:
        return schedule_from_data(spec.to_data())
    except InvalidSpec as refused:
        raise _prefixed(refused) from None


def parse_schedules_yaml(source: str | bytes, path_hint: str = "<string>") -> list[ScheduleSpec]:
    """The schedules of a schedule file. `path_hint` names the text in errors."""
    try:
        return [_declared(spec) for spec in schedules_from_text(source, path_hint).schedules]
    except InvalidSpec as refused:
        raise _prefixed(refused) from None


def schedules_in_folder(folder: str | os.PathLike[str]) -> tuple[ScheduleSpec, ...]:
    """The schedules of all schedule files in a folder, which must go together."""
    try:
        files = schedules_from_files(schedule_files(folder))
    except InvalidSpec as refused:
        raise _prefixed(refused) from None
    return tuple(_declared(spec) for file in files for spec in file.schedules)


def hmac_sha256_hex(secret: bytes | str, body: bytes | str) -> str:
    """The signature of a body, as the header `X-Hub-Signature-256` has it: `sha256=<hex>`."""
    return signing.signature(secret, _bytes(body))


def verify_hub_signature_256(secret: bytes | str, body: bytes | str, header: str | None) -> bool:
    """Whether the header is the signature of the body; compared in constant time. A missing header is not."""
    return header is not None and signing.is_signed(secret, _bytes(body), header)


def _declared(written: Written) -> ScheduleSpec:
    return ScheduleSpec(**(written.to_data() | {"trigger": TriggerSpec(written.trigger)}))


def _inputs(text: str) -> Any:
    try:
        return decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"invalid JSON for inputs: {error}") from None


def _prefixed(refused: InvalidSpec) -> InvalidSpec:
    """The same problems, with the words by which callers recognise a schedule that was refused."""
    return InvalidSpec(
        [
            msgspec.structs.replace(one, message=_PREFIX + one.message, hint=_hint(one.code, one.hint))
            for one in refused.problems
        ]
    )


def _hint(code: str, hint: str) -> str:
    return "" if code == "empty_name" else hint  # how to write a key in YAML is no help in Python


def _single(texts: tuple[str, ...]) -> str | tuple[str, ...] | None:
    return texts[0] if len(texts) == 1 else texts or None


def _listed(texts: Any) -> Any:
    return list(texts) if isinstance(texts, tuple) else texts


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text
