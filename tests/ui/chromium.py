"""The browser of these tests: Debian's chromium.

    python -m tests.ui.chromium     install it if this is root on a machine with apt; otherwise say what is left out

Nothing is downloaded from anywhere else: a browser that a test tool fetches itself is another program than users have.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Final

INSTALL_SECS: Final = 300
COMMAND: Final = "apt-get install -y --no-install-recommends chromium"
FLAGS: Final = (
    "--no-sandbox",  # of root in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",  # otherwise it looks for hosts of its maker at every start
    "--disable-component-update",
    "--disable-sync",
)


def found() -> str | None:
    return shutil.which("chromium")


def install() -> str:
    """Install chromium. Return why it cannot be, or nothing."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "chromium is not installed"
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        for command in ("apt-get update -qq", f"{COMMAND} -qq"):
            subprocess.run(command.split(), env=quiet, capture_output=True, timeout=INSTALL_SECS, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError):
        return "chromium could not be installed"
    return "" if found() else "chromium could not be installed"


def main() -> int:
    if found() is None and (problem := install()):
        print(
            f"The browser tests (tests/ui) are left out: {problem}; run `{COMMAND}` as root, then `make test`."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
