"""Finds the route of a path. Knows paths and methods, not what a route does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar
from urllib.parse import unquote

from holdfast.errors import InvalidRequest
from holdfast.http.table import Route

R = TypeVar("R")
Methods = Mapping[str, R]
_Shaped = tuple[Methods[R], tuple[str, ...]]  # with the names of its parameters
NOTHING: Final[Mapping[str, str]] = {}
ANYTHING: Final = "{}"


class Router(Generic[R]):
    """`/runs/{id}` matches any text in place of the braces; a literal segment takes precedence."""

    def __init__(self, routes: Iterable[tuple[Route, R]]) -> None:
        by_path: dict[str, dict[str, R]] = {}
        for route, ready in routes:
            methods = by_path.setdefault(route.path, {})
            assert route.method not in methods, f"two routes are {route.method} {route.path}"
            methods[route.method] = ready
        self._plain = {path: methods for path, methods in by_path.items() if "{" not in path}
        # By the number of segments: which of them are parameters, and the routes of which this is true.
        self._shaped: dict[int, dict[tuple[int, ...], dict[tuple[str, ...], _Shaped[R]]]] = {}
        shaped = [(path.split("/"), methods) for path, methods in by_path.items() if "{" in path]
        shaped.sort(key=lambda entry: [part.startswith("{") for part in entry[0]])
        for parts, methods in shaped:
            places = tuple(at for at, part in enumerate(parts) if part.startswith("{"))
            shape = tuple(ANYTHING if part.startswith("{") else part for part in parts)
            names = tuple(parts[at][1:-1] for at in places)
            self._shaped.setdefault(len(parts), {}).setdefault(places, {})[shape] = methods, names

    def find(self, raw_path: bytes) -> tuple[Methods[R], Mapping[str, str]] | None:
        """Return the methods of a path and its parameters. The path is still percent-encoded, because a name may contain %2F."""
        path = raw_path.decode("latin-1")
        plain = self._plain.get(path)
        if plain is not None:
            return plain, NOTHING
        given = path.split("/")
        shaped = self._shaped.get(len(given))
        if shaped is None:
            return None
        if "%" in path:
            given = [_unquoted(part) for part in given]
        for places, shapes in shaped.items():
            shape = given.copy()
            for at in places:
                shape[at] = ANYTHING
            found = shapes.get(tuple(shape))
            if found is not None:
                methods, names = found
                values = [given[at] for at in places]
                if "" not in values:
                    return methods, dict(zip(names, values, strict=True))
        return None


def _unquoted(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{part[:100]!a} in the address is not UTF-8") from None
