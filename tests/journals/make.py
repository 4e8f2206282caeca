"""Writes the corpus of journals for the release that this tree is: `python -m tests.journals.make`.

Each file is one run as JSON lines: its definition, the large values that rows refer to, its rows as the store holds
them, and last the state that they fold to. Every run is the same whenever it is made: times and ids are fixed. A
folder that was released is never made again; later releases fold it and must come to the same states.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.engine.events import Supplied
from tests.engine.driver import Case, state_of

HERE = Path(__file__).parent

CHAIN = """
name: chain
labels: {team: blue}
steps:
  - {id: a, tool: t}
  - {id: b, tool: t, args: {a: "{{ a }}"}}
"""
RETRIED = """
name: retried
steps: [{id: a, tool: t, timeout_secs: 5, retry: {max_attempts: 3, initial_delay_ms: 100, jitter: 0.3}}]
"""
LOOP = """
name: loop
steps:
  - id: l
    kind: foreach
    items: $.inputs.xs
    concurrency: 2
    on_any_fail: FAILS
    collect: COLLECT
    steps: [{id: s, tool: t, args: {x: "{{ item }}"}}, {id: u, tool: t, args: {s: "{{ s }}"}}]
  - {id: after, tool: t, args: {l: "{{ l }}"}}
"""
RECOVERED = """
name: recovered
finally: [{id: f, tool: t, args: {e: "{{ error.kind }}"}}]
steps:
  - {id: skipped, tool: t, when: {gt: [1, 2]}}
  - {id: a, tool: t, compensate: {tool: u, args: {id: "{{ output.id }}"}}}
  - id: b
    tool: t
    on_error: {steps: [{id: h, tool: t, args: {e: "{{ error.message }}"}}]}
    finally: [{id: bf, tool: t}]
  - {id: c, tool: t, compensate: {tool: u}}
"""
SIDES = """
name: sides
steps:
  - id: p
    kind: parallel
    on_any_fail: FAILS
    branches:
      - [{id: a, tool: t}, {id: a2, tool: t}]
      - [{id: b, tool: t}]
      - [{id: w, kind: timer, delay_ms: 8000}]
  - {id: after, tool: t, args: {a: "{{ a }}", r: "{{ p.branch_results }}"}}
"""
NESTED = """
name: nested
steps:
  - id: outer
    kind: foreach
    items: $.inputs.rows
    as: row
    concurrency: 2
    steps:
      - id: par
        kind: parallel
        branches:
          - [{id: quick, tool: t, args: {n: "{{ row.name }}"}}]
          - - id: br
              kind: branch
              on: $.row.deep
              then:
                - {id: inner, kind: foreach, items: $.row.cells, steps: [{id: s, tool: t, args: {c: "{{ item }}"}}]}
"""
GRAPH = """
name: graph
start: work
nodes:
  work: {service: work, prep: {input_key: n}, post: {output_key: n}}
  again: {kind: choice, choice_cases: [{action: more, expr: {lt: [$shared.n, 3]}}]}
  each: {kind: foreach, service: each, prep: {input_key: $params.items}, post: {output_key: out}, parallel_mode: concurrent}
  inner: {kind: subflow, subflow: {start: x, nodes: {x: {service: x, post: {output_key: k}}}}, post: {output_key: sub}}
edges:
  - {from: work, to: again}
  - {from: again, action: more, to: work}
  - {from: again, to: each}
  - {from: each, action: error, to: inner}
