"""Limits: their settings, what is refused, and that the error names the limit and its setting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast import Context, Holdfast, InvalidSpec, RunFailed, config, limits, tool
from holdfast.errors import InvalidInputs, LimitExceeded
from holdfast.http.serve import serving
from holdfast.spec.notation import definition_from_stored, definition_from_text
from holdfast.values import written
from tests.small_limits import defaults_before_and_after

pytestmark = pytest.mark.anyio

HELLO = "name: hello\nsteps: [{id: a, tool: echo, args: {value: '{{inputs.x}}'}}]\n"
WAITS = "name: waits\nsteps: [{id: w, kind: wait_event, signal_key: go}]\n"
CYCLE = {
    "name": "cycle",
    "start": "a",
    "nodes": {"a": {"kind": "local", "service": "step"}},
    "edges": [{"from": "a", "to": "a", "action": "default"}],
}


@pytest.fixture(autouse=True)
def _defaults_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with defaults_before_and_after(monkeypatch):
        yield


@tool(isolate="process")
def apart(count: int, context: Context) -> str:
    for number in range(5):
        context.log(f"line {number}")
    return "x" * count


def settings(folder: Path, text: str = "", **env: str) -> config.Settings:
    (folder / "holdfast.toml").write_text(text)
    return config.load(env=env, folder=folder)


@pytest.mark.parametrize("name", limits.NAMES)
def test_every_limit_is_read_from_the_file_and_the_environment(tmp_path: Path, name: str) -> None:
    low, high = limits.bounds(name)
    assert low <= getattr(limits.DEFAULTS, name) <= high
    assert settings(tmp_path, f"[limits]\n{name} = {low}\n").limits == {name: low}
    variable = {f"HOLDFAST_LIMIT_{name.upper()}": str(high)}
    assert settings(tmp_path, f"[limits]\n{name} = {low}\n", **variable).limits == {name: high}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("signal_max = 5", "did you mean signals_max"),
        ("signals_max = 0", "from 1 to 100,000"),
        ("signals_max = -1", "not -1"),
        ("signals_max = 1_000_000_000", "from 1 to 100,000"),
        ("signals_max = 2.5", "whole number"),
        ("signals_max = true", "whole number"),
        ("signals_max = inf", "whole number"),
        ('signals_max = "5"', "whole number"),
        ("value_bytes_max = 26_214_401", "to 26,214,400"),
    ],
)
def test_a_limit_that_cannot_be_set_so_is_refused_with_its_place(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(config.InvalidSettings) as refused:
        settings(tmp_path, f"[limits]\n{text}\n")
    (problem,) = refused.value.problems
    assert says in str(problem) and problem.line == 2


def test_a_variable_that_names_no_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(config.InvalidSettings, match=r"HOLDFAST_LIMIT_SIGNAL_MAX.*signals_max"):
        settings(tmp_path, HOLDFAST_LIMIT_SIGNAL_MAX="5")
    with pytest.raises(config.InvalidSettings, match=r"HOLDFAST_LIMIT_SIGNALS_MAX.*whole number"):
        settings(tmp_path, HOLDFAST_LIMIT_SIGNALS_MAX="many")


async def test_two_open_engines_cannot_have_different_limits(tmp_path: Path) -> None:
    first = Holdfast(str(tmp_path / "a.db"), limits={"signals_max": 5})
    async with first:
        assert limits.now.signals_max == 5
        async with Holdfast(str(tmp_path / "b.db"), limits={"signals_max": 5}):
            pass
        with pytest.raises(ValueError, match=r"signals_max.*whole process"):
            async with Holdfast(str(tmp_path / "c.db"), limits={"signals_max": 6}):
                pass
        assert limits.now.signals_max == 5
    async with Holdfast(str(tmp_path / "c.db"), limits={"signals_max": 6}):
        assert limits.now.signals_max == 6


async def _fails(*_: Any, **__: Any) -> None:
    raise OSError("the disk is away")


@pytest.mark.parametrize("part", ["workers.open", "upkeep.close", "outbox.close"])
async def test_an_engine_that_fails_to_open_or_close_lets_its_limits_and_its_file_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    holdfast = Holdfast(str(tmp_path / "a.db"), limits={"signals_max": 5})
    owner, method = part.split(".")
    monkeypatch.setattr(getattr(holdfast._engine, owner), method, _fails)
    with pytest.raises(OSError, match="the disk is away"):
        async with holdfast:
            pass
    async with Holdfast(str(tmp_path / "a.db"), limits={"signals_max": 6}):
        assert limits.now.signals_max == 6
    assert limits.now.signals_max == limits.DEFAULTS.signals_max


def test_an_engine_refuses_a_limit_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputs, match="did you mean signals_max"):
        Holdfast(str(tmp_path / "a.db"), limits={"signal_max": 5})


async def test_the_error_names_the_limit_and_its_setting(tmp_path: Path) -> None:
    @tool
    def step(**_: Any) -> None: ...

    low = {
        name: limits.bounds(name)[0]
        for name in ("value_bytes_max", "signals_max", "labels_max", "visits_max")
    }
    async with Holdfast(str(tmp_path / "a.db"), tools=[step], limits=low) as hf:
        with pytest.raises(LimitExceeded, match=r"larger than 1 KiB.*limits\.value_bytes_max"):
            await hf.start(HELLO, {"x": "y" * 1024})
        with pytest.raises(LimitExceeded, match=r"limits\.labels_max"):
            await hf.start(HELLO, {"x": 1}, labels={"a": "1", "b": "2"})
        waiting = await hf.start(WAITS)
        await hf.signal(waiting.id, "other", 1)
        with pytest.raises(LimitExceeded, match=r"limits\.signals_max"):
            await hf.signal(waiting.id, "another", 1)
        await hf.signal(waiting.id, "go", 1)
        assert await waiting.result(10) == {"w": 1}
        with pytest.raises(RunFailed, match=r"limits\.visits_max"):
            await (await hf.start(CYCLE)).result(10)


async def test_composed_values_and_results_have_the_limit_that_is_set(tmp_path: Path) -> None:
    @tool
    def many(count: int) -> str:
        return "x" * count

    twice = "name: t\nsteps: [{id: a, tool: echo, args: {value: ['{{inputs.x}}', '{{inputs.x}}']}}]\n"
    async with Holdfast(str(tmp_path / "a.db"), tools=[many], limits={"value_bytes_max": 1024}) as hf:
        with pytest.raises(RunFailed, match=r"limits\.value_bytes_max") as failed:
            await (await hf.start(twice, {"x": "y" * 800})).result(10)
        assert failed.value.error.kind == "input_too_large"
        run = await hf.start("name: m\nsteps: [{id: a, tool: many, args: {count: 2000}}]\n")
        with pytest.raises(RunFailed, match=r"limits\.value_bytes_max") as failed:
            await run.result(10)
        assert failed.value.error.kind == "output_too_large"


async def test_processes_of_isolated_tools_have_the_limits_that_are_set(tmp_path: Path) -> None:
    text = "name: m\nsteps: [{id: a, tool: apart, args: {count: '{{inputs.count}}'}}]\n"
    small = {"value_bytes_max": 1024, "log_lines_max": 2}
    async with Holdfast(str(tmp_path / "a.db"), tools=[apart], limits=small) as hf:
        with pytest.raises(RunFailed, match=r"larger than 1 KiB.*limits\.value_bytes_max"):
            await (await hf.start(text, {"count": 2000})).result(60)
        run = await hf.start(text, {"count": 2})
        said = [event["detail"] async for event in run.events() if event["detail"].get("kind") == "log"]
        assert [one["message"] for one in said[:2]] == ["line 0", "line 1"]
        assert len(said) == 3 and "limits.log_lines_max" in said[2]["message"]


def test_a_lower_limit_refuses_new_definitions_and_reads_stored_ones() -> None:
    text = "name: l\nsteps: [{id: f, kind: foreach, items: '$.inputs.x', concurrency: 50, steps: [{id: a, tool: echo}]}]\n"
    stored = written(definition_from_text(text).to_data()).decode()
    limits.put_in_force(limits.chosen({"concurrency_max": 10, "spec_bytes_max": 1024, "spec_steps_max": 1}))
    try:
        with pytest.raises(InvalidSpec, match=r"limits\.concurrency_max"):
            definition_from_text(text)
        with pytest.raises(InvalidSpec, match=r"limits\.spec_steps_max"):
            definition_from_text(text.replace("50", "5")).validate()
        with pytest.raises(InvalidSpec, match=r"limits\.spec_bytes_max"):
            definition_from_text(text + "#" * 1024)
        read: Any = definition_from_stored(stored)
        assert read.steps[0].body.concurrency == 50
    finally:
        limits.put_in_force(limits.DEFAULTS)


# ------------------------------------------------------------------------------------------- every limit and its error

# What meeting these does instead of an error: the rest waits, is left out, or the connection is closed.
WITHOUT_AN_ERROR = {
    "resident_max": "runs wait on disk",
    "run_log_lines_max": "the last line says that further ones were dropped",
    "traceback_bytes_max": "its beginning is cut off",
    "arguments_bytes_max": "attempts wait for room",
    "polls_max": "polls wait for a place",
    "buffered_max": "further events are skipped, and the ledger says so",
    "delivery_bytes_max": "the payload is not kept",
    "final_callbacks_max": "callbacks wait for a place",
    "callers_max": "the oldest is forgotten",
    "metrics_workflows_max": "the rest is counted together",
    "metrics_schedules_max": "the rest is counted together",
    "explain_reasons_max": "`more` says how many were left out",
    "progress_max": "further calls are ignored",
    "error_chars_max": "the rest of the message is cut off",
    "poll_jobs_max": "the next poll fetches the rest",
    "wait_secs_max": "the answer comes without a result",
    "burst_secs_max": "rate_per_key, rate_per_address or rate_per_webhook is named",
    "cancel_grace_secs_max": "the attempt is given up",
    "drain_secs_max": "open requests are cut off",
    "head_secs_max": "the connection is closed",
    "request_secs_max": "the connection is closed",
    "stalled_secs_max": "the connection is closed",
}
SOURCES = Path(limits.__file__).parent
NAMING = {
    "met",
    "LimitExceeded",
    "ExpressionTooCostly",
    "TooManyRequests",
    "Whole",
    "Work",
    "body",
    "page_size",
    "_too_many",
}


def named_by_errors() -> set[str]:
    """Every text that the code handler to something that makes an error of a limit, its defaults included."""
    found: set[str] = {"expression_work_max"}  # the default of Work and of its error
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and NAMING & {
                getattr(node.func, "attr", ""),
                getattr(node.func, "id", ""),
            }:
                texts = (part for given in node.args for part in ast.walk(given))
                found |= {str(part.value) for part in texts if isinstance(part, ast.Constant)}
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp):
                found |= {str(part.value) for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
    return found


def test_every_limit_is_named_by_an_error_or_said_to_need_none() -> None:
    named = named_by_errors()
    assert {name for name in limits.NAMES if name not in named} == set(WITHOUT_AN_ERROR)


@pytest.mark.parametrize("name", [*limits.NAMES, *sorted(limits.OWN_SETTINGS)])
def test_the_setting_that_an_error_names_can_be_set(tmp_path: Path, name: str) -> None:
    setting = limits.met(name).rpartition("setting ")[2]
    _, _, key = setting.rpartition(".")
    table = "[limits]\n" if setting.startswith("limits.") else ""
    value = limits.bounds(key)[0] if table else 1
    read = settings(tmp_path, f"{table}{key} = {value}\n")
    assert read.limits == {key: value} if table else getattr(read, key) == value


STEP = "name: n\nsteps: [{id: a, tool: echo%s}]\n"
DEFINITIONS = {
    "spec_bytes_max": STEP % "" + "#" * 1024,
    "nodes_max": STEP % "",
    "spec_steps_max": "name: n\nsteps: [{id: a, tool: echo}, {id: b, tool: echo}]\n",
    "concurrency_max": "name: n\nsteps: [{id: f, kind: foreach, items: '$.inputs.x', concurrency: 2, steps: [{id: a, tool: echo}]}]\n",
    "step_attempts_max": STEP % ", retry: {max_attempts: 2}",
    "timeout_secs_max": STEP % ", timeout_secs: 2",
    "labels_max": "labels: {a: x, b: y}\n" + STEP % "",
    "label_chars_max": "labels: {a: xy}\n" + STEP % "",
    "schema_rules_max": "inputs: {a: {type: string, pattern: x}}\n" + STEP % "",
    "schema_patterns_max": "inputs: {a: {type: string, pattern: x}, b: {type: string, pattern: y}}\n"
    + STEP % "",
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_that_meets_a_limit_is_refused_with_its_setting(name: str) -> None:
    definition_from_text(DEFINITIONS[name]).validate()
    limits.put_in_force(limits.chosen({name: limits.bounds(name)[0]}))
    try:
        with pytest.raises(InvalidSpec, match=rf"limit {name}, setting limits\.{name}\)"):
            definition_from_text(DEFINITIONS[name]).validate()
    finally:
        limits.put_in_force(limits.DEFAULTS)


@pytest.mark.parametrize("name", sorted(set(DEFINITIONS) - {"spec_steps_max"}))  # counted at each start
def test_a_stored_definition_is_valid_under_a_lower_limit(name: str) -> None:
    stored = written(definition_from_text(DEFINITIONS[name]).to_data()).decode()
    limits.put_in_force(limits.chosen({name: limits.bounds(name)[0]}))
    try:
        definition_from_stored(stored).validate()
    finally:
        limits.put_in_force(limits.DEFAULTS)


STEPS = {  # what meets a limit when it runs: the arguments that say so, and what the limit is set to
    "sleep_secs_max": ("sleep", {"seconds": 1.5}, 1),
    "http_secs_max": ("http_request", {"url": "http://127.0.0.1:9/", "timeout_secs": 2}, 1),
    "transform_members_max": ("transform", {"value": {str(n): n for n in range(1001)}, "omit": ["1"]}, 1_000),
    "expression_work_max": ("transform", {"value": list(range(1001)), "select": "$[*]"}, 1_000),
    "schema_work_max": ("echo", {"value": 1}, 1_000),
}


@pytest.mark.parametrize("name", STEPS)
async def test_a_step_that_meets_a_limit_fails_with_its_setting(tmp_path: Path, name: str) -> None:
    tool_name, args, most = STEPS[name]
    schema = {"x": {"type": "array", "items": {"type": "integer"}}} if name == "schema_work_max" else {}
    spec = {"name": "n", "inputs": schema, "steps": [{"id": "a", "tool": tool_name, "args": args}]}
    async with Holdfast(str(tmp_path / "a.db"), limits={name: most}) as hf:
        with pytest.raises((RunFailed, InvalidInputs), match=rf"limit {name}, setting limits\.{name}\)"):
            await (await hf.start(spec, {"x": list(range(1000))} if schema else {})).result(10)


async def test_an_idempotency_key_that_is_too_long_names_its_setting(tmp_path: Path) -> None:
    spec = STEP % ", idempotency_key: abc"
    async with Holdfast(str(tmp_path / "a.db"), limits={"idempotency_key_chars_max": 2}) as hf:
        with pytest.raises(RunFailed, match=r"setting limits\.idempotency_key_chars_max"):
            await (await hf.start(spec)).result(10)


async def test_the_message_of_an_error_is_cut_at_its_limit(tmp_path: Path) -> None:
    spec = {"name": "n", "steps": [{"id": "a", "tool": "fail", "args": {"message": "x" * 500}}]}
    async with Holdfast(str(tmp_path / "a.db"), limits={"error_chars_max": 100}) as hf:
        with pytest.raises(RunFailed) as failed:
            await (await hf.start(spec)).result(10)
    assert failed.value.error.message == "x" * 100


async def test_a_request_that_meets_a_limit_is_refused_with_its_setting(tmp_path: Path) -> None:
    small = {
        "body_bytes_max": 1024,
        "query_names_max": 1,
        "key_services_max": 1,
        "url_chars_max": 30,
        "text_chars_max": 2,
    }
    served = config.Settings(db=f"sqlite:///{tmp_path / 'a.db'}", port=0, limits=small)
    long = "http://127.0.0.1:9/" + "x" * 30
    asked: dict[str, tuple[str, str, Any]] = {
        "body_bytes_max": ("POST", "/api/v1/runs", {"workflow": "n", "inputs": {"x": "y" * 1024}}),
        "query_names_max": ("GET", "/api/v1/runs?status=failed&limit=1", None),
        "key_services_max": (
            "POST",
            "/api/v1/keys",
            {"name": "k", "scopes": ["worker"], "services": ["a", "b"]},
        ),
        "url_chars_max": ("POST", "/api/v1/workers", {"id": "w", "services": ["a"], "url": long}),
        "text_chars_max": ("POST", "/api/v1/runs/x/approvals/a", {"approved": True, "reason": "why"}),
    }
    async with serving(served) as server, aiohttp.ClientSession() as session:
        for name, (method, path, body) in asked.items():
            async with session.request(method, server.address + path, json=body) as answer:
                said = await answer.json()
            assert answer.status in {400, 413, 422}, said
            assert f"(limit {name}, setting limits.{name})" in said["message"], said
