"""`python -m tests.sim.hunt BUG SEED…`: look for a planted bug with some seeds, in a process that has the product.

The code of the functions that the bug changes is replaced in place, so that a process that has imported the product can be
forked for each bug: to import a patched copy takes most hunts ten times as long as to find the bug. Prints the failures as
JSON, or null for a bug that changes something else than functions, which needs a process of its own.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tests.sim import planted
from tests.sim.campaign import run_seeds


def plant(bug: planted.Bug) -> bool:
    """Give the functions of a module the code that they have with the bug, if the bug is in functions alone."""
    if not bug.file.endswith(".py"):
        return False
    module = import_module("holdfast." + bug.file.removesuffix(".py").replace("/", "."))
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    right, wrong = (_functions(compile(ast.parse(text), str(module.__file__), "exec"))
                    for text in (source, source.replace(bug.old, bug.new)))  # fmt: skip
    changed = {
        name for name in right.keys() | wrong.keys() if _same(right.get(name)) != _same(wrong.get(name))
    }
    found = [each for each in _live(module) if each.__code__.co_qualname in changed]
    if not changed or changed != {each.__code__.co_qualname for each in found}:
        return False
    for each in found:
        each.__code__ = wrong[each.__code__.co_qualname]
    return True


def _functions(code: CodeType) -> dict[str, CodeType]:
    """The outermost functions within a module by their names, and what is left of the module and its classes."""
    found = {code.co_qualname: code}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            is_class = not each.co_flags & CO_NEWLOCALS
            found |= _functions(each) if is_class else {each.co_qualname: each}
    return found


def _same(code: CodeType | None) -> Any:
    """What two pieces of code have in common that differ in their lines at most."""
    if code is None:
        return None
    is_body = not code.co_flags & CO_NEWLOCALS
    consts = [
        ("code", None if is_body else _same(each)) if isinstance(each, CodeType) else (type(each), each)
        for each in code.co_consts
    ]
    return code.co_code, code.co_names, code.co_varnames, code.co_exceptiontable, consts


def _live(module: ModuleType) -> Iterator[FunctionType]:
    """The functions of a module and the methods of its classes, also those within a decorator.

    Not by asking the collector for all objects: that touches, and so copies, the memory that is shared with the other forks.
    """
    for each in vars(module).values():
        is_class = isinstance(each, type) and each.__module__ == module.__name__
        for member in vars(each).values() if is_class else (each,):
            yield from _unwrapped(member, str(module.__file__))


def _unwrapped(member: object, file: str) -> Iterator[FunctionType]:
    if isinstance(member, FunctionType) and member.__code__.co_filename == file:
        yield member
    for name in ("__func__", "__wrapped__", "fget", "func"):
        if (inner := getattr(member, name, None)) is not None:
            yield from _unwrapped(inner, file)


def main() -> None:
    name, *seeds = sys.argv[1:]
    (bug,) = (each for each in planted.BUGS if each.name == name)
    if not plant(bug):
        print("null")
        return
    found = run_seeds(bug.layer, map(int, seeds), first_failure=True)
    print(json.dumps(list(found.failures.items())))


if __name__ == "__main__":
    main()
