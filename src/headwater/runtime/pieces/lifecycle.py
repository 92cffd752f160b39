"""Operations of a space on pieces: open, create, find, stop and delete.

Creating a piece is one transaction with its record and the writes of `setup`. Opening runs the piece here until it is
stopped; a piece that exists already is not set up again.

`Erasures` erases the documents of children whose keys were removed, for every `each` declared with `forget=True`. The
coordinator stores the keys that are due for erasure in the same commit that leaves them out of its list of rows. An
erasure deletes the documents of one such child and removes its key from the stored keys, in one commit. The commit is
conditional on the key not being in the source: a key that has returned by then keeps the data of its child, so that no
write to the child is lost. If the runtime is killed in between, the next runtime with this coordinator repeats the
erasure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from headwater.data.address import Depth, DocKey
from headwater.data.patch import Patch
from headwater.data.text import shown
from headwater.data.value import ABSENT, Absent, Value
from headwater.errors import AbsentError, AccessError, AuthoringError, author_call
from headwater.pieces.declarations import GivenMember
from headwater.pieces.names import SEPARATOR
from headwater.pieces.piece import Piece
from headwater.protocol.messages import Query
from headwater.replica.document import NOT_HERE, Document, NotLoaded
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.tracker import UNDECIDED, Missing
from headwater.runtime.pieces.code_versions import replace_former_children
from headwater.runtime.pieces.handles import cells_of
from headwater.runtime.pieces.idle import instances_of, nodes_of
from headwater.runtime.pieces.instance import PieceInstance
from headwater.runtime.pieces.records import RECORD, NotArrivedError, class_named, stored_name
from headwater.runtime.pieces.view import ScopedView

if TYPE_CHECKING:
    from headwater.data.value import Value
    from headwater.replica.document import Document
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.scheduler.node import Node

PieceT = TypeVar("PieceT", bound=Piece)
T_co = TypeVar("T_co", covariant=True)


class Page(Generic[T_co]):
    """One page of results, and the position of the next page."""

    __slots__ = ("items", "next")

    def __init__(self, items: tuple[T_co, ...], more: str | None) -> None:
        self.items = items
        self.next = more  # pass it as after=; None: this is the last page

    def __repr__(self) -> str:
        return f"<page of {len(self.items)}{', and more' if self.next is not None else ''}>"


class SpaceUser:
    """One space, for the user and the session that operations on its pieces are for."""

    __slots__ = ("local", "pieces", "session", "user")

    def __init__(self, pieces: PieceRegistry, local: LocalSpace, user: str, session: str) -> None:
        self.pieces = pieces
        self.local = local
        self.user = user
        self.session = session  # empty: the session of the runtime for this user

    def __repr__(self) -> str:
        return f"<space {self.name}>"

    @property
    def name(self) -> str:
        return self.local.name


def _instance(space: SpaceUser, what: Any, name: str) -> PieceInstance:
    """Return the instance for a class, or for an unbound piece that was made with its inputs."""
    pieces = space.pieces
    if isinstance(what, Piece):
        if what.__bound__ is not None:
            raise AuthoringError(f"{what!r} lives already: give the class, or make another one with its inputs")
        return pieces.find_or_make(space.local, type(what), name, dict(what.__inputs__))
    if not (isinstance(what, type) and issubclass(what, Piece)):
        raise AuthoringError(f"{what!r} is not a piece: write space.open(Cart, 'ann') or space.open(Cart(...), 'ann')")
    return pieces.find_or_make(space.local, what, name)


def piece(space: SpaceUser, cls: type[PieceT], name: str) -> PieceT:
    """Return a piece by its name. Nothing of it is started."""
    instance = _instance(space, cls, name)
    return instance.view("session", space.user, _session(space)).piece  # type: ignore[return-value]


def _session(space: SpaceUser) -> str:
    """Return the session that a program acts for: the one it names, or its own."""
    return space.session or space.pieces.sessions.of(space.name, space.user)


async def open_piece(
    space: SpaceUser, what: Any, name: str, setup: Callable[[Any], object] | None, *, new: bool
) -> Any:
    """Create the piece if it does not exist, and run it here until it is stopped."""
    pieces = space.pieces
    instance = _instance(space, what, name)
    session = _session(space)
    made = instance.view("session", space.user, session).piece
    if isinstance(what, Piece) and instance.inputs is None:
        instance.inputs = dict(what.__inputs__)
    replace_former_children(instance)
    await pieces.code_versions.claim(instance, pieces.channel(space.name))

    def make() -> frozenset[str]:
        if pieces.records.exists(instance):
            if new:
                raise AuthoringError(f"{space.name} has a piece {name!r} already: open it, or choose another name")
            return pieces.records.write(instance)
        if instance.inputs is None:
            instance.schema.check_inputs({})
        pieces.records.write(instance)
        if setup is not None:
            setup(made)
        return frozenset()

    if not new and isinstance(what, type) and await pieces.node_source.open_asleep(instance, space.user, session):
        pieces.keep(instance, space.user, session)
        if any(each.value is NOT_HERE for each in instance.held):
            await pieces.node_source.load_cells(instance)
            await _arrived(space, instance.view("session", space.user, session))
        await _ready(instance)
        return made
    is_requested = not instance.is_open and not pieces.node_source.may_sleep(instance)
    if is_requested:
        instance.request(space.user, session)
    try:
        if is_requested:  # Otherwise the transaction would be called twice.
            await _until_here(space, [instance.generation_check().document])
        if gone := await pieces.transactions.transact(space.local, make):
            await _warn_of_unclaimed(space, instance, gone)
        await _given(instance)
        await pieces.node_source.prepare_open(instance, space.user, session)
    except BaseException:
        if is_requested and not instance.is_open:
            instance.release(space.user, session)
        raise
    if not pieces.node_source.is_asleep(instance) and not instance.is_open:
        await _request(space, instance, session)
    pieces.keep(instance, space.user, session)
    await _arrived(space, instance.view("session", space.user, session))
    await _ready(instance)
    return made


async def _warn_of_unclaimed(space: SpaceUser, instance: PieceInstance, gone: frozenset[str]) -> None:
    """Log a warning if something is stored of cells that the class had before and has not any more.

    A cell that was renamed without `was=` is one of them, and its new name begins with its default.
    """
    here = stored_name(instance.cls)
    claimed = {name.rpartition(".")[2] for name in space.pieces.code_versions.cells(instance.cls)}
    found: dict[str, None] = {}
    for scope in ("space", *((f"user:{space.user}",) if space.user else ())):
        async for key, _ in documents(space, after=instance.id, until=f"{instance.id};", scope=scope):
            owner, _, stored = key.id.rpartition(":")
            is_own = owner == instance.id and f"{here}.{stored}" in gone
            is_childs = owner.startswith(f"{instance.id}{SEPARATOR}") and stored not in claimed
            if is_own or (is_childs and any(each.endswith(f".{stored}") for each in gone)):
                found[stored] = None
    for stored in found:
        space.pieces.core.failures.warn(
            f"{instance!r} has data stored under {stored!r}, and its class has no cell of that name any more: if the "
            f"cell was renamed, write cell(..., was={stored!r}) at its new name"
        )


async def _ready(instance: PieceInstance) -> None:
    """Wait until the piece is resumed and no node of it or of its children has a run to come.

    Other work of the runtime is not waited for: there may be no end of it.
    """
    pieces, scheduler = instance.pieces, instance.pieces.core.scheduler
    is_resumed = pieces.node_source.readiness(instance)
    coming: list[Node] = []  # the node that was waited for at the last check: others are looked at after it

    def is_ready() -> bool:
        if coming and scheduler.is_coming(coming[0]):
            return False
        coming[:] = islice(filter(scheduler.is_coming, nodes_of(instance)), 1)
        return not coming and is_resumed() and not instance.is_loading()

    await pieces.core.observers.until(is_ready)


async def _request(space: SpaceUser, instance: PieceInstance, session: str) -> None:
    """Have all documents of a piece here before the first node of it runs, so that no attempt of a node stops."""
    documents = instance.request(space.user, session)
    try:
        await _until_here(space, documents)
    except BaseException:
        instance.release(space.user, session)
        raise


async def _until_here(space: SpaceUser, documents: list[Document]) -> None:
    """Wait until each of the documents is loaded, or will not arrive."""
    core = space.pieces.core
    await core.observers.until(
        lambda: all(each.value is not NOT_HERE or core.why_not(each) is not None for each in documents)
    )


async def _given(instance: PieceInstance) -> None:
    """Load the records that the inputs of a piece are resolved with."""
    pieces = instance.pieces
    for member in instance.schema.of(GivenMember):
        for _ in range(RUNTIME_LIMITS.input_records):
            try:
                pieces.resolve_input(instance, member)
            except NotArrivedError as missing:
                await pieces.core.loaded(missing.document)
            except (AbsentError, AuthoringError):
                break  # A reader of the input gets the error.
            else:
                break


async def _arrived(space: SpaceUser, view: ScopedView) -> None:
    """Wait until the piece's own cells are loaded. If one cannot be loaded, stop the piece and raise the reason."""
    core = space.pieces.core
    waiting = cells_of(view)
    for each in waiting:
        core.load(each)
    await _until_here(space, waiting)
    for each in waiting:
        why = core.why_not(each)
        if each.value is NOT_HERE and why is not None:
            view.instance.stop()
            raise why


