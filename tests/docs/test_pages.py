"""Every example of every page is carried out, and what a page shows is what happens."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from holdfast import InvalidSpec
from holdfast.cli.commands import COMMANDS, GROUPS
from holdfast.plan.compile import compile_definition, names_used
from holdfast.spec.notation import definition_from_text
from holdfast.spec.schedule import is_schedule_file, schedules_from_text
from tests.docs.pages import PAGES, ROOT, Block, Reader, blocks, mismatch
from tests.postgres import Server

DATABASE_URL = "DATABASE_URL"  # the variable that pages about PostgreSQL speak of
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]
LINKING = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    reader = Reader(tmp_path)
    if DATABASE_URL in page.read_text("utf-8"):
        server: Server = request.getfixturevalue("postgres_server")
        reader.env[DATABASE_URL] = asyncio.run(server.new_database())
    reader.follow(page)


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_a_workflow_of_a_page_is_valid_unless_the_page_shows_its_problems(page: Path) -> None:
    shown = "".join(block.text for block in blocks(page) if block.kind == "console")
    for block in blocks(page):
        if block.kind == "yaml":
            is_wrong = re.search(rf"^{block.info}:\d+:\d+: error: ", shown, re.MULTILINE)
            assert is_valid(block) == (is_wrong is None), block


def is_valid(block: Block) -> bool:
    try:
        if is_schedule_file(Path(block.info).name):
            schedules_from_text(block.text, block.info)
            return True
        spec = definition_from_text(block.text, block.info)
        spec.validate(template_env=("REGION",))
        if not names_used(spec):
            compile_definition(spec)
    except InvalidSpec:
        return False
    return True


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_every_file_of_a_page_is_used_on_it(page: Path) -> None:
    found = blocks(page)
    for block in found:
        if block.info.endswith((".yaml", ".py")):
            others = "".join(other.text for other in found if other is not block)
            stem = Path(block.info).stem
            assert re.search(rf"\b{stem}\b", others) or stem.startswith("test_") and "pytest" in others, (
                block.info
            )


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]+)?\)", page.read_text("utf-8")):
        if target.startswith("http"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor[1:] in anchors(file), f"{target}{anchor}"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)`", text)) <= targets
    named = re.findall(r"(?:`|^\$ )holdfast ((?:runs )?[a-z]+(?:-[a-z]+)*)", text, re.MULTILINE)
    assert set(named) <= {*COMMANDS, *GROUPS}


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_every_page_can_be_found_from_the_index(page: Path) -> None:
    links = set()
    for start in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        links |= {
            (start.parent / link).resolve()
            for link in re.findall(r"\]\(([^)#\s]+\.md)", start.read_text("utf-8"))
        }
    assert page.resolve() in {*links, (ROOT / "README.md").resolve()}


def test_what_differs_between_page_and_program_is_found() -> None:
    assert mismatch(["a … c", "took 3 ms"], ["took 17 ms", "a b c"]) == ""
    assert mismatch(["AGE    TOOK", "1.2 s  3 ms"], ["AGE     TOOK", "903 ms  303 ms"]) == ""
    assert mismatch(["a"], ["b"]) == "not printed: a"
    assert mismatch(["a"], ["a", "b"]) == "not shown: b"
    assert mismatch(["a", "…"], ["a", "b"]) == ""
    assert mismatch(["a", "a"], ["a"]) == "not printed: a"
