"""Commands to read, follow, cancel and rerun runs."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands.flags import (
    ARTEFACTS,
    EXIT_CODES,
    INPUTS,
    NETWORKS,
    ON_EITHER,
    ROOTS,
    RUN_ID,
    TOOLS,
    WAIT,
)
from holdfast.cli.parser import Argument, Command, Flag

STATUSES: Final = (
    "pending", "running", "waiting", "cancelling", "completed", "failed", "cancelled", "interrupted",
)  # fmt: skip

RUN_ID_OR_FILTER: Final = Argument(RUN_ID.metavar, f"{RUN_ID.help} Not needed with a filter.", required=False)
FILTER: Final = (
    Flag("--status", "Only runs with this status.", "STATUS", choices=STATUSES),
    Flag("--workflow", "Only runs of this workflow.", "NAME"),
    Flag("--label", "Only runs with this label, or with this value of it.", "NAME[=VALUE]"),
)
YES: Final = Flag("--yes", "With a filter: do not ask.")

RUNS_LIST: Final = Command(
    "runs list",
    "List runs, newest first.",
    "holdfast.cli.runs:list_command",
    "Asks the server that owns the database, or reads the database file, even while another process uses it.",
    ("holdfast runs list", "holdfast runs list --status failed --workflow hello --label team=x"),
    (),
    (
        *FILTER,
        Flag("--limit", "Maximum number of runs, up to 500. Default: 20.", "N"),
        Flag("--cursor", "Continue an earlier list: the cursor printed at its end.", "CURSOR"),
        *ON_EITHER,
    ),
)
RUNS_SHOW: Final = Command(
    "runs show",
    "Show a run and its steps, with states, attempts, times, outputs and errors.",
    "holdfast.cli.runs:show_command",
    "Asks the server that owns the database, or reads the database file, even while another process uses it.",
    ("holdfast runs show 0199f3c4-…", "holdfast runs show 5d1e --all-steps --json"),
    (RUN_ID,),
    (
        Flag("--all-steps", "Show every step, including those inside loops and branches."),
        Flag("--trace", "Show where the tools of failed attempts raised their exceptions."),
        *ON_EITHER,
    ),
)
RUNS_LOGS: Final = Command(
    "runs logs",
    "Print the log lines of a run, or of one of its steps.",
    "holdfast.cli.run_logs:command",
    """\
These are the lines that tools write with context.log and with Python's logging, what isolated tools print, and the traceback of
each attempt that raised an exception. An attempt keeps 1,000 lines or 64 KiB.""",
    ("holdfast runs logs last", "holdfast runs logs 5d1e send --follow"),
    (RUN_ID, Argument("STEP", "Only this step, by its path, and the steps inside it.", required=False)),
    (Flag("--follow", "Print new lines until the run ends.", short="-f"), *ON_EITHER),
)
RUNS_EXPLAIN: Final = Command(
    "runs explain",
    "Explain why a run makes no progress: what each open step waits for, and what would unblock it.",
    "holdfast.cli.runs:explain_command",
    "Asks the server that owns the database, or reads the database file, even while another process uses it.",
    ("holdfast runs explain 0199f3c4-…",),
    (RUN_ID,),
    ON_EITHER,
)
RUNS_CANCEL: Final = Command(
    "runs cancel",
    "Cancel a run, or all runs of a filter, at the server that executes them or in a database that no process is using.",
    "holdfast.cli.runs:cancel_command",
    "No new step starts, calls in progress are asked to stop, and the run ends as cancelled. This is durable when\nthe command returns. With a filter it asks first; --preview only lists the runs.",
    (
        "holdfast runs cancel 0199f3c4-…",
        'holdfast runs cancel 5d1e --reason "wrong inputs"',
        "holdfast runs cancel --workflow order --status waiting --preview",
    ),
    (RUN_ID_OR_FILTER,),
    (
        Flag("--reason", "The reason, stored with the run.", "TEXT"),
        *FILTER,
        Flag("--preview", "With a filter: only list the runs."),
        YES,
        *ON_EITHER,
    ),
)
RUNS_WATCH: Final = Command(
    "runs watch",
    "Follow a run live until it ends, or follow the events of all runs.",
    "holdfast.cli.watch:command",
    f"""\
For one run it prints the same as holdfast run, from the start of the run; stopping this command does not affect the run.
Without a run it prints one line per event of all runs, from now on. --json prints each event as a line of JSON.

{EXIT_CODES}""",
    ("holdfast runs watch 0199f3c4-…", "holdfast runs watch last", "holdfast runs watch --json"),
    (Argument(RUN_ID.metavar, f"{RUN_ID.help} Default: all runs.", required=False),),
    (Flag("--all-steps", "Show every step, not only top-level and failed ones."), *ON_EITHER),
)
RUNS_RERUN: Final = Command(
    "runs rerun",
    "Rerun a finished run as a new run: from the start, from a step, or only what failed; or all runs of a filter.",
    "holdfast.cli.runs:rerun_command",
    f"""\
The new run has the same definition, and the same inputs unless -i changes some. With --from it starts at that step and
takes over the outputs of the steps before it. With --failed it repeats the steps and items that failed, and the steps after
them. Name a step inside another step by its path, as runs show --all-steps prints it. With a filter, the server reruns every
finished run that matches; the command asks first, and does not wait for the new runs.

{EXIT_CODES}""",
    (
        "holdfast runs rerun 0199f3c4-… --tools tools",
        "holdfast runs rerun 5d1e --from send --tools tools",
        "holdfast runs rerun 5d1e --from 'loop[3].send' --preview",
        "holdfast runs rerun 5d1e --failed -i retries=5 --tools tools",
        "holdfast runs rerun --workflow order --status failed --failed --preview",
    ),
    (RUN_ID_OR_FILTER,),
    (
        *FILTER,
        YES,
        Flag(
            "--from",
            "Start at this step, or at this item of a foreach, and take over the rest. May be repeated.",
            "STEP",
            many=True,
        ),
        Flag(
            "--failed",
            "Repeat what failed, and take over the rest; with --from, only what failed inside that step.",
        ),
        *INPUTS,
        Flag("--preview", "Only print which steps would run, or with a filter which runs would be rerun."),
        TOOLS,
        NETWORKS,
        ARTEFACTS,
        ROOTS,
        WAIT,
        Flag("--all-steps", "Show every step, not only top-level and failed ones."),
        *ON_EITHER,
    ),
)

RUNS_PULSE: Final = Command(
    "runs pulse",
    "Count runs over time: started, ended by status, and how long they took.",
    "holdfast.cli.figures:pulse_command",
    "The last 24 hours, unless --from says otherwise. Runs that were deleted since are counted too.",
    ("holdfast runs pulse", "holdfast runs pulse --workflow order --from 2026-11-01T00:00:00Z --buckets 30"),
    (),
    (
        Flag("--workflow", "Only runs of this workflow.", "NAME"),
        Flag("--from", "The beginning, for example 2026-11-01T00:00:00Z.", "TIME"),
        Flag("--to", "The end. Default: now.", "TIME"),
        Flag("--buckets", "Maximum number of rows, up to 500. Default: 24.", "N"),
        *ON_EITHER,
    ),
)

COMMANDS: Final = (
    RUNS_LIST,
    RUNS_SHOW,
    RUNS_WATCH,
    RUNS_LOGS,
    RUNS_EXPLAIN,
    RUNS_CANCEL,
    RUNS_RERUN,
    RUNS_PULSE,
)
