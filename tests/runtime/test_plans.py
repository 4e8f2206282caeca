"""Definitions are recognised by their content: read once, noticed when they change, and forgotten when there are too many."""

from __future__ import annotations

import asyncio
import copy
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self

import pytest

from holdfast import Holdfast, InvalidSpec, tool
from holdfast.runtime.plans import DEFINITIONS_REMEMBERED_MAX, TEXT_BYTES_REMEMBERED_MAX, Plans
from holdfast.runtime.remembered import Remembered
from holdfast.spec.read import write
from holdfast.store.sqlite.store import SqliteStore

DOUBLE: dict[str, Any] = {
    "name": "double",
    "inputs": {"a": {"type": "integer"}},
    "steps": [{"id": "sum", "tool": "add", "args": {"a": "{{inputs.a}}", "b": "{{inputs.a}}"}}],
    "output": "{{steps.sum.output}}",
}
GRAPH: dict[str, Any] = {
    "name": "g",
    "start": "n",
    "nodes": {"n": {"kind": "local", "service": "echo"}},
    "edges": [],
}
NESTED: dict[str, Any] = {"name": "outer", "steps": [{"id": "in", "workflow": "double", "inputs": {"a": 4}}]}


@tool
async def add(a: int, b: int) -> int:
    return a + b


