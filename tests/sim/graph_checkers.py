"""What a graph promises, held against every row: a model of its own of variables, actions, visits and gathered results.

A graph is at one node at a time. What follows from a node's result (what is written, the action, where that leads) is
worked out here from the definition's data, and each row must say just that:

- a node begins only where the action before it led; visits are numbered 1, 2, 3 …
- a variable is written only by the post of a node that was left, and holds what that node gave
- results of calls side by side stand in their order; no more are open than max_parallel; fail_fast begins no more
- a failure takes the edge for it, else it is the graph's own, and then that of the graph around it
- what a graph gives is its variables, and what a node is given are its prep and params
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.engine.decisions import CompleteStep, FailStep, FinishRun, OpenScope, SetVar, Take
from holdfast.engine.events import Event, RunStarted, StepSucceeded, TimerFired
from holdfast.engine.state import Run
from holdfast.values import Error, decode
from tests.sim.checkers import ORDERS, Fan, Shadow, frame_of, hold, parts_of, within
from tests.sim.graphs import CALL
from tests.sim.workloads import Data, Info, Workload

_MEMBER: Final = re.compile(r"[^.\[\]]+|\[\d+\]")


@dataclass(slots=True)
class Place:
    """A graph that runs: where it is to go on, what it was given and has written, how often its nodes were met."""

    graph: Data
    params: Data
    next: str | None  # None while a node is at work, "" at the end
    vars: Data = field(default_factory=dict)
    visits: Counter[str] = field(default_factory=Counter)
    on_cycles: set[str] = field(default_factory=set)

    def edges(self, key: str) -> dict[str, str]:
        return {edge["action"]: edge.get("to", "") for edge in self.graph["edges"] if edge["from"] == key}


class GraphShadow(Shadow):
    def __init__(self, load: Workload, run_id: str, no: int = 1) -> None:
        super().__init__(load, run_id, no)
        self.places: dict[str, Place] = {}
        self.results: dict[str, dict[int, Any]] = {}  # of calls side by side, by node
        self.errors: dict[str, dict[int, Error]] = {}
        # the variables as they were when a node of the outermost graph was first met
        self.before: dict[str, Data] = {}
        self.given: Data = {}  # the variables that the run was started with
        self.written: dict[tuple[str, str], Any] = {}  # what this row must still write
        self.action_due: Take | None = None  # and say
        self.fails: str | None = None  # the graph that fails with this row

    # ------------------------------------------------------------------------------------------------- facts

    def fact(self, event: Event, epoch_before: int) -> bool:
        late = super().fact(event, epoch_before)
        if isinstance(event, RunStarted):
            first = event.first or self.load.data["start"]
            self.open_place("", self.load.data, self.load.inputs, first)
            self.places[""].vars = {name: decode(value) for name, value in event.vars.items()}
            self.given = dict(self.places[""].vars)
        elif isinstance(event, StepSucceeded) and not late and event.path in self.finished:
            frame, name, _ = parts_of(event.path)
            value = decode(event.output)
            if name == CALL and frame.endswith("]"):
                path, index = frame_of(frame)
                self.results[path][index or 0] = value
            else:
                self.left(event.path, value)
        return late

    def open_place(self, frame: str, graph: Data, params: Data, first: str) -> None:
        place = self.places[frame] = Place(graph, params, first)
        place.visits[first] = 1
        place.on_cycles = on_cycles(graph)

    def after(self) -> None:
        super().after()
        hold(not self.written, "a node writes what its post says", self.written)
        hold(self.action_due is None, "a node that is left says with which action", self.action_due)
        hold(self.fails is None, "a failure without an edge is that of its graph", self.fails)

    def compare(self, run: Run) -> None:
        super().compare(run)
        for frame, place in self.places.items():
            found = run.frames.get(frame)
            theirs = {} if found is None else {name: decode(value) for name, value in found.vars.items()}
            hold(theirs == place.vars, "the fold knows the variables", frame, theirs, place.vars)
        size = sum(len(value) for frame in run.frames.values() for value in frame.vars.values())
        hold(run.vars_bytes == size, "the fold knows how large the variables are", run.vars_bytes, size)
        open_now = {path for path, fan in self.fans.items() if not fan.info.is_single}
        kept = {frame for frame in run.frames if frame and parts_of(frame)[2] is not None}
        hold(
            all(frame_of(frame)[0] in open_now for frame in kept),
            "nothing is kept of calls whose results were gathered",
            kept,
        )
        inner = {frame for frame in run.frames if frame and parts_of(frame)[2] is None}
        hold(inner <= self.places.keys(), "nothing is kept of a graph that is over", inner, set(self.places))

    # ------------------------------------------------------------------------------------------- leaving a node

    def left(
        self, path: str, value: Any, failed: Error | None = None, errors: dict[int, Error] | None = None
    ) -> None:
        """A node gave a value: what it writes, its action, and where that leads. `failed`: calls side by side did."""
        frame, name, _ = parts_of(path)
        place, node = self.places[frame], self.node(path)
        writes = self.writes(node, value, errors or {})
        for key, text in writes.items():
            self.written[frame, key] = text
        place.vars |= writes
        action, edges = self.action(frame, node, value), place.edges(base(name))
        if failed is None:
            return self.leads(path, action, edges.get(action, edges.get("default", "")))
        for said in ("error", action, "default"):
            if said in edges:
                self.counts["edge after failed calls"] += 1
                return self.leads(path, said, edges[said])
        self.fails = frame

    def writes(self, node: Data, value: Any, errors: dict[int, Error]) -> Data:
        post = node.get("post", {})
        found = {to: at(value, members) for to, members in post.get("output_map", {}).items()}
        key = post.get("output_key")
        if key is not None:
            found[key] = value
            if errors and node["failure_strategy"] == "collect_errors":
                self.counts["errors kept"] += 1
                found[f"{key}_errors"] = [
                    {"index": index, "error": error.message} for index, error in sorted(errors.items())
                ]
        return found

    def action(self, frame: str, node: Data, value: Any) -> str:
        post = node.get("post", {})
        for case in node.get("choice_cases", ()):
            if self.holds(case["expr"], frame, node, value):
                self.counts["case holds"] += 1
                return str(case["action"])
        if post.get("action_static"):
            return str(post["action_static"])
        key = post.get("action_key")
        if key is not None:
            for said in (at(value, key), at(self.places[frame].vars, key)):
                if isinstance(said, str) and said:
                    return said
        return str(node.get("default_action") or "")

    def leads(self, path: str, action: str, to: str) -> None:
        frame = parts_of(path)[0]
        place = self.places[frame]
        if not frame:
            self.before.setdefault(to, dict(place.vars))
        visit = 0
        if to in place.on_cycles:
            place.visits[to] += 1
            visit = place.visits[to]
            self.counts["met again"] += visit > 1
        place.next = f"{to}~{visit}" if visit > 1 else to
        self.action_due = Take(path, action, to, visit)
        known = ("", "again", "alt", "default", "error", "other", "timeout")
        self.counts[f"action {(action or 'none') if action in known else 'that leads nowhere'}"] += 1

    def failed(self, path: str, error: Error) -> None:
        """A node failed, and gave nothing."""
        frame, name, _ = parts_of(path)
        edges = self.places[frame].edges(base(name))
        word = "timeout" if error.kind in ("timeout", "resume_timeout") else "error"
        for said in ("timeout", "error", "default")[word == "error" :]:
            if said in edges:
                self.counts[f"{said} edge after a failure"] += 1
                return self.leads(path, "" if said == "default" else said, edges[said])
        self.fails = frame

    # --------------------------------------------------------------------------------------------- decisions

    def set_var(self, order: SetVar) -> None:
        at_place = (order.frame, order.name)
        hold(at_place in self.written, "only the post of a node that is left writes variables", order)
        value = self.written.pop(at_place)
        hold(decode(order.value) == value, "a variable holds what its node gave", order, value)
        self.counts["variable written"] += 1

    def take(self, order: Take) -> None:
        hold(
            order == self.action_due,
            "an action leads where its edge does, and visits are 1, 2, 3 …",
            order,
            self.action_due,
        )
        self.action_due = None

    def may_begin(self, path: str) -> None:
        super().may_begin(path)
        if path in self.calls:
            return
        frame, name, _ = parts_of(path)
        if frame.endswith("]"):
            return hold(name == CALL, "a child of calls side by side is one call", path)
        place = self.places[frame]
        hold(place.next == name, "a node begins where an action led", path, place.next)
        place.next = None
        if not frame:  # the first node is met when it begins: a run may end before that
            self.before.setdefault(base(name), dict(place.vars))

    def predecessor(self, frame: str, name: str) -> str | None:
        return None

    def child_opens(self, path: str, fan: Fan, index: int) -> None:
        fresh = index not in fan.open and not fan.info.is_single
        drains = fan.info.data.get("failure_strategy") == "fail_fast" and fan.failed
        hold(not (fresh and drains), "fail_fast begins no more calls after a failure", path, index)
        super().child_opens(path, fan, index)

    def open_scope(self, order: OpenScope) -> None:
        path = order.path
        self.may_begin(path)
        hold(not self.ending, "nothing opens once the run is being stopped", path)
        info, node, frame = self.step(path), self.node(path), parts_of(path)[0]
        self.fans[path] = fan = Fan(info, order.count)
        given = None if b"$of" in bytes(order.items) else decode(order.items)
        if info.kind == "foreach":
            items = self.items(frame, node)
            hold(order.count == len(items), "as many calls as items", path, order.count, items)
            hold(
                given is None or given == items, "calls are for the items they were given", path, given, items
            )
            self.results[path], self.errors[path] = {}, {}
            self.counts[f"{node['kind']} opened"] += 1
            return
        params = self.params(frame, node)
        fan.next, fan.open = 1, {0}
        hold(order.is_nested, "a graph in a graph is a plan of its own", path)
        hold(given is None or given == params, "an inner graph is given its params", path, given, params)
        self.open_place(path, node["subflow"], params, node["subflow"]["start"])

    def complete(self, order: CompleteStep) -> None:
        path = order.path
        index = parts_of(path)[2]
        if index is not None:
            return self.child_closes(path, index, failed=False)
        info, value = self.step(path), decode(order.value)
        frame, node = parts_of(path)[0], self.node(path)
        fan = self.fans.pop(path, None)
        if fan is not None:
            expected = self.gathered(path, fan) if not fan.info.is_single else self.places[path].vars
            self.joined(path, fan)
        else:
            hold(info.kind in ("timer", "choice"), "a call completes by its answer alone", path)
            hold(path not in self.waits, "a timer completes when it is over", path)
            if self.event != TimerFired(path, "delay"):
                self.may_begin(path)
                hold(
                    info.kind == "choice" or self.delay_of(path) == 0,
                    "a timer waits as long as it says",
                    path,
                )
            self.counts["timer over"] += info.kind == "timer"
            expected = self.prep(frame, node)
        hold(value == expected, "a node gives what it is to give", path, value, expected)
        self.timers.pop(f"deadline {path}", None)
        self.finished[path] = bytes(order.value)
        self.left(path, value)

    def joined(self, path: str, fan: Fan) -> None:
        self.nothing_open(path)
        if fan.info.is_single:
            hold(self.places[path].next == "", "a graph is over when an action leads to its end", path)
            del self.places[path]
            self.counts["nested over"] += 1
            return
        self.all_closed(path, fan)
        fails = fan.failed and fan.info.data["failure_strategy"] != "ignore_errors"
        hold(not fails, "a node whose calls failed has failed", path, fan)
        self.counts["errors passed over"] += bool(fan.failed)
        self.counts["join"] += 1

    def all_closed(self, path: str, fan: Fan) -> None:
        hold(not fan.open, "calls side by side are over when none is open", path, fan)
        drained = fan.failed and fan.info.data["failure_strategy"] == "fail_fast"
        hold(drained or len(fan.closed) == fan.count, "all calls are made, unless one failed fast", path, fan)
        self.counts["failed fast"] += bool(drained and fan.next < fan.count)

    def gathered(self, path: str, fan: Fan) -> list[Any]:
        """The results in their order; with collect_errors null stands where there is none."""
        results = self.results[path]
        if fan.info.data["failure_strategy"] == "collect_errors":
            return [results.get(index) for index in range(fan.next)]
        return [results[index] for index in range(fan.next) if index not in fan.failed]

    def child_closes(self, path: str, index: int, *, failed: bool) -> None:
        fan_path = frame_of(path)[0]
        fan = self.fans.get(fan_path)
        hold(fan is not None and index in fan.open, "a call side by side ends once", path)
        assert fan is not None
        known = index in (self.errors if failed else self.results)[fan_path]
        hold(known, "a child is over when its call is", path, failed)
        fan.open.discard(index)
        fan.closed.add(index)
        if failed:
            fan.failed.add(index)
        self.nothing_open(path)

    def fail(self, order: FailStep) -> None:
        path = order.path
        frame, name, index = parts_of(path)
        if index is not None:
            return self.child_closes(path, index, failed=True)
        if path == self.fails:  # the graph within has failed
            self.fails = None
        fan = self.fans.get(path)
        gathers = fan is not None and not fan.info.is_single
        value = self.gathered(path, fan) if gathers and fan is not None else None
        if gathers and fan is not None:
            self.all_closed(path, fan)
            first = self.errors[path][min(fan.failed)]
            hold(first.kind == order.error.kind, "calls side by side fail as the first of them", path, first)
        super().fail(order)
        if name == CALL and frame.endswith("]"):
            fan_path, at_index = frame_of(frame)
            self.errors[fan_path][at_index or 0] = order.error
        elif gathers:
            self.left(path, value, order.error, self.errors[path])
        else:
            self.failed(path, order.error)

    def drop(self, target: str) -> None:
        super().drop(target)
        for frame in [one for one in self.places if one and (one == target or within(target, one))]:
            del self.places[frame]

    def finish(self, order: FinishRun) -> None:
        if self.fails == "" and order.status == "failed":
            self.fails = None
        super().finish(order)
        if order.status == "completed":
            output = decode(order.output)
            hold(output == self.places[""].vars, "a graph gives its variables", output, self.places[""].vars)

    def is_complete(self) -> bool:
        return self.places[""].next == ""

    def wants_more(self, fan: Fan) -> bool:
        drains = fan.failed and fan.info.data.get("failure_strategy") == "fail_fast"
        return super().wants_more(fan) and not drains

    # ------------------------------------------------------------------------------------------------ values

    def step(self, path: str, kind: str = "") -> Info:
        frame, name, _ = parts_of(path)
        if name == CALL and frame.endswith("]"):
            name = f"{base(parts_of(frame)[1])}.{CALL}"
        info = self.load.steps[base(name)]
        hold(not kind or info.kind == kind, "a decision fits the kind of its step", path, info.kind)
        return info

    def node(self, path: str) -> Data:
        return self.step(path).data

    def params(self, frame: str, node: Data) -> Data:
        given = self.places[frame].params
        own = {name: of_task(value, given) for name, value in node.get("params", {}).items()}
        return {**given, **own}

    def value(self, text: str, frame: str, node: Data, given: Any = None) -> Any:
        """What a reference of a node means; a path without a root is one in the variables."""
        root, _, rest = text.partition(".")
        if root == "$params":
            return at(self.params(frame, node), rest)
        if root == "$input":
            return at(given, rest)
        return at(self.places[frame].vars, rest if root == "$shared" else text)

    def prep(self, frame: str, node: Data) -> Any:
        prep = node.get("prep", {})
        if "input_map" not in prep:
            return self.value(prep["input_key"], frame, node) if "input_key" in prep else None
        return {
            to: said
            if not isinstance(said, str)
            else said[1:]
            if said[:1] == "'"
            else self.value(said, frame, node)
            for to, said in prep["input_map"].items()
        }

    def items(self, frame: str, node: Data) -> list[Any]:
        if node["kind"] == "parallel":
            found = node.get("parallel_services") or self.params(frame, node)["services"]
        else:
            found = self.prep(frame, node)
        hold(isinstance(found, list), "only a list is gone through", found)
        return list(found)

    def delay_of(self, path: str) -> int:
        frame, node = parts_of(path)[0], self.node(path)
        delay = node["params"]["delay_ms"]
        found = self.value(delay, frame, node) if isinstance(delay, str) else delay
        return round(float(found))

    def check_args(self, path: str, args: Data) -> None:
        frame, name, _ = parts_of(path)
        if name != CALL or not frame.endswith("]"):
            node = self.node(path)
            expected = {"input": self.prep(frame, node), "params": self.params(frame, node)}
        else:
            fan_path, index = frame_of(frame)
            outer, node = parts_of(fan_path)[0], self.node(fan_path)
            item = self.items(outer, node)[index or 0]
            is_foreach = node["kind"] == "foreach"
            expected = {
                "input": item if is_foreach else self.prep(outer, node),
                "params": self.params(outer, node),
            }
            if not is_foreach and "service" in args:
                expected["service"] = item
        hold(args == expected, "a node is given its prep and its params", path, args, expected)

    def unspread(self, path: str, args: Data) -> Data:
        """What a tool in the process was given by name, as input and params: as far as that can be told."""
        node = self.node(path)
        given = self.prep(parts_of(path)[0], node)
        inner = given if isinstance(given, dict) else {}
        params = self.params(parts_of(path)[0], node)
        hold(
            args == {**params, **inner}, "a tool is given params and input by name", path, args, params, inner
        )
        return {"input": given, "params": params}

    def holds(self, expr: Any, frame: str, node: Data, value: Any) -> bool:
        """Whether a condition of the workloads holds; they compare numbers with numbers, or anything for being equal."""

        def of(operand: Any) -> Any:
            if isinstance(operand, list):
                return [of(one) for one in operand]
            is_reference = isinstance(operand, str) and operand[:1] == "$"
            return self.value(operand, frame, node, value) if is_reference else operand

        if isinstance(expr, str):
            return of(expr) is True
        ((word, operands),) = expr.items()
        if word == "not":
            return not self.holds(operands, frame, node, value)
        if word in ("and", "or"):
            return (all if word == "and" else any)(self.holds(one, frame, node, value) for one in operands)
        if word == "exists":
            return of(operands) is not None
        left, right = of(operands)
        if word in ("eq", "ne"):
            return bool((left == right) == (word == "eq"))
        if word == "in":
            return left in right
        if left is None:
            return word in ("gt", "ge")  # as the text null, which comes after all digits
        return bool({"lt": left < right, "gt": left > right, "ge": left >= right}[word])

    def check_output(self, output: Any) -> None:
        hold(output == self.places[""].vars, "a run's output is its variables", output, self.places[""].vars)


def base(name: str) -> str:
    """A node's key without the number of its visit."""
    return name.partition("~")[0]


