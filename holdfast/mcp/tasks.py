"""Tasks of MCP (extension io.modelcontextprotocol/tasks): a task is a run, and its id is that of the run.

    tasks/get ──► working · input_required (with questions) · completed (with the result) · failed · cancelled
    tasks/update ──► answers to the questions          tasks/cancel ──► the run is cancelled

Knows nothing that the run does not know: a task goes on after a crash, under the same id.
"""

from __future__ import annotations

from typing import Any, Final

from mcp import types
from mcp.shared.exceptions import MCPError
from pydantic import Field

from holdfast.api.services import Services
from holdfast.api.visible import seen
from holdfast.errors import NotFound
from holdfast.mcp.calls import Calls
from holdfast.mcp.questions import Questions
from holdfast.mcp.status import task_of
from holdfast.mcp.talk import TASKS, Context, Talk, invalid_params
from holdfast.values import TERMINAL
from holdfast.views.run_view import RunView

NAME_HEADER: Final = "mcp-name"


class TaskParams(types.RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses", default_factory=dict)


class Tasks:
    def __init__(self, services: Services, calls: Calls) -> None:
        self._services, self._calls = services, calls
        self._questions = Questions(services)

    async def get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        talk = self._opened(context, params, "read")
        view = await self._view(talk, params.task_id)
        requests = {} if view.status in TERMINAL else self._questions.of(talk, view)
        found = task_of(view, self._services.settings.retention_days, asks_caller=bool(requests))
        if found["status"] == "input_required":
            found["inputRequests"] = requests
        elif found["status"] == "completed":
            found["result"] = await self._calls.finished(talk, view)
        elif found["status"] == "failed":
            found["error"] = _error(view)
        return found

    async def update(self, context: Context, params: UpdateParams) -> dict[str, Any]:
        """Give answers. Those to questions that are not open (any longer) are ignored: the task says what counted."""
        talk = self._opened(context, params, "read")
        view = await self._view(talk, params.task_id)
        if any(wait.path in params.input_responses and wait.kind == "approval" for wait in view.waits):
            talk.need("approve")
        await self._questions.answer(talk, view, params.input_responses)
        return {}

    async def cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Cancel the run. A finished run stays as it is, and that is no error."""
        talk = self._opened(context, params, "run")
        view = await self._view(talk, params.task_id)
        if view.status not in TERMINAL:
            await self._services.commands.cancel(talk.tenant, params.task_id, "cancelled by an MCP client")
        return {}

    def _opened(self, context: Context, params: TaskParams, scope: str) -> Talk:
        talk = Talk(context)
        if not talk.is_modern:
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found", context.method)
        talk.require(TASKS)
        named = context.request.headers.get(NAME_HEADER) if context.request is not None else None
        if named is not None and named.strip() != params.task_id:
            raise MCPError(types.HEADER_MISMATCH, "the header Mcp-Name names another task than the body")
        talk.need(scope)
        return talk

    async def _view(self, talk: Talk, task_id: str) -> RunView:
        try:
            return await seen(self._services, talk.caller.principal).queries.run(talk.tenant, task_id)
        except NotFound:
            raise invalid_params(f"there is no task {task_id[:100]!a}") from None


def _error(view: RunView) -> dict[str, Any]:
    message = view.error.message if view.error is not None else "the server was restarted while the task ran"
    kind = view.error.kind if view.error is not None else view.status
    return {"code": types.INTERNAL_ERROR, "message": message, "data": {"kind": kind, "run_id": view.run_id}}
