"""The parameters of a function: checking and converting arguments, and their JSON Schema.

Compiled once and used for every call. Knows functions; forms.py knows single annotations.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from holdfast.tools.context import Context
from holdfast.tools.failures import ArgumentMismatch
from holdfast.tools.forms import Form, Mismatch, form_of, to_float

_ABSENT: Final = object()
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Fault(NamedTuple):
    """What is wrong with one argument. `names` are the parameters of a tool that has none of this name."""

    kind: Literal["missing", "value", "unknown"]
    name: str
    message: str = ""
    names: tuple[str, ...] = ()


class Signature:
    """The parameters of a function by name. `context` is the parameter that receives the Context, if there is one."""

    __slots__ = (
        "_checks",
        "_exact",
        "_fn",
        "_others",
        "_required",
        "_takes_any",
        "_tool",
        "context",
    )

    def __init__(self, fn: Callable[..., Any], tool: str) -> None:
        self._fn, self._tool = fn, tool
        self._others = Form({}, {})  # the type of arguments that `**` accepts
        self._takes_any = False
        self.context: str | None = None
        checks: list[tuple[str, type | None, Callable[[Any], Any] | None, bool]] = []
        for name, parameter, annotation in _parameters(fn, tool):
            if _is_context(annotation):
                self._take_context(name, parameter)
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._takes_any, self._others = True, self._form(name, annotation)
            elif parameter.kind in _NAMED:
                form = self._form(name, _or_null(annotation, parameter))
                checks.append((name, form.exact, form.convert, parameter.default is inspect.Parameter.empty))
            elif parameter.kind is inspect.Parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
                raise TypeError(
                    f"tool {tool!r}: arguments are given by name, and {name!r} has none to be given by; "
                    "take the `/` out of its signature"
                )
        self._checks = tuple(checks)
        # Types of the parameters, if the type of each argument decides whether it fits; otherwise None.
        exact = {name: kind for name, kind, _, _ in checks if kind not in (None, type(None))}
        self._exact = exact if len(exact) == len(checks) else None
        self._required = frozenset(name for name, _, _, required in checks if required)

    def bind(self, args: dict[str, Any]) -> dict[str, Any]:
        """Return the checked and converted arguments. The given mapping is not changed."""
        exact = self._exact
        if exact is None or len(exact) != len(args):
            return self._converted(args)
        for name, value in args.items():
            if type(value) is not exact.get(name):
                return self._converted(args)
        return args

    def decoder(self) -> Callable[[bytes | msgspec.Raw], msgspec.Struct] | None:
        """Return what decodes the text of arguments and checks them as it goes: a record of them in the order of the parameters. None
        unless every parameter is required and of a type that decides, and the function takes them in that order. It refuses what
        `bind` refuses, and may refuse more."""
        exact = self._exact
        if exact is None or len(exact) != len(self._required) or self._takes_any:
            return None
        if _in_order(self._fn) != tuple(exact) or self._may_keep_an_int():
            return None
        fields = [
            (f"_{place}", kind, msgspec.field(name=name)) for place, (name, kind) in enumerate(exact.items())
        ]
        form = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, gc=False)
        return msgspec.json.Decoder(form).decode

    def _may_keep_an_int(self) -> bool:
        """Whether a parameter is a `float | int`: a decoder of floats would convert its ints."""
        return any(exact is float and convert is not to_float for _, exact, convert, _ in self._checks)

    def _converted(self, args: dict[str, Any]) -> dict[str, Any]:
        fit, bound = 0, args
        for name, exact, convert, required in self._checks:
            value = args.get(name, _ABSENT)
            if type(value) is exact or (convert is None and value is not _ABSENT):
                fit += 1
            elif value is not _ABSENT:
                if bound is args:
                    bound = dict(args)
                try:
                    bound[name] = convert(value)  # type: ignore[misc]  # without one, the first test was true
                except Mismatch:
                    raise self._mismatch(args) from None
                fit += 1
            elif required:
                raise self._mismatch(args)
        if fit != len(args):
            return self._with_others(args, bound)
        return bound

    def spread(self, given: Any, params: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call that knows only `input` and `params`.

        A parameter of either name gets just that. Without one, the members of an object become arguments by name, those
        of the input before those of the params, and params that the function does not know are left out: they may be
        meant for others. Another input, or one that has no member of that name for a function of one parameter, is the
        first argument.
        """
        names = [name for name, _, _, _ in self._checks]
        args: dict[str, Any] = {}
        if "params" in names:
            args["params"] = params
        else:
            args = {name: value for name, value in params.items() if self._takes_any or name in names}
        free = [name for name in names if name not in args] or names
        if "input" in names:
            args["input"] = given
        elif isinstance(given, dict) and (len(names) != 1 or names[0] in given or self._takes_any):
            args |= given
        elif names and given is not None:
            args[free[0]] = given
        return args

    def _with_others(self, args: dict[str, Any], bound: dict[str, Any]) -> dict[str, Any]:
        """Add arguments beyond the named parameters to `**`, or report them as unknown."""
        if not self._takes_any or self.context in args:
            raise self._mismatch(args)
        exact, convert = self._others.exact, self._others.convert
        if convert is None:
            return bound
        names = {name for name, _, _, _ in self._checks}
        try:
            return {
                name: value if name in names or type(value) is exact else convert(value)
                for name, value in bound.items()
            }
        except Mismatch:
            raise self._mismatch(args) from None

    def _mismatch(self, args: dict[str, Any]) -> ArgumentMismatch:
        """Return an error that names everything wrong with the arguments."""
        problems = "; ".join(self._in_words(fault, args) for fault in self.faults(args))
        return ArgumentMismatch(f"the arguments do not fit the tool {self._tool!r}: {problems}")

    def faults(
        self, args: dict[str, Any], is_judged: Callable[[Any], bool] = lambda value: True
    ) -> list[Fault]:
        """Everything wrong with the arguments; values for which `is_judged` is false are accepted."""
        found: list[Fault] = []
        names = tuple(name for name, _, _, _ in self._checks)
        others = [
            (name, self._others.exact, self._others.convert, False) for name in args if name not in names
        ]
        for name, exact, convert, required in (*self._checks, *(others if self._takes_any else ())):
            value = args.get(name, _ABSENT)
            if value is _ABSENT:
                found += [Fault("missing", name)] if required else []
            elif convert is not None and type(value) is not exact and is_judged(value):
                try:
                    convert(value)
                except Mismatch as mismatch:
                    found.append(Fault("value", name, f"{name}{mismatch.where}: {mismatch.message}"))
        if not self._takes_any or self.context in args:
            strange = args.keys() - set(names) if not self._takes_any else {self.context}
            found += [Fault("unknown", str(name), names=names) for name in args if name in strange]
        return found

    def _in_words(self, fault: Fault, args: dict[str, Any]) -> str:
        if fault.kind == "missing":
            return f"{fault.name!r} is missing"
        if fault.kind == "value":
            return fault.message
        from holdfast.nearest import did_you_mean

        hint = did_you_mean(fault.name, [known for known in fault.names if known not in args])
        hint = hint or (f"it takes {', '.join(fault.names)}" if fault.names else "it takes no arguments")
        return f"there is no parameter {fault.name!r} ({hint})"

    def _take_context(self, name: str, parameter: inspect.Parameter) -> None:
        if parameter.kind not in _NAMED:
            raise TypeError(f"tool {self._tool!r}: the Context {name!r} must be a parameter with a name")
        if self.context is not None:
            raise TypeError(f"tool {self._tool!r}: both {self.context!r} and {name!r} are annotated Context")
        self.context = name

    def _form(self, name: str, annotation: Any) -> Form:
        try:
            return form_of(annotation)
        except TypeError as error:
            raise TypeError(f"tool {self._tool!r}, parameter {name!r}: {error}") from None

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments. Built on request, because few are needed."""
        properties: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        for name, parameter, annotation in _parameters(self._fn, self._tool):
            if name != self.context and parameter.kind in _NAMED:
                form = form_of(_or_null(annotation, parameter))
                properties[name] = {**form.schema, **_default(parameter)}
                definitions.update(form.definitions)
        found: dict[str, Any] = {"type": "object", "properties": properties}
        if self._required:
            found["required"] = sorted(self._required)
        found["additionalProperties"] = self._others.schema if self._takes_any else False
        if description := inspect.getdoc(self._fn):
            found["description"] = description
        definitions.update(self._others.definitions)
        return {**found, "$defs": definitions} if definitions else found


def _in_order(fn: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the parameters that a function takes by position. Unknown for other callables, and not those in the signature of a
    decorated function: its wrapper may take all by name."""
    if type(fn) is not types.FunctionType:
        return None
    return fn.__code__.co_varnames[: fn.__code__.co_argcount]