@author_call
async def stop(space: SpaceUser, what: Piece) -> None:
    """Stop running a piece here for the user and session of the space. Its documents stay."""
    instance = _own(space, what)
    users = {user for user, _ in instance.opened_for()}
    is_others = bool(space.user and users) and not users & {space.user, ""}
    if not is_others and not instance.close(space.user, _session(space)):
        instance.stop(is_read_on=True)
    pieces = space.pieces
    await pieces.core.observers.until(lambda: pieces.core.is_quiet() and pieces.is_quiet())


@author_call
async def delete(space: SpaceUser, what: Piece) -> None:
    """Stop a piece and delete its documents for all users."""
    instance = _own(space, what)
    observed = [document for each in instances_of(instance) for document in each.documents()]
    instance.stop()
    # Results that are on their way are stored first, so that the query finds their documents.
    # fault delete.results_on_their_way_stay: pass
    await _until_stored(space, observed)
    await erase(space, instance.id)
    instance.is_made = False  # The next event sent to it creates a new piece.
    space.pieces.core.scheduler.writers_left(observed)  # Observers end, others read the new piece.


async def _until_stored(space: SpaceUser, documents: list[Document]) -> None:
    """Wait until every result and every commit of this runtime that writes the documents has its verdict."""
    local = space.local
    await space.pieces.core.observers.until(
        lambda: local.ended is not None or not any(each.entry is not None or _is_undecided(each) for each in documents)
    )


