"""What goes wrong around a page: hostile text, a server that is away, a key that is revoked, a clock that is off."""

from __future__ import annotations

import datetime as dt
import re

from tests.ui.conftest import Open, Server

KEY = "a-key-of-the-browser-tests-0123456789"


def test_hostile_text_is_shown_as_text_everywhere(server: Server, watched: Open) -> None:
    bad = '<img src=x onerror="window.hacked=1">'
    run_id = server.run("hostile", until="waiting", labels={"team": bad})
    one = watched(server)
    page = one.open(f"/ui/runs/{run_id}?step=say")
    one.until(
        "document.querySelector('[data-testid=drawer]').textContent.includes('<script>window.hacked=1</script>')"
    )
    one.by("tab-log").click()
    one.until("document.querySelector('[data-testid=log]')?.textContent.includes('<img src=x')")
    assert page.locator("a[href^='javascript']").count() == 0
    for path in ("/ui/inbox", "/", "/ui/runs", "/ui/workflows", "/ui/workflows/hostile"):
        one.open(path)
        one.until("document.querySelector('main').textContent.includes('<img src=x')")
    server.ask("POST", f"/runs/{run_id}/approvals/ask", {"approved": True, "form": {}})
    server.until(lambda: server.ask("GET", f"/runs/{run_id}")["status"] == "failed", "it failed")
    one.open(f"/ui/runs/{run_id}")
    one.until("document.querySelector('[data-testid=sentence]').textContent.includes('<img src=x')")
    one.open(f"/ui/runs?q=workflow:{bad}")
    one.open(f"/ui/workflows/{bad.replace('/', '%2F')}")
    one.by("no-workflow").wait_for()
    one.expected = [r"status of 404 .*/workflows/"]
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


def test_a_server_that_is_away_leaves_the_page_and_what_was_typed(own_server: Server, watched: Open) -> None:
    own_server.start()
    own_server.run("twice", until="completed")
    one = watched(own_server)
    one.expected = [
        "ERR_CONNECTION_REFUSED",
        "ERR_INCOMPLETE_CHUNKED_ENCODING",
        "ERR_CONNECTION_RESET",
        "ERR_EMPTY_RESPONSE",
        "status of 503",
    ]
    page = one.open("/ui/runs")
    one.by("runs-table").wait_for()
    one.by("runs-filter").fill("workflow:tw")
    own_server.stop()
    page.wait_for_selector("[data-testid=away], [data-testid=lost]")
    assert one.by("runs-filter").input_value() == "workflow:tw"
    one.by("runs-filter").fill("workflow:twice")
    one.by("away").wait_for()
    own_server.start()
    page.wait_for_selector("[data-testid=away]", state="detached")
    later = own_server.run("twice")
    page.wait_for_selector(f"[data-testid='run-{later}']")
    assert one.by("runs-filter").input_value() == "workflow:twice"


def test_a_stream_that_is_cut_is_resumed(server: Server, watched: Open) -> None:
    run_id = server.run("gate", until="waiting")
    one = watched(server)
    one.expected = ["ERR_INTERNET_DISCONNECTED", "ERR_NETWORK_CHANGED", "ERR_FAILED"]
    page = one.open(f"/ui/runs/{run_id}")
    page.wait_for_selector(".meta .live-live")
    one.context.set_offline(True)
    page.wait_for_selector("[data-testid=away], [data-testid=lost]")
    server.ask("POST", f"/runs/{run_id}/approvals/ask", {"approved": True, "form": {"carrier": "post"}})
    one.context.set_offline(False)
    page.wait_for_selector("[data-testid=sentence].s-completed")


def test_a_guarded_server_asks_for_a_key_and_a_revoked_one_is_said(own_server: Server, watched: Open) -> None:
    own_server.key = KEY
    own_server.start()
    made = own_server.ask("POST", "/keys", {"name": "looker", "scopes": ["read"]})
    run_id = own_server.run("gate", until="waiting")
    one = watched(own_server)
    one.expected = ["status of 401", "status of 403"]
    page = one.page
    with page.expect_response(re.compile("/api/v1/services")):
        one.open("/")
    one.by("key-form").wait_for()
    said = page.inner_text("main")
    assert "All is well" not in said, "nothing is known yet"
    assert "key is needed" not in said, "the form says it once"
    page = one.open(f"/ui/runs/{run_id}")
    one.by("key-input").fill("wrong")
    one.by("key-use").click()
    one.by("key-problem").wait_for()
    one.by("key-input").fill(made["key"])
    one.by("key-use").click()
    one.by("sentence").wait_for()
    assert one.by("cancel").count() == 0, "a button beyond the key's scopes is not shown"
    assert page.evaluate("Object.keys(sessionStorage).length + document.cookie.length") == 0
    own_server.ask("DELETE", f"/keys/{made['id']}")
    one.by("key-form").wait_for()
    assert "not valid any more" in one.by("key-problem").inner_text()
    assert one.by("sentence").is_visible(), "the page is not blanked"


