"""A piece as one run sees it: for everybody, for one user, or for one session.

Owns the handles of that view. A member of a wider scope is shared with the wider view; one of a narrower scope can only
be passed on. It makes handles when they are first used, which registers what computes them, and runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.data.address import SPACE_SCOPE, Link, check_scope
from headwater.errors import AuthoringError
from headwater.pieces.declarations import (
    SCOPES,
    ChildMember,
    ComputedMember,
    Declaration,
    EachMember,
    FoldMember,
    GivenMember,
    HandlerMember,
    ResourceMember,
    Scope,
)
from headwater.pieces.handles import Computed
from headwater.pieces.names import document_id
from headwater.replica.document import Document
from headwater.runtime.channel.sessions import called
from headwater.runtime.pieces.inputs import OtherScopeHandle

if TYPE_CHECKING:
    from headwater.pieces.piece import Context, Piece
    from headwater.runtime.pieces.instance import PieceInstance

_OWN = (GivenMember, HandlerMember, EachMember, ChildMember)
"""Members whose handle depends on who looks, whatever their scope."""


_COMPUTED = (ComputedMember, FoldMember, ResourceMember)
"""Members whose value is made by a node, and may be one for each session."""


class ScopedView:
    """What a piece's members are for one run."""

    __slots__ = ("__weakref__", "_recorded", "handles", "home", "piece", "scope", "session", "user")

    def __init__(self, home: PieceInstance, scope: Scope, user: str, session: str) -> None:
        self.home = home
        self.scope = scope
        self.user = user
        self.session = session
        self.handles: dict[Declaration, Any] = {}
        self._recorded: dict[Declaration, Any] = {}  # what its record says it was given: asked about at every use
        self.piece: Piece = object.__new__(home.cls)
        object.__setattr__(self.piece, "__bound__", self)
        object.__setattr__(self.piece, "__inputs__", {})

    def handle(self, member: Declaration) -> Any:
        """The handle of a member, made when it is first used."""
        found = self.handles.get(member)
        if found is None:
            if isinstance(member, GivenMember) and self.home.inputs is None:
                return self._given(member)
            found = self._make(member)
            if found is not None:
                self.handles[member] = found
        return found

    def _given(self, member: GivenMember) -> Any:
        """What its record says that it was given, if that is for this run."""
        found = self._recorded.get(member)
        if found is None:
            found = self._recorded[member] = self._make(member)
        self.home.pieces.following.given(self, found)
        return found

    def forget(self) -> None:
        """Its piece stopped: whoever still has it and looks again has everything made again."""
        self.handles.clear()
        self._recorded.clear()

    def _make(self, member: Declaration) -> Any:
        home = self.home
        self._check_owner(member)
        if member.scope == "session" == self.scope and not isinstance(member, _OWN):
            owner = home.window(self.session) or self
            if self.user and self.user != owner.user:
                raise AuthoringError(
                    f"{member!r}: session {called(self.session)!r} is a window of {owner.user!r}. Write rt.space("
                    f"{home.space.name!r}, user={self.user!r}, session=...) with one of {self.user!r}'s own"
                )
            if isinstance(member, _COMPUTED) and owner is not self:
                return owner.handle(member)  # Nobody looks into somebody's window: there is one value in it.
        if home.is_let_go and isinstance(member, (ComputedMember, FoldMember)) and member.scope == self.scope:
            return self._again(member)
        if isinstance(member, _OWN) or member.scope == self.scope:
            return home.make(self, member)
        if SCOPES.index(member.scope) > SCOPES.index(self.scope):
            return OtherScopeHandle(home, member)
        return home.facet(member.scope, self.user, self.session).handle(member)

    def _again(self, member: Declaration) -> Computed[Any]:
        """Its piece is over here. Whoever keeps it may keep it again, which a run finds out that looks."""
        home = self.home
        made: Computed[Any] = Computed(home.pieces.core, self.document(member.stored), home.outline.codec(member))

        def look() -> None:
            if self._handle_after(member) is None:
                raise AuthoringError(f"{home!r} is over, because what kept it is gone: ask its maker for another one")

        made.set_maker(look)
        return made

    def maker(self, member: Declaration) -> Callable[[], object]:
        """What a handle calls if nobody computes what it reads."""
        return lambda: self._handle_after(member) if self.home.is_stopped else self.handle(member)

    def _handle_after(self, member: Declaration) -> Any:
        """The same member of the child that is kept now in the place of one that is over."""
        home = self.home.successor()
        return None if home is None else home.facet(self.scope, self.user, self.session).handle(member)

    def kept_now(self) -> ScopedView:
        """Inside a run: the child that is kept now in the place of one that is over, or this piece."""
        home = self.home.successor() if self.home.is_stopped else None
        return self if home is None else home.facet(self.scope, self.user, self.session)

    def seen_in(self, home: PieceInstance, scope: Scope | None = None) -> ScopedView:
        """Another piece, for the same user and window."""
        pieces, here = self.home.pieces, self.home.space.name
        session = pieces.windows.there(here, home.space.name, self.user, self.session)
        return home.facet(self.scope if scope is None else scope, self.user, session)

    def drop_computed(self) -> list[Declaration]:
        """Forget the handles of what is computed for its session, and say which those were."""
        found: list[Declaration] = []
        found += [each for each in self.handles if isinstance(each, _COMPUTED) and each.scope == "session"]
        for each in found:
            del self.handles[each]
        return found

    def _check_owner(self, member: Declaration) -> None:
        """Say at once when nobody is there whose it could be."""
        if isinstance(member, _OWN) or self.scope == "space" or member.scope == "space" or member.kind == "effect":
            return
        if self.scope == "user" and member.scope == "session":
            return
        if not (self.user if member.scope == "user" else self.session):
            raise AuthoringError(
                f"{member!r} is of one {member.scope} each, and nobody said which: write "
                f"rt.space({self.home.space.name!r}, {member.scope}=...)"
            )

    @property
    def owner(self) -> str:
        """The scope of its documents."""
        match self.scope:
            case "space":
                return "space"
            case "user":
                return f"user:{self.user}"
            case _:
                return f"session:{self.session}"

    def scopes(self) -> tuple[str, ...]:
        """What it may see: its own scope, and wider ones."""
        match self.scope:
            case "space":
                return (self.owner,)
            case "user":
                return SPACE_SCOPE, self.owner
            case _:
                return SPACE_SCOPE, f"user:{self.user}", self.owner

    def document(self, stored: str) -> Document:
        """The document that a member of this scope is kept in."""
        return self.home.space.document(document_id(self.home.id, stored), check_scope(self.owner))

    def node_id(self, stored: str) -> str:
        """What messages and traces call the node of a member."""
        suffix = "" if self.scope == "space" else f" of {self.owner}"
        return f"{self.home.space.name}/{self.home.id}:{stored}{suffix}"

    def context(self) -> Context:
        return self.home.pieces.context(self)

    def link(self) -> Link:
        """A value that points at the piece."""
        return Link(self.home.space.name, "space", document_id(self.home.id, "@"))

    def describe(self) -> str:
        return f"{self.home.name!r} of {self.home.space.name}"
