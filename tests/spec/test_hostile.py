"""Texts, schemas and inputs that mean harm: each ends in a clear error or in the right data, soon and in little memory.

All of them are offered to one small process with a limit on its memory and on its processor time, so that none can
stall or swell it: the tests look at what it said.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

MEMORY_MAX = 1 << 30
CPU_SECONDS_MAX = 60  # for all of them together, on a slow machine

PROGRAM = f"""
import json, resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_MAX}, {MEMORY_MAX}))
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS_MAX}, {CPU_SECONDS_MAX}))
from holdfast.errors import InvalidInputs, InvalidSpec
from holdfast.spec.workflow import WorkflowSpec, with_defaults
from tests.spec.test_hostile import INPUTS, TEXTS

def outcome(text, given):
    try:
        spec = WorkflowSpec.from_yaml_str(text)
        spec.validate()
        if given is not None:
            with_defaults(spec, given)
        return "valid"
    except (InvalidSpec, InvalidInputs) as refused:
        if len(str(refused)) > 100_000:
            return "too many words"
        if not all(problem.message and problem.hint for problem in refused.problems):
            return "a problem without a hint"
        return " ".join(sorted({{problem.code for problem in refused.problems}}))

found = {{name: outcome(make(), None) for name, (make, _) in TEXTS.items()}}
found |= {{name: outcome(*make()) for name, (make, _) in INPUTS.items()}}
print(json.dumps(found))
"""


def workflow(**top: Any) -> str:
    return json.dumps({"name": "w", "steps": [{"id": "a", "tool": "t"}], **top})


def given(text: str) -> str:
    return f"name: w\nsteps:\n  - id: a\n    service: t\n    input: {text}\n"


ALIASES = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
MERGES = "".join(f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 9)}]}}\n" for i in range(1, 10))


def branching_references() -> dict[str, Any]:
    defs = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 10} for i in range(12)}
    return {"type": "object", "$defs": {**defs, "d12": {"type": "string"}}, "$ref": "#/$defs/d0"}


def nested(depth: int, opening: str, closing: str) -> str:
    return opening * depth + closing * depth


TEXTS: dict[str, tuple[Any, str]] = {
    "50 KB of brackets": (lambda: "[" * 50_000, "too_deep"),
    "50 KB of brackets in arguments": (lambda: given("[" * 50_000), "too_deep"),
    "50 KB of braces": (lambda: "{a: " * 12_500, "too_deep"),
    "deep blocks": (lambda: "name: w\nsteps:\n" + "".join(" " * i + "-\n" for i in range(300)), "too_deep"),
    "deep JSON": (lambda: workflow(output=0).replace(": 0", ": " + nested(5_000, "[", "]")), "too_deep"),
    "an alias bomb": (lambda: "a0: &a0 x\n" + ALIASES, "anchor"),
    "a merge bomb": (lambda: "m0: &m0 {a: b}\n" + MERGES, "anchor"),
    "a line of 10 MB": (lambda: given("x" * 10_000_000), "too_large"),
    "10 MB of lines": (lambda: "a: 1\n" * 2_000_000, "too_large"),
    "10 MB of bytes": (lambda: b"\xff" * 10_000_000, "too_large"),
    "a NUL": (lambda: given("a\x00b"), "invalid_character"),
    "an escaped NUL": (lambda: given('"a\\0b"'), "valid"),
    "an escape sequence for terminals": (lambda: given("\x1b[2J"), "invalid_character"),
    "bytes that are not UTF-8": (lambda: b"name: \xc3\x28", "not_utf8"),
    "UTF-16": (lambda: given("x").encode("utf-16"), "not_utf8"),
    "a byte order mark": (lambda: b"\xef\xbb\xbf" + given("x").encode(), "valid"),
    "a tab for indentation": (lambda: "name: w\nsteps:\n\t- id: a\n", "syntax"),
    "tabs in JSON": (lambda: '{\n\t"name": "w",\n\t"steps": [{"id": "a", "tool": "t"}]}', "valid"),
    "a number of 5,000 digits": (lambda: given("9" * 5_000), "not_json"),
    "a number of 300 digits": (lambda: given("9" * 300), "valid"),
    "a time-out of 300 digits": (lambda: given(f"1\n    timeout_secs: {'9' * 300}"), "invalid_policy"),
    "infinity": (lambda: given(".inf"), "not_json"),
    "a float beyond all floats": (lambda: given("1e999"), "not_json"),
    "a tag that makes objects": (lambda: given("!!python/object/apply:os.system [id]"), "tag"),
    "a tag": (lambda: given("!!binary aGk="), "tag"),
    "a duplicate key": (lambda: given("{a: 1, a: 2}"), "duplicate_key"),
    "a key that is true": (lambda: given("{true: 1}"), "invalid_key"),
    "a key that is a list": (lambda: given("{[a]: 1}"), "invalid_key"),
    "two documents": (lambda: given("1") + "---\nname: x\n", "many_documents"),
    "nothing": (lambda: "", "wrong_type"),
    "a comment": (lambda: "# nothing\n", "wrong_type"),
    "10,000 unknown keys": (lambda: "".join(f"k{i}: 1\n" for i in range(10_000)), "unknown_key"),
    "10,000 unknown names": (lambda: given('"' + "{{ x }} " * 10_000 + '"'), "unknown_root"),
    "10,000 open braces": (lambda: given('"' + "{{ " * 10_000 + '"'), "invalid_template"),
    "a placeholder of 100 KB": (lambda: given('"{{ ' + "b." * 50_000 + 'b }}"'), "unknown_root"),
    "a placeholder with many quotes": (lambda: given("'{{ a" + '["' * 20_000 + " }}'"), "invalid_template"),
    "a key with many quotes": (
        lambda: given("1\n    idempotency_key: '" + "{{ a" * 20_000 + "'"),
        "invalid_template",
    ),
    "a path of 100 KB": (
        lambda: "name: w\nsteps:\n  - {id: a, kind: branch, on: '$" + ".a" * 50_000 + "'}\n",
        "invalid_jsonpath",
    ),
    "a path with 500 parentheses": (
        lambda: "name: w\nsteps:\n  - {id: a, kind: branch, on: '$[?" + nested(500, "(", ")") + "]'}\n",
        "invalid_jsonpath",
    ),
    "a name of 100 KB": (lambda: workflow().replace('"w"', '"' + "w" * 100_000 + '"'), "name_too_long"),
    "references that branch": (lambda: workflow(inputs=branching_references()), "schema_too_large"),
    "5,000 regular expressions": (
        lambda: workflow(inputs={f"x{i}": {"pattern": f"a{i}"} for i in range(5_000)}),
        "schema_too_large",
    ),
    "a regular expression that repeats repetitions": (
        lambda: workflow(inputs={"x": {"pattern": "((a{100}){100}){100}"}}),
        "invalid_pattern",
    ),
    "a regular expression with 5,000 groups": (
        lambda: workflow(inputs={"x": {"pattern": nested(5_000, "(", ")")}}),
        "invalid_pattern",
    ),
    "a schema of 9,000 mistakes": (
        lambda: workflow(inputs={"type": "object", "properties": {f"x{i}": 5 for i in range(9_000)}}),
        "wrong_type",
    ),
    "a schema that is elsewhere": (
        lambda: workflow(inputs={"x": {"$ref": "http://127.0.0.1:9/schema"}}),
        "remote_reference",
    ),
}

INTEGERS = {"x": {"type": "array", "items": {"type": "integer", "minimum": 0}}}


def circular() -> list[Any]:
    around: list[Any] = []
    around += [around, around]
    return around


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


INPUTS: dict[str, tuple[Any, str]] = {
    "a regular expression that backtracks": (
        lambda: (workflow(inputs={"x": {"pattern": "^(a+)+$"}}), {"x": "a" * 5_000_000 + "!"}),
        "invalid_input",
    ),
    "a million misfits": (lambda: (workflow(inputs=INTEGERS), {"x": ["a"] * 1_000_000}), "wrong_type"),
    "a text of 20 MB that does not fit": (
        lambda: (workflow(inputs={"x": {"enum": ["a"]}}), {"x": "b" * 20_000_000}),
        "invalid_choice",
    ),
    "many rules for many values": (
        lambda: (
            workflow(inputs={"x": {"items": {"allOf": [{"minimum": i} for i in range(2_000)]}}}),
            {"x": [5] * 100_000},
        ),
        "too_large",
    ),
    "a value that holds itself": (
        lambda: (workflow(inputs={"x": {"minimum": 1}}), {"x": circular()}),
        "not_json",
    ),
    "a value of 100,000 levels": (
        lambda: (workflow(inputs={"x": {"minimum": 1}}), {"x": deep()}),
        "not_json",
    ),
    "half a character": (lambda: (workflow(inputs={"x": {"minLength": 1}}), {"x": "\ud800"}), "not_json"),
    "no number": (lambda: (workflow(inputs={"x": {"minimum": 1}}), {"x": float("nan")}), "not_json"),
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("name", "code"), [(name, code) for name, (_, code) in (TEXTS | INPUTS).items()])
def test_hostile_data_ends_in_a_clear_error_or_in_data(
    outcomes: dict[str, str], name: str, code: str
) -> None:
    assert code in outcomes[name].split()
