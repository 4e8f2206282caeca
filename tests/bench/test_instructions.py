"""What instruction counts mean: per operation, held against those that stand. Counting itself takes minutes: `make bench-instructions`."""

from __future__ import annotations

import pytest

from bench import instructions
from bench.counted import CHILDREN, STEPS
from bench.instructions import per_operation, too_many


def test_a_count_more_than_two_percent_higher_is_too_many() -> None:
    assert too_many({"run": 1021, "step": 1020}, {"run": 1000, "step": 1000}) == ["run"]


def test_counts_of_another_interpreter_are_not_judged() -> None:
    assert too_many({"run": 10**9}, None) == []


def test_a_further_step_is_what_a_longer_run_costs_more() -> None:
    per_script = {"run": 1000, "steps": 1000 + STEPS * 70, "fan_out": CHILDREN * 30}
    assert per_operation(per_script) == {"run": 1000, "step": 70, "child": 30}


def test_make_test_says_that_nothing_is_compared_where_valgrind_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert instructions.main(["--short"]) == 0
    assert capsys.readouterr().out == "instructions: not compared, valgrind is not installed\n"
