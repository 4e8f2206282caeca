"""Which process executes a run that this command starts, and with which code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.render import instant, ms_of
from holdfast.cli.server import Server
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.sdk.client import Client


async def executor_lines(client: Client, server: Server, *, has_tools: bool) -> list[str]:
    """Sentences for the person: the tools of this folder are not those that the run uses."""
    unused = "; --tools is not used" if has_tools else ""
    if server.kind == "program":
        return [
            f"process {server.pid}, which has the database open, executes the run with its own tools{unused}"
        ]
    said = f"the server at {server.address} executes the run with its own tools"
    try:
        node = (await client.nodes()).items[0]
    except (
        HoldfastError,
        IndexError,
    ):  # the key may not ask, or the server is of another release: the start will say more
        return [f"{said}{unused}"]
    files = f" from {', '.join(node.code_files)}" if node.code_files else ""
    lines = [f"{said}, loaded {instant(ms_of(node.since))}{files}{unused}"]
    if node.changed_files:
        lines.append(
            f"{', '.join(node.changed_files)} changed after that: the server uses the new code after a restart, and with"
            " --reload as soon as it can be loaded"
        )
    return lines
