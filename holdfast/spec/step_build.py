"""Plain data → records: the tree of steps is read by the tables of the notation.

Knows how the kind of a step is determined and how a misplaced key is reported. Must not know what a key may
hold, or whether a name is defined: that is checked on the records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, Final, TypeVar

from holdfast.nearest import did_you_mean, nearest
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.field_types import Table, make, read_table, required_in
from holdfast.spec.patch import NO_PATCH, Patch, drop, put, replace
from holdfast.spec.policy import StepPolicy
from holdfast.spec.problems import Fields, Report, Where, meant, quoted, type_name
from holdfast.spec.step_blanks import (
    blank_of,
    default_kind,
    default_name,
    kind_named_by,
    nested_step,
    step_id_for,
    step_of_text,
    unwrapped,
    wrapped_step,
)
from holdfast.spec.step_keys import ANSWER_KEYS, CALL_KEYS, HANDLING_KEYS, POLICY_KEYS, SPEC_KEYS, STEP_KEYS
from holdfast.spec.step_kinds import IMPLIED_KINDS, KINDS, Kind, implied_kind
from holdfast.spec.step_types import HANDLER_KEYS, Branches, Handler, Steps, steps_of
from holdfast.spec.steps import Answer, Body, Definition, OnError, Origin, ParallelBody, WorkflowStep

AnyDefinition = TypeVar("AnyDefinition", bound=Definition)


def definition_from(data: Any, report: Report, record: type[AnyDefinition]) -> AnyDefinition:
    """The definition that plain data spell; where the report has problems afterwards, it has holes."""
    if not isinstance(data, dict):
        hint = "it starts with `name:` and `steps:`"
        near = {"name": default_name(report.source), "steps": data} if isinstance(data, list) else UNKNOWN
        report.add("wrong_type", (), f"a workflow must be a mapping, not {type_name(data)}", hint, near=near)
        raise report.refusal()
    fields = Fields(report, data, (), wrong_code="invalid_policy")
    # That there are no steps is a matter of contents, for which there are better words.
    fields.expect(
        SPEC_KEYS,
        required=[name for name in required_in(SPEC_KEYS) if name != "steps"],
        elsewhere=lambda key: _unwrapped(data, key),
        blanks=lambda key: default_name(report.source) if key == "name" else UNKNOWN,
    )
    found = _with_steps(SPEC_KEYS, fields)
    found["inputs"] = found.get("inputs") or None  # to declare none is to declare nothing
    origin = Origin(
        report.document, report.source, tuple(report.notes), report.given, is_stored=report.is_stored
    )
    return make(record, found | {"origin": origin})


def _unwrapped(data: dict[str, Any], key: str) -> Patch:
    """The patch for a definition of which a part stands under one more key."""
    marks = ("name",) if key == "metadata" else ("steps", "nodes")
    return next((patch for mark in marks if (patch := unwrapped(data, key, mark))), NO_PATCH)


# -------------------------------------------------------------------------------------------------------- steps


def _with_steps(table: Table, fields: Fields) -> dict[str, Any]:
    """The values of a table, with the steps inside read in their turn."""
    found = read_table(table, fields)
    for name, value in found.items():
        at = (*fields.at, name)
        if isinstance(table[name].shape, Steps):
            found[name] = _steps_from(value, fields.report, at)
        elif isinstance(table[name].shape, Handler):
            found[name] = _handler_from(value, fields, at)
        elif isinstance(table[name].shape, Branches):
            found[name] = tuple(_branches_from(value, fields, at))
    return found


def _handler_from(data: dict[str, Any], fields: Fields, at: Where) -> OnError:
    inner = Fields(fields.report, data, at, f"{fields.who}on_error: ", fields.wrong_code)
    inner.expect(HANDLER_KEYS, required=required_in(HANDLER_KEYS), blanks=lambda _: [])
    return make(OnError, _with_steps(HANDLER_KEYS, inner))


def _branches_from(branches: list[Any], fields: Fields, at: Where) -> Iterator[tuple[WorkflowStep, ...]]:
    for i, branch in enumerate(branches):
        if isinstance(branch, list):
            yield _steps_from(branch, fields.report, (*at, i))
            continue
        message = f"{fields.who}a branch must be a list of steps, not {type_name(branch)}"
        near = steps_of(branch)
        fields.report.add(
            "wrong_type", (*at, i), message, "use `steps` where each branch is one step", near=near
        )
        fields.report.cannot_read(branch)
        yield ()


def _steps_from(items: list[Any], report: Report, at: Where) -> tuple[WorkflowStep, ...]:
    return tuple(_read_step(report, item, (*at, i)) for i, item in enumerate(items))


# It holds the place of a step that cannot be read: those after it keep their numbers.
_HOLE: Final = ParallelBody()


def _read_step(report: Report, data: Any, at: Where) -> WorkflowStep:
    if not isinstance(data, dict):
        message = f"a step must be a mapping, not {type_name(data)}"
        report.add("wrong_type", at, message, "write {id: name, tool: name}", near=step_of_text(data))
        report.settle((*at, "id"))
        report.cannot_read(data)
        return WorkflowStep("", "parallel", _HOLE)
    step_id = data.get("id")
    who = f"step {quoted(step_id)}: " if step_id else ""
    fields = Fields(report, data, at, who, wrong_code="invalid_policy")
    if (inner := wrapped_step(data, _keys_of_all())) is not None:
        (name,) = data
        return _restated(report, (*at, name), f"unknown key {quoted(name)}", f"write `- id: {name}`", inner)
    if (found := nested_step(data, _keys_of_all())) is not None:
        name, inner = found
        hint = (
            "write `kind: …` and its keys" if inner.get("kind") == name else f"write `{name}: {inner[name]}`"
        )
        return _restated(report, (*at, name), f"{who}{name} must not hold other keys", hint, inner)
    kind, certain = _kind_of(fields)
    if kind is None:
        return _unknown_step(fields)
    rules = KINDS[kind]
    _expect_keys(fields, kind, rules, certain)
    return WorkflowStep(
        id=STEP_KEYS["id"].shape.read(fields, "id") or "",
        kind=kind,
        body=_read_body(fields, rules),
        description=STEP_KEYS["description"].shape.read(fields, "description") or "",
        policy=make(StepPolicy, read_table(_some(POLICY_KEYS, rules), fields)),
        answer=make(Answer, read_table(_some(ANSWER_KEYS, rules), fields)),
        compensate=read_table(_some(CALL_KEYS, rules), fields).get("compensate"),
        **_fields(_with_steps(HANDLING_KEYS, fields)),
    )


def _restated(report: Report, at: Where, message: str, hint: str, meant: dict[str, Any]) -> WorkflowStep:
    """A step that stands in another form. What else is wrong with it is reported once it has its own."""
    report.add("unknown_key", at, message, hint, of_key=True, patch=replace(at[:-1], meant))
    report.settle((*at[:-1], "id"))
    report.cannot_read(meant)
    return WorkflowStep("", "parallel", _HOLE)


def _fields(found: dict[str, Any]) -> dict[str, Any]:
    return {"finally_" if key == "finally" else key: value for key, value in found.items()}


def _read_body(fields: Fields, rules: Kind) -> Body:
    body: Any = make(rules.record, rules.arrange(_with_steps(rules.keys, fields)))
    if rules.rule:
        rules.rule(fields, body)
    return body  # type: ignore[no-any-return]


def _some(table: Table, rules: Kind) -> Table:
    return {name: key for name, key in table.items() if name in rules.common}


def _unknown_step(fields: Fields) -> WorkflowStep:
    """A step of an unknown kind: its own keys cannot be interpreted, but its id, its policy, its inner steps and keys
    that no kind has can be read."""
    fields.expect(_keys_of_all(), required=("id",), blanks=lambda _: step_id_for(fields))
    read_table(POLICY_KEYS, fields)
    fields.report.cannot_read({key: value for key, value in fields.data.items() if key != "id"})
    for key in ("steps", "then", "else", "finally"):
        if isinstance(items := fields.data.get(key), list):
            _steps_from(items, fields.report, (*fields.at, key))
    return WorkflowStep(STEP_KEYS["id"].shape.read(fields, "id") or "", "parallel", _HOLE)


def _kind_of(fields: Fields) -> tuple[str | None, bool]:
    """The kind of a step, and whether it was said or had to be guessed from a misspelt word."""
    data = fields.data
    if data.get("kind") is None:
        return _silent_kind(fields), True
    kind = fields.get("kind", str, "text")
    if kind is None or kind in KINDS:
        return kind, True
    message = f"unknown kind {quoted(kind)}; the kinds are {', '.join(KINDS)}"
    near = UNKNOWN if fields.report.is_full else meant("kind", kind, KINDS)
    hint = did_you_mean(kind, KINDS) or "choose one of them"
    fields.wrong(
        "unknown_kind", "kind", message, hint, default_kind(fields.data) if near is UNKNOWN else near
    )
    return nearest(kind, KINDS), False


def _silent_kind(fields: Fields) -> str | None:
    implied = implied_kind(fields.data)
    if implied is None and not _is_kind_misspelt(fields.data):
        message = 'the key "kind" or "tool" is missing'
        near = UNKNOWN if _is_kind_claimed(fields) else default_kind(fields.data)
        fields.wrong("missing_key", "kind", message, _hint_of_kind(fields.data), near)
    return implied


def _hint_of_kind(keys: Collection[str]) -> str:
    likely = kind_named_by(keys)
    return f"did you mean kind: {likely}?" if likely else f"the kinds are {', '.join(KINDS)}"


_KIND_WORDS: Final = frozenset({"kind", *(first for first, *_ in IMPLIED_KINDS.values())})


def _is_kind_misspelt(keys: Collection[str]) -> bool:
    """Whether an unknown key, which is reported by itself, was meant to say the kind."""
    known = _keys_of_all()
    return any(key not in known and nearest(key, known) in _KIND_WORDS for key in keys)


def _is_kind_claimed(fields: Fields) -> bool:
    """Whether the repair of an unknown key says the kind."""
    known = _keys_of_all()
    return any(key not in known and fields.meant_key(key, known) in _KIND_WORDS for key in fields.data)


@cache
def _keys_of_all() -> frozenset[str]:
    """The keys of all kinds."""
    own = (key for rules in KINDS.values() for key in rules.keys)
    return frozenset({*STEP_KEYS, *POLICY_KEYS, *ANSWER_KEYS, *CALL_KEYS, *own})


def _expect_keys(fields: Fields, kind: str, rules: Kind, certain: bool) -> None:
    own = {**STEP_KEYS, **rules.keys}
    common = {**POLICY_KEYS, **ANSWER_KEYS, **CALL_KEYS}
    if not certain:  # keys that another kind would require are not missing
        for name in (*required_in(rules.keys), *rules.one_of):
            fields.report.settle((*fields.at, name))
    required = [name for name in required_in(own) if certain or name == "id"]
    fields.expect(
        {*own, *common},
        required,
        near={*own, *rules.common},
        hint_of=_owners,
        blanks=lambda key: blank_of(fields, key),
        certain=certain,
    )
    for key in common:
        if key in fields.data and key not in own and key not in rules.common:
            message = f"{fields.who}{key} has no meaning on a step of kind {kind}"
            hint = f"it belongs to the kinds {', '.join(_takers(key))}"
            at = (*fields.at, key)
            patch = drop(at) if certain else NO_PATCH
            fields.report.add("invalid_policy", at, message, hint, of_key=True, patch=patch)
    _expect_one(fields, rules, certain)


def _expect_one(fields: Fields, rules: Kind, certain: bool) -> None:
    given = [key for key in rules.one_of if fields.data.get(key) is not None]
    if rules.one_of and not given and rules.one_of_is_required and certain:
        names = [f'"{key}"' for key in rules.one_of]
        hint = f"add `{rules.one_of[0]}: …`"
        near, is_remote = blank_of(fields, rules.one_of[0]), fields.data.get("kind") == "tool_remote"
        patch = (
            put((*fields.at, "kind"), "tool") if is_remote else NO_PATCH
        )  # without a server it is one of this
        message = f"the key {_or(names)} is missing"
        fields.wrong("missing_key", rules.one_of[0], message, hint, near, patch)
    if len(given) > 1:
        message = f"{given[0]} and {given[1]} exclude each other"
        fields.wrong("exclusive_keys", given[1], message, "keep one of them")


def _or(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _owners(key: str) -> str:
    owners = [kind for kind, rules in KINDS.items() if key in rules.keys]
    return f"{key} belongs to the kinds {', '.join(owners)}" if owners else ""


@cache
def _takers(key: str) -> list[str]:
    return [kind for kind, rules in KINDS.items() if key in rules.common or key in rules.keys]
