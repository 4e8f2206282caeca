"""The words of `holdfast worker`: its tools are an argument, or `--tools` as everywhere else."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize("words", [("nothing_here",), ("--tools", "nothing_here")])
def test_the_module_of_a_worker_is_an_argument_or_a_flag(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli.run("worker", *words)
    assert done.returncode == 2
    assert "nothing_here" in done.stderr and "no option" not in done.stderr


def test_a_worker_without_tools_is_refused_with_an_example(cli: Cli) -> None:
    done = cli.run("worker")
    assert done.returncode == 2
    assert "holdfast worker tools" in done.stderr