def test_a_file_is_downloaded_with_the_key(own_server: Server, watched: Open) -> None:
    own_server.key = KEY
    own_server.start()
    spec = {"name": "reports", "steps": [{"id": "write", "tool": "report"}]}
    run_id = own_server.ask("POST", "/runs", {"spec": spec, "wait_secs": 30})["run_id"]
    one = watched(own_server)
    one.expected = ["status of 401"]
    page = one.open(f"/ui/runs/{run_id}?step=write")
    one.by("key-input").fill(KEY)
    one.by("key-use").click()
    with page.expect_download() as download:
        page.locator("[data-testid^=file-]").click()
    assert download.value.suggested_filename == "report.txt"
    assert download.value.path().read_text("utf-8") == "all is well"


def test_a_widget_that_the_key_may_not_see_shows_a_sentence(own_server: Server, watched: Open) -> None:
    own_server.key = KEY
    own_server.start()
    made = own_server.ask("POST", "/keys", {"name": "worker", "scopes": ["read"], "tenant": "other"})
    one = watched(own_server)
    one.expected = ["status of 401", "status of 403"]
    page = one.open("/ui/workers")
    one.by("key-input").fill(made["key"])
    one.by("key-use").click()
    one.until("document.querySelector('main').textContent.includes('Your key may not see this.')")
    assert page.get_by_role("heading", name="Workers", exact=True).first.is_visible()


def test_two_people_answering_the_same_approval_are_told(server: Server, watched: Open) -> None:
    run_id = server.run("gate", {"boxes": 77}, until="waiting")
    one = watched(server)
    one.expected = ["status of 409"]
    page = one.open(f"/ui/inbox?run={run_id}")
    one.by("answer-form-carrier").select_option(label="post")
    one.by("answer-reason").fill("mine")
    # The page does not hear of it: the other answer comes in the moment before the click.
    page.route(re.compile("/events|/waits"), lambda route: route.abort())
    one.expected.append("ERR_FAILED")
    server.ask("POST", f"/runs/{run_id}/approvals/ask", {"approved": False})
    one.by("approve").click()
    one.until(
        "document.querySelector('[data-testid=said]').textContent.includes('Another answer came first')"
    )
    page.wait_for_selector(f"[data-testid='inbox-{run_id}-ask']", state="detached")


def test_a_form_in_the_inbox_stays_when_another_answer_comes_first(server: Server, watched: Open) -> None:
    server.run("gate", {"boxes": 78}, until="waiting")
    run_id = server.run("gate", {"boxes": 79}, until="waiting")
    one = watched(server)
    page = one.open("/ui/inbox")
    one.by(f"inbox-{run_id}-ask").click()
    one.by("answer-reason").fill("mine")
    server.ask("POST", f"/runs/{run_id}/approvals/ask", {"approved": False})
    one.by("answer-over").wait_for()
    # Another approval in its place would get the answer that was meant for this one.
    assert one.by(f"wait-{run_id}-ask").is_visible()
    assert one.by("answer-reason").input_value() == "mine"
    assert one.by("approve").is_disabled()
    page.wait_for_selector(f"[data-testid='inbox-{run_id}-ask']", state="detached")
    one.by("answer-next").click()
    page.wait_for_selector(f"[data-testid='wait-{run_id}-ask']", state="detached")
    page.wait_for_selector("article[data-testid^=wait-]")


def test_a_form_beside_a_run_stays_when_another_answer_comes_first(server: Server, watched: Open) -> None:
    run_id = server.run("gate", {"boxes": 80}, until="waiting")
    one = watched(server)
    one.open(f"/ui/runs/{run_id}")
    one.by("answer").click()
    one.by("answer-reason").fill("mine")
    server.ask("POST", f"/runs/{run_id}/approvals/ask", {"approved": False})
    one.by("answer-over").wait_for()
    assert one.by("answer-reason").input_value() == "mine"


