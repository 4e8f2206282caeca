"""Commands for final callbacks that were given up."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands.flags import (
    NETWORKS,
    ON_EITHER,
)
from holdfast.cli.parser import Argument, Command

DELIVERY_ID: Final = Argument("DELIVERY_ID", "The id, as holdfast dead-letters list shows it.")
DEAD_LETTERS_LIST: Final = Command(
    "dead-letters list",
    "List final callbacks that were given up: not accepted for three days, or refused with 410 Gone.",
    "holdfast.cli.dead_letters:list_command",
    "",
    ("holdfast dead-letters list", "holdfast dead-letters list --json"),
    (),
    ON_EITHER,
)
DEAD_LETTERS_REPLAY: Final = Command(
    "dead-letters replay",
    "Send a dead letter again, as if its run had just ended.",
    "holdfast.cli.dead_letters:replay_command",
    "Its webhook-id stays the same. If no process is using the database, it is sent once; if that fails, the next server retries it.",
    ("holdfast dead-letters replay msg_01890a5d-ac96-774b-bcce-b302099a8057_0",),
    (DELIVERY_ID,),
    (NETWORKS, *ON_EITHER),
)
DEAD_LETTERS_DISCARD: Final = Command(
    "dead-letters discard",
    "Discard a dead letter permanently.",
    "holdfast.cli.dead_letters:discard_command",
    "It is no longer listed; it is deleted with its run.",
    ("holdfast dead-letters discard msg_01890a5d-ac96-774b-bcce-b302099a8057_0",),
    (DELIVERY_ID,),
    ON_EITHER,
)

COMMANDS: Final = (DEAD_LETTERS_LIST, DEAD_LETTERS_REPLAY, DEAD_LETTERS_DISCARD)
