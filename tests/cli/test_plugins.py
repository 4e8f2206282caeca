"""`holdfast schedules list --plugins`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

CLEANER = """
from holdfast import Schedule, ScheduledPlugin

class Cleaner(ScheduledPlugin):
    def name(self):
        print("hello")
        return "cleaner"
    def schedules(self):
        return [Schedule("nightly", "0 3 * * *", description="Clean up."), Schedule("sweep", "90s", jitter_ms=500)]
    def run(self, ctx):
        raise AssertionError("listing runs nothing")
"""


@pytest.fixture
def cleaner(cli: Cli) -> None:
    (cli.folder / "cleaner.py").write_text(CLEANER)


@pytest.mark.usefixtures("cleaner")
def test_the_schedules_of_a_plugin_are_listed_without_running_it(cli: Cli) -> None:
    done = cli.run("schedules", "list", "--plugins", "cleaner")
    assert done.returncode == 0, done.stderr
    head, nightly, sweep = done.stdout.splitlines()
    assert head.split() == ["ID", "CRON", "WHEN", "NEXT", "DESCRIPTION"]
    assert nightly.startswith("plugin:cleaner:nightly  0 3 * * *  at 03:00 every day") and nightly.endswith(
        "Clean up."
    )
    assert sweep.startswith(
        "plugin:cleaner:sweep    90s        every 90s, counted from when the schedule was registered"
    )


@pytest.mark.usefixtures("cleaner")
def test_the_list_speaks_json(cli: Cli) -> None:
    data = cli.json("schedules", "list", "--plugins", "cleaner")
    assert data["refused"] == []
    sweep = data["items"][1]
    assert (sweep["id"], sweep["cron"], sweep["jitter_ms"]) == ("plugin:cleaner:sweep", "90s", 500)
    assert (sweep["missed_run_policy"], sweep["locking"]) == ("run_once", "require_global")


@pytest.mark.usefixtures("cleaner")
def test_listing_opens_no_database(cli: Cli) -> None:
    cli.run("schedules", "list", "--plugins", "cleaner")
    assert [path.name for path in Path(cli.folder).glob("*.db*")] == []


@pytest.mark.usefixtures("cleaner")
def test_a_plugin_that_cannot_be_used_is_reported_and_the_others_are_listed(cli: Cli) -> None:
    (cli.folder / "bad.py").write_text(
        CLEANER.replace('"cleaner"', '"bad"').replace('"90s"', '"0s"').replace("0 3", "99 3")
    )
    done = cli.run("schedules", "list", "--plugins", "bad", "--plugins", "cleaner")
    assert done.returncode == 2
    assert "plugin bad (bad) is not started" in done.stderr
    assert '"99" is out of range' in done.stderr and 'not "0s"' in done.stderr
    assert "plugin:cleaner:sweep" in done.stdout


# ------------------------------------------------------------------------------------------------------------- up

TICKING = """
from holdfast import Schedule, ScheduledPlugin

class Ticking(ScheduledPlugin):
    def name(self):
        return "ticking"
    def schedules(self):
        return [Schedule("often", "100ms")]
    def run(self, ctx):
        print(f"tick {ctx.run_count}", flush=True)
    def cleanup(self):
        print("tidied up", flush=True)
"""


@pytest.fixture
def ticking(cli: Cli) -> None:
    (cli.folder / "ticking.py").write_text(TICKING)


@pytest.mark.usefixtures("ticking")
def test_a_server_runs_its_plugins_until_it_stops(cli: Cli) -> None:
    process = cli.start("up", "--port", "0", "--plugins", "ticking")
    said = cli.until(process, "tick 2")
    assert "plugins   ticking (1 schedule)" in said
    assert "plugin:" not in said.partition("  tools ")[2].partition("\n")[0]
    process.send_signal(signal.SIGTERM)
    assert "tidied up" in "".join(process.communicate())
    assert process.returncode == 0


@pytest.mark.usefixtures("ticking", "cleaner")
def test_a_server_starts_although_a_plugin_cannot_be_used(cli: Cli) -> None:
    (cli.folder / "bad.py").write_text(TICKING.replace("100ms", "0s"))
    said = cli.up("--plugins", "bad", HOLDFAST_PLUGINS="cleaner").said
    assert said["plugins"] == []  # a flag counts instead of the environment
    [refused] = said["refused_plugins"]
    assert "plugin ticking (bad) is not started" in refused and 'not "0s"' in refused


@pytest.mark.usefixtures("ticking")
def test_plugins_are_named_in_the_settings(cli: Cli) -> None:
    (cli.folder / "holdfast.toml").write_text('plugins = ["ticking"]\n')
    assert cli.up().said["plugins"] == ["ticking"]
