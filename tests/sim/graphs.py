"""Random but valid graphs, by number: calls, choices, calls side by side, timers, graphs within graphs, and cycles.

As in workloads.py a definition is plain data, and what the checkers need to know of a node is taken from that data here.
Keys are unique within a definition, those of inner graphs included. Every cycle leads through a call whose result tells
how often it was met, so that it comes to an end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from holdfast.plan.compile import Resolved, compile_definition
from holdfast.spec.flow import FlowSpec
from tests.sim.workloads import TOOLS, Data, Info, Workload

NODES_MAX: Final = 9
DEPTH_MAX: Final = 2
ROUNDS: Final = 3  # how often a cycle is gone through
CALL: Final = "call"  # the step of a child of a fan-out
NO_LIMIT: Final = 10_000


@lru_cache(maxsize=4096)
def graph_load(number: int) -> Workload:
    """The graph of that number, with params that fit it: always the same."""
    rng = random.Random(f"graph {number}")
    data = _Maker(rng).definition(number)
    spec = FlowSpec.from_data(data)
    spec.validate()
    steps: dict[str, Info] = {}
    _describe(data, steps)
    inputs = {
        "n": rng.randrange(100),
        "flag": rng.random() < 0.5,
        "xs": [rng.randrange(1000) for _ in range(rng.choice((0, 1, 2, 3, 4, 6)))],
        "pad": "p" * rng.choice((0, 0, 1500)),
    }
    return Workload(number, data, spec, compile_definition(spec), inputs, steps, Resolved(spec, {}))


def _describe(graph: Data, found: dict[str, Info]) -> None:
    for key, node in graph["nodes"].items():
        retries, wait_ms = node.get("max_retries", 0), node.get("wait_ms", 0)
        policy = {
            "max_attempts": retries + 1,
            "backoff": "fixed",
            "initial_delay_ms": wait_ms,
            "max_delay_ms": wait_ms,
        }
        retry = policy if retries else None
        if node["kind"] in ("foreach", "parallel"):
            side_by_side = node.get("parallel_mode") == "concurrent"
            limit = (node.get("max_parallel") or NO_LIMIT) if side_by_side else 1
            data = {**node, "concurrency": limit, "on_any_fail": "continue"}
            found[key] = Info(key, "foreach", data)
            found[f"{key}.{CALL}"] = Info(key, "tool", node, retry)
        elif node["kind"] == "subflow":
            limit_ms = node.get("timeout_ms")
            child = {"timeout_secs": limit_ms / 1000} if limit_ms else {}
            found[key] = Info(key, "workflow", node, child=child)
            _describe(node["subflow"], found)
        elif node["kind"] in ("local", "executor"):
            limit_ms = node.get("timeout_ms") if node["kind"] == "local" else None
            found[key] = Info(key, "tool", node, retry, limit_ms or None)
        else:
            found[key] = Info(key, node["kind"], node)


@dataclass
class _Maker:
    rng: random.Random
    count: int = 0

    def definition(self, number: int) -> Data:
        rng = self.rng
        data: Data = {"name": f"g{number}", **self.graph(0, 1, rng.choice((2, 4, 6)))}
        if rng.random() < 0.1:
            data["timeout_secs"] = rng.choice((0.05, 0.5, 3, 9, 40))
        if rng.random() < 0.1:
            data["on_restart"] = "interrupt"
        return data

    def graph(self, depth: int, low: int, high: int) -> Data:
        nodes: dict[str, Data] = {}
        edges: list[Data] = []
        for _ in range(self.rng.randint(low, high)):
            if nodes and self.count >= NODES_MAX:
                break
            self.count += 1
            key = f"n{self.count}"
            nodes[key] = self.node(key, depth, nodes, edges)
        self.join(nodes, edges)
        return {"start": next(iter(nodes)), "nodes": nodes, "edges": edges}

    def node(self, key: str, depth: int, nodes: dict[str, Data], edges: list[Data]) -> Data:
        rng = self.rng
        kinds = ["call", "call", "call", "choice", "timer", "foreach", "foreach", "parallel", "parallel"]
        if depth < DEPTH_MAX and self.count < NODES_MAX:
            kinds += ["subflow", "subflow"]
        kind = rng.choice(kinds)
        node: Data = getattr(self, kind)(key, depth, nodes, edges)
        if rng.random() < 0.6:
            node["prep"] = self.prep()
        if kind == "foreach":
            node["prep"] = {"input_key": rng.choice(("$params.xs", "$params.xs", "a.xs", "$shared.b", "c"))}
        if rng.random() < 0.3:
            node["params"] = {**node.get("params", {}), "p": rng.choice((1, "$params.n", ["$params.flag"]))}
        if kind == "subflow" and rng.random() < 0.5:
            node["params"] = {**node.get("params", {}), "n": 3}
        return node

    def prep(self) -> Data:
        rng = self.rng
        one = rng.choice(
            ("$params.n", "$params.p", "a", "a.v", "$shared.b.xs[0]", "c.none", "$params", "$input")
        )
        if rng.random() < 0.5:
            return {"input_key": one}
        return {"input_map": {"one": one, "text": "'a.v", "fixed": 7, "flag": "$params.flag"}}

    def post(self) -> Data:
        rng = self.rng
        post: Data = {}
        if rng.random() < 0.8:
            post["output_key"] = rng.choice("abc")
        if rng.random() < 0.3:
            post["output_map"] = {"a": "xs", "m": "v", "o": "none.x"}
        return post

    # ---------------------------------------------------------------------------------------------------- kinds

    def call(self, key: str, depth: int, nodes: dict[str, Data], edges: list[Data]) -> Data:
        rng = self.rng
        kind = rng.choice(("local", "executor"))
        service = rng.choice(TOOLS[:3] if kind == "executor" or rng.random() < 0.9 else TOOLS)
        node: Data = {"kind": kind, "service": service, "post": self.post()}
        node |= self.retries()
        if rng.random() < (0.2 if kind == "local" else 0.6):
            node["timeout_ms"] = rng.choice(
                (20, 200, 4000, 0) if kind == "local" else (200, 4000, 50_000, 0, 0)
            )
        if rng.random() < 0.5:  # a cycle that the call's own result ends
            node["post"]["action_key"] = "action"
            back = rng.choice((key, *nodes))
            edges.append({"from": key, "action": "again", "to": back})
        elif rng.random() < 0.4:
            node["post"]["action_key"] = rng.choice(("route", "b.route", "m"))
        elif rng.random() < 0.3:
            node["post"]["action_static"] = "alt"
        elif rng.random() < 0.3:
            node["default_action"] = "alt"
        return node

    def choice(self, key: str, depth: int, nodes: dict[str, Data], edges: list[Data]) -> Data:
        rng = self.rng
        cases: list[Data] = []
        counts = [name for name, node in nodes.items() if node["kind"] in ("local", "executor")]
        if counts and rng.random() < 0.5:  # a cycle that a count in shared state ends
            counted = rng.choice(counts)
            nodes[counted]["post"].setdefault("output_map", {})[f"met_{counted}"] = "n"
            cases.append({"action": "again", "expr": {"lt": [f"$shared.met_{counted}", ROUNDS]}})
            edges.append({"from": key, "action": "again", "to": counted})
        actions = rng.sample(("alt", "other"), rng.choice((0, 1, 2)) if cases else rng.choice((1, 2)))
        cases += [{"action": action, "expr": self.condition()} for action in actions]
        node: Data = {"kind": "choice", "choice_cases": cases}
        if rng.random() < 0.3:
            node["post"] = self.post()
        if rng.random() < 0.3:
            node["default_action"] = "alt"
        return node

    def condition(self) -> Any:
        rng = self.rng
        one: Any = rng.choice((
            {"eq": ["$params.flag", True]}, "$params.flag", {"ge": ["$params.n", 50]}, {"exists": "$shared.a"},
            {"gt": ["$shared.a.n", 1]}, {"in": ["$params.n", [1, 2, 3, "$params.n"]]}, {"eq": ["$input", 7]},
        ))  # fmt: skip
        more = rng.random()
        if more < 0.2:
            return {"not": one}
        return {rng.choice(("and", "or")): [one, {"ne": ["$params.n", 3]}]} if more < 0.5 else one

    def timer(self, key: str, depth: int, nodes: dict[str, Data], edges: list[Data]) -> Data:
        delay = self.rng.choice((0, 1, 20, 500, 3000, 40_000, "$params.n", "$shared.a.n"))
        return {"kind": "timer", "params": {"delay_ms": delay}, "post": self.post()}

    def foreach(self, key: str, depth: int, nodes: dict[str, Data], edges: list[Data]) -> Data:
        return {"kind": "foreach", "service": self.rng.choice(TOOLS[:3]), **self.group()}

    def parallel(self, key: str, depth: int, nodes: dict[str, Data], edges: list[Data]) -> Data:
        rng = self.rng
        services = [rng.choice(TOOLS[:3]) for _ in range(rng.choice((1, 2, 3, 4)))]
        node: Data = {"kind": "parallel", **self.group()}
        if rng.random() < 0.7:
            return node | {"parallel_services": services}
        return node | {"params": {"services": rng.choice((services, "$params.xs"))}}

    def group(self) -> Data:
        rng = self.rng
        node: Data = {"failure_strategy": rng.choice(("fail_fast", "collect_errors", "ignore_errors"))}
        if rng.random() < 0.7:
            node |= {"parallel_mode": "concurrent", "max_parallel": rng.choice((0, 1, 2, 2, 3))}
        if rng.random() < 0.4:
            node["timeout_ms"] = 0
        if rng.random() < 0.3:
            node["default_action"] = rng.choice(("alt", "other"))
        return node | self.retries() | {"post": self.post()}

    def retries(self) -> Data:
        rng = self.rng
        if rng.random() < 0.6:
            return {}
        return {"max_retries": rng.choice((1, 2, 3)), "wait_ms": rng.choice((0, 5, 900, 4000))}

    def subflow(self, key: str, depth: int, nodes: dict[str, Data], edges: list[Data]) -> Data:
        node: Data = {"kind": "subflow", "subflow": self.graph(depth + 1, 1, 3), "post": self.post()}
        if self.rng.random() < 0.3:
            node["timeout_ms"] = self.rng.choice((50, 500, 3000, 9000, 0))
        return node

    # ---------------------------------------------------------------------------------------------------- edges

    def join(self, nodes: dict[str, Data], edges: list[Data]) -> None:
        """Lead each node on to a later one, or to the end, by some of the actions that it can have."""
        rng, keys = self.rng, list(nodes)
        for at, key in enumerate(keys):
            later = keys[at + 1 :]
            for action, chance in (
                ("default", 0.85),
                ("alt", 0.4),
                ("other", 0.3),
                ("error", 0.35),
                ("timeout", 0.2),
            ):
                if rng.random() >= chance:
                    continue
                edge = {"from": key, "action": action}
                if later and rng.random() < 0.85:
                    edge["to"] = later[0] if action == "default" and rng.random() < 0.7 else rng.choice(later)
                edges.append(edge)


def result_of(rng: random.Random, path: str, number: int) -> Any:
    """What a call gives: among it how often its node was met, and actions that may lead on."""
    tail = path.rpartition(".")[2]
    met = int(tail.partition("~")[2] or 1)
    value = {
        "v": f"{path}@{number}",
        "n": met,
        "xs": [rng.randrange(50) for _ in range(rng.randrange(4))],
        "action": rng.choice(("again", "again", "alt", "", None))
        if met <= ROUNDS
        else rng.choice(("alt", "")),
        "route": rng.choice(("alt", "other", "nowhere", None)),
        "pad": "x" * rng.choice((0, 0, 0, 500)),
    }
    return value if rng.random() < 0.93 else value["xs"]
