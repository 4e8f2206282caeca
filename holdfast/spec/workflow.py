"""The steps notation: text or plain data ⇄ frozen records, and every problem in them.

    text ──read──► data ──from_data──► WorkflowSpec ──validate──► every name leads somewhere
                     ▲                      │
                     └───────to_data────────┘   (what versions are hashed from)

Knows the keys of the notation, what each kind of step may say, and which names can be seen from where. Must
not know plans, runs, tools that exist, or the graph notation.

A definition whose *shape* is wrong (keys, types, kinds, policies) cannot be made; one whose *contents* are
wrong (ids, tool names, paths, templates, references) can be made and looked at, and is refused by `validate`.
Either way all problems are reported at once, each with its place.
"""

from __future__ import annotations

import copy
import difflib
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal, NamedTuple

import msgspec

from holdfast import values
from holdfast.errors import InvalidInputs, InvalidSpec, Problem
from holdfast.spec.expr import ExprError, Template, parse_jsonpath, parse_template, refs_in
from holdfast.spec.policy import (
    ATTEMPTS_MAX,
    CONCURRENCY_MAX,
    DELAY_MS_MAX,
    NAME_CHARS_MAX,
    NEVER_RETRIED,
    NO_POLICY,
    SPEC_STEPS_MAX,
    TIMEOUT_SECS_MAX,
    BackoffKind,
    RetryPolicy,
    StepPolicy,
)
from holdfast.spec.read import PROBLEMS_MAX, SPEC_BYTES_MAX, Document, Key, pointer_to, read, write

Where = tuple[Key, ...]
OnAnyFail = Literal["abort", "continue"]

# Finding the nearest of many names takes a while each time, and a text can hold a hundred misspelt ones.
SUGGESTIONS_MAX: Final = 500

# ---------------------------------------------------------------------------------------------------- records


class ToolBody(msgspec.Struct, frozen=True):
    tool: str
    args: Any = None


class ForeachBody(msgspec.Struct, frozen=True, rename={"as_": "as"}):
    items: str
    as_: str = "item"
    steps: tuple[WorkflowStep, ...] = ()
    concurrency: int = 1
    on_any_fail: OnAnyFail = "abort"
    collect: Literal["outputs", "none"] = "outputs"


class ParallelBody(msgspec.Struct, frozen=True):
    """`form` is how the branches were written: as lists of steps, or as steps that are one branch each."""

    branches: tuple[tuple[WorkflowStep, ...], ...] = ()
    form: Literal["steps", "branches"] = "steps"
    on_any_fail: OnAnyFail = "abort"


class BranchBody(msgspec.Struct, frozen=True, rename={"else_": "else"}):
    on: str
    then: tuple[WorkflowStep, ...] = ()
    else_: tuple[WorkflowStep, ...] = ()


class TimerBody(msgspec.Struct, frozen=True):
    """Exactly one of the two. `until` is an instant: a number since 1970, or a date with time and zone."""

    delay_ms: int | float | str | None = None
    until: int | float | str | None = None


Body = ToolBody | ForeachBody | ParallelBody | BranchBody | TimerBody


class WorkflowStep(msgspec.Struct, frozen=True):
    id: str
    kind: str
    body: Body
    description: str = ""
    policy: StepPolicy = NO_POLICY


class Origin:
    """Where a definition came from. Two definitions that say the same are equal wherever they came from."""

    __slots__ = ("document", "notes", "source")

    def __init__(
        self, document: Document | None = None, source: str = "", notes: tuple[Problem, ...] = ()
    ) -> None:
        self.document, self.source, self.notes = document, source, notes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Origin)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"Origin({self.source!r})"


