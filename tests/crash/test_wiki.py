"""A wiki that is written by a slow service: it calls back five times, once before it was waited for, and after the server
was killed and started anew; each page is written once, and nothing is taken for a result that is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.wiki import CALLBACKS, FAILING, FAST, SHORT, SLOW, Told, happened


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return happened(Path(tmp_path_factory.mktemp("wiki")))


def test_a_draft_that_is_answered_at_once_is_a_page_at_once(told: Told) -> None:
    assert told.starts[SHORT]["status"] == "completed"
    assert told.starts[SHORT]["output"] == {"title": "short-0", "written": "short.md"}


def test_who_waits_for_a_long_one_is_told_that_it_is_paused_and_under_which_task(told: Told) -> None:
    run_id = told.starts[SLOW]["run_id"]
    paused = {"paused": True, "task_id": "task_slow", "task_ids": ["task_slow"], "run_id": run_id}
    assert told.starts[SLOW] == paused


def test_what_is_written_of_a_pause_names_the_task(told: Told) -> None:
    (row,) = [row for row in told.paused_journal if row["kind"] == "step_paused"]
    assert "task_slow" in str(row)
    (wait,) = told.paused["waits"]
    assert (told.paused["status"], told.paused["output"]) == ("waiting", None)
    assert (wait["kind"], wait["name"], wait["path"]) == ("callback", "task_slow", "synth")


def test_a_callback_that_comes_before_the_pause_is_the_result(told: Told) -> None:
    assert told.reasons[FAST] == ["parked"] + ["already_resumed"] * (CALLBACKS - 1)
    assert told.starts[FAST]["output"] == {"title": "fast-0", "written": "fast.md"}


def test_of_five_callbacks_after_a_kill_one_counts(told: Told) -> None:
    assert told.asked_again >= CALLBACKS, "none came while the server was away"
    assert sorted(told.reasons[SLOW]) == ["already_resumed"] * (CALLBACKS - 1) + ["resumed"]
    assert told.runs[SLOW]["status"] == "completed"
    assert told.runs[SLOW]["output"]["title"] in {f"slow-{number}" for number in range(CALLBACKS)}


def test_every_page_is_written_once_and_says_what_the_result_said(told: Told) -> None:
    titles = {slug: told.runs[slug]["output"]["title"] for slug in (SHORT, FAST, SLOW)}
    chars = {SHORT: 100, FAST: 5_000, SLOW: 5_000}
    assert sorted(told.pages) == sorted(f"{slug} {titles[slug]} {chars[slug]} 1" for slug in titles)


def test_a_paused_call_is_not_made_again_after_the_kill(told: Told) -> None:
    assert sorted(told.calls) == sorted([SHORT, FAST, SLOW, FAILING])


def test_a_callback_that_tells_of_a_failure_fails_the_step(told: Told) -> None:
    run = told.runs[FAILING]
    assert (run["status"], run["error"]["path"]) == ("failed", "synth")
    assert "the model is down" in run["error"]["message"]


def test_every_destination_is_told_of_every_end(told: Told) -> None:
    ends = {end["run_id"]: end for end in told.ends}
    assert ends.keys() == {run["run_id"] for run in told.runs.values()}
    for run in told.runs.values():
        end = ends[run["run_id"]]
        assert end == {name: run[name] for name in end}
