"""The workflows that crash tests run, and what each must give whatever happens to its process."""

from __future__ import annotations

from typing import Any

# Every kind of step, a retry, a sync tool: what a kill can fall into.
EVERY_KIND = """
name: every-kind
inputs:
  n: {type: integer}
  items: {type: array}
  ms: {type: integer, default: 0}
steps:
  - id: first
    tool: add
    args: {a: "{{inputs.n}}", b: 1, ms: "{{inputs.ms}}"}
  - id: loop
    kind: foreach
    items: $.inputs.items
    as: it
    concurrency: 2
    steps:
      - {id: s, tool: add, args: {a: "{{it}}", b: "{{steps.first.output}}", ms: "{{inputs.ms}}"}}
      - {id: t, tool: add, args: {a: "{{steps.s.output}}", b: 100}}
  - id: par
    kind: parallel
    branches:
      - [{id: p, tool: sync_add, args: {a: "{{inputs.n}}", b: 2, ms: "{{inputs.ms}}"}}]
      - [{id: q, tool: add, args: {a: "{{inputs.n}}", b: 3, ms: "{{inputs.ms}}"}}]
  - id: way
    kind: branch
    on: $.inputs.items
    then: [{id: yes, tool: add, args: {a: "{{inputs.n}}", b: 4}}]
    else: [{id: no, tool: add, args: {a: "{{inputs.n}}", b: 5}}]
  - id: pause
    kind: timer
    delay_ms: 15
  - id: again
    tool: fails_first
    args: {value: "{{inputs.n}}"}
    retry: {max_attempts: 3, backoff: fixed, initial_delay_ms: 5, max_delay_ms: 5}
output:
  n: "{{inputs.n}}"
  loop: "{{steps.loop.output}}"
  p: "{{steps.p.output}}"
  q: "{{steps.q.output}}"
  way: "{{steps.way.output.taken}}"
  yes: "{{steps.yes.output}}"
  no: "{{steps.no.output}}"
  again: "{{steps.again.output}}"
"""


def every_kind(n: int, *, items: int = 3, ms: int = 0) -> tuple[int, str, dict[str, Any]]:
    return n, EVERY_KIND, {"n": n, "items": list(range(items)), "ms": ms}


# Waits long enough to be parked: between its two steps the run is a row that nobody owns.
PARKED = """
name: parked
inputs: {n: {type: integer}, hours: {type: number}}
steps:
  - {id: before, tool: add, args: {a: "{{inputs.n}}", b: 1}}
  - {id: sleep, kind: timer, delay_ms: 10000}
  - {id: after, tool: add, args: {a: "{{steps.before.output}}", b: 1}}
output: {n: "{{inputs.n}}", after: "{{steps.after.output}}"}
"""


def parked(n: int) -> tuple[int, str, dict[str, Any]]:
    return n, PARKED, {"n": n, "hours": 1}


# One step after the other, each long enough to be open when its process dies.
CHAIN = """
name: chain
inputs: {n: {type: integer}, ms: {type: integer}}
steps:
  - {id: a, tool: add, args: {a: "{{inputs.n}}", b: 1, ms: "{{inputs.ms}}"}}
  - {id: b, tool: add, args: {a: "{{steps.a.output}}", b: 1, ms: "{{inputs.ms}}"}}
  - {id: c, tool: sync_add, args: {a: "{{steps.b.output}}", b: 1, ms: "{{inputs.ms}}"}}
  - {id: d, tool: add, args: {a: "{{steps.c.output}}", b: 1, ms: "{{inputs.ms}}"}}
output: {n: "{{inputs.n}}", d: "{{steps.d.output}}"}
"""


def chain(n: int, *, ms: int = 10) -> tuple[int, str, dict[str, Any]]:
    return n, CHAIN, {"n": n, "ms": ms}


# Outputs that outgrow a row and a journal that outgrows a snapshot.
LARGE = """
name: large
inputs: {n: {type: integer}, numbers: {type: array}, size: {type: integer}}
steps:
  - id: loop
    kind: foreach
    items: $.inputs.numbers
    as: it
    concurrency: 10
    steps:
      - {id: s, tool: pad, args: {value: "{{it}}", size: "{{inputs.size}}"}}
  - {id: last, tool: add, args: {a: "{{inputs.n}}", b: 1}}
output: {n: "{{inputs.n}}", loop: "{{steps.loop.output}}"}
"""


def large(n: int, *, count: int = 200, size: int = 15_000) -> tuple[int, str, dict[str, Any]]:
    return n, LARGE, {"n": n, "numbers": list(range(count)), "size": size}


def right_output(inputs: dict[str, Any]) -> Any:
    """What a run with these inputs must give, by arithmetic of our own."""
    n = inputs["n"]
    if "hours" in inputs:
        return {"n": n, "after": n + 2}
    if "numbers" in inputs:
        texts = {value: "x" * (inputs["size"] * (4 if value % 5 == 0 else 1)) for value in inputs["numbers"]}
        done = [{"s": {"value": value, "text": text}} for value, text in texts.items()]
        return {"n": n, "loop": {"iterations": done}}
    if "items" not in inputs:
        return {"n": n, "d": n + 4}
    items = inputs["items"]
    return {
        "n": n,
        "loop": {"iterations": [{"s": item + n + 1, "t": item + n + 101} for item in items]},
        "p": n + 2,
        "q": n + 3,
        "way": "then" if items else "else",
        "yes": n + 4 if items else None,
        "no": None if items else n + 5,
        "again": n,
    }
