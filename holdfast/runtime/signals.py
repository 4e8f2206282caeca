"""Checks whether a run has room for a signal, which is written to a variable or kept until a step waits for it."""

from __future__ import annotations

from holdfast import limits
from holdfast.engine.events import SignalReceived
from holdfast.engine.waits import would_keep
from holdfast.errors import LimitExceeded
from holdfast.runtime.resident_run import ResidentRun


def check_room(resident: ResidentRun, signal: SignalReceived) -> None:
    """Raise LimitExceeded if there is no room. A signal that a step already waits for is never refused."""
    run, size, key = resident.run, len(signal.value), signal.name
    if run.vars_bytes + size - len(run.frames[""].vars.get(key, b"")) > limits.now.vars_bytes_max:
        raise LimitExceeded(
            "vars_too_large",
            f"the variables of the run would exceed {limits.size(limits.now.vars_bytes_max)}",
            "vars_bytes_max",
        )
    shelf = run.shelf
    of_key, in_all = len(shelf.by_name.get(key, ())), len(run.signals)
    is_full = (
        of_key >= limits.now.signals_of_key_max
        or in_all >= limits.now.signals_max
        or shelf.bytes + size > limits.now.value_bytes_max
    )
    if not is_full or not would_keep(resident.plan, run, signal):
        return
    if of_key >= limits.now.signals_of_key_max:
        raise LimitExceeded(
            "signals_of_key_max",
            f"{of_key:,} signals {key!a:.100} of the run are kept because no step waits for them; the limit is "
            f"{limits.now.signals_of_key_max:,} per key",
        )
    if in_all >= limits.now.signals_max:
        raise LimitExceeded(
            "signals_max",
            f"{in_all:,} signals of the run are kept because no step waits for them; the limit is {limits.now.signals_max:,}",
        )
    raise LimitExceeded(
        "signals_too_large",
        f"the kept signals of the run would exceed {limits.size(limits.now.value_bytes_max)} together",
        "value_bytes_max",
    )
