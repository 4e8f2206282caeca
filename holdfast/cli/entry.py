"""Where the command `holdfast` begins. Ctrl-C while its modules are loaded ends it without a traceback.

Imports nothing but `sys` before it is ready for that.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # as in holdfast/__init__.py
if TYPE_CHECKING:
    from types import TracebackType


def main() -> None:
    sys.excepthook = _unless_interrupted
    from holdfast.cli.main import main as command

    command()


def _unless_interrupted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Python then ends the process by SIGINT, as a shell expects."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
