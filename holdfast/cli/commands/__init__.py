"""Every command: its name, help text, arguments, flags, and the function that implements it. Pure data: no command is imported."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands import (
    answers,
    dead_letters,
    flows,
    keys,
    runs,
    schedules,
    servers,
    upkeep,
    writing,
)

SHELVES: Final = {
    "Write and run": writing.COMMANDS,
    "Manage runs": runs.COMMANDS,
    "Answer waiting runs": answers.COMMANDS,
    "Run a server": servers.COMMANDS,
    "Manage workflows": flows.COMMANDS,
    "Manage schedules": schedules.COMMANDS,
    "Manage API keys": keys.COMMANDS,
    "Manage final callbacks": dead_letters.COMMANDS,
    "Maintenance": upkeep.COMMANDS,
}
COMMANDS: Final = {command.name: command for shelf in SHELVES.values() for command in shelf}
GROUPS: Final = tuple(dict.fromkeys(name.partition(" ")[0] for name in COMMANDS if " " in name))
