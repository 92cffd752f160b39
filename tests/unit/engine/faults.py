"""A store that fails at a chosen call, for tests of what the engine does then.

It wraps a real store and counts the calls of the port. At the chosen one it fails, either before the call
did anything or after it did everything, and only that once; what is `down` fails until it is up again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from headwater.engine.store.port import Store
from headwater.errors import StorageError


class FaultyStore:
    """Delegates to a store. `fail_at` counts calls from 1; 0 never fails."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.calls: list[str] = []
        self.fail_at = 0
        self.fail_on = ""
        self.after = False
        self.down: set[str] = set()
        self.error: Callable[[], BaseException] = lambda: StorageError("the disk failed (planted)")

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name == "delivery":
            return _Tables(self, attribute)
        return self.counted(name, attribute) if callable(attribute) else attribute

    def counted(self, name: str, attribute: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self.down:
                raise self.error()
            due = len(self.calls) == self.fail_at or name == self.fail_on
            if not due:
                return attribute(*arguments, **options)
            self.fail_at, self.fail_on = 0, ""
            if self.after:
                attribute(*arguments, **options)
            raise self.error()

        return call


class _Tables:
    """A part of the store, whose calls count as the store's."""

    def __init__(self, store: FaultyStore, tables: object) -> None:
        self._store = store
        self._tables = tables

    def __getattr__(self, name: str) -> Any:
        return self._store.counted(name, getattr(self._tables, name))


if TYPE_CHECKING:

    def faulty(inner: Store) -> tuple[Store, FaultyStore]: ...

else:

    def faulty(inner: Store) -> tuple[Store, FaultyStore]:
        """The store for the engine, and the same object as the one that a test sets to fail."""
        store = FaultyStore(inner)
        return cast(Store, store), store
