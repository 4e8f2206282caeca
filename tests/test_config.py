"""Settings: where they come from, which one counts, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import InvalidSettings, Settings, find, load


def toml(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "holdfast.toml"
    file.write_text(text, "utf-8")
    return file


def said(folder: Path, env: dict[str, str] | None = None, **flags: object) -> Settings:
    return load(flags, env or {}, folder)


def refused(folder: Path, text: str) -> InvalidSettings:
    toml(folder, text)
    with pytest.raises(InvalidSettings) as caught:
        said(folder)
    return caught.value


def test_nothing_said_gives_the_defaults(tmp_path: Path) -> None:
    settings = said(tmp_path)
    assert (settings.db, settings.tools, settings.log, settings.file) == (
        "sqlite:///holdfast.db",
        (),
        "text",
        None,
    )
    assert settings.retention_days == 30


@pytest.mark.parametrize(
    ("env", "flag", "tools"),
    [
        ({}, (), ("of_file",)),
        ({"HOLDFAST_TOOLS": "of_env,more"}, (), ("of_env", "more")),
        ({"HOLDFAST_TOOLS": "of_env"}, ("of_flag",), ("of_flag",)),
    ],
)
def test_flags_stand_over_the_environment_and_that_over_the_file(
    tmp_path: Path, env: dict[str, str], flag: tuple[str, ...], tools: tuple[str, ...]
) -> None:
    toml(tmp_path, 'tools = ["of_file"]')
    assert said(tmp_path, env, tools=flag).tools == tools


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    toml(tmp_path, 'log = "json"')
    assert said(tmp_path, {"HOLDFAST_LOG": ""}).log == "json"


def test_the_nearest_file_above_counts(tmp_path: Path) -> None:
    toml(tmp_path, 'tools = ["far"]')
    near = toml(tmp_path / "a", 'tools = ["near"]')
    (tmp_path / "a/b/c").mkdir(parents=True)
    assert find(tmp_path / "a/b/c") == near


def test_a_database_is_found_from_the_folder_of_the_file(tmp_path: Path) -> None:
    toml(tmp_path, 'db = "sqlite:///data/x.db"')
    (tmp_path / "below").mkdir()
    assert said(tmp_path / "below").db == f"sqlite:///{tmp_path}/data/x.db"


def test_without_a_word_about_it_the_database_lies_beside_the_file(tmp_path: Path) -> None:
    toml(tmp_path, 'tools = ["tools"]')
    (tmp_path / "below").mkdir()
    assert said(tmp_path / "below").db == f"sqlite:///{tmp_path}/holdfast.db"


def test_a_database_of_the_environment_is_taken_as_it_is(tmp_path: Path) -> None:
    toml(tmp_path, 'db = "sqlite:///x.db"')
    assert said(tmp_path, {"HOLDFAST_DB": "sqlite:///y.db"}).db == "sqlite:///y.db"


def test_folders_of_artefacts_are_found_from_the_folder_of_the_file(tmp_path: Path) -> None:
    toml(tmp_path, 'artefact_roots = ["out", "/srv"]')
    assert said(tmp_path).artefact_roots == (f"{tmp_path}/out", "/srv")


def test_servers_are_kept_as_they_stand(tmp_path: Path) -> None:
    toml(tmp_path, '[servers.maya]\nurl = "http://127.0.0.1:9000/mcp"\n')
    assert said(tmp_path).servers == {"maya": {"url": "http://127.0.0.1:9000/mcp"}}


def test_secrets_of_tenants_are_listed_in_the_file(tmp_path: Path) -> None:
    toml(tmp_path, '[tenants.acme]\nsecrets = ["A", "B"]\n[tenants.other]\n')
    assert said(tmp_path).tenants == {"acme": {"secrets": ["A", "B"]}, "other": {}}


@pytest.mark.parametrize(
    "text",
    [
        "tenants = 3",
        '[tenants.acme]\nsecrets = "A"',
        "[tenants.acme]\nsecrets = [3]",
        '[tenants.acme]\nsecret = ["A"]',
        '[tenants.default]\nsecrets = ["A"]',
    ],
)
def test_tables_of_tenants_that_cannot_be_meant_are_refused(tmp_path: Path, text: str) -> None:
    (problem,) = refused(tmp_path, text).problems
    assert (problem.code, problem.line) == ("wrong_type", 1)
    assert "a table for each tenant other than default" in problem.message


@pytest.mark.parametrize("name", ["template_env", "callback_env"])
def test_none_of_holdfasts_own_variables_can_be_listed(tmp_path: Path, name: str) -> None:
    (problem,) = refused(tmp_path, f'{name} = ["HOME", "HOLDFAST_SECRET_A"]').problems
    assert "HOLDFAST_SECRET_A, which is Holdfast's own" in problem.message
    toml(tmp_path, "")
    with pytest.raises(InvalidSettings, match="HOLDFAST_API_KEY, which is Holdfast's own"):
        said(tmp_path, {f"HOLDFAST_{name.upper()}": "HOLDFAST_API_KEY"})


def test_every_setting_can_be_said_in_the_file(tmp_path: Path) -> None:
    toml(
        tmp_path,
        'server = "http://127.0.0.1:8070"\npublic_url = "https://x.example"\nlog = "json"\nretention_days = 7\n'
        'template_env = ["HOME"]\nallow_networks = ["10.0.0.0/8"]\n',
    )
    settings = said(tmp_path)
    assert (settings.server, settings.public_url) == ("http://127.0.0.1:8070", "https://x.example")
    assert (settings.template_env, settings.allow_networks) == (("HOME",), ("10.0.0.0/8",))
    assert (settings.log, settings.retention_days) == ("json", 7)


def test_an_unknown_key_is_an_error_with_its_line_and_what_was_perhaps_meant(tmp_path: Path) -> None:
    error = refused(tmp_path, '# settings\ntools = ["tools"]\n\ntemplate_evn = ["HOME"]\n')
    (problem,) = error.problems
    assert (problem.code, problem.line, problem.column) == ("unknown_key", 4, 1)
    assert problem.hint == "did you mean template_env?"


def test_an_unknown_key_of_the_table_of_mcp_is_an_error_with_what_was_perhaps_meant(tmp_path: Path) -> None:
    assert 'mcp: unknown key "wait_sec" (did you mean wait_secs?)' in str(
        refused(tmp_path, "[mcp]\nwait_sec = 3\n")
    )


def test_an_unknown_table_is_an_error_with_its_line(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, 'log = "text"\n\n[server.maya]\nurl = "x"\n').problems
    assert (problem.line, problem.message) == (3, "server must be text")


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    error = refused(tmp_path, 'tools = "tools"\nretention_days = 0\nlog = "xml"\nbd = "x"\n')
    assert [(one.line, one.code) for one in error.problems] == [
        (1, "wrong_type"),
        (2, "wrong_type"),
        (3, "wrong_type"),
        (4, "unknown_key"),
    ]


def test_what_is_no_toml_is_an_error_with_its_line(tmp_path: Path) -> None:
    (problem,) = refused(tmp_path, "tools = [\n  nonsense\n").problems
    assert (problem.code, problem.line) == ("not_toml", 2)


def test_a_file_of_any_size_is_not_read(tmp_path: Path) -> None:
    assert refused(tmp_path, "#" * 300_000).problems[0].code == "too_large"


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="HOLDFAST_LOG must be json or text, not 'xml'"):
        said(tmp_path, {"HOLDFAST_LOG": "xml"})


def test_runs_can_be_kept_for_ever(tmp_path: Path) -> None:
    toml(tmp_path, 'retention_days = "forever"')
    assert said(tmp_path).retention_days is None
    assert said(tmp_path, {"HOLDFAST_RETENTION_DAYS": "7"}).retention_days == 7


def test_limits_of_the_engine_can_be_set(tmp_path: Path) -> None:
    toml(tmp_path, "threads = 4\nprocesses = 2\nattempts_max = 10")
    settings = said(tmp_path, {"HOLDFAST_PROCESS_MEMORY_BYTES": "2000000000"})
    assert (settings.threads, settings.processes, settings.attempts_max) == (4, 2, 10)
    assert settings.process_memory_bytes == 2_000_000_000
