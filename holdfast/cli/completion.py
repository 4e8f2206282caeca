"""Shell completion for bash, zsh and fish: generates a script from the table of commands, and installs it."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.cli.commands import COMMANDS, GROUPS
from holdfast.cli.commands.upkeep import SHELLS
from holdfast.cli.parser import Argument, Command, Flag, Given, Misread
from holdfast.cli.streams import UNWRITTEN, give, put, say


def command(given: Given) -> int:
    shell = given.argument or ""
    script = SCRIPTS[shell]()
    is_written = give({"shell": shell, "script": script}) if given.has("--json") else put(script.encode())
    return 0 if is_written else UNWRITTEN


def install(shell: str | None) -> int:
    """Install the script where the shell finds it, and print what the user still has to do."""
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise Misread(
            f"no completion for the shell {name or 'of this session'}", f"name one: {', '.join(SHELLS)}"
        )
    path = _place(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SCRIPTS[name](), "utf-8")
    except OSError as error:
        raise Misread(
            f"cannot write {path}: {error.strerror}", f"holdfast completion {name} prints it"
        ) from None
    say(f"wrote {path}; {_AFTER[name].format(folder=path.parent)}")
    return 0


_AFTER = {
    "bash": "open a new shell (it needs the package bash-completion)",
    "zsh": "put fpath=({folder} $fpath) before compinit in ~/.zshrc, and open a new shell",
    "fish": "open a new shell",
}


def _place(shell: str) -> Path:
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local/share")
    if shell == "bash":
        return data / "bash-completion/completions/holdfast"
    if shell == "zsh":
        return home / ".zfunc/_holdfast"
    return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish/completions/holdfast.fish"


# ------------------------------------------------------------------------------------------------------- scripts


def _first_words() -> list[str]:
    return sorted({name.partition(" ")[0] for name in COMMANDS})


def _members(group: str) -> list[Command]:
    return [command for name, command in COMMANDS.items() if name.startswith(f"{group} ")]


def bash() -> str:
    cases = "\n".join(f'    "{name}") {_bash_case(command)} ;;' for name, command in COMMANDS.items())
    groups = "\n".join(
        f'    {group}) words="{" ".join(one.name.split(" ")[1] for one in _members(group))}" ;;'
        for group in GROUPS
    )
    return f"""\
# holdfast completion for bash
_holdfast() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" words="" files=""
  local first="${{COMP_WORDS[1]}}" name
  name="$first"
  case "$first" in {"|".join(GROUPS)}) name="$first ${{COMP_WORDS[2]}}" ;; esac
  if [[ $COMP_CWORD -eq 1 ]]; then
    words="{" ".join(_first_words())} --help --version --install-completion"
  elif [[ $COMP_CWORD -eq 2 && "$name" != "$first" ]]; then
    case "$first" in
{groups}
    esac
  else
    case "$name" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [[ -n "$files" ]] && COMPREPLY+=($(compgen $files -- "$cur"))
}}
complete -o filenames -F _holdfast holdfast
"""


def _bash_case(command: Command) -> str:
    """Possible next words: the values of the flag before, otherwise flags and arguments."""
    words = " ".join(word for flag in command.flags for word in flag.words)
    choices = [choice for argument in command.arguments for choice in argument.choices]
    plain = f'words="{" ".join([words, *choices])}"; files="{_bash_files(command.arguments)}"'
    valued = [flag for flag in command.flags if flag.metavar]
    if not valued:
        return plain
    cases = " ".join(
        f'{"|".join(flag.words)}) words="{" ".join(flag.choices)}"; files="" ;;' for flag in valued
    )
    return f'case "$prev" in {cases} *) {plain} ;; esac'


def _bash_files(arguments: tuple[Argument, ...]) -> str:
    kind = arguments[0].files if arguments else ""
    return {"": "", "dirs": "-d", "yaml": "-f", "any": "-f"}[kind]


def zsh() -> str:
    first = "\n".join(f"    '{name}:{_summary(name)}'" for name in _first_words())
    cases = "\n".join(_zsh_case(command) for command in COMMANDS.values() if " " not in command.name)
    groups = "\n".join(_zsh_group(group) for group in GROUPS)
    return f"""\
#compdef holdfast
_holdfast() {{
  local -a commands
  commands=(
{first}
  )
  if (( CURRENT == 2 )); then
    _describe 'command' commands
    return
  fi
  case "$words[2]" in
{cases}
{groups}
  esac
}}
if [[ "$funcstack[1]" == _holdfast ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
"""


def _zsh_group(group: str) -> str:
    members = _members(group)
    named = " ".join(f"'{one.name.split(' ')[1]}:{_plain(one.summary)}'" for one in members)
    cases = "\n".join(_zsh_case(one, "      ") for one in members)
    return f"""\
    {group})
      if (( CURRENT == 3 )); then
        commands=({named})
        _describe 'command' commands
        return
      fi
      case "$words[3]" in
{cases}
      esac ;;"""


def _zsh_case(command: Command, indent: str = "    ") -> str:
    specs = [_zsh_flag(flag) for flag in command.flags] + [_zsh_argument(one) for one in command.arguments]
    return f"{indent}{command.name.split(' ')[-1]}) _arguments {' '.join(specs)} ;;"


def _zsh_flag(flag: Flag) -> str:
    value = f":{_plain(flag.metavar)}:({' '.join(flag.choices)})" if flag.metavar else ""
    star = "*" if flag.many else ""
    return " ".join(f"'{star}{word}[{_plain(flag.help)}]{value}'" for word in flag.words)


def _zsh_argument(argument: Argument) -> str:
    files = {"": f"({' '.join(argument.choices)})", "dirs": "_files -/", "yaml": "_files", "any": "_files"}
    return f"'*:{argument.metavar}:{files[argument.files]}'"


def fish() -> str:
    lines = ["# holdfast completion for fish", "complete -c holdfast -f"]
    lines += [
        f"complete -c holdfast -n __fish_use_subcommand -a {name} -d '{_summary(name)}'"
        for name in _first_words()
    ]
    for group in GROUPS:
        names = [one.name.split(" ")[1] for one in _members(group)]
        unless = f"__fish_seen_subcommand_from {group}; and not __fish_seen_subcommand_from {' '.join(names)}"
        lines += [
            f"complete -c holdfast -n '{unless}' -a {one.name.split(' ')[1]} -d '{_plain(one.summary)}'"
            for one in _members(group)
        ]
    for name, command in COMMANDS.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split(" "))
        lines += [_fish_flag(flag, seen) for flag in command.flags]
        lines += [_fish_argument(argument, seen) for argument in command.arguments]
    return "\n".join(line for line in lines if line) + "\n"


def _fish_flag(flag: Flag, seen: str) -> str:
    short = f" -s {flag.short[1:]}" if flag.short else ""
    value = f" -x -a '{' '.join(flag.choices)}'" if flag.metavar else ""
    return f"complete -c holdfast -n '{seen}' -l {flag.name[2:]}{short}{value} -d '{_plain(flag.help)}'"


def _fish_argument(argument: Argument, seen: str) -> str:
    if argument.choices:
        return f"complete -c holdfast -n '{seen}' -a '{' '.join(argument.choices)}'"
    return f"complete -c holdfast -n '{seen}' -F" if argument.files else ""


def _summary(name: str) -> str:
    return _plain(COMMANDS[name].summary) if name in COMMANDS else "Manage runs"


def _plain(text: str) -> str:
    """Text without characters that would end a quoted string or a description in a script."""
    return text.replace("'", "").replace("[", "(").replace("]", ")").replace(":", "").rstrip(".")


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
