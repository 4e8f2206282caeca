"""Where the command `holdfast` begins. Ctrl-C while its modules are loaded ends it at once, by the signal itself.

Python would raise KeyboardInterrupt there: its traceback has nothing for the user, and raised inside msgspec, while a decoder is made,
it crashes the process. Imports almost nothing before it is ready for that.
"""

from __future__ import annotations

# What `signal` wraps: importing that takes longer than all that comes before `main`.
import _signal as signal  # type: ignore[import-not-found]


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the caller ignores it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from holdfast.cli.main import main as command

    command()
