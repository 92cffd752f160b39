"""`PieceRegistry`: all pieces of one runtime, and the operations on them that other parts of the runtime use.

Two names of the same piece lead to the same instance.

A child has no record and is found through the pieces that keep it. Each keeper is brought up to date first, inside a
run as for any other reader of an `each` or a `child`. So a stored reference to a child, a link or a recorded input,
leads to the child again in any runtime. No child is made that its keeper would not make.

A piece that is only named (`space.piece`) gets nodes as soon as a caller pulls or watches it, and their results are
worth keeping for the next read. There is no signal that no further read will come, so `IdlePieces` keeps a limited
number of such pieces and releases those used longest ago. A released piece gets its nodes again at the next read,
through any of its handles. A piece with a reader or a demanded node is not released.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from headwater.data.address import Depth
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT
from headwater.errors import AbsentError, AuthoringError, GoneError
from headwater.pieces.declarations import ChildMember, EachMember
from headwater.pieces.names import SEPARATOR, child_name, piece_id, unescaped
from headwater.pieces.piece import Piece
from headwater.protocol.observations import whose_record
from headwater.replica.document import NOT_HERE
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.core.observers import Existence
from headwater.runtime.pieces.classes import class_named, describe_imported
from headwater.runtime.pieces.instance import InstanceParts, PieceInstance
from headwater.runtime.pieces.records import Records
from headwater.scheduler.graph.edges import readers_of_writes
from headwater.scheduler.node import Node, NodeKind

if TYPE_CHECKING:
    from headwater.replica.document import Document
    from headwater.replica.feed import Notification
    from headwater.runtime.core.core import Core

PieceT = TypeVar("PieceT", bound=Piece)


class PieceRegistry:
    """The pieces of one runtime."""

    __slots__ = ("_core", "_instances", "_kept", "_parts", "_records", "idle")

    _parts: InstanceParts

    def __init__(self, core: Core, records: Records, named_most: int) -> None:
        """`named_most`: pieces that are not open and keep their nodes."""
        self._core = core
        core.find_piece = self.find_piece
        core.scheduler.on_foreign = self._check_generations
        self._records = records
        self.idle = IdlePieces(core, named_most)
        # Instances with a holder: a program, a node, an event, their parent. Those that run here are in `_kept`, too.
        self._instances: WeakValueDictionary[tuple[str, str], PieceInstance] = WeakValueDictionary()
        self._kept: dict[PieceInstance, None] = {}

    @property
    def parts(self) -> InstanceParts:
        """The parts that are given to each instance."""
        return self._parts

    def connect(self, parts: InstanceParts) -> None:
        """Set the parts that are given to each instance, before the first one is made."""
        self._parts = parts

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
        made = self._instances[space.name, id] = PieceInstance(self._parts, space, cls, id, name, inputs=inputs)
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
            self._parts, parent.space, type(piece), id, id, inputs=dict(piece.__inputs__), parent=parent, maker=maker
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
            self._parts, parent.space, type(piece), id, id, inputs=dict(piece.__inputs__), parent=parent, maker=None
        )
        child.is_new = child.is_transient = True
        return child

    def forget_instance(self, instance: PieceInstance) -> None:
        """Note that a piece was stopped. Its name leads to its instance while that has a holder, unless it is over."""
        self._kept.pop(instance, None)
        self.idle.forget(instance)
        if instance.is_stopped and self._instances.get((instance.space.name, instance.id)) is instance:
            del self._instances[instance.space.name, instance.id]

    def find(self, space: str, id: str) -> PieceInstance | None:
        """Return the instance of a piece by its id, if it exists in this runtime."""
        return self._instances.get((space, id))

    def _check_generations(self, notification: Notification) -> None:
        """Stop the pieces that a newer version of their class runs, according to records that have changed."""
        for change in notification.changes:
            id = whose_record(change.document.key)
            space = self._core.name_of(change.document.home) if id else None
            instance = None if space is None else self.find(space, id)
            if instance is not None:
                instance.check_generation()

    def find_by_id(self, space: LocalSpace, id: str) -> PieceInstance:
        """Return the instance of a piece by its id: one of this runtime, or one made from the record or the keeper."""
        found = self._instances.get((space.name, id))
        if found is not None:
            return found
        if SEPARATOR not in id:
            return self.find_recorded(space, id)
        # fault+ inputs.child_records_loaded: if self._core.current.run is None: return self.find_recorded(space, id)
        if self._core.current.run is None:
            raise AbsentError(f"{space.name} has no piece {id!r} here: a child is found by a run that reads it")
        return self._find_descendant(space, id)

    def find_recorded(self, space: LocalSpace, id: str) -> PieceInstance:
        """Return the instance of a piece by its id: one of this runtime, or one made from the record."""
        found = self._instances.get((space.name, id))
        if found is not None:
            return found
        record = self._records.read_at(space, id, id)
        return self.find_or_make(space, class_named(record.cls), record.name)

    def _find_descendant(self, space: LocalSpace, id: str) -> PieceInstance:
        """Inside a run: return the child with that id. `GoneError`: no piece keeps it any more."""
        instance: PieceInstance | None = self.find_recorded(space, id.partition(SEPARATOR)[0])
        while instance is not None and instance.id != id:
            member, text = _keeping(instance, id)
            instance = instance.child_set(member).child(text)
        if instance is None:
            raise _left_error(space, id)
        return instance

    async def pull_descendant(self, root: PieceInstance, id: str) -> PieceInstance:
        """Outside a run: return the child of a piece with that id, once its keepers are up to date."""
        instance: PieceInstance | None = root
        while instance is not None and instance.id != id:
            member, text = _keeping(instance, id)
            instance = await instance.child_set(member).pull_child(text)
        if instance is None:
            raise _left_error(root.space, id)
        return instance

    def find_piece(self, document: Document) -> Existence | None:
        """Inside a run: return whether the piece that a document belongs to exists, and subscribe to that.

        A piece that is open here exists: a deletion elsewhere does not end it. None: the document is of no piece.
        """
        id = document.key.id.partition(SEPARATOR)[0].partition(":")[0]
        space = self._core.name_of(document.home)
        instance = None if space is None else self.find(space, id)
        if instance is None:
            return None
        record = self._records.cell(instance.space, instance.id)
        document, run = record.document, self._core.current.run
        if instance.is_open and document.value is NOT_HERE and run is not None:
            # A sleeping piece: the run does not wait for the record, and is called again when it is here.
            # fault sinks.records_of_sleeping_pieces_not_read: pass
            run.record_read(Spot(document, (), Depth.SHAPE))
            return Existence(True)
        is_there = record.exists()  # Read of an open piece, too: it may be stopped and deleted after this run.
        is_undecided = document.confirmed is ABSENT and bool(document.layers)
        return Existence(instance.is_open or is_there, document.written, is_undecided)

    def instances(self) -> tuple[PieceInstance, ...]:
        """Return all instances of this runtime."""
        return tuple(self._instances.values())

    def running_pieces(self) -> tuple[PieceInstance, ...]:
        """Return the pieces that run here until they are stopped."""
        return tuple(self._kept)

    # ---- running here ------------------------------------------------------------------------------

    def run_piece(self, instance: PieceInstance, user: str, session: str, *, is_launch: bool = False) -> None:
        """Run a piece here until it is stopped. A piece that a program opened does not depend on a launch any more."""
        instance.is_launched = instance.is_launched and is_launch
        self._kept[instance] = None
        self.idle.forget(instance)
        instance.open(user, session)
        self._parts.events.retry_parked(instance.space.name)
        self._core.request_tick()

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
                self._parts, space, type(piece), name, id, inputs=dict(piece.__inputs__)
            )
            is_opened = False
        given, instance.inputs = instance.inputs, dict(piece.__inputs__)
        self._records.write(instance)
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


class IdlePieces:
    """The pieces of one runtime that have nodes and are not open."""

    __slots__ = ("_core", "_instances", "_is_asked", "_most")

    def __init__(self, core: Core, most: int) -> None:
        self._core = core
        self._instances: OrderedDict[PieceInstance, None] = OrderedDict()
        self._is_asked = False
        self._most = most

    def __len__(self) -> int:
        return len(self._instances)

    def note_use(self, instance: PieceInstance) -> None:
        """Note that a node of a piece was registered. An open piece is not idle."""
        while instance.parent is not None:
            instance = instance.parent
        if instance.is_open:
            self._instances.pop(instance, None)
            return
        self._instances[instance] = None
        self._instances.move_to_end(instance)
        if len(self._instances) > self._most and not self._is_asked:
            self._is_asked = True
            self._core.afterwards(self._stop_unused)

    def forget(self, instance: PieceInstance) -> None:
        self._instances.pop(instance, None)

    def _stop_unused(self) -> None:
        """Stop pieces above the limit, those used longest ago first, unless they are read or demanded.

        A few are examined at a time: where most of them are in use, each new piece would otherwise cost all of them.
        """
        self._is_asked = False
        before = len(self._instances)
        for _ in range(RUNTIME_LIMITS.examined_pieces):
            if len(self._instances) <= self._most:
                return
            instance, _ = self._instances.popitem(last=False)
            if instance.is_open:
                continue
            if instance.is_launched or _is_in_use(instance):
                self._instances[instance] = None
            else:
                instance.stop()
        if self._most < len(self._instances) < before:
            self._is_asked = True
            self._core.afterwards(self._stop_unused)


def _is_in_use(instance: PieceInstance) -> bool:
    """Return whether a node of the piece is demanded, suspended, or read by a node outside the piece.

    A materializer, which always demands itself, is demanded by the open piece: here by nothing.
    """
    own = set(instance.all_nodes())
    return any(
        (node.rooted and node.kind is not NodeKind.MATERIALIZER)
        or node.provisional
        or node.suspended
        or any(each not in own for each in readers_of_writes(node))
        for node in own
    )


def _keeping(instance: PieceInstance, id: str) -> tuple[EachMember | ChildMember, str]:
    """Return the member and the element key of a piece that an id leads through, if it leads through the piece."""
    found = None if instance.is_stopped else _keeper(instance, id)
    if found is None:
        raise AbsentError(f"{instance.space.name} has no piece {id!r}: nothing that can be known here keeps it")
    return found


def _left_error(space: LocalSpace, id: str) -> GoneError:
    # fault+ inputs.rows_that_left_are_read: return AbsentError(id)
    return GoneError(f"{space.name} has no piece {id!r} any more: its key left, or its parent is gone")


def _keeper(instance: PieceInstance, id: str) -> tuple[EachMember | ChildMember, str] | None:
    """Return the member and the element key that an id leads through.

    None: the id leads elsewhere, or was too long and contains a digest instead of the key.
    """
    if not id.startswith(instance.id + SEPARATOR):
        return None
    stored, _, rest = id[len(instance.id) + 1 :].partition(SEPARATOR)
    text = unescaped(rest.partition(SEPARATOR)[0])
    members: list[EachMember | ChildMember] = [*instance.schema.of(EachMember), *instance.schema.of(ChildMember)]
    for member in members:
        name = child_name(instance.id, member.stored, text)
        if unescaped(stored) == member.stored and (id == name or id.startswith(name + SEPARATOR)):
            return member, text
    return None