def _parameters(fn: Callable[..., Any], tool: str) -> list[tuple[str, inspect.Parameter, Any]]:
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some functions written in C do not say
        parameters = inspect.signature(lambda **anything: None).parameters
    names = functools.cache(functools.partial(_namespaces, fn))
    return [(name, parameter, _annotation(names, parameter, tool)) for name, parameter in parameters.items()]


def _annotation(names: Callable[[], dict[str, Any]], parameter: inspect.Parameter, tool: str) -> Any:
    """Resolve an annotation; one written as text is evaluated where the function was defined."""
    if not isinstance(parameter.annotation, str):
        return parameter.annotation
    try:
        holder = {"__annotations__": {"it": parameter.annotation}}
        return typing.get_type_hints(type("holder", (), holder), names(), None, include_extras=True)["it"]
    except Exception as error:
        if parameter.annotation.rpartition(".")[2] == "Context":  # imported for the type checker alone
            return Context
        raise TypeError(
            f"tool {tool!r}, parameter {parameter.name!r}: the annotation {parameter.annotation!r} cannot be read "
            f"({error}); import the names in it at module level, so that they exist at run time"
        ) from None


def _namespaces(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the namespaces for an annotation: the module, the scopes around the function, and common types."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    inner = inspect.unwrap(getattr(fn, "__func__", fn))
    closed = inspect.getclosurevars(inner).nonlocals if inspect.isfunction(inner) else {}
    # Often imported only for the type checker, and their meaning is unambiguous.
    usual = {**vars(typing), **vars(collections.abc)}
    return {**usual, **getattr(inner, "__globals__", {}), **closed}


def _is_context(annotation: Any) -> bool:
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation is Context or Context in typing.get_args(annotation)


def _or_null(annotation: Any, parameter: inspect.Parameter) -> Any:
    """Accept null for `x: int = None`, as its author would expect."""
    if parameter.default is not None or annotation in (Any, object, inspect.Parameter.empty):
        return annotation
    return typing.Optional[annotation]  # noqa: UP045  # the annotation is a value here


def _default(parameter: inspect.Parameter) -> dict[str, Any]:
    if parameter.default is inspect.Parameter.empty:
        return {}
    try:
        return {"default": msgspec.to_builtins(parameter.default)}
    except (TypeError, ValueError, RecursionError):  # a default need not be JSON: it is never sent
        return {}
