"""`holdfast up`: the server as a process, and every command as its client without being told."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.http.serve import SWITCH_SECONDS
from tests.cli.conftest import Cli
from tests.ports import free_port

SUM = "- {id: sum, tool: add, args: {a: 1, b: 2}}"
FAILS = "- {id: first, tool: add, args: {a: 1}}\n- {id: bad, tool: fail, args: {message: out of paper}}"
HELD = "- {id: first, tool: note, args: {text: first}}\n- {id: held, tool: hold}"
LOOP = "- {id: loop, kind: foreach, items: $.inputs.of, steps: [{id: one, tool: add, args: {a: 1}}]}\n"
KEY = "a-key-that-is-long-enough"


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


# ---------------------------------------------------------------------------------------------------- what it says


def test_a_server_says_where_it_is_and_what_to_try(cli: Cli) -> None:
    process = cli.start("up", "--port", "0", "--tools", "tools")
    said = cli.until(process, "without losing anything")
    address = re.search(r"is up at (http://127\.0\.0\.1:\d+)", said)
    assert address is not None
    assert "local mode" in said and "holdfast.db; 0 open runs continue" in said
    assert said.count(f"--server {address[1]}") == 2
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0


def test_a_server_says_how_many_runs_it_took_up(cli: Cli) -> None:
    process = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(process, "at work")
    process.kill()
    process.communicate()
    assert cli.up("--tools", "tools").said["taken_up"] == 1


def test_threads_of_a_server_leave_the_interpreter_to_its_event_loop(cli: Cli) -> None:
    cli.write(
        "switching.py",
        "import sys\nfrom holdfast import tool\n\n@tool\ndef seconds():\n    return sys.getswitchinterval()\n",
    )
    cli.up("--tools", "switching")
    run = cli.json("run", cli.flow("- {id: s, tool: seconds}"))
    assert run["output"]["s"] == pytest.approx(SWITCH_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_server_that_is_stopped_leaves_its_file_free(cli: Cli, number: signal.Signals) -> None:
    server = cli.up()
    assert server.stop(number)[0] == 0
    assert cli.run("runs", "list").returncode == 0
    assert cli.up().said["mode"] == "local"


def test_a_port_that_is_taken_is_refused_with_a_way_out(cli: Cli) -> None:
    with taken_port() as port:
        refused = cli.run("up", "--port", str(port), "--json")
    data = json.loads(refused.stdout)
    assert (refused.returncode, data["error"], "--port 0" in data["message"]) == (2, "address_in_use", True)


def test_a_database_that_a_server_has_is_refused_with_its_process_and_address(cli: Cli) -> None:
    server = cli.up()
    data = cli.json("up", "--port", "0")
    assert data["error"] == "database_in_use"
    assert f"process {server.process.pid} at {server.address}" in data["message"]


def test_a_public_address_needs_a_key(cli: Cli) -> None:
    refused = cli.run("up", "--host", "0.0.0.0", "--port", "0", "--json")
    assert (refused.returncode, json.loads(refused.stdout)["error"]) == (2, "key_needed")


@pytest.mark.parametrize(
    "args",
    [
        ("--port", "no"),
        ("--port", "70000"),
        ("--host", "192.0.2.1"),
        ("--flows", "gone"),
        ("--skills", "gone"),
    ],
)
def test_what_cannot_be_served_is_refused_in_words(cli: Cli, args: tuple[str, ...]) -> None:
    refused = cli.run("up", *args, *(() if "--port" in args else ("--port", "0")))
    assert refused.returncode == 2
    assert refused.stderr.startswith("holdfast: ") and "Traceback" not in refused.stderr


# ------------------------------------------------------------------------------------------------ clients of it


def test_a_run_is_begun_at_the_server_that_has_the_file(cli: Cli) -> None:
    server = cli.up("--tools", "tools")
    ran = cli.run("run", cli.flow(SUM))
    assert (ran.returncode, json.loads(ran.stdout)) == (0, {"sum": 3})
    assert re.search(
        r"run \S+ of flow\n  ✓ sum  completed in [\d.]+ m?s\ncompleted in [\d.]+ m?s", ran.stderr
    )
    assert server.process.poll() is None


def test_json_of_a_run_is_the_same_by_server_and_by_file(cli: Cli) -> None:
    flow = cli.flow(FAILS)
    by_file = cli.json("run", flow, "--tools", "tools")
    cli.up("--tools", "tools")
    by_server = cli.json("run", flow)
    assert by_server | {"run_id": ""} == by_file | {"run_id": ""}


def test_a_run_that_fails_at_the_server_exits_with_1(cli: Cli) -> None:
    cli.up("--tools", "tools")
    ran = cli.run("run", cli.flow(FAILS))
    assert (ran.returncode, "failed after" in ran.stderr) == (1, True)
    assert "see each step and its traceback: holdfast runs show" in ran.stderr


def test_inputs_that_do_not_fit_are_refused_before_the_server_is_asked(cli: Cli) -> None:
    cli.up("--tools", "tools")
    ran = cli.run("run", cli.flow(SUM, inputs="{a: {type: integer}}"), "-i", "a=text")
    assert ran.returncode == 2
    assert cli.json("runs", "list")["items"] == []


def test_a_tool_that_the_server_has_not_is_told_with_what_unblocks_it(cli: Cli) -> None:
    cli.up()
    ran = cli.run("run", cli.flow(SUM), "--tools", "tools")
    assert ran.returncode == 4
    assert "--tools is not used" in ran.stderr
    assert re.search(r"sum  no_tool: .*--tools", ran.stderr)


def test_whoever_leaves_a_run_at_a_server_leaves_it_running(cli: Cli) -> None:
    cli.up("--tools", "tools")
    process = cli.start("run", cli.flow(HELD))
    cli.until(process, "✓ first")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert (process.returncode, "and continues there" in said) == (130, True)
    assert cli.json("runs", "show", "last")["status"] == "running"


def test_a_run_at_a_server_is_cancelled_there(cli: Cli) -> None:
    cli.up("--tools", "tools")
    process = cli.start("run", cli.flow(HELD))
    cli.until(process, "✓ first")
    assert cli.json("runs", "cancel", "last")["status"] in ("cancelling", "cancelled")
    process.communicate(timeout=120)
    assert process.returncode == 3


def test_a_run_is_followed_through_the_death_of_its_server(cli: Cli) -> None:
    server = cli.up("--tools", "tools", "--port", str(free_port()))
    process = cli.start("run", cli.flow(HELD), "--json")
    cli.until(process, "of flow")
    cli.until(server.process, "at work")
    server.stop(signal.SIGKILL)
    cli.start("up", "--port", server.port, "--tools", "tools")
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, json.loads(out)["output"]) == (0, {"first": "first", "held": 2})
    assert cli.notes() == ["first"]


def test_going_on_with_a_run_that_a_server_drives_is_following_it(cli: Cli) -> None:
    process = cli.start("run", cli.flow(HELD), "--tools", "tools")
    begun = re.search(r"run (\S+) of flow", cli.until(process, "at work"))
    process.kill()
    process.communicate()
    cli.up("--tools", "tools")
    assert begun is not None
    ran = cli.run("run", "--continue", begun[1])
    assert (ran.returncode, json.loads(ran.stdout)["held"]) == (0, 2)


def test_a_rerun_is_begun_at_the_server(cli: Cli) -> None:
    cli.up("--tools", "tools")
    first = cli.json("run", cli.flow(FAILS))["run_id"]
    assert cli.json("runs", "rerun", first, "--from", "bad", "--preview")["taken_over"] == ["first"]
    again = cli.run("runs", "rerun", first, "--from", "bad", "--json")
    data = json.loads(again.stdout)
    assert (again.returncode, data["steps"]["first"]["attempts"]) == (1, 0)
    assert cli.json("runs", "show", data["run_id"])["rerun_of"] == first


def test_the_server_that_is_named_is_asked_and_not_the_file(cli: Cli, tmp_path: Path) -> None:
    server = cli.up("--db", "sqlite:///served.db", "--tools", "tools")
    cli.run("run", cli.flow(SUM), "--server", server.address)
    assert not (tmp_path / "holdfast.db").exists()
    listed = cli.run("runs", "list", "--json", SCHEDULER_BASE=server.address)
    assert len(json.loads(listed.stdout)["items"]) == 1


def test_a_file_that_is_named_counts_more_than_a_server_of_the_environment(cli: Cli) -> None:
    cli.json("run", cli.flow(SUM), "--tools", "tools", "--db", "sqlite:///other.db")
    listed = cli.run(
        "runs", "list", "--db", "sqlite:///other.db", "--json", HOLDFAST_SERVER="http://127.0.0.1:1"
    )
    assert len(json.loads(listed.stdout)["items"]) == 1


def test_a_server_that_is_not_there_is_told_in_words(cli: Cli) -> None:
    refused = cli.run("runs", "list", "--server", "http://127.0.0.1:1", "--json")
    assert (refused.returncode, json.loads(refused.stdout)["error"]) == (2, "server_unreachable")


def test_a_guarded_server_wants_a_key(cli: Cli) -> None:
    server = cli.up("--tools", "tools", HOLDFAST_API_KEY=KEY)
    assert server.said["mode"] == "guarded"
    assert cli.json("runs", "list", "--server", server.address)["error"] == "unauthorised"
    listed = cli.run("runs", "list", "--json", HOLDFAST_API_KEY=KEY)
    assert json.loads(listed.stdout) == {"items": [], "cursor": None}


def test_looking_at_a_file_loads_no_http_client_and_no_server() -> None:
    look = "import sys, holdfast.cli.runs, holdfast.cli.flows, holdfast.cli.watch"
    program = f"{look}; print(sorted({{'aiohttp', 'starlette', 'uvicorn'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -------------------------------------------------------------------------------------------- both say the same


LOOKS = [
    ("runs", "list"),
    ("runs", "list", "--status", "failed"),
    ("runs", "list", "--limit", "1"),
    ("runs", "show", "last"),
    ("runs", "show", "last", "--all-steps"),
    ("runs", "explain", "last"),
    ("runs", "rerun", "last", "--preview"),
    ("flows", "list"),
    ("flows", "show", "flow"),
    ("flows", "show", "flow", "--number", "1"),
    ("flows", "diff", "flow", "1", "2"),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, Cli]]:
    """A folder with a server, and one with a copy of its file."""
    folder = tmp_path_factory.mktemp("looks")
    served, alone = Cli(folder), Cli(tmp_path_factory.mktemp("alone"))
    try:
        _fill(served)
        shutil.copytree(folder, alone.folder, dirs_exist_ok=True)
        served.up()
        yield served, alone
    finally:
        for process in served.started:
            process.kill()
            process.communicate()


def _fill(cli: Cli) -> None:
    server = cli.up("--tools", "tools")
    cli.run("flows", "publish", cli.flow(SUM, description="first"))
    cli.run("flows", "publish", cli.flow(LOOP + FAILS, labels="{team: x}", inputs="{of: {default: [1, 2]}}"))
    cli.run("run", cli.flow(SUM))
    cli.run("run", cli.flow(LOOP + FAILS, labels="{team: x}", inputs="{of: {default: [1, 2]}}"))
    server.stop()


def _seen(cli: Cli, look: tuple[str, ...]) -> tuple[int, str, str]:
    """Exit code and what was written, without how long ago it was and where."""
    done = cli.run(*look)
    ago = re.compile(r"(?<=\d )(ms|s|min \d+ s)\b|\d+(\.\d+)?(?= (ms|s|min))| +")
    place = re.compile(r"http://[\d.:]+|holdfast\.db")
    return done.returncode, ago.sub("", done.stdout), ago.sub("", place.sub("HERE", done.stderr))


@pytest.mark.parametrize("look", [look for one in LOOKS for look in (one, (*one, "--json"))], ids=" ".join)
def test_a_look_is_the_same_by_server_and_by_file(look: tuple[str, ...], both: tuple[Cli, Cli]) -> None:
    by_server, by_file = (_seen(cli, look) for cli in both)
    assert by_server == by_file
    assert by_server[0] == 0 and by_server[1] not in ("", "{}\n")


def test_a_cursor_of_the_server_works_on_the_file_and_the_other_way_round(both: tuple[Cli, Cli]) -> None:
    first, second = both[0].json("runs", "list")["items"]
    for giver, taker in (both, both[::-1]):
        page = giver.json("runs", "list", "--limit", "1")
        rest = taker.json("runs", "list", "--limit", "1", "--cursor", page["cursor"])
        assert (page["items"], rest["items"]) == ([first], [second])


def test_what_is_not_there_is_refused_alike(cli: Cli) -> None:
    looks = [("runs", "show", "abcdef"), ("flows", "show", "nothing"), ("flows", "rollback", "nothing", "1")]
    cli.json("run", cli.flow(SUM), "--tools", "tools")
    by_file = [cli.json(*look)["error"] for look in looks]
    cli.up()
    assert [cli.json(*look)["error"] for look in looks] == by_file == ["not_found"] * 3


# -------------------------------------------------------------------------------------------------------- watch


def test_watching_where_nobody_is_says_so(cli: Cli) -> None:
    seen = cli.run("runs", "watch", "--server", "http://127.0.0.1:1")
    assert (seen.returncode, seen.stdout) == (2, "")
    assert "no answer from http://127.0.0.1:1: " in seen.stderr
    assert "start one with holdfast up, or name another with --server" in seen.stderr


def test_watching_a_run_shows_what_running_it_shows(cli: Cli) -> None:
    cli.up("--tools", "tools")
    ran = cli.run("run", cli.flow(LOOP, inputs="{of: {default: [1, 2]}}"))
    seen = cli.run("runs", "watch", "last")
    told = [line.split("  completed")[0] for line in ran.stderr.splitlines() if "✓ loop  " in line]
    assert (seen.returncode, seen.stdout) == (0, ran.stdout)
    assert [line.split("  completed")[0] for line in seen.stderr.splitlines() if "✓" in line] == told


def test_watching_a_run_goes_on_to_its_end(cli: Cli) -> None:
    cli.up("--tools", "tools")
    cli.until(cli.start("run", cli.flow(HELD)), "✓ first")
    process = cli.start("runs", "watch", "--json")
    fails, is_seen = cli.flow(FAILS), threading.Event()

    def fail_until_it_is_seen() -> None:
        """Nothing says when somebody has begun to watch."""
        while not is_seen.is_set():
            cli.run("run", fails)

    failing = threading.Thread(target=fail_until_it_is_seen)
    failing.start()
    assert process.stdout is not None
    events = map(json.loads, process.stdout)
    ended = next((event for event in events if event["detail"]["kind"] == "workflow_terminal"), None)
    is_seen.set()
    failing.join()
    assert ended is not None and ended["status"] == "failed"


def test_watching_a_run_that_failed_exits_with_1(cli: Cli) -> None:
    cli.json("run", cli.flow(FAILS), "--tools", "tools")
    assert cli.run("runs", "watch", "last").returncode == 1


def test_a_run_is_watched_in_a_file_beside_the_process_that_drives_it(cli: Cli) -> None:
    process = cli.start("run", cli.flow("- {id: a, kind: timer, delay_ms: 1500}\n- {id: b, tool: add, args: {a: 1}}"),
                        "--tools", "tools")  # fmt: skip
    cli.until(process, "of flow")
    seen = cli.run("runs", "watch", "last")
    assert (seen.returncode, json.loads(seen.stdout)["b"]) == (0, 1)


def test_json_of_a_watched_run_is_one_event_a_line_from_its_beginning(cli: Cli) -> None:
    cli.json("run", cli.flow(SUM), "--tools", "tools")
    by_file = cli.run("runs", "watch", "last", "--json").stdout
    cli.up()
    by_server = cli.run("runs", "watch", "last", "--json").stdout
    events = [json.loads(line) for line in by_file.splitlines()]
    assert [event["detail"]["kind"] for event in events] == [
        "workflow_started", "step_enter", "step_exit", "workflow_terminal",
    ]  # fmt: skip
    assert [json.loads(line) | {"id": ""} for line in by_server.splitlines()] == [
        event | {"id": ""} for event in events
    ]


def test_what_a_server_without_workflows_suggests_works_when_it_is_pasted(cli: Cli) -> None:
    server = cli.start("up", "--port", "0")
    said = cli.until(server, "API documentation")
    lines = said.partition("try next:\n")[2].splitlines()[:3]
    for line in lines:
        done = cli.shell(line)
        assert done.returncode == 0, (line, done.stderr)


def test_the_server_says_how_many_runs_continue_and_how_many_wait(cli: Cli) -> None:
    flow = cli.flow("- {id: go, kind: wait_event, signal_key: go}")
    first = cli.up()
    for _ in range(2):
        cli.run("start", flow, "--detach")
    first.stop()
    second = cli.start("up", "--port", "0")
    assert "0 open runs continue, 2 wait for something else" in cli.until(second, "API documentation")


PRINTS = """
import os, sys
from holdfast import tool

