"""Idempotency keys as they are promised: a model of who has which, and the law that journals are held against.

Written from the promises, not from the store's statements. `KeyBook` is what a store must do with those who ask and let
go; `KeyLaw` looks at rows of many runs alone: one holder at a time, one success while its answer lasts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.engine.events import KeyAnswered, KeyGranted, StepSucceeded
from tests.sim.checkers import Shadow, hold

Name = tuple[str, str]  # scope ("" is for all runs), text
Owner = tuple[int, str]  # run, path
Told = tuple[Owner, str, bytes | None]  # who, granted | held | answered, the output


@dataclass
class Answer:
    output: bytes
    expires_at: int | None

    def lasts(self, at: int) -> bool:
        return self.expires_at is None or self.expires_at > at


@dataclass
class KeyBook:
    holders: dict[Name, Owner] = field(default_factory=dict)
    answers: dict[Name, Answer] = field(default_factory=dict)
    lines: dict[Name, list[Owner]] = field(default_factory=dict)

    def ask(self, name: Name, who: Owner, at: int) -> Told:
        line, answer = self.lines.setdefault(name, []), self.answers.get(name)
        if answer is not None and answer.lasts(at):
            return self._leaves(line, who, "answered", answer.output)
        if name in self.holders and self.holders[name] != who:
            if who not in line:
                line.append(who)
            return who, "held", None
        self.answers.pop(name, None)
        self.holders[name] = who
        return self._leaves(line, who, "granted", None)

    def let_go(self, name: Name, who: Owner, output: bytes | None, expires_at: int | None) -> list[Told]:
        line = self.lines.setdefault(name, [])
        if who in line:
            line.remove(who)
        if self.holders.get(name) != who:
            return []
        del self.holders[name]
        if output is not None:
            self.answers[name] = Answer(output, expires_at)
            told, self.lines[name] = line, []
            return [(other, "answered", output) for other in told]
        if not line:
            return []
        self.holders[name] = line.pop(0)
        return [(self.holders[name], "granted", None)]

    def _leaves(self, line: list[Owner], who: Owner, verdict: str, output: bytes | None) -> Told:
        if who in line:
            line.remove(who)
        return who, verdict, output


@dataclass
class KeyLaw:
    """What rows of all runs, in the order of their commits, must obey."""

    holders: dict[Name, Owner] = field(default_factory=dict)
    answers: dict[Name, Answer] = field(default_factory=dict)

    def row(self, shadow: Shadow) -> None:
        """Called after a shadow has taken its row."""
        no, event = int(shadow.run.no), shadow.event
        if isinstance(event, KeyGranted) and not shadow.is_late:
            self.granted(shadow, event.path)
        elif isinstance(event, KeyAnswered) and not shadow.is_late:
            self.answered(shadow, event)
        elif isinstance(event, StepSucceeded) and event.path in shadow.finished and not shadow.is_late:
            self.succeeded(shadow, event)
        for path, call in shadow.calls.items():
            if call.is_granted and call.phase == "done":
                call.is_granted = False
                hold(self.holders.pop(call.key) == (no, path), "who lets a key go has had it", call.key, path)
        if shadow.over:
            for name in [name for name, owner in self.holders.items() if owner[0] == no]:
                del self.holders[name]

    def granted(self, shadow: Shadow, path: str) -> None:
        name, owner = shadow.calls[path].key, (int(shadow.run.no), path)
        other = self.holders.get(name)
        hold(
            other is None or other == owner, "no step begins while another holds its key", name, owner, other
        )
        answer = self.answers.pop(name, None)
        lasts = answer is not None and answer.lasts(shadow.calls[path].asked_at)
        hold(not lasts, "nothing is executed while an answer lasts", name, owner, answer)
        self.holders[name] = owner
        shadow.calls[path].is_granted = True
        shadow.counts["key granted"] += 1

    def answered(self, shadow: Shadow, event: KeyAnswered) -> None:
        name = shadow.calls[event.path].key
        answer = self.answers.get(name) or self.former.get(name)
        known = answer is not None and answer.output == bytes(event.output)
        hold(known, "an answer is the output of the step that succeeded", name, event, answer)
        shadow.counts["key answered"] += 1

    def succeeded(self, shadow: Shadow, event: StepSucceeded) -> None:
        call = shadow.calls[event.path]
        if call.info.key is None or call.phase != "done":
            return
        ttl = call.info.key_ttl_ms
        made = Answer(bytes(event.output), None if ttl is None else shadow.at + ttl)
        self.answers[call.key] = self.former[call.key] = made

    # The last answer ever given: one who was told it may have its row after somebody took the expired key anew.
    former: dict[Name, Answer] = field(default_factory=dict)


HELD: Final = "SELECT scope, key, run, path FROM key WHERE output IS NULL"
WAITING: Final = "SELECT scope, name, run, path FROM wait"


def check_tables(db: Any, shadows: dict[int, Shadow]) -> None:
    """What the tables say of keys is true of the runs: nobody holds or waits who is not open, or waits for nobody."""
    held: dict[Name, Owner] = {(scope, key): (run, path) for scope, key, run, path in db.execute(HELD)}
    for name, (run, path) in held.items():
        step = shadows[run].run.steps.get(path)
        hold(step is not None and step.key is not None, "a key is held by an open step", name, run, path)
        assert step is not None and step.key is not None
        hold(step.key.text == name[1], "a step holds the key that it asked for", name, step.key)
    for scope, text, run, path in db.execute(WAITING):
        step = shadows[run].run.steps.get(path)
        hold(step is not None and step.reason == "key", "an open step waits for a key", text, run, path)
        hold((scope, text) in held, "nobody waits for a key that nobody holds", text, run, path)
