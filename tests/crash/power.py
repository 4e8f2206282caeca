"""The campaign of power cuts: a store on a disk that forgets, cut at any write or sync, opened again from what is left.

Driven directly and without an event loop: a commit is a function call, so many hundreds of cuts fit in a second. A life is
a few batches, each with rows, runs, blobs and snapshots that say which batch they are of. A cut is an image of the disk at
a random instant; what it leaves must be exactly the state after the last acknowledged batch, or after the one on its way.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from holdfast.store.batch import Batch
from holdfast.store.records import NewRun, RunChange, Version
from holdfast.store.sqlite import store as sqlite
from holdfast.store.sqlite.store import SqliteStore
from holdfast.values import Millis, RunId, RunNo
from tests.crash.disk import Disk

DB = "cut.db"
BATCHES_PER_LIFE = 8
LIVES_PER_FILE = 6
CUT_CHANCE = 0.12  # at each write, truncation and sync; two at a time would only show the same bytes


class Content(msgspec.Struct):
    """All that a file holds, as a reader sees it."""

    rows: list[tuple[int, int, str]] = []
    runs: dict[int, tuple[str, int]] = {}
    blobs: dict[tuple[int, str], bytes] = {}
    snapshots: dict[tuple[int, int], tuple[int, bytes]] = {}
    versions: list[str] = []

    def after(self, batch: Batch) -> Content:
        """The content once a batch is there whole."""
        return Content(
            self.rows + [(run, seq, body) for run, seq, _, _, _, body in batch.rows],
            self.runs | {no: (change.status, change.epoch) for no, change in batch.changes.items()},
            self.blobs | {(run, sha256): body for run, sha256, body in batch.blobs},
            self.snapshots | {(run, part): (seq, body) for run, part, seq, body in batch.snapshots},
            self.versions + [version.hash for version in batch.versions],
        )


def read(store: SqliteStore) -> Content:
    execute = store._read.execute
    return Content(
        list(execute("SELECT run, seq, body FROM journal ORDER BY pos")),
        {no: (status, epoch) for no, status, epoch in execute("SELECT no, status, epoch FROM run")},
        {(run, sha): body for run, sha, body in execute("SELECT run, sha256, body FROM blob")},
        {
            (run, part): (seq, body)
            for run, part, seq, body in execute("SELECT run, part, seq, body FROM snapshot")
        },
        [found for (found,) in execute("SELECT hash FROM version ORDER BY created_at")],
    )


class Cut(msgspec.Struct):
    """What a cut left behind, and what had been promised by then."""

    image: dict[str, bytes]
    where: str
    epoch: int  # the last one that an opening had given
    acknowledged: Content
    on_its_way: Content | None
    earlier: list[Content] = []  # every state since the life began


class Campaign(msgspec.Struct):
    seed: int
    cuts: int = 0
    lives: int = 0
    landed: int = 0  # cuts after which a batch on its way turned out to be there
    where: Counter[str] = msgspec.field(default_factory=Counter)
    problems: list[str] = []
    seconds: float = 0.0

    def __str__(self) -> str:
        places = ", ".join(f"{count} at {place}" for place, count in sorted(self.where.items()))
        return (
            f"seed {self.seed}: {self.cuts} power cuts in {self.lives} lives ({places}; {self.landed} left an "
            f"unacknowledged batch whole), {len(self.problems)} problems, {self.cuts / self.seconds:.0f} cuts/s"
        )


def campaign(folder: Path, *, seed: int, cuts: int, durability: str = "full", promised: str = "") -> Campaign:
    """`promised` is what the file is judged by, if not by its own durability."""
    rng, done, began = random.Random(seed), Campaign(seed), time.monotonic()
    while done.cuts < cuts:
        done.problems += _one_file(folder, rng, done, durability, promised or durability)
    done.seconds = time.monotonic() - began
    return done


def _one_file(folder: Path, rng: random.Random, done: Campaign, durability: str, promised: str) -> list[str]:
    """Several lives on one file, each begun from what a cut left of the one before."""
    left: dict[str, bytes] = {}
    epoch, problems = 0, []
    for _ in range(LIVES_PER_FILE):
        with small_limits(rng):
            cuts = _one_life(_filled(folder / "life", left), rng, durability)
            for cut in cuts:
                done.cuts += 1
                done.where[cut.where] += 1
                problem = _look(_filled(folder / "left", cut.image), cut, epoch, done, promised)
                if problem:
                    problems.append(f"seed {done.seed}, cut {done.cuts} at {cut.where}: {problem}")
        done.lives += 1
        if cuts:
            left, epoch = cuts[-1].image, cuts[-1].epoch
    return problems


@contextmanager
def small_limits(rng: random.Random) -> Iterator[None]:
    """Checkpoints every few batches and a short WAL, so that a cut meets them as often as it meets a commit."""
    usual = sqlite.WAL_BYTES, sqlite.CHECKPOINT_PAGES
    sqlite.WAL_BYTES = rng.choice((0, 8_192, 65_536))  # type: ignore[misc]
    sqlite.CHECKPOINT_PAGES = rng.choice((4, 12, 1_000))  # type: ignore[misc]
    try:
        yield
    finally:
        sqlite.WAL_BYTES, sqlite.CHECKPOINT_PAGES = usual  # type: ignore[misc]


def _filled(folder: Path, image: dict[str, bytes]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in image.items():
        (folder / name).write_bytes(content)
    return folder


def _one_life(folder: Path, rng: random.Random, durability: str) -> list[Cut]:
    cuts: list[Cut] = []
    now = Cut({}, "", 0, Content(), None)

    def tick(what: str, path: str) -> None:
        if rng.random() < CUT_CHANCE:
            where = f"{what} of {path.removeprefix(str(folder)).removeprefix('/' + DB) or 'file'}"
            cuts.append(
                Cut(disk.image(rng), where, now.epoch, now.acknowledged, now.on_its_way, list(now.earlier))
            )

    with Disk() as disk:
        store = SqliteStore(disk.uri(folder / DB), durability=durability, threads=False)
        disk.tick = tick
        now.acknowledged, now.epoch = _peek(folder)
        store.open_file()
        now.epoch = store.epoch
        for _ in range(rng.randint(1, BATCHES_PER_LIFE)):
            batch = _batch(rng, now.acknowledged)
            now.on_its_way = now.acknowledged.after(batch)
            told: list[BaseException | None] = []
            store.submit(batch, told.append)
            assert told == [None], f"a healthy disk refused a batch: {told}"
            now.earlier.append(now.acknowledged)
            now.acknowledged, now.on_its_way = now.on_its_way, None
        store.close_file()
        disk.tick = None
    return cuts


def _peek(folder: Path) -> tuple[Content, int]:
    """What a life begins with, read from a copy so that the disk meets the file as the cut left it."""
    if not (folder / DB).exists():
        return Content(), 0
    copy = _filled(folder.parent / "peek", {entry.name: entry.read_bytes() for entry in folder.iterdir()})
    store = SqliteStore(str(copy / DB), threads=False)
    store.open_file()
    content, epoch = read(store), store.epoch - 1
    store.close_file()
    return content, epoch


def _batch(rng: random.Random, so_far: Content) -> Batch:
    batch, mark = Batch(), f'"{rng.getrandbits(64):x}"'
    last = Counter(run for run, _, _ in so_far.rows)
    for no in rng.sample(range(1, 9), rng.randint(1, 4)):
        run = RunNo(no)
        if no not in so_far.runs:
            batch.new_runs[run] = NewRun(run, "default", RunId(f"run-{no}"), "v", None, None, Millis(0))
        batch.changes[run] = RunChange("running", True, rng.getrandbits(30), None)
        count = rng.choice((1, 1, 2, 5))
        body = mark + " " * rng.choice((0, 100, 3_000))
        batch.rows += [(no, last[no] + 1 + index, 0, 0, "kind", body) for index in range(count)]
    if rng.random() < 0.3:
        batch.blobs.append((RunNo(no), mark, mark.encode() * rng.choice((1, 2_000))))
    if rng.random() < 0.2:
        batch.snapshots += [(RunNo(no), part, last[no] + 1, mark.encode() * 20) for part in (0, 1)]
    if rng.random() < 0.2:
        at = Millis(len(so_far.versions))
        batch.versions.append(Version("default", mark, "w", "{}", at))
    return batch


def _look(folder: Path, cut: Cut, epoch: int, done: Campaign, promised: str) -> str:
    """Open what is left, as the next process would; says what is wrong with it, or nothing."""
    store = SqliteStore(str(folder / DB), threads=False)
    try:
        store.open_file()
    except Exception as error:  # noqa: BLE001  # whatever it is, the file cannot be opened
        return f"the file does not open: {error!r}"
    try:
        return _judge(store, cut, epoch, done, promised)
    finally:
        store.close_file()


def _judge(store: SqliteStore, cut: Cut, epoch: int, done: Campaign, promised: str) -> str:
    check: Any = store._read.execute("PRAGMA integrity_check").get
    if check != "ok":
        return f"the file is damaged: {check}"
    content = read(store)
    if cut.on_its_way is not None and content == cut.on_its_way:
        done.landed += 1
    elif content != cut.acknowledged and (promised == "full" or content not in cut.earlier):
        return _difference(content, cut)
    if promised == "full" and store.epoch <= max(cut.epoch, epoch):
        return f"epoch {store.epoch} was given out before"
    return ""


def _difference(content: Content, cut: Cut) -> str:
    for name in Content.__struct_fields__:
        found, wanted = getattr(content, name), getattr(cut.acknowledged, name)
        if found != wanted:
            return f"{len(found)} {name} instead of the {len(wanted)} acknowledged, or their content differs"
    return "nothing differs"
