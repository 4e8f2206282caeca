"""Requests to an MCP server over HTTP: to checked addresses only, and with a limit on what is read of an answer.

A name is resolved once for each request, every address of it is checked, and the request goes to a checked address: a second lookup
could give another one. Imports the HTTP client of the SDK, so it is imported with the first connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from holdfast.mcp.child import Flooded


class Pinned(httpx2.AsyncHTTPTransport):
    """`sent` is called for each request that may have arrived, `flooded` when an answer is larger than `bytes_max`."""

    def __init__(
        self, targets: Any, bytes_max: int, sent: Callable[[], None], flooded: Callable[[Flooded], None]
    ) -> None:
        super().__init__(trust_env=False)
        self._targets, self._bytes_max, self._sent, self._flooded = targets, bytes_max, sent, flooded

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host, found = request.url.host, await self._targets(str(request.url))
        request.extensions = {**request.extensions, "sni_hostname": host}
        for left, target in reversed(list(enumerate(reversed(found)))):
            request.url = request.url.copy_with(host=target.host)  # the Host header keeps the name
            try:
                answer = await super().handle_async_request(request)
                break
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                if left == 0:
                    raise
            except Exception:
                self._sent()
                raise
        else:
            raise httpx2.ConnectError(f"the name {host} has no address")
        self._sent()
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        answer.stream = _Limited(answer.stream, self._bytes_max, self._flooded, is_stream=is_stream)
        return answer


class _Limited(httpx2.AsyncByteStream):
    """The body of an answer. In a stream of events the limit is that of one event: it is buffered as a whole."""

    def __init__(
        self, stream: Any, bytes_max: int, flooded: Callable[[Flooded], None], *, is_stream: bool
    ) -> None:
        self._stream, self._bytes_max, self._flooded, self._is_stream = stream, bytes_max, flooded, is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for chunk in self._stream:
            end = max(chunk.rfind(b"\n\n"), chunk.rfind(b"\r\n\r\n")) if self._is_stream else -1
            count = count + len(chunk) if end < 0 else len(chunk) - end
            if count > self._bytes_max:
                error = Flooded(f"the server sent an answer of over {self._bytes_max:,} bytes")
                self._flooded(error)
                raise error
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
