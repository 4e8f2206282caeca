"""A run that begins where another one was: what that one gave counts as done."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine import codec as rows
from holdfast.engine.codec import decode_parts, encode_parts
from holdfast.engine.events import Adopted, RunStarted
from holdfast.values import encode
from tests.engine.driver import Case, finish, starts, state_of

THREE = """
name: n
steps:
  - {id: a, tool: t}
  - {id: b, tool: t, args: {a: "{{ a }}"}}
  - {id: c, tool: t, args: {a: "{{ a }}", b: "{{ b }}"}}
"""


def rerun(first: str, *, drive: bool = True, **copied: Any) -> tuple[Case, list[str]]:
    case = Case(THREE)
    outputs = {path: msgspec.Raw(encode(output)) for path, output in copied.items()}
    started = RunStarted(msgspec.Raw(case.inputs), drive, copied=outputs, first=first)
    return case, starts(case.apply(started))


def test_a_rerun_begins_at_its_first_step() -> None:
    _, begun = rerun("b", a=1)
    assert begun == ["b"]


def test_what_was_copied_is_seen_by_the_steps_after_it() -> None:
    case, _ = rerun("c", a=1, b={"x": 2})
    assert case.args("c") == {"a": 1, "b": {"x": 2}}


def test_what_was_copied_is_part_of_the_output() -> None:
    case, _ = rerun("c", a=1, b=2)
    assert finish(case.succeed("c", 3)).status == "completed"
    assert case.output() == {"a": 1, "b": 2, "c": 3}


def test_a_rerun_without_an_owner_begins_at_its_first_step_when_it_is_adopted() -> None:
    case, begun = rerun("c", drive=False, a=1, b=2)
    assert begun == [] and case.run.status == "pending"
    case.epoch += 1
    assert starts(case.apply(Adopted())) == ["c"]
    assert case.args("c") == {"a": 1, "b": 2}


def test_a_rerun_goes_on_after_a_crash_with_what_was_copied() -> None:
    case, _ = rerun("b", a=1)
    case.crash()
    case.succeed("b", 2)
    assert case.args("c") == {"a": 1, "b": 2}


def test_a_snapshot_has_what_was_copied() -> None:
    case, _ = rerun("c", a=1, b=2)
    assert state_of(decode_parts(encode_parts(case.run))) == state_of(case.run)


def test_a_large_copied_output_is_moved_out_of_the_row_like_any_large_value() -> None:
    case, _ = rerun("c", a="x" * rows.INLINE_BYTES_MAX, b=2)
    assert len(case.rows[0][4]) < 1_000
    assert case.args("c")["a"] == "x" * rows.INLINE_BYTES_MAX
    references = [rows.blob_of(output) for _, output in rows._outputs(decode_parts(encode_parts(case.run)))]
    assert [sha256 in case.blobs for sha256 in references if sha256] == [True]


def test_a_copied_output_that_looks_like_a_reference_is_none() -> None:
    case, _ = rerun("c", a={"$blob": "0" * 64}, b=2)
    assert case.replayed().output_at("a") == case.run.output_at("a")
    assert len(case.blobs) == 1