class WorkflowSpec(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    inputs: Any = None
    steps: tuple[WorkflowStep, ...] = ()
    output: Any = None
    on_restart: Literal["resume", "interrupt"] = "resume"
    timeout_secs: float | None = None
    labels: dict[str, str] = {}
    origin: Origin = msgspec.field(default_factory=Origin)

    @classmethod
    def from_yaml_str(cls, text: str | bytes, source: str = "") -> WorkflowSpec:
        """Read YAML or JSON; raise InvalidSpec with every problem if it has not the shape of a workflow."""
        document = read(text, source)
        return _from_plain(document.data, _Report(document, source))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> WorkflowSpec:
        with open(path, "rb") as file:
            # One byte more than allowed, so that the reader sees that it is too long.
            text = file.read(SPEC_BYTES_MAX + 1)
        return cls.from_yaml_str(text, os.fspath(path))

    @classmethod
    def from_data(cls, data: Any, source: str = "") -> WorkflowSpec:
        """Make a definition from plain data, as JSON has it."""
        report = _Report(None, source)
        try:
            plain = values.decode(values.encode(data))
        except values.NotJson as error:
            report.add("not_json", (), f"the definition is not JSON: {error}")
            raise report.refusal() from None
        return _from_plain(plain, report)

    def validate(self) -> None:
        """Raise InvalidSpec with every problem unless each name, path and template can be used."""
        report = _Report(self.origin.document, self.origin.source)
        if self.origin.document is None:
            # Records made by hand have met no rule yet; as data they meet those of any other definition.
            WorkflowSpec.from_data(self.to_data(), self.origin.source)
        _check(self, report)
        if report.problems:
            raise report.refusal()

    @property
    def notes(self) -> tuple[Problem, ...]:
        """What is not wrong but probably not meant."""
        report = _Report(self.origin.document, self.origin.source)
        _note_clashes(self, report)
        return (*self.origin.notes, *report.notes)

    @property
    def step_count(self) -> int:
        """The steps of the top level."""
        return len(self.steps)

    def to_data(self) -> dict[str, Any]:
        """The definition as plain data, without what goes without saying."""
        return _spec_data(self)

    def to_yaml(self) -> str:
        return write(self.to_data())

    def canonical(self) -> bytes:
        """One text per definition, whatever form, order, comments or explicit defaults it came with."""
        return values.canonical(self.to_data())


# -------------------------------------------------------------------------------------- the shape of the tree


class Block(NamedTuple):
    """A list of steps inside a step.

    `key` is where the list stands in its step and `first` the place of the block's first step in it. `number`
    tells the blocks of a step apart; `indexed` ones have it in their path. `binding` names the item that a
    block is for.
    """

    steps: tuple[WorkflowStep, ...]
    key: Where
    number: int = 0
    first: int = 0
    indexed: bool = False
    binding: str | None = None


def blocks(step: WorkflowStep) -> tuple[Block, ...]:
    match step.body:
        case ForeachBody() as body:
            return (Block(body.steps, ("steps",), binding=body.as_),)
        case ParallelBody(branches, "steps"):
            return tuple(Block(branch, ("steps",), i, i, True) for i, branch in enumerate(branches))
        case ParallelBody(branches):
            return tuple(Block(branch, ("branches", i), i, 0, True) for i, branch in enumerate(branches))
        case BranchBody(_, then, else_):
            return (Block(then, ("then",), 0), Block(else_, ("else",), 1))
        case _:
            return ()


def walk(steps: Iterable[WorkflowStep]) -> Iterator[WorkflowStep]:
    """All steps of a tree, each before the steps inside it."""
    return (step for _, step in _placed(steps, ()))


def _placed(steps: Iterable[WorkflowStep], at: Where, first: int = 0) -> Iterator[tuple[Where, WorkflowStep]]:
    for i, step in enumerate(steps, first):
        yield (*at, i), step
        for block in blocks(step):
            yield from _placed(block.steps, (*at, i, *block.key), block.first)


def policy_inside(step: WorkflowStep, outer: StepPolicy) -> StepPolicy:
    """What the call steps inside a step inherit, where the step itself inherits `outer`.

    The policy of a call step is then `step.policy.within(inherited)`. A branch hands on what it stands in.
    """
    return step.policy.within(outer) if isinstance(step.body, ForeachBody | ParallelBody) else outer


# ------------------------------------------------------------------------------------------------- visibility

ROOTS: Final = ("inputs", "steps", "item", "env", "secrets")


class StepAddress(NamedTuple):
    """Where the output of a step is found.

    `depth` is the number of the frame in which the address starts, among those around the reader, the top
    level being 0. `tail` leads on from there: `par[1].br.s`.
    """

    depth: int
    tail: str


class _Home(NamedTuple):
    """One of the blocks that a step stands in: the step that it belongs to, and which of its blocks it is."""

    step: str
    number: int
    is_loop: bool


class _Frame(NamedTuple):
    home: _Home | None
    binding: str | None
    tails: dict[str, str]


class Scope:
    """The names that can be seen from one point of a definition. Whoever walks the tree keeps it up to date:

        for step in steps:
            ...                                     # what `step` says is read in `scope`
            for block in blocks(step):
                visit(block.steps, scope.inside(step, block))
            scope.finish(step)                      # from here on it can be seen

    Each iteration of a foreach, branch of a parallel and body of a branch is a frame of its own. After a
    parallel or a branch the steps inside can be seen; after a foreach they cannot, since there is not one of
    each but many.
    """

    def __init__(
        self, homes: Mapping[str, tuple[_Home, ...]], inputs: frozenset[str], frames: tuple[_Frame, ...]
    ) -> None:
        self._homes, self._inputs, self._frames = homes, inputs, frames

    @classmethod
    def of(cls, spec: WorkflowSpec) -> Scope:
        """The scope before the first step."""
        return cls(dict(_homes(spec.steps, ())), declared_inputs(spec), (_Frame(None, None, {}),))

    def inside(self, step: WorkflowStep, block: Block) -> Scope:
        frame = _Frame(_home(step, block), block.binding, {})
        return Scope(self._homes, self._inputs, (*self._frames, frame))

    def finish(self, step: WorkflowStep) -> None:
        self._frames[-1].tails.update(_seen_after(step))

    def lookup(self, name: str) -> Literal["binding", "input", "step"] | None:
        """What a bare name stands for."""
        if self.binding(name) is not None:
            return "binding"
        if name in self._inputs:
            return "input"
        return "step" if self.step(name) else None

    def binding(self, name: str) -> int | None:
        """The depth of the frame whose item a name stands for. `item` is always the innermost."""
        for depth in range(len(self._frames) - 1, 0, -1):
            bound = self._frames[depth].binding
            if bound is not None and name in (bound, "item"):
                return depth
        return None

    def step(self, step_id: str) -> StepAddress | None:
        for depth in range(len(self._frames) - 1, -1, -1):
            tail = self._frames[depth].tails.get(step_id)
            if tail is not None:
                return StepAddress(depth, tail)
        return None

    def hidden(self, step_id: str) -> str | None:
        """Why a step that exists cannot be seen from here; None if it can be seen or does not exist."""
        home = self._homes.get(step_id)
        if home is None or self.step(step_id):
            return None
        here = tuple(frame.home for frame in self._frames if frame.home)
        if any(around.step == step_id for around in here):
            return "it is not over while the steps inside it run"
        shared = 0
        while shared < min(len(home), len(here)) and home[shared] == here[shared]:
            shared += 1
        beyond = home[shared:]
        if beyond and shared < len(here) and beyond[0].step == here[shared].step:
            return f'it stands in another branch of "{beyond[0].step}"'
        if beyond and self.step(beyond[0].step):
            loops = [around.step for around in beyond if around.is_loop]
            if loops:  # there is none where two steps have one id, which is a problem of its own
                return f'it stands inside the foreach "{loops[0]}", whose steps cannot be seen after it'
        return "it does not run before this point"

    def names(self) -> set[str]:
        """All bare names that can be seen: what a misspelt one could have been."""
        return self.step_ids() | self._inputs | {frame.binding for frame in self._frames if frame.binding}

    def step_ids(self) -> set[str]:
        return {step for frame in self._frames for step in frame.tails}


def _home(step: WorkflowStep, block: Block) -> _Home:
    return _Home(step.id, block.number, isinstance(step.body, ForeachBody))


def _homes(
    steps: Iterable[WorkflowStep], around: tuple[_Home, ...]
) -> Iterator[tuple[str, tuple[_Home, ...]]]:
    for step in steps:
        yield step.id, around
        for block in blocks(step):
            yield from _homes(block.steps, (*around, _home(step, block)))


def _seen_after(step: WorkflowStep) -> Iterator[tuple[str, str]]:
    own = values.segment(step.id)
    yield step.id, own
    if isinstance(step.body, ForeachBody):
        return
    for block in blocks(step):
        frame = f"{own}[{block.number}]" if block.indexed else own
        for inner in block.steps:
            yield from ((name, values.join(frame, tail)) for name, tail in _seen_after(inner))


# ----------------------------------------------------------------------------------------------------- inputs

_JSON_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "number": lambda value: _is_number(value),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}
_SHORT_FORM_KEYS: Final = ("type", "default", "description")


