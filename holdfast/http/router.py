"""Finds the route of a path. Knows paths and methods, not what a route does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar
from urllib.parse import unquote

from holdfast.errors import InvalidRequest
from holdfast.http.table import Route

R = TypeVar("R")
Methods = Mapping[str, R]
NOTHING: Final[Mapping[str, str]] = {}


class Router(Generic[R]):
    """`/runs/{id}` matches any text in place of the braces; a literal segment takes precedence."""

    def __init__(self, routes: Iterable[tuple[Route, R]]) -> None:
        by_path: dict[str, dict[str, R]] = {}
        for route, ready in routes:
            methods = by_path.setdefault(route.path, {})
            assert route.method not in methods, f"two routes are {route.method} {route.path}"
            methods[route.method] = ready
        self._plain = {path: methods for path, methods in by_path.items() if "{" not in path}
        shaped = [(path.split("/"), methods) for path, methods in by_path.items() if "{" in path]
        shaped.sort(key=lambda entry: [part.startswith("{") for part in entry[0]])
        self._shaped: dict[int, list[tuple[list[str], Methods[R]]]] = {}
        for parts, methods in shaped:
            self._shaped.setdefault(len(parts), []).append((parts, methods))

    def find(self, raw_path: bytes) -> tuple[Methods[R], Mapping[str, str]] | None:
        """Return the methods of a path and its parameters. The path is still percent-encoded, because a name may contain %2F."""
        path = raw_path.decode("latin-1")
        plain = self._plain.get(path)
        if plain is not None:
            return plain, NOTHING
        given = path.split("/")
        candidates = self._shaped.get(len(given))
        if candidates is None:
            return None
        given = [_unquoted(part) for part in given]
        for parts, methods in candidates:
            if all(
                part == one or (part.startswith("{") and one) for part, one in zip(parts, given, strict=True)
            ):
                pairs = zip(parts, given, strict=True)
                return methods, {part[1:-1]: one for part, one in pairs if part.startswith("{")}
        return None


def _unquoted(part: str) -> str:
    if "%" not in part:
        return part
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{part[:100]!a} in the address is not UTF-8") from None
