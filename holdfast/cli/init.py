"""`holdfast init` and `holdfast schema`: a first workflow that works as it is, and the JSON Schema for editors."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.cli.options import Usage
from holdfast.cli.parser import Given
from holdfast.cli.streams import UNWRITTEN, give, put
from holdfast.spec.schedule import file_schema
from holdfast.spec.schema import flow_schema, schema

SCHEMA: Final = "holdfast.schema.json"

HELLO: Final = f"""\
# yaml-language-server: $schema={SCHEMA}
# A first workflow. Run it with:   holdfast run hello.yaml -i name=Ada
name: hello
description: Looks friends up, writes to each of them, waits a little, and posts the letters.
inputs:
  name: {{type: string, default: World, description: Who sends the letters}}
steps:
  - id: friends
    tool: look_up            # the line is busy at first: it is tried again
    args: {{name: "{{{{inputs.name}}}}"}}
    retry: {{max_attempts: 5, initial_delay_ms: 300}}
  - id: letters
    kind: foreach            # two at a time
    items: $.friends
    as: friend
    concurrency: 2
    steps:
      - id: write
        tool: write
        args: {{to: "{{{{friend}}}}", sender: "{{{{inputs.name}}}}"}}
  - id: pause
    kind: timer
    delay_ms: 2000           # pull the plug here, and go on with: holdfast run --continue last
  - id: post
    tool: post
    args: {{letters: "{{{{letters.iterations}}}}"}}
output:
  posted: "{{{{post}}}}"
"""

TOOLS: Final = '''\
"""The tools that hello.yaml calls: plain functions, sync or async. What they return is kept."""

import asyncio

from holdfast import Context, tool


@tool
async def look_up(name: str, context: Context) -> list[str]:
    if context.attempt < 3:
        raise ConnectionError("the line is busy")
    return ["Grace", "Alan", "Barbara", "Edsger"]


@tool
async def write(to: str, sender: str) -> str:
    await asyncio.sleep(0.5)
    return f"Dear {to}, greetings from {sender}"


@tool
def post(letters: list[dict[str, str]]) -> int:
    for letter in letters:
        print(letter["write"])
    return len(letters)
'''

TEST: Final = '''\
"""Run with pytest. The engine is the real one, and only time is not: no test waits."""

from pathlib import Path

import tools
from holdfast.testing import TestEngine

HELLO = Path(__file__).with_name("hello.yaml")


async def test_every_friend_gets_a_letter(engine: TestEngine) -> None:
    for function in (tools.look_up, tools.write, tools.post):
        engine.tool(function)
    assert await engine.run(HELLO, {"name": "Ada"}) == {"posted": 4}


async def test_letters_are_posted_after_the_pause(engine: TestEngine) -> None:
    engine.fake_tool("look_up", ["Grace"])
    engine.fake_tool("write", "Dear Grace")
    post = engine.fake_tool("post", 1)
    await engine.start(HELLO)
    assert post.calls == []
    await engine.advance(seconds=2)
    assert post.calls == [{"letters": [{"write": "Dear Grace"}]}]
'''

SETTINGS: Final = """\
# Settings of the holdfast command in this folder and its subfolders. Environment variables and flags override them.
tools = ["tools"]
db = "sqlite:///holdfast.db"
"""


def command(given: Given) -> int:
    """Write the files. If one of them exists already, nothing is written."""
    folder = Path(given.argument or ".")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        in_the_way = [name for name in FILES if (folder / name).exists()]
        if in_the_way and not given.has("--force"):
            raise Usage(
                f"these files already exist: {', '.join(str(folder / name) for name in in_the_way)}; nothing was written. "
                "Name another folder, or overwrite them with --force"
            )
        for name, text in FILES.items():
            (folder / name).write_text(text(), "utf-8")
    except OSError as error:
        raise Usage(f"cannot write to {folder}: {error.strerror}") from None
    if given.has("--json"):
        return 0 if give({"folder": str(folder), "files": list(FILES)}) else UNWRITTEN
    return 0 if put(_next(folder).encode()) else UNWRITTEN


def schema_text() -> str:
    return _indented(schema())


def _indented(data: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def schema_command(given: Given) -> int:
    notation = given.argument or ("graph" if given.has("--graph") else "steps")
    return 0 if put(_indented(SCHEMAS[notation]()).encode()) else UNWRITTEN


SCHEMAS: Final[dict[str, Callable[[], Any]]] = {
    "steps": schema,
    "graph": flow_schema,
    "schedules": file_schema,
}


FILES: Final[dict[str, Callable[[], str]]] = {
    "hello.yaml": lambda: HELLO,
    "tools.py": lambda: TOOLS,
    "test_hello.py": lambda: TEST,
    "holdfast.toml": lambda: SETTINGS,
    SCHEMA: schema_text,
}


def _next(folder: Path) -> str:
    enter = "" if folder == Path() else f"  cd {shlex.quote(str(folder))}\n"
    return f"""\
wrote {", ".join(FILES)}

Try next:
{enter}  holdfast run hello.yaml -i name=Ada     run it; press Ctrl-C or kill it in the middle
  holdfast run --continue last            go on where it was
  holdfast runs show last                 see what each step gave
  holdfast validate hello.yaml            after you changed it
  pytest                                  test it without waiting
"""
