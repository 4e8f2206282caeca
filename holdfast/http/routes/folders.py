"""What the server says of the folder that it publishes from. Knows the shape of that answer, not how a folder is read."""

from __future__ import annotations

from typing import Final

from holdfast.api.types import FolderFile, FolderReport
from holdfast.http.table import Ask, Route


async def folder(ask: Ask) -> FolderReport:
    found = ask.services.folder
    if found is None or ask.tenant != found.tenant:
        return FolderReport(None, "", [])
    files = [FolderFile(one.file, one.name, one.status, list(one.problems)) for one in found.files]
    return FolderReport(str(found.root), found.problem, files)


ROUTES: Final = (
    Route("GET", "/api/v1/folder", "read", folder, "Get the state of the folder that the server publishes.", "workflows",
          answer=FolderReport),
)  # fmt: skip
