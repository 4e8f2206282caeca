"""The types that the page declares for itself (ui/src/api/types.ts) have only fields that the server documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.http.openapi import document
from holdfast.http.serve import ROUTES

TEXT = (Path(__file__).parents[2] / "ui" / "src" / "api" / "types.ts").read_text("utf-8")
SCHEMAS = document(ROUTES)["components"]["schemas"]
# Types that have another name on the server, or exist on the page alone.
NAMES = {
    "Err": "Error",
    "Link": "ApprovalLink",
    "Trigger": "RunTrigger",
    "Folder": "FolderReport",
    "Letter": "CallbackDelivery",
}


def declared() -> dict[str, list[str]]:
    """The fields of each object type: the names before a colon at its first level."""
    found = {}
    for match in re.finditer(r"^export type (\w+) = (?:Omit<[^>]*> & |\w+ & )?\{", TEXT, re.MULTILINE):
        depth, at, start, fields = 1, match.end(), match.end(), []
        while depth:
            depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(TEXT[at], 0)
            if TEXT[at] == ";" and depth == 1 or depth == 0:
                fields.append(TEXT[start:at].partition(":")[0].strip().rstrip("?"))
                start = at + 1
            at += 1
        found[match[1]] = [field for field in fields if re.fullmatch(r"\w+", field)]
    return found


KNOWN = {name: fields for name, fields in declared().items() if NAMES.get(name, name) in SCHEMAS}


def test_most_types_of_the_page_are_types_of_the_server() -> None:
    assert len(KNOWN) >= 25


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_server_documents_every_field_that_the_page_reads(name: str) -> None:
    schema = SCHEMAS[NAMES.get(name, name)]
    assert set(KNOWN[name]) <= set(schema["properties"])
