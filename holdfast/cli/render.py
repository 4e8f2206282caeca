"""How a command line shows a run: plain lines, a live tree, JSON. Does not know where the data came from."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from holdfast.cli.safe import coloured, harmless, one_line, width_of
from holdfast.cli.streams import say
from holdfast.errors import Problem
from holdfast.values import Error, base_of, split

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from holdfast.views.steps import Steps, StepView

FRAMES_PER_SECOND: Final = 8
INNER_SHOWN_MAX: Final = 6  # open steps of one scope in the tree; the rest is a number
TOP_KEPT_MAX: Final = 1_000  # top-level steps that a tree remembers; in a cycle there is no end of them
CHILDREN_SHOWN_MAX: Final = 20  # larger fan-outs show failures and their end, not each child
MARKS: Final = {
    "completed": "✓",
    "skipped": "-",
    "failed": "✗",
    "cancelled": "-",
    "waiting": "◷",
    "retrying": "↻",
    "ready": "…",
    "running": "▸",
    "pending": "…",
    "cancelling": "-",
    "interrupted": "✗",
}


# ------------------------------------------------------------------------------------------------------ text


def span(ms: int) -> str:
    """A duration in its shortest form: `12 ms`, `1.5 s`, `3 min 4 s`, `2 h 5 min`."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def ms_of(text: str) -> int:
    """Parse a time in the format that `instant` writes."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def instant(ms: int) -> str:
    """A time in UTC: `2026-11-16T09:30:00.125Z`."""
    whole, part = divmod(ms, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{part:03d}Z"


def shortened(value: Any, chars: int) -> str:
    """A value as JSON on one line, shortened if it is long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


_PAINT: Final = {"green": "32", "red": "31", "yellow": "33", "cyan": "36", "dim": "2"}


