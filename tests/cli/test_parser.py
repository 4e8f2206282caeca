"""The command line itself: help, wrong words, and how quickly it is there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.cli.commands import COMMANDS, GROUPS
from holdfast.cli.parser import Command
from tests.cli.conftest import Cli


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(cli: Cli, name: str) -> None:
    done = cli.run(*name.split(" "), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: holdfast {name}" in done.stdout
    assert f"  {COMMANDS[name].examples[0]}\n" in done.stdout


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: str(command.name))
def test_every_command_speaks_json(command: Command) -> None:
    assert command.flag("--json") is not None


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_help_names_every_command(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli.run(*words)
    assert done.returncode == 0
    assert [name for name in COMMANDS if f"  {name} " not in done.stdout] == []


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_shows_its_commands(cli: Cli, group: str) -> None:
    done = cli.run(group)
    assert [name for name in COMMANDS if name.startswith(f"{group} ") and name not in done.stdout] == []


def test_help_for_a_wrong_command_is_refused(cli: Cli) -> None:
    done = cli.run("rnu", "--help")
    assert (done.returncode, "did you mean run?" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("rnu", "x.yaml"), "did you mean run?"),
        (("runs", "lst"), "did you mean list?"),
        (("run", "x.yaml", "--contineu", "5d1e"), "did you mean --continue?"),
        (("runs", "list", "--status", "fialed"), "did you mean failed?"),
        (("--versoin",), "did you mean --version?"),
        (("completion", "bsh"), "did you mean bash?"),
    ],
)
def test_a_wrong_word_is_met_with_the_one_that_was_perhaps_meant(
    cli: Cli, words: tuple[str, ...], meant: str
) -> None:
    done = cli.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert meant in done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("run", "x.yaml", "--db"), "--db needs a value; write --db sqlite:///FILE"),
        (("run", "x.yaml", "--db", "--json"), "--db needs a value"),
        (("run", "x.yaml", "--all-steps=yes"), "--all-steps takes no value"),
        (("run", "x.yaml", "y.yaml"), "does not accept the argument 'y.yaml'"),
        (("validate",), "validate needs FILE"),
        (("runs", "list", "--limit", "0"), "--limit must be a number from 1 to 500"),
        (("no-such-thing",), "see holdfast --help"),
    ],
)
def test_a_line_that_cannot_be_followed_says_why(cli: Cli, words: tuple[str, ...], reason: str) -> None:
    done = cli.run(*words)
    assert done.returncode == 2
    assert reason in done.stderr + done.stdout


@pytest.mark.parametrize("words", [("-ia=2",), ("-i", "a=2"), ("--input=a=2",), ("--input", "a=2")])
def test_a_value_may_stand_in_the_word_of_its_flag(cli: Cli, words: tuple[str, ...]) -> None:
    file = cli.flow("- {id: s, tool: add, args: {a: '{{inputs.a}}'}}")
    assert cli.run("run", file, "--tools=tools", *words).stdout == '{\n  "s": 2\n}\n'


def test_what_follows_two_hyphens_is_no_flag(cli: Cli) -> None:
    cli.write("--odd.yaml", "name: odd\nsteps:\n  - {id: s, tool: add, args: {a: 1}}\n")
    assert cli.run("validate", "--", "--odd.yaml").returncode == 0


def test_help_imports_next_to_nothing(cli: Cli) -> None:
    """Starting quickly is a matter of what is imported; that can be tested, seconds on a busy machine cannot."""
    cli.write(
        "look.py",
        "import sys\nfrom holdfast.cli.main import called\nbefore = set(sys.modules)\ncalled(['--help'])\n"
        "heavy = {'argparse', 'asyncio', 'apsw', 'dataclasses', 'inspect', 'logging', 'msgspec', 'rich', 'yaml'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n",
    )
    done = subprocess.run(
        [sys.executable, "look.py"], cwd=cli.folder, capture_output=True, text=True, check=True
    )
    assert "HEAVY []" in done.stdout


@pytest.mark.parametrize("words", [(), ("up",), ("runs",), ("schedules", "backfill")])
def test_help_is_as_wide_as_the_terminal(cli: Cli, words: tuple[str, ...]) -> None:
    shown = cli.run(*words, "--help", COLUMNS="60").stdout
    text = shown.partition("\nExample")[0]
    assert max(map(len, text.splitlines())) <= 60
    assert max(map(len, cli.run(*words, "--help", COLUMNS="150").stdout.splitlines())) > 60


def test_help_that_cannot_be_written_exits_with_2_and_one_line(cli: Cli) -> None:
    done = cli.shell('"$@" >/dev/full', "--help")
    assert done.returncode == 2
    assert done.stderr == "holdfast: cannot write to standard output: No space left on device\n"


# ------------------------------------------------------------------------------------------------- completion


def completed(cli: Cli, *words: str) -> list[str]:
    """What bash would offer for the last of these words."""
    line = " ".join(f"'{word}'" for word in ("holdfast", *words))
    script = f"""source <({{ "$@" completion bash; }})
COMP_WORDS=({line}); COMP_CWORD={len(words)}; _holdfast; printf '%s\\n' "${{COMPREPLY[@]}}" """
    return cli.shell(script).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("va",), ["validate"]),
        (("runs", "ex"), ["explain"]),
        (("run", "--con"), ["--continue"]),
        (("runs", "list", "--status", "fa"), ["failed"]),
        (("completion", "z"), ["zsh"]),
        (("run", "tool"), ["tools.py"]),
    ],
)
def test_bash_completes(cli: Cli, words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(cli, *words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_knows_every_command_and_flag(cli: Cli, shell: str) -> None:
    script = cli.run("completion", shell).stdout
    flags = {flag.name.removeprefix("--") for command in COMMANDS.values() for flag in command.flags}
    assert [flag for flag in flags if flag not in script] == []
    assert [name for name in COMMANDS if name.split(" ")[-1] not in script] == []


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", ".local/share/bash-completion/completions/holdfast"),
        ("zsh", ".zfunc/_holdfast"),
        ("fish", ".config/fish/completions/holdfast.fish"),
    ],
)
def test_completion_is_installed_for_the_shell_in_use(cli: Cli, shell: str, place: str) -> None:
    env = {"HOME": str(cli.folder), "SHELL": f"/bin/{shell}", "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    done = cli.run("--install-completion", **env)
    assert done.returncode == 0
    assert place in done.stderr
    assert (cli.folder / place).read_text() == cli.run("completion", shell).stdout


def test_completion_for_an_unknown_shell_is_refused(cli: Cli) -> None:
    done = cli.run("--install-completion", SHELL="/bin/tcsh")
    assert (done.returncode, "bash, zsh, fish" in done.stderr) == (2, True)


def test_json_of_a_wrong_line_has_a_stable_code(cli: Cli) -> None:
    assert json.loads(cli.run("rnu", "--json").stdout)["error"] == "usage"


# Most tests fork a process that has imported everything; here each command is the first to import anything.
FIRST = """
import asyncio, importlib, os, sys
import apsw, msgspec
for module in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(module)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(module)
"""


def test_the_module_of_every_command_can_be_imported_first() -> None:
    modules = sorted({command.calls.partition(":")[0] for command in COMMANDS.values()})
    done = subprocess.run(
        [sys.executable, "-c", FIRST, *modules], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
