"""A space as a program sees it: its cells, for one user, and transactions in it. Everything is the runtime's to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from headwater.cells.cell import Cell
from headwater.cells.sending import Stream, Topic
from headwater.data.value import ABSENT
from headwater.errors import AuthoringError
from headwater.runtime.authored import Missing, call_in
from headwater.runtime.space import LocalSpace

if TYPE_CHECKING:
    from headwater.runtime.runtime import Runtime

P = ParamSpec("P")
R = TypeVar("R")
Scope = Literal["space", "user", "session"]


class Space:
    """One space of a runtime."""

    __slots__ = ("_runtime", "local", "session", "user")

    def __init__(self, runtime: Runtime, local: LocalSpace, user: str, session: str) -> None:
        self._runtime = runtime
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
        """The last commit of the log that is known here, own ones included as soon as they are durable."""
        replica = self.local.replica
        return max([replica.confirmed.seq, *(layer.seq for layer in replica.pending.live())])

    def cell(self, id: str, of: Any, /, *, scope: Scope = "space", default: Any = ABSENT) -> Cell[Any]:
        """The handle of a document: what is there, and its type."""
        return self._runtime.core.cell(self.name, id, of, scope=self._scope(scope), default=default)

    def stream(self, id: str, of: Any, /) -> Stream[Any]:
        return self._runtime.core.stream(self.name, id, of)

    def topic(self, id: str, of: Any, /) -> Topic[Any]:
        return self._runtime.core.topic(self.name, id, of)

    def _scope(self, scope: Scope) -> str:
        if scope == "space":
            return scope
        owner = self.user if scope == "user" else self.session
        if not owner:
            raise AuthoringError(f"scope={scope!r} in {self!r}: write rt.space({self.name!r}, {scope}=...)")
        return f"{scope}:{owner}"

    async def transact(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in one transaction, again if what it read is stale; its result once the commit is durable."""
        runtime, core = self._runtime, self._runtime.core
        core.check_thread()
        channel = runtime.channel(self.name)
        if channel is not None:
            result = await channel.transact(lambda: fn(*args, **kwargs))
            core.request_tick()
            return result
        replica = self.local.replica
        while True:
            transaction = replica.begin()
            try:
                made = call_in(core.current, replica, transaction, core.visible, lambda: fn(*args, **kwargs))
            except Missing as missing:
                replica.drop(transaction)
                await core.loaded(missing.document)
                continue
            except BaseException:
                replica.drop(transaction)
                raise
            replica.commit(transaction)
            core.request_tick()
            await runtime.durable()
            return made