def spill(secret):
    print("to stdout", secret)
    print("to stderr", secret, file=sys.stderr)
    raise LookupError(f"no door for {secret}")

@tool
def here(secret):
    spill(secret)

@tool(isolate="process")
def apart(secret):
    spill(secret)
"""


@pytest.mark.parametrize("tool", ["here", "apart"])
def test_the_log_of_a_server_shows_tracebacks_and_prints_of_tools_without_secrets(
    cli: Cli, tool: str
) -> None:
    cli.write("prints.py", PRINTS)
    server = cli.up("--tools", "prints", HOLDFAST_SECRET_CANARY="canary-7f3a9b2c1d")
    flow = cli.flow(f'- {{id: s, tool: {tool}, args: {{secret: "{{{{secrets.CANARY}}}}"}}}}')
    assert cli.run("run", flow).returncode == 1
    _, said = server.stop()
    assert "to stdout ***" in said and "to stderr ***" in said
    assert "attempt 1 of step s raised:\n    Traceback" in said and "LookupError: no door for ***" in said
    assert "canary-7f3a" not in said


def test_a_tool_that_closes_the_standard_streams_does_not_end_the_server(cli: Cli) -> None:
    cli.write(
        "closes.py",
        "import sys\nfrom holdfast import tool\n\n@tool\ndef closes():\n    sys.stdout.close()\n    sys.stderr.close()\n",
    )
    server = cli.up("--tools", "closes")
    flow = cli.flow("- {id: s, tool: closes}")
    assert cli.run("run", flow).returncode == 0
    assert cli.run("run", flow).returncode == 0
    _, said = server.stop()
    assert said.count("started") == 2


def test_the_log_of_a_server_has_few_tracebacks_of_many_failures(cli: Cli) -> None:
    server = cli.up("--tools", "tools")
    loop = "- {id: l, kind: foreach, items: $.inputs.xs, concurrency: 50, on_any_fail: continue, steps: [{id: s, tool: fail}]}"
    numbers = ",".join(map(str, range(200)))
    assert cli.run("run", cli.flow(loop, inputs="{xs: {}}"), "-i", f"xs=[{numbers}]").returncode == 0
    _, said = server.stop()
    assert 10 <= said.count("Traceback") < 200 and "more attempts failed in this second" in said


def test_the_log_of_the_demo_says_in_one_line_what_a_tool_raised(cli: Cli) -> None:
    tools = "from holdfast import tool\n\n@tool\ndef trip(a, b):\n    'Raises.'\n    raise LookupError('no door')\n"
    cli.write("trips.py", tools)
    server = cli.up("--demo", "--tools", "trips")
    flow = cli.flow("- {id: s, tool: trip, args: {a: 1, b: 2}}")
    assert cli.run("run", flow).returncode == 1
    _, said = server.stop()
    assert "attempt 1 of step s raised: LookupError: no door\n" in said and "Traceback" not in said
