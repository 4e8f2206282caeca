"""Writes docs/reference from the code, and the schema of a new database from the migrations: run `python docs/generate.py` after a change
of keys, commands, errors, limits or settings, and after a new migration.

Knows where the truth about each of them stands, and adds the sentences that no code has, from words.toml. tests/docs compares what it would
write with what is there.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import apsw
import msgspec

import holdfast
from holdfast import config, errors, testing
from holdfast import limits as bounds
from holdfast.api import types as wire
from holdfast.cli import commands, help, init  # noqa: A004  # its own name for the texts of --help
from holdfast.execution.dispatcher import ATTEMPTS_MAX, THREADS_MAX
from holdfast.http import openapi, serve
from holdfast.http.routes import task_api as centre
from holdfast.spec.field_types import ListOf, Nested, Table, fields_of
from holdfast.spec.flow_keys import EDGE_KEYS, FLOW_KEYS, FLOW_KINDS, NODE_KEYS, FlowKind
from holdfast.spec.flow_nodes import NO_POST, NO_PREP, FlowDefinition, FlowNode
from holdfast.spec.policy import NEVER_RETRIED, StepPolicy
from holdfast.spec.step_keys import ANSWER_KEYS, IMPLIED_KINDS, KINDS, POLICY_KEYS, SPEC_KEYS, STEP_KEYS, Kind
from holdfast.spec.steps import Answer, Definition
from holdfast.store.statements import migrations
from holdfast.tools.registry import Registry

HERE: Final = Path(__file__).parent / "reference"
HEAD: Final = "<!-- Written by docs/generate.py from the code. Change the code, then run it again. -->\n"
SCHEMA: Final = Path(__file__).parents[1] / "holdfast" / "store" / "sqlite" / "sql" / "schema.sql"
SCHEMA_HEAD: Final = "-- What a new database is made of. Written by docs/generate.py from migrations/: add a migration, then run it again.\n"
MADE: Final = """
SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL
 ORDER BY CASE type WHEN 'table' THEN 1 WHEN 'index' THEN 2 WHEN 'trigger' THEN 3 ELSE 4 END, rowid
