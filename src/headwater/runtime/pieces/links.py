"""Resolving links and recorded inputs to handles and pieces, within the rights of the writers of that data.

Access. A link, and the record of a piece, which names its inputs, are data: any writer of their document may have put
them there. The run of a handler or of a derived node has the rights of its runtime, which exceed those of that writer.
So such a run is led only to documents that its own scope may see, and into another space only if every possible writer
of the data may read that space, by the access documents of both spaces. Inputs that a piece got from its maker in this
process are not checked; nor are reads and transactions of a program, which have the program's own rights. The checks
never read the target of a link or a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headwater.cells.cell import Cell
from headwater.cells.handle import Input
from headwater.cells.open_run import Run
from headwater.data.address import SPACE_SCOPE, AddressParts, Depth, DocKey, Link, parse_address
from headwater.data.reader_trie import Spot
from headwater.data.text import shown
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.admission.access import ACCESS, EVERYBODY, Right, right_in
from headwater.errors import AbsentError, AccessError, AuthoringError, GoneError
from headwater.pieces.declarations import GivenMember
from headwater.pieces.handles import Handler
from headwater.pieces.names import SEPARATOR
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.pieces.records import HANDLER, NotArrivedError
from headwater.runtime.pieces.view import OtherScopeHandle
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.runtime.channel.sessions import UserSessions
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.ports import EventSender
    from headwater.runtime.pieces.records import Records
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ScopedView


class Links:
    """Resolves links, and the inputs that records name, for the pieces of one runtime."""

    __slots__ = ("_core", "_records", "_registry", "access")

    def __init__(self, core: Core, registry: PieceRegistry, records: Records, access: LinkAccess) -> None:
        self._core = core
        self._registry = registry
        self._records = records
        self.access = access

    def follow(self, view: ScopedView, link: Link) -> Any:
        """Return the handle or the piece that a link points at."""
        if not isinstance(link, Link):  # Authors pass the value of a cell, whose type may include None.
            raise AuthoringError(
                f"ctx.follow({shown(link)}): write the value of a link, as in ctx.follow(self.last.get()), and test "
                "for None before it if the cell may have no link"
            )
        space = view.instance.space if link.space is None else self._core.space(link.space)
        id, colon, stored = link.id.rpartition(":")
        if not colon:
            raise AuthoringError(f"{link!r} points at no piece and at no member of one")
        self.access.check_crossing(view.instance.space, space)
        instance = self._registry.find_by_id(space, id)
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

    def make_input(self, view: ScopedView, member: GivenMember) -> Any:
        """Return the handle of an input of a piece, as a view sees it.

        The open run is refused an input that the record names if it may not use it.
        """
        if view.instance.inputs is not None:
            return _restricted(view, member, self.resolve_input(view.instance, member))
        found = view.recorded.get(member)
        if found is None:
            found = view.recorded[member] = _restricted(view, member, self.resolve_input(view.instance, member))
        self.access.check_input(view, found)
        return found

    def resolve_input(self, instance: PieceInstance, member: GivenMember) -> Any:
        """Return the input of a piece by its name, from its maker or from its record."""
        if instance.inputs is not None:
            return instance.inputs[member.name]
        said = self._records.read(instance).inputs.get(member.name)
        if not isinstance(said, str):
            raise AuthoringError(
                f"{instance!r} has no input {member.name!r} yet: open it with {instance.cls.__name__}(...)"
            )
        if said.startswith(HANDLER):
            return self._handler(said.removeprefix(HANDLER))
        parts = parse_address(said)
        space = instance.space if parts.space is None else self._core.space(parts.space)
        found = self._owned(space, parts)
        if found is not None:
            return found
        given = instance.schema.type_of_input(member)
        assert given.codec is not None
        kind: type[Input[Any]] = Cell if given.is_cell else Input
        made = kind(self._core, space.document(parts.id, parts.scope), given.codec, parts.path)
        if SEPARATOR in parts.id:
            made.set_maker(lambda: self._owned(space, parts))  # A child is found only inside a run, when it reads.
        return made

    async def load_inputs(self, instance: PieceInstance) -> None:
        """Load the records that the inputs of a piece are resolved with."""
        for member in instance.schema.of(GivenMember):
            for _ in range(RUNTIME_LIMITS.input_records):
                try:
                    self.resolve_input(instance, member)
                except NotArrivedError as missing:
                    await self._core.loaded(missing.document)
                except (AbsentError, AuthoringError):
                    break  # A reader of the input gets the error.
                else:
                    break

    def _owned(self, space: LocalSpace, parts: AddressParts) -> Input[Any] | None:
        """Return the handle of the member at an address, with its default and its node. None: no member is there."""
        id, _, stored = parts.id.rpartition(":")
        instance = None
        if id:
            try:
                instance = self._registry.find_by_id(space, id)
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
        instance = self._registry.find_by_id(self._core.space(space), id)
        member = instance.schema.get(stored)
        if member is None:
            raise AuthoringError(f"{instance!r} has no handler {stored!r} any more: keep it, or rename it with was=")
        return instance.view("space").handle(member)


def _restricted(view: ScopedView, member: GivenMember, value: Any) -> Any:
    """Return the handle that was passed in, restricted to its declaration: an Input is read-only, even of a Cell."""
    given = view.instance.schema.type_of_input(member)
    if isinstance(value, OtherScopeHandle):
        value = value.seen_by(view)
        if isinstance(value, OtherScopeHandle):
            return value
    if given.is_handler:
        return value.seen_by(view)
    if given.is_cell and not isinstance(value, Cell):
        raise AuthoringError(f"{member!r} is a Cell and was given {value!r}, which is only read: declare an Input")
    if not given.is_cell and isinstance(value, Cell):
        return value.as_input()
    return value


class LinkAccess:
    """Access checks for links and recorded inputs in the runs of one runtime."""

    __slots__ = ("_core", "_events", "_known", "_registry", "_sessions")

    def __init__(self, core: Core, sessions: UserSessions, registry: PieceRegistry, events: EventSender) -> None:
        self._core = core
        self._sessions = sessions
        self._registry = registry
        self._events = events
        # By two spaces and a right: both access documents, and whether all writers of the first space have the right in
        # the second.
        self._known: dict[tuple[str, str, Right], tuple[Any, Any, bool]] = {}

    def check(self, document: Document, target: Document) -> None:
        """Check that the open run may follow a link from one document to another. Raise `AccessError` otherwise."""
        whose = self._scopes_of_run()
        if whose is None:
            return
        key = target.key
        if key.id.startswith("$") or not self._is_seen(*whose, target):
            kept = "the access document" if key == ACCESS else f"data of {key.scope}"
            raise AccessError(
                f"a link in {document!r} leads to {kept}, which this run may not read: let it point at shared data"
            )
        core = self._core
        if target.home is not document.home:
            self.check_crossing(core.space_of(document), core.space_of(target))

    def check_crossing(self, here: LocalSpace, there: LocalSpace, what: str = "a link") -> None:
        """Check that every possible writer of data in one space may read the other space that the data leads into.

        Raise `AccessError` otherwise. For a handler, also check the sender of the event.
        """
        run = self._core.current.run
        if run is None or here is there or self._scopes_of_run() is None:
            return
        mine, others = _read(run, here), _read(run, there)
        current = self._events.current
        sender = "" if current is None else current.event.user
        is_foreign = bool(sender) and right_in(mine, sender) > Right.NONE and right_in(others, sender) < Right.READ
        if is_foreign or not self._includes(run, here, there, Right.READ):
            raise AccessError(
                f"{what} of {here.name} leads into {there.name}, which the sender or a writer of {here.name} may not "
                f"read: make them readers of {there.name}, or pass the handle to the piece as an input"
            )

    def _includes(self, run: Run, here: LocalSpace, there: LocalSpace, right: Right) -> bool:
        """Return whether every user who may write one space has a right in another."""
        mine, others = _read(run, here), _read(run, there)
        known = self._known.get((here.name, there.name, right))
        if known is None or known[0] is not mine or known[1] is not others:
            known = self._known[here.name, there.name, right] = (mine, others, _includes(mine, others, right))
        return known[2]

    # ---- records -----------------------------------------------------------------------------------

    def check_input(self, view: ScopedView, handle: Any) -> None:
        """Check that the open run may use an input that the record of a piece names. Raise `AccessError` if not."""
        run, instance = self._core.current.run, view.instance
        if run is None or (self._events.current is None and not isinstance(run.node, Node)):
            return
        what = f"the record of {instance.name!r}"
        if isinstance(handle, Handler):
            there = self._core.space(handle.sender.place(handle.member).partition("/")[0])
            self.check_crossing(instance.space, there, what)
            if not self._includes(run, instance.space, there, RIGHT_FOR[handle.member.allow]):
                raise AccessError(
                    f"{what} names the handler {handle!r}, and a user who may write {instance.space.name} may not send "
                    f"to it: open the piece with it, as in {instance.cls.__name__}(...)"
                )
        elif isinstance(handle, Input):
            key = handle.document.key
            if key.id.startswith("$") or not self._is_seen(instance.space.name, view.scopes(), handle.document):
                kept = "the access document" if key == ACCESS else f"data of {key.scope}"
                raise AccessError(
                    f"{what} leads to {kept}, which this run may not read: open the piece with it, as in "
                    f"{instance.cls.__name__}(...)"
                )
            self.check_crossing(instance.space, self._core.space_of(handle.document), what)

    def _scopes_of_run(self) -> tuple[str, tuple[str, ...]] | None:
        """Return the space of the open run and the scopes of that space it may see. None: it is a program's own run."""
        run = self._core.current.run
        if run is None:
            return None
        current = self._events.current
        if current is not None:
            event = current.event
            return event.instance.space.name, (SPACE_SCOPE, f"user:{event.user}", f"session:{event.session}")
        node = run.node
        if not isinstance(node, Node) or not node.outputs:
            return None
        output = node.outputs[0]
        return self._core.space_name(output), (SPACE_SCOPE, output.key.scope, *self._user_of(output))

    def _is_seen(self, here: str, whose: tuple[str, ...], target: Document) -> bool:
        """Return whether a document is in one of these scopes of a space. A session has another id in another space."""
        scope, space = target.key.scope, self._core.space_name(target)
        if not scope.startswith("session:") or space == here:
            return scope in whose
        said = {kind: name for kind, _, name in [each.partition(":") for each in whose]}
        window = self._sessions.there(here, space, said.get("user", ""), said.get("session", ""))
        return bool(window) and scope == f"session:{window}"

    def _user_of(self, output: Document) -> tuple[str, ...]:
        """Return the scope of the user that a session output is derived for, which the run may see as well."""
        scope, _, session = output.key.scope.partition(":")
        if scope != "session":
            return ()
        instance = self._registry.find(self._core.space_name(output), output.key.id.rpartition(":")[0])
        window = None if instance is None else instance.view_of_session(session)
        return () if window is None or not window.user else (f"user:{window.user}",)


