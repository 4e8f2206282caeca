"""Commands to write a workflow and to run it."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands.flags import (
    ARTEFACTS,
    DB,
    EVERY,
    EXIT_CODES,
    INPUTS,
    NETWORKS,
    ON_EITHER,
    ROOTS,
    SERVER,
    TOOLS,
    WAIT,
)
from holdfast.cli.parser import Argument, Command, Flag

INIT: Final = Command(
    "init",
    "Create a first workflow with tools, a test and settings in a folder.",
    "holdfast.cli.init:command",
    "The files work as they are. Existing files are not overwritten unless you give --force.",
    ("holdfast init", "holdfast init my-project"),
    (
        Argument(
            "DIR",
            "The folder; created if it does not exist. Default: the current folder.",
            required=False,
            files="dirs",
        ),
    ),
    (Flag("--force", "Overwrite existing files."), *EVERY),
)
RUN: Final = Command(
    "run",
    "Run a workflow to its end, or continue a stopped run.",
    "holdfast.cli.run:command",
    f"""\
The result of each step is on disk before the next step starts: after Ctrl-C, kill -9 or a power cut, --continue continues
the run where it stopped. The run keeps the definition that it started with, even if the file has changed since.

If a server owns the database, or --server names one, the server executes the run: the tools must be loaded there, the run
continues when this command is stopped, and this command only follows it. If a program or another holdfast run has the database
open, this command waits until that process ends.

{EXIT_CODES}""",
    (
        "holdfast run hello.yaml --tools tools -i name=Ada",
        "holdfast run hello.yaml --inputs @inputs.json --json",
        "holdfast run --continue last",
    ),
    (
        Argument(
            "FILE|NAME",
            "The workflow file, or the name of a published workflow. Not needed with --continue.",
            required=False,
            files="yaml",
        ),
    ),
    (
        *INPUTS,
        TOOLS,
        NETWORKS,
        ARTEFACTS,
        ROOTS,
        SERVER,
        DB,
        Flag(
            "--continue",
            "Continue this run: its id, the start or end of the id, or last (the newest open run).",
            "RUN_ID",
        ),
        WAIT,
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *EVERY,
    ),
)
START: Final = Command(
    "start",
    "Start a run of a file or of a published workflow, and follow it.",
    "holdfast.cli.start:command",
    f"""\
The run is durable as soon as its id is printed. If a server owns the database, or --server names one, the server executes the
run and this command only follows it; so does a program that has the database open. Otherwise this command executes the run
itself, as holdfast run does; with --detach it only stores the run, and the next server that opens the database executes it.

With --request-id the same command can be repeated safely: it starts one run, however often it is given.

{EXIT_CODES}""",
    (
        "holdfast start hello -i name=Ada",
        "holdfast start hello --detach --label team=x",
        "holdfast start hello.yaml --request-id order-7",
        "holdfast start hello --final-callback https://shop.example/ended --final-callback-secret ORDERS_KEY",
    ),
    (Argument("NAME|FILE", "The name of a published workflow, or a workflow file.", files="yaml"),),
    (
        *INPUTS,
        Flag("--detach", "Print the id of the run and return at once."),
        Flag("--label", "A label of the run. May be repeated.", "NAME=VALUE", many=True),
        Flag("--request-id", "The id of this request: repeating it returns the same run.", "ID"),
        Flag("--final-callback", "A URL that is called when the run ends.", "URL"),
        Flag("--final-callback-secret", "The secret that signs the final callback.", "NAME"),
        TOOLS,
        NETWORKS,
        ARTEFACTS,
        ROOTS,
        WAIT,
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *ON_EITHER,
    ),
)
VALIDATE: Final = Command(
    "validate",
    "Check workflow and schedule files, and report every problem with line, column and hint.",
    "holdfast.cli.check:command",
    """\
A file named schedules.yaml or *.schedules.yaml, or with the key `schedules`, is checked as a schedule file. Schedule files
are also checked together: no two schedules may have the same id or webhook path. Of a SKILL.md the front matter is checked.
With --tools, a step that names any other tool is a problem too.

With --fix, the repairs that are known are shown as a diff and then written to the files; on a terminal you are asked first,
unless you give --yes. Comments and layout stay as far as possible.""",
    (
        "holdfast validate hello.yaml",
        "holdfast validate hello.yaml --fix",
        "holdfast validate flows/*.yaml --tools tools",
        "holdfast validate schedules/*.schedules.yaml",
    ),
    (Argument("FILE", "The files to check.", many=True, files="yaml"),),
    (
        TOOLS,
        Flag("--fix", "Repair what can be repaired: show the changes, then write them."),
        Flag("--yes", "Write the repairs without asking."),
        *EVERY,
    ),
)
PLAN: Final = Command(
    "plan",
    "Show what a workflow would do: its steps, the tools that it calls, and which of them are destructive.",
    "holdfast.cli.plan:command",
    """\
Nothing is executed or stored. The tools of --tools say whether they are destructive, read-only or idempotent
(@tool(destructive=True)). The hash changes with the definition, the workflows that it names, and the marks of its tools: a start
with `plan_hash` is refused if the plan has changed since.""",
    ("holdfast plan hello.yaml", "holdfast plan hello.yaml --tools tools --json"),
    (Argument("FILE", "The workflow file.", files="yaml"),),
    (TOOLS, *EVERY),
)
SCHEMA: Final = Command(
    "schema",
    "Print the JSON Schema of workflow or schedule files, for completion and checks in editors.",
    "holdfast.cli.init:schema_command",
    "Editors with YAML support find the schema through a first line: # yaml-language-server: $schema=holdfast.schema.json",
    (
        "holdfast schema > holdfast.schema.json",
        "holdfast schema graph > graph.schema.json",
        "holdfast schema schedules > schedules.schema.json",
    ),
    (
        Argument(
            "NOTATION",
            "steps, graph or schedules. Default: steps.",
            required=False,
            choices=("steps", "graph", "schedules"),
        ),
    ),
    (Flag("--graph", "The same as holdfast schema graph."), *EVERY),
)

COMMANDS: Final = (INIT, RUN, START, VALIDATE, PLAN, SCHEMA)
