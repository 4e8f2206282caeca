"""The folder of examples works as it is, and those of the tutorial are the tutorial's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import KILLED, ROOT, Reader, blocks

EXAMPLES = ROOT / "examples"
TUTORIAL = ROOT / "docs" / "tutorial" / "orders.md"


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("*.db*", "__pycache__"))
    return Reader(folder)


def test_the_first_example_posts_four_letters(reader: Reader) -> None:
    done = reader.sh("holdfast run hello.yaml --tools tools -i name=Ada 2>letters")
    assert (done.returncode, done.stdout.split()) == (0, ["{", '"posted":', "4", "}"])
    assert "Dear Grace, greetings from Ada" in (reader.folder / "letters").read_text()


def test_the_example_of_python_prints_what_was_posted(reader: Reader) -> None:
    assert reader.sh("python app.py").stdout.splitlines()[-1] == "{'posted': 4}"


def test_the_plug_is_pulled_once(reader: Reader) -> None:
    assert reader.sh("holdfast run plug.yaml --tools tools").returncode in KILLED
    done = reader.sh("holdfast run --continue last --tools tools")
    assert (
        done.returncode == 0 and "alive, attempt 2" in done.stdout and "before the power cut" in done.stdout
    )


def test_the_mistake_is_found(reader: Reader) -> None:
    done = reader.sh("holdfast validate mistakes/mistake.yaml")
    assert done.returncode == 2 and "did you mean args?" in done.stdout


def test_every_example_can_be_published_and_scheduled_by_a_server(reader: Reader) -> None:
    script = "holdfast up --port 0 --tools tools --flows . --schedules . --json >up.out 2>up.log & up=$!\n"
    reader.sh(f"{script}until [ -s up.out ]; do sleep 0.1; done; kill $up; wait $up")
    told = json.loads((reader.folder / "up.out").read_text("utf-8"))
    assert told["broken"] == [] and {"hello", "plug", "two_ways", "doubling"} <= set(told["flows"])
    assert (told["schedules"]["plan"], told["schedules"]["problems"]) == ("+2 ~0 -0", [])
    assert "no workflow" not in (reader.folder / "up.log").read_text("utf-8")


@pytest.mark.parametrize("name", ["order.yaml", "tools.py", "test_order.py", "holdfast.toml"])
def test_the_orders_are_those_of_the_tutorial(name: str) -> None:
    last = [block.text for block in blocks(TUTORIAL) if block.info == name][-1]
    assert (EXAMPLES / "orders" / name).read_text("utf-8") == last
