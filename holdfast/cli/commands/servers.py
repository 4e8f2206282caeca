"""Commands that start a server, a worker or a demo, and that list them."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands.flags import (
    ARTEFACTS,
    EVERY,
    NETWORKS,
    ON_A_FILE,
    ON_EITHER,
    PLUGINS,
    ROOTS,
    SERVER,
    TOOLS,
)
from holdfast.cli.parser import Argument, Command, Flag

UP: Final = Command(
    "up",
    "Start the server: it executes every open run in the database and serves the HTTP API.",
    "holdfast.cli.up:command",
    """\
On a loopback address and without any API key, every user of this machine may do everything (local mode). Once a key exists,
every request needs one; on any other address a key must exist (guarded mode). Ctrl-C stops gracefully: nothing is lost.""",
    (
        "holdfast up --tools tools --flows flows --schedules schedules",
        "holdfast up --tools tools --reload",
        "holdfast up --port 8071 --db sqlite:///other.db",
        "holdfast up --demo",
    ),
    (),
    (
        Flag("--host", "The address to listen on. Default: 127.0.0.1.", "HOST"),
        Flag("--port", "The port to listen on; 0 picks a free one. Default: 8070.", "PORT"),
        TOOLS,
        PLUGINS,
        Flag("--flows", "Publish the definitions in this folder, now and whenever a file changes.", "DIR"),
        Flag(
            "--schedules",
            "Fire the schedules in the schedule files of this folder; read again whenever a file changes.",
            "DIR",
        ),
        Flag(
            "--skills",
            "Publish the workflows of the skills in this folder as SKILL::NAME, and fire their schedules.",
            "DIR",
        ),
        Flag("--public-url", "The address at which clients reach this server.", "URL"),
        NETWORKS,
        ARTEFACTS,
        ROOTS,
        Flag(
            "--reload",
            "Restart the server with the new code whenever a file of the tools or plugins changes; the port stays open.",
        ),
        Flag("--demo", "Also run a demo worker with the services transform, sum and route."),
        Flag("--quiet", "Log only warnings and failed runs, not every run that starts and ends."),
        Flag(
            "--log-level",
            "The least level of log lines: debug, info, warning or error.",
            "LEVEL",
            choices=("debug", "info", "warning", "error"),
        ),
        *ON_A_FILE,
    ),
)
MCP: Final = Command(
    "mcp",
    "Speak MCP on standard input and output, for agents that start their servers themselves.",
    "holdfast.cli.mcp:command",
    """\
If a server owns the database, or --server names one, this command is a client of it. Otherwise it serves the database itself
while it runs, and other commands find it. Workflows are published by --flows, or by holdfast flows publish. A server speaks MCP
over HTTP at /mcp.""",
    (
        "holdfast mcp --flows flows --tools tools",
        "holdfast mcp --server http://127.0.0.1:8070",
    ),
    (),
    (
        SERVER,
        TOOLS,
        Flag("--flows", "Publish the definitions in this folder, now and whenever a file changes.", "DIR"),
        Flag(
            "--skills",
            "Publish the workflows of the skills in this folder as SKILL::NAME, and fire their schedules.",
            "DIR",
        ),
        NETWORKS,
        ARTEFACTS,
        ROOTS,
        *ON_A_FILE,
    ),
)
WORKER: Final = Command(
    "worker",
    "Run a worker: provide the tools of a module as services to a server.",
    "holdfast.cli.worker:command",
    """\
The server calls the worker at its URL; with --pull the worker fetches its jobs instead, and the server need not be able to
reach it. The worker retries its registration until it succeeds, and registers again when the server has forgotten it. On
Ctrl-C or SIGTERM it finishes its current calls, for up to 30 seconds. REGISTRY_URL and WORKER_URL are used if --server and
--url are not given.""",
    (
        "holdfast worker tools --server http://127.0.0.1:8070",
        "holdfast worker tools --pull --concurrency 4",
        "holdfast worker holdfast.sdk.demo",
    ),
    (Argument("MODULE", "The tools: a module, or module:object.", required=False, many=True),),
    (
        SERVER,
        Flag("--tools", "The same as MODULE, as the other commands have it.", "MODULE", many=True),
        Flag("--pull", "Fetch jobs instead of being called."),
        Flag(
            "--url", "The URL at which the server reaches the worker. Default: http://localhost:8080.", "URL"
        ),
        Flag("--id", "The worker's id. Default: worker- and a number.", "NAME"),
        Flag("--concurrency", "Maximum number of calls at the same time. Default: 32.", "N"),
        *EVERY,
    ),
)
DEMO: Final = Command(
    "demo",
    "Run two tasks of a small graph with a server and a worker, and show what each node did.",
    "holdfast.cli.demo:command",
    "Uses the server given by --server, or the one on port 8070; if there is none, it starts a temporary one.",
    ("holdfast demo", "holdfast demo --server http://127.0.0.1:8070 --json"),
    (),
    (SERVER, *EVERY),
)
NODES: Final = Command(
    "nodes",
    "List the engine processes of a server.",
    "holdfast.cli.nodes:command",
    "Shows the name, epoch, address, version, start time, number of runs in memory and state of each.",
    ("holdfast nodes", "holdfast nodes --server http://127.0.0.1:8070 --json"),
    (),
    ON_EITHER,
)
WORKERS: Final = Command(
    "workers",
    "List the services of a server: their workers, and the calls that wait for one.",
    "holdfast.cli.workers:command",
    """\
A step whose service has no worker waits for one, until its timeout or that of its run. This list says since when a service has
no worker, how many calls wait for it, and how to start one.""",
    ("holdfast workers", "holdfast workers --server http://127.0.0.1:8070 --json"),
    (),
    ON_EITHER,
)

COMMANDS: Final = (UP, MCP, WORKER, WORKERS, NODES, DEMO)
