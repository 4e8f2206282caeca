"""What the address of a database on a server says of this node, and how it is shown: no message repeats a password.

postgresql://user:password@host,host/database?node=NAME&listen_dsn=…&password=…
"""

from __future__ import annotations

import os
import re
import socket
from typing import Final
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

NODE_NAME_MAX: Final = 100
HIDDEN: Final = "…"
_SECRETS: Final = re.compile(r"(?:(?<=&)|^)(password|listen_dsn)=([^&]*)")
_MAY_HAVE_AT: Final = re.compile(r"(?<=[?&])(host|listen_dsn|node|options|passfile|password|user)=[^&]*")


def node_name(url: str) -> str:
    """The name that the address gives (`?node=`), or the variable HOLDFAST_NODE, or that of the machine. Raises ValueError if it
    cannot be one."""
    given = parse_qs(split_address(url).query).get("node", [""])[0]
    name = given or os.environ.get("HOLDFAST_NODE") or socket.gethostname()
    if len(name) > NODE_NAME_MAX or not re.fullmatch(r"[\w.:@-]+", name):
        raise ValueError(
            f"{name[:NODE_NAME_MAX]!a} is no name for a node: use letters, digits and . : @ _ -, at most {NODE_NAME_MAX}"
        )
    return name


def split_address(url: str) -> SplitResult:
    """The parts of an address. Raises ValueError, which names none of them, if a password divides it in the wrong place."""
    scheme, _, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    beyond = _MAY_HAVE_AT.sub("", rest[len(authority) :])
    user = authority.rpartition("@")[0]
    if "@" in beyond or "#" in rest or set("@[]") & set(user) or (not user and _has_word_as_port(authority)):
        raise ValueError(
            f"the address {scheme}://{HIDDEN} cannot be read: in a user name or password, write / as %2F, ? as %3F, # as %23, @ as %40, "
            "[ as %5B and ] as %5D, or give the password in PGPASSWORD or ~/.pgpass; a port is a number"
        )
    return urlsplit(url)


def _has_word_as_port(hosts: str) -> bool:
    """Where / or ? of a password ends the hosts too soon, its beginning stands in the place of a port."""
    return any(not re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(:[0-9]*)?", host) for host in hosts.split(","))


def shown_address(url: str) -> str:
    """The address as it may be shown."""
    try:
        parts = split_address(url)
    except ValueError:
        return f"{url.partition('://')[0]}://{HIDDEN}"
    user, at, hosts = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    hidden = f"{name}{colon and ':' + HIDDEN}{at}{hosts}"
    query = f"?{_SECRETS.sub(_hidden, parts.query)}" if parts.query else ""
    return f"{parts.scheme}://{hidden}{parts.path}{query}"


def _hidden(found: re.Match[str]) -> str:
    name, value = found.groups()
    return f"{name}={HIDDEN if name == 'password' else quote(shown_address(unquote(value))).replace(quote(HIDDEN), HIDDEN)}"
