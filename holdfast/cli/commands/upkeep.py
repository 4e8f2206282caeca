"""Commands to back up and check a database, and about the command line itself."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands.flags import (
    ARTEFACTS,
    EVERY,
    ON_A_FILE,
)
from holdfast.cli.parser import Argument, Command, Flag

SHELLS: Final = ("bash", "zsh", "fish")
BACKUP: Final = Command(
    "backup",
    "Copy the database into a new file, even while another process writes to it.",
    "holdfast.cli.upkeep:backup_command",
    """\
The copy is a consistent snapshot, is verified, and can be used as a database. An existing file is not overwritten.

A plain backup replaces the original when that is lost. To use a copy beside the original, make it with --as-copy: the copy
does not accept job tokens, callback URLs and approval links that the original issued.""",
    ("holdfast backup holdfast-copy.db", "holdfast backup trial.db --as-copy"),
    (Argument("FILE", "The file to write.", files="any"),),
    (
        ARTEFACTS,
        Flag("--as-copy", "Give the copy its own identity, so that it can be used beside the original."),
        *ON_A_FILE,
    ),
)
DOCTOR: Final = Command(
    "doctor",
    "Check the database and the machine.",
    "holdfast.cli.upkeep:doctor_command",
    """\
Only reads the database, unless --forget-key, --retry-run or --accept-loss is given. These check nothing, and all but
--retry-run need the database to themselves.

Exit code: 0 no problem found, 1 there is a problem.""",
    (
        "holdfast doctor",
        "holdfast doctor --db sqlite:///holdfast-copy.db --json",
        "holdfast doctor --db postgresql://holdfast@db.internal/holdfast --artefacts s3://orders/holdfast",
        "holdfast doctor --forget-key invoice-17",
    ),
    (),
    (
        ARTEFACTS,
        Flag(
            "--accept-loss",
            "Continue without acknowledged commits that are missing from the file, for example after restoring an older copy.",
        ),
        Flag(
            "--forget-key",
            "Forget the stored output of this global idempotency key: the next step with this key makes its call again.",
            "KEY",
        ),
        Flag(
            "--retry-run",
            "Retry a run that was quarantined because it crashed the process three times. A running server continues it at once.",
            "RUN_ID",
        ),
        *ON_A_FILE,
    ),
)
PROMOTE: Final = Command(
    "promote",
    "Move a database file to a PostgreSQL server, which several machines can share.",
    "holdfast.cli.promote:command",
    """\
Moves everything: workflows, runs with their waits and timers, schedules with their ledger, API keys, final callbacks and
artefacts. Callback URLs, approval links and job tokens stay valid. Stop the server first; the target must be empty.

If it is killed, repeat the same command: it goes on where it was. Until it has finished, neither database can be used; then
the file refuses to be opened and names the new address. --cancel gives up a move that has not finished.

Artefacts are copied to the folder that the node of the given address uses, so run the command where that node will run; or, with
--artefacts, to another folder or a bucket. With --artefacts and without --to only they are copied, and the database stays a file.""",
    (
        "holdfast promote --from sqlite:///holdfast.db --to postgresql://holdfast@db.internal/holdfast?node=a",
        "holdfast promote --to postgresql://holdfast@db.internal/holdfast --cancel",
        "holdfast promote --artefacts s3://orders/holdfast",
    ),
    (),
    (
        Flag("--from", "The database file. Default: sqlite:///holdfast.db.", "sqlite:///FILE"),
        Flag(
            "--to",
            "The server. Its password may be in PGPASSWORD or ~/.pgpass.",
            "postgresql://USER@HOST/DATABASE",
        ),
        ARTEFACTS,
        Flag(
            "--cancel",
            "Give up a move that has not finished: the server is emptied, and the file can be used again.",
        ),
        *EVERY,
    ),
)
COMPLETION: Final = Command(
    "completion",
    "Print the shell completion script.",
    "holdfast.cli.completion:command",
    "holdfast --install-completion installs it for your shell.",
    ("holdfast completion bash", "source <(holdfast completion zsh)"),
    (Argument("SHELL", "bash, zsh or fish.", choices=SHELLS),),
    EVERY,
)
VERSION: Final = Command(
    "version", "Print the version.", "holdfast.cli.main:version_command", "", ("holdfast version",), (), EVERY
)

COMMANDS: Final = (BACKUP, DOCTOR, PROMOTE, COMPLETION, VERSION)
