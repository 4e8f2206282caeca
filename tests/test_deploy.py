"""The Dockerfile and the systemd unit name commands, settings and files that exist, and say what the code does."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import msgspec
import pytest

from holdfast import config
from holdfast.cli.commands import COMMANDS
from holdfast.http.ops import ROUTES
from holdfast.http.serve import DRAIN_SECS

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
UNIT = (ROOT / "deploy" / "holdfast.service").read_text("utf-8")
VARIABLES = {variable for _, variables in config.SETTINGS.values() for variable in variables}


def lines_of(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} (.*)$", DOCKERFILE, re.MULTILINE)


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT)
    return parser


def command_names() -> set[str]:
    return set(COMMANDS)


def test_the_container_runs_a_command_that_exists() -> None:
    (entry,), (command,) = lines_of("ENTRYPOINT"), lines_of("CMD")
    assert msgspec.json.decode(entry) == ["holdfast"]
    assert msgspec.json.decode(command)[0] in command_names()


def test_the_unit_runs_a_command_that_exists() -> None:
    program, command = shlex.split(unit()["Service"]["ExecStart"])
    assert Path(program).name == "holdfast"
    assert command in command_names()


@pytest.mark.parametrize("text", [DOCKERFILE, UNIT], ids=["Dockerfile", "unit"])
def test_only_settings_that_exist_are_named(text: str) -> None:
    assert set(re.findall(r"HOLDFAST_[A-Z_]+", text)) <= VARIABLES


def test_the_container_keeps_its_database_on_its_volume() -> None:
    (volume,) = lines_of("VOLUME")
    assert volume == "/data"
    assert "HOLDFAST_DB=sqlite:////data/holdfast.db" in DOCKERFILE
    assert config.load(env={"HOLDFAST_DB": "sqlite:////data/holdfast.db"}).db == "sqlite:////data/holdfast.db"


def test_the_container_runs_as_somebody_who_is_not_root() -> None:
    assert lines_of("USER") == ["holdfast"]


def test_the_container_copies_files_that_are_there_and_not_left_out() -> None:
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")
    }
    for line in lines_of("COPY"):
        if not line.startswith("--from"):
            *sources, _ = line.split()
            assert all((ROOT / source).exists() for source in sources)
            assert set(sources) <= kept


def test_the_health_check_asks_an_address_that_needs_no_key() -> None:
    (check,) = lines_of("HEALTHCHECK")
    command = msgspec.json.decode(check[check.index("[") :])
    compile(command[2], "healthcheck", "exec")
    (route,) = [route for route in ROUTES if route.path == "/healthz"]
    assert "/healthz" in command[2] and route.scope is None


def test_the_unit_waits_for_a_graceful_stop_and_starts_again() -> None:
    service = unit()["Service"]
    assert int(service["TimeoutStopSec"]) > DRAIN_SECS
    assert (service["Type"], service["Restart"], service["KillSignal"]) == ("exec", "always", "SIGTERM")
    assert service["StateDirectory"] == "holdfast"
