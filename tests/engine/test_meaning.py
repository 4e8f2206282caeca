"""What a definition means, told twice: by the engine, and by a plain recursive interpreter that keeps everything.

Definitions are random; so is the order in which attempts answer. Tools give what they were handed, so that a wrong
value anywhere shows in the output.
"""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.values import encode
from tests.engine.driver import Case

INPUTS = {
    "list": ["a", {"b": 1}, None],
    "none": None,
    "object": {"k": [1, 2]},
    "long": ["x" * 700, "y" * 1500],
}

Step = dict[str, Any]


# --------------------------------------------------------------------------------------------------- definitions


class Author:
    """Writes a random definition that names only what can be seen."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.count = draw, 0

    def steps(self, depth: int, seen: list[str], least: int = 0) -> tuple[list[Step], list[str]]:
        """Some steps, and the names that can be seen after them."""
        written: list[Step] = []
        for _ in range(self.draw(st.integers(least, 3))):
            step, names = self.step(depth, seen)
            written.append(step)
            seen = [*seen, *names]
        return written, seen

    def step(self, depth: int, seen: list[str]) -> tuple[Step, list[str]]:
        self.count += 1
        name = f"s{self.count}"
        kind = self.draw(st.sampled_from(["tool", "tool"] + ["foreach", "parallel", "branch"] * (depth > 0)))
        if kind == "tool":
            return {"id": name, "tool": "t", "args": self.args(seen)}, [name]
        if kind == "branch":
            then, after = self.steps(depth - 1, seen)
            other, after_other = self.steps(depth - 1, seen)
            names = [*after[len(seen) :], *after_other[len(seen) :]]
            return {"id": name, "kind": kind, "on": self.path(seen), "then": then, "else": other}, [
                name,
                *names,
            ]
        if kind == "parallel":
            parts = [self.steps(depth - 1, seen) for _ in range(self.draw(st.integers(1, 3)))]
            inner = [one for _, after in parts for one in after[len(seen) :]]
            return {
                "id": name,
                "kind": kind,
                "on_any_fail": "continue",
                "branches": [part for part, _ in parts],
            }, [
                name,
                *inner,
            ]
        body, _ = self.steps(depth - 1, [*seen, "item", f"x{name}"])
        collect = self.draw(st.sampled_from(["outputs", "none"]))
        concurrency = self.draw(st.integers(1, 3))
        return {
            "id": name,
            "kind": kind,
            "items": self.path(seen),
            "as": f"x{name}",
            "on_any_fail": "continue",
            "collect": collect,
            "concurrency": concurrency,
            "steps": body,
        }, [name]

    def args(self, seen: list[str]) -> dict[str, str]:
        names = self.draw(
            st.lists(st.sampled_from([*seen, *(f"inputs.{name}" for name in INPUTS)]), max_size=2)
        )
        return {
            f"a{n}": self.draw(st.sampled_from(["{{ %s }}", "<{{ %s }}>"])) % name
            for n, name in enumerate(names)
        }

    def path(self, seen: list[str]) -> str:
        return "$." + self.draw(st.sampled_from([*seen, *(f"inputs.{name}" for name in INPUTS)]))


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    steps, _ = Author(draw).steps(2, [], least=1)
    return {"name": "n", "steps": steps}


def outcome_of(path: str, args: Any) -> Any:
    """What the tool gives for a step, or None where it fails. A few outputs are large."""
    luck = zlib.crc32(path.encode()) % 12
    if luck == 0 and "[" in path:  # outside of every fan-out a failure would end the run
        return None
    return {
        "of": path,
        "args": args if len(encode(args)) < 3_000 else "much",
        "pad": "p" * (1_100 if luck == 1 else 0),
    }


# ---------------------------------------------------------------------------------------------------- the oracle


class Failed(Exception):
    pass


def interpret(steps: list[Step], seen: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Run steps in order. `seen` holds all names, those that the steps give are added to it; gives their outputs."""
    outputs: dict[str, Any] = {}
    for step in steps:
        path = prefix + step["id"]
        outputs[step["id"]] = seen[step["id"]] = MEANING[step.get("kind", "tool")](step, seen, path)
    return outputs


