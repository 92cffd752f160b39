"""Erasing the documents of children whose keys were removed, for every `each` declared with `forget=True`.

The coordinator stores the keys that are due for erasure in the same commit that leaves them out of its list of rows. An
erasure deletes the documents of one such child and removes its key from the stored keys, in one commit. The commit is
conditional on the key not being in the source: a key that has returned by then keeps the data of its child, so that no
write to the child is lost. If the runtime is killed in between, the next runtime with this coordinator repeats the
erasure.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import AccessError
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.core.tracker import UNDECIDED
from headwater.runtime.pieces.lifecycle import Due, SpaceUser, erase

if TYPE_CHECKING:
    from headwater.data.value import Value
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.pieces.registry import PieceRegistry


class Erasures:
    """The running erasures of one runtime."""

    __slots__ = ("_at_most", "_core", "_pieces", "_tasks", "_under_way")

    def __init__(self, core: Core, tasks: Tasks, pieces: PieceRegistry, at_most: int) -> None:
        self._core = core
        self._tasks = tasks
        self._pieces = pieces
        self._at_most = at_most  # erasures that run at the same time
        self._under_way: set[tuple[Document, str | None]] = set()  # the document of due keys, and the key; None: all

    def is_over(self) -> bool:
        """Return whether no erasure is running."""
        return not self._under_way

    def begin(self, space: LocalSpace, due: Document, key: str, child: str, is_there: Callable[[], bool]) -> None:
        """Erase the documents of a child whose key is stored in `due`, unless that erasure is already running.

        `is_there` is called in the transaction and returns whether the key has returned to the source.
        """
        self._begin(due, key, lambda: self._erase(space, due, key, child, is_there), f"erasing {child}")

    def when_known(self, due: Document, begin: Callable[[], None]) -> None:
        """Call `begin` when the document `due` is loaded."""

        async def load() -> None:
            await self._core.loaded(due)
            begin()

        self._begin(due, None, load, f"erasing what is in {due!r}")

    def _begin(self, due: Document, key: str | None, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        tasks = self._tasks
        if (due, key) in self._under_way or tasks.is_closed:
            return
        self._under_way.add((due, key))

        async def whole() -> None:
            try:
                async with tasks.at_most(self, self._at_most):
                    await work()
            except AccessError:
                pass  # A runtime with the right to write performs the erasure.
            finally:
                self._under_way.discard((due, key))

        tasks.begin(whole(), name)

    async def _erase(
        self, space: LocalSpace, due: Document, key: str, child: str, is_there: Callable[[], bool]
    ) -> None:
        core, everybody = self._core, SpaceUser(self._pieces, space, "", "")

        def stored() -> Value | None:
            may_write = space.ended is None and space.replica.may_write
            return due.value.get(key) if may_write and isinstance(due.value, Mapping) else None

        while True:
            # Wait until this runtime's earlier writes to the child are stored, so that the query finds their documents.
            # When the wait ends, the key may have left the source again.
            while _is_undecided(due) and space.ended is None:
                await core.observers.until(lambda: space.ended is not None or not _is_undecided(due))
            # fault+ erasures.keys_not_loaded: token = stored()
            # fault+ erasures.keys_not_loaded: if token is None: return
            if due.value is NOT_HERE and space.ended is None:
                await core.loaded(due)  # The connection was lost and is back: the keys have to arrive again.
                continue
            token = stored()
            if token is None:
                return
            await erase(everybody, child, Due(due, key, token, is_there))


def _is_undecided(document: Document) -> bool:
    return any(layer.fate in UNDECIDED for layer in document.layers)
