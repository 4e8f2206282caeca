"""The plugin within pytest: which tests it runs, which it leaves alone, and what a failing one leaves behind."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inner import PLAIN


@pytest.fixture
def outcome(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """How each test of a file ended, in a pytest of its own; the file is the docstring of the test, what it printed is under ""."""
    (tmp_path / "test_user.py").write_text(inspect.cleandoc(str(request.function.__doc__)), "utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        *PLAIN,
        "test_user.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if "test_user.py::" in line]
    found = {rest.split("::")[1].split(" ")[0]: word.lower() for word, rest in lines}
    return {**found, "": done.stdout + done.stderr}


def test_async_tests_need_no_other_plugin_and_no_mark(outcome: dict[str, str]) -> None:
    """
    SPEC = "name: n\\nsteps: [{id: t, kind: timer, delay_ms: 3600000}, {id: a, tool: work}]"

    async def test_plain(engine):
        engine.fake_tool("work", returns=5)
        assert (await engine.run(SPEC))["a"] == 5

    class TestClass:
        async def test_method(self, engine, tmp_path):
            engine.fake_tool("work", returns=tmp_path.name)
            assert (await engine.run(SPEC))["a"] == tmp_path.name
    """
    assert (outcome["test_plain"], outcome["TestClass"]) == ("passed", "passed"), outcome[""]


def test_a_failing_test_fails_and_leaves_nothing_behind(outcome: dict[str, str]) -> None:
    """
    import asyncio, pytest
    SPEC = "name: n\\nsteps: [{id: a, tool: work}]"

    @pytest.fixture(scope="module")
    def seen():
        return []

    async def test_fails_with_a_tool_at_work(engine, seen):
        async def work():
            try:
                await asyncio.sleep(1e6)
            finally:
                seen.append("stopped")
        engine.fake_tool("work", work)
        await engine.start(SPEC)
        assert 1 == 2

    async def test_raises_before_it_has_begun(engine):
        raise RuntimeError("early")

    async def test_comes_after(engine, seen):
        engine.fake_tool("work", returns=5)
        assert await engine.run(SPEC) == {"a": 5}
        assert seen == ["stopped"]
    """
    assert "assert 1 == 2" in outcome[""]
    assert {name: how for name, how in outcome.items() if name} == {
        "test_fails_with_a_tool_at_work": "failed",
        "test_raises_before_it_has_begun": "failed",
        "test_comes_after": "passed",
    }, outcome[""]


def test_tests_that_are_marked_for_another_plugin_are_run_by_it(outcome: dict[str, str]) -> None:
    """
    import asyncio, pytest
    from holdfast.testing import ManualLoop
    SPEC = "name: n\\nsteps: [{id: t, kind: timer, delay_ms: 3600000}, {id: a, tool: work}]"

    @pytest.fixture
    def anyio_backend():
        return "asyncio"

    @pytest.mark.anyio
    async def test_theirs(engine):
        assert not isinstance(asyncio.get_running_loop(), ManualLoop)
        engine.fake_tool("work", returns=5)
        run = await engine.start(SPEC)
        await engine.restart()
        await engine.advance(hours=1)
        assert (await run.result())["a"] == 5

    @pytest.mark.anyio
    async def test_theirs_without_an_engine():
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() > began + 0.005

    async def test_ours(engine):
        assert isinstance(asyncio.get_running_loop(), ManualLoop)
    """
    assert {how for name, how in outcome.items() if name} == {"passed"}, outcome[""]


def test_a_fixture_of_the_same_name_is_left_alone(outcome: dict[str, str]) -> None:
    """
    import sys, pytest

    @pytest.fixture
    def engine():
        return "an engine of something else"

    def test_sync(engine):
        assert engine == "an engine of something else"
        assert not {"apsw", "msgspec", "holdfast.embed"} & set(sys.modules)

    async def test_async(engine):
        pass
    """
    assert (outcome["test_sync"], outcome["test_async"]) == ("passed", "failed"), outcome[""]
    assert "async def functions are not natively supported" in outcome[""]


def test_a_test_in_which_nothing_can_move_says_so(outcome: dict[str, str]) -> None:
    """
    import holdfast.testing
    SPEC = "name: n\\nsteps: [{id: t, kind: timer, delay_ms: 3600000}]"

    async def test_stuck(engine, monkeypatch):
        monkeypatch.setattr(holdfast.testing, "STUCK_SECONDS", 0.1)
        await (await engine.start(SPEC)).result()
    """
    assert outcome["test_stuck"] == "failed"
    assert "await engine.advance(hours=1)" in outcome[""]
