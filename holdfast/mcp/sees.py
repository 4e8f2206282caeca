"""Which workflows a caller may see: those that its API key names, or all of them."""

from __future__ import annotations

from holdfast.api.principal import Principal
from holdfast.mcp.offers import Sees
from holdfast.mcp.talk import Talk


def sees_of(talk: Talk) -> Sees:
    return sees_by(talk.caller.principal)


def sees_by(principal: Principal) -> Sees:
    return principal.rights.sees