def _own(space: SpaceUser, what: Piece) -> PieceInstance:
    view = what.__bound__ if isinstance(what, Piece) else None
    instance = view.instance if isinstance(view, ScopedView) else None
    if instance is None or instance.pieces is not space.pieces or instance.space is not space.local:
        raise AuthoringError(f"{what!r} is not a piece of {space!r}")
    return instance


class Due(NamedTuple):
    """The reason of an erasure: a key in a document, and the value at that key."""

    document: Document
    key: str
    value: Value
    is_over: Callable[[], bool]  # called in the transaction; if True, no document is erased


async def erase(space: SpaceUser, id: str, due: Due | None = None) -> None:
    """Delete every document of a piece and of its children: shared ones, and those of this user and this session.

    The same commit removes the key that the erasure is due for. If that key has another value by then, nothing is done.
    """
    heads = (f"{id}:", f"{id}/")
    scopes = ["space", *((f"user:{space.user}",) if space.user else ()), f"session:{_session(space)}"]
    found = []
    for scope in scopes:
        async for key, _ in documents(space, after=id, until=f"{id};", scope=scope):
            if key.id.startswith(heads):
                found.append(key)
    local, core = space.local, space.pieces.core
    doomed = [local.document(key.id, key.scope) for key in found]
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
            # Another erasure may have been first. A pending write of this runtime that may be retried stays before it.
            if transaction.read(document.key, (), Depth.SHAPE) is not ABSENT:
                transaction.write(document.key, Patch("remove", ()))

    if needed:
        for document in needed:
            core.load(document)  # All at once: the transaction would stop at each of them.
        try:
            await _until_here(space, needed)
            await space.pieces.transactions.transact(local, remove)
        finally:
            for document in needed:
                local.release_if_unread(document)


@author_call
async def find(space: SpaceUser, cls: type[PieceT], after: str | None, limit: int) -> Page[PieceT]:
    """Return one page of the pieces of a class, ordered by name."""
    if not 1 <= limit <= RUNTIME_LIMITS.found_pieces:
        raise AuthoringError(f"find(limit={limit}): write 1 to {RUNTIME_LIMITS.found_pieces}")
    if not (isinstance(cls, type) and issubclass(cls, Piece)):
        raise AuthoringError(f"find({shown(cls)}): write the class of the pieces, as in find(Cart)")
    items: list[PieceT] = []
    last: str | None = None
    schema = cls.__schema__
    async for key, value in documents(space, after=after or "", skip=_next_piece):
        id, _, stored = key.id.rpartition(":")
        if stored != RECORD or "/" in id or not isinstance(value, dict):
            continue
        if value.get("cls") not in (schema.name, schema.was):
            continue
        if len(items) == limit:
            return Page(tuple(items), last)
        items.append(piece(space, cls, str(value.get("name", id))))
        last = key.id
    return Page(tuple(items), None)


async def listing(space: SpaceUser) -> list[tuple[str, str, bool]]:
    """Return every piece of a space: its name, its class, and whether that class is imported here."""
    found = []
    async for key, value in documents(space, after="", skip=_next_piece):
        id, _, stored = key.id.rpartition(":")
        if stored == RECORD and "/" not in id and isinstance(value, dict):
            named = str(value.get("cls", ""))
            try:
                class_named(named)
            except AuthoringError:
                found.append((str(value.get("name", id)), named, False))
            else:
                found.append((str(value.get("name", id)), named, True))
    return found


def _next_piece(id: str) -> str:
    """Return the id after which the next record can be, given the id of a document: behind the children or the piece.

    No piece name contains `/` or `:`; in id order they are followed by `0` and `;`. A record is the first document of
    its piece.
    """
    name, is_child, _ = id.partition("/")
    if is_child:
        return f"{name}0"
    name, _, stored = id.partition(":")
    return f"{name};" if stored >= RECORD else id


async def documents(
    space: SpaceUser,
    *,
    after: str,
    until: str | None = None,
    scope: str = "space",
    skip: Callable[[str], str] | None = None,
) -> AsyncIterator[tuple[DocKey, Value]]:
    """Yield the documents of a scope between two ids, ordered by id. They are queried page by page."""
    channel = space.pieces.channel(space.name)
    if channel is None:
        here = [each for each in space.local.replica.documents.held() if each.key.scope == scope]
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