"""
OTHER_MEDIA: Final = {
    "application/yaml": "YAML",
    "application/x-www-form-urlencoded": "a form that was filled in",
}

# ------------------------------------------------------------------------------------------ what no code says

WORDS: Final = tomllib.loads((Path(__file__).parent / "words.toml").read_text("utf-8"))
OUTPUTS: Final[dict[str, str]] = WORDS["outputs"]
RESULTS: Final[dict[str, str]] = WORDS["results"]
PROBLEMS: Final[dict[str, str]] = WORDS["problems"]
ERROR_KINDS: Final[dict[str, str]] = WORDS["error_kinds"]
SETTINGS: Final[dict[str, str]] = WORDS["settings"]
LIMITS: Final[dict[str, dict[str, str]]] = WORDS["limits"]
FIXED_LIMITS: Final[dict[str, tuple[str, str]]] = WORDS["fixed"]
NOT_PUBLIC: Final = {
    *(
        f"Context.{name}"
        for name in ("cancel", "close", "made_workdir", "planned_workdir", "use_workdir", "relay")
    ),
    "WorkflowSpec.from_stored",
    "FlowSpec.from_stored",
}
CLASSES: Final = (
    "Holdfast",
    "RunHandle",
    "run_sync",
    "tool",
    "Context",
    "ToolError",
    "WorkflowSpec",
    "FlowSpec",
    "WorkflowCatalog",
    "Client",
    "SyncClient",
)
RECORDS: Final = (
    "RunInfo",
    "StepInfo",
    "RunEvent",
    "Cancellation",
    "Resumption",
    "Problem",
    "WorkflowStep",
    "StepPolicy",
    "RetryPolicy",
    "BackoffKind",
    "WorkflowStatus",
    "WorkflowJob",
)
MADE_BY_USERS: Final = ("Holdfast", "ToolError", "WorkflowCatalog", "Client", "SyncClient")
ATTRIBUTES: Final = {
    "RunHandle": ("id",),
    "Context": ("run_id", "path", "attempt", "idempotency_key"),
    "WorkflowSpec": ("name", "description", "inputs", "steps", "output", "labels"),
    "FlowSpec": ("name", "description", "inputs", "start", "nodes", "edges", "labels"),
    "FakeTool": ("calls",),
}

# ------------------------------------------------------------------------------------------------ the pages


def notation() -> str:
    parts = [
        "# The steps notation\n",
        (
            "A workflow is one YAML or JSON file. `holdfast schema` prints the same as a JSON Schema for editors. YAML is read as JSON "
            "is meant: no anchors, aliases, tags or merge keys, no key twice, `yes` and `on` are texts. Unknown keys are errors. "
            "A key that may be left out may be null.\n"
        ),
        "## The workflow\n",
        _table(SPEC_KEYS, _defaults(Definition)),
        _inner(SPEC_KEYS),
        "## Any step\n",
        _table(STEP_KEYS, {}),
        f"The kind may be left out where other keys say it: {_implied()}.\n",
        "## Any call\n",
        (
            "Steps of the kinds `tool`, `tool_remote` and `service` may have these too. On a `foreach` or `parallel`, `timeout_secs` and "
            "`retry` are the defaults of the calls inside; each of the two is inherited by itself.\n"
        ),
        _table(POLICY_KEYS | ANSWER_KEYS, _defaults(StepPolicy) | _defaults(Answer)),
        _inner(POLICY_KEYS | ANSWER_KEYS),
        "## Kinds\n",
        *(_kind(name, kind) for name, kind in KINDS.items()),
        TEMPLATES,
    ]
    return "\n".join(parts)


def graph() -> str:
    parts = [
        "# The graph notation\n",
        (
            "A workflow may also be written as nodes and edges, in one JSON or YAML file; `holdfast schema --graph` prints the same as a "
            "JSON Schema for editors. A mapping with `nodes` or `start` is a graph, any other is a list of steps. Unknown keys are errors. "
            "A key that may be left out may be null, and a text that may be left out may be empty.\n"
        ),
        GRAPH_EXAMPLE,
        "## The graph\n",
        _table(FLOW_KEYS, _defaults(FlowDefinition)),
        _edges(),
        GRAPH_STATE,
        "## Any node\n",
        _table(NODE_KEYS, _defaults(FlowNode)),
        _inner(NODE_KEYS),
        GRAPH_ACTIONS,
        "## Kinds\n",
        *(_flow_kind(name, kind) for name, kind in FLOW_KINDS.items()),
        GRAPH_CONDITIONS,
    ]
    return "\n".join(parts)


def cli() -> str:
    parts = ["# The command line\n", f"```text\n{help.of_everything()}```\n"]
    for command in commands.COMMANDS.values():
        parts += [f"## holdfast {command.name}\n", f"```text\n{help.of(command)}```\n"]
    return "\n".join(parts)


def errors_page() -> str:
    classes: list[type[errors.HoldfastError]] = [
        one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.HoldfastError)
    ]
    raised: list[type[errors.HoldfastError]] = [*classes, config.InvalidSettings]
    rows = [
        (f"`{one.__name__}`", f"`{one.code}`", f"`{one.__mro__[1].__name__}`", _first(one.__doc__))
        for one in raised
    ]
    kinds = [
        (f"`{kind}`", "no" if kind in NEVER_RETRIED else "yes", says) for kind, says in ERROR_KINDS.items()
    ]
    return "\n".join(
        [
            "# Errors\n",
            "Each has a stable code. `--json` gives it as `error`; messages may change between releases, codes do not.\n",
            "## What Holdfast raises\n",
            _rows(("class", "code", "is a", "when"), rows),
            (
                "`InvalidSpec`, `InvalidInputs` and `InvalidSettings` have `problems`: each with `code`, `message`, `pointer`, `line`, "
                "`column` and `hint`. `RunFailed`, `RunCancelled` and `RunInterrupted` have `run_id` and `error`.\n"
            ),
            "## Kinds of failure\n",
            (
                "An error of a step or run is `{kind, message, path, attempt, cause}`. `retry_on` chooses among the kinds; those with *no* "
                "are never retried, since trying again cannot help. A loop, a branch or a nested workflow that fails keeps the kind "
                'of its cause. A tool gives any other kind with `raise ToolError("…", kind="quota")`.\n'
            ),
            _rows(("kind", "may be retried", "when"), kinds),
            "## Problems of a definition\n",
            "`holdfast validate` reports all of a file at once, each with line and column.\n",
            _rows(("code", "what it means"), [(f"`{code}`", says) for code, says in PROBLEMS.items()]),
        ]
    )


def http() -> str:
    document = openapi.document(serve.ROUTES)
    shapes = document["components"]["schemas"]
    by_tag: dict[str, list[tuple[str, ...]]] = {}
    for path, operations in document["paths"].items():
        if _is_copy(path, document["paths"]):
            continue
        for method, said in operations.items():
            row = (f"`{method.upper()} {path}`", said["summary"], *_asked(said), *_answered(said))
            by_tag.setdefault(centre.TAG if _is_task_path(path) else said["tags"][0], []).append(row)
    statuses = [
        (f"`{code}`", str(status), openapi.MEANING.get(status, "")) for code, status in wire.STATUS.items()
    ]
    parts = ["# HTTP\n", HTTP]
    for tag, rows in by_tag.items():
        parts += ["## The task paths\n", TASK_PATHS] if tag == centre.TAG else [f"## {tag.capitalize()}\n"]
        parts.append(_rows(("request", "", "scope", "query", "body", "answers", "refuses with"), rows))
    parts += [
        "## Shapes\n",
        "In the order of the alphabet.\n",
        *(_shape(name, shape) for name, shape in sorted(shapes.items())),
        "## Errors\n",
        (
            f"Any request may be refused with {_codes(openapi.ALWAYS)}; those that need a scope with {_codes(openapi.WITH_SCOPE)}; those "
            f"with a body with {_codes(openapi.WITH_BODY)}; and a `POST` with `Idempotency-Key` with {_codes(openapi.WITH_KEY)}.\n"
        ),
        _rows(("code", "status", ""), statuses),
    ]
    return "\n".join(parts)


def metrics() -> str:
    """Asks a server: what it gives is what there is."""
    kinds: dict[str, str] = {}
    rows = []
    for line in asyncio.run(_exposed()).splitlines():
        match line.split(" ", 3):
            case ["#", "HELP", name, says]:
                kinds[name] = says
            case ["#", "TYPE", name, kind]:
                rows.append((f"`{name}`", kind, kinds[name]))
    return "\n".join(
        [
            "# Metrics\n",
            (
                "`GET /metrics`, for Prometheus. Counters and histograms begin at zero with the process; gauges say what is. Which of them "
                "deserve an alarm stands on [Run it as a service](../howto/run-as-a-service.md#health-checks).\n"
            ),
            _rows(("metric", "type", "what it says"), rows),
        ]
    )


async def _exposed() -> str:
    with tempfile.TemporaryDirectory() as folder:
        settings = config.Settings(db=f"sqlite:///{folder}/holdfast.db", port=0)
        async with serve.serving(settings, registry=Registry()) as server:
            answer = await asyncio.to_thread(urlopen, f"{server.address}/metrics")
            with answer:
                return str(answer.read().decode())


def limits() -> str:
    parts = [
        "# Limits\n",
        (
            "Everything is bounded. An error says which limit was met and which setting changes it. A limit is set in `holdfast.toml` "
            "below `[limits]`, by the environment variable `HOLDFAST_LIMIT_<NAME>`, or in Python with `Holdfast(limits={...})`. "
            "Limits belong to the process: every engine that is open in it has the same ones, and a second engine that is given others "
            "is refused while the first is open. Definitions that are stored already can be read under a lower limit; "
            "new starts, reruns, values and requests are held to it, and so is the next step of an open run.\n"
        ),
        "```toml holdfast.toml\n[limits]\nsignals_max = 100\nvisits_max = 1_000_000\n```\n",
    ]
    for title, names in LIMITS.items():
        rows = [(says, *_setting_of_limit(name)) for name, says in names.items()]
        parts += [f"## {title}\n", _rows(("limit", "default", "may be", "setting"), rows)]
    parts.append("## Limits without a setting\n")
    fixed = [(says, _amount(name), f"`{name}`", why) for name, (says, why) in FIXED_LIMITS.items()]
    parts.append(_rows(("limit", "value", "name", "why it is fixed"), fixed))
    return "\n".join(parts)


def _setting_of_limit(name: str) -> tuple[str, str, str]:
    if name in bounds.NAMES:
        low, high = (_bytes_or_number(name, number) for number in bounds.bounds(name))
        return _bytes_or_number(name, getattr(bounds.DEFAULTS, name)), f"{low} to {high}", f"`limits.{name}`"
    default = {"attempts_max": ATTEMPTS_MAX, "threads": THREADS_MAX, "processes": "one per core"}
    value = default.get(name) or getattr(config.Settings(), name)
    return value if isinstance(value, str) else _number(value), "1 or more", f"`{name}`"


def settings() -> str:
    default = config.Settings()
    flags = {
        flag.name.removeprefix("--").replace("-", "_"): flag.name
        for c in commands.COMMANDS.values()
        for flag in c.flags
    }
    rows = [
        (
            f"`{name}`",
            kind,
            f"`{flag}`" if (flag := flags.get("artefact_root" if name == "artefact_roots" else name)) else "",
            ", ".join(f"`{variable}`" for variable in variables),
            _shown(getattr(default, name)),
            SETTINGS[name],
        )
        for name, (kind, variables) in config.SETTINGS.items()
    ]
    return "\n".join(
        [
            "# Settings\n",
            (
                "A flag stands over the environment, the environment over `holdfast.toml`. That file is looked for in the working folder "
                "and in those above it; the nearest counts, and paths in it start from its folder. A list in the environment is "
                "separated by blanks or commas.\n"
            ),
            _rows(("setting", "is", "flag", "environment", "default", "what it says"), rows),
            "Secrets are not settings: `HOLDFAST_SECRET_<NAME>` is the secret `NAME`, in the environment only.\n",
            "`holdfast init` writes this `holdfast.toml`:\n",
            f"```toml holdfast.toml\n{init.SETTINGS}```\n",
            "These settings are those of the command `holdfast`. In Python they are arguments of `Holdfast`.\n",
        ]
    )


def tools() -> str:
    parts = [
        "# Built-in tools\n",
        "Always there. A tool of yours with the same name takes the place of one.\n",
    ]
    for tool in sorted(Registry()._all.values(), key=lambda one: one.name):
        rows = [
            (
                f"`{name}`",
                _type(rule),
                "**required**" if name in tool.schema.get("required", ()) else _shown(rule.get("default")),
            )
            for name, rule in tool.schema.get("properties", {}).items()
        ]
        parts += [
            f"## {tool.name}\n",
            f"{inspect.getdoc(tool.fn)}\n",
            _rows(("argument", "type", "default"), rows),
        ]
    return "\n".join(parts)


def python() -> str:
    parts = ["# Python\n", "`from holdfast import …`; what is not on this page is not public.\n"]
    parts += [_public(name, getattr(holdfast, name)) for name in CLASSES]
    parts += ["## Records\n", *(_record(name, getattr(holdfast, name)) for name in RECORDS)]
    parts += [
        "# holdfast.testing\n",
        _public("TestEngine", testing.TestEngine),
        _public("FakeTool", testing.FakeTool),
    ]
    return "\n".join(parts)


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "notation.md": notation,
    "graph.md": graph,
    "cli.md": cli,
    "http.md": http,
    "metrics.md": metrics,
    "python.md": python,
    "tools.md": tools,
    "settings.md": settings,
    "errors.md": errors_page,
    "limits.md": limits,
}

TEMPLATES: Final = """\
## Templates

