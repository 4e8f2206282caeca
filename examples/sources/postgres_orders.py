"""New rows of a PostgreSQL table start runs: `source: postgres_orders:orders`."""

import asyncio
import json
import os
from collections.abc import AsyncIterator

import asyncpg

# CREATE TABLE orders (id bigserial PRIMARY KEY, body jsonb NOT NULL, is_started boolean NOT NULL DEFAULT false);
# INSERT INTO orders (body) VALUES ('{"amount": 3}'); NOTIFY orders;
NEXT = "SELECT id, body FROM orders WHERE NOT is_started ORDER BY id LIMIT 100"
DONE = "UPDATE orders SET is_started = true WHERE id = $1"


async def orders(position: str | None) -> AsyncIterator[tuple[str, object]]:
    """A row that is committed late may have a lower id than the last one, so rows are marked; no position is needed."""
    connection, news = await asyncpg.connect(os.environ["ORDERS_DATABASE"]), asyncio.Event()
    try:
        await connection.add_listener("orders", lambda *_: news.set())
        while True:
            news.clear()
            while rows := await connection.fetch(NEXT):
                for row in rows:
                    yield str(row["id"]), json.loads(row["body"])
                    await connection.execute(DONE, row["id"])  # the run that it starts is durable
            await news.wait()
    finally:
        await connection.close(timeout=5)
