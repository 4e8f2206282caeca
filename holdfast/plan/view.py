"""What the expressions of a plan are: closures over the values of a run that a step can see.

The compilers make them, and the engine calls them with a view of the run. Knows no nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.plan.unread import Meter
from holdfast.spec.steps import ResultRule


class View(Protocol):
    """The values of a run that an expression can see from its frame."""

    frames: tuple[str, ...]  # the frames around the step, outermost first; frames[0] is the top level
    size: int  # bytes of the larger parts of the value being rendered, with references followed
    excess: int  # how much larger that value is than its text
    depth_max: int  # limit of such a value; higher once an output was gathered for it
    worked: int  # units of work that searches and conditions have spent so far, see spec/work.py

    def meter(self) -> Meter: ...  # of scans of large values
    def env(self) -> Any: ...
    def inputs(self) -> Any: ...
    def output(self, path: str) -> Any: ...
    def item(self, frame: str) -> Any: ...  # of a nested plan's frame: its inputs
    def var(self, frame: str, name: str) -> Any: ...  # null if not written
    def vars_text(self, frame: str) -> bytes: ...  # all of them, as a JSON object
    def met(self, frame: str, name: str) -> int: ...  # how often a node on a cycle was visited
    def raw(self, path: str) -> bytes | None: ...


Evaluate = Callable[[View], Any]
Render = Callable[[View], bytes]  # JSON text; parts over 1 KiB that already exist are references


class Answer(Protocol):
    """The output in an answer. Raises AnswerFailed if the answer is a failure. The rule as data, for another process to apply."""

    rule: ResultRule

    def __call__(self, value: Any) -> Any: ...


class ItemsOf(Protocol):
    """The items of a fan-out: their number, and a JSON array or a reference to one."""

    def __call__(self, view: View) -> tuple[int, bytes]: ...