A text may have placeholders: `{{ inputs.name }}`. A text that is one placeholder and nothing else becomes the value itself,
whatever its type; inside of other text it is printed, null as nothing. A placeholder is a path: no operators, calls or filters,
and what was filled in is never read again. A path that finds nothing gives null.

| begins with | means |
|---|---|
| `inputs.x` | an input of the run |
| `steps.a.output` | the output of step `a`; `steps.a.output.files[0].name` a part of it |
| `item`, or what `as` says | inside a foreach: the item |
| `secrets.X` | a secret, in the arguments of a call only |
| `env.X` | a variable of the environment as it was when the run started, if `template_env` names it |
| a bare name | the item's name, else an input, else the output of the step with that id |

`items` and `on` are JSONPaths (RFC 9535, without regular expressions) over the same: `$.a.files`, `$.steps.a.output.files`,
`$.inputs.x`. `select`, and `until` of a poll, are JSONPaths over the answer. Of `items` a path that names one list means its members; one
that finds nothing is an empty list.

A path that searches (`$..id`, `$.*`, a filter) looks at the inputs first and then at the outputs of the steps in the order of their ids; inside a value
it keeps the order of the data, and `..` gives what it finds in a value before what it finds deeper in it. Each value is found once: bare names
and loop variables are second names of what stands under `inputs` or `steps`, and are found by name alone. A path or condition that would look at
too much of the data (about 0.1 s of work) fails its step with kind `expression_too_costly`; `validate` cannot tell, since it depends on the data.

