"""A plugin that is a module of WebAssembly: no host functions and no WASI, so it can only compute.

    (memory (export "memory") …)
    alloc(length: i32) -> i32            where the host may write so many bytes
    schedules() -> i64                   {"ok": [{"id": …, "cron": …, …}]}
    run(address: i32, length: i32) -> i64     receives the context of the run as JSON; {"ok": …}
    cleanup() -> i64                     {"ok": …}; may be left out

An answer is JSON in the memory of the module, `address << 32 | length`; `{"err": "message"}` is an error. Each call has an instance of its
own, so that runs of several schedules do not wait for each other and a trap leaves nothing behind, and its own budget of fuel.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import limits
from holdfast.plugins.plugin import ScheduledPlugin, ScheduledRunCtx
from holdfast.tools.failures import ToolError
from holdfast.values import decode, encode

if TYPE_CHECKING:
    from wasmtime import Engine, Instance, Module, Store

FUEL_RUN: Final = 1_000_000_000
FUEL_SCHEDULES: Final = 10_000_000
FUEL_CLEANUP: Final = 100_000_000
FILE_BYTES_MAX: Final = 64 * 1024 * 1024
MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024  # of one call
TABLE_ELEMENTS_MAX: Final = 100_000
LOW: Final = 0xFFFF_FFFF

# Each function that a module must or may export, with its parameters and results.
FUNCTIONS: Final = {
    "alloc": (("i32",), ("i32",)),
    "schedules": ((), ("i64",)),
    "run": (("i32", "i32"), ("i64",)),
    "cleanup": ((), ("i64",)),
}
OPTIONAL: Final = frozenset({"cleanup"})


class WasmPlugin(ScheduledPlugin):
    """The plugin in a file. Its name is that of the file, without `.wasm`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def name(self) -> str:
        return self.path.stem

    def schedules(self) -> Any:
        return self._call("schedules", FUEL_SCHEDULES)

    def run(self, ctx: ScheduledRunCtx) -> None:
        self._call("run", FUEL_RUN, encode(msgspec.to_builtins(ctx)))

    def cleanup(self) -> None:
        if "cleanup" in {export.name for export in self._compiled[1].exports}:
            self._call("cleanup", FUEL_CLEANUP)

    @cached_property
    def _compiled(self) -> tuple[Engine, Module]:
        from wasmtime import Config, Engine, Module, WasmtimeError

        if (size := self.path.stat().st_size) > FILE_BYTES_MAX:
            raise ToolError(f"{self.path} has {limits.size(size)}; it may have {limits.size(FILE_BYTES_MAX)}")
        config = Config()
        config.consume_fuel = True
        config.wasm_threads = False  # a thread of the guest would not be ours to stop
        engine = Engine(config)
        try:
            module = Module(engine, self.path.read_bytes())
        except WasmtimeError as error:
            said = str(error).splitlines()[0]
            raise ToolError(f"{self.path} is not a module of WebAssembly: {said}") from None
        if problems := _interface_problems(module):
            raise ToolError(f"{self.path}: {'; '.join(problems)}")
        return engine, module

    def _call(self, function: str, fuel: int, argument: bytes | None = None) -> Any:
        """Call a function of the module, in an instance of its own; raise ToolError with what went wrong."""
        from wasmtime import Instance, Store, Trap, WasmtimeError

        engine, module = self._compiled
        store = Store(engine)
        store.set_fuel(fuel)
        store.set_limits(MEMORY_BYTES_MAX, TABLE_ELEMENTS_MAX, instances=1, memories=1)
        try:
            guest = _Guest(store, Instance(store, module, []))
            given = () if argument is None else guest.written(argument)
            text = guest.read(guest.call(function, *given))
        except (Trap, WasmtimeError) as error:
            raise ToolError(_explained(function, fuel, error)) from None
        return _answer(function, text)


class _Guest:
    """One instance, and its memory."""

    def __init__(self, store: Store, instance: Instance) -> None:
        self._store, self._exports = store, instance.exports(store)
        self._memory: Any = self._exports["memory"]

    def call(self, function: str, *args: int) -> int:
        called: Any = self._exports[function]
        return int(called(self._store, *args))

    def written(self, data: bytes) -> tuple[int, int]:
        address = self.call("alloc", len(data)) & LOW
        self._check(address, len(data), "alloc returned")
        self._memory.write(self._store, data, address)
        return address, len(data)

    def read(self, packed: int) -> bytes:
        address, length = packed >> 32 & LOW, packed & LOW
        self._check(address, length, "the answer is")
        return bytes(self._memory.read(self._store, address, address + length))

    def _check(self, address: int, length: int, what: str) -> None:
        most = limits.now.value_bytes_max
        if length > most:
            raise ToolError(f"{what} {limits.size(length)} long; it may be {limits.size(most)}")
        if address + length > self._memory.data_len(self._store):
            raise ToolError(
                f"{what} at address {address}, with {length} bytes, which is outside of the memory"
            )


def _answer(function: str, text: bytes) -> Any:
    try:
        answer = decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ToolError(f"the answer of {function} is not JSON: {error}") from None
    match answer:
        case {"err": str(message)}:
            raise ToolError(message)
        case {"ok": value}:
            return value
        case _:
            raise ToolError(f'the answer of {function} must be {{"ok": …}} or {{"err": "message"}}')


def _interface_problems(module: Module) -> list[str]:
    """What a module lacks to be a plugin, and what it may not have."""
    from wasmtime import FuncType, MemoryType

    exports = {export.name: export.type for export in module.exports}
    problems = [
        f"it imports {one.module}.{one.name}, and a plugin gets no host functions" for one in module.imports
    ]
    if not isinstance(exports.get("memory"), MemoryType):
        problems.append('it exports no memory with the name "memory"')
    for name, (params, results) in FUNCTIONS.items():
        kind = exports.get(name)
        if kind is None and name in OPTIONAL:
            continue
        wanted = f"{name}({', '.join(params)}) -> {results[0]}"
        if not isinstance(kind, FuncType):
            problems.append(f"it exports no function {wanted}")
        elif (tuple(map(str, kind.params)), tuple(map(str, kind.results))) != (params, results):
            problems.append(f"its function {name} must be {wanted}")
    return problems


def _explained(function: str, fuel: int, error: Exception) -> str:
    from wasmtime import Trap, TrapCode

    if isinstance(error, Trap) and error.trap_code is TrapCode.OUT_OF_FUEL:
        return f"{function} has used up its {fuel:,} units of fuel"
    # The first lines are a trace of addresses; the cause comes last.
    return f"{function} failed: {str(error).rstrip().splitlines()[-1].strip()}"
