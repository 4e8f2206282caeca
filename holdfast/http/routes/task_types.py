"""Bodies, queries and responses of the task API, with the names of its existing clients."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from holdfast import limits
from holdfast.api.types import ID_CHARS_MAX, PAGE, PAGE_MAX, Name, Text
from holdfast.api.types.common import Either
from holdfast.errors import Problem
from holdfast.views.tasks import Task
from holdfast.workers.worker import Service

PAGES_MAX: Final = 1_000_000
TTL_SECS_MAX: Final = 86_400

# A client may send every key that it knows: zero and the empty text say nothing then.
Version = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
TaskStatus = Literal["pending", "running", "completed", "failed", "canceling", "canceled"]


class NewFlow(msgspec.Struct, frozen=True):
    """If the name exists, the response is the id of the existing flow."""

    name: Name
    description: str = ""


class NewVersion(msgspec.Struct, frozen=True):
    """The definition as an object, or as JSON or YAML text. Default of `version`, also for 0: the highest number plus one."""

    flow_id: Text
    version: Version = 0
    definition: dict[str, Any] | str | None = None
    definition_json: dict[str, Any] | str | None = None
    definition_yaml: str | None = None
    status: Literal["published", "draft", ""] = "published"

    EITHER: ClassVar[Either] = {"definition": (), "definition_json": (), "definition_yaml": ()}


class NewTask(msgspec.Struct, frozen=True):
    """Default of `version`, also for 0: the published one. A repeated `request_id` returns the id of the first task."""

    flow_id: Text
    version: Version = 0
    params: dict[str, Any] | None = None
    params_json: dict[str, Any] | str | None = None
    request_id: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)] = ""


class TaskName(msgspec.Struct, frozen=True):
    id: str | None = None
    task_id: str | None = None


class Signal(msgspec.Struct, frozen=True):
    """Writes one key of the task's shared state."""

    task_id: Text
    key: Name
    value: Any = None


class NewWorker(msgspec.Struct, frozen=True):
    """Registering the same id again replaces the earlier registration. A worker of type `pull` has no url: it fetches its jobs."""

    id: Name
    services: Annotated[list[Name | Service], msgspec.Meta(min_length=1)]
    url: str | None = None
    type: Literal["http", "pull"] = "http"


class Heartbeat(msgspec.Struct, frozen=True):
    """A worker is identified by its id, or else by its url."""

    id: str | None = None
    url: str | None = None
    load: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0

    EITHER: ClassVar[Either] = {"id": (), "url": ()}


class TasksQuery(msgspec.Struct, frozen=True):
    status: TaskStatus | Literal[""] = ""
    flow_version_id: str = ""
    page: Annotated[int, msgspec.Meta(ge=1, le=PAGES_MAX)] = 1
    page_size: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE


class TaskQuery(msgspec.Struct, frozen=True):
    id: Text


class RunsQuery(msgspec.Struct, frozen=True):
    """If there are more items than fit into one response, its Link header has the URL of the `next` page."""

    task_id: Text
    cursor: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.DEFAULTS.node_runs_max)] = (
        limits.DEFAULTS.node_runs_max
    )


class WorkersQuery(msgspec.Struct, frozen=True):
    """`ttl`: workers that sent a heartbeat within this many seconds; 0: all live workers."""

    service: str = ""
    ttl: Annotated[int, msgspec.Meta(ge=0, le=TTL_SECS_MAX)] = 0


class ServiceQuery(msgspec.Struct, frozen=True):
    service: Text


class Id(msgspec.Struct, frozen=True):
    id: str


class Ok(msgspec.Struct, frozen=True):
    ok: Literal["1"] = "1"


class TaskPage(msgspec.Struct, frozen=True):
    data: list[Task]
    total: int
    page: int
    size: int


class WorkerLine(msgspec.Struct, frozen=True):
    id: str
    url: str
    services: list[str]
    load: int
    last_heartbeat: int
    status: Literal["online", "offline"]
    type: Literal["http", "pull"]


class Trouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the request was refused. `details` lists every problem of a definition with its location."""

    error: str
    message: str = ""
    details: list[Problem] = []