def is_for_all(core: Core, document: Document) -> bool:
    """Inside a run: return whether every user may read the space of a document."""
    run = core.current.run
    assert run is not None
    access = _read(run, core.space_of(document))
    return access is ABSENT or EVERYBODY in _names(access, *_ROLES[Right.READ])


def _read(run: Run, space: LocalSpace) -> MaybeValue:
    """Read the access document of a space. The reader runs again when it changes."""
    key: DocKey = ACCESS
    document = space.document(key.id, key.scope)
    run.record_read(Spot(document, (), Depth.DEEP))
    value = document.value
    if value is NOT_HERE:
        run.tracker.absent(run, document)
    return ABSENT if value is NOT_HERE else value


RIGHT_FOR: Final = {"reader": Right.READ, "writer": Right.WRITE, "owner": Right.OWN}
"""The right in a space that `allow=` of a handler requires of a sender."""

_ROLES: Final = {
    Right.READ: ("owners", "writers", "readers"),
    Right.WRITE: ("owners", "writers"),
    Right.OWN: ("owners",),
}


def _includes(here: MaybeValue, there: MaybeValue, right: Right) -> bool:
    """Return whether every user who may write by one access document has a right by another one."""
    if there is ABSENT:
        return True
    named = _names(there, *_ROLES[right])
    if EVERYBODY in named:
        return True
    return here is not ABSENT and _names(here, "owners", "writers") <= named


def _names(document: MaybeValue, *roles: str) -> set[object]:
    if not isinstance(document, dict):
        return set()
    return {name for role in roles if isinstance(names := document.get(role), tuple) for name in names}
