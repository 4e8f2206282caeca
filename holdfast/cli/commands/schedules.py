"""Commands for schedules."""

from __future__ import annotations

from typing import Final

from holdfast.cli.commands.flags import (
    EVERY,
    ON_EITHER,
    PLUGINS,
)
from holdfast.cli.parser import Argument, Command, Flag

SCHEDULE_ID: Final = Argument("ID", "The schedule's id, as holdfast schedules list shows it.")
SCHEDULES_LIST: Final = Command(
    "schedules list",
    "List schedules with their state and next fire, and mistakes in the server's schedule files.",
    "holdfast.cli.schedules:list_command",
    """\
Asks the server that owns the database, or reads the database file, even while another process uses it.

With --plugins it lists what these plugins declare instead, without running them, and opens no database. A plugin that cannot
be used is reported with all its problems, and the exit code is 2.""",
    (
        "holdfast schedules list",
        "holdfast schedules list --json",
        "holdfast schedules list --plugins cleaner",
    ),
    (),
    (PLUGINS, *ON_EITHER),
)
SCHEDULES_SHOW: Final = Command(
    "schedules show",
    "Show a schedule: when it fires in words, its next fires, and what became of the last ones.",
    "holdfast.cli.schedules:show_command",
    "",
    ("holdfast schedules show nightly", "holdfast schedules show nightly --json"),
    (SCHEDULE_ID,),
    ON_EITHER,
)
SCHEDULES_WHY: Final = Command(
    "schedules why",
    "Explain why a schedule did or did not fire, or whether it will: the reason, and what would change it.",
    "holdfast.cli.schedules:why_command",
    """\
Without WHEN it explains the last occurrences. WHEN is a date or a time in the zone of the schedule, a time with an offset, or
the id of a delivery; for a time to come it says whether the schedule fires then, and what would stop it.""",
    (
        "holdfast schedules why nightly",
        "holdfast schedules why nightly 2026-03-29",
        "holdfast schedules why nightly 2026-03-29T02:30 --json",
    ),
    (SCHEDULE_ID, Argument("WHEN", "A date, a time, or the id of a delivery.", required=False)),
    (Flag("--limit", "Maximum number of occurrences, up to 500. Default: 20.", "N", "-n"), *ON_EITHER),
)
ACT: Final = "Asks the server that owns the database, or changes a database file that no process is using."
SCHEDULES_PUT: Final = Command(
    "schedules put",
    "Create or replace schedules from schedule files.",
    "holdfast.cli.schedule_acts:put_command",
    f"""\
{ACT} All files are checked first. An edit keeps how far a
schedule has come. Schedules of a folder that the server reads are changed in their files instead.""",
    ("holdfast schedules put nightly.schedules.yaml",),
    (Argument("FILE", "The schedule files.", many=True, files="yaml"),),
    ON_EITHER,
)
SCHEDULES_DELETE: Final = Command(
    "schedules delete",
    "Delete a schedule. Its runs go on, and its ledger stays.",
    "holdfast.cli.schedule_acts:delete_command",
    ACT,
    ("holdfast schedules delete nightly",),
    (SCHEDULE_ID,),
    ON_EITHER,
)
SCHEDULES_FIRE: Final = Command(
    "schedules fire",
    "Fire a schedule now, besides its times.",
    "holdfast.cli.schedule_acts:fire_command",
    f"""\
{ACT} In a file the run is stored, and the next server executes it.
At the limit of max_concurrent it is refused.""",
    (
        "holdfast schedules fire nightly",
        'holdfast schedules fire on-upload --payload \'{"file": "a.csv"}\'',
    ),
    (SCHEDULE_ID,),
    (Flag("--payload", "The payload of the trigger, as JSON. Default: {}.", "JSON"), *ON_EITHER),
)
SCHEDULES_DELIVERIES: Final = Command(
    "schedules deliveries",
    "List the deliveries of a webhook, or the events of another trigger, newest first.",
    "holdfast.cli.schedules:deliveries_command",
    "Deliveries that were refused at max_concurrent, or while the schedule was paused, are one line together.",
    ("holdfast schedules deliveries on-push", "holdfast schedules deliveries on-push --limit 5 --json"),
    (SCHEDULE_ID,),
    (Flag("--limit", "Maximum number of lines, up to 500. Default: 20.", "N", "-n"), *ON_EITHER),
)
SCHEDULES_REDELIVER: Final = Command(
    "schedules redeliver",
    "Start a run for a delivery once more, with the payload that was kept.",
    "holdfast.cli.schedule_acts:redeliver_command",
    f"""\
{ACT} In a file the run is stored, and the next server executes it.
Payloads up to the limit delivery_bytes_max are kept, as long as the ledger.""",
    ("holdfast schedules redeliver on-push 72d3162e-cc78-11e3-81ab-4c9367dc0958",),
    (SCHEDULE_ID, Argument("DELIVERY", "The delivery, as holdfast schedules deliveries shows it.")),
    ON_EITHER,
)
SCHEDULES_PAUSE: Final = Command(
    "schedules pause",
    "Pause a schedule: it does not fire until it is resumed.",
    "holdfast.cli.schedule_acts:pause_command",
    f"{ACT} Also for schedules of files. Its ledger shows what was skipped.",
    ("holdfast schedules pause nightly",),
    (SCHEDULE_ID,),
    ON_EITHER,
)
SCHEDULES_RESUME: Final = Command(
    "schedules resume",
    "Resume a paused schedule.",
    "holdfast.cli.schedule_acts:resume_command",
    f"{ACT} What was due during the pause does not fire, unless --missed is given.",
    ("holdfast schedules resume nightly", "holdfast schedules resume nightly --missed"),
    (SCHEDULE_ID,),
    (Flag("--missed", "Catch up the occurrences of the pause, one after the other."), *ON_EITHER),
)
SCHEDULES_BACKFILL: Final = Command(
    "schedules backfill",
    "Start the occurrences of a period that have no run.",
    "holdfast.cli.schedule_acts:backfill_command",
    f"""\
{ACT} FROM and TO are dates or times in the zone of the
schedule, or times with an offset; both are included. Only occurrences of the past are started. Those that have a run are left
out, so a backfill can be repeated.""",
    (
        "holdfast schedules backfill nightly 2026-03-01 2026-03-31 --preview",
        "holdfast schedules backfill nightly 2026-03-01T00:00:00Z 2026-03-02T00:00:00Z --max-per-sec 2",
    ),
    (
        SCHEDULE_ID,
        Argument("FROM", "The first date or time."),
        Argument("TO", "The last date or time; a date includes the whole day."),
    ),
    (
        Flag("--preview", "Only list the occurrences that would be started."),
        Flag(
            "--max-per-sec",
            "Start at most this many a second, up to 1,000. Default: as many as max_concurrent allows.",
            "N",
        ),
        *ON_EITHER,
    ),
)
SCHEDULES_NEXT: Final = Command(
    "schedules next",
    "Show what a cron expression or an interval means: in words, and as the next times at which it is due.",
    "holdfast.cli.upcoming:command",
    """\
With 6 or 7 fields (second minute hour day month weekday [year]) weekdays count from 1 = Sunday, and a date must match day and
weekday. With 5 fields (minute hour day month weekday), as in Unix, 0 and 7 are Sunday, and one of the two is enough. Schedule
files accept 6 and 7 fields. Also: @hourly, @daily, @weekly, @monthly, @yearly, @every 1h30m and 1h30m. Several expressions are
due whenever one of them is.""",
    (
        'holdfast schedules next "0 30 2 * * MON-FRI" --tz Europe/Berlin -n 10',
        'holdfast schedules next "*/15 9-17 * * 1-5" --json',
        'holdfast schedules next "0 30 2 * * *" --tz America/New_York --after 2027-03-13 --gap skip',
    ),
    (Argument("EXPR", "The expression, in quotation marks. May be repeated.", many=True),),
    (
        Flag("--tz", "The time zone, by its IANA name. Default: UTC.", "ZONE"),
        Flag("--limit", "How many times to show, up to 500. Default: 10.", "N", "-n"),
        Flag("--after", "Begin after this date or time instead of now.", "TIME"),
        Flag(
            "--gap",
            "What a fixed time does that does not exist because clocks go forward: run_after (the default) or skip.",
            "WORD",
            choices=("run_after", "skip"),
        ),
        Flag(
            "--fold",
            "Which of the two counts when a fixed time comes twice: first (the default), second or both.",
            "WORD",
            choices=("first", "second", "both"),
        ),
        *EVERY,
    ),
)

COMMANDS: Final = (
    SCHEDULES_LIST,
    SCHEDULES_SHOW,
    SCHEDULES_WHY,
    SCHEDULES_NEXT,
    SCHEDULES_PUT,
    SCHEDULES_DELETE,
    SCHEDULES_FIRE,
    SCHEDULES_DELIVERIES,
    SCHEDULES_REDELIVER,
    SCHEDULES_PAUSE,
    SCHEDULES_RESUME,
    SCHEDULES_BACKFILL,
)
