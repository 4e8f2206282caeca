"""Labels, by which runs can be found: the rules for names and values, for definitions and starts."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast import limits
from holdfast.spec.names import CONTROL_RANGES, control_in
from holdfast.values import is_text

LABEL_PATTERN: Final = f"^[^{CONTROL_RANGES}]*$"


class LabelProblem(NamedTuple):
    code: str
    message: str
    is_limit: bool = False


def label_problem(name: Any, value: Any) -> LabelProblem | None:
    """What is wrong with one label; None if it is valid."""
    for what, text in (("the name of a label", name), (f"label {name!a:.60}", value)):
        if not isinstance(text, str):
            return LabelProblem(
                "wrong_type", f"{what} must be text, not {type(text).__name__} ({text!r:.50})"
            )
        if len(text) > limits.now.label_chars_max:
            most = f"{limits.now.label_chars_max:,} are allowed ({limits.met('label_chars_max')})"
            message = f"{what} has {len(text):,} characters, and at most {most}"
            return LabelProblem("label_too_long", message, is_limit=True)
        if not is_text(text):
            return LabelProblem("invalid_label", f"{what} has half of a surrogate pair in it")
        if (found := control_in(text)) is not None:
            return LabelProblem("invalid_label", f"{what} has a control character in it, {found}")
    if not name.strip():
        return LabelProblem("invalid_label", "the name of a label must not be empty")
    return None
