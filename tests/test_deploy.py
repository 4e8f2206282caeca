"""The Dockerfile and the systemd unit name commands, settings and files that exist, and say what the code does."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
import yaml

from holdfast import config, limits
from holdfast.cli.commands import COMMANDS
from holdfast.http.routes.ops import ROUTES
from holdfast.store.postgres.place import VERSION_MIN, Address

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


def test_the_compose_file_starts_nodes_of_different_names_on_one_database() -> None:
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text("utf-8"))["services"]
    nodes = {name: each for name, each in services.items() if name != "database"}
    assert len(nodes) == 2 and '".[otel,postgres,s3]"' in DOCKERFILE
    for name, node in nodes.items():
        given = {key: str(value) for key, value in node["environment"].items() if key.startswith("HOLDFAST_")}
        assert given["HOLDFAST_NODE"] == name and set(given) - {"HOLDFAST_NODE"} <= VARIABLES | {
            "HOLDFAST_API_KEY"
        }
        address = Address(config.load(env=given).db)
        assert address.dsn == nodes["a"]["environment"]["HOLDFAST_DB"] and "password" not in address.dsn
        assert node["depends_on"] == {"database": {"condition": "service_healthy"}}
        assert int(node["stop_grace_period"].removesuffix("s")) > limits.DEFAULTS.drain_secs_max
    published = [port.rpartition(":")[0] for node in nodes.values() for port in node["ports"]]
    assert len(set(published)) == 2 and all(port.startswith("127.0.0.1:") for port in published)
    assert int(services["database"]["image"].removeprefix("postgres:").partition(".")[0]) >= VERSION_MIN


def test_the_unit_waits_for_a_graceful_stop_and_starts_again() -> None:
    service = unit()["Service"]
    assert int(service["TimeoutStopSec"]) > limits.DEFAULTS.drain_secs_max
    assert (service["Type"], service["Restart"], service["KillSignal"]) == ("exec", "always", "SIGTERM")
    assert service["StateDirectory"] == "holdfast"


def test_the_container_installs_from_the_lock_file_and_from_nowhere_else() -> None:
    installs = [line for line in lines_of("RUN") if re.search(r"\bpip (install|download)\b", line)]
    (download, install) = installs
    assert "--require-hashes" in download and "-r requirements.txt" in download
    assert "--no-index" in install and "--find-links /wheels" in install and "--dest /wheels" in download
    locked = (ROOT / "requirements.txt").read_text("utf-8")
    packages = re.findall(r"^\S+==.*\\\n    --hash=sha256:[0-9a-f]{64}", locked, re.MULTILINE)
    assert len(packages) == len(re.findall(r"^[A-Za-z0-9]", locked, re.MULTILINE)) > 0


def test_the_base_of_the_container_is_an_exact_version() -> None:
    (base,) = lines_of("ARG")
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", base)
    assert [line.split()[0] for line in lines_of("FROM")] == ["${BASE}", "${BASE}"]


def test_the_unit_keeps_its_database_out_of_the_working_folder() -> None:
    service = unit()["Service"]
    folders = {"%S/holdfast": "/var/lib/holdfast", "%E/holdfast": "/etc/holdfast"}
    (database,) = re.findall(r"HOLDFAST_DB=sqlite:///(\S+)/holdfast\.db", service["Environment"])
    working = Path(folders[service["WorkingDirectory"]])
    assert database == "%S/holdfast" and service["ConfigurationDirectory"] == "holdfast"
    assert not Path(folders[database]).is_relative_to(working)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "holdfast"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / "holdfast.service"
    copy.write_text(UNIT.replace("/opt/holdfast/bin/holdfast", str(program)))
    found = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert [line for line in found.stderr.splitlines() if "holdfast.service" in line] == []


def test_every_install_command_names_the_package_as_it_is_published() -> None:
    """`holdfast` is another project's name in the package index."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    named = re.compile(r"pip install [^`\n]*?(?<![/\w-])'?holdfast(?!-engine)(?=[\[\s'`])")
    read = [
        ROOT / name
        for name in tracked.splitlines()
        if name.endswith((".py", ".md", ".service", "Dockerfile"))
    ]
    wrong = [path.name for path in read if path.exists() and named.search(path.read_text("utf-8"))]
    assert wrong == []


def test_a_wheel_built_from_the_sources_has_the_published_name_and_the_command(tmp_path: Path) -> None:
    build = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == done.stdout.splitlines()[-1]
    assert wheel.name.startswith("holdfast_engine-")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "holdfast = holdfast.cli.entry:main" in packed.read(entry_points).decode()
    assert "holdfast/py.typed" in names
    if (ROOT / "holdfast" / "ui" / "dist" / "index.html").exists():
        assert "holdfast/ui/dist/index.html" in names and any(name.endswith("/page.js.br") for name in names)
    assert any(name.endswith("012_triggers.sql") for name in names)
