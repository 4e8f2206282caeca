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


@tool
async def work(secs: float) -> str:
    await asyncio.sleep(secs)
    return "fine"


@tool
def list_pictures(count: int) -> list[str]:
    return [f"picture-{n:03}.jpg" for n in range(count)]


@tool
async def thumbnail(picture: str) -> dict[str, str]:
    n = int(picture.removeprefix("picture-").removesuffix(".jpg"))
    await asyncio.sleep(0.02 + n % 7 * 0.02)
    if n % 41 == 17:
        raise ValueError(f"{picture} is not a picture: unexpected end of file")
    return {"thumbnail": f"small-{picture}"}


@tool
async def charge(customer: str, amount: float, context: Context) -> dict[str, str]:
    context.log(f"asking the bank for {amount} of {customer}, attempt {context.attempt}")
    await asyncio.sleep(0.3)
    if amount > 100:
        raise ConnectionError(f"the bank refuses {amount}: the limit of {customer} is 100")
    return {"transaction": f"T-{customer}-{amount:g}"}
