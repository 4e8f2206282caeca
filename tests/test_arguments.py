"""What is of the wrong kind is refused by name, whichever method of ours it is given to, and nothing is changed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Client, Holdfast, InvalidInputs, SyncClient
from holdfast.arguments import KINDS, checked, kind_of
from holdfast.embed import RunHandle
from holdfast.testing import TestEngine

STRANGE = object()
SURFACES = (Holdfast, RunHandle, Client)
GIVEN: dict[str, Any] = {
    "spec": "{name: w, steps: [{id: a, tool: t}]}",
    "workflow": "w",
    "definition": {},
    "scopes": [],
    "number": 1,
    "a": 1,
    "b": 2,
}


def methods() -> list[tuple[type, str]]:
    return [
        (surface, name)
        for surface in SURFACES
        for name, _ in inspect.getmembers(surface, inspect.isfunction)
        if not name.startswith("_") or (name == "__init__" and surface is not RunHandle)
    ]


def parameters() -> list[tuple[type, str, str]]:
    """Every parameter of every method that is text, a number, yes or no, a mapping or a list of text."""
    return [
        (surface, method, name)
        for surface, method in methods()
        for name, parameter in inspect.signature(getattr(surface, method)).parameters.items()
        if kind_of(parameter) is not None
    ]


async def asked(method: Callable[..., Any], name: str, value: Any, me: object = None) -> None:
    """Call a method with something strange as one of its arguments, and what fits as the others."""
    named: dict[str, Any] = {}
    for other, parameter in inspect.signature(method).parameters.items():
        if parameter.default is inspect.Parameter.empty and other not in ("self", name):
            named[other] = GIVEN.get(other, "x")
    told = method(me, **named, **{name: value})
    if inspect.isasyncgen(told):
        await anext(told)
    elif inspect.isawaitable(told):
        await told


@pytest.mark.parametrize(
    ("surface", "method", "name"),
    parameters(),
    ids=[f"{surface.__name__}.{method}-{name}" for surface, method, name in parameters()],
)
def test_an_argument_of_the_wrong_kind_is_refused_by_its_name(surface: type, method: str, name: str) -> None:
    for value in (STRANGE, b"x", {1}):
        with pytest.raises(InvalidInputs, match=f"^{name} must be "):
            asyncio.run(asked(getattr(surface, method), name, value))


@pytest.mark.parametrize("value", [5, None, STRANGE, b"x"])
async def test_what_is_no_definition_is_refused(engine: TestEngine, value: Any) -> None:
    hf = await engine.open()
    for ask in (hf.start, hf.publish):
        with pytest.raises(InvalidInputs, match="spec must be"):
            await ask(value)
    assert await hf.runs() == []


@pytest.mark.parametrize("value", [5, STRANGE, b"x", ["http://x"], {"url": 5}, {"uri": "http://x"}])
async def test_a_final_callback_that_is_none_starts_no_run(engine: TestEngine, value: Any) -> None:
    hf = await engine.open()
    engine.fake_tool("t")
    with pytest.raises(InvalidInputs):
        await hf.start(GIVEN["spec"], final_callback=value)
    assert await hf.runs() == []


async def test_what_is_refused_changes_nothing(engine: TestEngine) -> None:
    run = await engine.start("{name: w, steps: [{id: a, kind: wait_event, signal_key: go}]}")
    hf = await engine.open()
    wrong: Any = 5
    for ask in (
        lambda: hf.resume(wrong, 1),
        lambda: hf.resume("T", 1, run_id=wrong),
        lambda: hf.cancel(wrong),
        lambda: hf.cancel(run.id, wrong),
        lambda: hf.signal(run.id, wrong),
        lambda: hf.signal(run.id, "go", correlation=wrong),
        lambda: hf.approve(run.id, wrong),
    ):
        with pytest.raises(InvalidInputs, match="must be text, not int"):
            await ask()
    assert await run.status() == "waiting"
    assert (await hf.resume("T", 1))["reason"] == "parked"  # as if nothing had been said before


def test_a_client_that_waits_refuses_the_same() -> None:
    wrong: Any = 5
    with (
        SyncClient("http://127.0.0.1:9") as client,
        pytest.raises(InvalidInputs, match=r"^run_id must be text"),
    ):
        client.cancel(wrong)


def test_a_number_is_not_yes_or_no_and_nothing_is_only_what_may_be_left_out() -> None:
    @checked
    def call(n: int, yes: bool = False, name: str | None = None) -> tuple[Any, ...]:
        return n, yes, name

    assert call(1, True, None) == (1, True, None)
    for args in ((True,), (1, 1), (None,), ("1",)):
        with pytest.raises(InvalidInputs):
            call(*args)


def test_every_kind_has_its_words() -> None:
    assert all(word and not is_one(STRANGE) for word, _, is_one in KINDS.values())
