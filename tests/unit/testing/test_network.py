"""The simulated network: in order within a connection, late and lost between them."""

from __future__ import annotations

from headwater.clock import VirtualClock
from headwater.testing.network import Connection, Network, Weather

CALM = Weather(slow_share=0.0, lingers_share=0.0, notice_us=(10_000, 20_000))
STORMY = Weather(delay_us=(100, 50_000), slow_share=0.5, lingers_share=1.0, notice_us=(10_000, 20_000))


class Mailbox:
    """An end that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.ended: list[Connection] = []

    def take(self, connection: Connection, data: bytes) -> None:
        self.got.append(data)

    def hang_up(self, connection: Connection) -> None:
        self.ended.append(connection)


def world(weather: Weather, seed: int = 0) -> tuple[VirtualClock, Network, Mailbox, Mailbox]:
    clock = VirtualClock(seed=seed)
    return clock, Network(clock, clock.randomness("network"), weather), Mailbox(), Mailbox()


def connected(network: Network, near: Mailbox, far: Mailbox) -> Connection:
    connection = network.connect(near, far, "json")
    assert connection is not None
    return connection


def numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def test_bytes_arrive_in_order_however_slow_some_of_them_are() -> None:
    for seed in range(20):
        clock, network, near, far = world(STORMY, seed)
        connection = connected(network, near, far)
        for data in numbered(30):
            connection.up.send(data)
            connection.down.send(data)
            clock.advance(1_000)
        clock.advance(10_000_000)
        assert far.got == numbered(30)
        assert near.got == numbered(30)


def test_two_connections_overtake_each_other() -> None:
    overtaken = 0
    for seed in range(20):
        clock, network, near, far = world(STORMY, seed)
        first, second = connected(network, near, far), connected(network, near, far)
        first.up.send(b"first")
        clock.advance(1_000)
        second.up.send(b"second")
        clock.advance(10_000_000)
        assert sorted(far.got) == [b"first", b"second"]
        overtaken += far.got[0] == b"second"
    assert 0 < overtaken < 20


def test_after_a_cut_what_arrives_is_a_beginning_of_what_was_sent() -> None:
    lengths = set()
    for seed in range(60):
        clock, network, near, far = world(Weather(lingers_share=0.5, notice_us=(0, 50_000)), seed)
        connection = connected(network, near, far)
        for number, data in enumerate(numbered(20)):
            connection.up.send(data)
            clock.advance(1_000)
            if number in (5, 12):
                network.cut(connection)
        clock.advance(10_000_000)
        assert far.got == numbered(20)[: len(far.got)]
        assert near.ended == [connection]
        assert far.ended == [connection]
        lengths.add(len(far.got))
    assert len(lengths) > 5


def test_each_end_notices_a_cut_in_its_own_time() -> None:
    clock, network, near, far = world(Weather(lingers_share=0.0, notice_us=(1_000, 3_000_000)))
    network.cut(connected(network, near, far))
    seen = []
    for _ in range(400):
        clock.advance(10_000)
        seen.append((len(near.ended), len(far.ended)))
    assert seen[-1] == (1, 1)
    assert (1, 0) in seen or (0, 1) in seen


def test_a_partition_holds_everything_and_delivers_it_in_order_when_it_is_mended() -> None:
    for seed in range(20):
        clock, network, near, far = world(STORMY, seed)
        connection = connected(network, near, far)
        for data in numbered(20)[:8]:
            connection.up.send(data)
            clock.advance(500)
        network.partition(near)
        before = len(far.got)
        for data in numbered(20)[8:]:
            connection.up.send(data)
            clock.advance(500)
        clock.advance(400_000)
        assert len(far.got) == before
        assert network.connect(near, far, "json") is None
        network.mend(near)
        clock.advance(1_000_000)
        assert far.got == numbered(20)
        assert not near.ended


def test_a_long_partition_tries_the_patience_of_both_ends() -> None:
    clock, network, near, far = world(CALM)
    connection = connected(network, near, far)
    network.partition(near)
    clock.advance(100_000_000)
    assert near.ended == far.ended == [connection]


def test_what_a_stranded_replica_said_arrives_late_and_is_never_answered() -> None:
    clock, network, near, far = world(CALM)
    connection = connected(network, near, far)
    network.strand(connection, late_us=2_000_000)
    connection.up.send(b"open")
    connection.down.send(b"welcome")
    clock.advance(1_000_000)
    assert near.ended == [connection]
    assert far.got == []
    clock.advance(2_000_000)
    assert far.got == [b"open"]
    assert near.got == []


def test_a_dead_server_reads_nothing_more() -> None:
    clock, network, near, far = world(CALM)
    connection = connected(network, near, far)
    connection.up.send(b"too late")
    network.sever(connection)
    clock.advance(10_000_000)
    assert far.got == []
    assert near.ended == [connection]


def test_a_dead_replica_hears_nothing_more() -> None:
    clock, network, near, far = world(CALM)
    connection = connected(network, near, far)
    connection.down.send(b"too late")
    network.drop(near)
    clock.advance(10_000_000)
    assert near.got == []
    assert near.ended == []
    assert far.ended == [connection]


def test_bytes_arrive_in_order_after_the_wall_clock_was_set_ahead() -> None:
    clock, network, near, far = world(STORMY)
    connection = connected(network, near, far)
    connection.up.late_us = 400_000
    connection.up.send(b"first")
    connection.up.late_us = 0
    clock.set_wall_clock(1_000_000)
    connection.up.send(b"second")
    clock.advance(10_000_000)
    assert far.got == [b"first", b"second"]
