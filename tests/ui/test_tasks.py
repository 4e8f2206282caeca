"""What a person comes to do, by the number of clicks after the first screen. Typing and keys are not clicks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.ui.conftest import Open, Server, Watched

CLICKS_MAX = 3
MISTAKEN = """\
name: written_here
steps:
  - id: say
    tol: echo
    args: {value: hello}
  - id: again
    tool: echo
    args: {value: "{{sya}}"}
"""
RIGHT = MISTAKEN.replace("tol:", "tool:").replace("sya", "say")


class Person:
    """Looks at a page and clicks."""

    def __init__(self, watched: Watched) -> None:
        self.sees, self.clicks = watched, 0

    def click(self, testid: str) -> None:
        self.clicks += 1
        self.sees.by(testid).click()

    def reads(self, testid: str, *words: str) -> None:
        """Wait until a part of the page says these words."""
        for word in words:
            self.sees.until(
                f"document.querySelector('[data-testid=\"{testid}\"]').textContent.includes({word!r})"
            )


Begin = Callable[[str], Person]


@pytest.fixture
def at(server: Server, watched: Open) -> Iterator[Begin]:
    """A person at a first screen; at the end nobody has clicked too often."""
    people: list[Person] = []

    def begin(path: str) -> Person:
        person = Person(watched(server))
        person.sees.open(path)
        people.append(person)
        return person

    yield begin
    assert all(person.clicks <= CLICKS_MAX for person in people)


def write(person: Person, text: str) -> None:
    page = person.sees.page
    person.sees.until("document.querySelector('hf-editor')")
    person.sees.by("editor-text").focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_a_failure_of_last_night_is_read_and_rerun_and_then_needs_nobody(server: Server, at: Begin) -> None:
    run_id = server.run("bill", {"amount": 555}, until="failed")
    person = at("/")
    person.reads("need-failed-bill", "charge", "the bank refuses")
    person.click("need-rerun-failed-bill")
    person.click("bulk-yes")

    def was_rerun() -> bool:
        lines = server.ask("GET", "/runs?workflow=bill&status=failed")["items"]
        return any(line["run_id"] == run_id and line["rerun_as"] for line in lines)

    server.until(was_rerun, "it runs again")


def test_an_approval_is_given_by_keyboard_alone(server: Server, at: Begin) -> None:
    run_id = server.run("gate", until="waiting")
    person = at(f"/ui/inbox?run={run_id}")
    person.sees.by(f"wait-{run_id}-ask").wait_for()
    person.sees.by("answer-form-carrier").select_option(label="bike")
    person.sees.page.keyboard.press("Escape")  # leaves the field
    person.sees.page.evaluate("document.activeElement.blur()")
    person.sees.page.keyboard.press("a")
    server.until(lambda: server.ask("GET", f"/runs/{run_id}")["status"] == "completed", "the answer counted")
    assert person.clicks == 0


def test_the_slowest_step_of_this_week_is_found(server: Server, at: Begin) -> None:
    server.run("bill", {"amount": 556}, until="failed")
    person = at("/")
    person.click("nav-workflows")
    person.click("open-bill")
    person.sees.until("document.querySelector('[data-testid=stats-week]').ariaPressed === 'true'")
    person.sees.until(
        "document.querySelector('[data-testid=slow-steps] tbody tr td').textContent === 'charge'"
    )


def test_a_failed_run_is_compared_with_the_last_one_that_worked(server: Server, at: Begin) -> None:
    server.run("bill", until="completed")
    run_id = server.run("bill", {"amount": 557}, until="failed")
    person = at("/ui/runs")
    person.click(f"open-{run_id}")
    person.click("compare")
    person.sees.page.wait_for_url(re.compile(f"/ui/compare/.+/{run_id}"))
    person.reads("compare-sentence", "charge is where they part")
    person.reads("pair", "completed → failed")


def test_a_workflow_with_two_mistakes_is_mended_and_published(at: Begin) -> None:
    person = at("/ui/workflows/~new")
    write(person, MISTAKEN)
    person.reads("validity", "2 problems")
    assert person.sees.by("editor-publish").is_disabled()
    person.click("problem-0")
    person.sees.until(
        "document.querySelector('hf-editor').shadowRoot.querySelectorAll('.cm-lintRange-error').length > 1"
    )
    write(person, RIGHT)
    person.reads("validity", "Valid")
    person.click("editor-publish")
    person.sees.page.wait_for_url("**/ui/workflows/written_here")


def test_the_reason_why_a_schedule_did_not_fire_is_read(server: Server, at: Begin) -> None:
    trigger = {"kind": "interval", "every": "1s"}
    server.ask("PUT", "/schedules/each_second", {"trigger": trigger, "workflow": "gate"})

    def has_skipped() -> bool:
        items = server.ask("GET", "/schedules/each_second/why")["items"]
        return any(one["outcome"] != "fired" for one in items)

    server.until(has_skipped, "an occurrence was passed over")
    person = at("/")
    person.click("nav-schedules")
    person.click("schedule-each_second")
    person.sees.until(
        "document.querySelector('section[aria-label=\"Why not then?\"]').textContent.includes('max_concurrent')"
    )
    server.ask("DELETE", "/schedules/each_second")
