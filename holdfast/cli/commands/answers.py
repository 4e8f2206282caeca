"""Commands that give a waiting run what it waits for."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands.flags import (
    ON_EITHER,
    RUN_ID,
)
from holdfast.cli.parser import Argument, Command, Flag

APPROVE: Final = Command(
    "approve",
    "Answer an approval that a run waits for, or create a link that lets another person answer it.",
    "holdfast.cli.answers:approve_command",
    """\
The answer goes to the server that executes the run, or into a database that no process is using; in that case continue the
run with holdfast run --continue. When the command returns, the answer is on disk. Once the approval is decided, later
answers are refused.""",
    (
        "holdfast approve 0199f3c4-…",
        'holdfast approve 5d1e gate --deny --reason "too dear"',
        "holdfast approve last gate --form '{\"amount\": 7}' --by ada",
        "holdfast approve last gate --link --by ada",
    ),
    (
        Argument(
            RUN_ID.metavar, "The run: its id, the start or end of the id, or last (the newest open run)."
        ),
        Argument(
            "PATH", "The step that waits for approval. Not needed if there is only one.", required=False
        ),
    ),
    (
        Flag("--deny", "Deny instead of approving."),
        Flag("--reason", "The reason, stored with the run.", "TEXT"),
        Flag("--form", "The values of the form, as JSON, or @FILE.", "JSON"),
        Flag("--by", "The name of the approver. Default: the name of the API key.", "NAME"),
        Flag("--link", "Do not answer; print a link with which anyone who has it can answer once."),
        *ON_EITHER,
    ),
)
SIGNAL: Final = Command(
    "signal",
    "Send a signal to a run: the step that waits for it continues, now or when it is reached.",
    "holdfast.cli.answers:signal_command",
    """\
In a graph the signal is written to shared state, and waiting nodes check their conditions again. When the command returns,
the signal is on disk. If no process is using the database, continue the run with holdfast run --continue.""",
    (
        "holdfast signal 0199f3c4-… paid",
        "holdfast signal last paid '{\"amount\": 7}' --correlation order-7",
    ),
    (
        Argument(
            RUN_ID.metavar, "The run: its id, the start or end of the id, or last (the newest open run)."
        ),
        Argument("KEY", "The name of the signal."),
        Argument(
            "VALUE",
            "The value, parsed as JSON if it is valid JSON, otherwise taken as text. Default: null.",
            required=False,
        ),
    ),
    (
        Flag("--correlation", "Deliver it only to a step that waits with this correlation value.", "TEXT"),
        *ON_EITHER,
    ),
)
RESUME: Final = Command(
    "resume",
    "Deliver the result of a call that returned pending.",
    "holdfast.cli.answers:resume_command",
    """\
The result becomes the output of the step that waits for the task. A result that arrives before the step waits is kept for a
day; a second result changes nothing. To continue a stopped run, use holdfast run --continue instead.

Exit code: 0 delivered (now or earlier) or kept; 1 no step waits for it, or the wait has expired.""",
    (
        'holdfast resume T9 --result \'{"success": true, "data": {}}\'',
        "holdfast resume T9 --result @answer.json --run 5d1e",
        'holdfast resume T9 --error "no such wiki"',
    ),
    (Argument("TASK_ID", "The task id that the call returned."),),
    (
        Flag("--result", "The result, as JSON, or @FILE.", "JSON"),
        Flag("--error", "Report a failure with this message: the step fails or is retried.", "TEXT"),
        Flag("--run", "The run, if several wait for this task id.", "RUN_ID"),
        *ON_EITHER,
    ),
)

COMMANDS: Final = (APPROVE, SIGNAL, RESUME)
