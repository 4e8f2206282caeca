"""JSON Patch (RFC 6902): the changes that repair a definition, and how they are applied to data.

Knows data and pointers. Must not know what any key means.

A patch that is offered for one problem should still apply after the patches of other problems. So entries of a list are
replaced together with their list where possible: removing one would move the entries after it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from holdfast.spec.document import Key, pointer_to

Operation: TypeAlias = dict[str, Any]
Patch: TypeAlias = tuple[Operation, ...]
Where: TypeAlias = tuple[Key, ...]

NO_PATCH: Final[Patch] = ()


class PatchError(ValueError):
    """A patch does not fit the data that it was applied to."""


# ------------------------------------------------------------------------------------------------ making a patch


def put(at: Where, value: Any) -> Patch:
    """Set a member of a mapping, or replace the whole document. In RFC 6902 `add` replaces a member that exists."""
    return ({"op": "add" if at else "replace", "path": pointer_to(at), "value": value},)


def replace(at: Where, value: Any) -> Patch:
    """Replace a value that exists: also an element of a list, which `add` would move."""
    return ({"op": "replace", "path": pointer_to(at), "value": value},)


def drop(at: Where) -> Patch:
    return ({"op": "remove", "path": pointer_to(at)},)


def rename(at: Where, old: str, new: str) -> Patch:
    """Give a member of the mapping at `at` another name."""
    return ({"op": "move", "from": pointer_to((*at, old)), "path": pointer_to((*at, new))},)


def move(source: Where, target: Where) -> Patch:
    return ({"op": "move", "from": pointer_to(source), "path": pointer_to(target)},)


# ---------------------------------------------------------------------------------------------- applying a patch


def applied(data: Any, patch: Iterable[Mapping[str, Any]]) -> Any:
    """The data with a patch applied, as a copy; raises PatchError, and then nothing has changed."""
    changed = copy.deepcopy(data)
    for operation in patch:
        changed = _apply(changed, operation)
    return changed


def shifts_a_list(data: Any, patch: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the patch renumbers other entries of a list, so that pointers to them are out of date."""
    for operation in patch:
        for word in ("path", "from"):
            if operation["op"] != "replace" and word in operation:
                *parents, _ = _parts(operation[word]) or [""]
                if isinstance(_found(data, parents, quietly=True), list):
                    return True
    return False


def _apply(data: Any, operation: Mapping[str, Any]) -> Any:
    op, path = operation.get("op"), _parts(operation.get("path"))
    match op:
        case "add":
            return _added(data, path, operation.get("value"))
        case "remove":
            _taken(data, path)
            return data
        case "replace":
            return _replaced(data, path, operation.get("value"))
        case "move":
            return _moved(data, _parts(operation.get("from")), path)
        case "copy":
            value = copy.deepcopy(_found(data, _parts(operation.get("from"))))
            return _added(data, path, value)
        case "test":
            if _found(data, path) != operation.get("value"):
                raise PatchError(f"the value at {operation.get('path')!r} is another one")
            return data
        case _:
            pass
    raise PatchError(f"unknown operation {op!r}")


def _parts(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise PatchError(f"{pointer!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _found(data: Any, path: list[str], *, quietly: bool = False) -> Any:
    for part in path:
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, list) and (index := _index(part, len(data) - 1)) is not None:
            data = data[index]
        elif quietly:
            return None
        else:
            raise PatchError(f"there is no {part!r} to change")
    return data


def _index(part: str, last: int) -> int | None:
    is_number = part.isascii() and part.isdigit() and (part == "0" or part[0] != "0") and len(part) < 10
    return int(part) if is_number and int(part) <= last else None


def _added(data: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _found(data, path[:-1])
    if isinstance(parent, dict):
        parent[path[-1]] = value
    elif isinstance(parent, list):
        index = len(parent) if path[-1] == "-" else _index(path[-1], len(parent))
        if index is None:
            raise PatchError(f"there is no place {path[-1]!r} in the list")
        parent.insert(index, value)
    else:
        raise PatchError(f"{path[-1]!r} cannot be added to a single value")
    return data


def _replaced(data: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    _found(data, path)
    parent: Any = _found(data, path[:-1])
    parent[int(path[-1]) if isinstance(parent, list) else path[-1]] = value
    return data


def _taken(data: Any, path: list[str]) -> Any:
    if not path:
        raise PatchError("the whole document cannot be removed")
    _found(data, path)
    parent: Any = _found(data, path[:-1])
    return parent.pop(int(path[-1]) if isinstance(parent, list) else path[-1])


def _moved(data: Any, source: list[str], target: list[str]) -> Any:
    parent = _found(data, source[:-1])
    if source[:-1] == target[:-1] and isinstance(parent, dict):
        _rename(parent, source[-1], target[-1])
        return data
    if target[: len(source)] == source:
        raise PatchError("a value cannot be moved into itself")
    return _added(data, target, _taken(data, source))


def _rename(mapping: dict[str, Any], old: str, new: str) -> None:
    """Rename a member in place, because people rely on the order of keys."""
    if old not in mapping:
        raise PatchError(f"there is no {old!r} to change")
    members = [
        (new if key == old else key, value)
        for key, value in mapping.items()
        if key in (old, new) or key != new
    ]
    members = [(key, value) for key, value in members if key != new or value is mapping[old]]
    mapping.clear()
    mapping.update(members)
