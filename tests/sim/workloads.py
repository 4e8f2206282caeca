"""Random but valid workflow definitions, by number.

A definition is plain data, read and compiled by the product. What the checkers need to know of a step (its policy with
what it inherits, its bounds) is taken from that data here, apart from the product's own compiler, so that a mistake
there is seen. Ids are unique within a workflow: the last segment of a path names its step.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from holdfast.plan.compile import Resolved, compile_definition
from holdfast.plan.graph import Plan
from holdfast.spec.notation import Definition
from holdfast.spec.workflow import WorkflowSpec

Data = dict[str, Any]

TOOLS: Final = ("t0", "t1", "t2", "rare")  # `rare` is not in every node's registry
KINDS_OF_ERROR: Final = ("error", "transient", "odd")
DEPTH_MAX: Final = 3
STEPS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Info:
    """One step as its definition says it is."""

    id: str
    kind: str
    data: Data
    retry: Data | None = None
    timeout_ms: int | None = None
    on_crash: str = "retry"
    child: Data | None = None  # the definition that a nested step names

    @property
    def key(self) -> str | None:
        found: str | None = self.data.get("idempotency_key")
        return found

    @property
    def is_global(self) -> bool:
        return self.data.get("idempotency_scope") == "global"

    @property
    def key_ttl_ms(self) -> int | None:
        seconds = self.data.get("idempotency_ttl_secs")
        return None if seconds is None else int(seconds) * 1000

    @property
    def is_single(self) -> bool:
        """A scope with one child, whose steps are named like its own path."""
        return self.kind in ("branch", "workflow")

    @property
    def max_attempts(self) -> int:
        return int(self.retry["max_attempts"]) if self.retry else 1

    @property
    def concurrency(self) -> int:
        if self.kind == "parallel":
            return len(self.data["branches"])
        return int(self.data.get("concurrency", 1)) if self.kind == "foreach" else 1

    @property
    def goes_on(self) -> bool:
        return self.data.get("on_any_fail") == "continue"


@dataclass(frozen=True, slots=True)
class Workload:
    number: int
    data: Data
    spec: Definition
    plan: Plan
    inputs: Data
    steps: dict[str, Info]
    whole: Resolved
    model: Any = None  # the class of its checker, if it is not that of its notation

    @property
    def timeout_ms(self) -> int | None:
        return timeout_of(self.data)


def timeout_of(definition: Data) -> int | None:
    seconds = definition.get("timeout_secs")
    return None if seconds is None else max(1, round(seconds * 1000))


@lru_cache(maxsize=4096)
def workload(number: int, woven: bool = False) -> Workload:
    """The definition of that number, with inputs that fit it: always the same.

    `woven`: the same one with idempotency keys on some of its steps, and with workflows nested in it.
    """
    data, inputs = _Maker(random.Random(number)).made(number)
    children: dict[str, Data] = {}
    if woven:
        children = _Weaver(random.Random(f"woven {number}"), number).weave(data)
    whole = resolved(data, children)
    steps: dict[str, Info] = {}
    _describe(data["steps"], None, None, steps, children)
    return Workload(
        number, data, whole.spec, compile_definition(whole.spec, whole.uses), inputs, steps, whole
    )


def resolved(data: Data, children: dict[str, Data]) -> Resolved:
    spec = WorkflowSpec.from_data(data)
    spec.validate()
    names = sorted(step["workflow"] for step in every_step(data["steps"]) if "workflow" in step)
    return Resolved(spec, {name: resolved(children[name], children) for name in names})


def every_step(block: list[Data]) -> list[Data]:
    """The steps of a block and of those within, not those of other definitions."""
    return [
        one for step in block for one in (step, *(x for inner in blocks_of(step) for x in every_step(inner)))
    ]


def _describe(
    block: list[Data],
    retry: Data | None,
    timeout: float | None,
    found: dict[str, Info],
    children: dict[str, Data],
) -> None:
    for step in block:
        if "workflow" in step:  # nothing of a policy reaches into it
            child = children[step["workflow"]]
            found[step["id"]] = Info(step["id"], "workflow", step, child=child)
            _describe(child["steps"], None, None, found, children)
            continue
        kind = step.get("kind", "tool")
        if kind == "tool":
            own_retry, own_timeout = step.get("retry", retry), step.get("timeout_secs", timeout)
            millis = None if own_timeout is None else round(own_timeout * 1000)
            found[step["id"]] = Info(step["id"], kind, step, own_retry, millis, step.get("on_crash", "retry"))
            continue
        found[step["id"]] = Info(step["id"], kind, step)
        inner_retry, inner_timeout = step.get("retry", retry), step.get("timeout_secs", timeout)
        for inner in blocks_of(step):
            _describe(inner, inner_retry, inner_timeout, found, children)


def output_of(name: str, member: str = "") -> str:
    """The template that names a step's output."""
    return "{{steps." + name + ".output" + member + "}}"


