"""Frames and scopes of a run: which outputs they hold, and how much memory those take."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.engine.gather import ENTRY_BYTES, child_bytes, frame_bytes
from holdfast.engine.state import Frame, Run, Scope, beneath, sizes_of
from holdfast.plan import composed
from holdfast.plan.graph import KEEP_RESULT
from holdfast.values import Error, scope_of, split

# Outputs that only the run's own output needs are kept in memory while they are small; otherwise they are read from the journal.
RESULT_VALUE_BYTES_MAX: Final = 4 * 1024
RESULT_BYTES_MAX: Final = 64 * 1024
RESULT_ENTRY_BYTES: Final = 32  # memory of an entry besides its text


def is_child(run: Run, path: str) -> bool:
    """Return whether a path is a child of an open fan-out. The child has the name of its frame: `loop[3]`."""
    scope, index = scope_of(path)
    return index is not None and scope in run.scopes


def open_frame(run: Run, frame: str) -> Frame:
    """Return the frame of a block instance. The first decision inside a child of a scope opens its frame."""
    found = run.frames.get(frame)
    if found is not None:
        return found
    scope_path, _ = scope_of(frame)
    run.scopes[scope_path].child_opened()
    run.frames[split(scope_path)[0]].inner[frame] = None
    made = run.frames[frame] = Frame()
    return made


def close_child(run: Run, path: str, error: Error | None) -> None:
    opened = scope_of(path)[0]
    scope = run.scopes[opened]
    if path not in run.frames:
        scope.child_opened()  # nothing happened in it: an empty block
    scope.child_closed(error is not None)
    keeps = scope.keep and (scope.keep != KEEP_RESULT or run.result_whole)
    if error is not None and keeps:
        scope.errors[int(path[path.rindex("[") + 1 : -1])] = error
        _charge(run, scope.keep, len(error.message) + RESULT_ENTRY_BYTES)
    if scope.keep and (error is not None or run.kept_bytes + run.result_bytes > composed.COUNTED_FROM):
        sizes = sizes_of(run)
        sizes[opened] = sizes.get(opened, 0) + child_bytes(frame_bytes(run, path), error)
        sizes.pop(path, None)
    if path in run.frames:
        if not keeps:
            _drop_frame(run, path)
        elif scope.keep == KEEP_RESULT:
            _charge(run, scope.keep, sum(map(len, run.frames[path].outputs.values())))


def drop_children(run: Run, path: str, scope: Scope) -> None:
    """Drop the kept outputs of a scope's children that no expression can refer to any more."""
    if scope.is_nested:
        if path in run.frames:
            _drop_frame(run, path)
    elif scope.is_gathered:
        for index in range(scope.next):
            if (frame := f"{path}[{index}]") in run.frames:
                _drop_frame(run, frame)


def drop_sizes(run: Run, target: str) -> None:
    sizes = sizes_of(run)
    for path in [path for path in sizes if path == target or (path and beneath(target, path))]:
        del sizes[path]


def _drop_frame(run: Run, name: str) -> None:
    parent = run.frames.get(split(scope_of(name)[0])[0])
    if parent is not None:
        parent.inner.pop(name, None)
    decoded, unread = run.__dict__.get("decoded"), run.__dict__.get("unread")
    doomed = [name]
    while doomed:
        name = doomed.pop()
        frame = run.frames.pop(name)
        doomed.extend(frame.inner)
        run.vars_bytes -= sum(map(len, frame.vars.values()))
        for tail, output in frame.outputs.items():
            run.kept_bytes -= len(output)
            if decoded:
                decoded.pop(f"{name}.{tail}", None)
            if unread:
                unread.pop(f"{name}.{tail}", None)


def keep_output(run: Run, path: str, output: msgspec.Raw, keep: int) -> None:
    size = len(output)
    if keep == KEEP_RESULT:
        run.result_bytes = spent = run.result_bytes + size + RESULT_ENTRY_BYTES
        if spent > RESULT_BYTES_MAX or size > RESULT_VALUE_BYTES_MAX or not run.result_whole:
            run.result_whole = False
            return note_output(run, path, size)
    run.kept_bytes += size
    if "." in path:
        frame, tail = split(path)
        run.frames[frame].outputs[tail] = output
    else:
        run.frames[""].outputs[path] = output


def note_output(run: Run, path: str, size: int) -> None:
    """Count the size of an output that is gathered in its frame but not kept there."""
    frame, tail = split(path)
    sizes = sizes_of(run)
    sizes[frame] = sizes.get(frame, 0) + size + len(tail) + ENTRY_BYTES


def _charge(run: Run, keep: int, size: int) -> None:
    """Count an output that is kept only for the run's own output; stop keeping such outputs when they become too large."""
    if keep == KEEP_RESULT:
        run.result_bytes += size
        run.result_whole = run.result_whole and run.result_bytes <= RESULT_BYTES_MAX
