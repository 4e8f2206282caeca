"""The bench measures what it says: each workload in a tiny form, and the rules for what counts. Nothing is timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import sitting
from bench.__main__ import WORKLOADS, main
from bench.figures import Goal, Kind, Measure, line, quantile, table
from bench.scale import TINY, Scale
from bench.sitting import Sitting, Workload
from bench.turns import in_turns, sliced

SINGLE = Kind("single", "ms", "L-commit", Goal(value=5, ratio=22), Goal(value=2.5, ratio=14))
KEYS = ["name", "value", "unit", "settings", "limit", "ratio", "bar", "meets", "spread", "machine"]


def is_well_formed(one: dict[str, Any]) -> bool:
    """One line of JSON with every key, a limit wherever there is a ratio, and a verdict wherever there is a bar."""
    back = msgspec.json.decode(msgspec.json.encode(one))
    assert list(back) == KEYS
    assert set(back["spread"]) == {"min", "median", "max", "repeats", "slow"}
    assert set(back["machine"]) == {"cores", "python", "calibration", "load"}
    assert (back["limit"] is None) == (back["ratio"] is None)
    assert (back["bar"] is None) == (back["meets"] is None)
    assert back["meets"] in (None, "no", "must", "moonshot")
    return isinstance(back["value"], int | float)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_each_workload_gives_well_formed_lines(workload: Workload, tmp_path: Path) -> None:
    measures = workload.once(tmp_path, TINY)
    lines = [line([measure], slow=0, calibration_ms=1.0) for measure in measures]
    assert lines and all(is_well_formed(one) for one in lines)
    assert len(table(lines).splitlines()) == len(lines) + 1


def test_names_choose_workloads_by_whole_words() -> None:
    assert [each.name for each in WORKLOADS if each.is_named("w1")] == ["w1_saturated", "w1_single"]


def test_a_name_that_is_no_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["w99"]) == 2
    assert "no workload is called w99" in capsys.readouterr().err


def test_the_data_folder_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.__main__.QUICK", TINY)
    monkeypatch.setattr(sitting, "SLOW", float("inf"))  # it waits for no quiet moment
    assert main(["w1_saturated", "--quick", "--json-only", "--data", str(tmp_path / "data")]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("value", "limit", "verdict"),
    [
        (2.0, 0.2, "moonshot"),
        (3.0, 0.2, "must"),  # 15 times the limit
        (6.0, 0.9, "no"),  # a slow disk excuses no more than its share
        (4.0, 0.1, "no"),  # fast, and still too far from what this machine can do
    ],
)
def test_a_bar_is_met_only_if_both_its_halves_are(value: float, limit: float, verdict: str) -> None:
    assert SINGLE.verdict(value, value / limit) == verdict


def test_a_line_holds_the_median_of_values_and_of_ratios() -> None:
    measures = [Measure(SINGLE, 1.0, 1.0), Measure(SINGLE, 2.0, 0.5), Measure(SINGLE, 9.0, 1.0)]
    found = line(measures, slow=2, calibration_ms=1.0)
    assert (found["value"], found["ratio"]) == (2.0, 4.0)
    assert found["spread"] == {
        "min": 1.0,
        "median": 2.0,
        "max": 9.0,
        "repeats": 3,
        "slow": 2,
    }


def test_the_last_hundredth_of_a_sample_is_its_99th_percentile() -> None:
    assert quantile(list(range(100)), 0.99) == 99


def test_repetitions_in_a_slow_spell_count_too_and_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # at the start, then before and after each repetition
    loops = iter([10.0, 10.0, 10.0, 10.0, 30.0, 10.0, 10.0])
    values = iter([1.0, 100.0, 3.0])
    monkeypatch.setattr(sitting, "calibrated_ms", lambda: next(loops))
    workload = Workload("fake", lambda folder, scale: [Measure(SINGLE, next(values))])
    (found,) = Sitting(tmp_path, Scale(), repeats=3, patience_seconds=0).lines(workload)
    spread = found["spread"]
    assert (spread["median"], spread["max"], spread["repeats"], spread["slow"]) == (3.0, 100.0, 3, 1)


def test_each_slice_stands_between_two_of_the_limit() -> None:
    limits = iter([1.0, 3.0, 5.0])
    asked: list[str] = []

    def limit() -> tuple[float, ...]:
        asked.append("limit")
        return (next(limits),)

    def ours(number: int) -> int:
        asked.append("ours")
        return number

    found = in_turns(ours, limit, 2)
    assert asked == ["limit", "ours", "limit", "ours", "limit"]
    assert [(one.ours, one.limits) for one in found] == [(0, (2.0,)), (1, (4.0,))]


def test_the_ratio_of_slices_is_the_median_of_their_ratios() -> None:
    found = sliced(SINGLE, [10.0, 30.0, 20.0], [1.0, 10.0, 4.0], {})
    assert (found.value, found.ratio, found.settings) == (20.0, 5.0, {"slices": 3})
