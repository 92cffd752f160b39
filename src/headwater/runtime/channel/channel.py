"""The channel of a space that has an engine: a session and its driver.

The session takes in the engine's messages; afterwards the channel calls `Core.heard`. Waves and plain writes are sent
at the end of a slice. The channel makes no decisions. `writing.space_channel` adds transactions that are sent at once
and retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError, LoadError, SessionExpiredError
from headwater.protocol.verdict import Conflict, RuleRefused
from headwater.replica.limits import DEFAULT_REPLICA_LIMITS
from headwater.replica.replica import Replica
from headwater.replica.session import LinkState, Session
from headwater.runtime.channel.driver import Driver
from headwater.runtime.channel.transport import Transport
from headwater.runtime.core.local_space import LocalSpace

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core


class _Broken(Exception):
    """A bug of Headwater showed while messages of the engine were taken in."""


class EngineChannel:
    """The channel of one space of a runtime to its engine."""

    __slots__ = ("_ahead", "_closing", "_complained", "_core", "_listening", "_local", "_wanted", "driver", "replica")

    def __init__(self, core: Core, name: str, transport: Transport, *, token: str = "") -> None:
        self._core = core
        self.replica = Replica()
        session = Session(
            self.replica,
            space=name,
            key=core.clock.new_token(),
            new_token=core.clock.new_token,
            token=token,
            keeps_derived=True,
        )
        self.driver = Driver(session, transport, clock=core.clock, on_error=self._complain)
        session.on_released = core.request_tick
        core.on_ended.append(self._other_ended)
        self._refusals(session)
        self._complained = ""
        self._closing = False
        self._wanted: dict[DocKey, None] = {}  # documents that readers wait for and that were not requested yet
        self._ahead: dict[DocKey, None] = {}  # the same, of documents that no reader waits for so far
        self._listening: asyncio.Task[None] | None = None
        self._local: LocalSpace | None = None

    def start(self, space: LocalSpace) -> None:
        """Connect, and be the channel of this space from now on."""
        self._local = space
        self.driver.start()
        self._listening = asyncio.get_running_loop().create_task(self._listen(), name=f"space {space.name}")

    async def close(self, why: HeadwaterError) -> None:
        self._closing = True
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await self.driver.close(why)

    # ---- hearing -----------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Call `Core.heard` after every message that the session took in, until the driver ends."""

        def tell_core() -> bool:  # Never true: `until` calls it after every message.
            try:
                self._core.heard()
                # The message may have made room for what waits to be sent. A wave is composed in a tick: a result that
                # confirmed state shows by now leaves the tier unsent, and callers may wait for that.
                # fault channel.wave_without_tick: if self._wanted or self._ahead:
                if self._wanted or self._ahead or self.replica.tier.is_due():
                    self._core.request_tick()
                elif self.driver.session.has_unsent():
                    self.driver.flush_soon()
            except Exception as error:  # A bug of Headwater, and no end of a space.
                self._core.broken(error)
                raise _Broken from error
            return False

        try:
            await self.driver.until(tell_core)
        except HeadwaterError as error:
            if not self._closing and self._local is not None:
                self._core.ended(self._local, error)
        except _Broken as broken:
            raise broken.__cause__ or broken from None

    def _other_ended(self, other: LocalSpace) -> None:
        """Reject the commits that wait for verdicts of another space that ended."""
        why = f"it read commits of space {other.name}, of which it is not known whether they landed: {other.ended}"
        held = [each.local_seq for each in self.replica.pending.queued() if each.waits and other.is_pending(each.waits)]
        if held:
            self.replica.all_rejected(dict.fromkeys(held, RuleRefused("space_ended", why)))
            self.replica.report()
            self._core.request_tick()

    def _complain(self, error: HeadwaterError) -> None:
        """Report an error of the driver, which tries again. Repetitions of the same error are not reported."""
        if not self._closing and str(error) != self._complained and not isinstance(error, SessionExpiredError):
            self._complained = str(error)
            self._core.report(f"space {self.driver.session.space}", error)

    def _refusals(self, session: Session) -> None:
        to_driver: Callable[[tuple[DocKey, ...], LoadError], object] = session.on_load_failed

        def refused(docs: tuple[DocKey, ...], error: LoadError) -> None:
            to_driver(docs, error)
            if self._local is not None:
                self._core.load_failed(self._local, docs, error)

        session.on_load_failed = refused

    # ---- the channel -------------------------------------------------------------------------------

    def watch(self, docs: Iterable[DocKey], *, is_ahead: bool = False) -> None:
        """Request documents, many in one message. `is_ahead`: readers of them may follow."""
        if is_ahead:
            self._ahead.update(dict.fromkeys([doc for doc in docs if doc not in self._wanted]))
        else:
            for doc in docs:
                self._ahead.pop(doc, None)
                self._wanted[doc] = None
        self._core.request_tick()  # All requests of one slice are sent together.

    def request(self) -> None:
        """Request the documents that are wanted, many in one message, as many as there is room for.

        The others wait: an engine refuses more messages than it can keep, and with them everything in this space.
        """
        session, most = self.driver.session, DEFAULT_REPLICA_LIMITS.watched_together
        while (self._wanted or self._ahead) and session.loads() < DEFAULT_REPLICA_LIMITS.loads:
            # fault+ channel.requests_one_by_one: most = 1
            docs = _taken(self._wanted, most)
            ahead = _taken(self._ahead, most - len(docs))
            session.watch(docs, ahead=ahead if len(docs) + len(ahead) > 1 or ahead else None)

    def watch_together(self, docs: Iterable[DocKey], ahead: Iterable[DocKey]) -> None:
        """Request many documents at once, with some (`ahead`) that will perhaps be requested next."""
        self.driver.session.watch(docs, ahead=ahead)
        self.driver.flush()

    def unwatch(self, doc: DocKey) -> bool:
        self._wanted.pop(doc, None)
        self._ahead.pop(doc, None)
        return self.driver.session.unwatch(doc)

    def flush(self) -> None:
        """Send requests for documents and everything that the session has to send. Called at the end of each slice."""
        if self._wanted or self._ahead:
            self.request()
        self.driver.flush()

    def tell_runs(self) -> None:
        """Send the observations of runs that changed nothing now, instead of with the next commit."""
        self.driver.session.tell_runs()
        self.driver.flush()

    def is_up(self) -> bool:
        """True if there is a connection."""
        return self.driver.session.link is LinkState.UP

    def is_ready(self, conflict: Conflict) -> bool:
        return self.driver.session.ready(conflict)

    def is_durable(self) -> bool:
        """True if no commit made here waits for its verdict. Layers that stay local for good do not count."""
        return self.replica.is_durable()

    # ---- a number ----------------------------------------------------------------------------------

    async def reached(self, seq: int) -> None:
        """Wait until every watched document is shown as of `seq` or later."""
        confirmed = self.replica.confirmed
        if confirmed.seq >= seq:
            return
        # The engine sends nothing about commits that no watch here concerns; the answer to a request is as of now.
        marker = DocKey("space", f"barrier {self._core.clock.new_token(8)}")
        await self.driver.loaded(marker)
        self.driver.unwatch(marker)
        if confirmed.seq < seq:
            raise HeadwaterError(
                f"space {self.driver.session.space!r} is at {confirmed.seq}: there is no commit {seq} to wait for"
            )


def _taken(docs: dict[DocKey, None], most: int) -> list[DocKey]:
    """Take the first documents out of a queue."""
    first = [*islice(docs, most)]
    for doc in first:
        del docs[doc]
    return first