Steps see those before them. After a `parallel` or `branch`, the steps inside can be named too, null where they did not run. After a
`foreach` only its whole output can.
"""

GRAPH_EXAMPLE: Final = """\
```yaml greet.yaml
name: greet
start: shout
nodes:
  shout:
    kind: executor
    service: transform
    prep: {input_key: $params.name}
    params: {op: upper}
    post: {output_key: greeting}
  whisper:
    kind: executor
    service: transform
    prep: {input_key: greeting}
    params: {op: lower}
    post: {output_key: whispered}
edges:
  - {from: shout, action: default, to: whisper}
```

```console
$ holdfast validate greet.yaml
greet.yaml: valid
```
"""

GRAPH_STATE: Final = """\
## Params, shared state, input

A run is given *params*. Its nodes write a *shared state*, which begins empty and is the output of the run. What `prep` puts together is
the *input* of a node. A reference says where a value is:

| reference | means |
|---|---|
| `$params.order.id` | a param of the run, or of the node |
| `$shared.lines[0].price` | shared state; in `prep` also without `$shared.` |
| `$input`, `$input.v` | the input of the node, in conditions and in its params |
| `$shared["a.b"]` | a key that has a dot or a bracket in it |

What is not there is null. In `input_map` anything but a text is taken as it stands, and so is a text after a leading `'`. The params of
a node win over those of the run; a param written `$params.name` takes the value that the run has. A subflow begins with an empty shared
state of its own, which becomes its result.
"""

GRAPH_ACTIONS: Final = """\
## Where it goes next

