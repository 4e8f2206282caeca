"""The tools of the examples: plain functions, sync or async. What they return is kept for ever."""

import asyncio
import os
import signal

from holdfast import Context, tool


@tool
async def look_up(name: str, context: Context) -> dict[str, list[str]]:
    if context.attempt < 3:
        raise ConnectionError("the line is busy")
    return {"friends": ["Grace", "Alan", "Barbara", "Edsger"]}


@tool
async def greet(name: str, sender: str) -> str:
    await asyncio.sleep(0.4)
    return f"Dear {name}, greetings from {sender}"


@tool
def post(letters: list[dict[str, str]]) -> int:
    for letter in letters:
        print(letter["write"])
    return len(letters)


@tool
def note(text: str) -> str:
    print(f"NOTE: {text}")
    return text


@tool
def pull_the_plug(context: Context) -> str:
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"alive, attempt {context.attempt}"
