"""The workflows of the campaign of runs that wait, who must answer each, and what it must give whatever happens to its
server. Knows nothing of servers, and of those outside only what they say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.crash.outside import PEOPLE, SECRET_ENV

ITEMS, SIGNALS = 3, 3
SAME_KEY = 3  # runs that have one idempotency key
AGAIN = {"max_attempts": 20, "backoff": "fixed", "initial_delay_ms": 10}
LATER = {"supports_async_callback": True, "result": {"envelope": True, "select": "$.data"}}

Spec = dict[str, Any]
View = dict[str, Any]


class Kind(NamedTuple):
    spec: Callable[[str], Spec]  # of a name and the address of the receiver
    gates: dict[str, int]  # how many must approve, by path
    signals: int
    wrong: Callable[[View], Iterator[str]]  # what is not as it must be
    is_cancelled: bool = False  # somebody may cancel it


def _ship(step: str) -> dict[str, Any]:
    return {
        "id": step,
        "service": "ship",
        "input": "{{inputs.name}}",
        "params": {"step": step},
        "retry": AGAIN,
    }


# --------------------------------------------------------------------------- every kind of wait, side by side and nested


def whole(receiver: str) -> Spec:
    """Each wait is followed by something that is done."""
    signals = [{"id": f"paid{number}", "kind": "wait_event", "signal_key": "go"} for number in range(SIGNALS)]
    return {
        "name": "whole",
        "inputs": {
            "name": {"type": "string"}, "items": {"type": "array"}, "job": {"type": "string"},
            "ms": {"type": "integer"},
        },
        "steps": [
            {"id": "pages", "kind": "foreach", "items": "$.inputs.items", "as": "it", "concurrency": ITEMS, "steps": [
                {"id": "page", "service": "render", "input": "{{it}}", "retry": AGAIN, **LATER},
                {"id": "bound", "tool": "note", "args": {"value": "{{steps.page.output}}"}},
            ]},
            {"id": "all", "kind": "parallel", "branches": [
                [{"id": "gate", "kind": "approve", "prompt": "Print {{inputs.name}}?"},
                 {"id": "printed", "tool": "note", "args": {"value": "{{steps.gate.output.by}}"}}],
                [{"id": "board", "kind": "approve", "quorum": {"need": 2, "of": list(PEOPLE)}, "prompt": "Pay?"},
                 _ship("shipped")],
                [*signals,
                 {"id": "packed", "service": "pack", "input": "{{inputs.name}}"}],
                [{"id": "scanned", "service": "scan", "input": "{{inputs.name}}:scan", "retry": AGAIN, **LATER,
                  "poll": {"interval_ms": 30, "max_ms": 200}},
                 {"id": "seen", "tool": "note", "args": {"value": "{{steps.scanned.output}}"}}],
                [{"id": "watched", "kind": "poll", "tool": "http_request", "args": {"url": "{{inputs.job}}"},
                  "until": "$.body.done", "interval_ms": 20, "max_ms": 200}],
                [{"id": "slept", "kind": "timer", "delay_ms": "{{inputs.ms}}"},
                 {"id": "woken", "tool": "note", "args": {"value": "{{inputs.ms}}"}}],
            ]},
            _ship("last"),
        ],
        "output": {
            "pages": "{{steps.pages.output}}", "by": "{{steps.printed.output}}",
            "paid": [f"{{{{steps.paid{number}.output}}}}" for number in range(SIGNALS)],
            "shipped": "{{steps.shipped.output}}", "packed": "{{steps.packed.output}}", "seen": "{{steps.seen.output}}",
            "watched": "{{steps.watched.output.body.name}}", "woken": "{{steps.woken.output}}",
            "last": "{{steps.last.output}}",
        },
        "on_complete": [_told(receiver)],
    }  # fmt: skip


def _wrong_whole(view: View) -> Iterator[str]:
    """By arithmetic of our own; where several might have been first, one of them was."""
    if view["status"] != "completed":
        yield f"it is {view['status']}: {view['error']}"
        return
    name, output = view["inputs"]["name"], dict(view["output"])
    pages, by, seen = output.pop("pages")["iterations"], output.pop("by"), output.pop("seen")
    wanted = {
        "paid": list(range(1, SIGNALS + 1)), "shipped": f"shipped {name}", "packed": f"packed {name}",
        "watched": name, "woken": view["inputs"]["ms"], "last": f"shipped {name}",
    }  # fmt: skip
    if output != wanted:
        yield f"it gave {output}, right is {wanted}"
    if by not in PEOPLE or not re.fullmatch(rf"{name}:scan\.\d+!", seen):
        yield f"it was approved by {by} and saw {seen}"
    for item, page in zip(view["inputs"]["items"], pages, strict=True):
        if page["page"] != page["bound"] or not re.fullmatch(rf"{item}\.\d+#\d", page["page"]):
            yield f"it gave {page} for {item}"


# --------------------------------------------------------------- an answer, the end of its time and a cancel, all at once


def race(receiver: str) -> Spec:
    call = {"id": "page", "service": "render", "input": "{{inputs.name}}", **LATER, "pending_ttl_secs": 0.5}
    return {
        "name": "race",
        "inputs": {"name": {"type": "string"}},
        "steps": [
            {**call, "retry": {"max_attempts": 1}},
            {"id": "bound", "tool": "note", "args": {"value": "{{steps.page.output}}"}},
        ],
        "output": "{{steps.bound.output}}",
        "on_complete": [_told(receiver)],
    }


def _wrong_race(view: View) -> Iterator[str]:
    match view["status"]:
        case "completed":
            if not re.fullmatch(rf"{view['inputs']['name']}\.\d+#\d", view["output"]):
                yield f"it gave {view['output']}"
        case "failed":
            if view["error"]["kind"] not in ("resume_timeout", "error"):
                yield f"it failed: {view['error']}"
        case status:
            if status != "cancelled":
                yield f"it is {status}"


# ------------------------------------------------------------------------ one answer for several runs, under a key of all


def keyed(receiver: str) -> Spec:
    key = {"idempotency_key": "{{inputs.key}}", "idempotency_scope": "global", "idempotency_ttl_secs": 0}
    return {
        "name": "keyed",
        "inputs": {"name": {"type": "string"}, "key": {"type": "string"}},
        "steps": [
            {"id": "page", "service": "render", "input": "{{inputs.key}}", "retry": AGAIN, **LATER, **key},
            {"id": "bound", "tool": "note", "args": {"value": "{{steps.page.output}}"}},
        ],
        "output": "{{steps.bound.output}}",
        "on_complete": [_told(receiver)],
    }


def _wrong_keyed(view: View) -> Iterator[str]:
    if view["status"] != "completed" or not re.fullmatch(rf"{view['inputs']['key']}\.\d+#\d", view["output"]):
        yield f"it is {view['status']} and gave {view['output']}: {view['error']}"


# -------------------------------------------------------------------------------------- conditions over shared variables


def graph(receiver: str) -> Spec:
    return {
        "name": "graph",
        "start": "ok",
        "nodes": {
            "ok": {"kind": "approval", "params": {"approval_key": "$shared.ok"}},
            "go": {"kind": "wait_event", "params": {"signal_key": "$shared.go"}, "post": {"output_key": "got"}},
            "last": {
                "kind": "executor", "service": "ship", "params": {"step": "last"}, "max_retries": 10,
                "prep": {"input_key": "$params.name"}, "post": {"output_key": "shipped"},
            },
        },
        "edges": [{"from": "ok", "action": "approved", "to": "go"}, {"from": "go", "to": "last"}],
    }  # fmt: skip


def _wrong_graph(view: View) -> Iterator[str]:
    wanted = {"ok": True, "go": 1, "got": 1, "shipped": f"shipped {view['inputs']['name']}"}
    if (view["status"], view["output"]) != ("completed", wanted):
        yield f"it is {view['status']} and gave {view['output']}, right is {wanted}; {view['error']}"


def _told(receiver: str) -> dict[str, str]:
    return {"url": f"{receiver}/workflow", "secret_env": SECRET_ENV}


WHOLE = Kind(whole, {"all[0].gate": 1, "all[1].board": 2}, SIGNALS, _wrong_whole)
RACE = Kind(race, {}, 0, _wrong_race, is_cancelled=True)
GRAPH = Kind(graph, {"ok": 1}, 1, _wrong_graph)
KEYED = Kind(keyed, {}, 0, _wrong_keyed)


def kind_of(number: int) -> Kind:
    return {3: RACE, 4: GRAPH, 5: KEYED}.get(number % 6, WHOLE)


def inputs_of(number: int, outside: str) -> dict[str, Any]:
    name = f"r{number}"
    if kind_of(number) is KEYED:
        return {"name": name, "key": f"key{number // (6 * SAME_KEY)}"}
    if kind_of(number) is not WHOLE:
        return {"name": name}
    return {
        "name": name,
        "items": [f"{name}:{item}" for item in range(ITEMS)],
        "job": f"{outside}/job/{name}",
        "ms": 6_000 if number % 10 == 9 else (1, 300, 900)[number % 3],
    }