def blocks_of(step: Data) -> list[list[Data]]:
    kind = step.get("kind", "tool")
    if kind == "foreach":
        return [step["steps"]]
    if kind == "parallel":
        return list(step["branches"])
    return [step["then"], step["else"]] if kind == "branch" else []


@dataclass
class _Maker:
    rng: random.Random
    count: int = 0
    shape: str = field(default="")

    def made(self, number: int) -> tuple[Data, Data]:
        rng = self.rng
        # Most definitions are mixed; some are all of one kind, where rare meetings are frequent.
        self.shape = rng.choice(("mixed", "mixed", "mixed", "deep", "wide", "timers"))
        data: Data = {"name": f"w{number}", "inputs": _INPUTS, "steps": self.block([], 0, 1, 3)}
        if rng.random() < 0.15:
            data["timeout_secs"] = rng.choice((0.05, 0.5, 3, 9, 40))
        if rng.random() < 0.12:
            data["on_restart"] = "interrupt"
        if rng.random() < 0.2:
            data["output"] = {"n": "{{inputs.n}}", "all": output_of(data["steps"][0]["id"])}
        return data, {
            "n": rng.randrange(100),
            "flag": rng.random() < 0.5,
            "xs": [rng.randrange(1000) for _ in range(rng.choice((0, 1, 2, 3, 4, 6)))],
            "pad": "p" * rng.choice((0, 0, 1500)),
        }

    def block(self, seen: list[str], depth: int, low: int, high: int) -> list[Data]:
        seen = list(seen)
        made: list[Data] = []
        for _ in range(self.rng.randint(low, high)):
            if self.count % 100 >= STEPS_MAX and made:
                break
            step = self.step(seen, depth)
            made.append(step)
            if step.get("kind", "tool") == "tool":
                seen.append(step["id"])
        return made

    def step(self, seen: list[str], depth: int) -> Data:
        self.count += 1
        step_id = f"s{self.count}"
        nests = depth < DEPTH_MAX and self.count % 100 < STEPS_MAX
        likely = {"deep": 0.7, "wide": 0.6, "timers": 0.35}.get(self.shape, 0.45)
        if nests and self.rng.random() < likely:
            return self.rng.choice((self.foreach, self.parallel, self.parallel, self.branch))(
                step_id, seen, depth
            )
        if self.rng.random() < (0.5 if self.shape == "timers" else 0.15):
            return self.timer(step_id)
        return self.call(step_id, seen, depth)

    def call(self, step_id: str, seen: list[str], depth: int) -> Data:
        rng = self.rng
        args: Data = {"n": "{{inputs.n}}"} if rng.random() < 0.5 else {}
        for name in rng.sample(seen, min(len(seen), rng.choice((0, 1, 1, 2)))):
            if rng.random() < 0.3:
                args[f"whole_{name}"] = output_of(name)
            else:
                args[f"of_{name}"] = output_of(name, ".v")
        if rng.random() < 0.1:
            args["pad"] = "{{inputs.pad}}"
        step: Data = {
            "id": step_id,
            "tool": rng.choice(TOOLS if rng.random() < 0.15 else TOOLS[:3]),
            "args": args,
        }
        return step | self.policy(rng.random() < 0.3)

    def policy(self, with_crash: bool) -> Data:
        rng = self.rng
        policy: Data = {}
        if rng.random() < 0.3:
            policy["timeout_secs"] = rng.choice((0.02, 0.2, 1, 4))
        if rng.random() < 0.5:
            initial = rng.choice((0, 5, 100, 900, 4000))
            policy["retry"] = {
                "max_attempts": rng.choice((1, 2, 3, 4)),
                "backoff": rng.choice(("fixed", "linear", "exponential")),
                "initial_delay_ms": initial,
                "max_delay_ms": max(initial, rng.choice((10, 250, 1500, 10_000))),
            }
            if rng.random() < 0.3:
                policy["retry"]["jitter"] = rng.choice((0.1, 0.5, 1))
            if rng.random() < 0.2:
                policy["retry"]["retry_on"] = rng.sample(
                    ("error", "transient", "timeout"), rng.choice((1, 2))
                )
        if with_crash and rng.random() < 0.5:
            policy["on_crash"] = "fail"
        return policy

    def timer(self, step_id: str) -> Data:
        delay: Any = self.rng.choice((0, 1, 20, 500, 3000, 7000, 40_000, "{{inputs.n}}"))
        return {"id": step_id, "kind": "timer", "delay_ms": delay}

    def foreach(self, step_id: str, seen: list[str], depth: int) -> Data:
        rng = self.rng
        source = f"$.steps.{rng.choice(seen)}.output.xs" if seen and rng.random() < 0.4 else "$.inputs.xs"
        step: Data = {
            "id": step_id,
            "kind": "foreach",
            "items": source,
            "concurrency": rng.choice((3, 10, 10) if self.shape == "wide" else (1, 1, 2, 3, 10)),
            "on_any_fail": rng.choice(("abort", "continue")),
            "collect": rng.choice(("outputs", "outputs", "none")),
            "steps": self.block(seen, depth + 1, 1, 2),
        }
        for inner in step["steps"]:
            if inner.get("kind", "tool") == "tool" and rng.random() < 0.5:
                inner["args"]["item"] = "{{item}}"
        return step | (self.policy(False) if rng.random() < 0.2 else {})

    def parallel(self, step_id: str, seen: list[str], depth: int) -> Data:
        rng = self.rng
        branches = [
            self.block(seen, depth + 1, 1, 2)
            for _ in range(rng.choice((1, 2, 2, 3, 3 if self.shape == "wide" else 2)))
        ]
        step: Data = {"id": step_id, "kind": "parallel", "branches": branches}
        step["on_any_fail"] = rng.choice(("abort", "abort", "continue"))
        return step | (self.policy(False) if rng.random() < 0.2 else {})

    def branch(self, step_id: str, seen: list[str], depth: int) -> Data:
        rng = self.rng
        on = f"$.steps.{rng.choice(seen)}.output.flag" if seen and rng.random() < 0.5 else "$.inputs.flag"
        otherwise = self.block(seen, depth + 1, 1, 2) if rng.random() < 0.6 else []
        return {
            "id": step_id,
            "kind": "branch",
            "on": on,
            "then": self.block(seen, depth + 1, 1, 2),
            "else": otherwise,
        }


