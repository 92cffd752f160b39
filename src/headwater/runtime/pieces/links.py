"""Resolving links, recorded inputs and ids of children to pieces, within the rights of the writers of that data.

Access. A link, and the record of a piece, which names its inputs, are data: any writer of their document may have put
them there. The run of a handler or of a derived node has the rights of its runtime, which exceed those of that writer.
So such a run is led only to documents that its own scope may see, and into another space only if every possible writer
of the data may read that space, by the access documents of both spaces. Inputs that a piece got from its maker in this
process are not checked; nor are reads and transactions of a program, which have the program's own rights. The checks
never read the target of a link or a record.

Children by id. A child has no record and is found through the pieces that keep it. Each keeper is brought up to date
first, inside a run as for any other reader of an `each` or a `child`. So a stored reference to a child, a link or a
recorded input, leads to the child again in any runtime. No child is made that its keeper would not make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headwater.cells.handle import Input
from headwater.cells.open_run import Run
from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.admission.access import ACCESS, EVERYBODY, Right, right_in
from headwater.errors import AbsentError, AccessError, GoneError
from headwater.pieces.declarations import ChildMember, EachMember
from headwater.pieces.handles import Handler
from headwater.pieces.names import SEPARATOR, child_name, unescaped
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.core.local_space import LocalSpace
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.runtime.channel.sessions import UserSessions
    from headwater.runtime.core.core import Core
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ScopedView


def descendant(pieces: PieceRegistry, space: LocalSpace, id: str) -> PieceInstance:
    """Inside a run: return the child with that id. `GoneError`: no piece keeps it any more."""
    root = id.partition(SEPARATOR)[0]
    instance: PieceInstance | None = pieces.find(space.name, root) or pieces.records.found(space, root)
    while instance is not None and instance.id != id:
        member, text = _keeping(instance, id)
        instance = instance.pieces.coordinator(instance, member).child(text)
    if instance is None:
        raise _left(space, id)
    return instance


async def pulled(pieces: PieceRegistry, root: PieceInstance, id: str) -> PieceInstance:
    """Outside a run: return the child with that id, after its keepers are brought up to date, which may take time."""
    instance: PieceInstance | None = root
    while instance is not None and instance.id != id:
        member, text = _keeping(instance, id)
        instance = await pieces.coordinator(instance, member).pulled(text)
    if instance is None:
        raise _left(root.space, id)
    return instance


def _keeping(instance: PieceInstance, id: str) -> tuple[EachMember | ChildMember, str]:
    """Return the member and the element key of a piece that an id leads through, if it leads through the piece."""
    found = None if instance.is_stopped else _keeper(instance, id)
    if found is None:
        raise AbsentError(f"{instance.space.name} has no piece {id!r}: nothing that can be known here keeps it")
    return found


def _left(space: LocalSpace, id: str) -> GoneError:
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


class LinkAccess:
    """Access checks for links and recorded inputs in the runs of one runtime."""

    __slots__ = ("_core", "_known", "_pieces", "_sessions")

    def __init__(self, core: Core, sessions: UserSessions, pieces: PieceRegistry) -> None:
        self._core = core
        self._sessions = sessions
        self._pieces = pieces
        # By two spaces and a right: both access documents, and whether all writers of the first space have the right in
        # the second.
        self._known: dict[tuple[str, str, Right], tuple[Any, Any, bool]] = {}

    def check(self, document: Document, target: Document) -> None:
        """Check that the open run may follow a link from one document to another. Raise `AccessError` otherwise."""
        whose = self._whose()
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
            self.cross(core.space_of(document), core.space_of(target))

    def cross(self, here: LocalSpace, there: LocalSpace, what: str = "a link") -> None:
        """Check that every possible writer of data in one space may read the other space that the data leads into.

        Raise `AccessError` otherwise. For a handler, also check the sender of the event.
        """
        run = self._core.current.run
        if run is None or here is there or self._whose() is None:
            return
        mine, others = _read(run, here), _read(run, there)
        current = self._pieces.events.current
        sender = "" if current is None else current[0].user
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

    def is_for_all(self, document: Document) -> bool:
        """Return whether every user may read the space of a document."""
        run = self._core.current.run
        assert run is not None
        access = _read(run, self._core.space_of(document))
        return access is ABSENT or EVERYBODY in _names(access, *_ROLES[Right.READ])

    # ---- records -----------------------------------------------------------------------------------

    def given(self, view: ScopedView, handle: Any) -> None:
        """Check that the open run may use an input that the record of a piece names. Raise `AccessError` if not."""
        run, instance = self._core.current.run, view.instance
        if run is None or (self._pieces.events.current is None and not isinstance(run.node, Node)):
            return
        what = f"the record of {instance.name!r}"
        if isinstance(handle, Handler):
            there = self._core.space(handle.sender.place(handle.member).partition("/")[0])
            self.cross(instance.space, there, what)
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
            self.cross(instance.space, self._core.space_of(handle.document), what)

    def is_asked_about(self, instance: PieceInstance, handle: Any) -> bool:
        """Return whether an input that comes from the record of a piece may be refused to some runs of it."""
        if instance.inputs is not None:
            return False
        if isinstance(handle, Handler):
            return True
        is_plain = isinstance(handle, Input) and handle.document.home is instance.space.replica
        return not is_plain or handle.document.key.scope != SPACE_SCOPE or handle.document.key.id.startswith("$")

    def _whose(self) -> tuple[str, tuple[str, ...]] | None:
        """Return the space of the open run and the scopes of that space it may see. None: it is a program's own run."""
        run = self._core.current.run
        if run is None:
            return None
        current = self._pieces.events.current
        if current is not None:
            event = current[0]
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
        instance = self._pieces.find(self._core.space_name(output), output.key.id.rpartition(":")[0])
        window = None if instance is None else instance.view_of_session(session)
        return () if window is None or not window.user else (f"user:{window.user}",)


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
