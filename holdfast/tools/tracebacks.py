"""The traceback of an exception that a tool raised, as text: the frames of the tool and what it called, none of ours.

Knows exceptions as data. A tool may raise anything at all, so nothing here may raise.
"""

from __future__ import annotations

import concurrent.futures
import traceback
from pathlib import Path
from typing import Final

from holdfast import limits
from holdfast.tools.failures import ToolError

FRAMES_MAX: Final = 50  # the innermost ones
OURS: Final = f"{Path(__file__).parents[1]}/"
THREADS: Final = (
    f"{Path(concurrent.futures.__file__).parent}/"  # between our frames and those of a tool in a thread
)
CUT: Final = "… (the beginning was cut off)\n"


def traceback_of(error: BaseException) -> str:
    """The traceback of an exception and of its causes; "" if no frame of it is the tool's."""
    if isinstance(error, ToolError) and error.traceback_text is not None:
        return error.traceback_text  # it was raised in another process
    try:
        seen = traceback.TracebackException(
            type(error), error, error.__traceback__, limit=-FRAMES_MAX, compact=True
        )
        return "".join(seen.format()) if _without_ours(seen) else ""
    except Exception:  # an exception can make even its own description fail
        return ""


def shortened(text: str) -> str:
    """The end of a traceback, which says what was raised and where, within the limit."""
    raw = text.encode("utf-8", "replace")
    most = limits.now.traceback_bytes_max
    return text if len(raw) <= most else CUT + raw[-most:].decode("utf-8", "ignore").partition("\n")[2]


def _without_ours(seen: traceback.TracebackException) -> bool:
    """Remove our own frames, of the causes too. Is any other frame left?"""
    pending, has_frames = [seen], False
    while pending:
        one = pending.pop()
        is_called = next((n for n, frame in enumerate(one.stack) if not _calls_the_tool(frame)), None)
        one.stack[:] = [frame for frame in one.stack[is_called:] if not frame.filename.startswith(OURS)]
        has_frames = has_frames or bool(one.stack)
        nested = (one.__cause__, one.__context__, *(one.exceptions or ()))
        pending += [each for each in nested if each is not None]
    return has_frames


def _calls_the_tool(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith((OURS, THREADS))
