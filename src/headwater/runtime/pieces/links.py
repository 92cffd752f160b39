"""Where an author's run may be led by data: by links, and by the record of a piece, which says what it was given.

Both are data: whoever may write where they stand may have put them there. The run of a handler or of something that
derives has the rights of its runtime, which are more than theirs. So it is led only to what its own scope may see, and
into another space only if everybody who may have written that may read there, which the access documents of both spaces
say. What a piece was given by its maker in this process is not asked about; nor is a program's own look or transaction,
whose rights are its own. Never reads what a link or a record points at.

Children by their ids: a child has no record, and is found through the pieces that keep it.

Whoever keeps it is brought up to date first, inside a run as for any other reader of an `each` or a `child`. So what
was stored of a child, a link to it or a handle that a piece was given, leads to it again in any runtime. Makes nothing
that its keeper would not make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from headwater.cells.handle import Input
from headwater.cells.open_run import Run
from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine.admission.access import ACCESS, EVERYBODY, Right, right_in
from headwater.errors import AbsentError, AccessError
from headwater.pieces.declarations import ChildMember, EachMember
from headwater.pieces.handles import Handler
from headwater.pieces.names import SEPARATOR, child_name
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.events.attempt import RIGHT_FOR
from headwater.scheduler.node import Node

if TYPE_CHECKING:
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ScopedView


def descendant(pieces: PieceRegistry, space: LocalSpace, id: str) -> PieceInstance | None:
    """Inside a run: the child with that id. None: nobody keeps one."""
    root = id.partition(SEPARATOR)[0]
    home: PieceInstance | None = pieces.known(space.name, root) or pieces.records.found(space, root)
    while home is not None and home.id != id:
        home = None if home.is_stopped else _below(home, id)
    return home


async def pulled(pieces: PieceRegistry, root: PieceInstance, id: str) -> PieceInstance:
    """Outside a run: the child with that id. Whoever keeps it is brought up to date, which may take a while."""
    home: PieceInstance | None = root
    while home is not None and home.id != id:
        at = None if home.is_stopped else _keeper(home, id)
        home = None if at is None else await pieces.coordinator(home, at[0]).pulled(at[1])
    if home is None:
        raise AbsentError(f"{root.space.name} has no piece {id!r} any more: what kept it is gone")
    return home


def _below(home: PieceInstance, id: str) -> PieceInstance | None:
    """The child of a piece that another id leads through."""
    at = _keeper(home, id)
    return None if at is None else home.pieces.coordinator(home, at[0]).child(at[1])


def _keeper(home: PieceInstance, id: str) -> tuple[EachMember | ChildMember, str] | None:
    """The member, and the element of it, that an id leads through. One that is too long to be read leads nowhere."""
    if not id.startswith(home.id + SEPARATOR):
        return None
    stored, _, rest = id[len(home.id) + 1 :].partition(SEPARATOR)
    text = unquote(rest.partition(SEPARATOR)[0], encoding="latin-1")
    members: list[EachMember | ChildMember] = [*home.outline.of(EachMember), *home.outline.of(ChildMember)]
    for member in members:
        name = child_name(home.id, member.stored, text)
        if unquote(stored, encoding="latin-1") == member.stored and (id == name or id.startswith(name + SEPARATOR)):
            return member, text
    return None


class LinkAccess:
    """Answers for the runs of one runtime."""

    __slots__ = ("_known", "_pieces")

    def __init__(self, pieces: PieceRegistry) -> None:
        self._pieces = pieces
        # By two spaces and a right: what their access documents said, and whether all writers of the first have that
        # right in the second.
        self._known: dict[tuple[str, str, Right], tuple[Any, Any, bool]] = {}

    def check(self, document: Document, target: Document) -> None:
        """A link in a document leads to another one. AccessError: not for this run."""
        whose = self._whose()
        if whose is None:
            return
        key = target.key
        if key.id.startswith("$") or not self._is_seen(*whose, target):
            kept = "who has access" if key == ACCESS else f"what is kept for {key.scope}"
            raise AccessError(
                f"a link in {document!r} leads to {kept}, which is not for this run: let it point at what is shared"
            )
        core = self._pieces.core
        if target.home is not document.home:
            self.cross(core.space_of(document), core.space_of(target))

    def cross(self, here: LocalSpace, there: LocalSpace, what: str = "a link") -> None:
        """Data of one space leads into another. AccessError: somebody may have put it there who may not read that."""
        run = self._pieces.core.current.run
        if run is None or here is there or self._whose() is None:
            return
        mine, others = _read(run, here), _read(run, there)
        current = self._pieces.handling.current
        sender = "" if current is None else current[0].user
        is_foreign = bool(sender) and right_in(mine, sender) > Right.NONE and right_in(others, sender) < Right.READ
        if is_foreign or not self._includes(run, here, there, Right.READ):
            raise AccessError(
                f"{what} of {here.name} leads into {there.name}, which not everybody may read who may have put it "
                f"there: make the writers of {here.name} readers of {there.name}, or give the piece what it is to read"
            )

    def _includes(self, run: Run, here: LocalSpace, there: LocalSpace, right: Right) -> bool:
        """Whether everybody who may write one space has a right in another."""
        mine, others = _read(run, here), _read(run, there)
        known = self._known.get((here.name, there.name, right))
        if known is None or known[0] is not mine or known[1] is not others:
            known = self._known[here.name, there.name, right] = (mine, others, _includes(mine, others, right))
        return known[2]

    def is_for_all(self, document: Document) -> bool:
        """Whether everybody may read the space that a document is in."""
        run = self._pieces.core.current.run
        assert run is not None
        access = _read(run, self._pieces.core.space_of(document))
        return access is ABSENT or EVERYBODY in _names(access, *_ROLES[Right.READ])

    # ---- records -----------------------------------------------------------------------------------

    def given(self, facet: ScopedView, handle: Any) -> None:
        """A piece uses what its record says it was given. AccessError: that is not for this run."""
        run, home = self._pieces.core.current.run, facet.home
        if run is None or (self._pieces.handling.current is None and not isinstance(run.node, Node)):
            return
        what = f"the record of {home.name!r}"
        if isinstance(handle, Handler):
            there = self._pieces.core.space(handle.sends.place(handle.member).partition("/")[0])
            self.cross(home.space, there, what)
            if not self._includes(run, home.space, there, RIGHT_FOR[handle.member.allow]):
                raise AccessError(
                    f"{what} says that it calls {handle!r}, and not everybody may send to it who may have put that "
                    f"there: open the piece with it, as in {home.cls.__name__}(...)"
                )
        elif isinstance(handle, Input):
            key = handle.document.key
            if key.id.startswith("$") or not self._is_seen(home.space.name, facet.scopes(), handle.document):
                kept = "who has access" if key == ACCESS else f"what is kept for {key.scope}"
                raise AccessError(
                    f"{what} leads to {kept}, which is not for this run: open the piece with it, as in "
                    f"{home.cls.__name__}(...)"
                )
            self.cross(home.space, self._pieces.core.space_of(handle.document), what)

    def is_asked_about(self, home: PieceInstance, handle: Any) -> bool:
        """Whether something that a piece has by its record may not be for every run of it."""
        if home.inputs is not None:
            return False
        if isinstance(handle, Handler):
            return True
        is_plain = isinstance(handle, Input) and handle.document.home is home.space.replica
        return not is_plain or handle.document.key.scope != SPACE_SCOPE or handle.document.key.id.startswith("$")

    def _whose(self) -> tuple[str, tuple[str, ...]] | None:
        """The space of the open run, and the scopes of it that the run may see. None: it is a program's own."""
        run = self._pieces.core.current.run
        if run is None:
            return None
        current = self._pieces.handling.current
        if current is not None:
            event = current[0]
            return event.home.space.name, (SPACE_SCOPE, f"user:{event.user}", f"session:{event.session}")
        node = run.node
        if not isinstance(node, Node) or not node.outputs:
            return None
        output = node.outputs[0]
        return self._pieces.core.space_name(output), (SPACE_SCOPE, output.key.scope, *self._user_of(output))

    def _is_seen(self, here: str, whose: tuple[str, ...], target: Document) -> bool:
        """Whether one of these scopes of a space is that of a document. A window has another name in another space."""
        scope, space = target.key.scope, self._pieces.core.space_name(target)
        if not scope.startswith("session:") or space == here:
            return scope in whose
        said = {kind: name for kind, _, name in [each.partition(":") for each in whose]}
        window = self._pieces.windows.there(here, space, said.get("user", ""), said.get("session", ""))
        return bool(window) and scope == f"session:{window}"

    def _user_of(self, output: Document) -> tuple[str, ...]:
        """Whose window something is derived for: what is that user's is wider."""
        scope, _, session = output.key.scope.partition(":")
        if scope != "session":
            return ()
        home = self._pieces.known(self._pieces.core.space_name(output), output.key.id.rpartition(":")[0])
        window = None if home is None else home.window(session)
        return () if window is None or not window.user else (f"user:{window.user}",)


def _read(run: Run, space: LocalSpace) -> MaybeValue:
    """Who may do what in a space. Its reader looks again when that is changed."""
    key: DocKey = ACCESS
    document = space.document(key.id, key.scope)
    run.record_read(Spot(document, (), Depth.DEEP))
    value = document.value
    if value is NOT_HERE:
        run.tracker.absent(run, document)
    return ABSENT if value is NOT_HERE else value


_ROLES: Final = {
    Right.READ: ("owners", "writers", "readers"),
    Right.WRITE: ("owners", "writers"),
    Right.OWN: ("owners",),
}


def _includes(here: MaybeValue, there: MaybeValue, right: Right) -> bool:
    """Whether everybody who may write by one access document has a right by another one."""
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
