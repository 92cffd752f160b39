"""Replicas and a hub in one process, with every message in the test's hands. Decides and checks nothing.

A `World` is one space: an engine, its hub, a virtual clock. A `Client` is a replica with its session and the connection
it has at the moment. Messages wait in two queues, as bytes, until a test lets them pass: `send` moves some of them
to the hub, `hear` some of them to the session, `settle` all of them everywhere. `Mirror` follows a feed the way
a scheduler would, and knows only what it was told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from headwater.clock import VirtualClock
from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.patch import Patch, replace
from headwater.data.path import Path
from headwater.data.value import MaybeValue, freeze, same
from headwater.engine import DEFAULT_LIMITS, Engine, Hub, Limits, Peer
from headwater.engine.store.sqlite import SqliteStore
from headwater.errors import HeadwaterError, LoadError
from headwater.protocol.messages import (
    Ack,
    Encoding,
    FromEngine,
    FromReplica,
    Hello,
    Open,
    Welcome,
    decode_from_engine,
    decode_from_replica,
    encode,
    state_of,
)
from headwater.protocol.verdict import Rejection
from headwater.replica import Kind, Layer, LinkState, Notification, Replica, Session, Transaction

ROUNDS = 1_000
"""Settling takes a handful of rounds. More means that two ends talk without end."""

Work = Callable[[Transaction], object]


def doc(id: str, scope: str = SPACE_SCOPE) -> DocKey:
    return DocKey(scope, id)


class World:
    """One space and everybody connected to it."""

    def __init__(self, *names: str, limits: Limits = DEFAULT_LIMITS, access: bool = False) -> None:
        self.clock = VirtualClock(seed=1)
        self.limits = limits
        self.engine = Engine(SqliteStore(":memory:", synchronous="OFF"), clock=self.clock, limits=limits, access=access)
        self.hub = Hub(self.engine, self.clock, limits)
        self.clients: list[Client] = []
        for name in names:
            self.join(name)
        self.settle()

    def join(
        self,
        key: str,
        *,
        principal: str = "",
        encoding: Encoding = "msgpack",
        branch: str = "main",
        keeps_derived: bool = False,
    ) -> Client:
        client = Client(self, key, principal=principal, encoding=encoding, branch=branch, keeps_derived=keeps_derived)
        self.clients.append(client)
        return client

    def settle(self) -> None:
        """Deliver everything, until nobody has anything to say."""
        for _ in range(ROUNDS):
            said = [client.pump() for client in self.clients]
            if not any(said):
                return
        raise AssertionError(f"{ROUNDS} rounds and still talking")

    def value(self, id: str | DocKey) -> MaybeValue:
        return self.engine.read(id if isinstance(id, DocKey) else doc(id)).value

    def later(self, us: int) -> None:
        self.clock.advance(us)
        self.hub.expire()


@dataclass
class Told:
    """What became of one commit, as its callback heard it."""

    calls: list[tuple[Layer, Rejection | None]] = field(default_factory=list)

    def __call__(self, layer: Layer, rejection: Rejection | None) -> None:
        self.calls.append((layer, rejection))

    @property
    def landed(self) -> bool:
        return [rejection for _, rejection in self.calls] == [None]

    @property
    def rejection(self) -> Rejection:
        ((_, rejection),) = self.calls
        assert rejection is not None
        return rejection


class Client:
    """A replica, its session, and the connection it has now."""

    def __init__(
        self, world: World, key: str, *, principal: str, encoding: Encoding, branch: str, keeps_derived: bool
    ) -> None:
        self.world = world
        self.principal = principal
        self.encoding: Encoding = encoding
        self.replica = Replica(branch=branch)
        self.session = Session(
            self.replica, space="x", key=key, new_token=world.clock.new_token, keeps_derived=keeps_derived
        )
        self.errors: list[HeadwaterError] = []
        self.failed_loads: list[tuple[tuple[DocKey, ...], LoadError]] = []
        self.session.on_error = self.errors.append
        self.raised: list[Exception] = []
        self.replica.on_error = self.raised.append
        self.session.on_load_failed = lambda docs, error: self.failed_loads.append((docs, error))
        self.heard: list[Notification] = []
        self.replica.feed.subscribe(self.heard.append)
        self.mirror = Mirror(self.replica)
        self.peer: Peer | None = None
        self.inbox: deque[bytes] = deque()
        self.sent: list[FromReplica] = []
        self.received: list[FromEngine] = []
        self.up()

    # ---- the connection ----------------------------------------------------------------------------

    def up(self) -> None:
        """A fresh connection; nothing has been said on it yet."""
        inbox: deque[bytes] = deque()
        self.inbox = inbox
        self.peer = Peer(lambda message: inbox.append(encode(message, self.encoding)), self.world.limits)
        self.session.connected()

    def down(self) -> None:
        """The connection is gone, with everything that was on the way in either direction."""
        if self.peer is not None:
            self.world.hub.lost(self.peer)
        self.drop()

    def drop(self) -> None:
        """The same, but the engine has not noticed."""
        self.session.lost()
        self.peer = None
        self.inbox = deque()

    def again(self) -> None:
        """Lose the connection and make another one."""
        self.down()
        self.up()

    @property
    def is_up(self) -> bool:
        return self.session.link is LinkState.UP

    # ---- messages ----------------------------------------------------------------------------------

    def send(self, count: int | None = None) -> int:
        """Let the hub have the next messages of this client. Answers how many there were."""
        moved = 0
        while self.peer is not None and self.session.outgoing and moved != count:
            message = self.next_out()
            moved += 1
            self.offer(message)
        return moved

    def opens_with(self, resume: str) -> None:
        """Have its next opening say this token, as a process does that has it from elsewhere."""
        while not any(isinstance(message, Open) for message in self.session.outgoing):
            assert self.send(1) + self.hear(1)
        for place, message in enumerate(self.session.outgoing):
            if isinstance(message, Open):
                self.session.outgoing[place] = msgspec.structs.replace(message, resume=resume)

    def token(self) -> str:
        """The token that its session can be taken up with: the one that its last answered opening chose."""
        return [message.following for message in self.sent if isinstance(message, Open)][-1]

    def acked(self) -> int:
        """Up to which commit it said that it needs no verdict any more."""
        said = [*self.sent, *self.session.outgoing]
        return max([message.local_seq for message in said if isinstance(message, Ack)], default=0)

    def next_out(self) -> FromReplica:
        """Take the next message from the session, as the other end would decode it."""
        message = decode_from_replica(encode(self.session.outgoing.popleft(), self.encoding), self.encoding)
        self.sent.append(message)
        return message

    def offer(self, message: FromReplica) -> None:
        """Give the hub a message, whatever the session thinks of it. The greeting is the server's own."""
        assert self.peer is not None
        if isinstance(message, Hello):
            self.peer.greet(self.principal)
            self.peer.send(Welcome(1))
        else:
            self.world.hub.process([(self.peer, message)])

    def hear(self, count: int | None = None) -> int:
        """Let the session have the next messages of the engine. Answers how many there were."""
        moved = 0
        while self.inbox and moved != count:
            message = decode_from_engine(self.inbox.popleft(), self.encoding)
            moved += 1
            self.received.append(message)
            self.session.receive(message)
            self.session.acknowledge()
        return moved

    def waiting(self) -> list[FromEngine]:
        """What is on the way to the session."""
        return [decode_from_engine(data, self.encoding) for data in self.inbox]

    def pump(self) -> bool:
        return bool(self.send() + self.hear())

    # ---- doing -------------------------------------------------------------------------------------

    def watch(self, *ids: str | DocKey, follow: bool = False) -> None:
        self.session.watch([id if isinstance(id, DocKey) else doc(id) for id in ids], follow=follow)

    def do(self, work: Work, *, derived: bool = False, source: object | None = None) -> Told:
        """One transaction, begun and committed at once."""
        told = Told()
        transaction = self.replica.begin(derived=derived, source=source)
        work(transaction)
        self.replica.commit(transaction, told)
        return told

    def write(self, id: str, *patches: Patch) -> Told:
        return self.do(lambda t: t.write(doc(id), *patches))

    def shows(self, id: str | DocKey) -> MaybeValue:
        return self.replica.visible(id if isinstance(id, DocKey) else doc(id))

    def kinds(self) -> list[Kind]:
        return [notification.kind for notification in self.heard]


