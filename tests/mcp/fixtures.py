"""An ordinary server with the workflows and tools that the conformance suite of MCP wants by name.

    python -m tests.mcp.fixtures --port 8071

It prints its address and serves until it is stopped. The workflows are in the folder beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import itertools
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.config import Mcp, Settings
from holdfast.http.serve import Serving, serve
from holdfast.tools.registry import Registry

FLOWS = Path(__file__).parent / "workflows"


def _png() -> bytes:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return b"\x89PNG\r\n\x1a\n" + head + body + chunk(b"IEND", b"")


def _wav() -> bytes:
    """A few samples of silence."""
    samples = b"\x80" * 8
    form = struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    body = b"WAVEfmt " + form + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _ref(raw: bytes, media: str, name: str) -> dict[str, str]:
    return {"inline_b64": base64.b64encode(raw).decode(), "mime_type": media, "name": name}


async def image_file() -> dict[str, Any]:
    return {"file_refs": [_ref(_png(), "image/png", "pixel.png")]}


async def audio_file() -> dict[str, Any]:
    return {"file_refs": [_ref(_wav(), "audio/wav", "silence.wav")]}


async def text_file(text: str) -> dict[str, Any]:
    return {"file_refs": [_ref(text.encode(), "text/plain", "text.txt")]}


async def mixed_files() -> dict[str, Any]:
    data = _ref(b'{"test":"data","value":123}', "application/json", "data.json")
    return {"file_refs": [_ref(_png(), "image/png", "pixel.png"), data]}


class Publisher:
    """Publishes workflows from within a workflow: the suite wants lists that change on request."""

    def __init__(self) -> None:
        self.publish: Callable[..., Any] | None = None
        self._numbers = itertools.count(1)

    async def publish_another(self, kind: str) -> str:
        assert self.publish is not None
        name = f"dynamic_{kind}_{next(self._numbers)}"
        labels = {"labels": {"mcp": "prompt"}} if kind == "prompt" else {}
        step = {"id": "say", "tool": "echo", "args": {"value": name}}
        await self.publish("default", {"name": name, **labels, "steps": [step]})
        return name


def registry_of(publisher: Publisher) -> Registry:
    tools = (image_file, audio_file, text_file, mixed_files, publisher.publish_another)
    return Registry(list(tools))


async def main(port: int) -> None:
    publisher = Publisher()

    def ready(server: Serving) -> None:
        publisher.publish = server.services.commands.publish
        print(f"{server.address}/mcp", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            db=f"sqlite:///{folder}/fixtures.db", port=port, flows=str(FLOWS), mcp=Mcp(wait_secs=30)
        )
        await serve(settings, registry=registry_of(publisher), ready=ready)


if __name__ == "__main__":
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--port", type=int, default=0)
    asyncio.run(main(reader.parse_args().port))
