"""Open steps of a run: their waits, keys, stops and timers, and how they are removed."""

from __future__ import annotations

import msgspec

from holdfast.engine.awaited import awaited_so_far
from holdfast.engine.effects import Effects, KeyWork, WaitWork
from holdfast.engine.state import Run, Scope, Step, Wait, beneath, timer_key, timer_of


def drop(run: Run, path: str, effects: Effects, outcome: str = "cancelled") -> None:
    """Remove an open step, and release its key and wait."""
    step = run.steps.pop(path)
    run.active -= step.state in ("running", "ready")
    if step.key is not None:
        let_go(run, path, step, effects)
    if step.wait is not None:
        close_wait(run, path, step, outcome, effects)


def close_wait(run: Run, path: str, step: Step, outcome: str, effects: Effects) -> None:
    assert step.wait is not None
    run.waits -= 1
    for timer in ("expiry", "poll", "escalate"):
        run.timers.pop(timer_key(timer, path), None)
    if (waits := awaited_so_far(run)) is not None:
        waits.drop(path, step.wait)
    effects.append(WaitWork(path, step.attempt, step.wait, outcome))
    step.wait = None


def let_go(run: Run, path: str, step: Step, effects: Effects, output: msgspec.Raw | None = None) -> None:
    assert step.key is not None
    run.keyed -= 1
    effects.append(KeyWork(path, step.key, asks=False, output=output))


def rest(run: Run, step: Step, state: str) -> None:
    step.state = state
    run.active -= 1


def begin_wait(run: Run, path: str, step: Step, wait: Wait, effects: Effects) -> None:
    step.wait = wait
    if (waits := awaited_so_far(run)) is not None:
        waits.put(path, wait)
    run.waits += 1
    effects.append(WaitWork(path, step.attempt, wait))


def end_stop(run: Run, target: str) -> None:
    run.stops.pop(target, None)
    run.timers.pop(timer_key("grace", target), None)


def close_scope(run: Run, path: str) -> Scope | None:
    scope = run.scopes.pop(path, None)
    if scope is None:
        return None
    run.__dict__.get("items", {}).pop(path, None)
    run.timers.pop(timer_key("deadline", path), None)
    end_stop(run, path)
    return scope


def drop_steps(run: Run, target: str, effects: Effects) -> None:
    """Drop every open step beneath a target; their results will be late."""
    for path in [path for path in run.steps if beneath(target, path)]:
        drop(run, path, effects)
    for path in [path for path in run.scopes if beneath(target, path)]:
        del run.scopes[path]
        run.__dict__.get("items", {}).pop(path, None)
    for path in [path for path in run.stops if path and beneath(target, path)]:
        del run.stops[path]
    if run.todo:
        run.todo = [item for item in run.todo if item[1] != target and not beneath(target, item[1])]
    for key in [key for key in run.timers if timer_of(key)[1] and beneath(target, timer_of(key)[1])]:
        del run.timers[key]


def drop_guards(run: Run, path: str) -> None:
    """Drop the guards inside a scope that has closed."""
    for key in [key for key in run.guards if beneath(path, key)]:
        del run.guards[key]
