"""Log lines: one per record, whatever stands in it, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from holdfast.cli.logs import AsJson, AsText, ToStderr
from holdfast.tools.secrets import Secrets

HOSTILE = 'name\nERROR forged line \x1b[31mred\x9b0m \r\x00\u2028"quoted"\x7f'


def record(message: str, *args: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("holdfast", logging.INFO, __file__, 1, message, args, None)
    made.__dict__.update(extra)
    return made


def as_json(made: logging.LogRecord) -> Any:
    text = AsJson().format(made)
    assert text.isprintable(), text
    return json.loads(text)


def test_what_a_user_wrote_begins_no_line_of_its_own_in_text() -> None:
    text = AsText("%(message)s").format(record("run %s", HOSTILE))
    assert text.isprintable()
    assert text.startswith("run name\\u000aERROR forged line \\u001b[31mred\\u009b0m ")


def test_what_a_user_wrote_comes_back_from_json_as_it_was() -> None:
    line = as_json(record("run %s", HOSTILE))
    assert line["message"] == f"run {HOSTILE}"
    assert (line["level"], line["logger"]) == ("info", "holdfast")


def test_a_line_about_a_request_has_its_fields() -> None:
    said = {
        "request_id": "r1",
        "method": "GET",
        "route": "/runs/{id}",
        "status": 200,
        "ms": 1.5,
        "client": "",
        "key": "",
    }
    line = as_json(record("GET /runs/{id} 200 in 1.5 ms", request=said))
    assert {name: line[name] for name in said} == said


def test_a_line_about_a_run_has_its_fields() -> None:
    line = as_json(record("late", run_id="r", step="s", attempt=2))
    assert (line["run_id"], line["step"], line["attempt"]) == ("r", "s", 2)


def test_what_a_tool_said_in_several_lines_stays_below_its_step() -> None:
    said = {"message": "one\ntwo\x1b", "fields": {"n": 1}}
    text = AsText("%(message)s").format(record("x", run_id="r", step="s", attempt=1, said=said))
    assert text == "  · s  one\n    two\\u001b n=1"


def test_an_exception_keeps_its_lines_and_loses_what_speaks_to_a_terminal() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        made = logging.LogRecord("holdfast", logging.ERROR, __file__, 1, "it broke", (), sys.exc_info())
    text = AsText("%(message)s").format(made)
    assert text.startswith("it broke\nTraceback")
    assert all(line.isprintable() for line in text.split("\n"))
    assert "ValueError" in as_json(made)["trace"]


def test_secrets_are_taken_out_of_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    handler = ToStderr()
    handler.setFormatter(AsJson())
    handler.redact_with(Secrets(known=["hunter22"]))
    handler.emit(record("the key is %s", "hunter22"))
    shown = capsys.readouterr().err
    assert "hunter22" not in shown and json.loads(shown)["message"] == "the key is ***"


@pytest.mark.parametrize("form", [AsJson(), AsText("%(message)s")], ids=["json", "text"])
def test_a_secret_that_is_split_over_two_lines_is_taken_out_of_both(
    capsys: pytest.CaptureFixture[str], form: logging.Formatter
) -> None:
    handler = ToStderr()
    handler.setFormatter(form)
    handler.redact_with(Secrets(known=["correct-horse-battery"]))
    for part in ("correct-ho", "rse-battery"):
        handler.emit(record("part %s", part) if part == "correct-ho" else record("%s", part))
    shown = capsys.readouterr().err
    assert "part ***" in shown and "correct" not in shown and "battery" not in shown
