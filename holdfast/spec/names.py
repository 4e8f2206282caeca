"""The rule for every name in both notations: short, and without characters that cannot be shown.

Names become parts of paths, log lines, terminal output and headers. Does not know where a name is looked up.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.spec.policy import NAME_CHARS_MAX
from holdfast.spec.problems import Report, Where, quoted

# Characters that move the cursor, break a line or change the text direction. A joiner within an emoji is allowed.
CONTROL_RANGES: Final = r"\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_CONTROL: Final = re.compile(f"[{CONTROL_RANGES}]")


def control_in(name: str) -> str | None:
    """The first character of a name that cannot be shown, as people write it: `U+0007`."""
    found = _CONTROL.search(name)
    return None if found is None else f"U+{ord(found[0]):04X}"


def check_name(report: Report, at: Where, name: str, *, of_key: bool = False) -> None:
    """Report a name that is too long or contains unreadable characters."""
    if len(name) > NAME_CHARS_MAX:
        message = f"{quoted(name)} is longer than {NAME_CHARS_MAX} characters"
        report.add("name_too_long", at, message, "shorten it; a description can be longer", of_key=of_key)
    elif (found := control_in(name)) is not None and not report.is_stored:
        message = f"{name!a:.60} has a control character in it"
        report.add("invalid_name", at, message, f"take out {found}", of_key=of_key)
