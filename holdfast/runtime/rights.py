"""What the definitions and starts of a caller may use: tools, published workflows, and whether destructive tools need an approval.

Knows names and patterns. Does not know requests, keys or definitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

import msgspec


class Rights(msgspec.Struct, frozen=True):
    """`tools` and `workflows` are patterns of names; None is no limit, and an empty set allows nothing. `skips_gate`: a definition of
    this caller may call destructive tools without an approval before them."""

    tools: frozenset[str] | None = None
    workflows: frozenset[str] | None = None
    skips_gate: bool = True

    @property
    def are_limited(self) -> bool:
        return self.tools is not None or self.workflows is not None or not self.skips_gate

    def allows(self, tool: str) -> bool:
        """Whether a definition may call a tool or service; a tool of a server is called `server/tool`."""
        return self.tools is None or matches(tool, self.tools)

    def sees(self, workflow: str) -> bool:
        """Whether a published workflow may be read, started, replaced and named in a definition."""
        return self.workflows is None or matches(workflow, self.workflows)


EVERY_RIGHT: Final = Rights()


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of the patterns: `*` and `?` as in file names."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
