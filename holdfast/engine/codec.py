"""A journal row's body: one event with the decisions it caused, as JSON text, and back.

Knows the format and its version, but no tables. A body is `[1, event, decisions]`; events and decisions are arrays whose first
element is their tag. A value over 32 KiB is replaced by `{"$blob": "<sha256>"}`, and the caller stores its text elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from holdfast.engine.decisions import Decision
from holdfast.engine.events import CallbackReceived, Event, Outcome, StepSucceeded, TriggeredBy
from holdfast.engine.state import Frame, Run, Step, Undoable, sizes_of
from holdfast.plan.graph import Way
from holdfast.values import join, sha256, split

FORMAT: Final = 1
INLINE_BYTES_MAX: Final = 32 * 1024
PLAIN_BYTES_MAX: Final = INLINE_BYTES_MAX - 4 * 1024  # values of a plain row; the rest is for its names
NO_BLOBS: Final[list[tuple[str, bytes]]] = []
_MARK: Final = b'{"$blob":'
_MARK_TEXT: Final = _MARK.decode()

_ANSWERS: Final = (StepSucceeded, CallbackReceived)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[int, Event, list[Decision]]).decode


def encode_row(event: Event, decisions: list[Decision]) -> tuple[str, list[tuple[str, bytes]]]:
    """Return the body, and each value that is too large for it as (sha256, text)."""
    output = getattr(event, "output", None)
    if (
        output is None or len(output) <= INLINE_BYTES_MAX
    ):  # 25 MiB are not written only to see how long that is
        text = _encode((FORMAT, event, decisions))
        # A user's value that looks like a reference is stored as a blob too, so every reference in a body is ours.
        if (
            len(text) <= INLINE_BYTES_MAX and text.find(_MARK) < 0
        ):  # `in` is slower: it first tries an integer
            return text.decode(), NO_BLOBS
    blobs: dict[str, bytes] = {}
    parts = [_without_blobs(part, blobs) for part in (event, *decisions)]
    return _encode((FORMAT, parts[0], parts[1:])).decode(), list(blobs.items())


def plain_texts(way: Way, path: str) -> tuple[bytes, bytes, bytes]:
    """Return the constant parts of the row of a plain step that took no time, which are made once per plan: around its output and the next
    inputs. Where the run ends, nothing comes after the second."""
    head = b'[1,["step_succeeded",%b,1,' % _encode(path)
    if way.call is None:
        way.texts = head, b',0,[]],[["finish","completed",null,null,false]]]', b""
    else:
        way.texts = head, b',0,[]],[["start",%b,1,' % _encode(way.name), b",%d,false]]]" % way.keep
    return way.texts


def timed(middle: bytes, ran_ms: int) -> bytes:
    """Return the second part for a step that took so long."""
    return b",%d%b" % (ran_ms, middle.removeprefix(b",0"))


def first_body(way: Way, given: msgspec.Raw, trigger: TriggeredBy | None, inputs: bytes) -> bytes:
    """Return the body of the first row of a run that begins with a call, given the inputs of both."""
    head, middle, tail = way.texts or _first_texts(way)
    triggered = b"null" if trigger is None else _encode(trigger)
    return b"".join((head, given, b",true,{},{},null,{},[],{},", triggered, middle, inputs, tail))


def _first_texts(way: Way) -> tuple[bytes, bytes, bytes]:
    middle = b'],[["start",%b,1,' % _encode(way.name)
    way.texts = b'[1,["run_started",', middle, b",%d,false]]]" % way.keep
    return way.texts


def encode_event(event: Event) -> str:
    """Return an event as text, with all its values in it: for a node that decides it later. `decode_row` reads it."""
    return _encode((FORMAT, event, [])).decode()


def decode_row(body: str | bytes) -> tuple[Event, list[Decision]]:
    _, event, decisions = _decode(body)
    return event, decisions


def _without_blobs(part: Any, blobs: dict[str, bytes]) -> Any:
    """Replace each value that is too large by a reference."""
    changed: dict[str, Any] = {}
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, msgspec.Raw):
            changed[name] = _moved_out(value, blobs)
        elif name in ("copied", "vars"):  # outcomes taken over from another run
            changed[name] = {path: _moved_out(output, blobs) for path, output in value.items()}
        elif name == "taken":
            changed[name] = {
                path: with_output(one, _moved_out(one.output, blobs)) for path, one in value.items()
            }
    return msgspec.structs.replace(part, **changed) if changed else part


def _moved_out(value: msgspec.Raw, blobs: dict[str, bytes]) -> msgspec.Raw:
    text = bytes(value)
    if len(text) <= INLINE_BYTES_MAX and not text.startswith(_MARK):
        return value
    digest = sha256(text)
    blobs[digest] = text
    return _reference(digest)


def with_output(outcome: Outcome, output: msgspec.Raw) -> Outcome:
    return outcome if output is outcome.output else msgspec.structs.replace(outcome, output=output)


def has_blobs(body: str | bytes) -> bool:
    return _MARK_TEXT in body if isinstance(body, str) else _MARK in body


def blob_of(value: msgspec.Raw) -> str | None:
    """Return the sha256 that a value refers to, or None if it is not a reference."""
    text = bytes(memoryview(value)[: len(_MARK) + 68])
    return text[len(_MARK) + 1 : -2].decode() if text.startswith(_MARK) else None


# ------------------------------------------------------------------------------------------------- snapshots
#
# Part 0 is the open state. Finished outputs are in parts of their own, each written once, so the cost of a snapshot depends on
# what is open and what is new, not on the whole history.

SNAPSHOT_PART_BYTES_MAX: Final = 1024 * 1024
REFERENCES_REMEMBERED_MAX: Final = 1_000


class _Sizes(msgspec.Struct):
    """Sizes stored in part 0 beside the state. Releases up to 0.3 ignore them."""

    sizes: dict[str, int] = {}


_decode_state = msgspec.json.Decoder(Run).decode
_decode_sizes = msgspec.json.Decoder(_Sizes).decode
_decode_outputs = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def encode_parts(run: Run) -> list[tuple[int, bytes]]:
    """Return the parts of a snapshot that are not stored yet, by number."""
    count, written = run.__dict__.setdefault("parts", (0, set()))
    parts: list[tuple[int, bytes]] = []
    fresh: dict[str, msgspec.Raw] = {}
    size = 0
    for path, output in _outputs(run):
        if path in written:
            continue
        written.add(path)
        fresh[path] = _referred(run, output)
        size += len(memoryview(fresh[path]))
        if size > SNAPSHOT_PART_BYTES_MAX:
            parts.append((count := count + 1, _encode(fresh)))
            fresh, size = {}, 0
    if fresh:
        parts.append((count := count + 1, _encode(fresh)))
    run.__dict__["parts"] = (count, written)
    return [(0, _with_sizes(_encode(_open_state(run)), sizes_of(run))), *parts]


def _with_sizes(state: bytes, sizes: dict[str, int]) -> bytes:
    return b'%b,"sizes":%b}' % (state[:-1], _encode(sizes)) if sizes else state


def decode_parts(parts: list[tuple[int, bytes]]) -> Run:
    """Rebuild the run from all parts of its snapshot, in order."""
    run = decode_state(parts[0][1])
    for _, body in parts[1:]:
        put_outputs(run, body)
    return run


def decode_state(body: bytes) -> Run:
    """Rebuild the run from part 0 of its snapshot; `put_outputs` adds the other parts, in order."""
    run = _decode_state(body)
    run.__dict__["parts"] = (0, set())
    run.__dict__["sizes"] = _decode_sizes(body).sizes
    return run


def put_outputs(run: Run, body: bytes) -> None:
    """Add a part of finished outputs. Those of frames that have closed are dropped."""
    count, written = run.__dict__["parts"]
    for path, output in _decode_outputs(body).items():
        frame, tail = split(path)
        written.add(path)
        if frame in run.frames:
            run.frames[frame].outputs[tail] = output
    run.__dict__["parts"] = (count + 1, written)


def references(run: Run) -> Iterator[tuple[str, Callable[[msgspec.Raw], None]]]:
    """Yield the sha256 of each large value that a decoded snapshot refers to, and what puts the value in its place."""
    for value, put in _values(run):
        if (digest := blob_of(value)) is not None:
            yield digest, put


def _values(run: Run) -> Iterator[tuple[msgspec.Raw, Callable[[msgspec.Raw], None]]]:
    yield run.inputs, partial(setattr, run, "inputs")
    for path, one in run.taken.items():
        yield one.output, partial(_put_taken, run, path)
    for step in run.steps.values():
        yield step.inputs, partial(setattr, step, "inputs")
    for undoable in run.undo:
        yield undoable.inputs, partial(setattr, undoable, "inputs")
    for scope in run.scopes.values():
        yield scope.items, partial(setattr, scope, "items")
        yield scope.value, partial(setattr, scope, "value")
    for frame in run.frames.values():
        for values in (frame.outputs, frame.vars):
            for name, value in values.items():
                yield value, partial(values.__setitem__, name)


def _put_taken(run: Run, path: str, output: msgspec.Raw) -> None:
    run.taken[path] = with_output(run.taken[path], output)


def _outputs(run: Run) -> Iterator[tuple[str, msgspec.Raw]]:
    for name, frame in run.frames.items():
        for tail, output in frame.outputs.items():
            yield join(name, tail), output


def _open_state(run: Run) -> Run:
    """Return the run without its finished outputs. Large values, which earlier rows have stored, become references."""
    return msgspec.structs.replace(
        run,
        inputs=_referred(run, run.inputs),
        taken={path: with_output(one, _referred(run, one.output)) for path, one in run.taken.items()},
        frames={name: _open_frame(run, frame) for name, frame in run.frames.items()},
        steps={path: _open_step(run, step) for path, step in run.steps.items()},
        undo=[Undoable(one.path, _referred(run, one.inputs)) for one in run.undo],
        scopes={
            path: msgspec.structs.replace(
                scope, items=_referred(run, scope.items), value=_referred(run, scope.value)
            )
            for path, scope in run.scopes.items()
        },
    )


def _open_step(run: Run, step: Step) -> Step:
    inputs = _referred(run, step.inputs)
    return step if inputs is step.inputs else msgspec.structs.replace(step, inputs=inputs)


def _open_frame(run: Run, frame: Frame) -> Frame:
    if not frame.outputs and not frame.vars:
        return frame
    found = {name: _referred(run, value) for name, value in frame.vars.items()}
    return Frame(joined=frame.joined, inner=frame.inner, vars=found, visits=frame.visits)


def _referred(run: Run, value: msgspec.Raw) -> msgspec.Raw:
    view = memoryview(value)
    if len(view) <= INLINE_BYTES_MAX and bytes(view[: len(_MARK)]) != _MARK:
        return value
    # hashing the same megabytes for every snapshot would be slow
    known = run.__dict__.setdefault("references", {})
    if len(known) > REFERENCES_REMEMBERED_MAX:
        known.clear()
    if id(value) not in known:
        known[id(value)] = (value, _reference(sha256(bytes(value))))
    reference: msgspec.Raw = known[id(value)][1]
    return reference


def _reference(digest: str) -> msgspec.Raw:
    return msgspec.Raw(_MARK + b'"' + digest.encode() + b'"}')
