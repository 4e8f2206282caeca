"""Starts a command under a keeper: `python launch.py ENGINE_PID COMMAND ARGUMENT…`. The command ends with the engine (Linux)."""

from __future__ import annotations

import os
import sys

from holdfast.tools.keeper import keep


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    keep(parent, os.dup(2))  # the keeper closes its copy of the handle, and has nothing else of the command's
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
