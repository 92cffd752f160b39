"""I6 beyond one runtime: computations that make each other run through the engine are slowed down like any cycle.

Each runtime has its own replica and knows only what it is told; what tells a cycle from a change is how often it went
from one session to another (`Provenance.hops`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.data.value import ABSENT
from headwater.protocol.messages import Sync, Whole
from headwater.scheduler.node import CLEAN, Node
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import Handle
from tests.unit.scheduler.several_kit import Runtime, Several

Make = Callable[..., Several]
MOST = 10 + 60 // 2 * 2
"""Derived commits of a minute: what is free, and one for each pause of each of two runtimes."""


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Make]:
    made: list[Several] = []

    def make(*names: str, **options: Any) -> Several:
        made.append(Several(tmp_path, *names, **options))
        return made[-1]

    yield make
    for each in made:
        for runtime in each.runtimes:
            check_world(runtime.world, heights=False)
            assert runtime.client.errors == []
            assert runtime.client.raised == []
            assert runtime.client.mirror.differences() == []
        each.close()


def number(handle: Handle) -> int:
    value = handle.get()
    return 0 if value is ABSENT else value


def ping_pong(both: Several, most: int | None = None) -> tuple[Handle, Handle]:
    """a: x = y + 1 + seed. b: y = x + 1. With `most`, neither exceeds it."""
    a, b = both.runtimes
    both.watch("seed", "x", "y")

    def plus_one(*handles: Handle) -> int:
        value = sum(number(handle) for handle in handles) + 1
        return value if most is None else min(value, most)

    seed, y, x = a.cell("seed"), a.cell("y"), b.cell("x")
    return a.computed("x", lambda: plus_one(y, seed)), b.computed("y", lambda: plus_one(x))


@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_a_cycle_through_two_runtimes_goes_round_as_slowly_as_one_inside(several: Make, encoding: str) -> None:
    both = several("a", "b", encoding=encoding)
    ping_pong(both)
    both.pass_time(60_000)
    derived = both.derived()
    assert 20 <= len(derived) <= MOST
    assert [commit.provenance.hops for commit in derived] == list(range(len(derived)))
    (of_a,), (of_b,) = (runtime.reports() for runtime in both.runtimes)
    assert str(of_a).startswith("x does not come to an end: the change that it runs for has gone from one runtime ")
    assert "by y of session b" in str(of_a)
    assert "by x of session a" in str(of_b)
    for runtime, report in zip(both.runtimes, (of_a, of_b), strict=True):
        assert [failure.node for failure in runtime.world.driver.failures] == [report.node]
        assert runtime.under_way() == (report,)
        assert report.hops > 10


def test_a_restart_of_the_engine_neither_ends_nor_hastens_it(several: Make) -> None:
    both = several("a", "b")
    ping_pong(both)
    both.pass_time(30_000)
    before = len(both.derived())
    both.restart()
    both.pass_time(30_000)
    assert 4 <= len(both.derived()) - before <= 30
    assert len(both.derived()) <= MOST
    assert all(len(runtime.reports()) == 1 for runtime in both.runtimes)


@pytest.mark.parametrize("whole", [False, True])
def test_connections_that_come_and_go_do_not_hasten_it(several: Make, whole: bool) -> None:
    """`whole`: the watches are forgotten meanwhile, so that what happened is told by a fresh value only."""
    both = several("a", "b")
    ping_pong(both)
    both.pass_time(10_000)
    for _ in range(20):
        before = len(both.derived())
        for client in both.space.clients:
            client.down()
        if whole:
            both.space.later(both.space.limits.session_kept_us + 1)
        for client in both.space.clients:
            client.up()
        both.pass_time(2_000)
        assert len(both.derived()) - before <= 4
    assert all(len(runtime.reports()) == 1 for runtime in both.runtimes)


def test_what_converges_is_not_held_up(several: Make) -> None:
    both = several("a", "b")
    x, y = ping_pong(both, most=5)
    both.pass_time(40)
    assert (x.peek(), y.peek()) == (5, 5)
    for runtime in both.runtimes:
        assert runtime.reports() == []
        assert all(node.gate is None or not node.gate.exhaustions for node in runtime.world.nodes())


def test_a_chain_of_thirty_crossings_is_late_but_right(several: Make) -> None:
    three = several("a", "b", "c")
    names = ["seed", *[f"n{index}" for index in range(30)]]
    three.watch(*names)
    made: list[Handle] = []
    for index in range(30):
        runtime = three.runtimes[index % 3]
        before = runtime.cell(names[index])
        made.append(runtime.computed(names[index + 1], lambda before=before: number(before) + 1))  # type: ignore[misc]
    three.pass_time(20_000)
    for value in (100, 200):
        three.write("seed", value)
        three.pass_time(50)
        assert made[9].peek() == value + 10
        three.pass_time(20_000)
        assert made[-1].peek() == value + 30
    for runtime in three.runtimes:
        assert runtime.world.scheduler.is_quiet()
        assert all(node.status == CLEAN for node in runtime.world.nodes())


def test_what_is_authored_meanwhile_is_not_lost_and_begins_anew(several: Make) -> None:
    both = several("a", "b")
    x, _ = ping_pong(both)
    both.pass_time(30_000)
    shown = x.peek()
    both.write("seed", 10_000)
    both.pass_time(2_100)
    assert x.peek() > shown + 10_000


def test_an_episode_ends_with_a_run_for_something_near(several: Make) -> None:
    both = several("a", "b")
    x, _ = ping_pong(both)
    a, b = both.runtimes
    both.pass_time(30_000)
    b.world.scheduler.remove(b.world.node("y"))
    both.pass_time(5_000)
    assert a.under_way() != ()  # Whether it goes on elsewhere cannot be seen from here.
    both.write("seed", 10_000)
    a.world.settle()
    assert x.peek() > 10_000
    assert a.under_way() == ()
    assert len(a.reports()) == 1
    gate = a.world.node("x").gate
    assert gate is not None
    assert (gate.goes_round, gate.is_far, gate.is_held) == (False, False, False)
    seen = b.cell("x")
    b.computed("again", lambda: number(seen))
    b.world.computed(lambda: number(seen) + 1, id="y2", output=b.cell("y").document)
    b.world.look(b.cell("y"))
    both.pass_time(10_000)
    assert len(a.reports()) == 2


def test_whoever_only_looks_is_not_held_back_and_nobody_waits_twice(several: Make) -> None:
    """Where it enters a runtime it waits; what follows from that inside, and whoever shows it, does so at once."""
    both = several("a", "b", "c")
    a, b, c = both.runtimes
    both.watch("x", "y")
    x = b.cell("x")
    for index in range(8):
        before = a.cell("y" if not index else f"w{index - 1}")
        a.computed(f"w{index}", lambda before=before: number(before) + 1)  # type: ignore[misc]
    last = a.cell("w7")
    a.computed("x", lambda: number(last) + 1)
    b.computed("y", lambda: number(x) + 1)
    shown = c.world.look(c.cell("x"))
    both.pass_time(60_000)
    rounds = [commit for commit in both.derived() if commit.provenance.node == "x"]
    assert 15 <= len(rounds) <= MOST // 2
    assert len(shown) >= len(rounds)
    assert c.reports() == []
    assert [report.node for report in a.reports()] == ["w0"]


def test_a_node_that_writes_what_it_reads_is_slowed_down_where_it_runs_twice(several: Make) -> None:
    """Its own writes never wake a node; those of the same node in another runtime do (I5, by identity)."""
    both = several("a", "b")
    both.watch("c", "n", "m")
    for runtime in both.runtimes:
        counter = runtime.cell("c")
        name = "n" if runtime is both.runtimes[0] else "m"

        def step(counter: Handle = counter) -> int:
            counter.set(number(counter) + 1)
            return number(counter)

        runtime.computed(name, step, writes=(counter,))
    both.pass_time(60_000)
    assert len(both.derived()) <= MOST + 10
    assert all(len(runtime.reports()) == 1 for runtime in both.runtimes)


def test_nodes_made_on_the_way_count_on(several: Make) -> None:
    """A run that registers a node for each value: the new ones never ran, and the way to them is as long."""
    both = several("a", "b")
    a, b = both.runtimes
    both.watch("x", "y")
    y, x = a.cell("y"), b.cell("x")

    def maker() -> int:
        found = number(y)
        made = a.world.computed(lambda: found + 1, id=f"child{found}")
        return number(made)

    a.computed("x", maker)
    b.computed("y", lambda: number(x) + 1)
    both.pass_time(60_000)
    crossings = [commit for commit in both.derived() if commit.provenance.node in ("x", "y")]
    assert len(crossings) <= MOST
    children = [commit for commit in both.derived() if commit.provenance.node.startswith("child")]
    assert children[-1].provenance.hops > 20


def test_a_failure_on_the_way_counts_on(several: Make) -> None:
    both = several("a", "b")
    a, b = both.runtimes
    both.watch("y", "z")
    y, z = a.cell("y"), b.cell("z")

    def fails() -> int:
        raise ValueError(str(number(y)))

    failing = a.world.computed(fails, id="x")

    def told() -> int:
        try:
            return int(failing.get())
        except Exception as error:
            return int(str(error.__cause__ or error).split()[-1].strip("'\"")) + 1

    a.computed("z", told)
    b.computed("y", lambda: number(z) + 1)
    both.pass_time(60_000)
    assert 10 < len(both.derived()) <= MOST


def test_a_run_that_is_made_again_has_come_as_far_as_before(several: Make) -> None:
    """A result that a runtime derives without a connection is sent when there is one again."""
    both = several("a", "b")
    ping_pong(both)
    both.pass_time(20_000)
    for _ in range(5):
        client = both.space.clients[0]
        client.drop()
        both.pass_time(2_500)
        client.up()
        both.pass_time(2_500)
    hops = [commit.provenance.hops for commit in both.derived()]
    assert min(hops[20:]) > 10


def test_a_document_that_many_write_is_told_as_a_whole_with_its_way(several: Make) -> None:
    both = several("a", "b")
    a, b = both.runtimes
    both.watch("big", "y")
    both.write("big", {})
    both.work()
    y, big = a.cell("y"), a.cell("big")
    for index in range(20):
        part = big.at(f"k{index}")

        def put(part: Handle = part) -> int:
            part.set(number(y) + 1)
            return number(y)

        a.computed(f"p{index}", put, writes=(big,))
    seen = b.cell("big")
    b.computed("y", lambda: max([0, *(seen.get().values() if seen.get() is not ABSENT else ())]) + 1)
    both.pass_time(20_000)
    rounds = [commit for commit in both.derived() if commit.provenance.node == "y"]
    assert 6 <= len(rounds) <= 20
    told = [change for message in b.client.received if isinstance(message, Sync) for change in message.changes]
    assert any(isinstance(change, Whole) for change in told)


def test_idle_comes_although_it_goes_on(several: Make) -> None:
    both = several("a", "b")
    ping_pong(both)
    both.pass_time(20_000)
    quiet = 0
    for _ in range(40):
        both.pass_time(100)
        quiet += all(runtime.world.scheduler.is_quiet() for runtime in both.runtimes)
    assert quiet > 30


def test_a_cycle_through_effects_that_register_who_writes_is_slow_too(tmp_path: Path) -> None:
    several = Several(tmp_path, "one", "two")
    several.watch("x", "y")
    several.write("x", 0)
    several.write("y", 0)
    several.work()

    def build(runtime: Runtime, mine: str, others: str) -> None:
        world, made = runtime.world, list[Node]()
        source, target = runtime.cell(others), runtime.cell(mine)

        def spread() -> None:
            value = source.get()
            if made:
                world.scheduler.remove(made.pop())
            made.append(world.materializer(lambda: target.set(value + 1), [target], id=f"m {value}"))

        world.effect(spread, id="spread")

    build(several.runtimes[0], "x", "y")
    build(several.runtimes[1], "y", "x")
    several.pass_time(3_000)
    assert len(several.derived()) <= 10 + 2 * (3_000 // 250 + 2) + 10  # Each is new, and pauses as for the first time.
