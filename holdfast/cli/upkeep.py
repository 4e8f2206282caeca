"""`holdfast backup` and `holdfast doctor`: both only read the database, beside whoever drives it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.cli.file import finished, path_of, reading
from holdfast.cli.given import settings_of
from holdfast.cli.line import Given
from holdfast.cli.show import painted
from holdfast.cli.streams import UNWRITTEN, give, put, say
from holdfast.config import Settings
from holdfast.runtime.upkeep import Finding, back_up, examine
from holdfast.store.sqlite import SqliteStore

UNSOUND: Final = 1


def backup_command(given: Given) -> int:
    target = Path(given.argument or "")
    store = SqliteStore(path_of(settings_of(given)))
    store.open_to_read(any_release=True)
    try:
        made = back_up(store, target)
    finally:
        store.close()
    size = target.stat().st_size
    if given.has("--json"):
        return (
            0 if give({"files": [str(path) for path in made], "bytes": size, "checked": True}) else UNWRITTEN
        )
    say(f"copied and checked: {', '.join(map(str, made))} ({size:,} bytes)")
    return 0


def doctor_command(given: Given) -> int:
    return finished(_doctor(settings_of(given), as_json=given.has("--json")))


async def _doctor(settings: Settings, *, as_json: bool) -> int:
    with reading(settings) as store:
        findings = await examine(store)
    is_sound = not any(finding.problems for finding in findings)
    if as_json:
        is_written = give({"ok": is_sound, "checks": findings})
    else:
        is_written = put("".join(f"{line}\n" for finding in findings for line in _lines(finding)).encode())
        say("all is well" if is_sound else "there are problems; keep a copy of the file before anything else")
    if not is_written:
        return UNWRITTEN
    return 0 if is_sound else UNSOUND


def _lines(finding: Finding) -> list[str]:
    note = f"  {finding.note}" if finding.note else ""
    if not finding.problems:
        return [f"{painted('ok', 'completed')}       {finding.check}{note}"]
    head = f"{painted('problem', 'failed')}  {finding.check}{note}"
    return [head, *(f"           {problem}" for problem in finding.problems)]
