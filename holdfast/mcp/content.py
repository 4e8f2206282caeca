"""The output of a run as content blocks: text, and the files that it names as images, audio, resources or links.

A file of up to 1 MiB is part of the answer; a larger one is a link. Knows outputs and blocks,
and which files a caller may see.
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from holdfast.api.services import Services
from holdfast.api.visible import seen
from holdfast.errors import NotFound
from holdfast.mcp.answers import budget_of, part_of
from holdfast.mcp.talk import Talk
from holdfast.views.run_view import RunView

SCHEME: Final = "artefact://sha256/"
INLINE_BYTES_MAX: Final = 1024 * 1024
FILES_MAX: Final = 20  # of one answer
MEDIA_KEYS: Final = ("mime_type", "mimeType", "mime", "media_type", "content_type")
OCTETS: Final = "application/octet-stream"

_encode = msgspec.json.Encoder().encode


class Contents:
    def __init__(self, services: Services, max_tokens: int) -> None:
        self._services, self._max_tokens = services, max_tokens

    async def of_output(
        self, talk: Talk, view: RunView, max_tokens: int | None = None
    ) -> tuple[list[dict[str, Any]], Any]:
        """The blocks of a completed run's output, as far as the caller may see its files, and its structured content."""
        raw = bytes(view.output_text)
        budget = budget_of(max_tokens or self._max_tokens)
        if len(raw) > budget and b'"file_refs"' not in raw:
            return _cut(view, raw, budget)
        output = view.output
        files = [
            await self._file(talk, one) for one, _ in zip(file_refs(output), range(FILES_MAX), strict=False)
        ]
        text = plain_text(output)
        if len(text.encode()) > budget:
            blocks, data = _cut(view, raw, budget)
            return [*blocks, *files], data
        return [*([{"type": "text", "text": text}] if text or not files else []), *files], structured(output)

    async def _file(self, talk: Talk, entry: Mapping[str, Any]) -> dict[str, Any]:
        uri, media = str(entry.get("uri", "")), media_of(entry)
        raw = await self.file_bytes(talk, uri)
        if raw is None:
            name = str(entry.get("name") or uri.rsplit("/", 1)[-1])
            return {"type": "resource_link", "uri": self._url(uri), "name": name, "mimeType": media}
        kind = media.partition("/")[0]
        if kind in ("image", "audio"):
            return {"type": kind, "data": base64.b64encode(raw).decode(), "mimeType": media}
        return {"type": "resource", "resource": resource_of(uri, media, raw)}

    async def file_bytes(self, talk: Talk, uri: str) -> bytes | None:
        """The contents of an artefact; None if it is larger than an answer may be, or not one that the caller may see."""
        if not uri.startswith(SCHEME):
            return None
        try:
            queries = seen(self._services, talk.caller.principal).queries
            file = await queries.artefact(talk.tenant, uri.removeprefix(SCHEME))
        except NotFound:
            return None
        return await file.read(0, file.size) if file.size <= INLINE_BYTES_MAX else None

    def _url(self, uri: str) -> str:
        base = self._services.settings.public_url or self._services.address
        is_ours = uri.startswith(SCHEME) and base
        return f"{base}/api/v1/artefacts/{uri.removeprefix(SCHEME)}" if is_ours else uri or "about:blank"


def _cut(view: RunView, raw: bytes, budget: int) -> tuple[list[dict[str, Any]], Any]:
    """The first part of an output that is larger than an answer, and where the next one is read."""

    def around(piece: str, cursor: str | None) -> dict[str, Any]:
        return {
            "run_id": view.run_id,
            "status": view.status,
            "output_part": piece,
            "output_bytes": len(raw),
            "next": f"resources/read of run://{view.run_id}/output?cursor={cursor} gives the next part",
        }

    said = part_of(raw, 0, budget, around)
    return [{"type": "text", "text": _encode(said).decode()}], said


def resource_of(uri: str, media: str, raw: bytes) -> dict[str, Any]:
    """The contents of a file as a resource: text where it is text."""
    is_text = media.startswith("text/") or media.endswith(("json", "xml", "yaml"))
    try:
        body = {"text": raw.decode()} if is_text else {"blob": base64.b64encode(raw).decode()}
    except UnicodeDecodeError:
        body = {"blob": base64.b64encode(raw).decode()}
    return {"uri": uri, "mimeType": media, **body}


def file_refs(output: Any) -> Iterator[Mapping[str, Any]]:
    """The files that an output names: its own, and those of its steps."""
    if not isinstance(output, Mapping):
        return
    for holder in (output, *output.values()):
        entries = holder.get("file_refs") if isinstance(holder, Mapping) else None
        if isinstance(entries, list):
            yield from (entry for entry in entries if isinstance(entry, Mapping))


def media_of(entry: Mapping[str, Any]) -> str:
    said = next((entry[key] for key in MEDIA_KEYS if isinstance(entry.get(key), str)), None)
    return said or mimetypes.guess_type(str(entry.get("name") or entry.get("uri") or ""))[0] or OCTETS


def plain_text(output: Any) -> str:
    """An output as text: text as it is, everything else as JSON. Beside files, `text` alone stands for itself."""
    if isinstance(output, str):
        return output
    if isinstance(output, Mapping) and "file_refs" in output:
        rest = {key: value for key, value in output.items() if key != "file_refs"}
        if not rest:
            return ""
        if rest.keys() == {"text"} and isinstance(rest["text"], str):
            return rest["text"]
        output = rest
    return _encode(output).decode()


def structured(output: Any) -> dict[str, Any]:
    """Structured content is an object in the older era, so any other output is one member of it."""
    return output if isinstance(output, dict) else {"output": output}
