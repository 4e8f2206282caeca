"""Every command: its words, its help, what it takes, and where it is carried out. Data alone; nothing is imported for it."""

from __future__ import annotations

from typing import Final

from holdfast.cli.line import Argument, Command, Flag

SHELLS: Final = ("bash", "zsh", "fish")
STATUSES: Final = (
    "pending", "running", "waiting", "cancelling", "completed", "failed", "cancelled", "interrupted",
)  # fmt: skip

JSON: Final = Flag("--json", "Print JSON on standard output, and nothing else there.")
LOG: Final = Flag("--log", "How to write log lines: json or text.", "FORMAT", choices=("json", "text"))
HELP: Final = Flag("--help", "Show this help.", short="-h")
DB: Final = Flag("--db", "The database file. If not said: sqlite:///holdfast.db.", "sqlite:///FILE")
TOOLS: Final = Flag(
    "--tools", "Where tools are: a module, or module:object. May be repeated.", "MODULE", many=True
)
NETWORKS: Final = Flag(
    "--allow-networks",
    "Let http_request call public addresses and this private network only. May be repeated.",
    "CIDR",
    many=True,
)
RUN_ID: Final = Argument("RUN_ID", "The run: its id, the beginning or end of that, or last.")
EVERY: Final = (JSON, LOG, HELP)
ON_A_FILE: Final = (DB, *EVERY)

EXIT_CODES: Final = """\
Exit code: 0 completed, 1 failed or interrupted, 2 invalid or wrong usage, 3 cancelled, 4 waits for the outside;
129, 130, 143 stopped by a signal."""

