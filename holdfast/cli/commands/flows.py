"""Commands for published workflows."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands.flags import (
    ON_EITHER,
)
from holdfast.cli.parser import Argument, Command, Flag

NAME: Final = Argument("NAME", "The workflow's name.")
FLOWS_PUBLISH: Final = Command(
    "flows publish",
    "Publish workflow files under their names.",
    "holdfast.cli.flows:publish_command",
    "A version never changes, and a run keeps the version it started with. All files are checked before any is published.",
    (
        "holdfast flows publish hello.yaml",
        "holdfast flows publish flows/*.yaml --server http://127.0.0.1:8070",
    ),
    (Argument("FILE", "The definitions, in either notation.", many=True, files="yaml"),),
    (
        Flag("--draft", "Store the version, but do not make it the current one."),
        Flag(
            "--strict",
            "Refuse a file that calls a tool that no engine has, or a service that no worker serves.",
        ),
        *ON_EITHER,
    ),
)
FLOWS_LIST: Final = Command(
    "flows list",
    "List published workflows, and files in the server's folder that have mistakes.",
    "holdfast.cli.flows:list_command",
    "",
    ("holdfast flows list",),
    (),
    ON_EITHER,
)
FLOWS_SHOW: Final = Command(
    "flows show",
    "Print the definition of a workflow, and list its versions.",
    "holdfast.cli.flows:show_command",
    "",
    ("holdfast flows show hello", "holdfast flows show hello --number 2"),
    (NAME,),
    (Flag("--number", "The version with this number. Default: the current version.", "N"), *ON_EITHER),
)
FLOWS_DIFF: Final = Command(
    "flows diff",
    "Show what changed from one version of a workflow to another.",
    "holdfast.cli.flows:diff_command",
    "",
    ("holdfast flows diff hello 1 2",),
    (
        NAME,
        Argument("A", "The number of the first version."),
        Argument("B", "The number of the second version."),
    ),
    ON_EITHER,
)
FLOWS_ROLLBACK: Final = Command(
    "flows rollback",
    "Make an earlier version of a workflow the current one again.",
    "holdfast.cli.flows:rollback_command",
    "Runs that have started keep their version. If the server publishes a folder, correct the file too: its next change publishes it.",
    ("holdfast flows rollback hello 1",),
    (NAME, Argument("N", "The number of the version.")),
    ON_EITHER,
)

FLOWS_STATS: Final = Command(
    "flows stats",
    "Show how the last runs of a workflow went: how many completed, and how long each step took.",
    "holdfast.cli.figures:stats_command",
    "",
    ("holdfast flows stats hello", "holdfast flows stats hello --from 2026-11-01T00:00:00Z --last 500"),
    (NAME,),
    (
        Flag("--last", "So many finished runs, up to 500. Default: 200.", "N"),
        Flag("--number", "Only runs of the version with this number.", "N"),
        Flag("--from", "Only runs that were created since then, for example 2026-11-01T00:00:00Z.", "TIME"),
        *ON_EITHER,
    ),
)

COMMANDS: Final = (FLOWS_PUBLISH, FLOWS_LIST, FLOWS_SHOW, FLOWS_DIFF, FLOWS_ROLLBACK, FLOWS_STATS)
