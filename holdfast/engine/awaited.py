"""Which open waits a signal can end, found by its name, so that the cost of a signal does not grow with those that wait for others.

Not part of the state of a run: built from its open steps when the first signal arrives, and kept up to date by fold from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from holdfast.engine.state import Run, Wait
from holdfast.values import decode

Order = int  # of waits: the lower has waited longer
Entry = tuple[Order, str]  # and the path


class Awaited:
    def __init__(self, run: Run) -> None:
        # Paths of steps that check the variables of the run, oldest first.
        self.conditions: dict[str, None] = {}
        # By name and correlation: path → order.
        self._signals: dict[tuple[str, str | None], dict[str, Order]] = {}
        self._next: Order = 0
        open_waits = [(path, step.wait) for path, step in run.steps.items() if step.wait is not None]
        for path, wait in sorted(open_waits, key=lambda item: item[1].since):
            self.put(path, wait)

    def put(self, path: str, wait: Wait) -> None:
        """Add a wait that began after all others."""
        if _checks_a_condition(wait):
            self.conditions[path] = None
        for key in _keys(wait):
            if key[0] not in wait.got:
                self._signals.setdefault(key, {})[path] = self._next
        self._next += 1

    def drop(self, path: str, wait: Wait) -> None:
        """Remove a wait that has ended."""
        self.conditions.pop(path, None)
        for key in _keys(wait):
            self._drop(key, path)

    def got(self, path: str, wait: Wait, name: str) -> None:
        """A wait for several signals has received one of them."""
        for key in _keys(wait):
            if key[0] == name:
                self._drop(key, path)

    def by(self, name: str, correlation: str | None) -> Iterator[str]:
        """The paths of the steps that wait for such a signal, those that have waited longest first."""
        keys = {(name, None), (name, correlation)}  # a step that names no correlation takes any
        found: list[Iterator[Entry]] = [
            ((order, path) for path, order in self._signals[key].items())
            for key in keys
            if key in self._signals
        ]
        return (path for _, path in merge(*found))

    def _drop(self, key: tuple[str, str | None], path: str) -> None:
        paths = self._signals.get(key)
        if paths is not None and paths.pop(path, None) is not None and not paths:
            del self._signals[key]


def awaited(run: Run) -> Awaited:
    found: Awaited | None = run.__dict__.get("awaited")
    if found is None:
        found = run.__dict__["awaited"] = Awaited(run)
    return found


def awaited_so_far(run: Run) -> Awaited | None:
    """The same, if a signal has arrived."""
    return run.__dict__.get("awaited")


def _keys(wait: Wait) -> set[tuple[str, str | None]]:
    if wait.kind != "signal":
        return set()
    detail = decode(wait.detail)
    return {(name, detail["correlation"]) for name in detail["names"]}


def _checks_a_condition(wait: Wait) -> bool:
    """An approval of a graph is a condition that names the variable which answers it."""
    return wait.kind == "condition" or (wait.kind == "approval" and "answers_to" in decode(wait.detail))
