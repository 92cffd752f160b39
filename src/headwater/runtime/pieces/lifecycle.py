"""Operations of a space on pieces: open, create, find, stop and delete.

Creating a piece is one transaction with its record and the writes of `setup`. Opening runs the piece here until it is
stopped; a piece that exists already is not set up again.

`PieceOpener` opens and creates; `Lifecycle` names, finds, stops and deletes. What is stored of a piece is listed and
erased by `piece_documents`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headwater.data.address import SPACE_SCOPE
from headwater.data.text import shown
from headwater.errors import AuthoringError, author_call
from headwater.pieces.names import SEPARATOR
from headwater.pieces.piece import Piece
from headwater.replica.document import NOT_HERE
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.pieces.classes import cell_names, stored_name
from headwater.runtime.pieces.hot_reload import replace_former_children
from headwater.runtime.pieces.instance import PieceInstance
from headwater.runtime.pieces.piece_documents import until_here, until_stored
from headwater.runtime.pieces.records import RECORD, record_document
from headwater.runtime.pieces.view import ScopedView

if TYPE_CHECKING:
    from headwater.runtime.channel.sessions import UserSessions
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.pieces.generation_check import ClassClaims
    from headwater.runtime.pieces.links import Links
    from headwater.runtime.pieces.piece_documents import PieceDocuments
    from headwater.runtime.pieces.ports import NodeSource
    from headwater.runtime.pieces.records import Records
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.writing.transactions import Transactions
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

    __slots__ = ("_session", "_sessions", "local", "user")

    def __init__(self, sessions: UserSessions, local: LocalSpace, user: str, session: str) -> None:
        self._sessions = sessions
        self.local = local
        self.user = user
        self._session = session  # empty: the session of the runtime for this user

    def __repr__(self) -> str:
        return f"<space {self.name}>"

    @property
    def name(self) -> str:
        return self.local.name

    @property
    def session(self) -> str:
        """The session that a program acts for: the one it names, or its own."""
        return self._session or self._sessions.of(self.name, self.user)


def _instance(registry: PieceRegistry, space: SpaceUser, what: Any, name: str) -> PieceInstance:
    """Return the instance for a class, or for an unbound piece that was made with its inputs."""
    if isinstance(what, Piece):
        if what.__bound__ is not None:
            raise AuthoringError(f"{what!r} is in a space already: pass its class, or a new piece with its inputs")
        return registry.find_or_make(space.local, type(what), name, dict(what.__inputs__))
    if not (isinstance(what, type) and issubclass(what, Piece)):
        raise AuthoringError(f"{what!r} is not a piece: write space.open(Cart, 'ann') or space.open(Cart(...), 'ann')")
    return registry.find_or_make(space.local, what, name)


class PieceOpener:
    """Opens and creates the pieces of one runtime."""

    __slots__ = (
        "_class_claims",
        "_core",
        "_documents",
        "_links",
        "_node_source",
        "_records",
        "_registry",
        "_transactions",
    )

    def __init__(
        self,
        core: Core,
        registry: PieceRegistry,
        *,
        records: Records,
        links: Links,
        documents: PieceDocuments,
        class_claims: ClassClaims,
        node_source: NodeSource,
        transactions: Transactions,
    ) -> None:
        self._core = core
        self._registry = registry
        self._records = records
        self._links = links
        self._documents = documents
        self._class_claims = class_claims
        self._node_source = node_source
        self._transactions = transactions

    async def open_piece(
        self, space: SpaceUser, what: Any, name: str, setup: Callable[[Any], object] | None, *, new: bool
    ) -> Any:
        """Create the piece if it does not exist, and run it here until it is stopped."""
        instance = _instance(self._registry, space, what, name)
        session = space.session
        made = instance.view("session", space.user, session).piece
        if isinstance(what, Piece) and instance.inputs is None:
            instance.inputs = dict(what.__inputs__)
        replace_former_children(instance)
        await self._class_claims.claim(instance)

        def make() -> frozenset[str]:
            if self._records.exists(instance):
                if new:
                    raise AuthoringError(f"{space.name} has a piece {name!r} already: open it, or choose another name")
                return self._records.write(instance)
            if instance.inputs is None:
                instance.schema.check_inputs({})
            self._records.write(instance)
            if setup is not None:
                setup(made)
            return frozenset()

        if not new and isinstance(what, type) and await self._node_source.open_asleep(instance, space.user, session):
            self._registry.run_piece(instance, space.user, session)
            if any(each.value is NOT_HERE for each in instance.held):
                await self._node_source.load_cells(instance)
                await self._arrived(instance.view("session", space.user, session))
            await self._ready(instance)
            return made
        is_requested = not instance.is_open and not self._node_source.may_sleep(instance)
        if is_requested:
            instance.request(space.user, session)
        try:
            if is_requested:  # Otherwise the transaction would be called twice.
                await until_here(self._core, [instance.generation_check().document])
            if gone := await self._transactions.transact(space.local, make):
                await self._warn_of_unclaimed(space, instance, gone)
            await self._links.load_inputs(instance)
            await self._node_source.prepare_open(instance, space.user, session)
        except BaseException:
            if is_requested and not instance.is_open:
                instance.release(space.user, session)
            raise
        if not self._node_source.is_asleep(instance) and not instance.is_open:
            await self._request(space, instance, session)
        self._registry.run_piece(instance, space.user, session)
        await self._arrived(instance.view("session", space.user, session))
        await self._ready(instance)
        return made

    async def _warn_of_unclaimed(self, space: SpaceUser, instance: PieceInstance, gone: frozenset[str]) -> None:
        """Log a warning if something is stored of cells that the class had before and has not any more.

        A cell that was renamed without `was=` is one of them, and its new name begins with its default.
        """
        here = stored_name(instance.cls)
        claimed = {name.rpartition(".")[2] for name in cell_names(instance.cls)}
        found: dict[str, None] = {}
        for scope in ("space", *((f"user:{space.user}",) if space.user else ())):
            async for key, _ in self._documents.between(
                space.local, after=instance.id, until=f"{instance.id};", scope=scope
            ):
                owner, _, stored = key.id.rpartition(":")
                is_own = owner == instance.id and f"{here}.{stored}" in gone
                is_childs = owner.startswith(f"{instance.id}{SEPARATOR}") and stored not in claimed
                if is_own or (is_childs and any(each.endswith(f".{stored}") for each in gone)):
                    found[stored] = None
        for stored in found:
            self._core.failures.warn(
                f"{instance!r} has data stored under {stored!r}, and its class has no cell of that name any more: if "
                f"the cell was renamed, write cell(..., was={stored!r}) at its new name"
            )

    async def _ready(self, instance: PieceInstance) -> None:
        """Wait until the piece is resumed and no node of it or of its children has a run to come.

        Other work of the runtime is not waited for: there may be no end of it.
        """
        scheduler = self._core.scheduler
        is_resumed = self._node_source.readiness(instance)
        coming: list[Node] = []  # the node that was waited for at the last check: others are looked at after it

        def is_ready() -> bool:
            if coming and scheduler.is_coming(coming[0]):
                return False
            coming[:] = islice(filter(scheduler.is_coming, instance.all_nodes()), 1)
            return not coming and is_resumed() and not instance.is_loading()

        await self._core.observers.until(is_ready)

    async def _request(self, space: SpaceUser, instance: PieceInstance, session: str) -> None:
        """Have all documents of a piece here before the first node of it runs, so that no attempt of a node stops."""
        documents = instance.request(space.user, session)
        try:
            await until_here(self._core, documents)
        except BaseException:
            instance.release(space.user, session)
            raise

    async def _arrived(self, view: ScopedView) -> None:
        """Wait until the piece's own cells are loaded. If one cannot be loaded, stop the piece and raise the reason."""
        core = self._core
        waiting = view.cell_documents()
        for each in waiting:
            core.load(each)
        await until_here(core, waiting)
        for each in waiting:
            why = core.why_not(each)
            if each.value is NOT_HERE and why is not None:
                view.instance.stop()
                raise why


