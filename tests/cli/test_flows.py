"""`holdfast flows` and `holdfast demo`: definitions in a file, at a server, and in the folder that a server publishes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.cli.conftest import Cli

FIRST = "- {id: sum, tool: add, args: {a: 1, b: 2}}"
SECOND = "- {id: sum, tool: add, args: {a: 1, b: 5}}"
GRAPH = '{"start": "a", "nodes": {"a": {"kind": "executor", "service": "sum"}}, "edges": []}'


@pytest.fixture(params=["server", "file"])
def place(request: pytest.FixtureRequest, cli: Cli) -> Cli:
    """A folder with a server, and one without: what follows holds in both."""
    if request.param == "server":
        cli.up("--tools", "tools")
    return cli


def published(cli: Cli, steps: str, *args: str) -> dict[str, Any]:
    found: dict[str, Any] = cli.json("flows", "publish", cli.flow(steps), *args)["items"][0]
    return found


def test_what_changed_gets_the_next_number_and_what_did_not_keeps_its_own(place: Cli) -> None:
    assert [published(place, steps)["number"] for steps in (FIRST, FIRST, SECOND)] == [1, 1, 2]


def test_a_graph_is_published_under_the_name_of_its_file(place: Cli) -> None:
    place.write("graph.json", GRAPH)
    said = place.run("flows", "publish", "graph.json")
    assert (said.returncode, "graph: published as number 1" in said.stderr) == (0, True)


def test_a_draft_is_stored_and_the_name_means_what_it_did(place: Cli) -> None:
    published(place, FIRST)
    assert published(place, SECOND, "--draft")["status"] == "draft"
    assert place.json("flows", "show", "flow")["number"] == 1
    assert [one["number"] for one in place.json("flows", "show", "flow")["versions"]] == [2, 1]


def test_a_former_version_counts_again_after_a_rollback(place: Cli) -> None:
    published(place, FIRST)
    published(place, SECOND)
    assert place.json("flows", "rollback", "flow", "1")["number"] == 1
    assert [one["number"] for one in place.json("flows", "list")["items"]] == [1]


def test_a_diff_shows_what_changed(place: Cli) -> None:
    published(place, FIRST)
    published(place, SECOND)
    lines = place.run("flows", "diff", "flow", "1", "2").stdout.splitlines()
    changed = [line.split() for line in lines if line[0] in "+-" and not line.startswith(("+++", "---"))]
    assert changed == [["-", "b:", "2"], ["+", "b:", "5"]]
    assert place.json("flows", "diff", "flow", "1", "2")["pointers"] == ["/steps/0/args/b"]


def test_of_several_files_none_is_published_if_one_is_broken(place: Cli) -> None:
    place.write("bad.yaml", "name: bad\nsteps: [{id: s, toool: add}]\n")
    place.json("run", place.flow(FIRST), "--tools", "tools")  # so that there is a file
    refused = place.run("flows", "publish", "flow.yaml", "bad.yaml")
    assert (refused.returncode, "bad.yaml:2" in refused.stderr) == (2, True)
    assert place.json("flows", "list")["items"] == []


@pytest.mark.parametrize(
    "words", [("diff", "flow", "1", "x"), ("rollback", "flow", "0"), ("show", "flow", "--number", "-1")]
)
def test_a_number_that_is_none_is_refused(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli.json("flows", *words)["error"] == "usage"


def test_a_workflow_is_published_by_the_process_that_has_the_file(cli: Cli) -> None:
    process = cli.start("run", cli.flow("- {id: held, tool: hold}"), "--tools", "tools")
    cli.until(process, "at work")
    assert cli.run("flows", "publish", cli.flow(FIRST)).returncode == 0
    assert [one["name"] for one in cli.json("flows", "list")["items"]] == ["flow"]


# --------------------------------------------------------------------------------------------------- a folder


def until(cli: Cli, *words: str, number: int) -> None:
    """Look until a workflow has this number."""
    for _ in range(300):
        if cli.json(*words).get("number") == number:
            return
        time.sleep(0.1)
    raise AssertionError(f"number {number} never came")


def test_publishing_warns_of_a_tool_that_is_not_there_and_says_where(cli: Cli) -> None:
    flow = cli.flow("- {id: s, tool: ad}")
    made = cli.run("flows", "publish", flow, HOLDFAST_TOOLS="tools")
    assert made.returncode == 0
    assert 'warning: flow.yaml:3:19: step "s": unknown tool "ad" (did you mean add?)' in made.stderr
    refused = cli.run("flows", "publish", flow, "--strict", HOLDFAST_TOOLS="tools")
    assert refused.returncode == 2
    assert refused.stderr.startswith('flow.yaml:3:19: error: step "s": unknown tool "ad"')


def test_a_server_warns_of_tools_and_services_that_are_not_there_and_says_where(cli: Cli) -> None:
    cli.up("--tools", "tools")
    flow = cli.flow("- {id: s, tool: ad}\n- {id: t, service: nowhere}")
    made = cli.run("flows", "publish", flow)
    assert made.returncode == 0
    assert 'warning: flow.yaml:3:19: step "s": unknown tool "ad" (did you mean add?)' in made.stderr
    assert "warning: flow.yaml:4:" in made.stderr and 'no worker serves "nowhere"' in made.stderr
    refused = cli.run("flows", "publish", flow, "--strict")
    assert refused.returncode == 2 and refused.stderr.count("flow.yaml:") == 2


def test_a_workflow_is_published_as_its_file_is_written(cli: Cli) -> None:
    cli.write("flow.yaml", "# with a remark\nname: flow\nsteps: [{id: s, tool: echo}]\n")
    cli.up()
    cli.run("flows", "publish", "flow.yaml")
    assert cli.json("flows", "show", "flow")["source"].startswith("# with a remark")


def test_a_folder_is_published_at_start_and_when_a_file_changes(cli: Cli) -> None:
    cli.flow(FIRST)
    (cli.folder / "flows").mkdir()
    (cli.folder / "flow.yaml").rename(cli.folder / "flows" / "flow.yaml")
    server = cli.up("--tools", "tools", "--flows", "flows")
    assert server.said["flows"] == ["flow"]
    cli.flow(SECOND)
    (cli.folder / "flow.yaml").rename(cli.folder / "flows" / "flow.yaml")
    until(cli, "flows", "show", "flow", number=2)


def test_a_broken_file_of_the_folder_is_listed_with_its_problems(cli: Cli) -> None:
    (cli.folder / "flows").mkdir()
    cli.write("flows/bad.yaml", "name: bad\nsteps: [{id: s, toool: add}]\n")
    cli.flow(FIRST)
    (cli.folder / "flow.yaml").rename(cli.folder / "flows" / "good.yaml")
    server = cli.up("--flows", "flows")
    assert (server.said["flows"], server.said["broken"]) == (["flow"], ["bad.yaml"])
    listed = cli.run("flows", "list")
    assert listed.stdout.splitlines()[1].startswith("flow ")
    assert "bad.yaml has problems" in listed.stderr and "unknown key" in listed.stderr


SKILL = "---\nname: maya\nmetadata: {dcc-mcp: {workflow: {specs: [flow.yaml, bad.yaml]}}}\n---\n# Maya\n"


def test_workflows_of_skills_are_published_and_broken_ones_listed(cli: Cli) -> None:
    (cli.folder / "skills" / "maya").mkdir(parents=True)
    cli.write("skills/maya/SKILL.md", SKILL)
    cli.write("skills/maya/bad.yaml", "name: bad\nsteps: [{id: s, toool: add}]\n")
    cli.flow(FIRST)
    (cli.folder / "flow.yaml").rename(cli.folder / "skills" / "maya" / "flow.yaml")
    server = cli.up("--tools", "tools", "--skills", "skills")
    assert (server.said["flows"], server.said["broken"]) == (["maya::flow"], ["maya/bad.yaml"])
    assert cli.json("flows", "show", "maya::flow")["number"] == 1
    listed = cli.run("flows", "list")
    assert "maya/bad.yaml has problems" in listed.stderr and "unknown key" in listed.stderr


# ------------------------------------------------------------------------------------------------------- demo


def test_the_demo_goes_both_ways_and_shows_what_each_node_did(cli: Cli) -> None:
    server = cli.up()
    done = cli.run("demo", "--json", "--server", server.address)
    data = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert [json.loads(task["shared_json"])["result"] for task in data["tasks"]] == ["hold fast", 42]
    nodes = [[run["node_key"] for run in runs] for runs in data["runs"].values()]
    assert nodes == [["A", "way", "B"], ["A", "way", "C"]]


def test_the_demo_uses_the_worker_that_is_there(cli: Cli) -> None:
    server = cli.up("--demo")
    done = cli.run("demo", SCHEDULER_BASE=server.address)
    assert done.returncode == 0, done.stderr
    assert "worker-" in done.stdout and "serves transform" not in done.stderr


def test_the_demo_leaves_nothing_behind(cli: Cli) -> None:
    server = cli.up("--db", "sqlite:///served.db")
    before = {path.name for path in cli.folder.iterdir()}
    assert cli.run("demo", "--server", server.address).returncode == 0
    assert {path.name for path in cli.folder.iterdir()} - before <= {"served.db-wal", "served.db-shm"}
