"""Running a server: its nodes, and the deliveries of final callbacks."""

from __future__ import annotations

from typing import Literal

import msgspec


class Node(msgspec.Struct, frozen=True):
    """An engine process."""

    name: str
    epoch: int
    pid: int
    address: str | None
    release: str
    runs: int  # resident in its memory
    is_leaving: bool
    version: str = ""  # of Holdfast; the same as `release`
    since: str = ""
    state: Literal["ready", "leaving", "over"] = (
        "ready"  # over: its lease expired, and its runs are being taken over
    )
    code_files: list[str] = []  # the loaded files of tools and plugins
    changed_files: list[
        str
    ] = []  # those that have changed since: the node goes on with the code that it loaded
    lease_secs: float | None = None  # what is left of its lease, where several nodes share a database
    clock_ahead_secs: float = 0.0  # of its machine, by the database's clock


class NodePage(msgspec.Struct, frozen=True):
    items: list[Node]
    cursor: str | None


class CallbackDelivery(msgspec.Struct, frozen=True):
    """The delivery of a final callback to one URL. `id` is its `webhook-id`; `next_try_at` is null once it has ended."""

    id: str
    run_id: str
    url: str
    secret_env: str | None
    status: Literal["waiting", "delivered", "dead", "discarded"]
    tries: int
    last_error: str  # empty if the last attempt succeeded
    created_at: str
    next_try_at: str | None
    done_at: str | None


class CallbackDeliveryPage(msgspec.Struct, frozen=True):
    items: list[CallbackDelivery]
    cursor: str | None