def declared_inputs(spec: WorkflowSpec) -> frozenset[str]:
    """The inputs that a definition names."""
    return frozenset(_declarations(spec.inputs))


def input_names(spec: WorkflowSpec) -> frozenset[str] | None:
    """All inputs that a run may be given, or None where any name is taken."""
    if not spec.inputs:
        return None
    if _is_schema(spec.inputs) and spec.inputs.get("additionalProperties", True) is not False:
        return None
    return declared_inputs(spec)


def with_defaults(spec: WorkflowSpec, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a run with defaults filled in; raises InvalidInputs with everything that does not fit."""
    if not isinstance(inputs, Mapping):
        raise InvalidInputs(f"inputs must be an object, not {_type_name(inputs)}")
    declared = _declarations(spec.inputs)
    known = input_names(spec)
    filled = {name: copy.deepcopy(rule["default"]) for name, rule in declared.items() if "default" in rule}
    filled.update(inputs)
    wrong = [_unknown_input(name, known) for name in inputs if known is not None and name not in known]
    wrong += [f'missing input "{name}"' for name in _required_inputs(spec.inputs) if name not in filled]
    for name, rule in declared.items():
        if name in filled and not _fits(filled[name], rule.get("type")):
            wrong.append(
                f'input "{name}" must be {_types_text(rule["type"])}, not {_type_name(filled[name])}'
            )
    if wrong:
        raise InvalidInputs("; ".join(wrong))
    return filled


def _is_schema(inputs: Any) -> bool:
    """Tell a JSON Schema from the short form, which may have an input named `type`: it is a mapping."""
    if not isinstance(inputs, dict):
        return False
    properties = inputs.get("properties")
    if isinstance(properties, dict) and all(isinstance(rule, dict | bool) for rule in properties.values()):
        return True
    return any(
        key in inputs and not isinstance(inputs[key], dict) for key in ("type", "required", "$schema", "$ref")
    )


def _declarations(inputs: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(inputs, dict):
        return {}
    rules = inputs.get("properties", {}) if _is_schema(inputs) else inputs
    if not isinstance(rules, dict):
        return {}
    return {name: rule if isinstance(rule, dict) else {} for name, rule in rules.items()}


def _required_inputs(inputs: Any) -> list[str]:
    if _is_schema(inputs):
        required = inputs.get("required", [])
        return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    return [name for name, rule in _declarations(inputs).items() if "default" not in rule]


def _unknown_input(name: str, known: Collection[str]) -> str:
    hint = _did_you_mean(name, known)
    return f'unknown input "{name}"' + (f" ({hint})" if hint else "")


def _fits(value: Any, types: Any) -> bool:
    """Whether a value has one of the types. A type that does not exist is reported elsewhere and fits all."""
    tests = [_JSON_TYPES.get(name) for name in _type_names(types)]
    return not tests or any(test is None or test(value) for test in tests)


def _type_names(types: Any) -> list[str]:
    return [str(name) for name in (types if isinstance(types, list) else [types]) if name is not None]


def _types_text(types: Any) -> str:
    return " or ".join(_type_names(types))


# --------------------------------------------------------------------------------------------------- problems


class _Report:
    """Collects problems, each with the place where it stands in the text."""

    def __init__(self, document: Document | None, source: str) -> None:
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        self.document, self.source = document, source
        self.has_holes = False
        self._settled: frozenset[str] = frozenset()

    def add(self, code: str, at: Where, message: str, hint: str = "", *, of_key: bool = False) -> None:
        pointer = pointer_to(at)
        if pointer not in self._settled and not self.is_full:
            self.problems.append(self._problem(code, pointer, message, hint, of_key))

    @property
    def is_full(self) -> bool:
        """Nobody reads more problems than these, so nobody should wait until the rest are found."""
        return len(self.problems) >= PROBLEMS_MAX

    def shape_is_read(self) -> None:
        """From now on contents are judged, but not where the shape was wrong.

        A tool that is missing is not badly named as well, and in a tree with holes many a name would look
        unknown.
        """
        self._settled = frozenset(problem.pointer for problem in self.problems)
        self.has_holes = bool(self.problems)

    def note(self, code: str, at: Where, message: str, hint: str = "") -> None:
        if len(self.notes) < PROBLEMS_MAX:
            self.notes.append(self._problem(code, pointer_to(at), message, hint, False))

    def refusal(self) -> InvalidSpec:
        return InvalidSpec(sorted(self.problems, key=lambda problem: (problem.line, problem.column)))

    def line_of(self, at: Where) -> str:
        return f"line {self.document.mark(pointer_to(at))[0]}" if self.document else pointer_to(at)

    def _problem(self, code: str, pointer: str, message: str, hint: str, of_key: bool) -> Problem:
        line, column = 0, 0
        if self.document:
            line, column = self.document.key_mark(pointer) if of_key else self.document.mark(pointer)
        return Problem(code, message, pointer, line, column, hint, self.source)


def _did_you_mean(word: str, known: Collection[str]) -> str:
    if len(known) > SUGGESTIONS_MAX:
        return ""
    near = difflib.get_close_matches(word[:NAME_CHARS_MAX], sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def _quoted(text: Any) -> str:
    shown = str(text)
    return f'"{shown}"' if len(shown) <= 60 else f'"{shown[:57]}…"'


def _type_name(value: Any) -> str:
    names = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    if value is None:
        return "null"
    return names.get(type(value), "a mapping")


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)


# --------------------------------------------------------------------------------------------- data → records


class _Fields:
    """The keys of one mapping, read one by one. What does not fit is reported and replaced by the default."""

    def __init__(
        self, report: _Report, data: dict[str, Any], at: Where, who: str = "", misfit: str = "out_of_range"
    ) -> None:
        self.report, self.data, self.at, self.who = report, data, at, who
        self._misfit = misfit  # the code of a value that has the right type and is wrong all the same

    def expect(self, known: Collection[str], required: Iterable[str] = ()) -> None:
        for key in self.data:
            if key not in known and not self.report.is_full:
                hint = _did_you_mean(key, known) or f"known keys are {', '.join(sorted(known))}"
                message = f"{self.who}unknown key {_quoted(key)}"
                self.report.add("unknown_key", (*self.at, key), message, hint, of_key=True)
        for key in required:
            if self.data.get(key) is None:
                self.wrong("missing_key", key, f'the key "{key}" is missing')

    def wrong(self, code: str, key: str, message: str, hint: str = "") -> None:
        self.report.add(code, (*self.at, key), self.who + message, hint)

    def get(self, key: str, kind: type[Any] | tuple[type[Any], ...], wanted: str) -> Any:
        """The value of a key if it has the type; None if it has not, is null or is not there."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.wrong("wrong_type", key, f"{key} must be {wanted}, not {_type_name(value)}")
            return None
        return value

    def text(self, key: str, default: str = "") -> str:
        value = self.get(key, str, "text")
        return default if value is None else str(value)

    def choice(self, key: str, options: tuple[str, ...], default: str) -> Any:
        value = self.text(key, default)
        if value in options:
            return value
        hint = _did_you_mean(value, options)
        self.wrong("invalid_choice", key, f"{key} must be {' or '.join(options)}, not {_quoted(value)}", hint)
        return default

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        value = self.get(key, int, "a whole number")
        if value is None:
            return default
        if not low <= value <= high:
            self.wrong(self._misfit, key, f"{key} must be from {low:,} to {high:,}, not {value}")
            return default
        return int(value)

    def seconds(self, key: str) -> float | None:
        value = self.get(key, (int, float), "a number of seconds")
        if value is None:
            return None
        if not 0 < value <= TIMEOUT_SECS_MAX:
            message = f"{key} must be more than 0 and at most {TIMEOUT_SECS_MAX:,}, not {value}"
            self.wrong(self._misfit, key, message)
            return None
        return float(value)

    def steps(self, key: str) -> tuple[WorkflowStep, ...]:
        return _read_steps(self.report, self.get(key, list, "a list of steps") or [], (*self.at, key))


_SPEC_KEYS: Final = (
    "name",
    "description",
    "inputs",
    "steps",
    "output",
    "on_restart",
    "timeout_secs",
    "labels",
)


def _from_plain(data: Any, report: _Report) -> WorkflowSpec:
    if not isinstance(data, dict):
        hint = "it starts with `name:` and `steps:`"
        report.add("wrong_type", (), f"a workflow must be a mapping, not {_type_name(data)}", hint)
        raise report.refusal()
    spec = _read_spec(_Fields(report, data, (), misfit="invalid_policy"))
    if report.problems:
        report.shape_is_read()
        _check(spec, report)  # what else is wrong should not have to wait for the next try
        raise report.refusal()
    return spec


def _read_spec(fields: _Fields) -> WorkflowSpec:
    fields.expect(_SPEC_KEYS, required=("name",))
    report = fields.report
    return WorkflowSpec(
        name=fields.text("name"),
        description=fields.text("description"),
        inputs=fields.get("inputs", dict, "a mapping") or None,
        steps=fields.steps("steps"),
        output=fields.data.get("output"),
        on_restart=fields.choice("on_restart", ("resume", "interrupt"), "resume"),
        timeout_secs=fields.seconds("timeout_secs"),
        labels=_read_labels(fields),
        origin=Origin(report.document, report.source, tuple(report.notes)),
    )


def _read_labels(fields: _Fields) -> dict[str, str]:
    labels = fields.get("labels", dict, "a mapping") or {}
    inner = _Fields(fields.report, labels, (*fields.at, "labels"), "label ")
    return {key: inner.text(key) for key in labels}


def _read_steps(report: _Report, items: list[Any], at: Where) -> tuple[WorkflowStep, ...]:
    steps = (_read_step(report, item, (*at, i)) for i, item in enumerate(items))
    return tuple(step for step in steps if step)


def _read_step(report: _Report, data: Any, at: Where) -> WorkflowStep | None:
    if not isinstance(data, dict):
        report.add("wrong_type", at, f"a step must be a mapping, not {_type_name(data)}")
        return None
    step_id = data.get("id")
    who = f"step {_quoted(step_id)}: " if step_id else ""
    fields = _Fields(report, data, at, who, misfit="invalid_policy")
    kind = _kind_of(fields)
    if kind is None:
        # Its keys cannot be judged, but its id can; and an empty parallel has nothing else to be judged.
        return WorkflowStep(fields.text("id"), "parallel", ParallelBody())
    rules = _KINDS[kind]
    fields.expect((*_STEP_KEYS, *_POLICY_KEYS, *rules.keys), required=("id", *rules.required))
    return WorkflowStep(
        id=fields.text("id"),
        kind=kind,
        body=rules.read(fields),
        description=fields.text("description"),
        policy=_read_policy(fields, kind, rules),
    )


def _kind_of(fields: _Fields) -> str | None:
    data = fields.data
    if data.get("kind") is None:
        implied = next((kind for key, kind in _IMPLIED_KINDS.items() if key in data), None)
        if implied is None:
            near = [
                kind for kind, rules in _KINDS.items() if rules.required and set(rules.required) <= set(data)
            ]
            hint = f"did you mean kind: {near[0]}?" if near else f"the kinds are {', '.join(_KINDS)}"
            fields.wrong("missing_key", "kind", 'the key "kind" or "tool" is missing', hint)
        return implied
    kind = fields.get("kind", str, "text")
    if kind is None or kind in _KINDS:
        return None if kind is None else str(kind)
    message = f"unknown kind {_quoted(kind)}; the kinds are {', '.join(_KINDS)}"
    fields.wrong("unknown_kind", "kind", message, _did_you_mean(kind, _KINDS))
    return None


def _read_policy(fields: _Fields, kind: str, rules: _Kind) -> StepPolicy:
    for key in _POLICY_KEYS:
        if key in fields.data and key not in rules.policy:
            message = f"{key} has no meaning on a {kind}"
            fields.report.add("invalid_policy", (*fields.at, key), fields.who + message, of_key=True)
    return StepPolicy(
        timeout_secs=fields.seconds("timeout_secs"),
        retry=_read_retry(fields),
        on_crash=fields.choice("on_crash", ("retry", "fail"), "retry"),
    )


_RETRY_KEYS: Final = ("max_attempts", "backoff", "initial_delay_ms", "max_delay_ms", "jitter", "retry_on")


def _read_retry(step: _Fields) -> RetryPolicy | None:
    data = step.get("retry", dict, "a mapping")
    if data is None:
        return None
    fields = _Fields(step.report, data, (*step.at, "retry"), f"{step.who}retry: ", misfit="invalid_policy")
    fields.expect(_RETRY_KEYS, required=("max_attempts",))
    policy = RetryPolicy(
        max_attempts=fields.integer("max_attempts", 1, 1, ATTEMPTS_MAX),
        backoff=BackoffKind(fields.choice("backoff", tuple(BackoffKind), BackoffKind.EXPONENTIAL)),
        initial_delay_ms=fields.integer("initial_delay_ms", 500, 0, DELAY_MS_MAX),
        max_delay_ms=fields.integer("max_delay_ms", 10_000, 0, DELAY_MS_MAX),
        jitter=_read_jitter(fields),
        retry_on=_read_retry_on(fields),
    )
    if policy.initial_delay_ms > policy.max_delay_ms:
        key = "max_delay_ms" if "max_delay_ms" in data else "initial_delay_ms"
        message = f"initial_delay_ms ({policy.initial_delay_ms}) exceeds max_delay_ms ({policy.max_delay_ms})"
        fields.wrong("invalid_policy", key, message, "give both, the first no larger than the second")
    return policy


def _read_jitter(fields: _Fields) -> float:
    value = fields.get("jitter", (int, float), "a number from 0 to 1")
    if value is None:
        return 0.0
    clamped = float(min(max(value, 0), 1))
    if clamped != value:
        message = f"{fields.who}jitter {value} is taken as {clamped}"
        fields.report.note(
            "clamped", (*fields.at, "jitter"), message, "it is a share of the delay, from 0 to 1"
        )
    return clamped


def _read_retry_on(fields: _Fields) -> tuple[str, ...] | None:
    kinds = fields.get("retry_on", list, "a list of error kinds")
    if kinds is None:
        return None
    for i, kind in enumerate(kinds):
        at = (*fields.at, "retry_on", i)
        if not isinstance(kind, str):
            message = f"{fields.who}an error kind must be text, not {_type_name(kind)}"
            fields.report.add("wrong_type", at, message)
        elif kind in NEVER_RETRIED:
            message = f"{fields.who}errors of kind {_quoted(kind)} are never retried"
            fields.report.add("invalid_policy", at, message, "remove it")
    return tuple(kind for kind in kinds if isinstance(kind, str))


def _read_tool(fields: _Fields) -> Body:
    return ToolBody(tool=fields.text("tool"), args=fields.data.get("args"))


def _read_foreach(fields: _Fields) -> Body:
    return ForeachBody(
        items=fields.text("items"),
        as_=fields.text("as", "item"),
        steps=fields.steps("steps"),
        concurrency=fields.integer("concurrency", 1, 1, CONCURRENCY_MAX),
        on_any_fail=fields.choice("on_any_fail", ("abort", "continue"), "abort"),
        collect=fields.choice("collect", ("outputs", "none"), "outputs"),
    )


def _read_parallel(fields: _Fields) -> Body:
    on_any_fail = fields.choice("on_any_fail", ("abort", "continue"), "abort")
    if fields.data.get("branches") is None:
        branches = tuple((step,) for step in fields.steps("steps"))
        return ParallelBody(branches, "steps", on_any_fail)
    if fields.data.get("steps") is not None:
        fields.wrong(
            "exclusive_keys", "branches", "steps and branches exclude each other", "keep one of them"
        )
    return ParallelBody(tuple(_read_branches(fields)), "branches", on_any_fail)


def _read_branches(fields: _Fields) -> Iterator[tuple[WorkflowStep, ...]]:
    for i, branch in enumerate(fields.get("branches", list, "a list of lists of steps") or []):
        at = (*fields.at, "branches", i)
        if isinstance(branch, list):
            yield _read_steps(fields.report, branch, at)
        else:
            message = f"{fields.who}a branch must be a list of steps, not {_type_name(branch)}"
            fields.report.add("wrong_type", at, message, "use `steps` where each branch is one step")


def _read_branch(fields: _Fields) -> Body:
    return BranchBody(on=fields.text("on"), then=fields.steps("then"), else_=fields.steps("else"))


def _read_timer(fields: _Fields) -> Body:
    given = [key for key in ("delay_ms", "until") if fields.data.get(key) is not None]
    if not given:
        fields.wrong("missing_key", "delay_ms", 'the key "delay_ms" or "until" is missing')
    elif len(given) == 2:
        fields.wrong("exclusive_keys", "until", "delay_ms and until exclude each other", "keep one of them")
    return TimerBody(
        delay_ms=_read_time(fields, "delay_ms", DELAY_MS_MAX), until=_read_time(fields, "until", 2**53)
    )


def _read_time(fields: _Fields, key: str, high: int) -> int | float | str | None:
    value: int | float | str | None = fields.get(
        key, (int, float, str), "a number of milliseconds or a template"
    )
    if value is None or isinstance(value, str):
        return value
    if not 0 <= value <= high:
        fields.wrong("out_of_range", key, f"{key} must be from 0 to {high:,}, not {value}")
    return value


class _Kind(NamedTuple):
    """What a kind of step may say: its own keys, those it must have, and the policies that concern it."""

    keys: tuple[str, ...]
    required: tuple[str, ...]
    policy: frozenset[str]
    read: Callable[[_Fields], Body]


_STEP_KEYS: Final = ("id", "kind", "description")
_POLICY_KEYS: Final = ("timeout_secs", "retry", "on_crash")
_CALL: Final = frozenset(_POLICY_KEYS)
_CONTAINER: Final = frozenset({"timeout_secs", "retry"})  # the defaults of the call steps inside
_NEITHER: Final = frozenset[str]()

_KINDS: Final = {
    "tool": _Kind(("tool", "args"), ("tool",), _CALL, _read_tool),
    "foreach": _Kind(
        ("items", "as", "steps", "concurrency", "on_any_fail", "collect"),
        ("items",),
        _CONTAINER,
        _read_foreach,
    ),
    "parallel": _Kind(("steps", "branches", "on_any_fail"), (), _CONTAINER, _read_parallel),
    "branch": _Kind(("on", "then", "else"), ("on",), _NEITHER, _read_branch),
    "timer": _Kind(("delay_ms", "until"), (), _NEITHER, _read_timer),
}
_IMPLIED_KINDS: Final = {"tool": "tool"}  # the key that says the kind


# --------------------------------------------------------------------------------------------- records → data


def _spec_data(spec: WorkflowSpec) -> dict[str, Any]:
    return {key: value for key, value in _struct_data(spec).items() if key != "origin"}


def _step_data(step: WorkflowStep) -> dict[str, Any]:
    data: dict[str, Any] = {"id": step.id}
    body = _body_data(step.body)
    if not any(_IMPLIED_KINDS.get(key) == step.kind for key in body):
        data["kind"] = step.kind
    if step.description:
        data["description"] = step.description
    return data | body | _struct_data(step.policy)


def _body_data(body: Body) -> dict[str, Any]:
    if not isinstance(body, ParallelBody):
        return _struct_data(body)
    data: dict[str, Any] = {}
    if body.form == "branches" or any(len(branch) != 1 for branch in body.branches):
        data["branches"] = _plain(body.branches)
    elif body.branches:
        data["steps"] = [_step_data(step) for (step,) in body.branches]
    if body.on_any_fail != "abort":
        data["on_any_fail"] = body.on_any_fail
    return data


def _struct_data(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from their defaults, in their order, by their names in the notation."""
    fields = ((key, getattr(struct, name), default) for name, key, default in _fields_of(type(struct)))
    return {key: _plain(value) for key, value, default in fields if value != default}


@cache  # msgspec works this out anew each time, from the annotations
def _fields_of(record: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    return tuple(
        (field.name, field.encode_name, field.default)
        if field.default_factory is msgspec.NODEFAULT
        else (field.name, field.encode_name, field.default_factory())
        for field in msgspec.structs.fields(record)
    )


def _plain(value: Any) -> Any:
    match value:
        case WorkflowStep():
            return _step_data(value)
        case msgspec.Struct():
            return _struct_data(value)
        case tuple() | list():
            return [_plain(item) for item in value]
        case BackoffKind():
            return value.value
        case _:
            return value


# ------------------------------------------------------------------------------------------ checking contents

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
_BINDING_NAME = re.compile(r"[^\W\d][\w-]*\Z")


def _check(spec: WorkflowSpec, report: _Report) -> None:
    if not spec.name.strip():
        report.add("empty_name", ("name",), "the name of a workflow must not be empty")
    _check_length(report, ("name",), spec.name)
    _check_inputs(spec.inputs, report)
    if not spec.steps and not report.has_holes:
        report.add("no_steps", ("steps",), "workflow spec must declare at least one step")
    if sum(1 for _ in walk(spec.steps)) > SPEC_STEPS_MAX:
        report.add("too_many_steps", ("steps",), f"the workflow has more than {SPEC_STEPS_MAX:,} steps")
        return
    scope = Scope.of(spec)
    checker = _Checker(spec, report)
    for i, step in enumerate(spec.steps):
        checker.step(step, ("steps", i), scope)
    checker.templates("", spec.output, ("output",), scope)


def _check_length(report: _Report, at: Where, name: str) -> None:
    if len(name) > NAME_CHARS_MAX:
        report.add("name_too_long", at, f"{_quoted(name)} is longer than {NAME_CHARS_MAX} characters")


def _check_inputs(inputs: Any, report: _Report) -> None:
    if not isinstance(inputs, dict):
        return
    is_schema = _is_schema(inputs)
    if is_schema:
        _check_schema(_Fields(report, inputs, ("inputs",), "inputs: "))
    at: Where = ("inputs", "properties") if is_schema else ("inputs",)
    for name, rule in _declarations(inputs).items():
        fields = _Fields(report, rule, (*at, name), f"input {_quoted(name)}: ")
        if not is_schema:
            _check_short_form(fields, inputs[name])
        _check_type(fields)


def _check_schema(fields: _Fields) -> None:
    if fields.data.get("type", "object") != "object":
        message = f"the type of all inputs together is object, not {_quoted(fields.data['type'])}"
        fields.wrong("wrong_type", "type", message, "an input x is declared as `x: {type: string}`")
    fields.get("properties", dict, "a mapping")
    fields.get("required", list, "a list of names")


def _check_short_form(fields: _Fields, rule: Any) -> None:
    if rule is not None and not isinstance(rule, dict):
        hint = "write {type: string}"
        message = f"{fields.who}an input is declared by a mapping, not {_type_name(rule)}"
        fields.report.add("wrong_type", fields.at, message, hint)
    fields.expect(_SHORT_FORM_KEYS)


def _check_type(fields: _Fields) -> None:
    types = fields.data.get("type")
    unknown = [name for name in _type_names(types) if name not in _JSON_TYPES]
    if unknown:
        hint = _did_you_mean(unknown[0], _JSON_TYPES) or f"the types are {', '.join(_JSON_TYPES)}"
        fields.wrong("unknown_type", "type", f"unknown type {_quoted(unknown[0])}", hint)
    elif "default" in fields.data and not _fits(fields.data["default"], types):
        fields.wrong("invalid_default", "default", f"the default must be {_types_text(types)}")


class _Checker:
    """Walks the tree once, looking at what each step says and at whom it names."""

    def __init__(self, spec: WorkflowSpec, report: _Report) -> None:
        self._report = report
        self._inputs = input_names(spec)
        self._seen: dict[str, Where] = {}

    def step(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        self._check_id(step.id, (*at, "id"))
        self._check_body(step, at, scope)
        for block in blocks(step):
            inside = scope.inside(step, block)
            for i, inner in enumerate(block.steps, block.first):
                self.step(inner, (*at, *block.key, i), inside)
        scope.finish(step)

    def _check_id(self, step_id: str, at: Where) -> None:
        if not step_id.strip():
            self._report.add("empty_id", at, "empty step id")
        elif step_id in self._seen:
            hint = f"the first is in {self._report.line_of(self._seen[step_id])}"
            self._report.add("duplicate_id", at, f"duplicate step id: {_quoted(step_id)}", hint)
        else:
            self._seen[step_id] = at
            _check_length(self._report, at, step_id)

    def _check_body(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        who = f"step {_quoted(step.id)}: " if step.id else ""
        match step.body:
            case ToolBody(tool, args):
                self._tool_name(who, tool, (*at, "tool"))
                self.templates(who, args, (*at, "args"), scope, secrets=True)
            case ForeachBody(items, binding):
                self._path(who, items, (*at, "items"), scope)
                self._binding(who, binding, (*at, "as"))
            case BranchBody(on):
                self._path(who, on, (*at, "on"), scope)
            case TimerBody(delay_ms, until):
                self._time(who, delay_ms, (*at, "delay_ms"), scope)
                self._time(who, until, (*at, "until"), scope)

    def _tool_name(self, who: str, tool: str, at: Where) -> None:
        if not _TOOL_NAME.match(tool):
            better = re.sub(r"[^A-Za-z0-9_-]+", "_", tool, flags=re.ASCII).strip("_")[:64]
            message = f"{who}invalid tool name {_quoted(tool)}: it has 1 to 64 letters, digits, _ and -"
            self._report.add("invalid_tool_name", at, message, f"for instance {better}" if better else "")

    def _binding(self, who: str, name: str, at: Where) -> None:
        if not _BINDING_NAME.match(name):
            message = f"{who}{_quoted(name)} cannot be the name of an item"
            self._report.add(
                "invalid_name", at, message, "it has letters, digits, _ and -, a digit not first"
            )
        elif name in ROOTS and name != "item":
            self._report.add(
                "reserved_name", at, f"{who}{_quoted(name)} already has a meaning", "choose another"
            )
        _check_length(self._report, at, name)

    def _path(self, who: str, text: str, at: Where, scope: Scope) -> None:
        try:
            path = parse_jsonpath(text)
        except ExprError as error:
            message = f"{who}invalid JSONPath expression {_quoted(text)}: {error}"
            self._report.add("invalid_jsonpath", at, message, error.hint)
            return
        for members in path.reads:
            if members and isinstance(members[0], str):
                self._reference(who, members[0], members[1:], at, scope, roots=("inputs", "steps", "item"))

    def templates(self, who: str, value: Any, at: Where, scope: Scope, *, secrets: bool = False) -> None:
        roots = ROOTS if secrets else ROOTS[:-1]
        for where, text in _texts(value, at):
            template = self._template(who, text, where)
            for ref in refs_in(template):
                self._reference(who, ref.root, ref.parts, where, scope, roots=roots)

    def _template(self, who: str, text: str, at: Where) -> Template:
        try:
            return parse_template(text)
        except ExprError as error:
            self._report.add("invalid_template", at, f"{who}{error}", error.hint)
            return ""

    def _time(self, who: str, value: Any, at: Where, scope: Scope) -> None:
        self.templates(who, value, at, scope)
        if isinstance(value, str) and "{{" not in value and not (at[-1] == "until" and _is_instant(value)):
            wanted = (
                "an instant such as 2026-01-31T09:00:00Z" if at[-1] == "until" else "a number of milliseconds"
            )
            self._report.add(
                "wrong_type", at, f"{who}{at[-1]} must be {wanted} or a template, not {_quoted(value)}"
            )

    def _reference(
        self, who: str, root: str, parts: tuple[Key, ...], at: Where, scope: Scope, *, roots: tuple[str, ...]
    ) -> None:
        if self._report.has_holes or self._report.is_full:
            return
        if root == "secrets" and root not in roots:
            hint = "secrets can be used in the arguments of call steps only"
            self._report.add("misplaced_secret", at, f"{who}a secret cannot be used here", hint)
        elif root == "inputs":
            self._input(who, parts, at)
        elif root == "steps":
            self._step(who, parts, at, scope)
        elif root not in roots or root == "item":
            self._bare(who, root, at, scope, roots)

    def _input(self, who: str, parts: tuple[Key, ...], at: Where) -> None:
        if parts and isinstance(parts[0], str) and self._inputs is not None and parts[0] not in self._inputs:
            message = f"{who}references unknown input {_quoted(parts[0])}"
            self._report.add("unknown_input", at, message, _did_you_mean(parts[0], self._inputs))

    def _step(self, who: str, parts: tuple[Key, ...], at: Where, scope: Scope) -> None:
        if not parts or not isinstance(parts[0], str) or scope.step(parts[0]):
            return
        if not self._out_of_scope(who, parts[0], at, scope):
            message = f"{who}references unknown step {_quoted(parts[0])}"
            self._report.add("unknown_step", at, message, _did_you_mean(parts[0], scope.step_ids()))

    def _bare(self, who: str, name: str, at: Where, scope: Scope, roots: tuple[str, ...]) -> None:
        if scope.lookup(name) or self._out_of_scope(who, name, at, scope):
            return
        hint = _did_you_mean(name, {*scope.names(), *roots})
        if name == "item":
            hint = "it exists inside a foreach only"
        self._report.add("unknown_root", at, f"{who}references unknown identifier {_quoted(name)}", hint)

    def _out_of_scope(self, who: str, step_id: str, at: Where, scope: Scope) -> bool:
        reason = scope.hidden(step_id)
        if reason:
            message = f"{who}step {_quoted(step_id)} cannot be seen from here: {reason}"
            self._report.add("out_of_scope", at, message)
        return reason is not None


def _texts(value: Any, at: Where) -> Iterator[tuple[Where, str]]:
    """The texts with braces in a piece of data. Keys are left alone: they are not rendered."""
    if isinstance(value, str):
        if "{{" in value:
            yield at, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _texts(member, (*at, key))
    elif isinstance(value, list):
        for i, member in enumerate(value):
            yield from _texts(member, (*at, i))


def _is_instant(text: str) -> bool:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _note_clashes(spec: WorkflowSpec, report: _Report) -> None:
    """A bare name stands for one thing only; whoever gave it to two should know for which."""
    inputs = declared_inputs(spec)
    for name in sorted(inputs.intersection(ROOTS)):
        message = f"the bare name {_quoted(name)} does not mean this input"
        report.note("shadowed", ("inputs", name), message, f"use inputs.{name}")
    for at, step in _placed(spec.steps, ("steps",)):
        if step.id in ROOTS or step.id in inputs:
            message = f"the bare name {_quoted(step.id)} does not mean this step"
            report.note("shadowed", (*at, "id"), message, f"use steps.{step.id}.output")
