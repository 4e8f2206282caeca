"""The command `holdfast`: arguments in, exit code out. What a command needs is imported when it is called.

Exit codes: 0 completed, 1 failed or interrupted, 2 invalid, usage or a result that cannot be written, 3 cancelled,
4 waits for the outside, 129, 130 and 143 stopped by a signal.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, CycloptsError, Parameter

from holdfast import __version__

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError

INVALID: Final = 2
INTERRUPTED: Final = 130

app = App(
    name="holdfast",
    help="Runs workflows that survive crashes.",
    version=__version__,
    help_format="plaintext",  # reading Markdown would cost a third of the time that `--help` takes
    default_parameter=Parameter(negative=()),
)


def _several(_type: Any, value: str, **_: Any) -> list[str]:
    """A list in an environment variable: by commas or spaces."""
    return value.replace(",", " ").split()


Database = Annotated[
    str | None,
    Parameter(
        name="--db",
        env_var="HOLDFAST_DB",
        help="The database, sqlite:///FILE. If not said: sqlite:///holdfast.db.",
    ),
]
Tools = Annotated[
    list[str] | None,
    Parameter(
        name="--tools",
        env_var="HOLDFAST_TOOLS",
        env_var_split=_several,
        help="Where tools are: module, or module:object. May be given several times.",
    ),
]
AsJson = Annotated[
    bool, Parameter(name="--json", help="Print JSON on standard output, and nothing else there.")
]


@app.command
def run(
    file: Annotated[Path | None, Parameter(help="The workflow. May be left out with --continue.")] = None,
    /,
    *,
    pairs: Annotated[
        list[str] | None,
        Parameter(name=["-i", "--input"], help="One input as name=value: JSON where it is JSON, else text."),
    ] = None,
    inputs: Annotated[
        str | None, Parameter(help="All inputs as a JSON object, or @FILE.", allow_leading_hyphen=False)
    ] = None,
    db: Database = None,
    tools: Tools = None,
    run_id: Annotated[
        str | None, Parameter(name="--continue", help="Go on with the run of this id.", metavar="RUN_ID")
    ] = None,
    as_json: AsJson = False,
    all_steps: Annotated[
        bool, Parameter(help="Show every step, in lines or with --json, not only top-level and failed ones.")
    ] = False,
) -> int:
    """Run a workflow to its end, or go on with a run that was stopped.

    Exit code: 0 completed, 1 failed or interrupted, 2 invalid, 3 cancelled, 4 waits for the outside, 129, 130 or 143
    stopped by a signal.

    Example: holdfast run hello.yaml --tools tools -i name=Ada
    """
    from holdfast.cli import run as command

    order = command.Order(
        file, tuple(pairs or ()), inputs, db, tuple(tools or ()), run_id, as_json, all_steps
    )
    return _guarded(lambda: command.run(order), as_json=as_json)


@app.command
def validate(
    *files: Annotated[Path, Parameter(help="The workflows to look at.", required=True)],
    tools: Tools = None,
    as_json: AsJson = False,
) -> int:
    """Report every problem of every file, with line, column and hint. No step is run.

    With --tools, a tool that is not among them is a problem too.

    Example: holdfast validate hello.yaml flows/*.yaml --tools tools
    """
    from holdfast.cli import check

    return _guarded(lambda: check.validate(files, tuple(tools or ()), as_json=as_json), as_json=as_json)


@app.command
def version(*, as_json: AsJson = False) -> int:
    """Print the version.

    Example: holdfast version --json
    """
    from holdfast.cli.streams import UNWRITTEN, give, put

    is_written = give({"version": __version__}) if as_json else put(f"{__version__}\n".encode())
    return 0 if is_written else UNWRITTEN


def _guarded(command: Any, *, as_json: bool) -> int:
    """Turn what a command refuses into words, JSON if asked for, and exit code 2."""
    from holdfast.errors import HoldfastError

    try:
        code: int = command()
    except HoldfastError as error:
        return _refused(error, as_json=as_json)
    return code


def _refused(error: HoldfastError, *, as_json: bool) -> int:
    from holdfast.cli.given import UnfitInputs
    from holdfast.cli.show import problem_data, problem_lines
    from holdfast.cli.streams import give, say
    from holdfast.errors import InvalidSpec

    problems = error.problems if isinstance(error, InvalidSpec | UnfitInputs) else ()
    if as_json:
        details = [problem_data(problem) for problem in problems]
        give({"error": error.code, "message": str(error), "details": details})
    elif problems:
        say("\n".join(problem_lines(problems)))
    else:
        say(f"holdfast: {error}")
    return INVALID


def _called(tokens: list[str]) -> int:
    """Do what was asked for. Whoever asks for JSON gets it too when the question itself is wrong."""
    as_json = "--json" in tokens
    try:
        code: int = app(
            tokens,
            result_action="return_int_as_exit_code_else_zero",
            print_error=not as_json,
            exit_on_error=not as_json,
        )
    except CycloptsError as error:
        from holdfast.cli.given import Usage

        return _refused(Usage(str(error)), as_json=True)
    return code


def main() -> None:
    try:
        code = _called(sys.argv[1:])
    except KeyboardInterrupt:  # before a run was there to be kept
        code = INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
