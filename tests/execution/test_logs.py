"""Log lines and tracebacks of attempts, on a real engine and a real file."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import io
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, RunFailed, ToolError, limits, tool
from holdfast.store.records import LogLine
from holdfast.testing import TestEngine
from holdfast.tools import prints
from holdfast.tools.secrets import Secrets
from holdfast.values import RunNo

users = logging.getLogger("users.module")


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "users.module")


def one(name: str, **more: Any) -> dict[str, Any]:
    return {"name": "w", "steps": [{"id": "a", "tool": name, **more}]}


async def lines(engine: TestEngine, no: int = 1, **wanted: Any) -> list[LogLine]:
    store = (await engine.open())._engine.store
    return await store.log_lines(RunNo(no), 0, 10_000, **wanted)


async def said(engine: TestEngine) -> list[tuple[str, str]]:
    return [(line.level, line.text) for line in await lines(engine)]


async def test_a_line_of_the_context_is_stored_with_its_fields(engine: TestEngine) -> None:
    @tool
    async def speak(context: Context) -> None:
        context.log("half done", left=3)

    engine.tool(speak)
    await engine.run(one("speak"))
    (line,) = await lines(engine)
    assert (line.n, line.path, line.attempt, line.level, line.text) == (1, "a", 1, "info", "half done left=3")


async def test_what_an_async_tool_that_never_waits_logs_is_stored(engine: TestEngine) -> None:
    @tool
    async def speak() -> None:
        users.info("from %s", "logging")

    engine.tool(speak)
    await engine.run(one("speak"))
    assert await said(engine) == [("info", "from logging")]


@dataclasses.dataclass
class Named:
    name: str

    def __post_init__(self) -> None:
        users.info("made %s", self.name)


async def test_what_is_logged_while_arguments_are_made_is_in_no_log_of_another_run(
    engine: TestEngine,
) -> None:
    @tool
    async def greet(who: Named) -> None:
        users.info("greets %s", who.name)

    engine.tool(greet)
    greeting = one("greet", args={"who": {"name": "{{inputs.name}}"}})
    hf = await engine.open()
    runs = await asyncio.gather(*[hf.start(greeting, {"name": name}) for name in "abcdefgh"])
    await asyncio.gather(*[run.result() for run in runs])
    await engine.advance(seconds=2)
    seen = [[line.text for line in await lines(engine, no)] for no in range(1, 9)]
    assert sorted(map(str, seen)) == [f"['greets {name}']" for name in "abcdefgh"]


async def test_what_a_tool_and_its_tasks_log_after_waiting_is_stored(engine: TestEngine) -> None:
    async def part(name: str) -> None:
        await asyncio.sleep(0)
        users.warning("part %s", name)

    @tool
    async def speak() -> None:
        await asyncio.sleep(0)
        users.info("begun")
        await asyncio.gather(part("x"), part("y"))

    engine.tool(speak)
    await engine.run(one("speak"))
    await engine.run(one("speak"))  # by then it is known to wait, and has a task of its own
    expected = [("info", "begun"), ("warning", "part x"), ("warning", "part y")]
    assert [(line.level, line.text) for line in await lines(engine, 2)] == expected


async def test_what_a_sync_tool_logs_in_its_thread_is_stored(engine: TestEngine) -> None:
    @tool
    def speak() -> None:
        users.error("from a thread")

    engine.tool(speak)
    await engine.run(one("speak"))
    assert await said(engine) == [("error", "from a thread")]


async def test_each_step_has_its_own_lines(engine: TestEngine) -> None:
    """A step that another one leads to runs in a copy of its context."""

    @tool
    def threaded() -> None:
        users.info("threaded")

    @tool
    async def waiting() -> None:
        users.info("before")
        await asyncio.sleep(0)
        users.info("after")

    engine.tool(threaded), engine.tool(waiting)
    steps = [{"id": f"{name}{n}", "tool": name} for n in range(3) for name in ("threaded", "waiting")]
    await engine.run({"name": "w", "steps": steps})
    found = [(line.path, line.text) for line in await lines(engine)]
    expected = [
        (f"{name}{n}", text)
        for n in range(3)
        for name, texts in (("threaded", ["threaded"]), ("waiting", ["before", "after"]))
        for text in texts
    ]
    assert found == expected


async def test_what_a_tool_prints_in_a_command_is_stored_and_shown_without_secrets(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", prints.Stream(shown, "stdout", Secrets(known=["hunter22"])))
    monkeypatch.setenv("HOLDFAST_SECRET_PW", "hunter22")

    @tool
    def speak(password: str) -> None:
        print("the password is", password)
        print("no end", end="")

    engine.tool(speak)
    await engine.run(one("speak", args={"password": "{{secrets.PW}}"}))
    print("from the program")
    assert await said(engine) == [("stdout", "the password is ***"), ("stdout", "no end")]
    assert shown.getvalue() == "the password is ***\nno endfrom the program\n"


async def test_what_code_outside_of_tools_logs_is_not_stored(engine: TestEngine) -> None:
    engine.fake_tool("quiet")
    await engine.run(one("quiet"))
    users.warning("from the program itself")
    await engine.advance(seconds=2)
    assert await said(engine) == []


async def test_lines_of_a_long_attempt_are_stored_after_a_second(engine: TestEngine) -> None:
    @tool
    async def speak() -> None:
        users.info("begun")
        await asyncio.get_running_loop().create_future()

    engine.tool(speak)
    await engine.start(one("speak"))
    assert await said(engine) == []
    await engine.advance(seconds=1.1)
    assert await said(engine) == [("info", "begun")]


async def test_an_attempt_keeps_so_many_lines_and_then_a_mark(engine: TestEngine) -> None:
    @tool
    def speak() -> None:
        for number in range(limits.now.log_lines_max + 100):
            users.info("line %d", number)

    engine.tool(speak)
    await engine.run(one("speak"))
    found = await said(engine)
    assert len(found) == limits.now.log_lines_max
    assert found[-1][0] == "warning"
    assert "further lines were dropped: an attempt may log 1,000 lines or 65,536 bytes" in found[-1][1]


async def test_lines_of_a_step_include_those_of_the_steps_inside_it(engine: TestEngine) -> None:
    @tool
    def speak(text: str) -> None:
        users.info(text)

    engine.tool(speak)
    body = [{"id": "one", "tool": "speak", "args": {"text": "inside"}}]
    loop = {"id": "loop", "kind": "foreach", "items": "$.inputs.of", "steps": body}
    await engine.run(
        {"name": "w", "steps": [loop, {"id": "loop2", "tool": "speak", "args": {"text": "after"}}]},
        {"of": [1]},
    )
    assert [line.text for line in await lines(engine, path="loop")] == ["inside"]
    assert [line.text for line in await lines(engine, path="loop[0].one")] == ["inside"]
    assert [line.text for line in await lines(engine)] == ["inside", "after"]


async def test_secrets_are_redacted_in_lines_and_tracebacks(engine: TestEngine) -> None:
    engine.options["secrets"] = [{"KEY": "canary-7f3a"}.get]

    @tool
    def speak(key: str) -> None:
        users.info("the key is %s", key)
        raise RuntimeError(f"refused {key}")

    engine.tool(speak)
    with pytest.raises(RunFailed) as caught:
        await engine.run(one("speak", args={"key": "{{secrets.KEY}}"}))
    texts = [text for _, text in await said(engine)]
    assert texts[0].startswith("the key is ")
    assert "RuntimeError: refused" in texts[1]
    assert "canary" not in "".join([*texts, *caught.value.__notes__])


async def test_the_traceback_of_a_failed_attempt_has_the_frames_of_the_tool_and_none_of_ours(
    engine: TestEngine,
) -> None:
    def deeper() -> None:
        raise ValueError("no such order")

    @tool
    async def broken() -> None:
        try:
            deeper()
        except ValueError as error:
            raise ToolError("cannot ship", kind="shipping") from error

    engine.tool(broken)
    with pytest.raises(RunFailed) as caught:
        await engine.run(one("broken"))
    (line,) = await lines(engine)
    assert line.level == "traceback"
    assert "in deeper" in line.text and "ValueError: no such order" in line.text
    assert line.text.rstrip().endswith("ToolError: cannot ship")
    assert "holdfast/" not in line.text.replace("tests/", "")
    (note,) = caught.value.__notes__
    assert note.startswith("in the tool of step a, attempt 1:\nTraceback")


async def test_each_failed_attempt_keeps_its_own_traceback(engine: TestEngine) -> None:
    @tool
    def flaky(context: Context) -> int:
        if context.attempt < 3:
            raise OSError(f"try {context.attempt}")
        return context.attempt

    engine.tool(flaky)
    assert await engine.run(one("flaky", retry={"max_attempts": 3})) == {"a": 3}
    found = await lines(engine, level="traceback")
    assert [(line.attempt, line.text.rstrip().rpartition("\n")[2]) for line in found] == [
        (1, "OSError: try 1"),
        (2, "OSError: try 2"),
    ]


async def test_a_long_traceback_keeps_its_end(engine: TestEngine) -> None:
    @tool
    def broken() -> None:
        raise ValueError("long\n" * 10_000 + "the end")

    engine.tool(broken)
    with pytest.raises(RunFailed):
        await engine.run(one("broken"))
    (line,) = await lines(engine)
    assert len(line.text) <= limits.now.traceback_bytes_max + 100
    assert line.text.startswith("… (the beginning was cut off)\n")
    assert line.text.rstrip().endswith("the end")


async def test_an_exception_that_cannot_be_described_fails_the_step_all_the_same(engine: TestEngine) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    @tool
    def broken() -> None:
        raise Hostile

    engine.tool(broken)
    with pytest.raises(RunFailed, match="cannot be printed"):
        await engine.run(one("broken"))


async def test_a_message_that_does_not_fit_its_arguments_is_left_to_logging(engine: TestEngine) -> None:
    @tool
    def speak() -> int:
        logging.getLogRecordFactory()("users.module", logging.INFO, "", 0, "%d of %d", ("x",), None)
        return 7

    engine.tool(speak)
    assert await engine.run(one("speak")) == {"a": 7}
    assert await said(engine) == []


async def test_closing_the_engine_restores_the_factory_of_records(engine: TestEngine) -> None:
    before = logging.getLogRecordFactory()
    await engine.open()
    assert logging.getLogRecordFactory() != before
    engine.close()
    assert logging.getLogRecordFactory() == before


@pytest.mark.anyio
async def test_engines_closed_in_any_order_do_not_make_logging_deeper(tmp_path: Path) -> None:
    """Each one used to wrap the factory of the one before: after a thousand, a log line exceeded the depth of the stack."""

    before, depths = logging.getLogRecordFactory(), list[int]()

    def measured(*args: Any, **named: Any) -> logging.LogRecord:
        depths.append(len(inspect.stack(0)))
        return before(*args, **named)

    logging.setLogRecordFactory(measured)
    try:
        async with Holdfast(str(tmp_path / "one.db")):
            users.warning("with one engine")
            for number in range(5):
                first = Holdfast(str(tmp_path / f"{number}.db"))
                await first.__aenter__()
                async with Holdfast(str(tmp_path / f"{number}-second.db")):
                    await first.__aexit__(None, None, None)
            users.warning("after pairs that were not closed in the order of opening")
        assert depths[0] == depths[-1]
        assert logging.getLogRecordFactory() is measured
    finally:
        logging.setLogRecordFactory(before)


@pytest.mark.anyio
async def test_a_factory_of_the_users_that_wraps_ours_is_not_called_back(tmp_path: Path) -> None:
    before = logging.getLogRecordFactory()
    async with Holdfast(str(tmp_path / "a.db")):
        ours = logging.getLogRecordFactory()
        logging.setLogRecordFactory(functools.partial(ours))
        try:
            async with Holdfast(str(tmp_path / "b.db")):
                users.warning("once around is enough")
        finally:
            logging.setLogRecordFactory(before)


def test_a_program_may_log_while_its_loop_stands_still(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hf = Holdfast(str(tmp_path / "a.db"))
    with asyncio.Runner() as runner:
        runner.run(hf.__aenter__())
        users.warning("between two runs of the loop")
        runner.run(hf.__aexit__(None, None, None))
    assert "between two runs of the loop" in caplog.text
