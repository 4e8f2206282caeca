import os
import signal

from holdfast import Context, ToolError, tool


@tool
def charge(order: int, amount: float, key: str, context: Context) -> dict[str, str]:
    if context.attempt < 3:
        raise ToolError("the bank is busy", kind="busy")
    return {"receipt": f"R-{order}", "paid_with": key}


@tool
def pack(item: str, context: Context) -> str:
    if item == "bomb" and context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)  # pulls the plug, once
    return f"a box with a {item}"


@tool
def wrap(count: int) -> str:
    return f"{count} boxes in gift paper"


@tool
def send(text: str) -> str:
    print(f"SENT: {text}")
    return "sent"
