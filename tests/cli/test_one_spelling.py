"""What the command line and the HTTP API both show has the same name and the same word in both."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any, get_type_hints

import pytest

from holdfast.cli.commands import COMMANDS
from holdfast.http.serve import ROUTES
from tests.cli.conftest import Cli

WAITS = """
name: waits
steps:
  - id: all
    kind: parallel
    branches:
      - [{id: approval, kind: approve, prompt: "?"}]
      - [{id: signal, kind: wait_event, signal_key: go}]
      - [{id: timer, kind: timer, delay_ms: 3600000}]
      - [{id: callback, tool: later}]
      - [{id: retry, tool: fail, retry: {max_attempts: 3, initial_delay_ms: 3600000, max_delay_ms: 3600000}}]
      - [{id: poll, kind: poll, tool: nothing, until: $.output.never, interval_ms: 3600000, max_ms: 3600000}]
      - [{id: no_tool, tool: unheard_of}]
      - [{id: key, tool: nothing, idempotency_key: taken, idempotency_scope: global}]
"""
HOLDER = """
name: holder
steps: [{id: has, tool: hold, idempotency_key: taken, idempotency_scope: global}]
"""
MORE_TOOLS = """
@tool
async def later():
    return {"pending": True, "task_id": "T1"}

@tool
async def nothing():
    return {}
"""
LISTS = [name for name in COMMANDS if name.endswith(" list") or name == "nodes"]


def test_every_list_of_the_command_line_has_its_entries_under_items(cli: Cli) -> None:
    up = cli.up()
    for command in LISTS:
        assert isinstance(cli.json(*command.split(), "--server", up.address)["items"], list), command


@pytest.mark.parametrize(
    "route",
    [one for one in ROUTES if one.path.startswith("/api/v1") and one.method == "GET"],
    ids=lambda one: one.path,
)
def test_every_list_of_the_api_has_its_entries_under_items(route: Any) -> None:
    takes_cursor = "cursor" in getattr(route.query, "__struct_fields__", ())
    is_page = "cursor" in getattr(route.answer, "__struct_fields__", ())
    assert is_page or not takes_cursor
    if is_page:
        assert "items" in get_type_hints(route.answer)


def test_waits_and_reasons_have_one_kind_in_every_place(cli: Cli) -> None:
    cli.write("more.py", "from holdfast import tool\n" + MORE_TOOLS)
    up = cli.up("--tools", "tools", "--tools", "more")

    def asked(path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(up.address + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    for name, text in (("holder", HOLDER), ("waits", WAITS)):
        cli.write(f"{name}.yaml", text)
        cli.run("flows", "publish", f"{name}.yaml", "--server", up.address)
    asked("/api/v1/runs", {"workflow": "holder"})
    run_id = asked("/api/v1/runs", {"workflow": "waits"})["run_id"]
    deadline = time.monotonic() + 60
    while len(of_waits := kinds(asked(f"/api/v1/runs/{run_id}")["waits"])) < 8:
        assert time.monotonic() < deadline, of_waits
        time.sleep(0.05)
    explained = asked(f"/api/v1/runs/{run_id}/explain")["reasons"]
    of_reasons = kinds(explained)
    assert {path: of_reasons[path] for path in of_waits} == of_waits
    assert all(one["reason"] == one["kind"] for one in explained)
    at = ("--server", up.address)
    assert kinds(cli.json("runs", "show", run_id, *at)["waits"]) == of_waits
    assert kinds(cli.json("runs", "explain", run_id, *at)["reasons"]) == of_reasons


def kinds(found: list[dict[str, Any]]) -> dict[str, str]:
    return {one["path"]: one["kind"] for one in found}
