"""Lists of runs and of items: how they search, and that their columns stand where they belong."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.ui.conftest import Open, Server

# Columns whose heading does not begin where its cells do.
CROOKED = (
    "[...document.querySelectorAll('main table')].flatMap((table) => [...table.querySelectorAll('thead th')].filter((th, i) => {"
    " const td = table.querySelector('tbody tr')?.cells[i];"
    " return td && Math.abs(th.getBoundingClientRect().left - td.getBoundingClientRect().left) > 1;"
    "}).map((th) => th.textContent))"
)
# State pills that their cell cuts off.
CUT_OFF = (
    "[...document.querySelectorAll('main td .pill')].filter((pill) => pill.checkVisibility()"
    " && pill.getBoundingClientRect().right > pill.closest('td').getBoundingClientRect().right + 1).length"
)


def test_a_search_by_label_reads_on_until_it_finds_a_run(server: Server, watched: Open) -> None:
    run_id = server.run("twice", until="completed", labels={"rare": "yes"})
    line = server.ask("GET", f"/runs?id={run_id}")["items"][0]
    pages: dict[str, Any] = {"": ([], "one"), "one": ([], "two"), "two": ([line], None)}
    one = watched(server)

    def answer(route: Any) -> None:
        cursor = re.search("cursor=([a-z]+)", route.request.url)
        items, after = pages[cursor[1] if cursor else ""]
        route.fulfill(content_type="application/json", body=json.dumps({"items": items, "cursor": after}))

    one.page.route(re.compile("/runs\\?.*label=rare"), answer)
    one.open("/ui/runs?q=label:rare%3Dyes%20status:completed")
    one.by(f"run-{run_id}").wait_for()


def test_columns_stand_under_their_headings(server: Server, watched: Open) -> None:
    fan = server.run("fan", {"count": list(range(120))}, until="completed")
    failed = server.run("bill", {"amount": 500}, until="failed")
    one = watched(server, width=1440)
    for path in (f"/ui/runs/{fan}?step=each", f"/ui/runs/{failed}?step=charge", "/ui/runs", "/ui/workflows"):
        one.open(path)
        one.until("document.querySelector('main table tbody tr')")
        assert one.page.evaluate(CROOKED) == [], path


def test_states_are_never_cut_off(server: Server, watched: Open) -> None:
    server.run("twice", until="completed")
    for width in (360, 700, 900, 1440):
        one = watched(server, width=width)
        for path in ("/", "/ui/runs", "/ui/workflows/twice"):
            one.open(path)
            one.until("document.querySelector('main td .pill')")
            assert one.page.evaluate(CUT_OFF) == 0, (width, path)


def test_keys_typed_faster_than_the_screen_is_drawn_mark_the_rows_they_reached(
    server: Server, watched: Open
) -> None:
    server.run("twice", until="completed")
    server.run("twice", until="completed")
    one = watched(server)
    one.open("/ui/runs?q=workflow:twice%20status:completed")
    one.until("document.querySelectorAll('[data-testid=runs-table] tbody tr[data-index]').length > 1")
    # Between two keys there is time for the page to render, and none for the browser to draw.
    one.page.evaluate("""async () => {
        for (const key of ["j", "x", "j", "x"]) {
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
            for (let turn = 0; turn < 5; turn += 1) await null;
        }
    }""")
    one.by("bulk-compare").wait_for()


def test_a_filter_with_a_mistake_offers_nothing_for_all_runs(server: Server, watched: Open) -> None:
    server.run("bill", {"amount": 500}, until="failed")
    one = watched(server)
    one.open("/ui/runs?q=status:failed")
    one.by("filter-rerun").wait_for()
    one.by("runs-filter").fill("status:failed lable:team=x")
    one.by("filter-rerun").wait_for(state="detached")
    one.until("document.querySelector('main [role=alert]').textContent.includes('lable')")
