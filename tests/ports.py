"""Ports for servers that have to come back at the same address, or where nobody may listen."""

from __future__ import annotations

import socket
import sys


def free_port() -> int:
    """A port that nobody else is given for as long as this process lives, however often a server of ours ends there.

    A socket that is bound and does not listen keeps it. Linux lets a server listen beside it, since both say
    SO_REUSEADDR; elsewhere the port is only free at this moment.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = int(holder.getsockname()[1])
        if sys.platform == "linux":
            holder.detach()
        return port