def painted(text: str, state: str, fd: int = 1) -> str:
    """Text in the colour of a state, if the output is a terminal."""
    colour = _PAINT.get(_STYLES.get(state, ""))
    if colour is None or not os.isatty(fd) or os.environ.get("NO_COLOR"):
        return text
    return coloured(text, colour)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell; a column without content is omitted."""
    columns = [
        (head, [one_line(row[at]) for row in rows])
        for at, head in enumerate(heads)
        if any(row[at] for row in rows)
    ]
    widths = [max(len(head), *map(width_of, cells)) for head, cells in columns]
    lines = [[head for head, _ in columns], *zip(*(cells for _, cells in columns), strict=True)]
    return "".join("  ".join(map(_padded, line, widths)).rstrip() + "\n" for line in lines)


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - width_of(cell))


def error_line(error: Error, at: str = "") -> str:
    """An error on one line: where (if the message does not say so), what, and of which kind."""
    is_said = error.path in ("", at) or error.message.startswith(f"step {error.path} ")
    where = "" if is_said else f"{error.path}: "
    return harmless(f"{where}{' '.join(error.message.split())} [{error.kind}]")


def problem_lines(problems: Iterable[Problem], level: str = "error") -> list[str]:
    """`hello.yaml:7:5: error: …`, the format that editors can jump to, and the hint below it."""
    lines = []
    for problem in problems:
        place = f"{problem.source or 'spec'}:" + (f"{problem.line}:{problem.column}:" if problem.line else "")
        lines.append(one_line(f"{place} {level}: {problem.message}"))
        if problem.hint:
            lines.append(one_line(f"    hint: {problem.hint}"))
    return lines


def problem_data(problem: Problem) -> dict[str, Any]:
    fields = ("code", "pointer", "line", "column", "message", "hint")
    return {name: getattr(problem, name) for name in fields}


def step_data(step: StepView) -> dict[str, Any]:
    error = None if step.error is None else msgspec.to_builtins(step.error)
    return {"status": step.status, "attempts": step.attempts, "output": step.output, "error": error}


def state_of(step: StepView, now: int) -> str:
    """What a step is doing, or how it ended, in a few words."""
    tries = f", attempt {step.attempts}" if step.attempts > 1 else ""
    if step.status == "completed":
        took = span((step.finished or now) - step.started)
        return f"completed in {took}{_counts(step)}{tries}"
    if step.status == "failed":
        why = f": {error_line(step.error, step.path)}" if step.error else ""
        return f"failed{_counts(step)}{tries}{why}"
    if step.status == "retrying":
        why = error_line(step.error, step.path) if step.error else "it timed out"
        return f"attempt {step.attempts} failed: {why}{_due(step, ', again in ', now)}"
    if step.status == "waiting":
        return _WAITING.get(step.reason, "waits") + _due(step, " ", now)
    if step.status == "ready":
        return _READY.get(step.reason, "ready")
    return f"{step.status}{_counts(step)}{tries if step.status == 'running' else ''}"


_WAITING: Final = {
    "key": "waits for its key",
    "no_tool": "waits for its tool",
    "no_worker": "waits for a worker",
}
_READY: Final = {
    "key": "asks for its key",
    "no_tool": "waits for its tool",
    "lost": "was lost, starts again",
    "stopping": "given back, starts again",
}


def _counts(step: StepView) -> str:
    if not step.children:
        return ""
    return f", {step.done} of {step.children}" + (f" ({step.failed} failed)" if step.failed else "")


def _due(step: StepView, before: str, now: int) -> str:
    return "" if step.due is None else f"{before}{span(step.due - now)}"


# ----------------------------------------------------------------------------------------------------- views


class View(Protocol):
    """Shows a run while it is running."""

    def begin(self, run_id: str, name: str, plan: Sequence[str], steps: Steps) -> None: ...
    def changed(self, changed: Sequence[StepView]) -> None: ...
    def progressed(self, path: str, fraction: float, message: str) -> None: ...
    def tick(self) -> None: ...
    def end(self) -> None: ...


class Silence:
    """Shows only the run id, so that the run can be continued after a power cut. A JSON caller reads the result."""

    def begin(self, run_id: str, name: str, plan: Sequence[str], steps: Steps) -> None:
        say(f"run {run_id} of {name}")

    def changed(self, changed: Sequence[StepView]) -> None: ...
    def progressed(self, path: str, fraction: float, message: str) -> None: ...
    def tick(self) -> None: ...
    def end(self) -> None: ...


class Lines(Silence):
    """One line per event, for logs and pipes. With `every`, large fan-outs show each child too."""

    def __init__(self, *, every: bool = False) -> None:
        self._every = every
        self._small: dict[str, bool] = {}

    def begin(self, run_id: str, name: str, plan: Sequence[str], steps: Steps) -> None:
        super().begin(run_id, name, plan, steps)
        # A ready step starts at once, or reports again what it waits for.
        self.changed([step for step in steps.by_path.values() if step.status != "ready"])

    def changed(self, changed: Sequence[StepView]) -> None:
        now = now_ms()
        for step in changed:
            if step.is_scope:
                self._small[step.path] = step.children <= CHILDREN_SHOWN_MAX
            if self._is_shown(step):
                say(f"  {MARKS[step.status]} {step.path}  {state_of(step, now)}")

    def _is_shown(self, step: StepView) -> bool:
        if step.status == "running" or (step.status, step.reason) == ("ready", "key"):
            return False  # reported when its outcome is known
        if self._every or step.status in ("failed", "retrying"):
            return True
        if step.status == "cancelled":
            return False
        if step.is_top:
            return True
        around = split(step.path)[0].rpartition("[")[0] or split(step.path)[0]
        return self._small.get(around, True)


class Tree(Silence):
    """The steps of a run on a terminal. The caller redraws it a few times a second."""

    def __init__(self) -> None:
        self._names: Sequence[str] = ()
        self._top: dict[str, StepView] = {}  # in the order in which they were reached
        self._earlier = 0  # finished top-level steps that are no longer remembered
        self._reached: set[str] = set()
        self._failed: dict[str, StepView] = {}
        self._progress: dict[str, str] = {}  # of running attempts
        self._steps: Steps | None = None
        self._live: Live | None = None

    def begin(self, run_id: str, name: str, plan: Sequence[str], steps: Steps) -> None:
        from rich.console import Console
        from rich.live import Live

        class Steady(Console):
            """Leaves the cursor visible: after a kill -9 it could not be restored."""

            def show_cursor(self, show: bool = True) -> bool:
                return False

        self._names, self._steps = plan, steps
        self.changed(list(steps.by_path.values()))
        super().begin(run_id, name, plan, steps)  # stays on the screen after the tree is gone
        console = Steady(stderr=True, highlight=False)
        self._live = Live(console=console, auto_refresh=False)  # what tools print appears above it
        self._live.start()

    def changed(self, changed: Sequence[StepView]) -> None:
        for step in changed:
            self._progress.pop(step.path, None)  # it has ended, or starts again
            if step.is_top:
                self._keep(step)
            elif step.status == "failed" and len(self._failed) < INNER_SHOWN_MAX:
                self._failed[step.path] = step

    def _keep(self, step: StepView) -> None:
        self._top[step.path] = step
        self._reached.add(base_of(step.path))
        if len(self._top) > TOP_KEPT_MAX:
            oldest = next((path for path, one in self._top.items() if one.is_over), None)
            if oldest is not None:
                del self._top[oldest]
                self._earlier += 1

    def progressed(self, path: str, fraction: float, message: str) -> None:
        self._progress[path] = (
            f"{_bar(fraction)} {fraction:4.0%} {harmless(' '.join(message.split()))}".rstrip()
        )

    def tick(self) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):  # the terminal is closed, but the run continues
                self._live.update(self._drawn(self._live.console.height), refresh=True)

    def end(self) -> None:
        self.tick()
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None

    def _drawn(self, height: int) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 1))
        now = now_ms()
        for mark, name, state, style in self._rows(now, max(height - 4, INNER_SHOWN_MAX)):
            table.add_row(
                Text(mark, style),
                Text(harmless(name), style),
                Text(harmless(state), style, overflow="ellipsis", no_wrap=True),
            )
        return table

    def _rows(self, now: int, room: int) -> list[tuple[str, str, str, str]]:
        """Finished, open and upcoming steps. A long list is cut to the part where steps are running."""
        opened = [] if self._steps is None else self._steps.open
        over = [path for path, step in self._top.items() if step.is_over]
        rest = [path for path, step in self._top.items() if not step.is_over]
        rest += [name for name in self._names if name not in self._reached]
        hidden = max(0, len(over) + len(rest) - room)
        earlier = min(hidden, len(over))
        later = hidden - earlier
        before = self._earlier + earlier
        rows = [("✓", f"{before} earlier steps", "", "dim")] if before else []
        for name in [*over[earlier:], *rest[: len(rest) - later]]:
            rows += self._rows_of(name, now, opened)
        return [*rows, ("·", f"{later} more steps", "", "dim")] if later else rows

    def _rows_of(self, name: str, now: int, opened: Sequence[StepView]) -> list[tuple[str, str, str, str]]:
        step = self._top.get(name)
        if step is None:
            return [("·", name, "", "dim")]
        inner = [one for one in (*self._failed.values(), *opened) if not one.is_top and is_in(one.path, name)]
        shown = [self._row(one, now, indent="  ") for one in inner[:INNER_SHOWN_MAX]]
        more = len(inner) - len(shown)
        tail = [("", f"  and {more} more", "", "dim")] if more > 0 else []
        return [self._row(step, now), *shown, *tail]

    def _row(self, step: StepView, now: int, indent: str = "") -> tuple[str, str, str, str]:
        spins = step.status == "running"
        mark = _SPINNER[now * FRAMES_PER_SECOND // 1000 % len(_SPINNER)] if spins else MARKS[step.status]
        state = state_of(step, now)
        if step.children and not step.is_over:
            state = f"{_bar(step.done / step.children)} {state}"
        elif spins and step.path in self._progress:
            state = self._progress[step.path]
        return mark, indent + step.path, state, _STYLES.get(step.status, "")


def is_in(path: str, scope: str) -> bool:
    return path.startswith(scope) and path[len(scope) : len(scope) + 1] in (".", "[")


_STYLES: Final = {
    "completed": "green",
    "failed": "red",
    "retrying": "yellow",
    "waiting": "cyan",
    "cancelled": "dim",
    "skipped": "dim",
    "interrupted": "red",
}
_SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def _bar(fraction: float, width: int = 20) -> str:
    filled = int(width * fraction)
    return "━" * filled + "╌" * (width - filled)