The action of a node is `post.action_static`, else what `post.action_key` finds in the result or else in shared state, else
`default_action`, else empty; values that are no texts are passed over. The edge with that action is taken, else the one with the action
`default`, else the run ends. After a failure the edges `timeout` (if it was one), `error` and `default` are tried; without one of them
the run fails. A `parallel` or `foreach` with failed calls tries `error`, the edge of its action, and `default`.

Edges may lead back. The second visit of a node has the path `node~2`.
"""

GRAPH_CONDITIONS: Final = """\
## Conditions

A condition is a mapping with exactly one operator.

| operator | holds |
|---|---|
| `{"and": […]}`, `{"or": […]}`, `{"not": …}` | as they say; `and` of nothing does, `or` of nothing does not |
| `{"eq": [a, b]}`, and `ne`, `gt`, `lt`, `ge`, `le` | as they compare |
| `{"exists": "$shared.x"}` | the value is there and not null; false is there |
| `{"in": [value, whole]}`, `{"contains": [whole, value]}` | a list has the value, or a text has the part |
| `"$params.flag"` | the value is true |

Two values that are numbers, or texts that look like numbers, compare as numbers (`"1"` equals 1, 10 is more than `"9"`). Any others
compare as texts: null as `null`, lists and mappings as their JSON. A text that begins with `$params`, `$shared` or `$input` is a
reference, in lists too; any other text stands for itself.
"""

HTTP: Final = """\
`holdfast up` serves this. The same stands at `/openapi.json` as an OpenAPI 3.1 document and at `/docs` as a page, both made from the types that
read requests and write answers.

