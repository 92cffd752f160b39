"""The home of one piece in one runtime: its facets, its inputs, its nodes and its children.

Two programs that name the same piece have the same home. Nothing of it runs before somebody demands it; `open` demands
its effects, its materializers and its children. Stopping it takes all of that out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from headwater.errors import AbsentError, AuthoringError
from headwater.pieces.declarations import (
    CellMember,
    ChildMember,
    Declaration,
    EachMember,
    EffectMember,
    MaterializerMember,
    Scope,
)
from headwater.pieces.piece import Piece
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.events import periodic
from headwater.runtime.pieces import idle
from headwater.runtime.pieces.handles import cells_of, is_always_shown, keep_cells, keep_children, make, show, shown_as
from headwater.runtime.pieces.view import ScopedView
from headwater.scheduler.freshness import AFRESH
from headwater.scheduler.node import Node
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.runtime.pieces.children.coordinator import ChildSet
    from headwater.runtime.pieces.identity import NodeIdentity
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.resume.lookup import Phase


class PieceInstance:
    """One piece in one runtime."""

    __slots__ = (
        "__weakref__",
        "_facets",
        "_kept",
        "_periods",
        "_shown",
        "_windows",
        "cls",
        "coordinators",
        "generation",
        "held",
        "id",
        "inputs",
        "is_launched",
        "is_let_go",
        "is_made",
        "is_new",
        "is_stopped",
        "maker",
        "name",
        "nodes",
        "outline",
        "parent",
        "phase",
        "pieces",
        "space",
    )

    def __init__(
        self,
        pieces: PieceRegistry,
        space: LocalSpace,
        cls: type[Piece],
        id: str,
        name: str,
        *,
        inputs: dict[str, Any] | None = None,
        parent: PieceInstance | None = None,
        maker: Node | None = None,
    ) -> None:
        self.pieces = pieces
        self.space = space
        self.cls = cls
        self.outline = cls.__schema__
        self.id = id
        self.name = name
        self.inputs = inputs  # what it was made with; None: what its record says
        self.parent = parent  # whose child it is
        self.maker = maker  # the node that keeps it; its own nodes go with that
        self.nodes: list[Node] = []
        self.coordinators: dict[Declaration, ChildSet] = {}
        self.generation = 0  # which version of its class runs it here, among those that did; 0: it was not opened here
        self.is_launched = False  # by a handler whose commit has no verdict yet
        self.is_new = False  # it was made just now: nothing of it ever ran
        self.phase: Phase | None = None  # what is known of its nodes from before; of a child, its parent's is asked
        self.is_made = False  # its record is known to be there
        self.is_stopped = False  # for good: its element left, or the commit that launched it failed
        self.is_let_go = False  # so is a child whose keeper stopped, which may keep it again
        # Those that somebody has: a program, a node, an event under way. A server sees many sessions come and go.
        self._facets: WeakValueDictionary[tuple[Scope, str, str], ScopedView] = WeakValueDictionary()
        # Of each session the facet of the user whose window it is, as long as somebody has that.
        self._windows: WeakValueDictionary[str, ScopedView] | None = None  # There seldom is one.
        self._shown: dict[tuple[str, str], list[Node]] = {}  # effects, by the user and session they are for
        self.held: list[Document] = []  # what is kept here for it without a node
        self._periods: list[asyncio.Task[None]] = []  # who send what is due again and again
        self._kept: dict[Declaration, Node] = {}  # what keeps its children while it is open

    def __repr__(self) -> str:
        return f"<{self.outline.name} {self.name!r} of {self.space.name}>"

    def facet(self, scope: Scope, user: str = "", session: str = "") -> ScopedView:
        """The piece as a run of that scope sees it."""
        key = (scope, user if scope != "space" else "", session if scope == "session" else "")
        found = self._facets.get(key)
        if found is None:
            found = ScopedView(self, *key)
            if scope == "session" and user:
                self._claim(found)
            self._facets[key] = found
        return found

    def window(self, session: str) -> ScopedView | None:
        """The facet of the user whose window a session is, if it is anybody's."""
        return None if self._windows is None else self._windows.get(session)

    def _claim(self, facet: ScopedView) -> None:
        """A session is one user's. What was computed for it while it was nobody's is computed for that user now."""
        if self._windows is None:
            self._windows = WeakValueDictionary()
        if self._windows.setdefault(facet.session, facet) is not facet:
            return  # It is another one's, who is told as soon as something of the window is wanted.
        nobodys = self._facets.get(("session", "", facet.session))
        if nobodys is not None:
            ids = {facet.node_id(member.stored) for member in nobodys.drop_computed()}
            gone = [each for each in self.nodes if each.id in ids]
            readers = idle.readers(gone)
            for node in gone:
                self.pieces.outside(lambda node=node: self.pieces.core.remove(node))  # type: ignore[misc]
                self.nodes.remove(node)
            idle.look_again(self.pieces, readers)

    def make(self, facet: ScopedView, member: Declaration) -> Any:
        """The handle of a member for a facet."""
        return make(facet, member)

    def handles_of(self, member: Declaration) -> list[Any]:
        """The handles of a member that were made so far."""
        return [facet.handles[member] for facet in self._facets.values() if member in facet.handles]

    def place(self, member: Declaration) -> str:
        """What messages and traces call a handler."""
        return f"{self.space.name}/{self.id}:{member.stored}"

    def maker_of(self, make: Callable[[], object]) -> Callable[[], object]:
        """What a handle calls if nobody computes what it reads: not once the piece is over."""
        return lambda: None if self.is_stopped else make()

    def successor(self) -> PieceInstance | None:
        """Inside a run: the child that is kept now under the id of this one, which is over. None: there is none."""
        if self.parent is None:
            return None
        try:
            found = self.pieces.home_of(self.space, self.id)
        except (AbsentError, AuthoringError):
            return None
        return found if found.cls is self.cls and not found.is_stopped else None

    @property
    def root(self) -> PieceInstance:
        """The piece that it is a part of."""
        home = self
        while home.parent is not None:
            home = home.parent
        return home

    def check_generation(self) -> None:
        """Inside a run that derives: no newer version of its class runs it, or the piece that it is a part of."""
        self.pieces.generations.check(self.root)

    def digest(self, member: Declaration, *, keys: bool = False) -> str:
        """What the code of a member is, by fingerprint."""
        return self.pieces.generations.digest(self.cls, member, keys=keys)

    def register(self, spec: NodeSpec, part: NodeIdentity | None = None, *, rooted: bool | None = None) -> Node:
        """Enter a node of this piece, whoever asked for it: it is no child of the run that is open.

        `part` is what it is called over restarts; None: it is fresh each time.
        """
        if self.is_stopped:
            raise AuthoringError(f"{self!r} is over, because what kept it is gone: ask its maker for another one")
        node = self.pieces.outside(lambda: self.pieces.core.register(spec, rooted=rooted))
        self.nodes.append(node)
        self.pieces.resting.used(self)
        self.pieces.resuming.entered(self, node, spec, part)
        run = self.pieces.core.current.run
        if run is not None and run.node is not None and run.log is None:
            # What it makes may be what the last run of the reader found there, made by somebody who is gone: from here
            # on that run looks anew whether what it reads is fresh (I1).
            run.log = [spot for spot in run.reads[: run.place] if spot is not None]
            run.reads, run.place = AFRESH, 0
        return node

    # ---- running here ------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return bool(self._shown)

    def open(self, user: str, session: str, *, is_back: bool = True) -> None:
        """Run its effects for a user and a session, and keep its children, until it is stopped.

        `is_back`: it may sleep with the piece that it is a part of. What a run made just now does not.
        """
        if (user, session) in self._shown:
            return
        facet = self.facet("session", user, session)
        shown = self._shown[user, session] = []
        for node in self.nodes:
            if node.account is not None:
                node.account.forget()  # From now on it is of the generation that it was opened as.
        if not self._periods:
            self._periods = periodic.begin(self)
        is_asleep = self.pieces.resuming.sleeping.has(self.root)
        if is_asleep and is_back and len(self._shown) == 1:
            if self.parent is None:
                self.held = cells_of(facet)
                self.space.hold(self.held)
            self._keep(is_asleep=True)
            shown += [show(facet, each) for each in self.outline.of(EffectMember) if is_always_shown(facet, each)]
            return
        if self.parent is None and self.outline.of(CellMember):
            shown.append(keep_cells(facet))
        if is_asleep and is_back:
            self.pieces.resuming.sleeping.fully(self.root)  # Nothing is known of what it is to somebody else.
        self._keep()
        self._show(facet, shown)
        for child in self.children():
            child.open(user, session)

    def _keep(self, *, is_asleep: bool = False) -> None:
        """Have its children here, and what others have to find that read what it writes."""
        space = self.facet("space")
        for each in self.outline:
            if isinstance(each, (EachMember, ChildMember)):
                # Programs take children from their handles as soon as the piece is open. Values can wait to be wanted.
                if not (is_asleep and self.outline.elements(each).value is not None):
                    self.keep(each)
            elif isinstance(each, MaterializerMember):
                space.handle(each)

    def keep(self, member: EachMember | ChildMember) -> None:
        """Have the children of a member here as long as it is open."""
        if self.is_open and member not in self._kept:
            self._kept[member] = keep_children(self.facet("space"), member)

    def _show(self, facet: ScopedView, shown: list[Node]) -> None:
        """Run the effects that are not there yet."""
        there = {node.id for node in self.nodes}
        shown += [show(facet, each) for each in self.outline.of(EffectMember) if shown_as(facet, each) not in there]

    def wake(self) -> None:
        """It was open and asleep: have all of it here."""
        for coordinator in self.coordinators.values():
            coordinator.complete()
        self._keep()
        for (user, session), shown in self._shown.items():
            self._show(self.facet("session", user, session), shown)
        for child in self.children():
            child.wake()

    def rouse(self) -> None:
        """It is open and asleep: have its effects here, and those of its children."""
        for (user, session), shown in self._shown.items():
            self._show(self.facet("session", user, session), shown)
        for child in self.children():
            child.rouse()

    def shows(self, node: Node, user: str, session: str) -> Node:
        """One of its effects was registered, for a user and a session."""
        self._shown[user, session].append(node)
        return node

    def waits(self) -> bool:
        """Whether something that it runs here waits for a document that may still arrive, or came back without it."""
        core = self.pieces.core
        for node in [node for nodes in (self._kept.values(), *self._shown.values()) for node in nodes]:
            awaited = [] if node.loading is None else [node.loading]
            if node.as_of:
                read = [cast(Document, spot.document) for spot in node.reads if spot is not None]
                awaited += [document for document in read if document.value is NOT_HERE]
            if any(core.why_not(document) is None for document in awaited):
                return True
        return False

    def facets(self) -> list[ScopedView]:
        """Those that somebody has."""
        return list(self._facets.values())

    def opened_for(self) -> tuple[tuple[str, str], ...]:
        """The users and sessions that it is open for."""
        return tuple(self._shown)

    def children(self) -> list[PieceInstance]:
        return [child for each in self.coordinators.values() for child in each.homes()]

    def close(self, user: str, session: str) -> bool:
        """Run it no more for one user and session. False: for nobody else is it open here."""
        if (user, session) not in self._shown or len(self._shown) == 1:
            return False
        gone = dict.fromkeys(self._shown.pop((user, session)))
        for child in self.children():
            child.close(user, session)
        for node in gone:
            self.pieces.outside(lambda node=node: self.pieces.core.remove(node))  # type: ignore[misc]
        self.nodes = [each for each in self.nodes if each not in gone]
        return True

    def stop(self, *, is_read_on: bool = False, is_let_go: bool = False) -> None:
        """Take out everything of it that runs here. Its documents stay; what only its maker knows is over for good.

        `is_read_on`: whoever else reads it has it computed from here on, as of a piece that is only named.
        `is_let_go`: it is a child, and stops with its keeper, which may keep it again.
        """
        if self.is_stopped:
            return
        self.is_stopped = self.parent is not None or self.is_launched
        read = idle.read(self) if is_read_on and not self.is_stopped else None
        self.is_let_go = is_let_go
        for child in self.children():
            child.stop(is_let_go=is_let_go or not self.is_stopped)
        self.pieces.let_go(self)
        for task in self._periods:
            task.cancel()
        self._periods.clear()

        def remove() -> None:
            for node in self.nodes:
                self.pieces.core.remove(node)

        self.pieces.outside(remove)
        self.nodes.clear()
        self.space.let_loose(self.held)
        self.held = []
        for facet in self._facets.values():
            facet.forget()  # Whoever still has the piece and looks again has it computed again.
        self._shown.clear()
        self._kept.clear()
        self.coordinators.clear()
        self.phase, self.is_new = None, False
        if read is not None:
            idle.go_on(self, read)