def test_a_run_that_is_not_there_and_one_that_was_deleted_have_a_sentence(
    server: Server, watched: Open
) -> None:
    run_id = server.run("gate", until="waiting")
    one = watched(server)
    one.expected = ["status of 404", "ERR_FAILED"]
    page = one.open("/ui/runs/0199f3c4-0000-7000-8000-000000000000")
    one.by("run-gone").wait_for()
    one.open(f"/ui/runs/{run_id}")
    one.by("sentence").wait_for()
    gone = '{"error": "not_found", "message": "there is no run", "details": []}'
    page.route(
        re.compile(f"/api/v1/runs/{run_id}"),
        lambda route: route.fulfill(status=404, content_type="application/json", body=gone),
    )
    one.by("run-deleted").wait_for()
    assert one.by("sentence").is_visible()


def test_a_clock_that_is_an_hour_off_is_said_and_does_not_bend_times(server: Server, watched: Open) -> None:
    server.run("twice", until="completed")
    one = watched(server)
    one.page.clock.install(time=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
    one.open("/ui/runs")
    one.by("clock-off").wait_for()
    one.until(
        "/^(just now|\\d+ s ago|\\d m ago)$/.test(document.querySelector('[data-testid=runs-table] time').textContent)"
    )


def test_a_large_output_is_shown_by_its_beginning(server: Server, watched: Open) -> None:
    spec = {
        "name": "large",
        "steps": [{"id": "make", "tool": "echo", "args": {"value": "{{inputs.text}}"}}],
        "inputs": {"text": {"type": "string"}},
    }
    run_id = server.ask("POST", "/runs", {"spec": spec, "inputs": {"text": "x" * 900_000}})["run_id"]
    server.until(lambda: server.ask("GET", f"/runs/{run_id}")["status"] == "completed", "it completed")
    one = watched(server)
    one.open(f"/ui/runs/{run_id}?step=make")
    one.by("show-all").click()
    one.until("document.querySelector('[data-testid=drawer]').textContent.includes('more characters')")


def test_a_text_that_was_changed_survives_a_look_at_other_screens(server: Server, watched: Open) -> None:
    one = watched(server)
    page = one.open("/ui/workflows/bill?tab=edit")
    shown = "document.querySelector('hf-editor').shadowRoot.querySelector('.cm-content').textContent"
    one.until(f"{shown}.includes('name: bill')")
    one.by("editor-text").focus()
    page.keyboard.press("Control+Home")
    page.keyboard.insert_text("# mine\n")
    one.by("editor-discard").wait_for()
    one.by("wtab-versions").click()
    one.by("version-text-1").wait_for()
    one.by("nav-runs").click()
    one.by("runs-filter").wait_for()
    page.go_back()
    one.by("wtab-edit").click()
    one.until(f"{shown}.startsWith('# mine')")
    one.by("editor-discard").click()
    one.until(f"{shown}.startsWith('name: bill')")
    one.by("editor-discard").wait_for(state="detached")


def test_a_text_published_under_another_name_leads_to_that_workflow(server: Server, watched: Open) -> None:
    one = watched(server)
    page = one.open("/ui/workflows/bill?tab=edit")
    one.until("document.querySelector('hf-editor').shadowRoot.textContent.includes('name: bill')")
    one.by("editor-text").focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("name: bill_two\nsteps:\n  - {id: a, tool: echo, args: {value: 1}}\n")
    one.until("document.querySelector('[data-testid=validity]').textContent === 'Valid, changed'")
    one.by("editor-publish").click()
    page.wait_for_url("**/ui/workflows/bill_two?tab=edit")
    assert server.ask("GET", "/workflows/bill_two")["number"] == 1


def test_a_key_that_may_only_read_is_offered_no_answer(own_server: Server, watched: Open) -> None:
    own_server.key = KEY
    own_server.start()
    run_id = own_server.run("gate", until="waiting")
    made = own_server.ask("POST", "/keys", {"name": "reader", "scopes": ["read"]})
    one = watched(own_server)
    one.expected = ["status of 401"]
    page = one.open(f"/ui/runs/{run_id}")
    one.by("key-input").fill(made["key"])
    one.by("key-use").click()
    one.by("sentence").wait_for()
    page.wait_for_selector("[data-testid=actions]")
    assert [one.by(name).count() for name in ("answer", "cancel")] == [0, 0]
    one.by("nav-inbox").click()
    one.until("document.querySelector('article').textContent.includes('lacks the scope approve')")
    assert [one.by(name).count() for name in ("approve", "answer-form-carrier")] == [0, 0]
