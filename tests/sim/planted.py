"""Planted bugs: small patches to the product, each of which the simulation must find.

A checker that never fails proves nothing. Each bug is applied in a process of its own (hunt.py), or to a copy of the package
in a temporary folder that a process imports, never to the checkout. `python -m tests.sim.planted [name…]` runs them by hand.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

from tests.forks import Program
from tests.sim.campaign import try_seed

SEEDS_MAX: Final = 1_000
KNOWN_MAX: Final = (
    3  # seeds that are kept for each bug: a change of the product gives some seeds another course
)
HUNT_SECONDS_MAX: Final = 900
KNOWN: Final = Path(__file__).with_name("planted.txt")
ONE_AT_A_TIME: Final = threading.Lock()  # a seed makes limits of the product small while it runs
ROOT: Final = Path(__file__).resolve().parents[2]
HUNT: Final = """
import json, sys
sys.path[:0] = [sys.argv[1]]
sys.path.append(sys.argv[2])
import holdfast
assert holdfast.__file__.startswith(sys.argv[1]), holdfast.__file__
from tests.sim.campaign import run_seeds
found = run_seeds(sys.argv[3], map(int, sys.argv[4:]), first_failure=True)
print(json.dumps(list(found.failures.items())))
"""


@dataclass(frozen=True)
class Bug:
    name: str
    layer: str
    file: str  # within the package
    old: str
    new: str


BUGS: Final = (
    # ------------------------------------------------------------------------------------------- the engine's core
    Bug("a late success is taken for a timely one", "pure", "engine/fold_events.py",
        'if step is None or step.attempt != event.attempt or step.state != "running":\n        return  # late',
        "if step is None:\n        return  # late"),
    Bug("any attempt number counts as the open one", "pure", "engine/state.py",
        'return step is not None and step.attempt == attempt and step.state == "running"',
        'return step is not None and step.state == "running"'),
    Bug("a loss counts as a failure", "pure", "engine/fold_events.py",
        "        step.lost += 1\n", "        step.lost += 1\n        step.tries += 1\n"),
    Bug("a loss alone in the lane is not counted", "pure", "engine/fold_events.py",
        "step.lost_alone += path == event.alone", "step.lost_alone += 0"),
    Bug("a terminal status is overwritten", "pure", "engine/fold.py",
        "    if run.status in TERMINAL:\n        return run.status\n", ""),
    Bug("a timer that was disarmed fires", "pure", "engine/fold_events.py",
        "        return  # disarmed before it fired\n", "        pass\n"),
    Bug("a second cut forgets the first one's work", "pure", "engine/fold.py",
        "run.todo = [*run.todo, *order.todo]", "run.todo = order.todo"),
    Bug("a stopped step keeps its retry timer", "pure", "engine/fold.py",
        'for timer in ("retry", "delay", "suspect", "worker"):', 'for timer in ("delay", "suspect", "worker"):'),
    Bug("the attempt number is used again after a release", "pure", "engine/retry.py",
        "StartAttempt(path, step.attempt + 1,", 'StartAttempt(path, step.attempt + (step.reason != "stopping"),'),
    Bug("a retry is one back-off too early", "pure", "engine/retry.py",
        "delay = policy.next_delay_ms(tries + 1)", "delay = policy.next_delay_ms(tries)"),
    Bug("back-off has no cap", "pure", "spec/policy.py",
        "return min(self._base_ms(attempt), self.max_delay_ms)", "return self._base_ms(attempt)"),
    Bug("one attempt too many", "pure", "engine/retry.py",
        "tries >= policy.max_attempts", "tries > policy.max_attempts"),
    Bug("on_crash: fail is retried", "pure", "engine/retry.py",
        "    if node.fails_on_crash:\n", "    if False:\n"),
    Bug("a suspect is never given up", "pure", "engine/retry.py",
        "lost_alone >= limits.now.losses_max", "lost_alone > limits.now.losses_max"),
    Bug("the deadline is not armed", "pure", "engine/decide.py",
        "        ends.arm_deadline(draft, timeout_ms)\n", "        pass\n"),
    Bug("the end of the grace is ignored", "pure", "engine/decide.py",
        '    elif event.timer == "grace":\n', '    elif event.timer == "never":\n'),
    Bug("more children than concurrency", "pure", "engine/scopes.py",
        "scope.open >= node.concurrency:\n            return\n        index = scope.next\n        scope.child_opened()\n        if scope.open <",
        "scope.open > node.concurrency:\n            return\n        index = scope.next\n        scope.child_opened()\n        if scope.open <="),
    Bug("a scope is joined one child early", "pure", "engine/scopes.py",
        "    elif not scope.open:\n        _join", "    elif scope.open <= 1:\n        _join"),
    Bug("cancel lets what rests go on", "pure", "engine/ends.py",
        "draft.decisions.extend(StopAttempt(path, target) for path in steps)",
        'draft.decisions.extend(StopAttempt(path, target) for path in steps if steps[path].state == "running")'),
    Bug("a restart interrupts what was cancelled", "pure", "engine/decide.py",
        "    if run.ending and not is_ending:\n        return ends.stopped", "    if run.ending and not draft.plan.interrupted_by_restart:\n        return ends.stopped"),
    Bug("results in the wrong order", "pure", "engine/gather.py",
        "for index in range(count)]", "for index in reversed(range(count))]"),
    Bug("a snapshot without the work that was cut", "pure", "engine/codec.py",
        "        run,\n        inputs=_referred(run, run.inputs),\n", "        run,\n        todo=[],\n        inputs=_referred(run, run.inputs),\n"),
    Bug("snapshot parts are numbered anew after a reload", "pure", "engine/codec.py",
        'run.__dict__["parts"] = (count + 1, written)', 'run.__dict__["parts"] = (0, written)'),
    Bug("a gap in the journal is accepted", "pure", "runtime/load.py",
        "assert seq == run.seq + 1,", "assert seq > run.seq,"),
    # ------------------------------------------------------------------------------------------ what follows an end
    Bug("compensations run in the order of completion", "pure-recover", "engine/undo.py",
        "        last = left[-1]\n", "        last = left[0]\n"),
    Bug("a compensation is forgotten after a crash", "pure-recover", "engine/codec.py",
        "        undo=[Undoable(one.path, _referred(run, one.inputs)) for one in run.undo],\n", "        undo=[],\n"),
    Bug("a call that succeeds while it is stopped is not undone", "pure-recover", "engine/decide.py",
        "            _succeeded_while_stopping(draft, path, event.output)\n", "            pass\n"),
    Bug("a failed compensation ends the others", "pure-recover", "engine/ends.py",
        "        return undo.undone(draft, error)\n", "        return undo.final_ended(draft, error)\n"),
    Bug("final steps are skipped when the run is cancelled", "pure-recover", "engine/ends.py",
        "    if _unwinds(draft, target, error):\n", "    if target and _unwinds(draft, target, error):\n"),
    Bug("the final steps of the run are skipped when it fails", "pure-recover", "engine/undo.py",
        "    return guard is not None and guard.final is not None and is_due\n", "    return False\n"),
    Bug("the output of a handler is lost", "pure-recover", "engine/ends.py",
        "        text = output_of_handler(draft, frame, guard)\n", '        text = b"null"\n'),
    Bug("a skipped step has an output", "pure-recover", "engine/nodes.py",
        "    draft.complete(path, NULL, node.keep, skipped=True)\n",
        '    draft.complete(path, msgspec.Raw(b"0"), node.keep, skipped=True)\n'),
    # -------------------------------------------------------------------------------------------------- the runtime
    Bug("acts before the commit", "world", "runtime/commits.py",
        "        self.in_flight = True\n        self.committer.submit(batch, lambda error: self._done(batch, entries, error))\n\n    def _done",
        "        self.in_flight = True\n        self._follower.committed(batch, entries)\n        self.committer.submit(batch, lambda error: self._done(batch, [], error))\n\n    def _done"),
    Bug("acknowledges before the commit", "world", "runtime/door.py",
        "        commits.entries.append(entry)\n",
        "        commits.entries.append(entry)\n        answer(entry[3], None)\n"),
    Bug("acknowledges a commit that failed", "world", "runtime/commits.py",
        "            answer(reply, why)\n", "            answer(reply, None)\n"),
    Bug("drops the stimuli of a commit that failed", "world", "runtime/commits.py",
        "            self.turn_away(no, read_back(entry, row)[0], entry[3], error)\n",
        "            answer(entry[3], error)\n"),
    Bug("keeps the state of a commit that failed", "world", "runtime/commits.py",
        "            self.away.add(no)\n            self.residents.pop(no, None)\n", ""),
    Bug("adoption does not raise the epoch", "world", "runtime/ownership.py",
        "        resident.epoch = _next_epoch(resident, claim)\n        held =", "        held ="),
    Bug("a parked run's timer is lost", "world", "runtime/alarms.py",
        "        self.timers.due_in_store(wake_at)\n", ""),
    Bug("a parked run wakes too late", "world", "runtime/door.py",
        "wake_at = wake_at_of(run) if parked else None",
        "wake_at = Millis((wake_at_of(run) or 0) + 30_000) if parked else None"),
    Bug("timers fire half a second early", "world", "runtime/wakes.py",
        "self._delays.hours(run).items() if at <= now]", "self._delays.hours(run).items() if at <= now + 500]"),
    Bug("a stale process goes on writing", "world", "store/sqlite/store.py",
        'if execute(self._sql["read_epoch"]).get != self.epoch:', "if False:"),
    Bug("the key depends on the attempt", "world", "execution/contexts.py",
        "idempotency_key(run.tenant, run.id, attempt.path)",
        'idempotency_key(run.tenant, run.id, f"{attempt.path}/{attempt.number}")'),
    Bug("a graceful stop gives nothing back", "world", "execution/dispatcher.py",
        '            self.door.deliver(no, AttemptReleased(path, attempt.number, "stopping"))\n', "            pass\n"),
    Bug("an attempt that was stopped begins all the same", "world", "execution/dispatcher.py",
        "        if attempt.stopped or self.is_stopping:\n            with", "        if self.is_stopping:\n            with"),
    Bug("time-outs are not watched", "world", "execution/beginning.py",
        "            self._deadlines.add(attempt, node.timeout_ms)\n", "            pass\n"),
    Bug("the run row keeps its owner at the end", "world", "runtime/door.py",
        "RunChange(run.status, False, run.epoch, finished_at=run.at)", "RunChange(run.status, True, run.epoch, finished_at=run.at)"),
    # ------------------------------------------------------------------------------- keys, workflows within workflows
    Bug("an adoption does not ask again for a key", "pure-woven", "engine/decide.py",
        'if step.state != "ready" and step.reason != "key":', 'if step.state != "ready":'),
    Bug("a step begins without its key after an adoption", "pure-woven", "engine/retry.py",
        '    if step.reason == "key":\n        assert', '    if False:\n        assert'),
    Bug("a held key lets a step go on all the same", "pure-woven", "engine/decide.py",
        "    if not node.key.waits:\n", "    if node.key.waits:\n        retry.start_again(draft, event.path, draft.run.steps[event.path])\n    else:\n"),
    Bug("a step that is stopped keeps its key", "pure-woven", "engine/open_steps.py",
        'run.active -= step.state in ("running", "ready")\n    if step.key is not None:', 'run.active -= step.state in ("running", "ready")\n    if step.key is not None and step.attempt:'),
    Bug("a run that ends keeps its keys", "pure-woven", "engine/fold.py",
        "    if run.keyed or run.waits:\n        for path in list(run.steps):\n            drop(run, path, effects)\n", ""),
    Bug("the deadline of a nested workflow takes a larger stop away", "pure-woven", "engine/decide.py",
        "        if not draft.is_stopped(path):\n            ends.end_nested_late", "        if True:\n            ends.end_nested_late"),
    Bug("the deadline of a nested workflow outlives it", "pure-woven", "engine/open_steps.py",
        '    run.timers.pop(timer_key("deadline", path), None)\n', ""),
    Bug("a nested workflow fails and leaves its steps open", "pure-woven", "engine/fold.py",
        "scope.open and not scope.is_choice", "scope.open and not scope.is_choice and not scope.is_nested"),
    Bug("a late success answers for others", "world-woven", "engine/fold_events.py",
        "    if step.target is not None:\n        return _answered(run, path, step, effects)\n    del steps[path]\n",
        "    if step.target is not None:\n        if step.key is not None:\n            let_go(run, path, step, event.output)\n"
        "            step.key = None\n        return _answered(run, path, step, effects)\n    del steps[path]\n"),
    Bug("a parked run is not made due when its turn comes", "world-woven", "store/sqlite/keys.py",
        '        self._run("make_due", at, no)\n', ""),
    Bug("nobody looks for a parked run whose turn has come", "world-woven", "runtime/door.py",
        "            if resident is None:\n                self.handler.is_due()\n", "            if resident is None:\n"),
    Bug("a run that waits for a key is woken without asking", "world-woven", "runtime/ownership.py",
        " or run.waits_for_key():", ":"),
    Bug("a failure passes the key to everybody", "world-woven", "store/sqlite/keys.py",
        "1 if end.output is None else ALL", "ALL"),
    Bug("a key is passed on to the newest who waits", "world-woven", "store/sqlite/sql/keys.sql",
        "ORDER BY pos LIMIT ?", "ORDER BY pos DESC LIMIT ?"),
    Bug("a cancelled waiter stays in line", "world-woven", "store/sqlite/keys.py",
        '        self._run("wait_no_more", no, path)\n        state =', "        state ="),
    Bug("an expired answer is given", "world-woven", "store/sqlite/sql/keys.sql",
        "WHERE key.expires_at <= excluded.created_at", "WHERE key.expires_at <= 0"),
    Bug("a held key is taken", "world-woven", "store/sqlite/sql/keys.sql",
        "WHERE key.expires_at <= excluded.created_at", "WHERE key.expires_at <= excluded.created_at OR key.output IS NULL"),
    Bug("the owner of a key waits for itself", "world-woven", "store/sqlite/keys.py",
        "if output is None and (holder, held_at) != (no, path):", "if output is None and (holder != no or path != held_at or self._db.changes() == 0):"),
    Bug("a verdict whose commit failed is forgotten", "world-woven", "engine/state.py",
        'step.reason == "key" or (step.state == "ready"', '(step.state == "ready"'),
    Bug("a rerun that was not driven at once does again what it takes over", "world-woven", "engine/fold_events.py",
        "    run.begun, run.taken = event.drive, dict(event.taken)\n", "    run.begun = event.drive\n"),
    Bug("a rerun begins at the beginning when it was not driven at once", "world-graph", "engine/decide.py",
        "        _begin(draft, run.first)\n", "        _begin(draft, None)\n"),
    Bug("a nested workflow is pinned to nothing", "world-woven", "runtime/plans.py",
        "        for used in whole.uses.values():\n            self.store_with(batch, tenant, used, used.version, now)\n", ""),
    # ------------------------------------------------------------------------------------------------------- graphs
    Bug("a visit gets the number of the one before", "pure-graph", "engine/draft.py",
        "visit = self.met(frame, to) + 1", "visit = self.met(frame, to) or 1"),
    Bug("visits are not remembered", "pure-graph", "engine/fold.py",
        ".visits[order.to] = order.visit\n", ".visits[order.to] = 1\n"),
    Bug("an inner graph writes into the outermost one", "pure-graph", "engine/fold.py",
        "    found = open_frame(run, order.frame).vars\n", '    open_frame(run, order.frame)\n    found = run.frames[""].vars\n'),
    Bug("what is written over still counts", "pure-graph", "engine/fold.py",
        "len(order.value) - (len(found[order.name]) if order.name in found else 0)", "len(order.value)"),
    Bug("variables of an inner graph count after its end", "pure-graph", "engine/frames.py",
        "        run.vars_bytes -= sum(map(len, frame.vars.values()))\n", ""),
    Bug("results that were gathered are kept", "pure-graph", "engine/frames.py",
        "    elif scope.is_gathered:\n", "    elif False:\n"),
    Bug("calls that failed leave their frames behind", "pure-graph", "engine/fold.py",
        "            drop_steps(run, order.path, effects)\n        drop_children(run, order.path, scope)\n", "            drop_steps(run, order.path, effects)\n"),
    Bug("fail_fast goes on", "pure-graph", "engine/scopes.py",
        "scope.next < scope.count and not (scope.failed and node.drains)", "scope.next < scope.count"),
    Bug("failed calls take their action before the edge for errors", "pure-graph", "engine/scopes.py",
        'for name in ("error", action, "default"):', 'for name in (action, "error", "default"):'),
    Bug("errors of calls are not kept", "pure-graph", "engine/scopes.py",
        "_write(draft, frame, path, post, value, gathered.errors)", "_write(draft, frame, path, post, value)"),
    Bug("errors of an earlier row are forgotten", "pure-graph", "engine/draft.py",
        "return (known.errors if known is not None else {}) | {", "return {"),
    Bug("calls that were never made count as results", "pure-graph", "engine/draft.py",
        "children(path, scope, scope.next)", "children(path, scope, scope.count)"),
    Bug("collect_errors leaves no holes", "pure-graph", "plan/flow_fan_out.py",
        'if keeps_holes or child["status"] == "completed"', 'if child["status"] == "completed"'),
    Bug("max_parallel is passed over", "pure-graph", "plan/flow.py",
        "at_once = node.max_parallel or limits.now.concurrency_max", "at_once = limits.now.concurrency_max"),
    Bug("a time-out takes the default edge before that for errors", "pure-graph", "plan/flow.py",
        'edges.get("timeout", error)', 'edges.get("timeout", default)'),
    Bug("nodes before a cycle count their visits", "pure-graph", "plan/flow.py",
        "for pairs in (arrows, {(target, source) for source, target in arrows}):", "for pairs in (arrows,):"),
    Bug("the params of the task win over those of a node", "pure-graph", "plan/flow_values.py",
        "        self.params = Merged(task, self._own)\n", "        self.params = Merged(task, {})\n"),
    Bug("a time-out says that it was an error", "pure-graph", "engine/ends.py",
        'named = ("timeout", "error") if error.kind in TIMEOUTS else ("error",)', 'named = ("error",)'),
    Bug("expressions see the variables as they were", "pure-graph", "engine/draft.py",
        "raw = self.vars.get((frame, name)) or (self.run.frames.get(frame) or NO_FRAME).vars.get(name)",
        "raw = (self.run.frames.get(frame) or NO_FRAME).vars.get(name) or self.vars.get((frame, name))"),
    Bug("the short way takes no action", "pure-graph", "plan/graph.py",
        "if node.post is not None or not isinstance(node, Call | Timer):", "if not isinstance(node, Call | Timer):"),
    Bug("an inner graph ends with the variables of the outer one too", "pure-graph", "engine/draft.py",
        "found = dict((self.run.frames.get(frame) or NO_FRAME).vars)",
        "found = {**self.run.frames[''].vars, **(self.run.frames.get(frame) or NO_FRAME).vars}"),
    Bug("a rerun counts visits from the beginning of the graph", "world-graph", "engine/draft.py",
        "(not frame and (self.first or self.run.first)) or ", ""),
    # ------------------------------------------------------------------------------------------------ jobs of workers
    Bug("who takes a run up loses what workers have", "world-graph", "runtime/ownership.py",
        "if (no, path, step.attempt) not in held and (path", "if (path"),
    Bug("a graceful stop takes jobs back from workers", "world-graph", "execution/dispatcher.py",
        "                continue  # its worker continues, and the next owner of the run waits for the result\n", "                pass\n"),
    Bug("a worker is told before its answer is durable", "world-graph", "execution/jobs.py",
        "        if not self._workers.is_answered(job):\n", "        if True:\n"),
    Bug("a job is given out before it is durable who has it", "world-graph", "workers/leases.py",
        "            await self._writes.durable()\n", "            pass\n"),
    Bug("an answer that could not be written is never waited for again", "world-graph", "runtime/restore.py",
        "        self._dispatch.rejoin_all()\n", ""),
    Bug("the time of a call is looked at while it is being stopped", "world-graph", "workers/assignment.py",
        "return min(self.lease_until, self.stop_until)", "return min(self.lease_until, self.call_until, self.stop_until)"),
    # ------------------------------------------------------------------------------------------------- waiting
    Bug("an answer that comes before its pause is forgotten", "races", "engine/fold_events.py",
        "        step.parked = answer\n", "        pass\n"),
    Bug("a pause does not look for the answer that is there", "races", "engine/waits.py",
        "    if step.target is not None or step.parked is not None:\n", "    if step.target is not None:\n"),
    Bug("an answer to a former attempt counts", "races", "engine/waits.py",
        "    if step is None or step.attempt != event.attempt or step.target is not None or step.wait is None:\n",
        "    if step is None or step.target is not None or step.wait is None:\n"),
    Bug("an answer to a former attempt is folded in", "races", "engine/fold_events.py",
        "    if step is None or step.attempt != event.attempt or step.target is not None:\n        return\n    answer",
        "    if step is None or step.target is not None:\n        return\n    answer"),
    Bug("a wait that is over may still expire", "races", "engine/open_steps.py",
        'for timer in ("expiry", "poll", "escalate"):', 'for timer in ("poll", "escalate"):'),
    Bug("a wait that is over is still asked for", "races", "engine/open_steps.py",
        'for timer in ("expiry", "poll", "escalate"):', 'for timer in ("expiry", "escalate"):'),
    Bug("the end of a wait is not counted", "races", "engine/open_steps.py", "    run.waits -= 1\n", ""),
    Bug("a step that is dropped leaves its wait open", "races", "engine/open_steps.py",
        "    if step.wait is not None:\n        close_wait(run, path, step, outcome, effects)\n", ""),
    Bug("an answer leaves its wait open", "races", "engine/fold_events.py",
        "    if step.wait is not None:\n        close_wait(run, path, step, by, effects)\n", ""),
    Bug("a signal that was kept is taken again and again", "races", "engine/waits.py",
        "        draft.decisions.append(TakeSignal(signal.number))\n", ""),
    Bug("a signal that nobody waits for is lost", "races", "engine/waits.py",
        "        draft.decisions.append(KeepSignal(event.name, event.value, event.correlation))\n", "        pass\n"),
    Bug("a signal is given to one and kept for others", "races", "engine/waits.py",
        "    elif not frames:\n        draft.decisions.append(KeepSignal(", "    if not frames:\n        draft.decisions.append(KeepSignal("),
    Bug("part of what is waited for is forgotten", "races", "engine/waits.py",
        "        draft.decisions.append(NoteAnswer(path, event.name, event.value))\n", "        pass\n"),
    Bug("one of several signals is enough for all", "races", "engine/waits.py",
        "    return bool(got) if node.mode != \"all\" else set(names) <= got.keys()\n", "    return bool(got)\n"),
    Bug("one yes is enough for a quorum", "races", "engine/waits.py",
        "    if len(agreed) >= node.need:\n", "    if agreed:\n"),
    Bug("a later failure does not count as a try", "races", "engine/fold_events.py",
        '        step.state, step.tries = "retrying", step.tries + 1\n        return\n    del run.steps[path]\n',
        '        step.state = "retrying"\n        return\n    del run.steps[path]\n'),
    Bug("a later failure does not count when it is decided on", "races", "engine/waits.py",
        "    final = retry.again_or_fail(draft, path, step.tries + 1, error)\n",
        "    final = retry.again_or_fail(draft, path, step.tries, error)\n"),
    Bug("a signal does not wake a condition", "races", "engine/waits.py",
        "    if frames:\n        _recheck(draft)\n", ""),
    # ------------------------------------------------------------------------------- waiting, in the runtime and the store
    Bug("a pause does not look for what came before it", "world-waits", "waits/callbacks.py",
        "        search = self._tasks.begin(self.take_early, resident.run.tenant, resident.run.id, path, task_id)\n", "        return\n"),
    Bug("who opens the file does not look for what came early", "world-waits", "waits/callbacks.py",
        "        if drive:\n            await self.search()\n", "        pass\n"),
    Bug("after commits failed nobody looks for what came early", "world-waits", "waits/callbacks.py",
        "    async def restored(self) -> None:\n        await self.search()\n", ""),
    Bug("one answer that cannot be given now ends the look for others", "world-waits", "waits/callbacks.py",
        "            await logged(self.take_early, row.tenant, row.id, wait.path, wait.name)\n",
        "            await self.take_early(row.tenant, row.id, wait.path, wait.name)\n"),
    Bug("an answer that was kept is given again and again", "world-waits", "waits/callbacks.py",
        "                batch.taken_early.append(taken._replace(no=row.no))\n", "                pass\n"),
    Bug("an answer that was kept goes before it is given", "world-waits", "waits/callbacks.py",
        "        await self._runs.apply(resident, event, beside=beside)\n"
        "        return Resumed(not is_early, \"parked\" if is_early else \"resumed\", row.id)\n",
        "        if taken is not None:\n            await self._gate.commit(_without(taken))\n            taken = None\n"
        "        await self._runs.apply(resident, event, beside=beside)\n"
        "        return Resumed(not is_early, \"parked\" if is_early else \"resumed\", row.id)\n"),
    Bug("answers for two runs are kept under one name", "world-waits", "waits/callbacks.py",
        "            taken = TakenEarly(tenant, task_id, run_id or \"\")\n",
        "            taken = TakenEarly(tenant, task_id, \"\")\n"),
    Bug("an answer is taken after its time", "world-waits", "waits/callbacks.py",
        "        if step.wait is not None and is_new and _is_past(step.wait.until, self._clock.now()):\n",
        "        if False:\n"),
    Bug("who answers again is told before the first answer is durable", "world-waits", "waits/callbacks.py",
        "        if is_early and step.parked is not None:\n            await all_durable(self._door)\n",
        "        if is_early and step.parked is not None:\n"),
    Bug("a second answer before the pause replaces the first", "world-waits", "waits/callbacks.py",
        "        if is_early and step.parked is not None:\n", "        if False:\n"),
    Bug("who is asked later may answer at once", "world-waits", "waits/approvals.py",
        "        is_escalated = timer_key(\"escalate\", found.path) not in resident.run.timers\n",
        "        is_escalated = True\n"),
    Bug("somebody answers twice", "world-waits", "waits/approvals.py",
        "        if by and by in step.wait.got:\n", "        if False:\n"),
    Bug("an answered attempt is lost with its process", "world-waits", "runtime/ownership.py",
        "if step.parked is not None and step.target is None\n", "if False\n"),
    Bug("an answered attempt is given back at a stop", "world-waits", "execution/dispatcher.py",
        "            if has_answer(self.door.residents.get(no), path):\n", "            if False:\n"),
    Bug("the end of a wait is not shown", "world-waits", "runtime/door.py",
        "                batch.closed_waits.append(WaitClosed(at, outcome, run.no, path, attempt, wait.kind))\n",
        "                pass\n"),
    Bug("a run is woken with all its timers", "world-waits", "runtime/wakes.py",
        "for key, at in self._delays.hours(run).items() if at <= now]", "for key, at in self._delays.hours(run).items()]"),
    Bug("a clock that was set forward is not noticed", "world-waits", "runtime/timers.py",
        "                min(max(0.0, delay), self.sleep_seconds_max), self._tick\n",
        "                max(0.0, delay), self._tick\n"),
    Bug("a run that was cancelled tells nobody", "world-waits", "runtime/door.py",
        "        if run.destinations:\n",
        "        if run.destinations and run.status != \"cancelled\":\n"),
    Bug("deliveries that a crash left behind are not looked for", "world-waits", "deliveries/outbox.py",
        "        if drive:\n            self.query()\n", ""),
    Bug("nobody wakes up for a delivery that was put off", "world-waits", "deliveries/outbox.py",
        "                self.timers.due_in_store(await self._store.next_callback_delivery(queried_at))\n", ""),
    Bug("a delivery is sent again before its result is durable", "world-waits", "deliveries/outbox.py",
        "                await self.writes.durable()\n                break\n",
        "                self.writes.soon()\n                break\n"),
    Bug("a delivery is put off for as long each time", "world-waits", "deliveries/destinations.py",
        "DELAYS_SECS[delivery.tries] * 1000", "DELAYS_SECS[0] * 1000"),
    Bug("a delivery is called anew for each try", "world-waits", "deliveries/message.py",
        "        \"webhook-id\": delivery.id,\n", "        \"webhook-id\": f\"{delivery.id}{delivery.tries or ''}\",\n"),
    Bug("a delivery that is not wanted is tried again", "world-waits", "deliveries/destinations.py",
        "    if for_good or delivery.tries >= len(DELAYS_SECS):\n", "    if delivery.tries >= len(DELAYS_SECS):\n"),
    Bug("deliveries to one address overtake each other", "world-waits", "store/sqlite/sql/outbox.sql",
        "   AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.run = o.run AND e.n < o.n AND e.url = o.url AND e.done_at IS NULL)\n",
        ""),
    Bug("a result of a delivery that could not be written is forgotten", "world-waits", "runtime/writes.py",
        "        new.tried[:0], new.heard_workers[:0] = old.tried, old.heard_workers\n",
        "        new.heard_workers[:0] = old.heard_workers\n"),
    Bug("one result that cannot be written ends the telling", "world-waits", "deliveries/outbox.py",
        "            except Exception:  # noqa: BLE001  # it is kept", "            except TimeoutError:  # it is kept"),
    # ------------------------------------------------------------------------------------------------- schedules
    Bug("cursor and run are two commits", "world-schedules", "triggers/fires.py",
        "return one.firing(entry(one.key, occasion.by, \"fired\", reason, new.created_at, detail, new), run=new)",
        "asyncio.get_running_loop().create_task(self.commit([one.firing()]))\n"
        "        return Firing((entry(one.key, occasion.by, \"fired\", reason, new.created_at, detail, new),), no=new.no)"),
    Bug("the grace counts from when the engine comes to it", "world-schedules", "schedule/due.py",
        "        for outage in self.outages:\n            until = outage.woke_at - grace - 1\n",
        "        if self.now - tick.at > grace:\n            return self.now\n"
        "        for outage in self.outages:\n            until = outage.woke_at - grace - 1\n"),
    Bug("an edit resets the cursor", "world-schedules", "triggers/definitions.py",
        "                return decided.firing()\n",
        "                fresh = control.registered(now)\n"
        "                return decided.firing(cursor=msgspec.structs.replace(fresh, revision=answer.cursor.revision))\n"),
    Bug("open runs are counted in memory", "world-schedules", "triggers/fires.py",
        "return Running(state.open, state.catchups, self.run_counts[key], self._newest.get(key))",
        "count = self.run_counts[key]\n"
        "        return Running(min(state.open, count), min(state.catchups, count), count, self._newest.get(key))"),
    Bug("an event at the limit starts a run", "world-schedules", "triggers/occurrences.py",
        "if open_runs >= limit or waiting:", "if open_runs > limit or waiting:"),
)  # fmt: skip


def patched(bug: Bug, folder: Path) -> None:
    """A package with the bug in one file and links to all else, also to what was compiled: to copy or compile the whole
    package takes longer than most hunts."""
    source, target = ROOT / "holdfast", folder / "holdfast"
    for part in Path(bug.file).parts:
        target.mkdir()
        for each in source.iterdir():
            if each.name != part:
                (target / each.name).symlink_to(each)
        source, target = source / part, target / part
    target.write_text(source.read_text(encoding="utf-8").replace(bug.old, bug.new), encoding="utf-8")
    compiled = target.parent / "__pycache__"
    compiled.unlink(missing_ok=True)
    compiled.mkdir()
    for each in (source.parent / "__pycache__").glob("*.pyc"):
        if not each.name.startswith(f"{source.stem}.") and "-pytest-" not in each.name:
            (compiled / each.name).symlink_to(each)


def occurrences(bug: Bug) -> int:
    return (ROOT / "holdfast" / bug.file).read_text(encoding="utf-8").count(bug.old)


def hunt(bug: Bug, seeds: Sequence[int]) -> tuple[int, str] | None:
    """The first of the seeds that finds a bug, and what it says of it."""
    words = [str(seed) for seed in seeds]
    program = Program("tests.sim.hunt", [bug.name, *words], cwd=ROOT, env=dict(os.environ))
    out, err = program.communicate(timeout=HUNT_SECONDS_MAX)
    if program.wait():
        raise RuntimeError(err)
    found = json.loads(out)
    if found is None:
        found = _hunt_in_a_copy(bug, words)
    return (found[0][0], found[0][1]) if found else None


def _hunt_in_a_copy(bug: Bug, seeds: list[str]) -> list[tuple[int, str]]:
    """Of SQL, of constants and of functions that the bug takes away: by a process that imports a patched package."""
    with tempfile.TemporaryDirectory() as folder:
        patched(bug, Path(folder))
        command = [sys.executable, "-BP", "-c", HUNT, folder, str(ROOT), bug.layer, *seeds]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=folder, timeout=HUNT_SECONDS_MAX, check=False
        )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return list(json.loads(done.stdout))


def find(bug: Bug) -> Iterator[tuple[int, str]]:
    """The seeds that find a bug, and what each says of it. A seed that fails without the bug too is no proof.

    The seeds that found it last time are asked first. What they say is looked at anew.
    """
    known = known_seeds().get(bug.name, [])
    seeds = [*known, *(seed for seed in range(SEEDS_MAX) if seed not in known)]
    while (found := hunt(bug, seeds)) is not None:
        if not fails_anyway(bug.layer, found[0]):
            yield found
        seeds = seeds[seeds.index(found[0]) + 1 :]


@cache
def known_seeds() -> dict[str, list[int]]:
    """Bug → seeds that found it when `python -m tests.sim.planted --write` was last asked."""
    lines = KNOWN.read_text(encoding="utf-8").splitlines() if KNOWN.exists() else []
    words = (line.partition(" ") for line in lines)
    return {name: [int(seed) for seed in seeds.split(",")] for seeds, _, name in words}


def fails_anyway(layer: str, seed: int) -> bool:
    with ONE_AT_A_TIME:
        return bool(try_seed(layer, seed).failures)


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--write"]
    chosen = tuple(bug for bug in BUGS if not names or any(name in bug.name for name in names))
    is_written = "--write" in sys.argv
    known = dict(known_seeds())

    def found_by(bug: Bug) -> list[tuple[int, str]]:
        return list(islice(find(bug), KNOWN_MAX if is_written else 1))

    with ThreadPoolExecutor(2) as pool:
        for bug, found in zip(chosen, pool.map(found_by, chosen), strict=True):
            what = f"seed {found[0][0]}: {found[0][1][:110]}" if found else "NOT FOUND"
            print(f"{bug.layer:5} x{occurrences(bug)} {bug.name}: {what}", flush=True)
            if found:
                known[bug.name] = [seed for seed, _ in found]
            if is_written:
                write_known(known)


def write_known(known: dict[str, list[int]]) -> None:
    lines = [f"{','.join(map(str, known[bug.name]))} {bug.name}\n" for bug in BUGS if bug.name in known]
    KNOWN.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
