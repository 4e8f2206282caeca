"""Tools in processes of their own: whatever they do, the pool is whole again and nothing else is touched."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import uvloop

from holdfast import Context, ToolError, tool
from holdfast.tools.processes import Crashed, Processes
from holdfast.tools.registry import Registry, Tool
from holdfast.values import RunId
from tests.tools import isolated

MANY_MIB = 512 * 2**20


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits for what it killed, however busy the machine is."""
    monkeypatch.setattr("holdfast.tools.processes.CLOSE_SECONDS", 60.0)


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    """The product runs on uvloop where it can, and on asyncio elsewhere."""

    @pytest.mark.parametrize(
        "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
    )
    def run(tmp_path: Path, new_loop: Any, **given: Any) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(test(tmp_path))

    run.__name__ = test.__name__
    return run


@asynccontextmanager
async def pool(limit: int = 2, memory_bytes: int | None = None) -> AsyncIterator[Processes]:
    processes = Processes(limit, memory_bytes=memory_bytes)
    try:
        yield processes
    finally:
        processes.close()


def named(fn: Any) -> Tool:
    (made,) = Registry([fn])
    return made


async def call(processes: Processes, fn: Any, context: Context | None = None, **args: Any) -> Any:
    return msgspec.json.decode(await processes.call(named(fn), args, context))


async def written(path: Path) -> str:
    while not (path.exists() and path.read_text()):
        await asyncio.sleep(0.005)
    return path.read_text()


async def ended(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        while psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.005)


@on_both_loops
async def test_arguments_and_results_cross_as_what_they_are(tmp_path: Path) -> None:
    async with pool() as processes:
        assert await call(processes, isolated.double, box={"n": 21}) == {"n": 42}
        assert await call(processes, isolated.later, n=1) == 2


@on_both_loops
async def test_a_process_is_used_again(tmp_path: Path) -> None:
    async with pool() as processes:
        first = await call(processes, isolated.whoami)
        assert await call(processes, isolated.whoami) == first != os.getpid()


@on_both_loops
async def test_nothing_starts_before_it_is_needed(tmp_path: Path) -> None:
    async with pool() as processes:
        assert processes.pids == []


@on_both_loops
async def test_there_are_never_more_processes_than_allowed(tmp_path: Path) -> None:
    async with pool(2) as processes:
        found = await asyncio.gather(*(call(processes, isolated.whoami) for _ in range(20)))
        assert len(set(found)) <= 2
        assert len(processes.pids) <= 2


@on_both_loops
async def test_two_calls_are_at_work_at_the_same_time(tmp_path: Path) -> None:
    async with pool(2) as processes:
        a, b = str(tmp_path / "a"), str(tmp_path / "b")
        first, second = await asyncio.gather(
            call(processes, isolated.meet, mine=a, other=b), call(processes, isolated.meet, mine=b, other=a)
        )
        assert (first, second) == ("met", "met")


