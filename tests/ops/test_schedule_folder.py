"""A folder of schedules is taken into use whole, or not at all. Real files; a registry that remembers each set."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from holdfast.errors import NotFound, StoreUnavailable
from holdfast.ops.schedule_folder import ScheduleFolder
from holdfast.ops.skills import SkillFolder
from holdfast.spec.notation import Definition
from holdfast.triggers.definitions import Declared, Plan
from tests.small_limits import with_limits

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z


class Shelf:
    """Two folders, and the sets that were taken into use, in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sets: list[list[Declared]] = []
        self.in_store: dict[str, bytes] = {}
        self.others: dict[str, str] = {}
        self.published: list[str] = ["cleanup"]
        self.is_guarded = self.is_away = False
        for folder in ("schedules", "skills"):
            (root / folder).mkdir()
        self.skills = SkillFolder(root / "skills", self.publish)
        self.folder = ScheduleFolder(
            root / "schedules", self.skills, self, now=lambda: NOW, is_guarded=lambda: self.is_guarded
        )

    async def publish(self, tenant: str, definition: Definition) -> None:
        self.published.append(definition.name)

    async def origins(self, tenant: str) -> Mapping[str, str]:
        if self.is_away:
            raise StoreUnavailable("the disk is full")
        return dict.fromkeys(self.in_store, "file") | self.others

    async def swap(self, tenant: str, declared: Sequence[Declared]) -> Plan:
        before, self.in_store = self.in_store, {one.spec.id: one.spec.canonical() for one in declared}
        if [*before.values()] != [*self.in_store.values()]:
            self.sets.append(list(declared))
        return Plan(
            tuple(name for name in self.in_store if name not in before),
            tuple(name for name, text in self.in_store.items() if before.get(name, text) != text),
            tuple(name for name in before if name not in self.in_store),
        )

    async def workflows(self, tenant: str) -> Sequence[str]:
        return self.published

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def schedule(
        self, file: str, *ids: str, trigger: str = '{kind: cron, expression: "@daily"}', more: str = ""
    ) -> None:
        """Write a file with schedules of these ids."""
        entries = [f"  - id: {name}\n    workflow: cleanup\n    trigger: {trigger}\n{more}" for name in ids]
        self.write(f"schedules/{file}", "schedules:\n" + "".join(entries))

    @property
    def ids(self) -> list[list[str]]:
        return [[one.spec.id for one in schedules] for schedules in self.sets]

    @property
    def codes(self) -> list[str]:
        return [problem.code for problem in self.folder.problems]


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


async def test_all_files_of_the_folder_are_one_set(shelf: Shelf) -> None:
    shelf.schedule("b.schedules.yaml", "b1", "b2")
    shelf.schedule("schedules.yml", "s")
    shelf.schedule("other.yaml", "no")
    await shelf.folder.load()
    assert shelf.ids == [["b1", "b2", "s"]]
    files = [str(shelf.root / "schedules" / name) for name in ("b.schedules.yaml", "schedules.yml")]
    assert [one.source for one in shelf.sets[0]] == [files[0], files[0], files[1]]


async def test_nothing_is_read_again_until_a_file_changes(shelf: Shelf) -> None:
    shelf.schedule("schedules.yaml", "a")
    await shelf.folder.load()
    shelf.in_store = {}  # would be noticed by another read
    await shelf.folder.scan()
    assert shelf.ids == [["a"]]


