"""The MCP servers that `tool: server/name` may name: those of the settings of this process, as limits are.

Without any, a name with a slash is an invalid name of a tool.
"""

from __future__ import annotations

from collections.abc import Iterable

now: frozenset[str] = frozenset()


def put_in_force(names: Iterable[str]) -> None:
    global now  # noqa: PLW0603  # one for the process, as its settings are
    now = frozenset(names)
