"""Commands for API keys."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands.flags import (
    ON_EITHER,
)
from holdfast.cli.parser import Argument, Command, Flag

SCOPES: Final = ("read", "run", "approve", "resume", "worker", "admin")
TENANT: Final = Flag(
    "--tenant", "The tenant of the keys. Default: the tenant of your own key, or the tenant default.", "NAME"
)
KEYS_CREATE: Final = Command(
    "keys create",
    "Create an API key. It is shown once, on standard output.",
    "holdfast.cli.keys:create_command",
    """\
As soon as the first key exists, every request to the server needs a key, even if all keys are revoked later. Send it as
`Authorization: Bearer …`, or put it into HOLDFAST_API_KEY for holdfast's own commands.

Scopes: read for queries; run to start, cancel and rerun runs and to publish workflows; approve to answer approvals; resume to
deliver callbacks; worker for workers; admin for everything.""",
    (
        "holdfast keys create me --scope admin",
        "holdfast keys create ci --scope run --scope read --tenant acme --expires-days 90",
        "holdfast keys create gpu-box --scope worker --service render",
        "holdfast keys create agent --scope run --scope read --tools echo --tools 'mail/*' --workflows 'report_*'",
    ),
    (Argument("NAME", "A name for the key."),),
    (
        Flag("--scope", "A scope of the key. May be repeated.", "SCOPE", many=True, choices=SCOPES),
        Flag("--service", "For a worker: limit the key to this service. May be repeated.", "NAME", many=True),
        Flag(
            "--tools",
            "Limit the definitions of the key's holder to this tool or service. A pattern such as `mail/*` names several. May be repeated.",
            "NAME",
            many=True,
        ),
        Flag(
            "--workflows",
            "Limit the key to this published workflow, or to those that fit a pattern. May be repeated.",
            "NAME",
            many=True,
        ),
        Flag("--skip-gate", "Definitions of the key's holder need no approval before destructive tools."),
        Flag("--expires-days", "The key expires after this many days. Default: never.", "N"),
        TENANT,
        *ON_EITHER,
    ),
)
KEYS_LIST: Final = Command(
    "keys list",
    "List API keys with their scopes, last use and state.",
    "holdfast.cli.keys:list_command",
    "The keys themselves are not stored, only their hashes.",
    ("holdfast keys list", "holdfast keys list --tenant acme --json"),
    (),
    (TENANT, *ON_EITHER),
)
KEYS_REVOKE: Final = Command(
    "keys revoke",
    "Revoke an API key, at once and permanently.",
    "holdfast.cli.keys:revoke_command",
    "",
    ("holdfast keys revoke key-5f0c8d1e2b3a4956",),
    (Argument("KEY_ID", "The key's id, as holdfast keys list shows it."),),
    (TENANT, *ON_EITHER),
)

COMMANDS: Final = (KEYS_CREATE, KEYS_LIST, KEYS_REVOKE)
