"""`PieceRegistry`: all pieces of one runtime, and the operations on them that other parts of the runtime use.

Two names of the same piece lead to the same instance. The registry composes the parts of this folder and delegates to
them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from headwater.cells.cell import Cell
from headwater.cells.handle import Input
from headwater.data.address import SPACE_SCOPE, AddressParts, Depth, Link, parse_address
from headwater.data.reader_trie import Spot
from headwater.data.text import shown
from headwater.data.value import ABSENT
from headwater.errors import AbsentError, AuthoringError, GoneError
from headwater.pieces.declarations import ChildMember, EachMember, GivenMember
from headwater.pieces.names import SEPARATOR, piece_id
from headwater.pieces.piece import Piece
from headwater.protocol.observations import whose_record
from headwater.replica.document import NOT_HERE
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.core.observers import Existence
from headwater.runtime.pieces.children.coordinator import ChildSet
from headwater.runtime.pieces.children.prefetch import Prefetch
from headwater.runtime.pieces.code_versions import CodeVersions, describe_imported
from headwater.runtime.pieces.context import EventContext, NodeContext
from headwater.runtime.pieces.fold.fold import fold
from headwater.runtime.pieces.fold.history import PastDocuments
from headwater.runtime.pieces.idle import IdlePieces
from headwater.runtime.pieces.inputs import HANDLER
from headwater.runtime.pieces.instance import PieceInstance
from headwater.runtime.pieces.lifecycle import Erasures
from headwater.runtime.pieces.links import LinkAccess, descendant
from headwater.runtime.pieces.records import Records
from headwater.runtime.pieces.resource import Resources, Worker
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.pieces.declarations import FoldMember, ResourceMember
    from headwater.pieces.handles import Computed, Resource
    from headwater.replica.document import Document
    from headwater.replica.feed import Notification
    from headwater.runtime.channel.sessions import UserSessions
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.policy import Policy
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.pieces.ports import EventSender, NodeSource
    from headwater.runtime.pieces.view import ScopedView
    from headwater.runtime.writing.space_channel import SpaceChannel
    from headwater.runtime.writing.transactions import Transactions

PieceT = TypeVar("PieceT", bound=Piece)


class PieceRegistry:
    """The pieces of one runtime."""

    __slots__ = (
        "_instances",
        "_kept",
        "_pasts",
        "_resources",
        "_tasks",
        "channel",
        "code_versions",
        "core",
        "erasures",
        "events",
        "idle",
        "link_access",
        "make_space",
        "node_source",
        "prefetch",
        "records",
        "sessions",
        "transactions",
    )

    events: EventSender
    node_source: NodeSource

    def __init__(
        self,
        core: Core,
        *,
        tasks: Tasks,
        policy: Policy,
        channel: Callable[[str], SpaceChannel | None],
        transactions: Transactions,
        sessions: UserSessions,
        worker: Worker,
        is_only: bool,
        make_space: Callable[[str, str, str], object],
    ) -> None:
        self.core = core
        core.find_piece = self.find_piece
        core.scheduler.on_foreign = self._check_generations
        self._tasks = tasks
        self.channel = channel  # returns the channel of a space by its name; None: the space has no engine
        self.transactions = transactions
        self.sessions = sessions
        self.make_space = make_space  # returns the application's object for a space, a user and a session
        # Instances with a holder: a program, a node, an event, their parent. Those that run here are in `_kept`, too.
        self._instances: WeakValueDictionary[tuple[str, str], PieceInstance] = WeakValueDictionary()
        self._kept: dict[PieceInstance, None] = {}
        self._pasts: dict[str, PastDocuments] = {}  # by space, created at its first use
        self.records = Records(core, self)
        self.idle = IdlePieces(core, policy.named_pieces)
        self.code_versions = CodeVersions(is_only=is_only)
        self.erasures = Erasures(core, tasks, self, policy.erasures)
        self._resources = Resources(core, tasks, transactions, worker)
        self.link_access = LinkAccess(core, sessions, self)
        self.prefetch = Prefetch(core, self.find, lambda: list(self._instances.values()))

    def connect(self, events: EventSender, node_source: NodeSource) -> None:
        """Set the ports, before the first piece is made. The parts behind them are made with this registry."""
        self.events = events
        self.node_source = node_source

    # ---- instances ---------------------------------------------------------------------------------

    def find_or_make(
        self, space: LocalSpace, cls: type[PieceT], name: str, inputs: dict[str, Any] | None = None
    ) -> PieceInstance:
        """Return the instance of a piece by its name in a space.

        An instance of a class that was defined again since (a notebook cell run twice) is stopped and replaced.
        """
        if not (isinstance(cls, type) and issubclass(cls, Piece)):
            raise AuthoringError(f"{cls!r} is not a class of pieces: write space.piece(Cart, 'ann')")
        id = piece_id(name)
        found = self._instances.get((space.name, id))
        if found is not None:
            if found.cls is cls:
                return found
            self._check_replaces(found, cls)
        cls.__schema__.check()
        describe_imported()
        if found is not None:
            found.stop(is_replaced=True)
        made = self._instances[space.name, id] = PieceInstance(self, space, cls, id, name, inputs=inputs)
        return made

    def _check_replaces(self, found: PieceInstance, cls: type[Piece]) -> None:
        """Refuse another class for a piece, unless it is the same class, defined again later."""
        schema, name, space = cls.__schema__, found.name, found.space.name
        if found.schema.name != schema.name:
            raise AuthoringError(f"{name!r} of {space} is a {found.schema.name} here, not a {schema.name}")
        if schema.number < found.schema.number:
            raise AuthoringError(
                f"{schema.name} was defined again, and {name!r} of {space} is of the new class: use it"
            )

    def add_child(
        self,
        parent: PieceInstance,
        piece: Piece,
        id: str,
        maker: Node | None,
        *,
        is_back: bool = False,
        is_new: bool = False,
    ) -> PieceInstance:
        """Create the instance of a child, which exists as long as the row that keeps it.

        `is_back`: the child was restored from the stored observation of its row, which did not run.
        """
        old = self._instances.get((parent.space.name, id))
        if old is not None:
            old.stop()
        type(piece).__schema__.check()
        child = PieceInstance(
            self, parent.space, type(piece), id, id, inputs=dict(piece.__inputs__), parent=parent, maker=maker
        )
        self._instances[parent.space.name, id] = child
        child.is_new = is_new
        for user, session in parent.opened_for():
            child.open(user, session, is_back=is_back)
        return child

    def make_transient_child(self, parent: PieceInstance, piece: Piece, id: str) -> PieceInstance:
        """Create a child that exists in one transaction only. It is not found by its id, and is not opened."""
        type(piece).__schema__.check()
        child = PieceInstance(
            self, parent.space, type(piece), id, id, inputs=dict(piece.__inputs__), parent=parent, maker=None
        )
        child.is_new = child.is_transient = True
        return child

    def forget_instance(self, instance: PieceInstance) -> None:
        """Note that a piece was stopped. Its name leads to its instance while that has a holder, unless it is over."""
        self._kept.pop(instance, None)
        self.idle.forget(instance)
        self.node_source.forget_piece(instance)
        if instance.is_stopped and self._instances.get((instance.space.name, instance.id)) is instance:
            del self._instances[instance.space.name, instance.id]

    def find(self, space: str, id: str) -> PieceInstance | None:
        """Return the instance of a piece by its id, if it exists in this runtime."""
        return self._instances.get((space, id))

    def _check_generations(self, notification: Notification) -> None:
        """Stop the pieces that a newer version of their class runs, according to records that have changed."""
        for change in notification.changes:
            id = whose_record(change.document.key)
            space = self.core.name_of(change.document.home) if id else None
            instance = None if space is None else self.find(space, id)
            if instance is not None:
                instance.check_generation()

    # ---- code of other programs ----------------------------------------------------------------------

    async def take_over(self, instance: PieceInstance) -> None:
        """Have a piece that is only named run by the code of this program. Raises the error of opening the piece."""
        await self.code_versions.claim(instance, self.channel(instance.space.name))

        def write() -> None:
            if self.records.exists(instance):
                self.records.write(instance)

        if not self.records.adopt(instance):
            await self.transactions.transact(instance.space, write)

    def begin_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task that no caller awaits."""
        self._tasks.begin(work, name)

    # ---- finding -------------------------------------------------------------------------------------

    def find_by_id(self, space: LocalSpace, id: str) -> PieceInstance:
        """Return the instance of a piece by its id: one of this runtime, or one made from the record or the keeper."""
        found = self._instances.get((space.name, id))
        if found is not None:
            return found
        if SEPARATOR not in id:
            return self.records.found(space, id)
        # fault+ inputs.child_records_loaded: if self.core.current.run is None: return self.records.found(space, id)
        if self.core.current.run is None:
            raise AbsentError(f"{space.name} has no piece {id!r} here: a child is found by a run that reads it")
        return descendant(self, space, id)

    def find_piece(self, document: Document) -> Existence | None:
        """Inside a run: return whether the piece that a document belongs to exists, and subscribe to that.

        A piece that is open here exists: a deletion elsewhere does not end it. None: the document is of no piece.
        """
        id = document.key.id.partition(SEPARATOR)[0].partition(":")[0]
        space = self.core.name_of(document.home)
        instance = None if space is None else self.find(space, id)
        if instance is None:
            return None
        record = self.records.cell(instance.space, instance.id)
        document, run = record.document, self.core.current.run
        if instance.is_open and document.value is NOT_HERE and run is not None:
            # A sleeping piece: the run does not wait for the record, and is called again when it is here.
            # fault sinks.records_of_sleeping_pieces_not_read: pass
            run.record_read(Spot(document, (), Depth.SHAPE))
            return Existence(True)
        is_there = record.exists()  # Read of an open piece, too: it may be stopped and deleted after this run.
        made_by = tuple(document.layers) if document.confirmed is ABSENT else ()
        return Existence(instance.is_open or is_there, document.written, made_by)

    def instances(self) -> tuple[PieceInstance, ...]:
        """Return all instances of this runtime."""
        return tuple(self._instances.values())

    def kept(self) -> tuple[PieceInstance, ...]:
        """Return the pieces that run here until they are stopped."""
        return tuple(self._kept)

    def is_quiet(self) -> bool:
        """Return whether no event waits for its turn or for local work, and no piece is being resumed."""
        return not self.events.has_local_work() and self.node_source.is_quiet()

    # ---- members -----------------------------------------------------------------------------------

    def coordinator(self, instance: PieceInstance, member: EachMember | ChildMember) -> ChildSet:
        found = instance.coordinators.get(member)
        if found is None:
            with self.node_source.batch_nodes():
                found = instance.coordinators[member] = ChildSet(instance, member)
            if self.node_source.is_asleep(instance.root):
                self.core.afterwards(lambda: instance.keep(member))  # In a piece that is awake they are kept already.
        elif found.is_sparse:
            self.node_source.wake_piece(instance.root)  # The caller may want all of its rows.
        return found

    def partial_children(self, instance: PieceInstance, member: EachMember | ChildMember) -> ChildSet:
        """Return the coordinator of a sleeping piece, which makes only the rows that are needed."""
        found = instance.coordinators.get(member)
        if found is None:
            found = instance.coordinators[member] = ChildSet(instance, member, is_sparse=True)
        return found

    def fold(self, view: ScopedView, member: FoldMember) -> Computed[Any]:
        return fold(view, member)

    def history_of(self, space: str) -> PastDocuments:
        """Return the documents of a space as of earlier seqs."""
        found = self._pasts.get(space)
        if found is None:
            found = self._pasts[space] = PastDocuments(self.core, self._tasks, self.channel, space)
        return found

    def resource(self, view: ScopedView, member: ResourceMember) -> Resource[Any]:
        return self._resources.handle(view, member)

    def resolve_input(self, instance: PieceInstance, member: GivenMember) -> Any:
        """Return the input of a piece by its name, from its maker or from its record."""
        if instance.inputs is not None:
            return instance.inputs[member.name]
        said = self.records.read(instance).inputs.get(member.name)
        if not isinstance(said, str):
            raise AuthoringError(
                f"{instance!r} has no input {member.name!r} yet: open it with {instance.cls.__name__}(...)"
            )
        if said.startswith(HANDLER):
            return self._handler(said.removeprefix(HANDLER))
        parts = parse_address(said)
        space = instance.space if parts.space is None else self.core.space(parts.space)
        found = self._owned(space, parts)
        if found is not None:
            return found
        given = instance.schema.given(member)
        assert given.codec is not None
        kind: type[Input[Any]] = Cell if given.is_cell else Input
        made = kind(self.core, space.document(parts.id, parts.scope), given.codec, parts.path)
        if SEPARATOR in parts.id:
            made.set_maker(lambda: self._owned(space, parts))  # A child is found only inside a run, when it reads.
        return made

    def _owned(self, space: LocalSpace, parts: AddressParts) -> Input[Any] | None:
        """Return the handle of the member at an address, with its default and its node. None: no member is there."""
        id, _, stored = parts.id.rpartition(":")
        instance = None
        if id:
            try:
                instance = self.find_by_id(space, id)
            except GoneError:
                raise  # The reader of a row that left gets the error, as if it had seen the row leave.
            except (AbsentError, AuthoringError):
                return None  # No record, or the class is not imported: the stored value can still be read.
        member = None if instance is None else instance.schema.get(stored)
        if instance is None or member is None:
            return None
        scope, _, owner = parts.scope.partition(":")
        user, session = (owner, "") if scope == "user" else ("", owner)
        if member.scope != scope:
            return None
        handle = instance.view(member.scope, user, session).handle(member)
        if not isinstance(handle, Input):
            return None
        return handle.below(parts.path) if parts.path else handle

    def _handler(self, place: str) -> Any:
        space, _, rest = place.partition("/")
        id, _, stored = rest.rpartition(":")
        instance = self.find_by_id(self.core.space(space), id)
        member = instance.schema.get(stored)
        if member is None:
            raise AuthoringError(f"{instance!r} has no handler {stored!r} any more: keep it, or rename it with was=")
        return instance.view("space").handle(member)

    # ---- runs --------------------------------------------------------------------------------------

    def context(self, view: ScopedView) -> EventContext | NodeContext:
        """Return the current value of `ctx` for a view."""
        current = self.events.current
        if current is None:
            return NodeContext(view)
        event, context = current
        if event.instance is view.instance:
            return context
        return EventContext(view, event, context.launched)

    def run_began_us(self) -> int:
        """Return the wall clock time at which the open run began: the same value at every call."""
        run = self.core.current.run
        if run is None:
            return self.core.clock.now_us()
        if run.began is None or run.began[0] != run.number:
            run.began = (run.number, self.core.clock.now_us())
        return run.began[1]

    # ---- for spaces --------------------------------------------------------------------------------

    def keep(self, instance: PieceInstance, user: str, session: str, *, is_launch: bool = False) -> None:
        """Run a piece here until it is stopped. A piece that a program opened does not depend on a launch any more."""
        instance.is_launched = instance.is_launched and is_launch
        self._kept[instance] = None
        self.idle.forget(instance)
        instance.open(user, session)
        self.events.retry_parked(instance.space.name)
        self.core.request_tick()

    def launch(self, space: LocalSpace, id: str, piece: Piece) -> PieceInstance:
        """Create an independent piece that exists from the commit of the current handler on."""
        if not isinstance(piece, Piece) or piece.__bound__ is not None:
            raise AuthoringError(f"ctx.launch({piece!r}): make the piece in the call, as in ctx.launch(Job(...))")
        type(piece).__schema__.check()
        name = piece_id(id)
        known = self._instances.get((space.name, name))
        if known is not None and not known.is_stopped and known.cls is type(piece):
            instance = known  # An earlier attempt launched it, or a program names it: they share the instance.
            is_opened = known in self._kept and not known.is_launched
        else:
            instance = self._instances[space.name, name] = PieceInstance(
                self, space, type(piece), name, id, inputs=dict(piece.__inputs__)
            )
            is_opened = False
        given, instance.inputs = instance.inputs, dict(piece.__inputs__)
        self.records.write(instance)
        if is_opened:  # An opened piece keeps its inputs, whatever the outcome of this attempt.
            instance.inputs = given
        instance.is_launched = not is_opened
        return instance

    def unlaunch(self, instance: PieceInstance) -> None:
        """Stop a piece whose launching attempt failed (I10). A piece that a program opened continues."""
        if instance.is_launched:
            # From now on its inputs come from its record, like its name, if another launch is committed.
            instance.is_launched, instance.inputs = False, None
            instance.stop()
            instance.is_launched = True

    def follow(self, view: ScopedView, link: Link) -> Any:
        """Return the handle or the piece that a link points at."""
        if not isinstance(link, Link):  # Authors pass the value of a cell, whose type may include None.
            raise AuthoringError(
                f"ctx.follow({shown(link)}): write the value of a link, as in ctx.follow(self.last.get()), and test "
                "for None before it if the cell may have no link"
            )
        space = view.instance.space if link.space is None else self.core.space(link.space)
        id, colon, stored = link.id.rpartition(":")
        if not colon:
            raise AuthoringError(f"{link!r} points at no piece and at no member of one")
        self.link_access.cross(view.instance.space, space)
        instance = self.find_by_id(space, id)
        seen = view.seen_in(instance)
        if stored == "@":
            return seen.piece
        if link.scope not in (SPACE_SCOPE, f"user:{view.user}", f"session:{seen.session}"):
            raise AuthoringError(f"{link!r} points at data of {link.scope}: only a run for that scope may follow it")
        member = instance.schema.get(stored)
        if member is None:
            raise AuthoringError(f"{link!r}: {instance!r} has no member {stored!r} any more")
        handle = seen.handle(member)
        return handle.below(link.path) if link.path else handle
