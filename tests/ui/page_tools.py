"""Tools of the workflows in flows/: one fails for some items, one says hostile things."""

from __future__ import annotations

import asyncio

from holdfast import Context, tool

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>{{7*7}}\u202e"\'&lt;'


@tool
async def item(n: int) -> dict[str, int]:
    await asyncio.sleep(0.001)
    if n % 25 == 7:
        raise ValueError(f"n={n} is not welcome")
    return {"n": n}


@tool
async def pay(amount: int, context: Context) -> str:
    context.log(f"attempt {context.attempt}")
    if amount > 100:
        raise ConnectionError("the bank refuses")
    return f"paid {amount}"


@tool
def hostile(context: Context) -> dict[str, str]:
    context.log(HOSTILE)
    return {HOSTILE: HOSTILE, "link": "javascript:alert(1)"}


@tool
def hostile_error() -> str:
    raise ValueError(HOSTILE)


@tool
def report(context: Context) -> dict[str, list[dict[str, str]]]:
    (context.workdir / "report.txt").write_text("all is well", "utf-8")
    return {"file_refs": [{"path": "report.txt", "name": "report.txt"}]}
