"""Values that look like others."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import RunFailed, run_sync
from holdfast.tools.results import result_text
from holdfast.values import NotJson


class Markup(str):
    """As libraries for HTML have it."""

    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError("not to be asked")


class Count(int):
    pass


class Measure(float):
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Markup("<b>"), b'"<b>"'),
        ([Markup("a")], b'["a"]'),
        ({"n": Count(3)}, b'{"n":3}'),
        (Measure(1.5), b"1.5"),
    ],
)
def test_a_text_or_number_of_a_class_of_its_own_is_a_result(value: Any, text: bytes) -> None:
    assert result_text(value) == text


@pytest.mark.parametrize("value", [Measure("nan"), [Measure("inf")]])
def test_a_number_of_a_class_of_its_own_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(NotJson, match="NaN and infinity have no JSON form"):
        result_text(value)


def test_a_timer_does_not_take_true_for_a_millisecond() -> None:
    spec = "name: w\ninputs: {x: {}}\nsteps: [{id: t, kind: timer, delay_ms: '{{x}}'}]"
    with pytest.raises(RunFailed, match="a timer needs a number of milliseconds, not True"):
        run_sync(spec, {"x": True})
