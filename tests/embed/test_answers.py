"""What becomes of a tool's answer: result rules, files that it names, tools on other servers, and doing a run again."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, NotFound, RunFailed, ToolError


def _run(folder: Path, steps: str, *tools: Any, inputs: dict[str, Any] | None = None, **options: Any) -> Any:
    async def main() -> Any:
        async with Holdfast(str(folder / "a.db"), tools=tools, **options) as hf:
            return await (await hf.start(f"name: f\n{steps}", inputs)).result(timeout=60)

    return asyncio.run(main())


def _failure(folder: Path, steps: str, *tools: Any, **options: Any) -> Any:
    with pytest.raises(RunFailed) as failed:
        _run(folder, steps, *tools, **options)
    return failed.value.error


async def answer() -> Any:
    return {"success": True, "data": {"items": [1, 2], "text": '{"n": [3]}'}}


async def refuse() -> Any:
    return {"success": False, "error": {"message": "no such page", "kind": "missing"}}


STEP = "steps: [{id: s, tool: %s, result: %s}]\noutput: '{{s}}'"


def test_select_takes_a_part_of_the_answer(tmp_path: Path) -> None:
    assert _run(tmp_path, STEP % ("answer", '{select: "$.data.items"}'), answer) == [1, 2]


def test_select_that_hits_nothing_gives_null(tmp_path: Path) -> None:
    assert _run(tmp_path, STEP % ("answer", '{select: "$.nothing"}'), answer) is None


def test_parse_reads_json_text(tmp_path: Path) -> None:
    assert _run(tmp_path, STEP % ("answer", '{select: "$.data.text", parse: json}'), answer) == {"n": [3]}


def test_parse_of_text_that_is_not_json_fails_the_step(tmp_path: Path) -> None:
    async def words() -> str:
        return "not json"

    assert _failure(tmp_path, STEP % ("words", "{parse: json}"), words).kind == "result"


def test_an_envelope_makes_success_false_a_failure_with_its_kind(tmp_path: Path) -> None:
    error = _failure(tmp_path, STEP % ("refuse", "{envelope: true}"), refuse)
    assert error.kind == "missing" and "no such page" in error.message


def test_without_an_envelope_success_false_is_an_output_like_any_other(tmp_path: Path) -> None:
    assert _run(tmp_path, "steps: [{id: s, tool: refuse}]\noutput: '{{s.success}}'", refuse) is False


def test_a_failure_in_an_envelope_is_retried_as_any_failure(tmp_path: Path) -> None:
    calls = []

    async def flaky() -> Any:
        calls.append(1)
        return {"success": len(calls) > 2, "error": "busy"}

    step = "steps: [{id: s, tool: flaky, result: {envelope: true}, retry: {max_attempts: 3, initial_delay_ms: 1}}]"
    _run(tmp_path, step, flaky)
    assert len(calls) == 3


# ------------------------------------------------------------------------------------------------- artefacts


def test_a_file_in_the_workdir_becomes_an_artefact_that_later_steps_can_read(tmp_path: Path) -> None:
    def write(ctx: Context) -> Any:
        (ctx.workdir / "report.txt").write_text("hello")
        return {"pages": 1, "file_refs": [{"path": "report.txt", "mime": "text/plain"}]}

    def read(ctx: Context, uri: str) -> str:
        return ctx.artefact(uri).read_text()

    steps = 'steps: [{id: w, tool: write}, {id: r, tool: read, args: {uri: "{{steps.w.file_refs[0].uri}}"}}]'
    output = _run(tmp_path, steps, write, read)
    (ref,) = output["w"]["file_refs"]
    sha256 = hashlib.sha256(b"hello").hexdigest()
    assert ref["uri"] == f"artefact://sha256/{sha256}" and ref["mime"] == "text/plain" and "path" not in ref
    assert ref["producer_job_id"] and output["r"] == "hello"
    assert (tmp_path / "a.db.artefacts" / sha256[:2] / sha256).read_bytes() == b"hello"


def test_inline_bytes_are_stored_and_foreign_addresses_left_alone(tmp_path: Path) -> None:
    async def give() -> Any:
        return {
            "file_refs": [{"inline_b64": base64.b64encode(b"x").decode()}, {"uri": "https://example.org/a"}]
        }

    stored, foreign = _run(tmp_path, "steps: [{id: s, tool: give}]\noutput: '{{s.file_refs}}'", give)
    assert stored["uri"].startswith("artefact://sha256/") and "inline_b64" not in stored
    assert foreign == {"uri": "https://example.org/a"}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"path": "/etc/passwd"}, "outside"),
        ({"path": "../../../../../../etc/passwd"}, "outside"),
        ({"path": "missing.txt"}, "no file"),
        ({"inline_b64": "%%%"}, "base64"),
        ({"name": "x"}, "none of"),
        ("text", "object"),
    ],
)
def test_a_file_ref_that_cannot_be_stored_fails_the_step_and_names_the_entry(
    tmp_path: Path, entry: Any, reason: str
) -> None:
    async def give() -> Any:
        return {"file_refs": [entry]}

    error = _failure(tmp_path, "steps: [{id: s, tool: give}]", give)
    assert error.kind == "artefact" and "file_refs[0]" in error.message and reason in error.message


def test_a_link_out_of_the_workdir_is_refused(tmp_path: Path) -> None:
    def give(ctx: Context) -> Any:
        (ctx.workdir / "link").symlink_to("/etc/passwd")
        return {"file_refs": [{"path": "link"}]}

    assert "outside" in _failure(tmp_path, "steps: [{id: s, tool: give}]", give).message


# ---------------------------------------------------------------------------------------------- other servers


class Caller:
    servers = ("maya",)

    async def call(self, server: str, tool: str, args: dict[str, Any], context: Context) -> Any:
        if tool == "bad":
            raise ToolError("never left", kind="unsent")
        return [server, tool, args, context.path]


def test_a_remote_tool_is_called_on_the_server_that_the_step_names(tmp_path: Path) -> None:
    steps = "steps: [{id: s, tool: render, dcc: maya, args: {frame: 7}}]\noutput: '{{s}}'"
    assert _run(tmp_path, steps, remote=Caller()) == ["maya", "render", {"frame": 7}, "s"]


def test_what_a_remote_caller_raises_fails_the_attempt_with_its_kind(tmp_path: Path) -> None:
    assert _failure(tmp_path, "steps: [{id: s, tool: bad, dcc: maya}]", remote=Caller()).kind == "unsent"


def test_a_step_on_an_unknown_server_waits_for_whoever_knows_it(tmp_path: Path) -> None:
    definition = "name: f\nsteps: [{id: s, tool: render, dcc: maya}]\noutput: '{{s[0]}}'"

    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db")) as hf:
            run = await hf.start(definition)
            async with asyncio.timeout(60):
                while await run.status() != "waiting":
                    await asyncio.sleep(0.01)
            with pytest.raises(TimeoutError, match="maya/render"):
                await run.result(timeout=0.01)
        async with Holdfast(str(tmp_path / "a.db"), remote=Caller()) as hf:
            assert await (await hf.run(run.id)).result(timeout=60) == "maya"

    asyncio.run(main())


# ----------------------------------------------------------------------------------------------- doing it again


def test_a_rerun_from_a_step_copies_what_came_before_and_does_the_rest(tmp_path: Path) -> None:
    calls: list[str] = []

    async def do(name: str, of: Any = None) -> str:
        calls.append(name)
        if name == "c" and calls.count("c") == 1:
            raise RuntimeError("not yet")
        return f"{name}({of})"

    definition = """
    name: f
    steps:
      - {id: a, tool: do, args: {name: a}}
      - {id: each, kind: foreach, items: $.inputs.ns, steps: [{id: b, tool: do, args: {name: "b{{item}}"}}]}
      - {id: c, tool: do, args: {name: c, of: "{{a}}"}}
      - {id: d, tool: do, args: {name: d, of: "{{each.iterations[1].b}}"}}
    inputs: {ns: {type: array}}
    """

    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[do]) as hf:
            first = await hf.start(definition, {"ns": [1, 2]})
            with pytest.raises(RunFailed):
                await first.result(timeout=60)
            calls.clear()
            calls.append("c")
            again = await hf.rerun(first.id, from_step="c")
            output = await again.result(timeout=60)
            assert output == {
                "a": "a(None)",
                "each": {"iterations": [{"b": "b1(None)"}, {"b": "b2(None)"}]},
                "c": "c(a(None))",
                "d": "d(b2(None))",
            }
            assert calls == ["c", "c", "d"]
            with pytest.raises(NotFound, match="has no step"):
                await hf.rerun(first.id, from_step="x")
            whole = await hf.rerun(first.id)
            assert (await whole.result(timeout=60))["a"] == "a(None)"

    asyncio.run(main())


def test_a_variable_of_the_environment_is_read_when_the_run_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION", "eu")

    async def echo_(text: str) -> str:
        return text

    steps = 'steps: [{id: s, tool: echo_, args: {text: "in {{env.REGION}}"}}]\noutput: "{{s}}"'
    assert _run(tmp_path, steps, echo_, template_env=["REGION"]) == "in eu"
