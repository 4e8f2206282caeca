"""What the servers of the bench do: `python -m bench.servers WHAT ORDER`. They say where they listen in a JSON line.

Each is a process of its own, so that asking and answering do not share a core.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import uvicorn
import uvloop

from bench.child import say
from bench.work import noting

Order = dict[str, Any]
ANSWER: Final = b'{"ok":true}'


async def limit(order: Order) -> None:
    """L-http: the least that a POST can cost on the server that ours stands on. Its body is read and passed over."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": ANSWER})

    config = uvicorn.Config(
        app, http="httptools", lifespan="off", proxy_headers=False, log_config=None, access_log=False
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        say(port=listener.getsockname()[1])
        await uvicorn.Server(config).serve([listener])


async def holdfast(order: Order) -> None:
    """Our own server on a new file, with the trivial tool."""
    from holdfast.config import Settings
    from holdfast.http.serve import serve
    from holdfast.tools.registry import Registry

    with noting(Path(order["effects"])) as note:
        settings = Settings(db=f"sqlite:///{order['db']}", port=0)
        await serve(
            settings,
            registry=Registry([note]),
            ready=lambda at: say(port=int(at.address.rpartition(":")[2])),
        )


async def worker(order: Order) -> None:
    """The services of the demo, called by a server, as `holdfast worker` does them."""
    from holdfast.sdk import demo
    from holdfast.sdk.worker import Worker

    serving = Worker([demo.route], order["server"], url="http://127.0.0.1")
    working = asyncio.create_task(serving.run())
    await serving.is_registered.wait()
    say(url=serving.url)
    await working


DOES: Final[dict[str, Callable[[Order], Awaitable[None]]]] = {
    does.__name__: does for does in (limit, holdfast, worker)
}


async def main() -> None:
    await DOES[sys.argv[1]](msgspec.json.decode(sys.argv[2]))


if __name__ == "__main__":
    uvloop.run(main())
