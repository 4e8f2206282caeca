"""A cache bounded by entries and bytes, which evicts the least recently used entry."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self.count_max, self.bytes_max, self.bytes = count_max, bytes_max, 0
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def get(self, key: Key) -> Value | None:
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def take(self, key: Key) -> Value | None:
        """Return a value and remove it."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        self.bytes -= found[1]
        return found[0]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Store a value of `size` bytes. The newest value is kept even if it exceeds the bound."""
        known = self._entries.pop(key, None)
        self.bytes += size - (0 if known is None else known[1])
        self._entries[key] = value, size
        while len(self._entries) > 1 and (len(self._entries) > self.count_max or self.bytes > self.bytes_max):
            _, (_, freed) = self._entries.popitem(last=False)
            self.bytes -= freed

    def add(self, other: Remembered[Key, Value]) -> None:
        """Merge another cache, as if its values had been stored here."""
        for key, (value, size) in other._entries.items():
            self.put(key, value, size)