class Reading:
    """Counts the functions of spec/ and of the compiler that are called, by their names."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, _: Any) -> None:
        room = Path(frame.f_code.co_filename).parent.name
        if event == "call" and frame.f_code.co_name in READERS and room in ("spec", "plan"):
            self.calls.append(frame.f_code.co_name)


READERS = {"parsed", "_built", "validate", "check", "canonical", "compile_definition", "to_data"}


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    return Plans(SqliteStore(str(tmp_path / "h.db")))


def _as_file(folder: Path) -> str:
    path = folder / "double.yaml"
    path.write_text(write(DOUBLE))
    return str(path)


FORMS: dict[str, Callable[[Path], Any]] = {
    "dict": lambda _: copy.deepcopy(DOUBLE),
    "text": lambda _: "".join(write(DOUBLE)),
    "file": _as_file,
    "path": lambda folder: Path(_as_file(folder)),
    "graph": lambda _: copy.deepcopy(GRAPH),
    "nested": lambda _: copy.deepcopy(NESTED),
}


@pytest.mark.anyio
@pytest.mark.parametrize("form", FORMS)
async def test_a_definition_that_is_given_again_is_not_read_again(form: str, tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path / 'h.db'}", tools=[add]) as hf:
        await hf.publish(DOUBLE)
        inputs = {"a": 4} if form not in ("graph", "nested") else {}
        first = await (await hf.start(FORMS[form](tmp_path), inputs)).result()
        given = FORMS[form](tmp_path)  # another object of the same content
        with Reading() as reading:
            again = await hf.start(given, inputs)
        assert reading.calls == []
        assert await again.result() == first


@pytest.mark.anyio
async def test_a_request_id_does_not_make_a_known_definition_be_read_again(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path / 'h.db'}", tools=[add]) as hf:
        await hf.start(DOUBLE, {"a": 1}, request_id="one")
        with Reading() as reading:
            await hf.start(copy.deepcopy(DOUBLE), {"a": 1}, request_id="two")
        assert reading.calls == []


@pytest.mark.anyio
async def test_a_dict_that_was_changed_after_a_start_is_noticed(tmp_path: Path) -> None:
    given = copy.deepcopy(DOUBLE)
    async with Holdfast(f"sqlite:///{tmp_path / 'h.db'}", tools=[add]) as hf:
        assert await (await hf.start(given, {"a": 4})).result() == 8
        given["steps"][0]["args"]["b"] = 1
        assert await (await hf.start(given, {"a": 4})).result() == 5
        given["nonsense"] = True
        with pytest.raises(InvalidSpec):
            await hf.start(given, {"a": 4})


@pytest.mark.anyio
async def test_a_file_that_was_changed_is_noticed_whatever_its_time_stamp_says(tmp_path: Path) -> None:
    path = Path(_as_file(tmp_path))
    before = path.stat()
    async with Holdfast(f"sqlite:///{tmp_path / 'h.db'}", tools=[add]) as hf:
        assert await (await hf.start(path, {"a": 4})).result() == 8
        text = path.read_text()
        path.write_text(text.replace("b: '{{inputs.a}}'", "b:  3" + " " * 12))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_size == before.st_size
        assert await (await hf.start(path, {"a": 4})).result() == 7


@pytest.mark.anyio
async def test_a_nested_workflow_that_was_published_anew_is_noticed(tmp_path: Path) -> None:
    async with Holdfast(f"sqlite:///{tmp_path / 'h.db'}", tools=[add]) as hf:
        await hf.publish(DOUBLE)
        assert await (await hf.start(NESTED)).result() == {"in": 8}
        await hf.publish({**DOUBLE, "output": "other"})
        assert await (await hf.start(NESTED)).result() == {"in": "other"}


def test_the_same_text_from_two_places_is_two_definitions(plans: Plans, tmp_path: Path) -> None:
    """What a definition names is looked for beside its file, so text that was sent must not become that of a file."""
    path = _as_file(tmp_path)
    assert plans.read(Path(path).read_text()).origin.source == ""
    assert plans.read_file(path).origin.source == path
    assert plans.read(DOUBLE, "other").name == "other"
    assert plans.read(DOUBLE).name == "double"


@pytest.mark.parametrize("bad", [{1.5: object()}, {"name": float("nan")}, {"name": {1, 2}.__iter__()}])
def test_data_that_is_not_json_is_refused_before_it_is_looked_up(bad: Any, plans: Plans) -> None:
    with pytest.raises(InvalidSpec):
        plans.read(bad)


@pytest.mark.parametrize("text", ["name: \ud800\nsteps: []", "x" * 300_000])
def test_text_that_cannot_be_a_definition_is_refused_as_before(text: str, plans: Plans) -> None:
    with pytest.raises(InvalidSpec):
        plans.read(text)
    assert len(plans._by_text) == 0


def test_ever_new_definitions_do_not_make_the_caches_grow(plans: Plans) -> None:
    for number in range(DEFINITIONS_REMEMBERED_MAX + 50):
        ready = plans.of_spec(plans.read({**DOUBLE, "description": str(number)}))
        assert ready is not None
    caches = [plans._by_text, plans._known, plans._by_version]
    assert [len(cache) for cache in caches] == [DEFINITIONS_REMEMBERED_MAX] * 3  # type: ignore[arg-type]
    large = "x" * 200_000
    for number in range(40):
        plans.read({**DOUBLE, "output": f"{number}{large}"})
    assert plans._by_text.bytes <= TEXT_BYTES_REMEMBERED_MAX


def test_what_was_used_least_recently_is_forgotten_first() -> None:
    cache: Remembered[str, int] = Remembered(count_max=2, bytes_max=100)
    cache.put("a", 1, 10)
    cache.put("b", 2, 10)
    assert cache.get("a") == 1
    cache.put("c", 3, 10)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    cache.put("d", 4, 95)
    assert (len(cache), cache.bytes, cache.get("d")) == (1, 95, 4)
    cache.put("d", 5, 20)
    assert (len(cache), cache.bytes, cache.get("d")) == (1, 20, 5)


@pytest.mark.anyio
async def test_the_loop_gets_its_turns_while_a_large_definition_is_read(plans: Plans) -> None:
    large = {"name": "large", "steps": [{"id": f"s{index}", "tool": "echo"} for index in range(1_000)]}
    reading, turns = asyncio.ensure_future(plans.read_in_turns(large)), 0
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 2, "it was read in one turn"
    spec = await reading
    assert plans.read(large) is spec
    assert await plans.read_in_turns(large) is spec
    assert plans.of_spec(spec) is plans.of_spec(spec)


LARGE: Final = {
    "name": "large",
    "steps": [{"id": f"s{index}", "tool": "echo", "args": {"value": index}} for index in range(500)],
}


async def _turns_during(work: Awaitable[object]) -> int:
    doing, turns = asyncio.ensure_future(work), 0
    while not doing.done():
        turns += 1
        await asyncio.sleep(0)
    await doing
    return turns


@pytest.mark.plain_reads
@pytest.mark.anyio
async def test_the_loop_gets_its_turns_while_a_large_stored_definition_is_read(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/h.db"
    async with Holdfast(address) as hf:
        await hf.publish(LARGE)
        handle = await hf.start("large")
        await handle.result()
    async with Holdfast(address) as hf:
        row = await hf._engine.runs.row_of(handle.id)
        plans = hf._engine.plans
        assert await _turns_during(plans.of_version(row.tenant, row.version)) > 2, "compiled in one turn"
        assert await _turns_during(hf._engine.starts.published("large")) == 1, "read twice"
    async with Holdfast(address) as hf:
        spec, _ = await hf._engine.starts.published("large")
        find = partial(hf._engine.starts._named, "default")
        assert await _turns_during(hf._engine.plans.of_any(spec, find)) > 2, "checked in one turn"
        assert hf._engine.plans.at_hand(spec) is not None


@pytest.mark.anyio
async def test_many_runs_of_one_version_compile_it_once(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/h.db"
    async with Holdfast(address) as hf:
        handle = await hf.start(LARGE)
        row = await hf._engine.runs.row_of(handle.id)
    async with Holdfast(address) as hf:
        found = [hf._engine.plans.of_version(row.tenant, row.version) for _ in range(5)]
        assert len(set(map(id, await asyncio.gather(*found)))) == 1
