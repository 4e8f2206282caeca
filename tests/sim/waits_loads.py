"""Random but valid definitions in which much is waited for, by number: later answers, polls, approvals, signals, timers.

Steps in most of them, alone, side by side, in loops and in workflows nested in them; graphs with conditions in the rest.
As in workloads.py a definition is plain data, and ids are unique within it.
"""

from __future__ import annotations

import random
from functools import lru_cache
from itertools import pairwise
from typing import Final

from holdfast.plan.compile import Resolved, compile_definition
from holdfast.spec.flow import FlowSpec
from tests.sim.workloads import TOOLS, Data, Info, Workload, every_step, resolved

NAMES: Final = ("go", "stop", "more")  # of signals
PEOPLE: Final = ("Ada", "Bob", "Eve")
BOSS: Final = "Max"
TOPICS: Final = ("north", "south")  # what signals are about
SHORT_SECS: Final = (0.3, 2, 20)
LONG_SECS: Final = (3_600, 50_000)


@lru_cache(maxsize=4096)
def waits_load(number: int) -> Workload:
    """The definition of that number, with inputs that fit it: always the same."""
    rng = random.Random(f"waits {number}")
    inputs = {"xs": [rng.randrange(100) for _ in range(rng.choice((1, 2, 3)))], "about": rng.choice(TOPICS)}
    if rng.random() < 0.25:
        data = _graph(rng, number)
        spec = FlowSpec.from_data(data)
        spec.validate()
        steps = {key: _info(key, node) for key, node in data["nodes"].items()}
        return Workload(number, data, spec, compile_definition(spec), inputs, steps, Resolved(spec, {}))
    maker = _Maker(rng, number)
    data = maker.definition()
    whole = resolved(data, maker.children)
    blocks = [data, *maker.children.values()]
    steps = {step["id"]: _info(step["id"], step) for one in blocks for step in every_step(one["steps"])}
    return Workload(
        number, data, whole.spec, compile_definition(whole.spec, whole.uses), inputs, steps, whole
    )


def _info(name: str, data: Data) -> Info:
    kind = data.get("kind", "workflow" if "workflow" in data else "tool")
    return Info(name, "tool" if kind == "local" else kind, data, data.get("retry"))