def _tool(step: Step, seen: dict[str, Any], path: str) -> Any:
    given = outcome_of(path, {name: _rendered(text, seen) for name, text in step["args"].items()})
    if given is None:
        raise Failed(path)
    return given


def _rendered(text: str, seen: dict[str, Any]) -> Any:
    value = _value(text.strip("<>").strip("{} "), seen)
    if text[0] == "{":
        return value
    return "<" + ("" if value is None else value if isinstance(value, str) else encode(value).decode()) + ">"


def _value(path: str, seen: dict[str, Any]) -> Any:
    name, _, member = path.partition(".")
    return INPUTS[member] if name == "inputs" else seen.get(name)


def _branch(step: Step, seen: dict[str, Any], path: str) -> Any:
    condition = _value(step["on"][2:], seen)
    taken = "then" if condition not in (None, False, 0, "", [], {}) else "else"
    interpret(step[taken], seen, f"{path}.")
    return {"condition": condition, "taken": taken}


def _parallel(step: Step, seen: dict[str, Any], path: str) -> Any:
    before, branches = dict(seen), []
    for index, branch in enumerate(step["branches"]):
        mine = dict(before)
        branches.append(_child(branch, mine, f"{path}[{index}]."))
        seen.update({name: value for name, value in mine.items() if name not in before})
    return {"branch_results": [branch["status"] for branch in branches], "branches": branches}


def _child(steps: list[Step], seen: dict[str, Any], prefix: str) -> dict[str, Any]:
    before = set(seen)
    ids = [step["id"] for step in steps]
    try:
        return {"status": "completed", "error": None, "steps": interpret(steps, seen, prefix)}
    except Failed as failed:
        done = {one: seen[one] for one in ids if one in seen and one not in before}
        return {"status": "failed", "error": str(failed), "steps": done}


def _foreach(step: Step, seen: dict[str, Any], path: str) -> Any:
    value = _value(step["items"][2:], seen)
    items = value if isinstance(value, list) else [] if value is None else [value]
    children = [
        _child(step["steps"], {**seen, "item": item, step["as"]: item}, f"{path}[{index}].")
        for index, item in enumerate(items)
    ]
    failed = [child for child in children if child["error"]]
    if step["collect"] == "none":
        return {"count": len(items), "failed": len(failed)}
    return {"iterations": [{"error": one["error"]} if one["error"] else one["steps"] for one in children]}


MEANING: dict[str, Any] = {"tool": _tool, "branch": _branch, "parallel": _parallel, "foreach": _foreach}


# ----------------------------------------------------------------------------------------------------- the engine


def engine_says(definition: dict[str, Any], seed: int) -> Any:
    case = Case(json.dumps(definition), INPUTS, checks=False)
    chance = random.Random(seed)
    case.start()
    while not case.run.over:
        path = chance.choice(case.open)
        given = outcome_of(path, _paths_of_errors(case.args(path)))
        case.fail(path) if given is None else case.succeed(path, given)
        if chance.random() < 0.1 and not case.run.over:
            case.run = case.replayed()  # another process takes the run from its rows
    assert case.run.status == "completed"
    return _paths_of_errors(case.output())


def _paths_of_errors(value: Any) -> Any:
    """The oracle knows of an error only which step failed first."""
    if isinstance(value, dict):
        if {"kind", "message", "path"} <= value.keys():
            while "cause" in value:
                value = value["cause"]
            return value["path"]
        return {key: _paths_of_errors(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_paths_of_errors(member) for member in value]
    if isinstance(value, str) and '"kind":' in value:
        return "an error, printed"
    return value


def _prints_an_error(definition: dict[str, Any], said: Any) -> bool:
    return "an error, printed" in json.dumps(said)


@given(definitions(), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_engine_gives_what_the_definition_means(definition: dict[str, Any], seed: int) -> None:
    said = engine_says(definition, seed)
    if _prints_an_error(definition, said):
        return  # a whole error inside text: the two print it differently
    try:
        meant = interpret(definition["steps"], {}, "")
    except Failed as failed:
        raise AssertionError(f"the oracle fails at {failed}") from None
    assert said == meant