class Mirror:
    """What somebody who knows only the feed believes to be visible."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.values: dict[DocKey, MaybeValue] = {}
        self.problems: list[str] = []
        replica.feed.subscribe(self.hear)

    def hear(self, notification: Notification) -> None:
        for change in notification.changes:
            believed = self.values.get(change.doc)
            if change.known_before and (change.doc not in self.values or not same(believed, change.before)):
                self.problems.append(f"{notification.kind}: {change.doc.id} was {believed!r}, not {change.before!r}")
            if change.known_before and same(change.before, change.after):
                self.problems.append(f"{notification.kind}: {change.doc.id} did not change")
            if notification.kind is Kind.INTEGRATE and not change.known_before:
                self.values.pop(change.doc, None)  # it changed, but it is not here: unknown until it arrives
            else:
                self.values[change.doc] = change.after

    def differences(self) -> list[str]:
        """Where following the feed led elsewhere than where the replica is."""
        shown = dict(self.replica.snapshot())
        return self.problems + [
            f"{key.id} is shown as {value!r}, but the feed said {self.values.get(key, 'nothing')!r}"
            for key, value in shown.items()
            if key not in self.values or not same(self.values[key], value)
        ]


def bump(id: str, path: Path = ("n",)) -> Work:
    """Read a number and write the next one: a transaction that can lose a race."""

    def work(transaction: Transaction) -> None:
        number = transaction.read(doc(id), path)
        assert isinstance(number, int)
        transaction.write(doc(id), replace(path, number + 1))

    return work


def reading(*ids: str, path: Path = (), depth: Depth = Depth.DEEP) -> Work:
    def work(transaction: Transaction) -> None:
        for id in ids:
            transaction.read(doc(id), path, depth)

    return work


def together(*works: Work) -> Work:
    def work(transaction: Transaction) -> None:
        for each in works:
            each(transaction)

    return work


def putting(id: str, *patches: Patch) -> Work:
    return lambda transaction: transaction.write(doc(id), *patches)


def local_seqs(layers: Iterable[Layer]) -> list[int]:
    return [layer.local_seq for layer in layers]


def holding(seq: int = 1, /, **values: object) -> Replica:
    """A replica without a session that holds these documents, as of `seq`."""
    replica = Replica()
    replica.arrive([state_of(doc(id), seq, freeze(value)) for id, value in values.items()], seq)
    return replica


def counting(*names: str, limits: Limits = DEFAULT_LIMITS) -> World:
    """Everybody watches d and e; d is {n: 0, x: 0} and e is {n: 0}."""
    world = World(*names, limits=limits)
    for client in world.clients:
        client.watch("d", "e")
    world.settle()
    world.clients[0].do(together(putting("d", replace((), {"n": 0, "x": 0})), putting("e", replace((), {"n": 0}))))
    world.settle()
    return world
