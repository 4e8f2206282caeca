"""Repairing a definition: the patches of its problems are applied, and what is left is examined again.

    data ──examine──► problems with patches ──apply──► data ──examine──► … until none has a patch that helps

Knows how patches combine. Must not know any notation: the caller examines the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.errors import Problem
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.patch import Patch, PatchError, applied, shifts_a_list

# A repair may uncover the next problem: correcting a misspelt kind uncovers its keys. The number of rounds is limited because
# patches could undo each other.
ROUNDS_MAX: Final = 20


class Repaired(NamedTuple):
    """The result of a repair: the combined patch, the repaired data, and the problems that remain."""

    patch: Patch
    data: Any
    problems: Sequence[Problem]


def repaired(data: Any, problems: Sequence[Problem], examine: Callable[[Any], Sequence[Problem]]) -> Repaired:
    """Apply the offered patches until there are no problems, or none that a patch repairs. `data` is UNKNOWN if the
    text could not be read."""
    whole: list[dict[str, Any]] = []
    for _ in range(ROUNDS_MAX):
        changed, used = _one_round(data, problems)
        if not used:
            break
        data, problems = changed, examine(changed)
        whole += used
    return Repaired(tuple(whole), data, problems)


def _one_round(data: Any, problems: Sequence[Problem]) -> tuple[Any, list[dict[str, Any]]]:
    """Apply the patches of the problems, as far as they can be combined."""
    used: list[dict[str, Any]] = []
    for problem in problems:
        patch = problem.patch
        if not patch or all(operation in used for operation in patch):
            continue
        is_shift = data is not UNKNOWN and shifts_a_list(data, patch)
        try:
            data = applied(None if data is UNKNOWN else data, patch)
        except PatchError:
            continue  # the patch of another problem has changed the place
        used += patch
        if is_shift or patch[0]["path"] == "":
            break  # the pointers of the other problems are out of date
    return data, used
