"""What a value of the wrong type was probably meant to be: "30s" for a number of seconds, "yes" for true.

Knows types, units and the suffixes of keys that name a unit. Must not know which keys there are.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

from holdfast.values import decode

UNKNOWN: Final[Any] = object()  # no value could be derived; null would be a value

NUMBER_MAX: Final = 1e15  # a larger number was not meant as a duration
TEXT_CHARS_MAX: Final = 100  # longest text of a number or a duration

_TRUE: Final = frozenset({"true", "yes", "on", "y", "1", "enabled"})
_FALSE: Final = frozenset({"false", "no", "off", "n", "0", "disabled"})

_UNIT_MS: Final[dict[str, int]] = {
    **dict.fromkeys(("ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_UNITS_OF_INTERVALS: Final = (
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
)
_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,15}(?:[.,_][0-9]{1,15})?")
_DURATION: Final = re.compile(
    r"(?:([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]+)[\s,]*)+", re.IGNORECASE | re.ASCII
)
_PIECE: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]+)", re.IGNORECASE | re.ASCII)
_ISO: Final = re.compile(
    r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6}(?:\.\d{1,6})?)S)?)?", re.ASCII
)
_ISO_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


def converted(value: Any, kinds: tuple[type[Any], ...], key: str) -> Any:
    """A value of one of the types that says the same, or UNKNOWN. The end of the key may name a unit."""
    if bool in kinds:
        return _flag(value)
    if int in kinds or float in kinds:
        number = number_of(value, key)
        if number is not UNKNOWN and float not in kinds:
            return math.ceil(number)
        return number if number is not UNKNOWN or str not in kinds else _text(value)
    if str in kinds:
        return _text(value)
    if list in kinds:
        return _list(value)
    return _mapping(value) if dict in kinds else UNKNOWN


def number_of(value: Any, key: str) -> Any:
    """A number in the unit that the key ends with; of a duration in parts, as `{minutes: 5}`, their sum."""
    if isinstance(value, dict) and value and value.keys() <= _UNIT_MS.keys():
        value = " ".join(f"{amount}{unit}" for unit, amount in value.items())
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return UNKNOWN
    if not isinstance(value, str):
        return value if abs(value) <= NUMBER_MAX else UNKNOWN
    text = value.strip()[:TEXT_CHARS_MAX]
    if _NUMBER.fullmatch(text):
        return _plain(float(text.replace("_", "").replace(",", ".")))
    ms, unit = duration_ms(text), unit_of(key)
    return UNKNOWN if ms is None or unit is None else _plain(ms / unit)


def duration_ms(text: str) -> float | None:
    """The milliseconds of a duration as people write it: `30s`, `1h30m`, `5 minutes`, `PT5M`."""
    text = text.strip().removeprefix("every ").strip()
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groups()):
        return sum(float(part or 0) * ms for part, ms in zip(iso.groups(), _ISO_MS, strict=True))
    if not _DURATION.fullmatch(text):
        return None
    pieces = [(float(number), _UNIT_MS.get(unit.lower())) for number, unit in _PIECE.findall(text)]
    if any(ms is None for _, ms in pieces):
        return None
    return sum(number * (ms or 0) for number, ms in pieces)


def interval_text(ms: float) -> str:
    """A duration in the notation of schedules: `1h30m`."""
    rest, parts = round(ms), []
    for unit, size in _UNITS_OF_INTERVALS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def unit_of(key: str) -> int | None:
    """The milliseconds of the unit that a key ends with: `timeout_secs`, `delayMs`, `seconds`."""
    word = re.split(r"_|(?<=[a-z0-9])(?=[A-Z])", key)[-1].lower()
    return _UNIT_MS.get(word) if len(word) > 1 else None


def in_unit_of(value: Any, old: str, new: str) -> Any:
    """Convert the value of one key for another key, which may have a different unit."""
    number = number_of(value, old if unit_of(old) else new)
    if number is UNKNOWN or unit_of(new) is None:
        return value
    factor = (unit_of(old) or unit_of(new) or 1) / (unit_of(new) or 1)
    return _plain(number * factor)


def _plain(number: float) -> int | float:
    return int(number) if number == int(number) else number


def _flag(value: Any) -> Any:
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    return True if word in _TRUE else False if word in _FALSE else UNKNOWN


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    return UNKNOWN


def _list(value: Any) -> Any:
    if isinstance(value, str) and (parsed := _parsed(value, list)) is not UNKNOWN:
        return parsed
    if isinstance(value, str) and "," in value and "{{" not in value:
        return [part.strip() for part in value.split(",") if part.strip()]
    return UNKNOWN if value is None else [value]


def _mapping(value: Any) -> Any:
    if isinstance(value, str):
        return _parsed(value, dict)
    if isinstance(value, list) and all(isinstance(item, dict) and len(item) == 1 for item in value):
        return {name: member for item in value for name, member in item.items()}
    return by_name(value)


def by_name(items: Any) -> Any:
    """Convert a list of named mappings to one mapping by name; UNKNOWN if it is not such a list."""
    if not isinstance(items, list):
        return UNKNOWN
    found: dict[str, Any] = {}
    for item in items:
        if isinstance(item, str):
            found[item] = {}
            continue
        if not isinstance(item, dict):
            return UNKNOWN
        word = next((word for word in ("name", "id", "key") if isinstance(item.get(word), str)), None)
        if word is None:
            return UNKNOWN
        found[item[word]] = {key: value for key, value in item.items() if key != word}
    return found


def _parsed(text: str, kind: type[Any]) -> Any:
    if not text.lstrip().startswith(("{", "[")) or text.lstrip().startswith("{{"):
        return UNKNOWN
    try:
        found = decode(text.encode())
    except ValueError:
        return UNKNOWN
    return found if isinstance(found, kind) else UNKNOWN
