"""Resources and prompts: runs, workflows, schemas, worked examples, and workflows that are offered as either."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from holdfast.mcp.lessons import example, example_names
from holdfast.mcp.offers import variables
from holdfast.spec.notation import definition_from_text
from tests.mcp.conftest import Asker, client_of

pytestmark = pytest.mark.anyio


def test_there_are_ten_worked_examples() -> None:
    assert len(example_names()) == 10


@pytest.mark.parametrize("name", example_names())
def test_every_example_is_valid_and_says_what_it_shows(name: str) -> None:
    text = example(name)
    definition_from_text(text).validate()
    assert text.startswith("# ")


@pytest.mark.parametrize(("template", "uri", "values"), [
    ("notes://all", "notes://all", {}),
    ("notes://all", "notes://al", None),
    ("notes://{topic}", "notes://birds", {"topic": "birds"}),
    ("notes://{topic}", "notes://", None),
    ("notes://{topic}", "notes://birds/2", None),       # a name is one segment
    ("notes://{topic}/{nth}.txt", "notes://birds/2.txt", {"topic": "birds", "nth": "2"}),
    ("notes://{topic}-{nth}", "notes://a-b-c", {"topic": "a", "nth": "b-c"}),
    ("notes://{topic}--{nth}", "notes://---b", {"topic": "-", "nth": "b"}),
    ("notes://{a}x{b}", "notes://ax", None),
    ("notes://{1}.{2}", "notes://a.b", {"1": "a", "2": "b"}),
    ("notes://{a}/{a}", "notes://b/b", None),
    ("notes://{a}{b}", "notes://bb", None),
    ("", "", None),
])  # fmt: skip
def test_an_address_gives_the_names_of_a_template_their_values(
    template: str, uri: str, values: dict[str, str] | None
) -> None:
    assert variables(template, uri) == values


def test_the_work_for_an_address_grows_no_faster_than_the_address() -> None:
    # Going back over five names would take a day.
    hostile = "notes://" + "{a}x{b}x{c}x{d}x{e}x" + "!"
    assert variables(hostile, "notes://" + "x" * 4_000) is None


async def test_a_template_that_cannot_be_used_does_not_hide_other_resources(ask: Asker) -> None:
    for nth, uri in enumerate(("a://{1}/{1}", "notes://{topic}")):
        labels = {"mcp": "resource", "mcp.uri": uri}
        spec = {
            "name": f"given_{nth}",
            "labels": labels,
            "steps": [{"id": "s", "tool": "echo", "args": {"value": "x"}}],
        }
        await ask.server.services.commands.publish("default", spec)
    assert (await read(ask, "notes://birds"))["text"] == '{"s":"x"}'


async def read(ask: Asker, uri: str, **rest: Any) -> Any:
    return (await ask("resources/read", {"uri": uri}, **rest)).result["contents"][0]


async def test_schemas_and_examples_are_listed_and_read(ask: Asker) -> None:
    listed = (await ask("resources/list")).result["resources"]
    assert {"schema://steps", "schema://graph", "example://05_approval"} <= {one["uri"] for one in listed}
    assert (await read(ask, "example://05_approval"))["text"] == example("05_approval")
    uri, text = "schema://steps", ""
    while True:
        said = msgspec.json.decode((await read(ask, uri))["text"])
        text += said["part"]
        if said["cursor"] is None:
            break
        uri = f"schema://steps?cursor={said['cursor']}"
    assert msgspec.json.decode(text)["title"] == "Holdfast workflow"


async def test_a_run_has_a_timeline_and_an_explanation(ask: Asker) -> None:
    run_id = (await ask.tool("gate"))["structuredContent"]["run_id"]
    said = msgspec.json.decode((await read(ask, f"run://{run_id}"))["text"])
    assert (said["status"], said["steps"][0]["path"]) == ("waiting", "ok")
    assert said["explanation"]["reasons"][0]["reason"] == "approval"
    done = await ask.tool("hello", {"name": "Ada"})
    output = await read(ask, f"run://{done['_meta']['holdfast/run_id']}/output")
    assert msgspec.json.decode(output["text"]) == "Hello, Ada!"


async def test_a_workflow_is_read_as_it_is_published(ask: Asker) -> None:
    assert "tool: echo" in (await read(ask, "workflow://hello"))["text"]
    for uri in ("workflow://none", "run://none", "run://none/what", "nothing://at-all", "schema://other"):
        assert (await ask("resources/read", {"uri": uri})).code == -32602


async def test_a_workflow_can_give_a_resource(ask: Asker) -> None:
    labels = {"mcp": "resource", "mcp.uri": "notes://{topic}"}
    step = {"id": "say", "tool": "echo", "args": {"value": "about {{inputs.topic}}"}}
    definition = {"name": "notes", "labels": labels, "inputs": {"topic": {"type": "string"}}, "steps": [step]}
    await ask.server.services.commands.publish("default", {**definition, "output": "{{steps.say.output}}"})
    templates = (await ask("resources/templates/list")).result["resourceTemplates"]
    assert {"run://{id}", "workflow://{name}", "notes://{topic}"} <= {one["uriTemplate"] for one in templates}
    assert (await read(ask, "notes://rain"))["text"] == "about rain"
    assert "notes" not in [tool["name"] for tool in (await ask("tools/list")).result["tools"]]


async def test_files_are_blocks_and_large_ones_are_links(ask: Asker) -> None:
    small = {
        "name": "s",
        "steps": [{"id": "f", "tool": "image_file"}],
        "output": {"file_refs": "{{steps.f.file_refs}}"},
    }
    block = (await ask.tool("workflows_run", {"spec": small}))["content"][0]
    assert block["mimeType"] == "image/png" and base64.b64decode(block["data"]).startswith(b"\x89PNG")
    large = {
        "name": "l",
        "steps": [{"id": "f", "tool": "text_file", "args": {"text": "x" * (1024 * 1024 + 1)}}],
        "output": {"file_refs": "{{steps.f.file_refs}}"},
    }
    published = await ask.server.services.commands.publish("default", large)
    block = (await ask.tool(published.name))["content"][0]
    assert block["type"] == "resource_link"
    async with ask.session.get(block["uri"]) as answer:
        assert len(await answer.read()) == 1024 * 1024 + 1


async def test_a_prompt_teaches_how_to_write_a_workflow(ask: Asker) -> None:
    prompts = (await ask("prompts/list")).result["prompts"]
    assert prompts[0]["name"] == "write_workflow"
    given = {"name": "write_workflow", "arguments": {"task": "count the files"}}
    text = (await ask("prompts/get", given)).result["messages"][0]["content"]["text"]
    assert "count the files" in text and "workflows_validate" in text and example("01_call_tools") in text
    assert (await ask("prompts/get", {"name": "none"})).code == -32602


async def test_arguments_are_completed(ask: Asker) -> None:
    given = {
        "ref": {"type": "ref/resource", "uri": "workflow://{name}"},
        "argument": {"name": "name", "value": "he"},
    }
    assert (await ask("completion/complete", given)).result["completion"]["values"] == ["held", "hello"]


async def test_a_client_of_the_newer_era_hears_of_a_run_that_it_follows(ask: Asker) -> None:
    run_id = (await ask.tool("gate"))["structuredContent"]["run_id"]
    async with (
        client_of(ask, "2026-07-28") as client,
        client.listen(resource_subscriptions=[f"run://{run_id}"]) as heard,
    ):
        await ask.tool("workflows_approve", {"run_id": run_id, "path": "ok", "approved": True})
        async for event in heard:
            assert event.uri == f"run://{run_id}"  # type: ignore[union-attr]
            break
