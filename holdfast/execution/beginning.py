"""A committed start becomes an attempt, or goes elsewhere: to a queue, back to the engine, or to a worker.

Knows what a start needs: a run that still waits for it, a lease that is trusted, a tool, arguments, a thread or process. Does not
know slots, or how an attempt is performed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from msgspec import DecodeError, Raw
from msgspec.structs import astuple

from holdfast.engine.events import AttemptReleased, StepFailed
from holdfast.errors import LimitExceeded
from holdfast.execution.attempt import AtHand, Attempt, Key, Outcomes
from holdfast.execution.contexts import Contexts
from holdfast.execution.crash_isolation import CrashIsolation
from holdfast.execution.deadlines import Deadlines
from holdfast.execution.inputs import Inputs, LargeArguments
from holdfast.execution.jobs import Jobs
from holdfast.execution.queues import Queues
from holdfast.plan.graph import Call
from holdfast.runtime.door import Door
from holdfast.runtime.large_arguments import COUNTED_BYTES
from holdfast.runtime.resident_run import ResidentRun
from holdfast.tools.registry import Registry, Tool
from holdfast.tools.secrets import SecretUnavailable
from holdfast.values import decode
from holdfast.workers.service import Workers

log = logging.getLogger("holdfast")

LEASE_LOOK_SECONDS: Final = 1.0  # between two looks at a lease that may have expired


class Beginning:
    """`again` puts a start back into the queue, `perform` gives an attempt that waits by nature a task of its own."""

    def __init__(
        self,
        door: Door,
        registry: Registry,
        workers: Workers,
        inputs: Inputs,
        outcomes: Outcomes,
        contexts: Contexts,
        jobs: Jobs,
        isolation: CrashIsolation,
        deadlines: Deadlines,
        queues: Queues,
        attempts: dict[Key, Attempt],
        *,
        may_start: Callable[[], bool] | None,
        again: Callable[[ResidentRun, str, int], None],
        perform: Callable[[Attempt], None],
    ) -> None:
        self._door, self._registry, self._workers = door, registry, workers
        self._inputs, self._outcomes, self._contexts, self._jobs = inputs, outcomes, contexts, jobs
        self._isolation, self._deadlines, self._attempts = isolation, deadlines, attempts
        self._lines, self._large = queues.lines, queues.large
        self._may_start, self._again, self._perform = may_start, again, perform

    def take_up(self, hand: AtHand, resident: ResidentRun, path: str, number: int) -> bool:
        """Prepare the runner's next call. A bare one needs no Attempt."""
        way = resident.open_call
        is_sure = way is not None and way.name == path
        call = way.call if is_sure else _bare_call(resident, path, number)  # type: ignore[union-attr]
        if call is not None and call.is_bare and self._may_start is None and self._isolation.running is None:
            tool = self._registry.get(call.target)
            if tool is not None and tool.is_plain and not tool.takes_callback:
                try:
                    hand.args = _arguments(tool, resident.run.steps[path].inputs)
                except (ValueError, LimitExceeded) as error:
                    self.refuse(resident, path, number, error)
                    return False
                hand.resident, hand.path, hand.number = resident, path, number
                hand.tool, hand.attempt = tool, None
                return True
        attempt = self.begin(resident, path, number)
        if attempt is None:
            return False
        hand.tool, hand.args, hand.attempt = attempt.tool, attempt.args, attempt
        return True

    def begin(self, resident: ResidentRun, path: str, number: int) -> Attempt | None:
        """Turn a committed start into an attempt, if the run still waits for it and the tool is registered here.

        The caller must perform a returned attempt at once; an attempt that waits by nature has got a task.
        """
        run = resident.run
        step = run.steps.get(path)
        if step is None or step.attempt != number or step.state != "running":
            return None  # stopped or taken back before it started
        if self._may_start is not None and not self._may_start():
            asyncio.get_running_loop().call_later(LEASE_LOOK_SECONDS, self._again, resident, path, number)
            return None
        if step.target is not None:
            self._door.apply(resident, AttemptReleased(path, number, "stopping"))
            return None
        node: Call = resident.plan.root.nodes.get(path) or resident.plan.node(path)  # type: ignore[assignment]  # others are not started
        if node.service is not None:
            self.begin_job(resident, node, path, number)
            return None
        tool = self._registry.get(node.target) or self._registry.remote(node.target)
        if tool is None:
            self._give_back(resident, path, number, node.target)
            return None
        try:
            args = self._inputs.of_tool(resident, node, tool, path, number)
        except LargeArguments as large:
            self._begin_large(resident, node, tool, path, number, large.size)
            return None
        except (ValueError, LimitExceeded, SecretUnavailable) as error:
            self.refuse(resident, path, number, error)
            return None
        attempt = Attempt((run.no, path), number, tool, args, run.tenant)
        if tool.is_plain and node.is_plain and self._isolation.running is None:
            return attempt  # if it never waits, no other part can see it
        return self._launch(resident, node, attempt)

    def _begin_large(
        self, resident: ResidentRun, node: Call, tool: Tool, path: str, number: int, size: int
    ) -> None:
        """Begin an attempt whose arguments take room. They are opened in its own task."""
        run, line = resident.run, self._lines.get(tool.runs_in)
        if line is not None and line.taken >= line.limit:
            return line.waiting.append((run.no, path, number))
        if not self._large.take(size, (run.no, path, number)):
            return None
        try:
            given = self._inputs.text_of_tool(resident, path)
        except (ValueError, LimitExceeded, SecretUnavailable) as error:
            self._large.give_back(size)
            return self.refuse(resident, path, number, error)
        attempt = Attempt((run.no, path), number, tool, {}, run.tenant, large_bytes=size, given=given)
        attempt.bind = self._inputs.binder(resident, node, tool, path, number)
        self._launch(resident, node, attempt)

    def begin_job(self, resident: ResidentRun, node: Call, path: str, number: int) -> None:
        """Pass the call of a service to the workers."""
        try:
            attempt = self._jobs.attempt(resident, node, path, number)
        except (ValueError, LimitExceeded, SecretUnavailable) as error:
            return self.refuse(resident, path, number, error)
        if attempt.job is not None and self._workers.lacks(attempt.job):
            return self._jobs.let_wait(attempt.job, AttemptReleased(path, number, "no_worker", waits=True))
        self._launch(resident, node, attempt)

    def refuse(self, resident: ResidentRun, path: str, number: int, error: Exception) -> None:
        """Fail the attempt before it starts, because its inputs do not match the call."""
        self._door.apply(resident, StepFailed(path, number, self._outcomes.described(error, path, number)))

    def _give_back(self, resident: ResidentRun, path: str, number: int, target: str) -> None:
        if not resident.lacks:
            log.warning(
                "run %s: step %s waits for the tool %r, which is not registered here",
                resident.run.id,
                path,
                target,
            )
        resident.lacks, resident.is_settled = True, False
        self._door.apply(resident, AttemptReleased(path, number, "no_tool", waits=True))

    def _launch(self, resident: ResidentRun, node: Call, attempt: Attempt) -> Attempt | None:
        run, tool, key = resident.run, attempt.tool, attempt.key
        line = self._lines.get(tool.runs_in)
        if line is not None:
            if line.taken >= line.limit:
                line.waiting.append((run.no, attempt.path, attempt.number))
                return None
            line.taken += 1
        self._attempts[key], attempt.is_known = attempt, True
        if tool.context is not None or tool.isolated:
            attempt.context = self._contexts.of(run, attempt)
            if tool.context is not None and not tool.isolated and attempt.given is None:
                attempt.args[tool.context] = attempt.context
        attempt.answer = node.answer
        if node.fails_on_crash:
            attempt.only_once = True
        if node.timeout_ms is not None:
            self._deadlines.add(attempt, node.timeout_ms)
        if self._isolation.running == key:
            attempt.is_isolated = True
        if not tool.suspends and attempt.given is None:
            return attempt
        self._perform(attempt)
        return None


def _arguments(tool: Tool, inputs: Raw) -> tuple[Any, ...] | dict[str, Any]:
    if tool.decode is not None:
        try:
            return astuple(tool.decode(inputs))
        except DecodeError:
            pass  # `bind` converts them, or says what is wrong
    return tool.bind(decode(inputs))


def _bare_call(resident: ResidentRun, path: str, number: int) -> Call | None:
    """The call of a start that is still wanted and whose inputs are its arguments as they are."""
    step = resident.run.steps.get(path)
    if step is None or step.attempt != number or step.state != "running" or step.target is not None:
        return None
    node = resident.plan.root.nodes.get(path) or resident.plan.node(path)
    if type(node) is not Call or not node.is_bare or len(step.inputs) > COUNTED_BYTES:
        return None
    return node if bytes(step.inputs).find(b'"$') < 0 else None
