"""The name of a node among those that share a database on a server."""

from __future__ import annotations

import os
import re
import socket
from typing import Final
from urllib.parse import parse_qs, urlsplit

NODE_NAME_MAX: Final = 100


def node_name(url: str) -> str:
    """The name that the address gives (`?node=`), or the variable HOLDFAST_NODE, or that of the machine. Raises ValueError if it
    cannot be one."""
    given = parse_qs(urlsplit(url).query).get("node", [""])[0]
    name = given or os.environ.get("HOLDFAST_NODE") or socket.gethostname()
    if len(name) > NODE_NAME_MAX or not re.fullmatch(r"[\w.:@-]+", name):
        raise ValueError(
            f"{name[:NODE_NAME_MAX]!a} is no name for a node: use letters, digits and . : @ _ -, at most {NODE_NAME_MAX}"
        )
    return name
