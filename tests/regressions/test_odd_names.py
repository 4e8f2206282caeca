"""Names that a caller chooses: labels, ids of requests and of runs, whatever is in them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInputs, InvalidSpec, LimitExceeded, NotFound

ONE = "name: one\nsteps: [{id: s, tool: echo, args: {value: 1}}]"
HALF = "\ud800"


def _start(folder: Path, definition: str = ONE, **options: Any) -> None:
    async def main() -> None:
        async with Holdfast(str(folder / "a.db")) as hf:
            await hf.start(definition, **options)

    asyncio.run(main())


@pytest.mark.parametrize("labels", [{5: "a"}, {"a": 5}, {HALF: "a"}, {"a": HALF}])
def test_labels_are_text(tmp_path: Path, labels: Any) -> None:
    with pytest.raises(InvalidInputs, match="label"):
        _start(tmp_path, labels=labels)


@pytest.mark.parametrize(
    "labels", [{"a": "x" * 1_001}, {"x" * 1_001: "a"}, {f"n{i}": "" for i in range(101)}]
)
def test_labels_have_limits(tmp_path: Path, labels: Any) -> None:
    with pytest.raises(LimitExceeded):
        _start(tmp_path, labels=labels)


def test_a_request_id_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputs, match="surrogate"):
        _start(tmp_path, request_id=HALF)


def test_no_run_goes_by_a_name_that_cannot_be_written(tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db")) as hf:
            for ask in (hf.run, hf.cancel):
                with pytest.raises(NotFound):
                    await ask(HALF)

    asyncio.run(main())


def test_a_workflow_that_names_itself_is_a_cycle_also_where_it_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="contains itself"):
        _start(tmp_path, "name: one\nsteps: [{id: s, workflow: one}]")
