"""Plugins are found and asked what they are; one that cannot be used is refused with all its problems."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import LockingHint, MissedRunPolicy, Schedule, ScheduledPlugin, ScheduledRunCtx
from holdfast.plugins import load as loading
from holdfast.plugins.find import GROUP, given, installed, referenced
from holdfast.plugins.load import Loaded, clean_up, load

pytestmark = pytest.mark.anyio

MODULE = """
from holdfast import Schedule, ScheduledPlugin

class Cleaner(ScheduledPlugin):
    def __init__(self, name="cleaner"):
        self._name = name
    def name(self):
        return self._name
    def schedules(self):
        return [Schedule("hourly", "@hourly")]
    def run(self, ctx):
        pass
"""


class Example(ScheduledPlugin):
    """Answers what it is given."""

    def __init__(self, name: Any = "example", schedules: Any = (), priority: Any = 1000) -> None:
        self._name, self._schedules, self._priority = name, schedules, priority

    def name(self) -> Any:
        return self._name

    def priority(self) -> Any:
        return self._priority

    def schedules(self) -> Any:
        if isinstance(self._schedules, Exception):
            raise self._schedules
        return self._schedules

    def run(self, ctx: ScheduledRunCtx) -> None:
        raise AssertionError("a plugin is enumerated without running it")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that modules can be imported from."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def problems(loaded: Loaded) -> list[str]:
    return [str(problem) for refused in loaded.refused for problem in refused.problems]


async def load_one(plugin: Any) -> Loaded:
    return await load(given([plugin]))


async def test_a_plugin_has_the_name_priority_and_schedules_that_it_says() -> None:
    schedules = [Schedule("hourly", "@hourly"), Schedule("sweep", "90s", jitter_ms=5_000)]
    [plugin] = (await load_one(Example("cleaner", schedules, 10))).plugins
    assert (plugin.name, plugin.priority) == ("cleaner", 10)
    assert [spec.id for spec in plugin.schedules] == ["plugin:cleaner:hourly", "plugin:cleaner:sweep"]


async def test_an_empty_list_of_schedules_is_legal() -> None:
    loaded = await load_one(Example(schedules=[]))
    assert [plugin.schedules for plugin in loaded.plugins] == [()]


def test_a_schedule_has_the_defaults_of_the_interface() -> None:
    schedule = Schedule("a", "5m")
    assert (schedule.description, schedule.jitter_ms, schedule.config_json) == ("", 0, "")
    assert schedule.missed_run_policy is MissedRunPolicy.RUN_ONCE
    assert schedule.locking is LockingHint.REQUIRE_GLOBAL


def test_policies_and_hints_also_have_the_names_of_the_interface_in_rust() -> None:
    assert [*MissedRunPolicy] == [MissedRunPolicy.RunOnce, MissedRunPolicy.Skip, MissedRunPolicy.RunAll]
    assert {LockingHint.RequireGlobal, LockingHint.PreferGlobal, LockingHint.NodeLocal} == {*LockingHint}


async def test_missed_runs_are_caught_up_once_unless_the_schedule_says_otherwise() -> None:
    schedules = [Schedule("a", "5m"), Schedule("b", "5m", missed_run_policy=MissedRunPolicy.RUN_ALL)]
    [plugin] = (await load_one(Example(schedules=schedules))).plugins
    assert [spec.missed_run_policy for spec in plugin.schedules] == ["run_once", "run_all"]


async def test_a_plugin_may_answer_with_plain_data_and_words() -> None:
    data = {"id": "a", "cron": "0 */3 * * *", "locking": "node_local", "config_json": "{"}
    [plugin] = (await load_one(Example(schedules=[data]))).plugins
    assert plugin.schedules[0].locking == "node_local"


@pytest.mark.parametrize(
    "cron", ["30s", "5m", "2h", "1h30m", "500ms", "1d", "*/5 * * * *", "0 */3 * * *", "0 0 3 * * MON", "@hourly", "@daily"]
)  # fmt: skip
async def test_intervals_cron_expressions_and_shortcuts_are_accepted(cron: str) -> None:
    assert (await load_one(Example(schedules=[Schedule("a", cron)]))).refused == ()


@pytest.mark.parametrize(
    "cron", ["", "0s", "0m", "30", "-5m", "1h 30m", "99ms", "@fortnightly", "60 * * * *", "* * * *"]
)
async def test_an_expression_that_cannot_be_read_refuses_the_plugin(cron: str) -> None:
    loaded = await load_one(Example(schedules=[Schedule("a", cron)]))
    assert loaded.plugins == () and problems(loaded)[0].startswith('schedule "a": ')


async def test_a_refused_plugin_is_reported_with_all_its_problems() -> None:
    schedules = [
        Schedule("a", "0s"),
        {"id": "b", "corn": "5m"},
        Schedule(" ", "5m"),
        Schedule("c", "5m", jitter_ms=-1),
    ]
    [refused] = (await load_one(Example("cleaner", schedules, -1))).refused
    assert refused.name == "cleaner"
    found = [problem.code for problem in refused.problems]
    assert found == ["out_of_range", "invalid_interval", "unknown_key", "empty_name", "out_of_range"]


async def test_the_same_id_twice_in_a_plugin_refuses_it() -> None:
    loaded = await load_one(Example(schedules=[Schedule("a", "5m"), Schedule("a", "6m")]))
    assert problems(loaded) == ['duplicate schedule id "a" (ids are unique within a plugin)']


@pytest.mark.parametrize("name", ["", " ", None, 5, "a:b", "x" * 101, "a\x07"])
async def test_a_name_that_cannot_be_part_of_an_id_refuses_the_plugin(name: Any) -> None:
    assert (await load_one(Example(name))).plugins == ()


@pytest.mark.parametrize("name", ["x" * 200, "a\n"])
async def test_an_id_that_cannot_be_stored_refuses_the_plugin(name: str) -> None:
    assert (await load_one(Example(schedules=[Schedule(name, "5m")]))).plugins == ()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ValueError("no table"), "schedules() failed: ValueError: no table"),
        ("no table", "schedules() failed: no table"),
        (None, "schedules() returned None"),
        ({"id": "a"}, "schedules() must return a list, not dict"),
        ([5], "schedules()[0] must be a Schedule, not a number"),
        ([object()], "is not JSON"),
    ],
)
async def test_schedules_that_cannot_be_had_refuse_the_plugin(answer: Any, words: str) -> None:
    [problem] = problems(await load_one(Example(schedules=answer)))
    assert words in problem


async def test_other_plugins_are_loaded_when_one_is_refused() -> None:
    loaded = await load(given([Example("bad", "error"), Example("good")]))
    assert [plugin.name for plugin in loaded.plugins] == ["good"]
    assert [refused.name for refused in loaded.refused] == ["bad"]


async def test_of_two_plugins_with_one_name_the_second_is_refused() -> None:
    loaded = await load(given([Example("a", priority=1), Example("a", priority=2)]))
    assert [plugin.priority for plugin in loaded.plugins] == [1]
    assert "another plugin has the name" in problems(loaded)[0]


async def test_schedules_that_take_too_long_refuse_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "SCHEDULES_SECS_MAX", 2)
    never = threading.Event()

    class Stuck(Example):
        def schedules(self) -> Any:
            never.wait()
            return []

    loaded = await load(given([Stuck("stuck"), Example("good")]))
    never.set()
    assert problems(loaded) == ["schedules() takes longer than 2 seconds (do the work in run())"]
    assert [plugin.name for plugin in loaded.plugins] == ["good"]


@pytest.mark.parametrize("timeout", [0, -1, "5", True, 1e12])
async def test_a_timeout_that_is_no_time_refuses_the_plugin(timeout: Any) -> None:
    plugin = Example()
    plugin.timeout_secs = timeout
    assert "timeout_secs" in problems(await load_one(plugin))[0]


async def test_an_object_without_the_methods_of_a_plugin_is_refused() -> None:
    loaded = await load(given([object(), Example("good")]))
    assert "has no method name, schedules, run" in problems(loaded)[0]
    assert [plugin.name for plugin in loaded.plugins] == ["good"]


async def test_a_name_that_is_a_text_instead_of_a_method_refuses_the_plugin() -> None:
    plugin = Example()
    plugin.name = "mine"  # type: ignore[method-assign, assignment]
    (problem,) = problems(await load(given([plugin])))
    assert "its name is \"mine\", which cannot be called (write def name(self): return 'mine')" in problem


async def test_a_priority_that_is_a_number_instead_of_a_method_refuses_the_plugin() -> None:
    plugin = Example()
    plugin.priority = 3  # type: ignore[method-assign, assignment]
    (problem,) = problems(await load_one(plugin))
    assert problem == 'priority must be a method, not "3" (write def priority(self): return 3)'


async def test_an_object_with_the_methods_is_a_plugin_without_the_base_class() -> None:
    class Bare:
        def name(self) -> str:
            return "bare"

        def schedules(self) -> list[dict[str, str]]:
            return [{"id": "a", "cron": "5m"}]

        def run(self, ctx: ScheduledRunCtx) -> None: ...

    [plugin] = (await load_one(Bare())).plugins
    assert (plugin.name, plugin.priority) == ("bare", 1000)
    await clean_up([plugin])


# --------------------------------------------------------------------------------------------------- where they are


async def test_a_module_gives_the_plugins_that_it_defines(folder: Path) -> None:
    (folder / "one_class.py").write_text(MODULE)
    loaded = await load(referenced(["one_class"]))
    assert [(plugin.source, plugin.name) for plugin in loaded.plugins] == [("one_class", "cleaner")]


async def test_a_module_with_objects_gives_these_and_not_their_class(folder: Path) -> None:
    (folder / "objects.py").write_text(MODULE + "a, b = Cleaner('a'), Cleaner('b')\n")
    loaded = await load(referenced(["objects"]))
    assert [plugin.name for plugin in loaded.plugins] == ["a", "b"]


@pytest.mark.parametrize("value", ["Cleaner('named')", "lambda: Cleaner('named')", "[Cleaner('named')]"])
async def test_an_object_of_a_module_can_be_named(folder: Path, value: str) -> None:
    (folder / "named.py").write_text(f"{MODULE}plugin = {value}\n")
    loaded = await load(referenced(["named:plugin"]))
    assert [plugin.name for plugin in loaded.plugins] == ["named"]


@pytest.mark.parametrize(
    ("reference", "text", "words"),
    [
        ("nowhere", "", "no module 'nowhere' to load plugins from"),
        ("broken", "1 / 0", "cannot load plugins from 'broken': ZeroDivisionError"),
        ("leaves", "raise SystemExit(3)", "cannot load plugins from 'leaves': SystemExit: 3"),
        ("empty", "", "module 'empty' has no plugins"),
        ("typo:plugn", "plugin = 1", "did you mean plugin?"),
        ("wrong:plugin", "plugin = 1", "int is not a plugin"),
        (
            "raises:plugin",
            "def plugin(): raise ValueError('no')",
            "cannot make raises.plugin: ValueError: no",
        ),
        ("path/of/file.py", "", "write path.of.file"),
    ],
)
async def test_a_reference_that_leads_nowhere_is_reported(
    folder: Path, reference: str, text: str, words: str
) -> None:
    name = reference.partition(":")[0]
    if text or name == "empty":
        (folder / f"{name}.py").write_text(text)
    loaded = await load(referenced([reference]))
    assert loaded.plugins == () and words in problems(loaded)[0]


async def test_installed_packages_declare_plugins_by_entry_points(folder: Path) -> None:
    (folder / "packaged.py").write_text(MODULE)
    metadata = folder / "packaged-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[{GROUP}]\nclean = packaged:Cleaner\nlost = packaged:Nobody\n"
    )
    loaded = await load(installed())
    assert [(one.source, one.name) for one in loaded.plugins] == [
        ("entry point clean of packaged", "cleaner")
    ]
    assert "no attribute 'Nobody'" in problems(loaded)[0]


# --------------------------------------------------------------------------------------------------------- cleanup


async def test_cleanup_is_called_and_its_errors_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Untidy(Example):
        def cleanup(self) -> str | None:
            if self._name == "raises":
                raise ValueError("no")
            return f"{self._name} failed"

    await clean_up((await load(given([Untidy("raises"), Untidy("returns"), Example("quiet")]))).plugins)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert texts[0].startswith("plugin raises: cleanup() failed: ValueError: no")
    assert texts[1] == "plugin returns: cleanup() failed: returns failed"


async def test_a_cleanup_that_takes_too_long_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loading, "CLEANUP_SECS_MAX", 0.01)
    never = threading.Event()

    class Stuck(Example):
        def cleanup(self) -> None:
            never.wait()

    await clean_up((await load_one(Stuck())).plugins)
    never.set()
    assert "takes longer than 0.01 seconds" in caplog.text


async def test_a_cleanup_may_be_a_coroutine() -> None:
    done = []

    class Async(Example):
        async def cleanup(self) -> None:
            done.append(True)

    await clean_up((await load_one(Async())).plugins)
    assert done == [True]
