"""RFC 9535: paths that are more than names and indices. Parsed by the library, evaluated here, with a bound on their work.

Knows the library, which is slow to import: a module that needs this one imports it when the first such path is used.
Must not know templates, or what a path is for.

A query becomes closures over plain values. Each value that is visited or compared is counted before that is done
(work.py), so no path over any data takes longer than about 0.1 s. What stands under `$` in a filter does not depend
on the value that is filtered, and is evaluated once. Regular expressions are left out, since one of them can take
exponential time.

Order: that of the data. `..` gives what it selects from a value before what it selects from that value's children.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, Final

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathQuery
from jsonpath_rfc9535.filter_expressions import (
    ComparisonExpression,
    Expression,
    FilterExpression,
    FilterExpressionLiteral,
    FilterQuery,
    FunctionExtension,
    LogicalExpression,
    PrefixExpression,
    RootFilterQuery,
)
from jsonpath_rfc9535.segments import (
    JSONPathChildSegment,
    JSONPathRecursiveDescentSegment,
    JSONPathSegment,
)
from jsonpath_rfc9535.selectors import (
    FilterSelector,
    IndexSelector,
    JSONPathSelector,
    NameSelector,
    SliceSelector,
    WildcardSelector,
)

from holdfast.spec.aliased import Aliased
from holdfast.spec.work import CHARS_OF_A_UNIT, COMPARED, Work, is_same


class NotAPath(ValueError):
    """`offset` counts characters from the start of the text."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.message, self.offset = message, offset


class Query:
    """A path that is known to be well formed.

    `reads` holds the leading members, as far as they are fixed, of the path and of each `$` inside its
    filters. `singular` holds those of a path that has no others, or goes on with a single `[*]` (`star`).
    """

    def __init__(self, text: str) -> None:
        query = _parsed(text)
        self._select = _selection(query)
        self.reads = tuple(_fixed_members(query) for query in _queries_from_root(query))
        beyond = query.segments[len(self.reads[0]) :]
        self.star = len(beyond) == 1 and _is_star(beyond[0])
        self.singular = self.reads[0] if self.star or not beyond else None

    def find(self, data: Any, work: Work | None = None) -> list[Any]:
        """All values that the path names in the data, or ExpressionTooCostly if it needs too much work: by itself, or
        together with other searches that spend the same work."""
        return self._select([data], _Evaluation(data, work or Work()))


def _parsed(text: str) -> JSONPathQuery:
    try:
        return _environment.compile(text)
    except JSONPathError as error:
        message = str(error.args[0]) if error.args else "not a path"
        raise NotAPath(message, error.token.index if error.token else 0) from None
    except (RecursionError, ArithmeticError, ValueError, IndexError):
        # A thousand parentheses, or a number like 1e999: the library's own message would not help.
        raise NotAPath("the path cannot be read") from None


def _fixed_members(query: JSONPathQuery) -> tuple[str | int, ...]:
    members: list[str | int] = []
    for segment in query.segments:
        if isinstance(segment, JSONPathRecursiveDescentSegment) or len(segment.selectors) != 1:
            break
        selector = segment.selectors[0]
        if isinstance(selector, NameSelector):
            members.append(selector.name)
        elif isinstance(selector, IndexSelector):
            members.append(selector.index)
        else:
            break
    return tuple(members)


def _is_star(segment: JSONPathSegment) -> bool:
    selectors = segment.selectors
    return (
        isinstance(segment, JSONPathChildSegment)
        and len(selectors) == 1
        and isinstance(selectors[0], WildcardSelector)
    )


def _queries_from_root(query: JSONPathQuery) -> Iterator[JSONPathQuery]:
    yield query
    stack: list[Any] = [query]
    while stack:
        node = stack.pop()
        if isinstance(node, RootFilterQuery):
            yield node.query
        # The nodes of the library's tree have no common way to ask for their children, but few names for
        # them.
        for name in ("segments", "selectors", "args"):
            stack.extend(getattr(node, name, ()))
        stack.extend(
            getattr(node, name) for name in ("expression", "left", "right", "query") if hasattr(node, name)
        )


# ------------------------------------------------------------------------------------------------- evaluation


class _Evaluation:
    """One evaluation: its remaining work budget, and the results of the `$` queries in its filters."""

    __slots__ = ("found", "root", "work")

    def __init__(self, root: Any, work: Work) -> None:
        self.root, self.work = root, work
        self.found: dict[int, list[Any]] = {}


Select = Callable[[list[Any], _Evaluation], list[Any]]  # from these values
Pick = Callable[[Any, _Evaluation], Iterable[Any]]  # from one value
Test = Callable[[Any, _Evaluation], Any]  # tests one value

# Their cost relative to a value that is only passed on, as measured.
VISIT: Final = 2  # a selector applied to one value
TEST: Final = 4  # a filter applied to one value

_NOTHING: Final = object()  # the result of a query that finds nothing: equal only to itself


def _children(value: Any) -> Collection[Any]:
    if type(value) is dict:
        return value.values()
    if type(value) is list:
        return value
    if isinstance(value, Aliased):
        return [member for name, member in value.items() if name not in value.aliases]
    return ()


def _selection(query: JSONPathQuery) -> Select:
    steps = [_segment(segment) for segment in query.segments]

    def select(values: list[Any], evaluation: _Evaluation) -> list[Any]:
        for step in steps:
            if not values:
                break  # the rest would find nothing, so no work is spent on it
            values = step(values, evaluation)
        return values

    return select


