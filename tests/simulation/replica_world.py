"""One space, its engine and the runtimes on it: random histories in which everything between them happens.

Messages wait until they are let through, in any order between runtimes; connections are lost, the engine and runtimes
are started anew, cells are written everywhere, nodes come and go. `problems` says, by invariant, what was wrong after
which step. The engines, hubs, sessions, replicas and cores are the real ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final, cast

from headwater.clock import VirtualClock
from headwater.data.address import DocKey
from headwater.engine import DEFAULT_LIMITS, Engine, Hub
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import InvariantViolation, NotSettlingError
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import World as SchedulerWorld
from tests.simulation.replica_checks import (
    Broken,
    fetched_for_somebody,
    is_same,
    says_who_and_why,
    shows_what_is_stored,
)
from tests.simulation.replica_rules import Flavour, random_plan
from tests.simulation.replica_runtime import Runtime
from tests.unit.replica.kit import Client
from tests.unit.replica.kit import World as Space

ROUNDS: Final = 80
"""Everybody comes to rest in a handful. More means that they talk without end."""
SHARED: Final = 40
"""Histories that follow each other on one engine, in scopes of their own: making a database takes its time."""
_NUMBERS: Final = count()


class Shop(Space):
    """A space on an engine that may have a past, and that can be killed and started again."""

    def __init__(self, engine: Engine, store: SqliteStore) -> None:
        self.clock = VirtualClock(seed=1)
        self.limits = DEFAULT_LIMITS
        self.store = store
        self.clients: list[Client] = []
        self.engine = engine
        self.hub = Hub(engine, self.clock, self.limits)

    def start(self) -> None:
        """Another engine takes up what is stored. Whatever was on its way, or only in memory, is gone."""
        self.engine = Engine(self.store, clock=self.clock, limits=self.limits)
        self.hub = Hub(self.engine, self.clock, self.limits)
        for client in self.clients:
            client.drop()


class World:
    """One history."""

    def __init__(self, seed: int, flavour: Flavour, engine: Engine, store: SqliteStore) -> None:
        self.rng = rng = random.Random(seed)
        self.flavour = flavour
        self.shop = Shop(engine, store)
        self.began = self.read_log = self.shop.engine.last_seq
        number = next(_NUMBERS)
        self.scope = f"user:{number}"
        size = rng.choice(flavour.runtimes)
        self.plan = random_plan(rng, flavour, size)
        self.gone: list[Runtime] = []
        self.is_lazy = rng.random() < 0.3
        self.runtimes = [self._join(home) for home in range(size)]
        self.spare: list[tuple[int, str]] = []  # nodes and effects that are to be registered later, or again
        for home in range(size):
            for name in self.plan.of(home):
                self.spare.append((home, name))
        rng.shuffle(self.spare)
        later = rng.choice((0, 0, 2))
        for home, name in self.spare[later:]:
            self.runtimes[home].register(name)
        del self.spare[later:]

    def _join(self, home: int) -> Runtime:
        client = self.shop.join(f"{self.scope} {home} {next(_NUMBERS)}")
        if not self.is_lazy:  # Somebody looked at all of it before, as far as it was there.
            client.session.watch([DocKey(self.scope, name) for name in self.plan.documents()])
        return Runtime(self.rng, client, self.plan, self.flavour, home, self.scope)

    def play(self) -> None:
        """From the beginning, or from when everybody has come to rest for the first time, to the end."""
        if self.rng.random() < 0.7:
            for _ in range(3):
                self._round()
        for _ in range(self.rng.choice(self.flavour.steps)):
            self.step()
        if self.flavour.cycles:
            self.go_on()
        else:
            self.finish()
            if self.rng.random() < self.flavour.disturbed:
                self.disturb()

    # ---- what happens --------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens somewhere."""
        rng, choice = self.rng, self.rng.random()
        runtime = rng.choice(self.runtimes)
        client = runtime.client
        if rng.random() < self.flavour.comings:
            self._coming_and_going()
        elif choice < 0.3:
            runtime.change()
        elif choice < 0.52:
            self._work(runtime)
        elif choice < 0.7:
            client.send(rng.randint(1, 3))
        elif choice < 0.92:
            self._hear(runtime, rng.randint(1, 3))
        elif choice < 0.94:
            self.shop.clock.advance(rng.choice((1_000, 300_000, 3_000_000)))
        elif choice < 0.985:
            if client.peer is None:
                client.up()
            else:
                client.down()
        elif choice < 0.995:
            self.shop.start()
        else:
            self._restart(runtime)
        self.check()
        if rng.random() < 0.1:
            self.check_graph()

    def _work(self, runtime: Runtime) -> None:
        if self.rng.random() < self.flavour.ticks:
            runtime.kernel.tick()
            if self.rng.random() < self.flavour.ticks / 2:
                runtime.change()  # in the middle of a pass, as like as not
                runtime.kernel.tick()
        else:
            runtime.settle()
        if runtime.kernel.scheduler.pass_.is_quiet() and not self.flavour.cycles:
            runtime.eye.at_rest()

    def _hear(self, runtime: Runtime, messages: int | None = None) -> int:
        heard = 0
        while heard != messages and self._hear_one(runtime):
            heard += 1
        if heard:
            runtime.kernel.heard()
        return heard

    def _hear_one(self, runtime: Runtime) -> int:
        """I5: no node is woken if nothing is shown differently, refused, or overwritten by another session."""
        if not runtime.client.inbox:
            return 0
        eye, replica = runtime.eye, runtime.replica
        before = [(node, node.status) for node in runtime.kernel.scheduler.nodes()]
        shown = [(document, document.value) for document in replica.documents.held()]
        before_hearing = eye.rejected, eye.overwritten
        heard = runtime.client.hear(1)
        woken = [node.id for node, status in before if node.status != status]
        is_quiet = before_hearing == (eye.rejected, eye.overwritten) and len(shown) == len(replica.documents.held())
        if woken and is_quiet and all(is_same(document.value, value) for document, value in shown):
            eye.wrong("I5", f"{woken} were woken although nothing is shown differently")
        return heard

    def _coming_and_going(self) -> None:
        """Nodes are registered and removed, effects more often."""
        if self.spare and self.rng.random() < 0.6:
            home, name = self.spare.pop(self.rng.randrange(len(self.spare)))
            self.runtimes[home].register(name)
            return
        runtime = self.rng.choice(self.runtimes)
        names = [name for name in self.plan.of(runtime.home) if runtime.node(name) is not None]
        effects = [name for name in names if name in self.plan.effects]
        if names:
            name = self.rng.choice(effects or names if self.rng.random() < 0.7 else names)
            node = runtime.node(name)
            assert node is not None
            runtime.kernel.remove(node)
            self.spare.append((runtime.home, name))

    def _restart(self, runtime: Runtime) -> None:
        """It is killed with everything that it had not sent, and another one takes its part."""
        if runtime.client.peer is not None:
            runtime.client.down()
        self.shop.clients.remove(runtime.client)
        self._leave(runtime)
        self.gone.append(runtime)
        names = [name for name in self.plan.of(runtime.home) if runtime.node(name) is not None]
        self.runtimes[runtime.home] = another = self._join(runtime.home)
        for name in names:
            another.register(name)

    def _leave(self, runtime: Runtime) -> None:
        runtime.stop()

    def close(self) -> None:
        for runtime in self.runtimes:
            self._leave(runtime)

    # ---- the end -------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Everything arrives everywhere, and everybody comes to rest."""
        while self.spare:
            home, name = self.spare.pop()
            self.runtimes[home].register(name)
        for _ in range(ROUNDS):
            if not self._round():
                break
        else:
            raise Broken("I1", f"{ROUNDS} rounds and still talking")
        self.check()
        for runtime in self.runtimes:
            runtime.eye.at_rest()
            shows_what_is_stored(runtime, self.shop.engine)
        self.check()
        self.check_graph()

    def _round(self) -> bool:
        moved = False
        for runtime in self.runtimes:
            if runtime.client.peer is None:
                runtime.client.up()
                moved = True
            runtime.settle()
            moved |= bool(runtime.client.send() + self._hear(runtime))
            moved |= not runtime.kernel.scheduler.pass_.is_quiet() or bool(runtime.kernel.plain_writes)
        return moved

    def go_on(self) -> None:
        """I6: what goes round is held back longer each time, told once, and keeps nobody else from coming to rest."""
        for home, name in self.spare:
            self.runtimes[home].register(name)
        self._rounds()
        self._go_round(5)
        self.rng.choice(self.runtimes).change()
        self._rounds()
        for runtime in self.runtimes:
            runtime.eye.calm_at_rest()
        self._go_round(10)
        for runtime in self.runtimes:
            if runtime.eye.exhausted and not runtime.failures:
                runtime.eye.wrong("I6", f"{dict(runtime.eye.exhausted)} are held back, and nobody was told")
            if not runtime.kernel.is_quiet():
                runtime.eye.wrong("I6", "whoever waits for quiet waits for ever")
        self.check()

    def _go_round(self, seconds: int) -> None:
        """Nothing comes from outside, and time goes on."""
        before = [(runtime, Counter(runtime.eye.exhausted), len(runtime.failures)) for runtime in self.runtimes]
        self._let_pass(seconds)
        for runtime, exhausted, told in before:
            held = runtime.eye.exhausted - exhausted
            # Waits are 250, 500 and 1,000 ms, and two seconds from then on.
            if max(held.values(), default=0) > seconds // 2 + 4:
                runtime.eye.wrong("I6", f"{dict(held)} times held back in {seconds} s")
            again = Counter(failure.node for failure in runtime.failures[told:])
            if any(reports > 1 for reports in again.values()):
                runtime.eye.wrong("I6", f"told more than once: {dict(again)}")

    def _let_pass(self, seconds: int) -> None:
        clock = self.shop.clock
        end = clock.now_us() + seconds * 1_000_000
        while clock.now_us() < end:
            self._rounds()
            due = [runtime.loop.due_us for runtime in self.runtimes if runtime.loop.due_us is not None]
            clock.advance(max(1_000, min([end, *due]) - clock.now_us()))
        self._rounds()
        self.check()

    def _rounds(self) -> None:
        """Everything that is on its way arrives, and everybody does what can be done now."""
        for _ in range(ROUNDS):
            if not self._round():
                return
            if any(runtime.eye.problems for runtime in self.runtimes):
                self.check()  # What does not come to an end need not be looked at to its end.
        raise Broken("I6", f"{ROUNDS} rounds and still talking, in one moment")

    def disturb(self) -> None:
        """I5: after everything has come to rest nothing runs and nothing is written, whatever else happens."""
        before = [(runtime.eye.attempts, runtime.replica.next_local_seq) for runtime in self.runtimes]
        seq = self.shop.engine.last_seq
        for runtime in self.runtimes:
            if self.rng.random() < 0.5:
                runtime.client.again()
        if self.rng.random() < 0.5:
            self.shop.start()
        for _ in range(ROUNDS):
            if not self._round():
                break
        self.shop.clock.advance(60_000_000)
        self._round()
        for runtime, (attempts, local_seq) in zip(self.runtimes, before, strict=True):
            if (runtime.eye.attempts, runtime.replica.next_local_seq) != (attempts, local_seq):
                runtime.eye.wrong("I5", f"something ran after all had come to rest: {runtime.eye.order}")
        if self.shop.engine.last_seq != seq:
            self.runtimes[0].eye.wrong("I5", "something was written after all had come to rest")
        self.check()

    # ---- what has to hold ----------------------------------------------------------------------------

    def check(self) -> None:
        """After every step."""
        engine, everybody = self.shop.engine, (*self.runtimes, *self.gone)
        if engine.last_seq != self.read_log:
            says_who_and_why(engine, self.read_log, everybody)
            self.read_log = engine.last_seq
        for runtime in everybody:
            fetched_for_somebody(runtime)
            for invariant, what in runtime.eye.problems:
                raise Broken(invariant, what)
            if runtime.client.raised or runtime.client.errors:
                raise Broken("I1", f"{runtime.client.raised} {runtime.client.errors}")
            for failure in runtime.failures:
                if not (self.flavour.cycles and isinstance(failure.error, NotSettlingError)):
                    raise Broken("I1", f"{failure}") from failure.error

    def done(self) -> Counter[str]:
        """What there was to check in this history."""
        counted: Counter[str] = Counter()
        for runtime in (*self.runtimes, *self.gone):
            counted.update(runtime.eye.done)
            counted["rejected"] += runtime.eye.rejected + runtime.replica.tier.superseded_count
            counted["runs"] += sum(runtime.eye.runs.values())
            counted["held back"] += len(runtime.eye.exhausted)
            counted["without roots"] += not any(runtime.home in self.plan.homes[name] for name in self.plan.effects)
        return counted

    def check_graph(self) -> None:
        """Liveness and edges are what a full rebuild makes."""
        for runtime in self.runtimes:
            try:
                check_world(cast(SchedulerWorld, runtime), heights=not self.flavour.cycles)
            except InvariantViolation as violation:
                raise Broken("I9", f"runtime {runtime.home}: {violation}") from violation


_engines: list[tuple[Engine, SqliteStore, int]] = []


@contextmanager
def history(seed: int, flavour: Flavour) -> Iterator[World]:
    """A world on an engine that served others before. One that something went wrong with is not used again."""
    if _engines:
        engine, store, used = _engines.pop()
    else:
        store, used = SqliteStore(":memory:", synchronous="OFF"), 0
        engine = Engine(store, clock=VirtualClock(seed=1), limits=DEFAULT_LIMITS)
    world = World(seed, flavour, engine, store)
    yield world
    world.close()
    if used < SHARED:
        _engines.append((world.shop.engine, store, used + 1))
    else:
        world.shop.engine.close()
