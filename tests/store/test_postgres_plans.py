"""How PostgreSQL carries out what every node asks again and again: by indexes, however many runs, schedules and callbacks wait.

The plans are those that a prepared statement keeps for all values (`force_generic_plan`), because that is what a connection uses
from the sixth time on.
"""

from __future__ import annotations

import re

import pytest

from holdfast.store.statements import statements
from tests.postgres import Server

pytestmark = pytest.mark.anyio

ROWS = 20_000
LATER = 9_000_000_000_000
# Runs that wait for a signal, for their time, and finished ones; schedules of three nodes; delivered and waiting callbacks.
FILL = f"""
INSERT INTO run (no, tenant, id, version, status, wake_at, created_at)
SELECT n, 'default', n::text, 'v', 'waiting', CASE WHEN n % 10 = 0 THEN {LATER} END, 0 FROM generate_series(1, {ROWS}) n;
INSERT INTO run (no, tenant, id, version, status, created_at, finished_at)
SELECT n, 'default', n::text, 'v', 'completed', 0, 1 FROM generate_series({ROWS} + 1, 2 * {ROWS}) n;
INSERT INTO cursor (tenant, schedule, slot, revision, next_at, body)
SELECT 'default', n::text, substr('abc', 1 + n % 3, 1), 1, {LATER}, '' FROM generate_series(1, {ROWS}) n;
INSERT INTO outbox (tenant, id, run, n, url, origin, created_at, due_at, done_at, outcome)
SELECT 'default', n::text, n, 1, '', '', 0, {LATER}, CASE WHEN n % 2 = 0 THEN 1 END, CASE WHEN n % 2 = 0 THEN 'delivered' END
  FROM generate_series(1, {ROWS}) n;
ANALYZE run; ANALYZE cursor; ANALYZE outbox
"""
ASKED = {
    "look": ("bigint, bigint, text, text", "1, 1, '', 'a'"),
    "claim_due": ("bigint, bigint, bigint[], bigint", "1, 500, '{}', 1"),
    "claim_left": ("bigint, bigint, bigint[]", "1, 500, '{}'"),
    "mail": ("bigint, bigint", "1, 500"),
    "next_wake": ("bigint", "1"),
    "next_due": ("bigint, text, text", "1, '', 'a'"),
    "due_schedules": ("bigint, text, text, bigint", "1, '', 'a', 100"),
}


async def test_no_whole_table_is_read_to_find_what_is_due(postgres_server: Server) -> None:
    connection = await postgres_server.connect(await postgres_server.new_database())
    sql, found = statements("postgres"), dict[str, list[str]]()
    try:
        await connection.execute(FILL)
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        for name, (kinds, values) in ASKED.items():
            await connection.execute(f"PREPARE {name} ({kinds}) AS {sql[name]}")
            plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN EXECUTE {name} ({values})"))
            found[name] = re.findall(r"Seq Scan on (?:run|cursor|outbox)\b.*", plan)
    finally:
        await connection.close()
    assert not any(found.values()), found