In guarded mode a request needs `Authorization: Bearer <key>`, with a key of the scope in the table; *open* ones need none. Bodies are JSON, and under
`/api/v1` a key that is not known is refused. Times are RFC 3339 in UTC. A list gives `items` and a `cursor`: send it back for the next page, until it
is null. An error is `{"error": code, "message": …, "details": […]}`, the same code for ever.

A `POST` with an `Idempotency-Key` is carried out once: sent again, it gets the first answer again, and with another body it is refused. Of a start the
key is the run's `request_id`.
"""

TASK_PATHS: Final = """\
The same flows, runs and workers in another dialect: a *task* is a run, and its id that of the run. Each of these paths is served with `/api` in
front too, where `GET /api/tasks` gives a [page](#taskpage) instead of a list; those of workers also without `/workers`. Keys of bodies are read without regard to case and underscores, unknown
ones are passed over, times are Unix seconds, an error is `{"error": text}`, and states are `pending`, `running`, `completed`, `failed`,
`canceling` and `canceled`.
"""

# ----------------------------------------------------------------------------------------------- in pieces


def _is_task_path(path: str) -> bool:
    return any(route.path == path for route in centre.ROUTES)


def _is_copy(path: str, paths: Mapping[str, Any]) -> bool:
    """A task path with `/api` in front, which does what it does without; or a worker path without `/workers`."""
    if not _is_task_path(path):
        return False
    bare = path.removeprefix("/api")
    return (bare != path and bare in paths) or f"/workers{bare}" in paths


def _asked(said: Mapping[str, Any]) -> tuple[str, str, str]:
    """Scope, query and body of an operation."""
    scope = re.fullmatch(r"Scope: (`\w+`)\.", said.get("description", ""))
    query = ", ".join(f"`{one['name']}`" for one in said["parameters"] if one["in"] == "query")
    content = said.get("requestBody", {}).get("content", {})
    body = _linked(next(iter(content.values()))["schema"]) if content else ""
    others = "".join(f" or {OTHER_MEDIA[media]}" for media in list(content)[1:])
    return scope[1] if scope else "open", query, body + others


def _answered(said: Mapping[str, Any]) -> tuple[str, str]:
    """What an operation gives, and the codes that are its own."""
    given = []
    own: list[str] = []
    common = {*openapi.ALWAYS, *openapi.WITH_SCOPE, *openapi.WITH_BODY, *openapi.WITH_KEY}
    for status, answer in said["responses"].items():
        if found := re.findall(r"`(\w+)`", answer["description"].partition("Codes: ")[2]):
            own += [code for code in found if code not in common]
        elif int(status) < 400:
            contents: dict[str, dict[str, Any]] = answer.get("content") or {"": {}}
            media, content = next(iter(contents.items()))
            given.append(
                f"{status} {_linked(content.get('schema', {})) if media == 'application/json' else media}".strip()
            )
        else:
            given.append(status)
    return ", ".join(given), ", ".join(f"`{code}`" for code in own)


def _linked(schema: Mapping[str, Any]) -> str:
    """A shape by its name, or in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_linked(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_linked(schema['items'])}" if schema.get("items") else "list"
    return _type(schema)


def _shape(name: str, shape: Mapping[str, Any]) -> str:
    needed = shape.get("required", ())
    is_strict = shape.get("additionalProperties") is False
    rows = [
        (
            f"`{key}`",
            _linked(rule),
            "**required**"
            if is_strict and key in needed
            else _shown(rule.get("default"))
            if key not in needed
            else "",
        )
        for key, rule in shape.get("properties", {}).items()
    ]
    return f"### {name}\n\n{_first(shape.get('description'))}\n\n{_rows(('key', 'type', 'default'), rows)}"


def _codes(codes: Iterable[str]) -> str:
    return ", ".join(f"`{code}`" for code in codes)


def _kind(name: str, kind: Kind) -> str:
    defaults = _defaults(kind.record)
    common = [key for key in (POLICY_KEYS | ANSWER_KEYS) if key in kind.common]
    also = f"Also: {', '.join(f'`{key}`' for key in common)}.\n" if common else ""
    either = f"{'Exactly' if kind.one_of_is_required else 'At most'} one of {', '.join(f'`{key}`' for key in kind.one_of)}.\n"
    parts = [
        f"### {name}\n",
        f"{kind.says}\n",
        _table(kind.keys, defaults),
        _inner(kind.keys),
        either if kind.one_of else "",
        also,
        f"Output: {OUTPUTS[name]}\n",
    ]
    return "\n".join(part for part in parts if part)


def _flow_kind(name: str, kind: FlowKind) -> str:
    defaults = _defaults(FlowNode)
    rows = [
        (
            f"`params.{param}`",
            _type(schema),
            "**required**" if param in kind.needed_params else "",
            schema.get("description", ""),
        )
        for param, schema in kind.own_params
    ]
    own = {key: rule for key, rule in kind.keys.items() if key not in ANSWER_KEYS}
    answer = ", ".join(f"`{key}`" for key in ANSWER_KEYS if key in kind.keys)
    parts = [
        f"### {name}\n",
        f"{kind.says}\n",
        _table(own, defaults) if own else "",
        _rows(("param", "type", "default", ""), rows) if rows else "",
        f"Also, as in [the steps notation](notation.md#any-call): {answer}.\n" if answer else "",
        f"Result: {RESULTS[name]}\n",
    ]
    return "\n".join(part for part in parts if part)


def _edges() -> str:
    return f"`edges`:\n\n{_table(EDGE_KEYS, {})}"


def _table(table: Table, defaults: Mapping[str, Any]) -> str:
    rows = [
        (
            f"`{name}`",
            _type(key.shape.schema()),
            "**required**" if key.required else _shown(defaults.get(name)),
            key.says,
        )
        for name, key in table.items()
    ]
    return _rows(("key", "type", "default", ""), rows)


def _inner(table: Table) -> str:
    """The keys of the mappings within a table."""
    parts = [
        f"`{name}`:\n\n{_table(key.shape.table, _defaults(key.shape.record))}"
        for name, key in table.items()
        if isinstance(key.shape, Nested | ListOf)
    ]
    return "\n".join(parts)


def _implied() -> str:
    said = [f"`{'` with `'.join(words[:2])}` is `{kind}`" for kind, words in IMPLIED_KINDS.items()]
    return ", ".join(said)


def _defaults(record: Any) -> dict[str, Any]:
    return {key: default for _, key, default in fields_of(record)}


def _type(schema: Mapping[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "enum" in schema:
        return " \\| ".join(_shown(option) for option in schema["enum"] if option not in (None, ""))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"] if one != {"type": "null"}))
    word = schema.get("type", "anything")
    if isinstance(word, list):
        return " or ".join(_type({**schema, "type": one}) for one in word if one != "null")
    low, high = schema.get("minimum"), schema.get("maximum")
    names = {
        "string": "text",
        "integer": "whole number",
        "array": "list",
        "object": "mapping",
        "boolean": "true, false",
    }
    text = names.get(word, word)
    if low is not None and high is not None:
        return f"{text}, {_number(low)} to {_number(high)}"
    return f"{text}, up to {_number(high)}" if high is not None else text


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def _shown(value: Any) -> str:
    if value is None or value in ((), "", {}, [], NO_PREP, NO_POST) or value is msgspec.NODEFAULT:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:,}`" if isinstance(value, int | float) else f"`{value}`"


def _amount(name: str) -> str:
    module, _, constant = name.rpartition(".")
    value = getattr(importlib.import_module(f"holdfast.{module}"), constant)
    return _bytes_or_number(constant, value)


def _bytes_or_number(name: str, value: float) -> str:
    if "BYTES" in name.upper() and value >= 1024:
        unit, size = next((u, s) for u, s in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if value >= s)
        return f"{value / size:g} {unit}"
    return _number(value)


def _rows(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _first(doc: str | None) -> str:
    return (doc or "").strip().split("\n\n", maxsplit=1)[0].replace("\n", " ")


def _public(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"## {name}\n\n```text\n{name}{_signature(thing)}\n```\n\n{inspect.getdoc(thing)}\n"
    parts = [f"## {name}\n", f"{_prose(inspect.getdoc(thing))}\n"]
    if name in MADE_BY_USERS:
        parts.insert(1, f"```text\n{name}{_signature(thing)}\n```\n")
    if name in ATTRIBUTES:
        parts.append(", ".join(f"**`.{one}`**" for one in ATTRIBUTES[name]) + "\n")
    for method, member in vars(thing).items():
        if method.startswith("_") or f"{name}.{method}" in NOT_PUBLIC or not (doc := inspect.getdoc(member)):
            continue
        parts.append(_member(method, member, doc))
    return "\n".join(parts)


def _member(name: str, member: Any, doc: str) -> str:
    if isinstance(member, property):
        return f"**`.{name}`** · {_prose(doc)}\n"
    fn = getattr(member, "__func__", member)
    word = (
        "await "
        if inspect.iscoroutinefunction(fn)
        else "async for … in "
        if inspect.isasyncgenfunction(fn)
        else ""
    )
    return f"**`{word}.{name}{_signature(fn, short=True)}`**\n\n{_prose(doc)}\n"


def _prose(doc: str | None) -> str:
    """A docstring for a page: its indented examples are pictures there."""
    indented = re.compile(r"(?:^ {4}.*\n?)+", re.MULTILINE)
    return indented.sub(lambda found: f"```text\n{inspect.cleandoc(found[0])}\n```\n", doc or "")


def _signature(thing: Any, *, short: bool = False) -> str:
    signature = inspect.signature(thing)
    given = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    text = str(signature.replace(parameters=given, return_annotation=inspect.Signature.empty))
    text = re.sub(r"(: )'([^']*)'", r"\1\2", re.sub(r"(?:[a-z_]+\.)+([A-Z])", r"\1", text))
    if short or len(text) < 80:
        return text
    return "(\n" + "".join(f"    {part},\n" for part in _split(text[1:-1])) + ")"


def _split(text: str) -> list[str]:
    """The parameters of a signature, which may have commas in brackets of their own."""
    return [part.strip() for part in re.split(r",(?![^\[(]*[\])])", text)]


def _record(name: str, thing: Any) -> str:
    says = f" · {_first(thing.__doc__)}" if "__doc__" in vars(thing) and thing.__doc__ else ""
    if issubclass(thing, Enum):
        return f"**{name}**{says}\n\n" + ", ".join(f"`{one.value}`" for one in thing) + "\n"
    hints = {
        field: kind for field, kind in inspect.get_annotations(thing).items() if not field.startswith("_")
    }
    fields = ", ".join(f"`{field}: {_plain(kind)}`" for field, kind in hints.items())
    return f"**{name}**{says}\n\n{fields}\n"


def _plain(kind: Any) -> str:
    return getattr(kind, "__forward_arg__", None) or str(kind)


def text_of(page: str) -> str:
    """A page as the code says it now."""
    return re.sub(r"\n{3,}", "\n\n", HEAD + PAGES[page]()).rstrip() + "\n"


def schema_of_today() -> str:
    """What all migrations make of an empty database, in one script."""
    db = apsw.Connection(":memory:")
    for _, script in migrations("sqlite"):
        db.execute(script)
    made = [sql for (sql,) in db.execute(MADE)]
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    rows = [
        f"INSERT INTO {table} VALUES {row!r}"
        for table in tables
        for row in db.execute(f"SELECT * FROM {table}")
    ]
    return SCHEMA_HEAD + "".join(f"\n{statement};\n" for statement in made + rows)


def main() -> None:
    HERE.mkdir(exist_ok=True)
    SCHEMA.write_text(schema_of_today(), "utf-8")
    for page in PAGES:
        (HERE / page).write_text(text_of(page), "utf-8")


if __name__ == "__main__":
    main()
