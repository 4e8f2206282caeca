"""Patches applied to a text: comments and layout stay."""

from __future__ import annotations

import pytest

from holdfast.spec.edit import edited
from holdfast.spec.notation import examined, repair
from holdfast.spec.read import read
from tests.spec.broken_specs import GRAPHS, STEPS

TEXT = """\
# the greeting
naem: w   # its name
steps:
  # first
  - id: a
    tol: fetch   # fetches
    timeout: 30s
  - tool: send
    args: {x: "{{ steps.aa.output }}", y: 1}  # keep
    bogus: 1
"""

REPAIRED = """\
# the greeting
name: w   # its name
steps:
  # first
  - id: a
    tool: fetch   # fetches
    timeout_secs: 30
  - id: send
    tool: send
    args: {x: '{{ steps.a.output }}', y: 1}  # keep
"""


def test_comments_and_layout_stay_where_the_patch_does_not_touch_them() -> None:
    mended = repair(examined(TEXT))
    found = edited(TEXT, mended.patch, mended.data)
    assert (found.text, found.is_rewritten) == (REPAIRED, False)


@pytest.mark.parametrize("text", [*STEPS.values(), *GRAPHS.values()])
def test_the_edited_text_says_what_the_patched_data_say(text: str) -> None:
    mended = repair(examined(text))
    assert read(edited(text, mended.patch, mended.data).text).data == mended.data


def test_json_stays_json() -> None:
    text = '{"name": "w", "steps": [{"tool": "t"}]}'
    mended = repair(examined(text))
    assert edited(text, mended.patch, mended.data).text.startswith('{\n  "name": "w"')


def test_a_text_that_could_not_be_read_is_written_anew() -> None:
    text = "name: w\nsteps:\n\t- {id: a, tool: t}\n"
    mended = repair(examined(text))
    assert edited(text, mended.patch, mended.data).is_rewritten