def _segment(segment: JSONPathSegment) -> Select:
    picks = [_pick(selector) for selector in segment.selectors]
    descends = isinstance(segment, JSONPathRecursiveDescentSegment)

    def select(values: list[Any], evaluation: _Evaluation) -> list[Any]:
        found: list[Any] = []
        spend = evaluation.work.spend
        stack = values[::-1]
        while stack:
            value = stack.pop()
            children = _children(value) if descends else ()
            spend(VISIT * len(picks) + len(children))
            for pick in picks:
                found += pick(value, evaluation)
            if children:
                stack += [child for child in children if isinstance(child, dict | list)][::-1]
        return found

    return select


def _pick(selector: JSONPathSelector) -> Pick:
    """Apply a selector that chooses among all children. Their number is charged first."""
    match selector:
        case NameSelector(name=name):
            return lambda value, _: (value[name],) if isinstance(value, dict) and name in value else ()
        case IndexSelector(index=index):
            return lambda value, _: (
                (value[index],) if isinstance(value, list) and -len(value) <= index < len(value) else ()
            )
        case SliceSelector(slice=part):
            return lambda value, at: (
                _spent(value[part], at) if isinstance(value, list) and part.step != 0 else ()
            )
        case FilterSelector(expression=expression):
            holds = _test(expression)
            return lambda value, at: [
                child for child in _spent(_children(value), at, TEST) if holds(child, at)
            ]
        case _:
            pass
    assert isinstance(selector, WildcardSelector)
    return lambda value, at: _spent(_children(value), at)


def _spent(values: Collection[Any], evaluation: _Evaluation, each: int = 1) -> Collection[Any]:
    evaluation.work.spend(each * len(values))
    return values


# --------------------------------------------------------------------------------------------------- filters


def _test(expression: Expression) -> Test:
    """Whether a value passes the filter."""
    match expression:
        case FilterExpression(expression=inner):
            return _test(inner)
        case PrefixExpression(right=right):
            return _negation(_test(right))
        case LogicalExpression(left=left, operator=operator, right=right):
            return _logical(_test(left), _test(right), is_both=operator == "&&")
        case ComparisonExpression(left=left, operator=operator, right=right):
            return _comparison(_operand(left), operator, _operand(right))
        case FilterQuery():
            nodes = _nodes(expression)
            return lambda value, at: bool(nodes(value, at))
        case _:
            pass
    operand = _operand(expression)
    return lambda value, at: operand(value, at) not in (_NOTHING, False)


def _logical(first: Test, second: Test, *, is_both: bool) -> Test:
    def holds(value: Any, at: _Evaluation) -> Any:
        at.work.spend(VISIT)
        decided = first(value, at)
        return second(value, at) if bool(decided) is is_both else decided

    return holds


def _negation(refused: Test) -> Test:
    def holds(value: Any, at: _Evaluation) -> bool:
        at.work.spend(1)
        return not refused(value, at)

    return holds


def _nodes(expression: Expression) -> Callable[[Any, _Evaluation], list[Any]]:
    assert isinstance(expression, FilterQuery)
    select, key = _selection(expression.query), id(expression)
    if not isinstance(expression, RootFilterQuery):
        return lambda value, at: select([value], at)

    def once(_: Any, at: _Evaluation) -> list[Any]:
        if key not in at.found:
            at.found[key] = select([at.root], at)
        return at.found[key]

    return once


def _operand(expression: Expression) -> Test:
    """One side of a comparison, or an argument of a function."""
    if isinstance(expression, FilterExpressionLiteral):
        constant = expression.value
        return lambda value, at: constant
    if isinstance(expression, FunctionExtension):
        return _function(expression.name, expression.args[0])
    nodes = _nodes(expression)

    def single(value: Any, at: _Evaluation) -> Any:
        found = nodes(value, at)
        return found[0] if len(found) == 1 else _NOTHING

    return single


def _function(name: str, argument: Expression) -> Test:
    if name == "count":
        nodes = _nodes(argument)
        return lambda value, at: len(nodes(value, at))
    operand = _operand(argument)
    if name == "value":
        return operand

    def length(value: Any, at: _Evaluation) -> Any:
        at.work.spend(1)
        measured = operand(value, at)
        return len(measured) if isinstance(measured, str | list | dict) else _NOTHING

    return length


def _comparison(left: Test, operator: str, right: Test) -> Test:
    def is_equal(value: Any, at: _Evaluation) -> bool:
        return is_same(left(value, at), right(value, at), at.work)

    def is_less(value: Any, at: _Evaluation, *, or_equal: bool, turned: bool) -> bool:
        one, other = left(value, at), right(value, at)
        if turned:
            one, other = other, one
        at.work.spend(COMPARED)
        if or_equal and is_same(one, other, at.work):
            return True
        return _is_less(one, other, at.work)

    if operator == "==":
        return is_equal
    if operator == "!=":
        return lambda value, at: not is_equal(value, at)
    return partial(is_less, or_equal="=" in operator, turned=operator[0] == ">")


def _is_less(one: Any, other: Any, work: Work) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        work.spend(min(len(one), len(other)) // CHARS_OF_A_UNIT)
        return one < other
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return numbers and not isinstance(one, bool) and not isinstance(other, bool) and one < other


class _Environment(JSONPathEnvironment):
    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        del self.function_extensions["match"], self.function_extensions["search"]


_environment: Final = _Environment()
