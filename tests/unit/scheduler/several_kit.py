"""Several runtimes on one engine, each with its own replica, in virtual time. Decides and checks nothing.

The engine, its hub, sessions and replicas are the real ones, and so is the file: `restart` closes and opens it. A
message takes one step of `STEP_US`; `pass_time` lets so much of it pass, `work` is one step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.sync.hub import Hub
from headwater.protocol.commit import CommitPart, parts_of
from headwater.protocol.messages import Encoding
from headwater.scheduler.introspection.non_settling import NonSettlingReport
from headwater.scheduler.limits import SchedulerLimits
from headwater.testing.scheduler.kit import Handle, World
from tests.unit.replica.kit import Client
from tests.unit.replica.kit import World as Space

STEP_US: Final = 1_000
MANY: Final = 1_000_000


class Runtime:
    """A scheduler on a client's replica."""

    def __init__(self, client: Client, limits: SchedulerLimits | None = None) -> None:
        self.client = client
        self.world = World(clock=client.world.clock, replica=client.replica, wire=client.session, limits=limits)
        self.world.driver.is_winner_here = client.session.ready

    def cell(self, id: str) -> Handle:
        return self.world.cell(id=id)

    def computed(self, id: str, fn: Callable[[], object], **options: Any) -> Handle:
        """A computation that somebody here looks at."""
        made = self.world.computed(fn, id=id, **options)
        self.world.look(made, id=f"eye {id}")
        return made

    def reports(self) -> list[NonSettlingReport]:
        return list(self.world.scheduler.introspection.non_settling.reports)

    def under_way(self) -> tuple[NonSettlingReport, ...]:
        return self.world.scheduler.introspection.non_settling.under_way()


class Several:
    """One space, and the runtimes on it."""

    def __init__(
        self, path: Path, *names: str, limits: SchedulerLimits | None = None, encoding: Encoding = "msgpack"
    ) -> None:
        self.path = path / "space"
        self.space = Space()
        self.space.engine.close()
        self._open()
        for name in names:
            self.space.join(name, encoding=encoding)
        self.space.settle()
        self.runtimes = [Runtime(client, limits) for client in self.space.clients]

    def _open(self) -> None:
        space = self.space
        space.engine = Engine(SqliteStore(str(self.path), synchronous="OFF"), clock=space.clock, limits=space.limits)
        space.hub = Hub(space.engine, space.clock, space.limits)

    def watch(self, *ids: str) -> None:
        for client in self.space.clients:
            client.watch(*ids)
        self.space.settle()

    def write(self, id: str, value: object) -> None:
        """Somebody who derives nothing writes."""
        self.space.clients[0].write(id, replace((), value))

    def work(self) -> int:
        """Everybody does what there is to do, and everything that was said arrives. Answers how many messages."""
        moved = 0
        for runtime in self.runtimes:
            runtime.world.settle()
            moved += runtime.client.send()
        for runtime in self.runtimes:
            moved += runtime.client.hear()
            runtime.world.scheduler.heard()
        return moved

    def pass_time(self, ms: int) -> None:
        left = ms * 1_000 // STEP_US
        while left:
            steps = 1 if self.work() else min(left, self._steps_to_next())
            self.space.clock.advance(steps * STEP_US)
            left -= steps

    def _steps_to_next(self) -> int:
        """The steps until something can happen: nobody has said anything, so that only a timer is left."""
        due_us = self.space.clock.next_timer_us()
        return MANY if due_us is None else max(1, -((self.space.clock.now_us() - due_us) // STEP_US))

    def restart(self) -> None:
        """The engine stops and is opened again: nobody's connection is left, and no watch is known."""
        for client in self.space.clients:
            client.drop()
        self.space.engine.close()
        self._open()
        for client in self.space.clients:
            client.up()

    def derived(self) -> list[CommitPart]:
        """Derived commits and results, in the order of the log."""
        engine = self.space.engine
        found: list[CommitPart] = []
        seq = 0
        while seq < engine.last_seq:
            page = engine.changes(since=seq, limit=100)
            made = [logged.commit for logged in page.items if logged.commit.provenance.derived]
            found += [part for commit in made for part in parts_of(commit)]
            seq = page.items[-1].seq
        return found

    def close(self) -> None:
        self.space.engine.close()