def at(value: Any, path: str) -> Any:
    """A member of a value, null where there is none."""
    for member in _MEMBER.findall(path):
        if member[0] == "[":
            index = int(member[1:-1])
            value = value[index] if isinstance(value, list) and index < len(value) else None
        else:
            value = value.get(member) if isinstance(value, dict) else None
    return value


def of_task(value: Any, params: Data) -> Any:
    """A param as it is written, with `$params` in it taken from what the graph was given."""
    if isinstance(value, list):
        return [of_task(one, params) for one in value]
    is_of_task = isinstance(value, str) and value.startswith("$params.")
    return at(params, value.removeprefix("$params.")) if is_of_task else value


def on_cycles(graph: Data) -> set[str]:
    """The nodes that can be met again, and those on the way from one of these to another."""
    arrows = {(edge["from"], edge["to"]) for edge in graph["edges"] if edge.get("to")}
    reach = {key: {target for source, target in arrows if source == key} for key in graph["nodes"]}
    for _ in graph["nodes"]:
        for further in reach.values():
            further |= {far for near in further for far in reach[near]}
    cyclic = {key for key in reach if key in reach[key]}
    return {
        key
        for key in reach
        if (key in cyclic or any(key in reach[one] for one in cyclic))
        and (key in cyclic or reach[key] & cyclic)
    }


def shadow_of(load: Workload, run_id: str, no: int = 1) -> Shadow:
    """The model that fits a definition's notation."""
    if load.model is not None:
        made: Shadow = load.model(load, run_id, no)
        return made
    return GraphShadow(load, run_id, no) if "nodes" in load.data else Shadow(load, run_id, no)


ORDERS.update({SetVar: "set_var", Take: "take"})