@on_both_loops
async def test_a_tool_that_loops_for_ever_ends_when_its_call_is_cancelled(tmp_path: Path) -> None:
    async with pool(1) as processes:
        task = asyncio.create_task(call(processes, isolated.spin, beacon=str(tmp_path / "pid")))
        pid = int(await written(tmp_path / "pid"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended(pid)
        assert await call(processes, isolated.whoami) != pid


async def check_that_it_ends(tool: Any, beacon: Path) -> None:
    """What writes its pid to the beacon ends when the call of the tool is cancelled."""
    async with pool(1) as processes:
        task = asyncio.create_task(call(processes, tool, beacon=str(beacon)))
        pid = int(await written(beacon))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended(pid)


@on_both_loops
async def test_what_a_killed_tool_had_started_ends_with_it(tmp_path: Path) -> None:
    await check_that_it_ends(isolated.with_a_subprocess, tmp_path / "pid")


@on_both_loops
async def test_a_daemon_of_a_tool_ends_when_the_call_is_cancelled(tmp_path: Path) -> None:
    await check_that_it_ends(isolated.with_a_daemon, tmp_path / "pid")


@on_both_loops
async def test_a_daemon_of_a_tool_ends_with_its_process(tmp_path: Path) -> None:
    async with pool(1) as processes:
        with pytest.raises(ToolError, match="ended by signal 9"):
            await call(processes, isolated.shot_with_a_daemon, beacon=str(tmp_path / "pid"))
        await ended(int((tmp_path / "pid").read_text()))


ENGINE = """
import asyncio, sys
from holdfast.tools.processes import Processes
from holdfast.tools.registry import Registry
from tests.tools import isolated

async def main():
    (tool,) = Registry([isolated.with_a_daemon])
    await Processes(1).call(tool, {"beacon": sys.argv[1]})

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_of_a_tool_ends_with_the_engine(tmp_path: Path, number: signal.Signals) -> None:
    beacon = tmp_path / "pid"
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, str(beacon)], cwd=Path(__file__).parents[2])

    async def outlives() -> None:
        pid = int(await written(beacon))
        engine.send_signal(number)
        await ended(pid)

    try:
        asyncio.run(asyncio.wait_for(outlives(), 60))
    finally:
        engine.kill()
        engine.wait()


@on_both_loops
async def test_a_tool_that_looks_at_cancelled_sees_it_before_it_is_killed(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.tools.processes.FAREWELL_SECONDS", 60.0)  # it looks when it gets to it
        await _cancelled_while_patient(tmp_path)
    assert (tmp_path / "seen").read_text() == "seen"


async def _cancelled_while_patient(tmp_path: Path) -> None:
    async with pool(1) as processes:
        given = {"beacon": str(tmp_path / "here"), "farewell": str(tmp_path / "seen")}
        task = asyncio.create_task(call(processes, isolated.patient, context(), **given))
        await written(tmp_path / "here")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@on_both_loops
async def test_a_call_that_waits_for_a_process_can_be_cancelled(tmp_path: Path) -> None:
    async with pool(1) as processes:
        first = asyncio.create_task(call(processes, isolated.spin, beacon=str(tmp_path / "pid")))
        await written(tmp_path / "pid")
        second = asyncio.create_task(call(processes, isolated.whoami))
        await asyncio.sleep(0)
        for task in (second, first):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await call(processes, isolated.whoami) > 0


@on_both_loops
async def test_a_call_cancelled_while_its_process_starts_leaves_the_pool_whole(tmp_path: Path) -> None:
    async with pool(1) as processes:
        for turns in range(8):
            task = asyncio.create_task(call(processes, isolated.whoami))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await call(processes, isolated.whoami) > 0
        assert len(processes.pids) == 1


CRASHES: list[tuple[Any, dict[str, Any], str]] = [
    (isolated.segfault, {}, "ended by signal 11 (SIGSEGV)"),
    (isolated.leave, {"code": 0}, "ended with exit code 0 before it answered"),
    (isolated.leave, {"code": 7}, "ended with exit code 7"),
    (isolated.shot, {}, "ended by signal 9 (SIGKILL); often that is the system, out of memory"),
    (isolated.shot_with_a_child_that_lives, {}, "ended by signal 9"),
]


@on_both_loops
async def test_a_crash_fails_the_call_and_says_how_it_ended(tmp_path: Path) -> None:
    async with pool(1) as processes:
        for fn, args, words in CRASHES:
            with pytest.raises(Crashed) as caught:
                await call(processes, fn, **args)
            assert words in str(caught.value)
            assert caught.value.kind == "crashed"
            assert await call(processes, isolated.later, n=1) == 2


@on_both_loops
async def test_a_process_that_was_killed_while_idle_is_replaced(tmp_path: Path) -> None:
    async with pool(1) as processes:
        pid = await call(processes, isolated.whoami)
        os.kill(pid, signal.SIGKILL)
        for thread in threading.enumerate():
            if thread.name == "holdfast-reaper":
                thread.join()
        assert await call(processes, isolated.whoami) != pid


@on_both_loops
async def test_a_tool_that_allocates_without_end_meets_the_limit_of_its_process(tmp_path: Path) -> None:
    async with pool(1, MANY_MIB) as processes:
        pid = await call(processes, isolated.whoami)
        with pytest.raises(
            ToolError, match=r"MemoryError: a process may use 512 MiB \(process_memory_bytes\)"
        ):
            await call(processes, isolated.hoard)
        assert await call(processes, isolated.whoami) != pid


FAILURES = [
    ("kind", "quota", "over quota"),
    ("plain", "error", "plain words"),
    ("timeout", "timeout", "slow"),
    ("unprintable", "error", "cannot be printed"),
    ("stop", "error", "1"),
    ("keyboard", "error", "KeyboardInterrupt"),
]


@on_both_loops
async def test_an_exception_keeps_its_kind_and_message(tmp_path: Path) -> None:
    async with pool(1) as processes:
        pid = await call(processes, isolated.whoami)
        for how, kind, words in FAILURES:
            with pytest.raises(ToolError) as caught:
                await call(processes, isolated.fails, how=how)
            assert caught.value.kind == kind
            assert words in str(caught.value)
        with pytest.raises(ToolError, match="SystemExit: 3"):
            await call(processes, isolated.quit_politely)
        assert await call(processes, isolated.whoami) == pid


@on_both_loops
async def test_misfitting_arguments_and_results_are_said_as_in_this_process(tmp_path: Path) -> None:
    async with pool(1) as processes:
        with pytest.raises(ToolError, match=r"box\.n: expected int, got str") as caught:
            await call(processes, isolated.double, box={"n": "x"})
        assert caught.value.kind == "inputs"
        for what, words in (("nan", "NaN"), ("generator", "generator"), ("object", "an object at")):
            with pytest.raises(ToolError, match=words):
                await call(processes, isolated.returns, what=what)


@on_both_loops
async def test_what_a_tool_prints_is_no_part_of_its_answer_however_large_that_is(tmp_path: Path) -> None:
    async with pool(1) as processes:
        assert len(await call(processes, isolated.chatty, size=20_000_000)) == 20_000_000


@on_both_loops
async def test_what_is_written_past_python_is_kept_with_its_own_call(tmp_path: Path) -> None:
    async with pool(1) as processes:
        for said in ("one", "two"):
            told: list[Any] = []
            await call(processes, isolated.writes_past_python, context(told, tmp_path), said=said)
            found = [(data["stream"], data["message"]) for _, data in told]
            assert sorted(found) == [
                ("stderr", "no end"), ("stdout", f"{said} by a child"), ("stdout", f"{said} by the system"),
            ]  # fmt: skip


@on_both_loops
async def test_the_last_words_of_a_process_that_is_killed_are_kept(tmp_path: Path) -> None:
    told: list[Any] = []
    async with pool(1) as processes:
        with pytest.raises(ToolError, match="SIGKILL"):
            await call(processes, isolated.last_words, context(told, tmp_path))
    assert [data["message"] for _, data in told] == ["last words"]


@on_both_loops
async def test_an_output_over_the_limit_fails_the_call_and_not_the_process(tmp_path: Path) -> None:
    async with pool(1) as processes:
        with pytest.raises(ToolError) as caught:
            await call(processes, isolated.chatty, size=26 * 2**20)
        assert caught.value.kind == "output_too_large"
        assert await call(processes, isolated.later, n=1) == 2


def context(told: list[Any] | None = None, workdirs: Path | None = None) -> Context:
    emit = None if told is None else lambda kind, data: told.append((kind, data))
    return Context(RunId("r"), "a.b", 2, "stable", emit=emit, workdirs=workdirs)


@on_both_loops
async def test_the_context_is_known_inside_and_what_it_says_comes_out(tmp_path: Path) -> None:
    told: list[Any] = []
    given = context(told, tmp_path)
    async with pool(1) as processes:
        found = await call(processes, isolated.about, given)
    workdir = found.pop("workdir")
    assert found == {"run_id": "r", "path": "a.b", "attempt": 2, "key": "stable", "cancelled": False}
    assert told == [
        ("log", {"message": "at work", "fields": {"step": 1}}),
        ("progress", {"fraction": 0.5, "message": "", "done": 1, "total": 2}),
    ]
    assert (Path(workdir) / "file").exists()
    given.close()
    assert not Path(workdir).exists()


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    is_remote = True  # asked on the event loop of the engine, which must not wait

    async def work(self, act: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return await asyncio.to_thread(act, *args, **named)

    def fetch(self, uri: str, folder: Callable[[], Path]) -> Path:
        if uri != "known":
            raise LookupError("no such file")
        return self.folder / "file"


@on_both_loops
async def test_an_artefact_is_found_through_the_engine(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    given = Context(RunId("r"), "a", 1, "k", artefacts=Files(tmp_path))
    async with pool(1) as processes:
        assert await call(processes, isolated.reads, given, uri="known") == "content"
        with pytest.raises(ToolError, match="no such file") as caught:
            await call(processes, isolated.reads, given, uri="other")
    assert caught.value.kind == "artefact"


@on_both_loops
async def test_the_folder_of_a_killed_tool_can_be_removed_from_here(tmp_path: Path) -> None:
    given = context(workdirs=tmp_path)
    async with pool(1) as processes:
        task = asyncio.create_task(call(processes, isolated.messy, given, beacon=str(tmp_path / "at")))
        folder = Path(await written(tmp_path / "at"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    given.close()
    assert not folder.exists()


@on_both_loops
async def test_closing_leaves_no_process_no_zombie_and_no_descriptor(tmp_path: Path) -> None:
    await asyncio.sleep(0)
    before = psutil.Process().num_fds()
    async with pool(2) as processes:
        await asyncio.gather(*(call(processes, isolated.whoami) for _ in range(4)))
        task = asyncio.create_task(call(processes, isolated.spin, beacon=str(tmp_path / "pid")))
        await written(tmp_path / "pid")
        pids = processes.pids
    with pytest.raises(Crashed):
        await task
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    await asyncio.sleep(0)
    assert psutil.Process().num_fds() <= before + 1  # asyncio's own pipe to itself may be younger


# --------------------------------------------------------------------------------------- how a function is found


def test_a_function_that_another_process_could_not_find_is_refused_at_registration() -> None:
    @tool(isolate="process")
    def inner() -> None: ...

    marked = tool(name="short", isolate="process")(lambda: None)
    with pytest.raises(TypeError, match=r"tool 'inner' runs in a process, which finds it by name"):
        Registry([inner])
    with pytest.raises(TypeError, match=r"tool 'short' runs in a process"):
        Registry([marked])


def test_an_isolation_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="isolate is \"process\" or left out, not 'thread'"):
        tool(isolate="thread")(len)  # type: ignore[call-overload]


SCRIPT = """
    import asyncio, dataclasses, os, sys
    from holdfast import tool
    from holdfast.tools.processes import Processes
    from holdfast.tools.registry import Registry

    @dataclasses.dataclass
    class Box:
        n: int

    @tool(isolate="process")
    def double(box: Box) -> int:
        return box.n * 2

    async def main():
        processes = Processes(1)
        (made,) = Registry([double])
        try:
            print((await processes.call(made, {"box": {"n": 21}})).decode())
        except Exception as error:
            print(error)
        finally:
            processes.close()
"""


def run_script(tmp_path: Path, *lines: str, module: bool = False) -> str:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT) + "\n".join(lines) + "\n")
    command = [sys.executable, "-m", "script"] if module else [sys.executable, str(path)]
    return subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()


@pytest.mark.parametrize("module", [False, True])
def test_a_tool_of_the_script_itself_is_found(tmp_path: Path, module: bool) -> None:
    assert (
        run_script(tmp_path, 'if __name__ == "__main__":', "    asyncio.run(main())", module=module) == "42"
    )


def test_a_script_that_starts_runs_whenever_it_is_loaded_is_told_what_to_do(tmp_path: Path) -> None:
    said = run_script(
        tmp_path, "asyncio.run(main())", "if __name__ != '__main__': raise SystemExit('loaded')"
    )
    assert "put that code under `if __name__" in said


def test_a_module_that_cannot_be_loaded_again_is_named(tmp_path: Path) -> None:
    said = run_script(
        tmp_path,
        'if __name__ == "__main__":',
        "    asyncio.run(main())",
        "else:",
        "    raise KeyError('again')",
    )
    assert "the process of the tool 'double' cannot load it from '__main__': KeyError" in said


def test_a_session_without_a_file_is_told_to_use_a_module() -> None:
    program = (
        textwrap.dedent(SCRIPT)
        + "\ntry:\n    Registry([double])\nexcept TypeError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert "put it into a module" in done.stdout


ENGINE = """
import asyncio, sys
from holdfast.tools.processes import Processes
from holdfast.tools.registry import Registry
from tests.tools import isolated

async def main():
    processes = Processes(1)
    (made,) = Registry([isolated.spin])
    await processes.call(made, {"beacon": sys.argv[1]})

asyncio.run(main())
"""


def test_an_engine_that_is_killed_takes_its_processes_with_it(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ENGINE, str(tmp_path / "pid")]) as engine:
        pid = int(asyncio.run(written(tmp_path / "pid")))
        engine.kill()
    asyncio.run(ended(pid))
