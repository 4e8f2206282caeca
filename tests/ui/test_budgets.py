"""The sizes of the page. Needs no browser, but the built page."""

from __future__ import annotations

import json

from holdfast.http.routes.page import FOLDER

KB = 1000


def test_the_page_keeps_its_budgets() -> None:
    sizes = json.loads((FOLDER / "sizes.json").read_text("utf-8"))
    assert sizes["first"] <= 45 * KB and sizes["requests"] <= 2
    assert sizes["style"] <= 10 * KB
    assert 0 < sizes["editor"] <= 160 * KB
