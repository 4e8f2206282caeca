"""A pytest that is started by a test, as somebody who uses Holdfast has it."""

from __future__ import annotations

from typing import Final

# Without plugins that only our own tests need: loading them takes five times as long as all the rest.
PLAIN: Final = ("-p", "no:schemathesis", "-p", "no:hypothesispytest", "-p", "no:xdist")
