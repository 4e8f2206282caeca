"""How the server reports the folders that it reads. Knows the shape of the response, not how a folder is read."""

from __future__ import annotations

from typing import Final

from holdfast.api.types import FolderFile, FolderQuery, FolderReport
from holdfast.http.table import Ask, Route


async def folder(ask: Ask) -> FolderReport:
    query: FolderQuery = ask.query
    services = ask.services
    found = services.schedule_folder if query.of == "schedules" else services.folders.get(query.of)
    if found is None or ask.tenant != found.tenant:
        return FolderReport(None, "", [])
    sees = (lambda name: True) if query.of == "schedules" else ask.principal.rights.sees
    files = [
        FolderFile(one.file, one.name, one.status, list(one.problems))
        for one in found.files
        if sees(one.name or "")
    ]
    return FolderReport(str(found.root or ""), found.problem, files)


ROUTES: Final = (
    Route("GET", "/api/v1/folder", "read", folder, "Get the state of a folder that the server reads: of workflows, of skills, or of schedules.",
          "workflows", query=FolderQuery, answer=FolderReport),
)  # fmt: skip
