"""The web page: `/` and every address under `/ui/` are its shell, and `/ui/assets/<hash>/` its files.

The page is built from ui/ into holdfast/ui/dist, which is read once. Open without a key: the page contains no data, and asks for a
key if the server needs one. It names its files from the address on, never from the root, so a proxy may put all of it under a prefix
without telling this server. Knows nothing of what the page shows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.http.table import Ask, Route

TAG: Final = "page"
ROOT: Final = b"$ROOT"  # stands in the built index.html before the path of each file
MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
ENCODINGS: Final = {"br": ".br", "gzip": ".gz"}  # the copies that the build makes, best first
# Only what this server sends is loaded, nothing that stands in the page itself is run, and no text becomes a script or markup.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NOT_BUILT: Final = (
    "The web page is not part of this installation: install a wheel of holdfast-engine, or run `make setup` where a package"
    " registry can be reached; the HTTP API works and is described at /docs.\n"
)
FOLDER: Final = Path(str(files("holdfast"))) / "ui" / "dist"


class File(msgspec.Struct, frozen=True):
    """One file of the page, by encoding; "" is the file itself."""

    media: str
    copies: Mapping[str, bytes]


@cache
def built(folder: Path = FOLDER) -> Mapping[str, File]:
    """The files of the built page, by their path below the folder; empty if the page is not built."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in MEDIA:
            copies = {"": path.read_bytes()}
            for encoding, suffix in ENCODINGS.items():
                copy = path.with_name(path.name + suffix)
                if copy.is_file():
                    copies[encoding] = copy.read_bytes()
            found[path.relative_to(folder).as_posix()] = File(MEDIA[path.suffix], copies)
    return found


def _shell(path: str) -> Callable[[Ask], Awaitable[Response]]:
    """The page itself is the same at every address: its script shows the screen of the address. Only the way from there
    to the files differs."""
    root = b"../" * (path.count("/") - 1)

    async def shell(ask: Ask) -> Response:
        page = built().get("index.html")
        if page is None:
            return Response(NOT_BUILT, media_type="text/plain; charset=utf-8", headers=HEADERS)
        content = page.copies[""].replace(ROOT, root)
        return Response(content, media_type=page.media, headers={**HEADERS, "cache-control": "no-cache"})

    return shell


async def asset(ask: Ask) -> Response:
    """The address of a file contains the hash of its content, so a browser may cache it without limit."""
    file = built().get(f"assets/{ask.path['hash']}/{ask.path['name']}")
    if file is None:
        raise NotFound("the page has no such file; it was built again, so load the page again")
    accepted = _accepted(ask.headers.get("accept-encoding", ""))
    encoding = next((one for one in ENCODINGS if one in accepted and one in file.copies), "")
    headers = {**HEADERS, "cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    if encoding:
        headers["content-encoding"] = encoding
    return Response(file.copies[encoding], media_type=file.media, headers=headers)


def _accepted(header: str) -> set[str]:
    """The encodings of an Accept-Encoding header that are not refused with `q=0`."""
    accepted = set()
    for part in header.lower().split(","):
        name, _, weight = part.partition(";")
        if weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}:
            accepted.add(name.strip())
    return accepted


def _route(path: str) -> Route:
    media = MEDIA[".html"]
    return Route("GET", path, None, _shell(path), f"Get {path}.", TAG, answer_media=media, is_listed=False)


ROUTES: Final = (
    *map(_route, ("/", "/ui", "/ui/", "/ui/{screen}", "/ui/{screen}/{a}", "/ui/{screen}/{a}/{b}")),
    Route("GET", "/ui/assets/{hash}/{name}", None, asset, "Get a file of the page.", TAG, answer_media="*/*", is_listed=False),
)  # fmt: skip
