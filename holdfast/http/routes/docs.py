"""`/openapi.json` and `/docs`: the API described for programs and for people. Public; loads nothing from other sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec
from starlette.responses import Response

from holdfast.http.openapi import document
from holdfast.http.table import JSON, Ask, Route

TAG: Final = "docs"
PAGES: Final = {
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
# Only what this server sends is loaded, and nothing that stands in a page itself is run.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def with_docs(routes: Sequence[Route]) -> tuple[Route, ...]:
    """All routes, and those that describe them."""
    folder = files("holdfast.http") / "pages"
    pages = [_page(path, (folder / name).read_bytes, media) for path, (name, media) in PAGES.items()]
    return (*routes, _page("/openapi.json", lambda: msgspec.json.encode(document(routes)), JSON), *pages)


def _page(path: str, content: Callable[[], bytes], media: str) -> Route:
    """Build the document on the first request and keep it: building it takes longer than the rest of a server's
    start."""
    content = cache(content)
    headers = {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }

    async def page(ask: Ask) -> Response:
        return Response(content(), media_type=media, headers=headers)

    return Route("GET", path, None, page, f"Get {path}.", TAG, answer_media=media, is_listed=False)
