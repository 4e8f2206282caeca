"""Flags and arguments that several commands take."""

from __future__ import annotations

from typing import Final

from holdfast.cli.parser import Argument, Flag

JSON: Final = Flag("--json", "Print only JSON on standard output.")
LOG: Final = Flag("--log", "Format of log lines: json or text.", "FORMAT", choices=("json", "text"))
HELP: Final = Flag("--help", "Show this help.", short="-h")
DB: Final = Flag("--db", "The database. Default: sqlite:///holdfast.db.", "sqlite:///FILE")
TOOLS: Final = Flag("--tools", "The tools: a module, or module:object. May be repeated.", "MODULE", many=True)
PLUGINS: Final = Flag(
    "--plugins",
    "The scheduled plugins: a module, module:object, or a file NAME.wasm. May be repeated.",
    "MODULE",
    many=True,
)
NETWORKS: Final = Flag(
    "--allow-networks",
    "Allow outgoing calls only to public addresses and this private network. May be repeated.",
    "CIDR",
    many=True,
)
ARTEFACTS: Final = Flag(
    "--artefacts",
    "Where files of runs are stored: a folder, or a bucket that all nodes share. Default: a folder beside the database.",
    "DIR|s3://BUCKET/PREFIX",
)
ROOTS: Final = Flag(
    "--artefact-root",
    "A folder from which tools may return files, besides the attempt's own work folder. May be repeated.",
    "DIR",
    many=True,
)
SERVER: Final = Flag(
    "--server",
    "The server to use. Default: the server that owns the database, or the database file itself.",
    "URL",
)
WAIT: Final = Flag(
    "--wait",
    "How long to wait while another process has the database open; 0 exits at once. Default: 600.",
    "SECS",
)
RUN_ID: Final = Argument("RUN_ID", "The run: its id, the start or end of the id, or last.")
EVERY: Final = (JSON, LOG, HELP)
ON_A_FILE: Final = (DB, *EVERY)
ON_EITHER: Final = (SERVER, DB, *EVERY)
EXIT_CODES: Final = """\
Exit code: 0 completed, 1 failed or interrupted, 2 invalid or wrong usage, 3 cancelled, 4 waiting for something external;
129, 130, 143 stopped by a signal."""
INPUTS: Final = (
    Flag(
        "--input",
        "One input, parsed as JSON if it is valid JSON, otherwise taken as text. May be repeated.",
        "NAME=VALUE",
        "-i",
        many=True,
    ),
    Flag("--inputs", "All inputs as a JSON object, or @FILE.", "JSON"),
)
