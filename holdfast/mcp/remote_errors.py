"""What a call of a tool on another MCP server may end with, besides its result."""

from __future__ import annotations

from typing import Final

MESSAGE_CHARS_MAX: Final = 2_000


class TaskBegun(Exception):
    """The server has made a task of a call; its result comes later."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id)
        self.task_id = task_id


class RemoteFailure(Exception):
    """A call of a tool on another server failed; `kind` says what is known of it."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message[:MESSAGE_CHARS_MAX])
        self.kind = kind
