"""The run view: graph and timeline as one selection, time travel, fan-outs, reruns, comparing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.ui.conftest import Open, Server

if TYPE_CHECKING:
    from playwright.sync_api import Route


@pytest.fixture(scope="module")
def failed(server: Server) -> str:
    server.run("bill", until="completed")
    return server.run("bill", {"amount": 500}, until="failed")


def test_a_failed_run_says_why_and_graph_and_timeline_choose_the_same_step(
    failed: str, server: Server, watched: Open
) -> None:
    one = watched(server)
    page = one.open(f"/ui/runs/{failed}")
    assert "Failed at charge after 3 attempts: the bank refuses" in one.by("sentence-text").inner_text()
    one.by("graph-node-charge").click()
    page.wait_for_url(re.compile("step=charge"))
    page.wait_for_selector("[data-testid='step-charge'][aria-current=true]")
    assert one.by("drawer-path").inner_text() == "charge"
    rows = one.by("tries").locator("tbody tr")
    assert rows.count() == 3 and "the bank refuses" in rows.nth(0).inner_text()
    one.by("step-look").click()
    page.wait_for_selector("[data-testid='graph-node-look'].chosen")
    assert page.locator("[data-testid='graph-node-thank']").get_attribute("data-state") == "none"


def test_time_travel_steps_through_facts_and_a_moment_can_be_shared(
    failed: str, server: Server, watched: Open
) -> None:
    one = watched(server)
    page = one.open(f"/ui/runs/{failed}")
    page.wait_for_selector("[data-testid='graph-node-charge'][data-state=failed]")  # the timeline is there
    page.keyboard.press("Home")
    # All facts of one millisecond are one moment, so the first one may be more than the start.
    page.wait_for_selector("[data-testid='graph-node-charge']:not([data-state=failed])")
    page.wait_for_url(re.compile(r"seq=\d+"))
    page.keyboard.press("]")
    page.wait_for_selector("[data-testid='graph-node-look'][data-state=completed]")
    page.wait_for_url(re.compile(r"seq=[2-9]"))
    assert "after its start, charge" in one.by("sentence-text").inner_text()
    assert one.by("sentence-now").inner_text() == "Now: Failed at charge after 3 attempts: the bank refuses"
    moment = one.by("travel-when").inner_text()
    other = watched(server)
    other.open(page.url.removeprefix(server.address))
    other.until("document.querySelector('[data-testid=travel-when]').textContent.startsWith('row')")
    assert other.by("travel-when").inner_text().split(",")[0] == moment.split(",")[0]
    page.keyboard.press("End")
    page.wait_for_selector("[data-testid='graph-node-charge'][data-state=failed]")
    assert "seq=" not in page.url
    assert one.by("sentence-text").inner_text().startswith("Failed at charge")


def test_a_run_that_no_worker_serves_says_how_to_start_one(server: Server, watched: Open) -> None:
    spec = {"name": "adds", "start": "sum", "nodes": {"sum": {"kind": "executor", "service": "adding"}}}
    run_id = server.ask("POST", "/runs", {"spec": spec})["run_id"]
    server.until(lambda: server.ask("GET", f"/runs/{run_id}")["status"] == "waiting", "it waits")
    one = watched(server)
    one.open(f"/ui/runs/{run_id}")
    one.until(
        "document.querySelector('[data-testid=sentence]').textContent.includes('No worker serves adding, which sum needs')"
    )
    one.by("worker-how").click()
    one.by("worker-help-copy").wait_for()
    one.open("/ui/runs?q=workflow:adds")
    assert one.by(f"answer-{run_id}").get_attribute("href") == "/ui/workers"
    server.ask("POST", f"/runs/{run_id}/cancel", {})


def test_failed_items_of_a_fan_out_come_first_and_are_rerun_alone(server: Server, watched: Open) -> None:
    run_id = server.run("fan", {"count": list(range(200))}, until="completed")
    one = watched(server)
    page = one.open(f"/ui/runs/{run_id}?step=each")
    assert page.locator(".tl-row").count() <= 3, "a fan-out of 200 is one row"
    rows = one.by("items-table").locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() == 8 and "each[7].do" in rows.first.inner_text()
    one.by("rerun-failed-items").click()
    one.by("rerun-yes").click()
    one.until(f"!location.pathname.endsWith('{run_id}')")
    assert one.by("rerun-of").get_attribute("href") == f"/ui/runs/{run_id}"


def test_one_key_compares_with_the_last_run_that_worked(failed: str, server: Server, watched: Open) -> None:
    one = watched(server)
    page = one.open(f"/ui/runs/{failed}")
    one.by("sentence").wait_for()
    page.keyboard.press("c")
    page.wait_for_url(re.compile(f"/ui/compare/.+/{failed}"))
    assert "charge is where they part" in one.by("compare-sentence").inner_text()
    assert "completed → failed" in one.by("pair").inner_text()


def test_a_run_is_followed_live_to_its_end(server: Server, watched: Open) -> None:
    run_id = server.run("gate", until="waiting")
    one = watched(server)
    page = one.open(f"/ui/runs/{run_id}")
    one.by("answer").wait_for()
    server.ask("POST", f"/runs/{run_id}/approvals/ask", {"approved": True, "form": {"carrier": "bike"}})
    page.wait_for_selector("[data-testid=sentence].s-completed")
    page.wait_for_selector("[data-testid='graph-node-go'][data-state=completed]")


def test_an_approval_is_answered_on_the_spot_and_in_the_inbox_by_keyboard(
    server: Server, watched: Open
) -> None:
    first, second = (
        server.run("gate", {"boxes": 41}, until="waiting"),
        server.run("gate", {"boxes": 42}, until="waiting"),
    )
    one = watched(server)
    page = one.open(f"/ui/runs/{first}")
    page.wait_for_selector("[data-testid=answer]")
    page.keyboard.press("a")
    one.by("answer-form-carrier").select_option(label="bike")
    one.by("approve").click()
    page.wait_for_selector("[data-testid=sentence].s-completed")
    one.open(f"/ui/inbox?run={second}")
    one.by(f"wait-{second}-ask").wait_for()
    page.keyboard.press("d")
    page.wait_for_selector(f"[data-testid='inbox-{second}-ask']", state="detached")
    server.until(lambda: server.ask("GET", f"/runs/{second}")["status"] != "waiting", "the denial counted")


def test_the_answer_to_a_run_is_never_offered_for_another_one(server: Server, watched: Open) -> None:
    server.run("gate", {"boxes": 43}, until="waiting")
    late = server.run("gate", {"boxes": 44}, until="waiting")
    one = watched(server)

    def first_page(route: Route) -> None:
        """As if there were more waits than a page has."""
        found = route.fetch()
        page = found.json()
        page["items"] = [item for item in page["items"] if item["run_id"] != late]
        route.fulfill(response=found, json=page)

    one.page.route(re.compile("/api/v1/waits"), first_page)
    page = one.open(f"/ui/inbox?run={late}")
    one.by(f"wait-{late}-ask").wait_for()
    server.ask("POST", f"/runs/{late}/approvals/ask", {"approved": False})
    one.open(f"/ui/inbox?run={late}")
    one.by("inbox-answered").wait_for()
    assert page.locator("[data-testid=approve]").count() == 0


def test_a_list_takes_new_runs_at_its_top_while_nobody_points_at_it(server: Server, watched: Open) -> None:
    one = watched(server)
    page = one.open("/ui/runs")
    one.by("runs-table").wait_for()
    run_id = server.run("twice")
    page.wait_for_selector(f"tr[data-index='0'][data-testid='run-{run_id}']")
    page.wait_for_selector(f"[data-testid='run-{run_id}'][data-state=completed]")
    page.hover("[data-testid=runs-table] tbody tr:nth-child(2) td:nth-child(4)")
    later = server.run("twice")
    one.by("runs-new").click()
    page.wait_for_selector(f"[data-testid='run-{later}']")


def test_a_completed_run_with_failed_items_says_so_and_leads_to_them(server: Server, watched: Open) -> None:
    run_id = server.run("fan", {"count": list(range(120))}, until="completed")
    one = watched(server)
    one.open(f"/ui/runs/{run_id}")
    one.until(
        "document.querySelector('[data-testid=sentence-text]').textContent.endsWith('5 of 120 items failed in each')"
    )
    one.by("show-failed").click()
    one.by("item-each[7].do").click()
    one.until("document.querySelector('[data-testid=drawer-path]').textContent === 'each[7].do'")


def test_the_journal_of_a_late_item_has_its_start_and_its_end(server: Server, watched: Open) -> None:
    run_id = server.run("fan", {"count": list(range(140))}, until="completed")
    one = watched(server)
    one.open(f"/ui/runs/{run_id}?step=each%5B139%5D.do")
    one.by("tab-journal").click()
    one.until("document.querySelectorAll('[data-testid=journal] tbody tr').length >= 2")


def test_a_run_is_started_by_a_form_of_the_inputs(server: Server, watched: Open) -> None:
    one = watched(server)
    page = one.open("/ui/workflows/bill")
    page.wait_for_selector("[data-testid=start]")
    page.keyboard.press("n")
    one.until("document.activeElement.dataset.testid === 'start-amount'")
    page.keyboard.press("Control+a")
    page.keyboard.type("33")
    one.by("start-yes").click()
    page.wait_for_url(re.compile("/ui/runs/[0-9a-f-]{36}"))
    run_id = page.url.rsplit("/", 1)[1]
    assert server.ask("GET", f"/runs/{run_id}")["inputs"] == {"amount": 33}


def test_a_workflow_that_declares_no_inputs_takes_them_as_json(server: Server, watched: Open) -> None:
    one = watched(server)
    page = one.open("/ui/workflows/twice")
    one.by("start").click()
    one.by("start-inputs").fill('{"a": 1}')
    one.by("start-yes").click()
    page.wait_for_url(re.compile("/ui/runs/[0-9a-f-]{36}"))
    run_id = page.url.rsplit("/", 1)[1]
    assert server.ask("GET", f"/runs/{run_id}")["inputs"] == {"a": 1}


def test_large_inputs_are_not_said_to_be_the_same(server: Server, watched: Open) -> None:
    spec = {
        "name": "large",
        "inputs": {"text": {"type": "string"}},
        "steps": [{"id": "say", "tool": "echo", "args": {"value": 1}}],
    }
    first, second = (
        str(server.ask("POST", "/runs", {"spec": spec, "inputs": {"text": "x" * 100_000 + end}})["run_id"])
        for end in "ab"
    )
    one = watched(server)
    one.open(f"/ui/compare/{first}/{second}")
    one.until(
        "document.querySelector('[data-testid=compare-sentence]').textContent.includes('inputs are too large to compare')"
    )