"""


def loop(fails: str = "abort", collect: str = "outputs", xs: Any = (1, 2, 3), **options: Any) -> Case:
    case = Case(LOOP.replace("FAILS", fails).replace("COLLECT", collect), {"xs": list(xs)}, **options)
    case.start()
    return case


def sides(fails: str = "abort") -> Case:
    case = Case(SIDES.replace("FAILS", fails))
    case.start()
    return case


def started(definition: str, inputs: dict[str, Any] | None = None) -> Case:
    case = Case(definition, inputs)
    case.start()
    return case


# ------------------------------------------------------------------------------------------------------- the runs


def completed() -> Case:
    case = started(CHAIN)
    case.wait(12)
    case.succeed("a", {"n": 1, "list": [None, 2.5, "é"]})
    case.succeed("b", "done")
    return case


def failed() -> Case:
    case = started(CHAIN)
    case.fail("a", "quota", 'it said "no"')
    return case


def accepted() -> Case:
    case = Case(CHAIN)
    case.start(drive=False)
    return case


def accepted_then_begun() -> Case:
    case = accepted()
    case.wait(1_000)
    case.crash()
    return case


def retried() -> Case:
    case = started(RETRIED)
    case.fail("a", "transient")
    case.fire("retry", "a")
    case.succeed("a")
    return case


def backing_off() -> Case:
    case = started(RETRIED)
    case.fail("a")
    case.fire("retry", "a")
    case.fail("a")
    return case


def timed_out_and_overlapping() -> Case:
    case = started(RETRIED)
    case.wait(5_000)
    case.time_out("a")
    case.fire("grace", "a")
    case.fire("retry", "a")
    return case


def cancelled_with_answers() -> Case:
    case = sides()
    case.cancel("enough")
    case.cancel("enough, I said")
    case.fail("p[0].a", "cancelled")
    case.succeed("p[1].b")
    return case


def cancelling() -> Case:
    case = sides()
    case.cancel()
    return case


def cancelled_by_grace() -> Case:
    case = cancelling()
    case.fire("grace")
    return case


def past_its_deadline() -> Case:
    case = started("name: limited\ntimeout_secs: 60\n" + CHAIN.removeprefix("\nname: chain\n"))
    case.fire("deadline")
    case.fail("a", "cancelled")
    return case


def waiting() -> Case:
    case = started(
        "name: waiting\nsteps: [{id: v, kind: timer, delay_ms: 1000}, {id: w, kind: timer, until: 1893456000}]"
    )
    case.fire("delay", "v")
    return case


def loop_collected() -> Case:
    case = loop("continue")
    case.succeed("l[1].s", "second")
    case.fail("l[0].s", message="the first item is bad")
    case.succeed("l[1].u", "second again")
    case.succeed("l[2].s", {"$of": "not a reference", "$blob": "nor this"})
    case.succeed("l[2].u", None)
    case.succeed("after")
    return case


def loop_counted() -> Case:
    case = loop("continue", "none")
    for index in (0, 1, 2):
        case.succeed(f"l[{index}].s", index)
        case.succeed(f"l[{index}].u", index)
    return case


def loop_aborting() -> Case:
    case = loop()
    case.fail("l[0].s")
    return case


def loop_cut() -> Case:
    case = Case(
        "name: cut\nsteps: [{id: l, kind: foreach, items: $.inputs.n, steps: []}, {id: after, tool: t}]",
        {"n": [0] * 1_200},
        checks=False,
    )
    case.start()
    case.go_on()
    return case


def loop_cut_and_not_taken_up() -> Case:
    case = Case(
        "name: cut\nsteps: [{id: l, kind: foreach, items: $.inputs.n, collect: none, steps: []}]",
        {"n": [0] * 1_100},
        checks=False,
    )
    case.start()
    return case


def sides_aborted() -> Case:
    case = sides()
    case.fail("p[1].b", "transient")
    case.succeed("p[0].a")
    return case


def sides_continued() -> Case:
    case = sides("continue")
    case.succeed("p[0].a", "A")
    case.fail("p[1].b")
    case.fire("delay", "p[2].w")
    case.succeed("p[0].a2", "A2")
    return case


def nested() -> Case:
    rows = [
        {"name": "r0", "deep": True, "cells": ["a", "b"]},
        {"name": "r1", "deep": False},
        {"name": "r2", "deep": 1, "cells": 7},
    ]
    case = started(NESTED, {"rows": rows})
    case.succeed("outer[0].par[0].quick", "q0")
    case.succeed("outer[0].par[1].br.inner[0].s", "x")
    case.succeed("outer[1].par[0].quick", "q1")
    case.fail("outer[2].par[1].br.inner[0].s", message="deep down")
    return case


def lost_and_found() -> Case:
    case = sides()
    case.crash()
    case.succeed("p[0].a", "after a loss")
    return case


def suspected() -> Case:
    case = sides()
    case.crash()
    case.crash()
    case.turn("p[0].a")
    case.crash(alone="p[0].a")
    return case


def lost_for_good() -> Case:
    case = started("name: killer\nsteps: [{id: a, tool: t}]")
    case.crash()
    case.crash()
    for _ in range(2):
        case.turn("a")
        case.crash(alone="a")
        case.fire("suspect", "a")
    case.turn("a")
    case.crash(alone="a")
    return case


def at_most_once() -> Case:
    case = started("name: once\nsteps: [{id: a, tool: t, on_crash: fail}]")
    case.crash()
    return case


def given_back() -> Case:
    case = sides()
    case.release("p[0].a", "no_tool")
    case.release("p[1].b", "stopping")
    return case


def waits_for_a_worker() -> Case:
    case = started("name: asks\nsteps: [{id: a, service: s, timeout_secs: 30}, {id: b, service: s}]")
    case.release("a", "no_worker", waits=True)
    case.wait(1_000)
    case.apply(Supplied(["a"]))
    case.release("a", "no_worker", waits=True, lost=1)
    case.apply(Supplied(["a"]))
    case.succeed("a", 1)
    case.release("b", "no_worker", waits=True)
    return case


def undoing() -> Case:
    """It was cancelled: the final steps of a step have run, and the first of two calls is being undone."""
    case = started(RECOVERED)
    case.succeed("a", {"id": 1})
    case.fail("b", message="broken")
    case.succeed("h", 2)
    case.succeed("bf")
    case.cancel()
    case.succeed("c", 3)
    case.succeed("c.compensate")
    return case


def undone_to_its_end() -> Case:
    case = undoing()
    case.fail("a.compensate")
    case.succeed("f")
    return case


def looked_at_without_driving() -> Case:
    case = sides()
    case.crash(drive=False)
    return case


def interrupted() -> Case:
    case = started("name: fragile\non_restart: interrupt\nsteps: [{id: a, tool: t}]")
    case.crash()
    return case


def large_values() -> Case:
    case = started(CHAIN + "output: {all: '{{ a }}', text: 'b gave {{ b }}'}\n")
    case.succeed("a", {"text": "x" * 40_000})
    case.succeed("b", {"$blob": "looks like a reference"})
    return case


def odd_ids() -> Case:
    case = started(
        """
        name: odd
        steps:
          - {id: "a.b", tool: t}
          - {id: "x[1]", kind: foreach, items: $.inputs.xs, steps: [{id: "say \\"hi\\"", tool: t}]}
        """,
        {"xs": {"one": "item"}},
    )
    case.succeed('["a.b"]')
    return case


KEYED = """
name: keyed
steps:
  - {id: a, tool: t, idempotency_key: order-7, idempotency_scope: global}
  - {id: b, tool: t, args: {a: "{{ a }}"}, idempotency_key: own}
