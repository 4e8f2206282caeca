"""The sessions of the older era that each caller holds open. Beyond a limit its least recently used one ends, so that no caller takes
the places of all others; a client whose session has ended begins a new one, as the protocol says.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

SESSIONS_MAX: Final = 1_000  # of one key; the SDK holds ten times as many in all
SESSION: Final = b"mcp-session-id"


class OpenSessions:
    def __init__(self, most: int = SESSIONS_MAX) -> None:
        self._most = most
        self._of: dict[str, OrderedDict[str, None]] = {}

    def used(self, holder: str, session_id: str) -> str | None:
        """Note that a caller opened or used a session. Return one that has to end for it."""
        own = self._of.setdefault(holder, OrderedDict())
        own[session_id] = None
        own.move_to_end(session_id)
        return own.popitem(last=False)[0] if len(own) > self._most else None

    def forget(self, holder: str, session_id: str) -> None:
        own = self._of.get(holder)
        if own is not None:
            own.pop(session_id, None)
            if not own:
                del self._of[holder]


def session_in(headers: Any) -> str | None:
    """The session that the headers of a request or an answer name."""
    return next((value.decode("latin-1") for name, value in headers if name == SESSION), None)


def ending(scope: Any, session_id: str) -> Any:
    """A request of the same caller that ends a session."""
    return {**scope, "method": "DELETE", "headers": [(SESSION, session_id.encode("latin-1"))]}


async def nothing_more() -> Any:
    return {"type": "http.disconnect"}


async def unheard(message: Any) -> None:
    """The answer to a request that no client has made."""
