"""The output of a step, made of an answer: what is large is read in another process, by the same rules."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.execution.outputs import Outputs
from holdfast.plan.answers import AnswerFailed, answer_of
from holdfast.runtime.apart import LARGE_BYTES
from holdfast.spec.steps import ResultRule
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.artefacts import ArtefactError
from holdfast.tools.secrets import Secrets
from holdfast.values import decode, encode
from tests.decoded import sizes_decoded
from tests.small_limits import with_limits

FILLING = "x" * LARGE_BYTES
PARTS = {
    "data": [{"id": 1}, {"id": 2}],
    "text": '{"a": [1]}',
    "deep": "[" * 99,
    "success": False,
    "error": "e",
}


def outputs(folder: Path | None = None) -> Outputs:
    return Outputs(Secrets(), None if folder is None else ArtefactFiles(folder))


def by_rule(rule: ResultRule, answer: object) -> bytes:
    return asyncio.run(outputs().by_rule(answer_of(rule), encode(answer)))


RULES = [
    ResultRule(select="$.data[0]"),
    ResultRule(select="$.data[*].id"),
    ResultRule(select="$.none"),
    ResultRule(select="$.text", parse="json"),
]


@pytest.mark.parametrize("rule", RULES)
def test_a_large_answer_gives_the_output_of_a_small_one_without_being_decoded_here(rule: ResultRule) -> None:
    small = by_rule(rule, PARTS)
    with sizes_decoded() as sizes:
        assert by_rule(rule, {**PARTS, "filling": FILLING}) == small
    assert max(sizes, default=0) <= LARGE_BYTES


@pytest.mark.parametrize(
    "rule",
    [
        ResultRule(envelope=True),
        ResultRule(select="$.deep", parse="json"),
        ResultRule(select="$.data[?@.id == $.filling || @.id == $.text]..*..*..*"),
    ],
)
def test_a_large_answer_fails_for_the_reason_of_a_small_one(rule: ResultRule) -> None:
    failed = []
    for answer in ({**PARTS, "filling": ""}, {**PARTS, "filling": FILLING}):
        try:
            failed.append(("", "", by_rule(rule, answer)))
        except AnswerFailed as error:
            failed.append((str(error), error.kind, b""))
    assert failed[0] == failed[1]


def test_limits_hold_in_the_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, expression_work_max=1_000)
    with pytest.raises(AnswerFailed, match="1,000 units") as failed:
        by_rule(ResultRule(select="$..*"), {"filling": FILLING, "data": [1] * 2_000})
    assert failed.value.kind == "expression_too_costly"


@pytest.mark.parametrize("where", ["top", "context"])
def test_the_files_of_a_large_output_are_stored_without_decoding_it_here(tmp_path: Path, where: str) -> None:
    refs = [{"inline_b64": "aGk=", "name": "n"}, {"uri": "https://example.org/x"}]
    holder = {"file_refs": refs, "more": [1]}

    def stored(filling: str) -> tuple[object, int]:
        output = {"filling": filling, **(holder if where == "top" else {"context": holder})}
        text, files = asyncio.run(outputs(tmp_path).with_files(encode(output), "default", "job"))
        return {**decode(text), "filling": ""}, len(files)

    small = stored("")
    with sizes_decoded() as sizes:
        large = stored(FILLING)
    assert large == small
    assert small[1] == 1
    assert max(size for size in sizes if size < LARGE_BYTES) < 1_000


def test_a_large_output_without_files_stays_as_it_is(tmp_path: Path) -> None:
    text = encode({"filling": FILLING, "inner": {"file_refs": []}})
    assert asyncio.run(outputs(tmp_path).with_files(text, "default", "job")) == (text, ())


def test_file_refs_that_are_large_beside_their_files_are_refused(tmp_path: Path) -> None:
    text = encode({"file_refs": [{"uri": "u", "more": [[]] * 400_000}]})
    with pytest.raises(ArtefactError, match="at most 1 MiB beside the files"):
        asyncio.run(outputs(tmp_path).with_files(text, "default", "job"))


def test_a_file_of_many_bytes_may_be_in_file_refs(tmp_path: Path) -> None:
    text = encode({"file_refs": [{"inline_b64": "aGkh" * 500_000}]})
    _, files = asyncio.run(outputs(tmp_path).with_files(text, "default", "job"))
    assert [size for _, size in files] == [1_500_000]
