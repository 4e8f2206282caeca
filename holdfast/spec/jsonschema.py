"""JSON Schemas written by authors: whether a schema is valid, and which parts of a value do not match it.

Knows the keywords of draft 2020-12, and the library that validates values, which is imported when the first such schema is
read. Must not know what a schema is for.

A schema may be hostile. Nothing is fetched: a reference stays within its schema. Regular expressions are matched in
linear time, so they have no look-around and no back-references, and are bounded in size and number. What is left is
work that multiplies, through references to references and through many rules for many values. It is counted
beforehand, which is possible because a schema may not contain itself. Rules that cost more than others are counted
apart (schema_work.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast import limits, values
from holdfast.nearest import did_you_mean
from holdfast.spec import schema_work
from holdfast.spec.conversions import UNKNOWN, converted
from holdfast.spec.patch import NO_PATCH, drop
from holdfast.spec.problems import Report, Where, meant, quoted, type_name

if TYPE_CHECKING:
    import jsonschema_rs

SCHEMA_DEPTH_MAX: Final = 128  # references included
PATTERN_BYTES_MAX: Final = 256 * 1024  # largest compiled regular expression
ALL_MISMATCHES_WORK_MAX: Final = 100_000  # beyond it only the first problem is reported: each is expensive
MISMATCHES_MAX: Final = 100
CHARS_READ: Final = 64  # characters of a text that count as one more value
CHARS_MATCHED: Final = 4  # or these, where a regular expression goes through them
OPTIONS_SHOWN_MAX: Final = 10

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}

# The type of each keyword: a schema, several schemas, or what the text says.
_KEYWORDS: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("additionalProperties", "items", "contains", "not", "if", "then", "else", "propertyNames"), "schema"
    ),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "contentSchema"), "schema"),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), "a list of schemas"),
    **dict.fromkeys(
        ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"),
        "a mapping of schemas",
    ),
    **dict.fromkeys(
        ("title", "description", "$comment", "format", "contentEncoding", "contentMediaType"), "text"
    ),
    **dict.fromkeys(("pattern", "$ref", "$anchor"), "text"),
    # Keywords of MCP that do not restrict a value: the HTTP header that repeats an input, and names for the choices of a form.
    "x-mcp-header": "text",
    "enumNames": "a list",
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "a number"),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), "a count"
    ),
    **dict.fromkeys(("minProperties", "maxProperties"), "a count"),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), "true or false"),
    **dict.fromkeys(("enum", "examples"), "a list"),
    "required": "a list of names",
    "dependentRequired": "a mapping to lists of names",
    "type": "a type",
    **dict.fromkeys(("const", "default"), "anything"),
}


# A schema may state its dialect and its id at the top; further down, these would change where
# references lead.
NAMES: Final = ("$schema", "$id")


def without_names(schema: dict[str, Any]) -> dict[str, Any]:
    return {keyword: value for keyword, value in schema.items() if keyword not in NAMES}


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value % 1 == 0


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_HELD: Final[dict[str, Callable[[Any], bool]]] = {
    "a list of schemas": lambda value: isinstance(value, list) and bool(value),
    "a mapping of schemas": lambda value: isinstance(value, dict),
    "text": lambda value: isinstance(value, str),
    "a number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "a count": _is_count,
    "true or false": lambda value: isinstance(value, bool),
    "a list": lambda value: isinstance(value, list),
    "a list of names": _are_names,
    "a mapping to lists of names": lambda value: (
        isinstance(value, dict) and all(map(_are_names, value.values()))
    ),
}


def keywords_schema() -> dict[str, Any]:
    """A schema of schemas, as far as an editor needs one."""
    types: dict[str, dict[str, Any]] = {
        "schema": {"type": ["object", "boolean"]},
        "a list of schemas": {"type": "array", "minItems": 1},
        "a mapping of schemas": {"type": "object"},
        "text": {"type": "string"},
        "a number": {"type": "number"},
        "a count": {"type": "integer", "minimum": 0},
        "true or false": {"type": "boolean"},
        "a list": {"type": "array"},
        "a list of names": {"type": "array", "items": {"type": "string"}},
        "a mapping to lists of names": {"type": "object"},
        "a type": {"anyOf": [{"enum": list(TYPES)}, {"type": "array", "items": {"enum": list(TYPES)}}]},
        "anything": {},
    }
    return {
        "type": "object",
        "properties": {
            **dict.fromkeys(NAMES, types["text"]),
            **{keyword: types[holds] for keyword, holds in _KEYWORDS.items()},
        },
        "patternProperties": {"^x-": True},
        "additionalProperties": False,
    }


# ---------------------------------------------------------------------------------------- whether it can be used


def check_schema(schema: dict[str, Any], report: Report, at: Where, who: str) -> None:
    """Report the problems of a schema."""
    before, schema = len(report.problems), without_names(schema)
    Parts(report, schema).check(schema, at, who)
    if len(report.problems) == before:
        check_whole(schema, report, at, who)


def check_whole(schema: Any, report: Report, at: Where, who: str, unwritten: int = 0) -> None:
    """Problems that can only be found in a schema whose parts are valid. Positions in it start with this many
    implicit keys."""
    try:
        rules = count_rules(schema)
        if rules > limits.now.schema_rules_max and not report.is_stored:
            most = f"{limits.now.schema_rules_max:,} rules ({limits.met('schema_rules_max')})"
            message = f"{who}the schema has more than {most}, with its references written out"
            report.add("schema_too_large", at, message, "say less about the inner parts")
        else:
            Judge(schema, rules)
    except RecursiveSchema as error:
        message = f"{who}the schema contains itself through {quoted(error)}"
        report.add("recursive_schema", at, message, "describe the inner part as {type: object}")
    except ValueError as error:
        where = tuple(getattr(error, "instance_path", ()))[unwritten:]
        message = getattr(error, "message", str(error)).removeprefix("the value ")[:200]
        place = (*at, *where)
        text = f"{who}not a JSON Schema: {message}"
        report.add(
            "invalid_schema", place, text, "see draft 2020-12", patch=drop(place) if where else NO_PATCH
        )


class Parts:
    """Reports keywords that are unknown or hold the wrong thing. References lead into `root`."""

    def __init__(self, report: Report, root: Any) -> None:
        self._report, self._root = report, root
        self._who = ""
        self._patterns = 0

    def check(self, schema: Any, at: Where, who: str) -> None:
        self._who = who
        self._schema(schema, at)

    def _schema(self, schema: Any, at: Where) -> None:
        if isinstance(schema, bool) or self._report.is_full:
            return
        if not isinstance(schema, dict):
            message = f"{self._who}a schema is a mapping, not {type_name(schema)}"
            near = _schema_like(schema)
            self._report.add("wrong_type", at, message, "write {type: string}", near=near)
            return
        for keyword, value in schema.items():
            self._keyword(keyword, value, (*at, keyword))

    def _keyword(self, keyword: str, value: Any, at: Where) -> None:
        holds = _KEYWORDS.get(keyword)
        if holds is None:
            self._unknown(keyword, value, at)
        elif holds == "schema":
            self._schema(value, at)
        elif holds == "a type":
            self._type(value, at)
        elif holds != "anything" and not _HELD[holds](value):
            message = f"{self._who}{keyword} must be {holds}, not {_shown(value)}"
            near = _held_like(value, holds)
            patch = drop(at) if near is UNKNOWN else NO_PATCH
            self._report.add("wrong_type", at, message, _hint_of(value, holds), near=near, patch=patch)
        else:
            self._parts(keyword, value, at)

    def _unknown(self, keyword: str, value: Any, at: Where) -> None:
        if not keyword.startswith("x-"):
            near = meant("key", keyword, _KEYWORDS, value)
            hint = did_you_mean(keyword, _KEYWORDS) or "a word of your own starts with x-"
            message = f"{self._who}unknown key {quoted(keyword)}"
            near = f"x-{keyword}" if near is UNKNOWN else near
            self._report.add("unknown_key", at, message, hint, of_key=True, near=near)

    def _parts(self, keyword: str, value: Any, at: Where) -> None:
        match _KEYWORDS[keyword]:
            case "a list of schemas":
                for i, part in enumerate(value):
                    self._schema(part, (*at, i))
            case "a mapping of schemas":
                for name, part in value.items():
                    if keyword == "patternProperties":
                        self._pattern(name, (*at, name))
                    self._schema(part, (*at, name))
            case _:
                pass
        if keyword == "pattern":
            self._pattern(value, at)
        elif keyword == "$ref":
            self._reference(value, at)

    def _type(self, types: Any, at: Where) -> None:
        for name in types if isinstance(types, list) and types else [types]:
            if not isinstance(name, str) or name not in TYPES:
                near = _type_like(types)
                hint = did_you_mean(str(name), TYPES) or f"the types are {', '.join(TYPES)}"
                patch = drop(at) if near is UNKNOWN else NO_PATCH
                message = f"{self._who}unknown type {quoted(name)}"
                self._report.add("unknown_type", at, message, hint, near=near, patch=patch)
                return

    def _pattern(self, pattern: str, at: Where) -> None:
        self._patterns += 1
        most = limits.now.schema_patterns_max
        if self._patterns > most and not self._report.is_stored:
            if self._patterns == most + 1:
                message = f"{self._who}the schema has more than {most:,} regular expressions ({limits.met('schema_patterns_max')})"
                self._report.add("schema_too_large", at, message, "use fewer")
            return
        try:
            Judge({"pattern": pattern}, 1)
        except ValueError:
            message = f"{self._who}{quoted(pattern)} is not a regular expression that can be used"
            hint = "look-around, back-references and large repetitions are not available"
            self._report.add("invalid_pattern", at, message, hint, patch=drop(at))

    def _reference(self, reference: str, at: Where) -> None:
        if not reference.startswith("#"):
            message = (
                f"{self._who}a reference stays within its schema, and {quoted(reference)} leads out of it"
            )
            self._report.add("remote_reference", at, message, "write #/$defs/name", patch=drop(at))
        elif _referred(self._root, reference) is None:
            message = f"{self._who}{quoted(reference)} leads nowhere"
            hint = "write a reference such as #/$defs/name"
            self._report.add("unknown_reference", at, message, hint, patch=drop(at))


def _schema_like(value: Any) -> Any:
    """The schema that a single value probably stands for: a type, or a default value."""
    if isinstance(value, str):
        near = value if value in TYPES else meant("type", value, TYPES)
        return {"type": "string", "default": value} if near is UNKNOWN else {"type": near}
    if isinstance(value, list):
        return {"type": "array", "default": value}
    if isinstance(value, int | float):
        return {"type": "integer" if isinstance(value, int) else "number", "default": value}
    return {} if value is None else UNKNOWN


def _type_like(types: Any) -> Any:
    words = types if isinstance(types, list) else [types]
    near = [word if word in TYPES else meant("type", word, TYPES) for word in words if isinstance(word, str)]
    found = [word for word in near if word is not UNKNOWN]
    if not found:
        return UNKNOWN
    return found if isinstance(types, list) else found[0]


def _held_like(value: Any, holds: str) -> Any:
    """The value of a keyword, converted to the type that the keyword requires if that is possible."""
    kinds: dict[str, tuple[type[Any], ...]] = {
        "text": (str,),
        "true or false": (bool,),
        "a number": (int, float),
    }
    near = converted(value, kinds.get(holds, (list,) if "list" in holds else (int,)), "value")
    return near if near is not UNKNOWN and _HELD[holds](near) else UNKNOWN


def _hint_of(value: Any, holds: str) -> str:
    return "it needs at least one" if value == [] else f"write {holds}"


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else type_name(value)


def _referred(root: Any, reference: str) -> Any:
    """The schema that a reference such as `#/$defs/name` leads to; None if there is none.

    The path leads through schemas only, because the contents of defaults and of unknown keywords are not checked.
    """
    found, holds = root, "schema"
    for part in reference.removeprefix("#").split("/")[1:]:
        key: Any = part.replace("~1", "/").replace("~0", "~")
        if holds == "schema":
            holds = _KEYWORDS.get(key, "")
            if not holds.endswith(("schema", "schemas")):
                return None
        elif holds == "a list of schemas":
            key, holds = int(key) if key.isdecimal() and len(key) < 6 else -1, "schema"
        else:
            holds = "schema"
        is_there = (
            key in found if isinstance(found, dict) else isinstance(found, list) and 0 <= key < len(found)
        )
        if not is_there:
            return None
        found = found[key]
    # An anchor, `#name`, would need a second way to look things up.
    is_pointer = reference == "#" or reference.startswith("#/")
    return found if is_pointer and holds == "schema" and isinstance(found, dict | bool) else None


class RecursiveSchema(Exception):
    """A schema that contains itself: how much work it is depends on the values alone."""


def count_rules(root: Any) -> int:
    """The number of schemas in a schema, with each reference counted as its target; raises RecursiveSchema or
    ValueError."""
    known: dict[int, int] = {}
    around: set[int] = set()

    def count(schema: Any, name: str) -> int:
        if not isinstance(schema, dict):
            return 1
        if id(schema) in around:
            raise RecursiveSchema(name)
        if len(around) >= SCHEMA_DEPTH_MAX:
            raise ValueError(f"schemas are nested deeper than {SCHEMA_DEPTH_MAX} levels")
        if id(schema) not in known:
            around.add(id(schema))
            known[id(schema)] = 1 + sum(count(part, where) for where, part in _parts_of(schema, root))
            around.discard(id(schema))
        return known[id(schema)]

    return count(root, "#")


def _parts_of(schema: dict[str, Any], root: Any) -> Iterator[tuple[str, Any]]:
    for keyword, value in schema.items():
        match _KEYWORDS.get(keyword):
            case "schema":
                yield keyword, value
            case "a list of schemas":
                yield from ((keyword, part) for part in value)
            case "a mapping of schemas" if keyword not in ("$defs", "definitions"):
                yield from ((keyword, part) for part in value.values())
        if keyword == "$ref":
            yield value, _referred(root, value)


# ------------------------------------------------------------------------------------------ whether a value fits


class Mismatch(NamedTuple):
    """Something in a value that does not fit; `path` leads to it."""

    code: str
    path: Where
    message: str
    hint: str = ""


class Judge:
    """A compiled schema that validates many values. `rules` is its size; raises ValueError if it is not a schema."""

    def __init__(self, schema: Any, rules: int) -> None:
        import jsonschema_rs  # here, because few runs need it

        self._rules = rules
        self._dear = schema_work.DearRules(schema, lambda part: _parts_of(part, schema))
        self._heavy_text = b'"pattern' in values.encode(schema)
        patterns = jsonschema_rs.RegexOptions(size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX)
        self._validator = jsonschema_rs.Draft202012Validator(
            schema, pattern_options=patterns, offline=True, mask="the value", validate_formats=True
        )

    def mismatches(self, value: Any) -> list[Mismatch]:
        """The mismatches of a value. For a large value perhaps only the first, because finding the rest would take
        too long."""
        try:
            # as a run will see it; a value that contains itself is refused here
            value = values.decode(values.encode(value))
        except values.NotJson as error:
            return [Mismatch("not_json", (), f"not JSON: {error}")]
        work = self._work(value)
        if work > limits.now.schema_work_max:
            return [
                Mismatch(
                    "too_large",
                    (),
                    f"too large to be checked against this schema ({limits.met('schema_work_max')})",
                )
            ]
        if self._validator.is_valid(value):
            return []
        if work > ALL_MISMATCHES_WORK_MAX:
            return list(self._first(value))
        found = islice(self._validator.iter_errors(value), MISMATCHES_MAX)
        return [mismatch for error in found for mismatch in _in_words(error)]

    def _work(self, value: Any) -> int:
        work = self._rules * _size(value, CHARS_MATCHED if self._heavy_text else CHARS_READ)
        return work if work > limits.now.schema_work_max else work + self._dear.work(value)

    def _first(self, value: Any) -> Iterator[Mismatch]:
        import jsonschema_rs

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            yield from _in_words(error)


def _size(value: Any, chars: int) -> int:
    """How many values a value contains; a number of characters of a text counts as one."""
    stack, size = [value], 0
    while stack:
        top = stack.pop()
        size += 1
        if isinstance(top, str):
            size += len(top) // chars
        elif isinstance(top, dict):
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
    return size


def _in_words(error: jsonschema_rs.ValidationError) -> Iterator[Mismatch]:
    path, kind = tuple(error.instance_path), error.kind
    match kind.name:
        case "required":
            name = str(kind.value)
            yield Mismatch("missing_input", (*path, name), "is missing")
        case "additionalProperties" | "unevaluatedProperties":
            for name in islice(kind.value, MISMATCHES_MAX):
                yield Mismatch("unknown_input", (*path, str(name)), "is unknown")
        case "falseSchema" if path:
            yield Mismatch("unknown_input", path, "is unknown")
        case "type":
            types = kind.value if isinstance(kind.value, list) else [kind.value]
            message = f"must be {' or '.join(map(str, types))}, not {type_name(error.instance)}"
            yield Mismatch("wrong_type", path, message)
        case "enum":
            yield Mismatch("invalid_choice", path, *_choices(kind.value, error.instance))
        case "anyOf" | "oneOf" if any(kind.value):
            yield Mismatch(
                "invalid_input", path, "fits none of the alternatives: " + _alternatives(kind.value)
            )
        case _:
            yield Mismatch("invalid_input", path, error.message.removeprefix("the value ")[:500])


def _choices(options: list[Any], value: Any) -> tuple[str, str]:
    shown = [quoted(option) if isinstance(option, str) else str(option)[:60] for option in options]
    more = ", …" if len(shown) > OPTIONS_SHOWN_MAX else ""
    texts = [option for option in options if isinstance(option, str)]
    hint = did_you_mean(value, texts) if isinstance(value, str) else ""
    return f"must be one of {', '.join(shown[:OPTIONS_SHOWN_MAX])}{more}", hint


def _alternatives(context: list[list[jsonschema_rs.ValidationError]]) -> str:
    firsts = [next(_in_words(errors[0]), None) for errors in context[:OPTIONS_SHOWN_MAX] if errors]
    return "; ".join(dict.fromkeys(mismatch.message for mismatch in firsts if mismatch)).replace(";", ",")
