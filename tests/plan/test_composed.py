"""The size of a composed value is counted while it is built, and is that of the value a caller is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.draft import Draft
from holdfast.engine.state import Run
from holdfast.plan import composed
from holdfast.plan.compile import compile_definition
from holdfast.plan.composed import TooLarge
from holdfast.plan.expr import Merged, Source
from holdfast.plan.resolve import resolved
from holdfast.plan.templates import SHORT, Text, render, text_of, texts_of
from holdfast.spec.notation import definition_from_text
from holdfast.values import Millis, RunId, RunNo, decode, encode

PLAN = compile_definition(definition_from_text("name: n\nsteps: [{id: s, tool: t}]"))
NAMES = ("a", "b", "$c", "d")


@contextmanager
def limited(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composed, "LIMIT", size)
        yield


def view_of(inputs: dict[str, Any]) -> Draft:
    return Draft(PLAN, Run(RunNo(1), RunId("r"), "v", inputs=msgspec.Raw(encode(inputs))), Millis(0))


def sources() -> st.SearchStrategy[Source]:
    members = (
        st.tuples(st.sampled_from(NAMES)) | st.tuples(st.sampled_from(NAMES), st.just("$of")) | st.just(())
    )
    return st.builds(Source, st.just("inputs"), members)


def templates() -> st.SearchStrategy[Any]:
    texts = st.text('ab"\\\n\x01é€😀', max_size=20)
    keys = st.sampled_from(["k", "$of", "at", "$$x", 'q"'])
    leaves = (
        sources()
        | st.builds(Text, st.lists(texts | sources(), min_size=1, max_size=6).map(tuple))
        | st.builds(
            Merged, st.just(Source("inputs", ("d",))), st.dictionaries(keys, texts | sources(), max_size=3)
        )
        | texts
        | st.integers()
        | st.none()
    )
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


def values() -> st.SearchStrategy[Any]:
    texts = st.builds(
        lambda piece, times: piece * times, st.text('x"\\é😀', max_size=3), st.sampled_from([1, 10, 700])
    )
    return st.recursive(
        texts | st.integers() | st.none(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["k", "$of", "$"]), inner, max_size=3)
        ),
        max_leaves=6,
    )


def is_constant(template: Any) -> bool:
    """Nothing is composed then: its size is that of the definition."""
    if isinstance(template, dict | list):
        return all(map(is_constant, template.values() if isinstance(template, dict) else template))
    return not isinstance(template, Source | Text | Merged)


all_inputs = st.fixed_dictionaries(
    {
        "a": values(),
        "b": values(),
        "$c": values(),
        "d": st.dictionaries(st.sampled_from(NAMES), values(), max_size=4),
    }
)


@given(templates(), all_inputs, st.booleans())
@settings(deadline=None, max_examples=300)
def test_a_value_is_refused_exactly_if_it_is_over_the_limit_with_its_references_followed(
    template: Any, inputs: dict[str, Any], refers: bool
) -> None:
    longer = {"v": template, "more": "x" * SHORT}  # a shorter text is not held against the limit
    view, text_of_value = view_of(inputs), render(longer, refers=refers)
    text = text_of_value(view)
    whole = resolved(text, view.text_at) if refers else text
    with limited(len(whole)):
        assert decode(text_of_value(view)) == decode(text)
    if not is_constant(template):
        with limited(len(whole) - 1), pytest.raises(TooLarge):
            text_of_value(view)
    if refers:
        with limited(len(whole) - 1), pytest.raises(TooLarge):
            resolved(text, view.text_at)


@given(templates(), all_inputs)
@settings(deadline=None)
def test_with_and_without_references_a_template_gives_the_same_value(
    template: Any, inputs: dict[str, Any]
) -> None:
    view = view_of(inputs)
    referring = resolved(render({"v": template})(view), view.text_at)
    assert decode(referring) == decode(render({"v": template}, refers=False)(view))


def test_no_more_references_are_looked_at_than_fit() -> None:
    asked = []

    def text_at(path: str, members: Any) -> bytes:
        asked.append(path)
        return b'"' + b"x" * 1_000 + b'"'

    text = encode({"v": [{"$of": "", "at": "/a"}] * 10_000})
    with limited(20_000), pytest.raises(TooLarge):
        resolved(text, text_at)
    assert len(asked) == 20


def test_secrets_count_as_what_they_are() -> None:
    text = encode({"v": {"$text": ["Bearer ", {"$secret": "K"}]}})
    with limited(50), pytest.raises(TooLarge):
        resolved(text, lambda of, at: b"", lambda name: "k" * 60)


def test_several_texts_are_one_value_as_far_as_their_size_goes() -> None:
    view, part = view_of({"a": "x" * 100}), Source("inputs", ("a",))
    names = texts_of([part, Text((part, "!")), "constant"])
    assert names(view) == ["x" * 100, "x" * 100 + "!", "constant"]
    with limited(210), pytest.raises(TooLarge):
        names(view)


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (None, ""), ("s", "s"), ([1, "a"], '[1,"a"]')])
def test_text_of_one_value_is_that_value_printed(value: Any, text: str) -> None:
    assert text_of(Source("inputs", ("a",)))(view_of({"a": value})) == text


def test_text_of_data_holds_large_values_and_no_references_to_them() -> None:
    value = "x" * 2_000
    assert text_of({"k": Source("inputs", ("a",))})(view_of({"a": value})) == encode({"k": value}).decode()


def test_a_long_text_is_the_same_in_pieces() -> None:
    value = ("é😀\n" * 10 + "x") * 40_000  # over the size of a piece
    text = render(Text(("<", Source("inputs", ("a",)), ">")))(view_of({"a": value}))
    assert decode(text) == f"<{value}>"