async def test_the_plan_says_what_changes_and_what_fires_next(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.schedule("a.schedules.yaml", "kept", "changed", "removed")
    await shelf.folder.load()
    shelf.schedule("a.schedules.yaml", "kept")
    shelf.schedule("b.schedules.yaml", "changed", trigger='{kind: cron, expression: "0 0 9 * * *"}')
    shelf.schedule("c.schedules.yaml", "new1", "new2", trigger="{kind: webhook, path: /hooks/x}")
    shelf.write(
        "schedules/c.schedules.yaml",
        (shelf.root / "schedules/c.schedules.yaml").read_text().replace("/x", "/y", 1),
    )
    with caplog.at_level(logging.INFO):
        await shelf.folder.scan()
    assert caplog.messages[-1:] == [
        "+2 ~1 -1; next: changed at 2027-01-15T09:00:00Z, kept at 2027-01-16T00:00:00Z"
    ]
    assert shelf.folder.plan.removed == ("removed",)


async def test_a_file_that_is_deleted_removes_its_schedules(shelf: Shelf) -> None:
    shelf.schedule("a.schedules.yaml", "a")
    shelf.schedule("b.schedules.yaml", "b")
    await shelf.folder.load()
    (shelf.root / "schedules/a.schedules.yaml").unlink()
    await shelf.folder.scan()
    assert shelf.ids == [["a", "b"], ["b"]]


# ---------------------------------------------------------------------------------------------------- bad input

MISTAKES = {
    "five fields": ('trigger: {kind: cron, expression: "0 3 * * *"}', "wrong_field_count", 'write "0 0 3 * * *"'),
    "a misspelt key": ('trigger: {kind: cron, expression: "@daily", jitter_sec: 5}', "unknown_key", "did you mean jitter_secs?"),
    "a zone in small letters": ('trigger: {kind: cron, expression: "@daily", timezone: utc}', "unknown_timezone", "did you mean UTC?"),
    "a zone on Mars": ('trigger: {kind: cron, expression: "@daily", timezone: Mars/Olympus}', "unknown_timezone", "IANA"),
    "a limit that is lifted": ('trigger: {kind: cron, expression: "@daily"}\n    max_concurrent: 2\n    overlap: allow', "exclusive_keys", "leave one of them out"),
    "a path of the server": ("trigger: {kind: webhook, path: /api/v1/runs}", "invalid_path", "/hooks/upload"),
    "a path with a placeholder": ('trigger: {kind: webhook, path: "/a/{b}"}', "invalid_path", "no braces"),
    "a short interval": ('trigger: {kind: cron, expression: "@every 50ms"}', "invalid_interval", "30s"),
    "an interval with a blank": ("trigger: {kind: interval, every: 1h 30m}", "invalid_interval", "write 1h30m"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
async def test_a_mistake_in_one_file_leaves_the_old_set(shelf: Shelf, what: str) -> None:
    keys, code, hint = MISTAKES[what]
    shelf.schedule("a.schedules.yaml", "a")
    await shelf.folder.load()
    shelf.schedule("a.schedules.yaml", "a", "new")
    shelf.write("schedules/b.schedules.yaml", f"schedules:\n  - id: b\n    workflow: w\n    {keys}\n")
    await shelf.folder.scan()
    (problem,) = shelf.folder.problems
    assert (problem.code, hint in problem.hint, problem.line >= 4) == (code, True, True)
    assert problem.source.endswith("b.schedules.yaml")
    assert (shelf.ids, [one.status for one in shelf.folder.files]) == ([["a"]], ["published", "broken"])


async def test_every_problem_of_every_file_is_logged_with_its_place(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.write(
        "schedules/a.schedules.yaml", "schedules:\n  - id: a\n    workfow: w\n    trigger: {kind: cron}\n"
    )
    shelf.write("schedules/b.schedules.yaml", "schedules: 5\n")
    with caplog.at_level(logging.INFO):
        await shelf.folder.load()
        await shelf.folder.scan()
    assert caplog.messages[0] == "the schedules in use stay, because of 3 problems:"
    places = [Path(message.split(": ")[0]).name for message in caplog.messages[1:]]
    assert places == ["a.schedules.yaml:3:5", "a.schedules.yaml:4:14", "b.schedules.yaml:1:12"]


@pytest.mark.parametrize(
    ("trigger", "code"),
    [
        ('{kind: cron, expression: "@daily"}', "duplicate_id"),
        ("{kind: webhook, path: /hooks/x}", "duplicate_path"),
    ],
)
async def test_an_id_or_path_of_two_files_is_refused_with_both(shelf: Shelf, trigger: str, code: str) -> None:
    shelf.schedule("a.schedules.yaml", "same", trigger=trigger)
    shelf.schedule("b.schedules.yaml", "same" if code == "duplicate_id" else "other", trigger=trigger)
    await shelf.folder.load()
    (problem,) = shelf.folder.problems
    assert (problem.code, shelf.ids) == (code, [])
    assert problem.source.endswith("b.schedules.yaml") and "a.schedules.yaml, line" in problem.hint


async def test_a_corrected_file_takes_the_set_into_use(shelf: Shelf) -> None:
    shelf.write("schedules/a.schedules.yaml", "schedules: 5\n")
    await shelf.folder.load()
    shelf.schedule("a.schedules.yaml", "a")
    await shelf.folder.scan()
    assert (shelf.ids, shelf.folder.problems) == ([["a"]], ())


async def test_an_id_that_the_api_made_is_refused(shelf: Shelf) -> None:
    shelf.others = {"a": "api"}
    shelf.schedule("schedules.yaml", "a", "b")
    await shelf.folder.load()
    (problem,) = shelf.folder.problems
    assert (problem.code, problem.line, shelf.ids) == ("duplicate_id", 2, [])
    assert "made by the API" in problem.hint


async def test_an_unsigned_webhook_is_refused_by_a_server_that_requires_keys(shelf: Shelf) -> None:
    shelf.is_guarded = True
    shelf.schedule("schedules.yaml", "a", trigger="{kind: webhook, path: /hooks/a}")
    await shelf.folder.load()
    assert (shelf.codes, shelf.ids) == (["unsigned_webhook"], [])


@pytest.mark.parametrize(
    ("trigger", "more"),
    [
        ("{kind: webhook, path: /hooks/a, secret_env: SECRET}", ""),
        ("{kind: webhook, path: /hooks/a}", "    allow_unsigned: true\n"),
    ],
)
async def test_a_webhook_that_is_signed_or_allowed_is_accepted_there(
    shelf: Shelf, trigger: str, more: str
) -> None:
    shelf.is_guarded = True
    shelf.schedule("schedules.yaml", "a", trigger=trigger, more=more)
    await shelf.folder.load()
    assert (shelf.codes, shelf.ids) == ([], [["a"]])


async def test_the_first_key_makes_an_unsigned_webhook_a_problem(shelf: Shelf) -> None:
    shelf.schedule("schedules.yaml", "a", trigger="{kind: webhook, path: /hooks/a}")
    await shelf.folder.load()
    shelf.is_guarded = True
    await shelf.folder.scan()
    assert shelf.codes == ["unsigned_webhook"]


async def test_a_store_that_is_away_is_tried_again(shelf: Shelf) -> None:
    shelf.schedule("schedules.yaml", "a")
    shelf.is_away = True
    await shelf.folder.load()
    shelf.is_away = False
    await shelf.folder.scan()
    assert shelf.ids == [["a"]]


async def test_a_folder_that_is_not_there_is_refused(shelf: Shelf) -> None:
    (shelf.root / "schedules").rmdir()
    with pytest.raises(NotFound, match="--schedules names a folder"):
        await shelf.folder.load()


async def test_a_folder_that_disappears_leaves_the_set(shelf: Shelf) -> None:
    shelf.schedule("schedules.yaml", "a")
    await shelf.folder.load()
    (shelf.root / "schedules").rename(shelf.root / "elsewhere")
    await shelf.folder.scan()
    assert (shelf.ids, bool(shelf.folder.problem)) == ([["a"]], True)


async def test_too_many_files_are_a_limit(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, folder_files_max=1)
    shelf.schedule("a.schedules.yaml", "a")
    shelf.schedule("b.schedules.yaml", "b")
    await shelf.folder.load()
    assert ("folder_files_max" in shelf.folder.problem, shelf.ids) == (True, [])


# ---------------------------------------------------------------------------------------------------- warnings


async def test_what_is_probably_not_intended_is_a_warning(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.published = ["clean"]
    shelf.schedule("schedules.yaml", "a", trigger='{kind: cron, expression: "0 0 0 30 2 2"}')
    with caplog.at_level(logging.WARNING):
        await shelf.folder.load()
    said = "\n".join(caplog.messages)
    assert shelf.ids == [["a"]]
    assert "counts from 1 = Sunday" in said and "never fires" in said
    assert 'no workflow "cleanup" is published (did you mean clean?)' in said


async def test_a_trigger_that_names_no_published_workflow_is_a_warning(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.published = ["cleanup", "load"]
    shelf.schedule("schedules.yaml", "a", trigger="{kind: run, workflow: laod}")
    with caplog.at_level(logging.WARNING):
        await shelf.folder.load()
    assert 'no workflow "laod" is published (did you mean load?)' in "\n".join(caplog.messages)


async def test_only_so_many_warnings_are_logged(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    shelf.schedule(
        "schedules.yaml", *(f"s{n}" for n in range(30)), trigger='{kind: cron, expression: "0 0 0 30 2 *"}'
    )
    with caplog.at_level(logging.WARNING):
        await shelf.folder.load()
    assert len(caplog.messages) == 21 and "there are more such warnings" in caplog.messages[-1]


# ------------------------------------------------------------------------------------------------------ skills

SKILL = (
    "---\nname: maya\nmetadata: {dcc-mcp: {workflow: {specs: [flow.yaml], schedules: [fires.yaml]}}}\n---\n"
)
FIRES = "schedules:\n  - {id: %s, workflow: %s, trigger: {kind: cron, expression: '@daily'}}\n"


async def test_schedules_of_a_skill_mean_its_own_workflows_first(shelf: Shelf) -> None:
    shelf.write("skills/maya/SKILL.md", SKILL)
    shelf.write("skills/maya/flow.yaml", "name: export\nsteps: [{id: s, tool: echo}]\n")
    shelf.write(
        "skills/maya/fires.yaml",
        FIRES % ("own", "export") + FIRES.split("\n")[1] % ("other", "cleanup") + "\n"
        "  - {id: after, workflow: 'maya::export', trigger: {kind: run, workflow: export}}\n",
    )
    await shelf.folder.scan_all()
    found = {one.spec.id: one.spec.workflow for one in shelf.sets[0]}
    assert found == {"own": "maya::export", "other": "cleanup", "after": "maya::export"}
    assert {one.source for one in shelf.sets[0]} == {str(shelf.root / "skills/maya/fires.yaml")}
    assert shelf.sets[0][2].spec.trigger.workflow == "maya::export"  # type: ignore[union-attr]


async def test_a_broken_skill_leaves_the_old_set(shelf: Shelf) -> None:
    shelf.schedule("schedules.yaml", "a")
    await shelf.folder.scan_all()
    shelf.schedule("schedules.yaml", "a", "b")
    shelf.write("skills/maya/SKILL.md", "---\nnam: maya\n---\n")
    await shelf.folder.scan_all()
    assert (shelf.ids, shelf.codes) == ([["a"]], ["missing_key"])
    (broken,) = [one.file for one in shelf.folder.files if one.status == "broken"]
    assert broken.endswith("SKILL.md")


async def test_a_file_that_a_skill_names_is_not_read_twice(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.write("skills/maya/SKILL.md", SKILL)
    shelf.write("skills/maya/flow.yaml", "name: export\nsteps: [{id: s, tool: echo}]\n")
    shelf.write("skills/maya/fires.yaml", FIRES % ("own", "export"))
    shelf.schedule("schedules.yaml")
    (shelf.root / "schedules/linked.schedules.yaml").symlink_to(shelf.root / "skills/maya/fires.yaml")
    await shelf.folder.scan_all()
    assert (shelf.ids, shelf.sets[0][0].spec.workflow) == ([["own"]], "maya::export")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("loop.schedules.yaml", "Too many levels of symbolic links"),
        ("gone.yaml", "No such file or directory"),
    ],
)
async def test_a_link_that_leads_nowhere_is_a_problem_of_its_file(
    tmp_path: Path, target: str, reason: str
) -> None:
    shelf = Shelf(tmp_path)
    (tmp_path / "schedules" / "loop.schedules.yaml").symlink_to(target)
    await shelf.folder.load()
    assert shelf.sets == []
    (problem,) = shelf.folder.problems
    assert str(problem).endswith(f"cannot be read: {reason} (restore it, or delete it)")
