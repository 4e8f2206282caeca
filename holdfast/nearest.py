"""Which name a misspelled one stands for: the one "did you mean" of definitions, requests, settings and commands."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

WORD_CHARS_MAX: Final = 200  # of a word that are compared
NAMES_MAX: Final = 500  # comparing takes a while each time, and a text can hold a hundred misspelt names


def nearest(word: str, known: Collection[str]) -> str | None:
    """The name that a misspelled word is closest to, whatever the case of its letters; None if none is close."""
    if len(known) > NAMES_MAX:
        return None
    import difflib  # only a mistake needs it, and it takes longer to load than a short command to run

    by_small = {name.casefold(): name for name in sorted(known)}
    near = difflib.get_close_matches(word[:WORD_CHARS_MAX].casefold(), by_small, n=1)
    return by_small[near[0]] if near else None


def likeness(word: str, name: str) -> float:
    """How alike two words are, from 0 to 1."""
    import difflib

    return difflib.SequenceMatcher(None, word[:WORD_CHARS_MAX].casefold(), name.casefold()).ratio()


def did_you_mean(word: str, known: Collection[str]) -> str:
    """The hint for an unknown name; empty if no known name is close."""
    near = nearest(word, known)
    return f"did you mean {near}?" if near else ""
