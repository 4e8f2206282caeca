"""Tasks of other MCP servers (extension io.modelcontextprotocol/tasks): what a client sends and receives.

Imports the SDK, so it is imported with the first connection.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from mcp import types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from pydantic import Field

from holdfast.mcp.remote_errors import TaskBegun

TASKS = "io.modelcontextprotocol/tasks"


class Begun(types.Result):
    """A call became a task."""

    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")


class State(types.Result):
    """How far a task is: working, input_required, completed, failed or cancelled."""

    status: str
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    status_message: str | None = Field(alias="statusMessage", default=None)


class TaskParams(types.RequestParams):
    task_id: str = Field(alias="taskId")


class TaskRequest(types.Request[TaskParams, str]):
    name_param: ClassVar[str | None] = "taskId"


def request(method: str, task_id: str) -> TaskRequest:
    return TaskRequest(method=f"tasks/{method}", params=TaskParams(taskId=task_id))


class Tasks(ClientExtension):
    """Tells servers that their calls may become tasks. Such a task is not awaited here: it is followed as a pending call."""

    identifier = TASKS

    def claims(self) -> tuple[ResultClaim[Any], ...]:
        return (ResultClaim(result_type="task", model=Begun, resolve=_begun),)


async def _begun(result: Begun, context: ClaimContext) -> types.CallToolResult:
    raise TaskBegun(result.task_id)


def result_of(state: State) -> types.CallToolResult:
    return types.CallToolResult.model_validate(state.result or {"content": []})
