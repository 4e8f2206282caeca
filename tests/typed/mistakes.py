"""Mistakes of a user that both type checkers must find, one in each line that says so."""

from __future__ import annotations

from holdfast import Holdfast, tool


@tool
def add(a: int, b: int = 2) -> int:
    return a + b


text: str = add(1)  # mistake
add("1")  # mistake
add()  # mistake
add(1, c=3)  # mistake
Holdfast(tols=[add])  # mistake
Holdfast(attempts_max="many")  # mistake


@tool(isolate="thread")  # mistake
def crunch() -> None: ...