INIT: Final = Command(
    "init",
    "Write a first workflow, its tools, a test and the settings into a folder.",
    "holdfast.cli.init:command",
    "What is written works as it is. A file that is already there is never touched unless --force says so.",
    ("holdfast init", "holdfast init my-project"),
    (
        Argument(
            "DIR", "The folder; made if it is not there. If not said: this one.", required=False, files="dirs"
        ),
    ),
    (Flag("--force", "Overwrite files that are already there."), *EVERY),
)
RUN: Final = Command(
    "run",
    "Run a workflow to its end, or go on with a run that was stopped.",
    "holdfast.cli.run:command",
    f"""\
Each outcome is on disk before the next step begins: after Ctrl-C, kill -9 or a power cut, --continue goes on where
the run was. It goes on with the definition that it began with, also if the file has changed since.

{EXIT_CODES}""",
    (
        "holdfast run hello.yaml --tools tools -i name=Ada",
        "holdfast run hello.yaml --inputs @inputs.json --json",
        "holdfast run --continue last",
    ),
    (Argument("FILE", "The workflow. May be left out with --continue.", required=False, files="yaml"),),
    (
        Flag(
            "--input",
            "One input: JSON where it is JSON, else text. May be repeated.",
            "NAME=VALUE",
            "-i",
            many=True,
        ),
        Flag("--inputs", "All inputs as a JSON object, or @FILE.", "JSON"),
        TOOLS,
        NETWORKS,
        DB,
        Flag(
            "--continue",
            "Go on with this run: its id, the beginning or end of that, or last (the newest open one).",
            "RUN_ID",
        ),
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *EVERY,
    ),
)
VALIDATE: Final = Command(
    "validate",
    "Report every problem of every file, with line, column and hint. Runs no step.",
    "holdfast.cli.check:command",
    "With --tools, a tool that is not among them is a problem too.",
    ("holdfast validate hello.yaml", "holdfast validate flows/*.yaml --tools tools"),
    (Argument("FILE", "The workflows to look at.", many=True, files="yaml"),),
    (TOOLS, *EVERY),
)
SCHEMA: Final = Command(
    "schema",
    "Print the JSON Schema of workflow files, for editors to complete and check with.",
    "holdfast.cli.init:schema_command",
    "An editor with YAML support reads it from a first line: # yaml-language-server: $schema=holdfast.schema.json",
    ("holdfast schema > holdfast.schema.json",),
    (),
    EVERY,
)
RUNS_LIST: Final = Command(
    "runs list",
    "List runs, the newest first.",
    "holdfast.cli.runs:list_command",
    "Reads the file only: it can be asked while another process drives the runs.",
    ("holdfast runs list", "holdfast runs list --status failed --workflow hello --label team=x"),
    (),
    (
        Flag("--status", "Only runs of this status.", "STATUS", choices=STATUSES),
        Flag("--workflow", "Only runs of this workflow.", "NAME"),
        Flag("--label", "Only runs with this label, or with this value of it.", "NAME[=VALUE]"),
        Flag("--limit", "How many at most, up to 500. If not said: 20.", "N"),
        Flag("--cursor", "Go on after a former list, which ends by saying where.", "CURSOR"),
        *ON_A_FILE,
    ),
)
RUNS_SHOW: Final = Command(
    "runs show",
    "Show a run: its steps with states, attempts, times, outputs and errors.",
    "holdfast.cli.runs:show_command",
    "Reads the file only: it can be asked while another process drives the run.",
    ("holdfast runs show 0199f3c4-…", "holdfast runs show 5d1e --all-steps --json"),
    (RUN_ID,),
    (Flag("--all-steps", "Show every step, those inside loops and branches too."), *ON_A_FILE),
)
RUNS_EXPLAIN: Final = Command(
    "runs explain",
    "Say why a run is not further: what each open step waits for, and what would unblock it.",
    "holdfast.cli.runs:explain_command",
    "Reads the file only: it can be asked while another process drives the run.",
    ("holdfast runs explain 0199f3c4-…",),
    (RUN_ID,),
    ON_A_FILE,
)
RUNS_CANCEL: Final = Command(
    "runs cancel",
    "Cancel a run that no process drives.",
    "holdfast.cli.runs:cancel_command",
    "Nothing new starts, and the run ends cancelled. When it returns, that is on disk.",
    ("holdfast runs cancel 0199f3c4-…", 'holdfast runs cancel 5d1e --reason "wrong inputs"'),
    (RUN_ID,),
    (Flag("--reason", "Why, for whoever looks at the run later.", "TEXT"), *ON_A_FILE),
)
RUNS_RERUN: Final = Command(
    "runs rerun",
    "Run a finished run again as a new one, from its beginning or from a step.",
    "holdfast.cli.runs:rerun_command",
    f"""\
The new run has the same definition and inputs. With --from, what was done before that step is taken over and not done
again.

{EXIT_CODES}""",
    (
        "holdfast runs rerun 0199f3c4-… --tools tools",
        "holdfast runs rerun 5d1e --from send --tools tools",
        "holdfast runs rerun 5d1e --from send --preview",
    ),
    (RUN_ID,),
    (
        Flag("--from", "Take over what was done before this top-level step.", "STEP"),
        Flag("--preview", "Only say which steps would run."),
        TOOLS,
        NETWORKS,
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *ON_A_FILE,
    ),
)
BACKUP: Final = Command(
    "backup",
    "Copy the database into a new file, also while another process writes to it.",
    "holdfast.cli.upkeep:backup_command",
    "The copy holds one moment whole, is checked, and can be used as a database. A file that is there is not overwritten.",
    ("holdfast backup holdfast-copy.db", "holdfast backup /backups/monday.db --db sqlite:///holdfast.db"),
    (Argument("FILE", "The copy.", files="any"),),
    ON_A_FILE,
)
DOCTOR: Final = Command(
    "doctor",
    "Check the database and the machine it is on.",
    "holdfast.cli.upkeep:doctor_command",
    """\
Reads the file only, unless --forget-key is given: that needs the file for itself, and checks nothing.

Exit code: 0 all is well, 1 there is a problem.""",
    (
        "holdfast doctor",
        "holdfast doctor --db sqlite:///holdfast-copy.db --json",
        "holdfast doctor --forget-key invoice-17",
    ),
    (),
    (
        Flag(
            "--forget-key",
            "Forget the answer of this global idempotency key: the next step that has it is done anew.",
            "KEY",
        ),
        *ON_A_FILE,
    ),
)
COMPLETION: Final = Command(
    "completion",
    "Print the script that lets a shell complete holdfast's words.",
    "holdfast.cli.completion:command",
    "holdfast --install-completion puts it where your shell looks.",
    ("holdfast completion bash", "source <(holdfast completion zsh)"),
    (Argument("SHELL", "bash, zsh or fish.", choices=SHELLS),),
    EVERY,
)
VERSION: Final = Command(
    "version", "Print the version.", "holdfast.cli.main:version_command", "", ("holdfast version",), (), EVERY
)

SHELVES: Final = {
    "Write and run": (INIT, RUN, VALIDATE, SCHEMA),
    "Look after runs": (RUNS_LIST, RUNS_SHOW, RUNS_EXPLAIN, RUNS_CANCEL, RUNS_RERUN),
    "Keep house": (BACKUP, DOCTOR, COMPLETION, VERSION),
}
COMMANDS: Final = {command.name: command for shelf in SHELVES.values() for command in shelf}
GROUPS: Final = {name.partition(" ")[0] for name in COMMANDS if " " in name}