class Lifecycle:
    """Names, finds, stops and deletes the pieces of one runtime."""

    __slots__ = ("_core", "_documents", "_is_quiet", "_registry")

    def __init__(
        self, core: Core, registry: PieceRegistry, documents: PieceDocuments, is_quiet: Callable[[], bool]
    ) -> None:
        self._core = core
        self._registry = registry
        self._documents = documents
        self._is_quiet = is_quiet  # returns whether no event waits for local work and no piece is being resumed

    def piece(self, space: SpaceUser, cls: type[PieceT], name: str) -> PieceT:
        """Return a piece by its name. Nothing of it is started."""
        instance = _instance(self._registry, space, cls, name)
        return instance.view("session", space.user, space.session).piece  # type: ignore[return-value]

    @author_call
    async def find(self, space: SpaceUser, cls: type[PieceT], after: str | None, limit: int) -> Page[PieceT]:
        """Return one page of the pieces of a class, ordered by name."""
        if not 1 <= limit <= RUNTIME_LIMITS.found_pieces:
            raise AuthoringError(f"find(limit={limit}): write 1 to {RUNTIME_LIMITS.found_pieces}")
        if not (isinstance(cls, type) and issubclass(cls, Piece)):
            raise AuthoringError(f"find({shown(cls)}): write the class of the pieces, as in find(Cart)")
        items: list[PieceT] = []
        last: str | None = None
        schema = cls.__schema__
        async for key, value in self._documents.between(space.local, after=after or "", skip=_next_piece):
            id, _, stored = key.id.rpartition(":")
            if stored != RECORD or "/" in id or not isinstance(value, dict):
                continue
            if value.get("cls") not in (schema.name, schema.was):
                continue
            if len(items) == limit:
                return Page(tuple(items), last)
            items.append(self.piece(space, cls, str(value.get("name", id))))
            last = key.id
        return Page(tuple(items), None)

    @author_call
    async def stop(self, space: SpaceUser, what: Piece) -> None:
        """Stop running a piece here for the user and session of the space. Its documents stay."""
        instance = _own(space, what)
        users = {user for user, _ in instance.opened_for()}
        is_others = bool(space.user and users) and not users & {space.user, ""}
        if not is_others and not instance.close(space.user, space.session):
            instance.stop(is_read_on=True)
        await self._core.observers.until(lambda: self._core.is_quiet() and self._is_quiet())

    @author_call
    async def delete(self, space: SpaceUser, what: Piece) -> None:
        """Stop a piece and delete its documents for all users."""
        instance = _own(space, what)
        observed = [document for each in instance.with_descendants() for document in each.documents()]
        instance.stop()
        # Results that are on their way are stored first, so that the query finds their documents.
        # fault delete.results_on_their_way_stay: pass
        await until_stored(self._core, space.local, observed)
        user = (f"user:{space.user}",) if space.user else ()
        # An event that makes one of these meanwhile is a conflict: the deletion is made again, and removes it as well.
        own = [
            record_document(space.local, instance.id),
            *(
                document
                for each in instance.with_descendants()
                for document in each.view("session", space.user, space.session).cell_documents()
            ),
        ]
        # fault+ delete.cells_made_meanwhile_stay: own = []
        await self._documents.erase(space.local, instance.id, (SPACE_SCOPE, *user, f"session:{space.session}"), own)
        instance.is_made = False  # The next event sent to it creates a new piece.
        self._core.scheduler.writers_left(observed)  # Observers end, others read the new piece.


def _own(space: SpaceUser, what: Piece) -> PieceInstance:
    view = what.__bound__ if isinstance(what, Piece) else None
    instance = view.instance if isinstance(view, ScopedView) else None
    if instance is None or instance.space is not space.local:
        raise AuthoringError(f"{what!r} is not a piece of {space!r}")
    return instance


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
