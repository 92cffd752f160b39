"""The stored documents of pieces: which there are, and their erasure.

`Erasures` erases the documents of children whose keys were removed, for every `each` declared with `forget=True`. The
child set stores the keys that are due for erasure in the same commit that leaves them out of its list of rows. An
erasure deletes the documents of one such child and removes its key from the stored keys, in one commit. The commit is
conditional on the key not being in the source: a key that has returned by then keeps the data of its child, so that no
write to the child is lost. If the runtime is killed in between, the next runtime with this child set repeats the
erasure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.patch import Patch
from headwater.data.value import ABSENT, Absent, Value
from headwater.errors import AccessError
from headwater.protocol.messages import Query
from headwater.replica.document import NOT_HERE, Document, NotLoaded
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.tracker import UNDECIDED, Missing

if TYPE_CHECKING:
    from headwater.runtime.channel.sessions import UserSessions
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.writing.space_channel import SpaceChannel
    from headwater.runtime.writing.transactions import Transactions


class Due(NamedTuple):
    """The reason of an erasure: a key in a document, and the value at that key."""

    document: Document
    key: str
    value: Value
    is_over: Callable[[], bool]  # called in the transaction; if True, no document is erased


class PieceDocuments:
    """Lists and erases the documents of pieces in the spaces of one runtime."""

    __slots__ = ("_channel", "_core", "_transactions")

    def __init__(self, core: Core, channel: Callable[[str], SpaceChannel | None], transactions: Transactions) -> None:
        self._core = core
        self._channel = channel  # returns the channel of a space by its name; None: the space has no engine
        self._transactions = transactions

    async def between(
        self,
        space: LocalSpace,
        *,
        after: str,
        until: str | None = None,
        scope: str = SPACE_SCOPE,
        skip: Callable[[str], str] | None = None,
    ) -> AsyncIterator[tuple[DocKey, Value]]:
        """Yield the documents of a scope between two ids, ordered by id. They are queried page by page.

        `skip` returns, for the last id of a page, the id after which the next page begins.
        """
        channel = self._channel(space.name)
        if channel is None:
            here = [each for each in space.replica.documents.held() if each.key.scope == scope]
            for document in sorted(here, key=lambda each: each.key.id):
                value = document.value
                is_between = document.key.id > after and (until is None or document.key.id < until)
                if is_between and not isinstance(value, (NotLoaded, Absent)):
                    yield document.key, value
            return
        more: str | None = after
        while more is not None:
            answer = await channel.driver.answer_of(Query(0, scope, after=more, limit=RUNTIME_LIMITS.listed_documents))
            for state in answer.documents:
                if until is not None and state.doc.id >= until:
                    return
                value = state.get()
                if not isinstance(value, Absent):
                    yield state.doc, value
            more = answer.next
            if more is not None and skip is not None and answer.documents:
                more = max(more, skip(answer.documents[-1].doc.id))

    async def erase(
        self, space: LocalSpace, id: str, scopes: Iterable[str], own: Iterable[Document] = (), due: Due | None = None
    ) -> None:
        """Delete every document of a piece and of its children that is in one of the scopes, and those of `own`.

        The same commit removes the key that the erasure is due for. If that key has another value by then, nothing is
        done. A document of `own` that is made after the query is a conflict, and is deleted as well.
        """
        heads = (f"{id}:", f"{id}/")
        found = []
        for scope in scopes:
            async for key, _ in self.between(space, after=id, until=f"{id};", scope=scope):
                if key.id.startswith(heads):
                    found.append(key)
        core = self._core
        doomed = list(dict.fromkeys([*(space.document(key.id, key.scope) for key in found), *own]))
        needed = doomed if due is None else [*doomed, due.document]

        def remove() -> None:
            run = core.current.run
            assert run is not None
            assert run.transaction is not None
            transaction = run.transaction
            if missing := [document for document in needed if document.value is NOT_HERE]:
                raise Missing(*missing)
            if due is not None:
                # fault forget.erased_twice: if False:
                if transaction.read(due.document.key, (due.key,)) != due.value:
                    return
                transaction.write(due.document.key, Patch("remove", (due.key,)))
                if due.is_over():
                    return
            for document in doomed:
                # Another erasure may have been first. A pending write of this runtime that may be retried stays before
                # it.
                if transaction.read(document.key, (), Depth.SHAPE) is not ABSENT:
                    transaction.write(document.key, Patch("remove", ()))

        if needed:
            for document in needed:
                core.load(document)  # All at once: the transaction would stop at each of them.
            try:
                await until_here(core, needed)
                await self._transactions.transact(space, remove)
            finally:
                for document in needed:
                    space.release_if_unread(document)


async def until_here(core: Core, documents: list[Document]) -> None:
    """Wait until each of the documents is loaded, or will not arrive."""
    await core.observers.until(
        lambda: all(each.value is not NOT_HERE or core.why_not(each) is not None for each in documents)
    )


async def until_stored(core: Core, space: LocalSpace, documents: list[Document]) -> None:
    """Wait until every result and every commit of this runtime that writes the documents has its verdict."""
    await core.observers.until(
        lambda: space.ended is not None or not any(each.entry is not None or _is_undecided(each) for each in documents)
    )


class Erasures:
    """The running erasures of one runtime."""

    __slots__ = ("_at_most", "_core", "_documents", "_sessions", "_tasks", "_under_way")

    def __init__(
        self, core: Core, tasks: Tasks, sessions: UserSessions, documents: PieceDocuments, at_most: int
    ) -> None:
        self._core = core
        self._tasks = tasks
        self._sessions = sessions
        self._documents = documents
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
        core = self._core

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
            scopes = (SPACE_SCOPE, f"session:{self._sessions.own(space.name)}")
            await self._documents.erase(space, child, scopes, due=Due(due, key, token, is_there))


def _is_undecided(document: Document) -> bool:
    return any(layer.fate in UNDECIDED for layer in document.layers)
