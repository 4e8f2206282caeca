"""RFC 9535 by the library: for the paths that are more than names and indices, with a bound on their work.

Knows the library, which is slow to import: whoever needs this page imports it when the first such path is met.
Must not know templates, or what a path is for.

Regular expressions are left out, since one of them can take for ever. Each look at a value is counted where
segments are applied to nodes, since all work grows from there: what a filter asks is again made of segments.
To bound the size of the data instead would refuse harmless paths over large data, and would let pass nested
filters, whose work grows with its square.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathNode, JSONPathQuery
from jsonpath_rfc9535.filter_expressions import (
    ComparisonExpression,
    Expression,
    FilterContext,
    FilterExpressionLiteral,
    RootFilterQuery,
)
from jsonpath_rfc9535.parse import Parser
from jsonpath_rfc9535.segments import (
    JSONPathChildSegment,
    JSONPathRecursiveDescentSegment,
    JSONPathSegment,
)
from jsonpath_rfc9535.selectors import IndexSelector, NameSelector, WildcardSelector
from jsonpath_rfc9535.tokens import TokenStream

from holdfast.errors import LimitExceeded

# What one evaluation may look at. `$..*..*` over a few thousand values would otherwise look at billions.
NODES_VISITED_MAX: Final = 1_000_000


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
        self._query = _parsed(text)
        self.reads = tuple(_fixed_members(query) for query in _queries_from_root(self._query))
        beyond = self._query.segments[len(self.reads[0]) :]
        self.star = len(beyond) == 1 and _is_star(beyond[0])
        self.singular = self.reads[0] if self.star or not beyond else None

    def find(self, data: Any) -> list[Any]:
        """All values that the path names in the data, or LimitExceeded if it looks at too many."""
        _budget.left = NODES_VISITED_MAX
        return [node.value for node in self._query.finditer(data)]


def _parsed(text: str) -> JSONPathQuery:
    try:
        return _environment.compile(text)
    except JSONPathError as error:
        message = str(error.args[0]) if error.args else "not a path"
        raise NotAPath(message, error.token.index if error.token else 0) from None
    except (RecursionError, ArithmeticError, ValueError, IndexError):
        # A thousand parentheses, or a number like 1e999: the library's own words would not help.
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


# ----------------------------------------------------------------------------------------- bounded evaluation


class _Budget(threading.local):
    """How many nodes the evaluation that runs in this thread may still visit. Evaluation never awaits."""

    left = NODES_VISITED_MAX

    def spend(self, nodes: int) -> None:
        self.left -= nodes
        if self.left < 0:
            message = f"the JSONPath looks at more than {NODES_VISITED_MAX:,} values"
            raise LimitExceeded("nodes_visited_max", message)


_budget = _Budget()


def _counted(nodes: Iterable[JSONPathNode], selectors: int) -> Iterator[JSONPathNode]:
    """Each selector looks at a node and perhaps at all its children, whether or not they are selected."""
    for node in nodes:
        children = len(node.value) if isinstance(node.value, dict | list) else 0
        _budget.spend((1 + children) * selectors)
        yield node


def _size(value: Any) -> int:
    """How many values a value holds, counted no further than the budget goes."""
    stack, count = [value], 0
    while stack and count <= _budget.left:
        top = stack.pop()
        count += 1
        if isinstance(top, dict):
            stack.extend(top.values())
        elif isinstance(top, list):
            # What a path inside a filter yields is a list of nodes, which stand for their values.
            stack.extend(getattr(item, "value", item) for item in top)
    return count


class _CountingChild(JSONPathChildSegment):
    def resolve(self, nodes: Iterable[JSONPathNode]) -> Iterable[JSONPathNode]:
        return super().resolve(_counted(nodes, len(self.selectors)))


class _CountingDescent(JSONPathRecursiveDescentSegment):
    def resolve(self, nodes: Iterable[JSONPathNode]) -> Iterable[JSONPathNode]:
        for node in nodes:
            for visited in _counted(self._visit(node), len(self.selectors)):
                for selector in self.selectors:
                    yield from selector.resolve(visited)


class _CountingComparison(ComparisonExpression):
    """Comparing two large values looks at every value in them."""

    def evaluate(self, context: FilterContext) -> bool:
        sides = (self.left, self.right)
        if not any(isinstance(side, FilterExpressionLiteral) for side in sides):
            _budget.spend(min(_size(side.evaluate(context)) for side in sides))
        return super().evaluate(context)


class _CountingParser(Parser):
    def parse_query(self, stream: TokenStream, *, in_filter: bool = False) -> Iterable[JSONPathSegment]:
        for segment in super().parse_query(stream, in_filter=in_filter):
            descends = isinstance(segment, JSONPathRecursiveDescentSegment)
            counting = _CountingDescent if descends else _CountingChild
            yield counting(env=self.env, token=segment.token, selectors=segment.selectors)

    def parse_infix_expression(self, stream: TokenStream, left: Expression) -> Expression:
        parsed = super().parse_infix_expression(stream, left)
        if not isinstance(parsed, ComparisonExpression):
            return parsed
        return _CountingComparison(parsed.token, parsed.left, parsed.operator, parsed.right)


class _Environment(JSONPathEnvironment):
    parser_class = _CountingParser

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        del self.function_extensions["match"], self.function_extensions["search"]


_environment: Final = _Environment()
