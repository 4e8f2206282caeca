"""The kind `poll`: a call that is repeated until its result meets a condition, as a nested plan with a cycle.

    call ──► check ──done──► the result
      ▲        │
      └─ pause ┘  again: the pause doubles up to a maximum

Knows how the three nodes are connected. Does not know what is called, or the notation.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.plan import expr, templates
from holdfast.plan.expr import Source, truthy
from holdfast.plan.graph import END, Block, Call, Nested, Node, Post, Routes, Timer, Value
from holdfast.plan.view import View
from holdfast.spec.expr import compiled, parse_jsonpath
from holdfast.spec.work import Work, read
from holdfast.values import Millis, written

CALL: Final = "call"
CHECK: Final = "look"
PAUSE: Final = "pause"
ANSWER: Final = "answer"  # the variable that holds the latest result


def polling(
    name: str,
    call: Call,
    *,
    until: str,
    interval_ms: int,
    max_ms: int,
    routes: Routes,
    depth: int,
    timeout_ms: int | None,
    keep: int,
) -> Nested:
    """Build the node that calls until `until` is true of the result; its frame is at `depth`."""
    find = compiled(parse_jsonpath(until))
    latest = Source("vars", (ANSWER,), depth)

    def action(view: View, answer: Any) -> str:
        work = Work()
        try:
            hits = find(read(expr.walk(answer, ()), work), work)
        finally:
            view.worked += work.spent
        return "done" if truthy(hits[0] if len(hits) == 1 else hits) else "again"

    def due(view: View, now: Millis) -> Millis:
        return Millis(now + min(interval_ms << min(view.met(view.frames[depth], PAUSE) - 1, 40), max_ms))

    nodes: dict[str, Node] = {
        CALL: msgspec.structs.replace(call, name=CALL, routes=Routes(CHECK), post=_KEEPS, is_plain=False),
        CHECK: Value(
            CHECK,
            Routes(END),
            templates.render(latest, refers=False),
            post=Post(_nothing, action, {"done": END, "again": PAUSE}),
        ),
        PAUSE: Timer(PAUSE, Routes(CALL), due, lambda view, at: b"null", post=Post(_nothing, _no_action, {})),
    }
    return Nested(
        name=name,
        routes=routes,
        workflow=name,
        block=Block(nodes, CALL, frozenset(nodes)),
        inputs=_no_inputs,
        fill=dict,
        output=templates.render(latest, refers=False),
        timeout_ms=timeout_ms,
        keep=keep,
        what="poll",
        late="timeout",
    )


def _no_inputs(view: View) -> bytes:
    return b"{}"


def _nothing(view: View, value: Any, errors: Any) -> dict[str, bytes]:
    return {}


def _no_action(view: View, value: Any) -> str:
    return ""


_KEEPS: Final = Post(lambda view, value, errors: {ANSWER: written(expr.walk(value, ()))}, _no_action, {})
