"""Messages of a NATS JetStream stream start runs: `source: nats_orders:orders`."""

import json
import os
from collections.abc import AsyncIterator

import nats
from nats.errors import TimeoutError as NoMessages

URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")


async def orders(position: str | None) -> AsyncIterator[tuple[str, object]]:
    """The server sends a message again until it is acknowledged, so the position is not needed."""
    connection = await nats.connect(URL)
    try:
        queue = await connection.jetstream().pull_subscribe("orders.>", durable="holdfast", stream="ORDERS")
        while True:
            try:
                messages = await queue.fetch(10, timeout=60)
            except NoMessages:
                continue
            for message in messages:
                yield f"orders-{message.metadata.sequence.stream}", json.loads(message.data)
                await message.ack_sync()  # the run that it starts is durable
    finally:
        await connection.close()