@dataclass
class _Weaver:
    """Puts keys on steps and workflows into workflows. Few texts, so that steps and runs meet under one key."""

    rng: random.Random
    number: int
    children: dict[str, Data] = field(default_factory=dict)

    def weave(self, data: Data) -> dict[str, Data]:
        self.nest(data, 0)
        for definition in (data, *self.children.values()):
            self.lock(definition["steps"], in_loop=False)
        return self.children

    def nest(self, data: Data, depth: int) -> None:
        rng = self.rng
        blocks = [data["steps"], *(b for step in every_step(data["steps"]) for b in blocks_of(step) if b)]
        for block in rng.sample(blocks, min(len(blocks), rng.choice((0, 1, 1, 2)))):
            made = self.child(depth)
            step = {"id": f"u{made}", "workflow": made, "inputs": _PASSED_ON}
            block.insert(rng.randint(block is data["steps"] and "output" in data, len(block)), step)

    def child(self, depth: int) -> str:
        rng, name = self.rng, f"w{self.number}c{len(self.children)}"
        maker = _Maker(rng, count=100 * (len(self.children) + 1))
        data: Data = {"name": name, "inputs": _INPUTS, "steps": maker.block([], DEPTH_MAX - 1, 1, 2)}
        if rng.random() < 0.3:
            data["timeout_secs"] = rng.choice((0.05, 0.5, 3, 9))
        if rng.random() < 0.3:
            data["output"] = {"n": "{{inputs.n}}", "all": output_of(data["steps"][0]["id"])}
        self.children[name] = data
        if depth < 1:
            self.nest(data, depth + 1)
        return name

    def lock(self, block: list[Data], *, in_loop: bool) -> None:
        rng = self.rng
        for step in block:
            if "tool" in step and rng.random() < 0.45:
                step["idempotency_key"] = rng.choice(
                    ("k", "k", "l", "n-{{inputs.n}}", "x-{{item}}" if in_loop else "k")
                )
                step["idempotency_scope"] = rng.choice(("workflow", "global", "global"))
                step["on_conflict"] = rng.choice(("wait", "wait", "wait", "fail"))
                if rng.random() < 0.4:
                    step["idempotency_ttl_secs"] = rng.choice((1, 3, 60))
            for inner in blocks_of(step):
                self.lock(inner, in_loop=in_loop or step.get("kind") == "foreach")


_INPUTS: Final[Data] = {
    "n": {"type": "integer"},
    "flag": {"type": "boolean"},
    "xs": {"type": "array"},
    "pad": {"type": "string"},
}
_PASSED_ON: Final[Data] = {name: "{{inputs." + name + "}}" for name in _INPUTS}
