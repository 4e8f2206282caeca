"""What `module` or `module:object` refers to, or a clear error. Importing runs the user's code, which may do anything."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.errors import NotFound


def resolved(reference: str, what: str) -> tuple[ModuleType, list[Any] | None]:
    """The module, and the objects that the named object is or lists; None if no object is named. `what` is the word
    for them in errors."""
    module_name, _, name = reference.partition(":")
    _refuse_path(reference, module_name, what)
    module = _imported(module_name, what)
    if not name:
        return module, None
    if not hasattr(module, name):
        from holdfast.nearest import did_you_mean

        hint = did_you_mean(name, [known for known in vars(module) if not known.startswith("_")])
        raise NotFound(f"module {module_name!r} has no {name!r}" + (f"; {hint}" if hint else ""))
    one = getattr(module, name)
    return module, list(one) if isinstance(one, list | tuple) else [one]


def why(error: BaseException) -> str:
    """Describe an error, with the line of the user's code."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    frames = [at for at in traceback.extract_tb(error.__traceback__) if not at.filename.startswith("<frozen")]
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _refuse_path(reference: str, module_name: str, what: str) -> None:
    if "/" in module_name or "\\" in module_name or module_name.endswith(".py"):
        path = Path(module_name.removesuffix(".py"))
        inside = not path.is_absolute() and ".." not in path.parts
        meant = (".".join(path.parts) if inside else path.name) + reference.removeprefix(module_name)
        where = "" if inside else f" in the folder {path.parent}, or with that folder in PYTHONPATH"
        raise NotFound(f"{reference!r} is a path, and {what} are loaded from a module: write {meant}{where}")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise NotFound(f"{reference!r} names no module: {what} are given as module or module:object")


def _imported(module_name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise NotFound(
                f"no module {module_name!r} to load {what} from; is it in this folder, or in PYTHONPATH?"
            ) from None
        raise NotFound(f"cannot load {what} from {module_name!r}: {why(error)}") from error
    except (Exception, SystemExit) as error:
        raise NotFound(f"cannot load {what} from {module_name!r}: {why(error)}") from error
