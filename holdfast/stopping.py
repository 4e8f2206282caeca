"""Which signals ask a process to stop in order: Ctrl-C, TERM, and HUP, which a terminal sends when it is closed."""

from __future__ import annotations

import signal


def stop_signals() -> list[signal.Signals]:
    """HUP is left out where it is ignored: `nohup` starts what is to outlive its terminal."""
    asked = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asked.append(signal.SIGHUP)
    return asked