class _Maker:
    def __init__(self, rng: random.Random, number: int) -> None:
        self.rng, self.number = rng, number
        self.count = 0
        self.children: dict[str, Data] = {}

    def definition(self) -> Data:
        rng = self.rng
        steps = [self.step(0) for _ in range(rng.choice((1, 2, 2, 3)))]
        data: Data = {"name": f"waits{self.number}", "steps": steps}
        data["inputs"] = {"xs": {"type": "array"}, "about": {"type": "string"}}
        if rng.random() < 0.12:
            data["timeout_secs"] = rng.choice((5, 100, 7_200))
        if rng.random() < 0.05:
            data["on_restart"] = "interrupt"
        return data

    def step(self, depth: int) -> Data:
        self.count += 1
        kinds = ["call"] * 7 + ["signal", "signal", "approve", "approve", "timer", "poll"]
        if depth < 2:
            kinds += ["parallel", "parallel", "foreach", "nested"]
        made: Data = getattr(self, self.rng.choice(kinds))(f"s{self.count}", depth)
        return made

    def call(self, name: str, depth: int) -> Data:
        rng = self.rng
        step: Data = {"id": name, "tool": rng.choice(TOOLS[:2] if rng.random() < 0.9 else TOOLS)}
        if rng.random() < 0.6:
            step["pending_ttl_secs"] = rng.choice((*SHORT_SECS, *LONG_SECS))
        if rng.random() < 0.4:
            step["poll"] = {"interval_ms": rng.choice((100, 2_000)), "max_ms": rng.choice((4_000, 600_000))}
        if rng.random() < 0.6:
            step["supports_async_callback"] = True
        if rng.random() < 0.5:
            step["retry"] = {
                "max_attempts": rng.choice((2, 3)), "initial_delay_ms": rng.choice((0, 800)), "max_delay_ms": 9_000,
            }  # fmt: skip
        if rng.random() < 0.1:
            step["timeout_secs"] = rng.choice((0.2, 10))
        if rng.random() < 0.1:
            step["on_crash"] = "fail"
        return step

    def signal(self, name: str, depth: int) -> Data:
        rng = self.rng
        wanted: Data = rng.choice(
            ({"signal_key": rng.choice(NAMES)}, {"any": ["go", "stop"]}, {"all": ["go", "more"]})
        )
        about = {"correlation": "{{ inputs.about }}"} if not depth and rng.random() < 0.3 else {}
        return {"id": name, "kind": "wait_event", **wanted, **about, **self.limit()}

    def approve(self, name: str, depth: int) -> Data:
        rng = self.rng
        gate: Data = {"id": name, "kind": "approve", "prompt": "?", **self.limit()}
        if rng.random() < 0.6:
            gate["quorum"] = {"need": rng.choice((1, 2, 2)), "of": list(PEOPLE)}
            if rng.random() < 0.6:
                gate["escalate"] = {"after_secs": rng.choice((*SHORT_SECS, 3_600)), "to": BOSS}
        return gate

    def timer(self, name: str, depth: int) -> Data:
        return {"id": name, "kind": "timer", "delay_ms": self.rng.choice((1, 700, 6_000, 60_000, 9_000_000))}

    def poll(self, name: str, depth: int) -> Data:
        rng = self.rng
        often = {"interval_ms": rng.choice((50, 3_000)), "max_ms": 8_000}
        return {"id": name, "kind": "poll", "tool": "t2", "until": "$.done", **often, **self.limit()}

    def parallel(self, name: str, depth: int) -> Data:
        rng = self.rng
        branches = [
            [self.step(depth + 1) for _ in range(rng.choice((1, 1, 2)))] for _ in range(rng.choice((2, 3)))
        ]
        return {"id": name, "kind": "parallel", "on_any_fail": self.on_fail(), "branches": branches}

    def foreach(self, name: str, depth: int) -> Data:
        return {
            "id": name, "kind": "foreach", "items": "$.inputs.xs", "concurrency": self.rng.choice((1, 2)),
            "on_any_fail": self.on_fail(), "steps": [self.step(2)],
        }  # fmt: skip

    def nested(self, name: str, depth: int) -> Data:
        child = f"{name}of{self.number}"
        self.children[child] = {"name": child, "steps": [self.step(2), self.step(2)]}
        return {"id": name, "workflow": child}

    def on_fail(self) -> str:
        return self.rng.choice(("abort", "continue", "continue"))

    def limit(self) -> Data:
        rng = self.rng
        return {"timeout_secs": rng.choice((*SHORT_SECS, *LONG_SECS))} if rng.random() < 0.5 else {}


def _graph(rng: random.Random, number: int) -> Data:
    """A line of nodes, some within a graph of their own; a time-out leads on where an edge says so."""

    def limit() -> Data:
        return {"timeout_ms": rng.choice((400, 20_000, 3_600_000))} if rng.random() < 0.5 else {}

    def call(key: str) -> Data:
        return {"kind": "local", "service": rng.choice(TOOLS[:2]), "post": {"output_key": key}}

    inner: Data = {
        "start": "iw",
        "nodes": {"iw": {"kind": "wait_event", "params": {"signal_key": "$shared.more"}}, "ic": call("ic")},
        "edges": [{"from": "iw", "action": "default", "to": "ic"}],
    }
    nodes: dict[str, Data] = {
        "a": call("a") | {"max_retries": rng.choice((0, 1)), "wait_ms": 500},
        "w": {"kind": "wait_event", "params": {"signal_key": "$shared.go"}, **limit()},
        "g": {"kind": "approval", "params": {"approval_key": "$shared.ok"}, **limit()},
        "t": {"kind": "timer", "params": {"delay_ms": rng.choice((5, 3_000, 5_000_000))}},
        "s": {"kind": "subflow", "subflow": inner},
        "z": call("z"),
    }
    keys = rng.sample(sorted(nodes), rng.choice((2, 3, 4)))
    edges = [
        {"from": one, "action": action, "to": to}
        for one, to in pairwise(keys)
        for action in ("default", *(("timeout",) if rng.random() < 0.6 else ()), "error")
    ]
    chosen = {key: nodes[key] for key in keys}
    return {"name": f"waits{number}", "start": keys[0], "nodes": chosen, "edges": edges}
