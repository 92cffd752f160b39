"""A space as a program sees it: cells, pieces and transactions, for one user and session. The runtime does the work."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from headwater.cells.cell import Cell
from headwater.cells.runtime_port import Stream, Topic
from headwater.data.value import ABSENT
from headwater.errors import AuthoringError, author_call
from headwater.pieces.piece import Piece
from headwater.replica.transaction import Transaction
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.pieces import lifecycle

if TYPE_CHECKING:
    from headwater.runtime.api.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")
PieceT = TypeVar("PieceT", bound=Piece)
Scope = Literal["space", "user", "session"]


class Space:
    """One space of a runtime, for one user and session."""

    __slots__ = ("_runtime", "_used", "local", "session", "user")

    def __init__(self, runtime: Runtime, local: LocalSpace, user: str, session: str) -> None:
        self._runtime = runtime
        self._used = lifecycle.SpaceUser(runtime.sessions, local, user, session)
        self.local = local
        self.user = user
        self.session = session

    def __repr__(self) -> str:
        return f"<space {self.name}>"

    @property
    def name(self) -> str:
        return self.local.name

    @property
    def seq(self) -> int:
        """The seq of the last commit of the log known here, own commits included as soon as they are durable."""
        return self.local.replica.newest_seq()

    @author_call
    def cell(self, id: str, of: Any, /, *, scope: Scope = "space", default: Any = ABSENT) -> Cell[Any]:
        """Return the handle of a document, typed as `of`."""
        return self._runtime.core.cell(self.name, id, of, scope=self._scope(scope), default=default)

    @author_call
    def stream(self, id: str, of: Any, /) -> Stream[Any]:
        return self._runtime.core.stream(self.name, id, of)

    @author_call
    def topic(self, id: str, of: Any, /) -> Topic[Any]:
        return self._runtime.core.topic(self.name, id, of)

    def _scope(self, scope: Scope) -> str:
        if scope == "space":
            return scope
        owner = self.user if scope == "user" else self.session
        if not owner:
            raise AuthoringError(f"scope={scope!r} in {self!r}: write rt.space({self.name!r}, {scope}=...)")
        return f"{scope}:{owner}"

    # ---- pieces ------------------------------------------------------------------------------------

    @author_call
    def piece(self, what: type[PieceT], name: str, /) -> PieceT:
        """Return a piece by its name. Nothing of it is started; `send`, `pull` and `watch` work on its members.

        Works on every thread, and so does access to a member; its use belongs on the runtime's thread (`Runtime.call`).
        """
        core = self._runtime.core

        def make() -> PieceT:
            core.check_thread()
            return self._runtime.lifecycle.piece(self._used, what, name)

        return core.on_own_thread(make)

    @overload
    def open(
        self, what: Callable[[], PieceT], name: str, /, *, setup: Callable[[PieceT], object] | None = ...
    ) -> Coroutine[Any, Any, PieceT]: ...
    @overload
    def open(
        self, what: PieceT, name: str, /, *, setup: Callable[[PieceT], object] | None = ...
    ) -> Coroutine[Any, Any, PieceT]: ...
    @author_call
    async def open(self, what: Any, name: str, /, *, setup: Callable[[Any], object] | None = None) -> Any:
        """Create the piece if it is new, with `setup` in the same transaction, and run it here until it is stopped.

        Waits until the nodes of the piece and of its children have run, and for no other work of the runtime.
        """
        self._runtime.core.check_thread()
        return await self._runtime.opener.open_piece(self._used, what, name, setup, new=False)

    @overload
    def create(
        self, what: Callable[[], PieceT], name: str | None = ..., /, *, setup: Callable[[PieceT], object] | None = ...
    ) -> Coroutine[Any, Any, PieceT]: ...
    @overload
    def create(
        self, what: PieceT, name: str | None = ..., /, *, setup: Callable[[PieceT], object] | None = ...
    ) -> Coroutine[Any, Any, PieceT]: ...
    @author_call
    async def create(
        self, what: Any, name: str | None = None, /, *, setup: Callable[[Any], object] | None = None
    ) -> Any:
        """Create a piece that does not exist yet, under a new name if none is given, and run it here."""
        named = self._runtime.core.clock.new_token(8) if name is None else name
        self._runtime.core.check_thread()
        return await self._runtime.opener.open_piece(self._used, what, named, setup, new=True)

    @author_call
    def find(
        self, what: type[PieceT], /, *, after: str | None = None, limit: int = 100
    ) -> Coroutine[Any, Any, lifecycle.Page[PieceT]]:
        """Return the pieces of a class, page by page."""
        self._runtime.core.check_thread()
        return self._runtime.lifecycle.find(self._used, what, after, limit)

    @author_call
    def stop(self, piece: Piece, /) -> Coroutine[Any, Any, None]:
        """Stop running a piece here. Its documents stay."""
        self._runtime.core.check_thread()
        return self._runtime.lifecycle.stop(self._used, piece)

    @author_call
    def delete(self, piece: Piece, /) -> Coroutine[Any, Any, None]:
        """Stop a piece and delete its documents, for all users."""
        self._runtime.core.check_thread()
        return self._runtime.lifecycle.delete(self._used, piece)

    # ---- transactions ------------------------------------------------------------------------------

    @author_call
    async def transact(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in one transaction, again if its reads are stale.

        Returns the function's result once the commit is durable.
        """
        return await self._runtime.transactions.transact(self.local, fn, *args, **kwargs)

    async def land(self, attempt: Callable[[Transaction], R], *, node: str = "", retries: int | None = None) -> R:
        """Call `attempt` with a transaction, like `transact`, until its commit is durable."""
        return await self._runtime.transactions.land(self.local, attempt, node=node, retries=retries)
