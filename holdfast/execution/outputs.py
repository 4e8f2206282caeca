"""Makes the output of a step from the text of a response: the rules of `result:`, files, secrets.

The same for responses that come at once and for callbacks. A response over 1 MiB is not decoded in this process.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from holdfast import limits
from holdfast.plan.answers import AnswerFailed
from holdfast.plan.view import Answer
from holdfast.runtime.apart import LARGE_BYTES, apart
from holdfast.spec.steps import ResultRule
from holdfast.store.artefacts import ArtefactError, Artefacts
from holdfast.threads import in_thread
from holdfast.tools.secrets import SEARCHED_AT_ONCE_BYTES, Secrets
from holdfast.values import NotJson, decode, encode, written

Stored = Sequence[tuple[str, int]]  # digest and size of each file that was stored


class Outputs:
    def __init__(self, secrets: Secrets, artefacts: Artefacts | None) -> None:
        self.secrets, self._artefacts = secrets, artefacts

    async def by_rule(self, answer: Answer, text: bytes) -> bytes:
        """The part of a response that is the output. Raises AnswerFailed, or NotJson if it has no JSON form."""
        if len(text) <= LARGE_BYTES:
            return encode(answer(decode(text)))
        head = written(_Order(answer.rule, limits.differing()))
        made = await apart(_by_rule_apart, head + b"\n" + text)
        end = made.index(b"\n")
        outcome = _outcome(made[:end])
        if outcome.failed is not None:
            raise AnswerFailed(outcome.failed, outcome.kind)
        if outcome.not_json is not None:
            raise NotJson(outcome.not_json)
        return made[end + 1 :]

    async def with_files(
        self,
        text: bytes,
        tenant: str,
        made_by: str,
        workdir: Path | None = None,
        *,
        from_outside: bool = False,
    ) -> tuple[bytes, Stored]:
        """Store the files that an output's file_refs name, before the row that names them is written.

        Returns the output, whose file_refs now name the stored files, and the digest and size of each stored file.
        """
        if self._artefacts is None:
            return text, ()
        named = _around_files(text) if len(text) <= LARGE_BYTES else await apart(_around_files, text)
        if not named:
            return text, ()
        head, *parts = named.split(_HOLE)
        if len(head) - sum(map(len, _INLINE.findall(head))) > limits.now.file_refs_bytes_max:
            most = limits.size(limits.now.file_refs_bytes_max)
            raise ArtefactError(
                f"file_refs may have at most {most} beside the files ({limits.met('file_refs_bytes_max')})"
            )
        keep = functools.partial(self._artefacts.of(tenant).keep, from_outside=from_outside)
        kept, stored = await self._artefacts.work(keep, decode(head), made_by, workdir)
        return encode(kept).join(parts), stored

    async def redacted(self, text: bytes) -> bytes:
        """A JSON text with its secrets redacted; a large one is processed in a thread, so that the event loop is not
        blocked."""
        if not self.secrets.are_known or len(text) <= SEARCHED_AT_ONCE_BYTES:
            return self.secrets.redact_json(text)
        return await in_thread(self.secrets.redact_json, text)


# ------------------------------------------------------------------------------------- what a process apart may do


class _Order(msgspec.Struct):
    """The header of the text: the rule and the limits for reading it."""

    rule: ResultRule
    limits: dict[str, int]


class _Outcome(msgspec.Struct, omit_defaults=True):
    """The header of the output: why there is none."""

    failed: str | None = None
    kind: str = ""
    not_json: str | None = None


_order = msgspec.json.Decoder(_Order).decode
_outcome = msgspec.json.Decoder(_Outcome).decode


def _by_rule_apart(given: bytes) -> bytes:
    from holdfast.plan.answers import answer_of

    end = given.index(b"\n")
    order = _order(given[:end])
    limits.put_in_force(limits.chosen(order.limits))
    outcome, text = _Outcome(), b""
    try:
        text = encode(answer_of(order.rule)(decode(given[end + 1 :])))
    except AnswerFailed as error:
        outcome = _Outcome(str(error), error.kind)
    except NotJson as error:
        outcome = _Outcome(not_json=str(error))
    return written(outcome) + b"\n" + text


_HOLE: Final = b"\0"  # stands in for file_refs while they are stored; no JSON text contains this byte
_INLINE: Final = re.compile(rb'"inline_b64":"[^"]*+"')


def _around_files(text: bytes) -> bytes:
    """The file_refs of an output, and the texts around each of them; nothing if the output names no files."""
    output = decode(text)
    holder = output if isinstance(output, dict) and "file_refs" in output else None
    if holder is None and isinstance(output, dict) and isinstance(output.get("context"), dict):
        holder = output["context"] if "file_refs" in output["context"] else None
    if holder is None:
        return b""
    refs = holder["file_refs"]
    holder["file_refs"] = output["file_refs"] = msgspec.Raw(_HOLE)
    return written(refs) + _HOLE + written(output)