"""


def key_granted() -> Case:
    case = started(KEYED)
    case.grant("a")
    case.succeed("a", {"n": 1})
    case.grant("b")
    return case


def key_held_and_answered() -> Case:
    case = started(KEYED)
    case.hold("a")
    case.answer("a", {"n": 1})
    case.hold("b")
    return case


def graph_with_a_cycle() -> Case:
    case = started(GRAPH, {"items": [1, 2]})
    case.succeed("work", 1)
    case.signal("from outside", {"x": 1})
    case.succeed("work~2", "n" * 33_000)
    return case


def graph_to_its_end() -> Case:
    case = started(GRAPH, {"items": [1, 2]})
    case.succeed("work", 3)
    case.fail("each[1].call")
    case.succeed("each[0].call", "one")
    case.succeed("inner.x", {"deep": True})
    return case


WAITS = """
name: waits
steps:
  - {id: call, tool: t, pending_ttl_secs: 60, poll: {interval_ms: 1000, max_ms: 5000}}
  - {id: all, kind: wait_event, all: [left, right], correlation: "7"}
  - {id: gate, kind: approve, prompt: "May it go on?", quorum: {need: 2, of: [Ada, Bob]}, timeout_secs: 3600}
"""


def called_back() -> Case:
    case = started(WAITS)
    case.signal("left", 1, "7")
    case.pause("call", "T1", "http://127.0.0.1/T1")
    case.fire("poll", "call")
    case.call_back("call", {"n": 1})
    return case


def called_back_early() -> Case:
    case = started(WAITS)
    case.call_back("call", error="it broke")
    return case


def waited_to_the_end() -> Case:
    case = started(WAITS)
    case.pause("call")
    case.call_back("call", "late but good")
    case.signal("right", 2, "7")
    case.signal("left", 1, "7")
    case.signal("left", 3, "8")
    case.approve("gate", by="Ada")
    case.approve("gate", by="Bob", reason="fine", form={"x": 1})
    return case


def nobody_answered() -> Case:
    case = started(WAITS)
    case.pause("call", "T1", "http://127.0.0.1/T1")
    case.fire("expiry", "call")
    case.fire("expiry", "call")
    return case


RUNS: tuple[Callable[[], Case], ...] = (
    completed,
    failed,
    accepted,
    accepted_then_begun,
    retried,
    backing_off,
    timed_out_and_overlapping,
    cancelled_with_answers,
    cancelling,
    cancelled_by_grace,
    past_its_deadline,
    waiting,
    loop_collected,
    loop_counted,
    loop_aborting,
    loop_cut,
    loop_cut_and_not_taken_up,
    sides_aborted,
    sides_continued,
    nested,
    lost_and_found,
    suspected,
    lost_for_good,
    at_most_once,
    given_back,
    waits_for_a_worker,
    undoing,
    undone_to_its_end,
    looked_at_without_driving,
    interrupted,
    large_values,
    odd_ids,
    key_granted,
    key_held_and_answered,
    graph_with_a_cycle,
    graph_to_its_end,
    called_back,
    called_back_early,
    waited_to_the_end,
    nobody_answered,
)


def lines_of(case: Case) -> list[dict[str, Any]]:
    head = {"run": case.run.id, "version": case.run.version, "definition": case.spec.canonical().decode()}
    blobs = [{"sha256": sha256, "text": text.decode()} for sha256, text in sorted(case.blobs.items())]
    rows = [
        {"seq": seq, "epoch": epoch, "at": at, "kind": kind, "body": body}
        for seq, epoch, at, kind, body in case.rows
    ]
    return [head, *blobs, *rows, {"state": state_of(case.run)}]


def text_of(case: Case) -> str:
    return "".join(json.dumps(line, separators=(",", ":"), sort_keys=True) + "\n" for line in lines_of(case))


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for make in RUNS:
        (folder / f"{make.__name__}.jsonl").write_text(text_of(make()), "utf-8")


if __name__ == "__main__":
    write(HERE / __version__)
