"""What a tool may tell of its attempt is bounded, and its folder goes with it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, limits
from holdfast.values import RunId


def telling(workdirs: Path | None = None) -> tuple[Context, list[tuple[str, dict[str, Any]]]]:
    told: list[tuple[str, dict[str, Any]]] = []
    return Context(RunId("r"), "a", 1, "k", emit=lambda *said: told.append(said), workdirs=workdirs), told


def test_cancelled_is_true_from_the_moment_it_is_said() -> None:
    context, _ = telling()
    assert not context.cancelled
    context.cancel()
    assert context.cancelled


def test_lines_beyond_the_limit_are_dropped_with_one_note() -> None:
    context, told = telling()
    for n in range(limits.now.log_lines_max + 50):
        context.log(f"line {n}")
    assert len(told) == limits.now.log_lines_max + 1
    assert told[-2][1]["message"] == f"line {limits.now.log_lines_max - 1}"
    assert "further lines were dropped" in told[-1][1]["message"]


def test_bytes_beyond_the_limit_are_dropped_with_one_note() -> None:
    context, told = telling()
    for _ in range(5):
        context.log("ü" * (limits.now.log_bytes_max // 4), field="x")
    context.log("short")
    assert len(told) == 2
    assert "further lines were dropped" in told[-1][1]["message"]


def test_progress_is_a_fraction_or_done_of_total() -> None:
    context, told = telling()
    context.progress(0.25, message="on it")
    context.progress(3, 4)
    context.progress(7, 4)
    assert [said["fraction"] for _, said in told] == [0.25, 0.75, 1.0]
    assert (told[1][1]["done"], told[1][1]["total"]) == (3, 4)


def test_progress_that_nobody_could_tell_apart_is_dropped() -> None:
    context, told = telling()
    for n in range(100_000):
        context.progress(n, 1_000_000)
    assert len(told) < 200


def test_progress_is_bounded() -> None:
    context, told = telling()
    for n in range(limits.now.progress_max + 10):
        context.progress(n % 2)
    assert len(told) == limits.now.progress_max


@pytest.mark.parametrize("total", [0, None])
def test_progress_of_nothing_is_no_error(total: int | None) -> None:
    context, told = telling()
    context.progress(0, total)
    assert told[0][1]["fraction"] == 0.0


def test_the_folder_is_made_when_asked_for_and_removed_at_the_end(tmp_path: Path) -> None:
    context, _ = telling(tmp_path / "work")
    assert not (tmp_path / "work").exists()
    (context.workdir / "sub").mkdir()
    folder = context.workdir
    assert folder.parent == tmp_path / "work"
    assert folder.stat().st_mode & 0o777 == 0o700
    context.close()
    assert not folder.exists()


def test_two_attempts_have_two_folders(tmp_path: Path) -> None:
    one, other = telling(tmp_path)[0], telling(tmp_path)[0]
    assert one.workdir != other.workdir


def test_without_a_listener_lines_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast.tool"):
        Context(RunId("r"), "a", 1, "k").log("hello", n=1)
    assert caplog.messages == ["run r: step a: hello n=1"]
