"""Stories about demand and invalidation, ordering and convergence, and materializers, as a user sees them."""

from __future__ import annotations

from headwater.data.address import DocKey, Link
from headwater.data.value import ABSENT
from headwater.replica import Detached, Replica
from headwater.scheduler import Node
from headwater.testing.scheduler.checks import check_world
from headwater.testing.scheduler.kit import Handle, World


def test_a_shop_total_is_computed_only_while_somebody_looks() -> None:
    world = World()
    lines = world.cell([{"cents": 450, "qty": 1}])
    total = world.computed(lambda: sum(line["cents"] * line["qty"] for line in lines.get()), id="total")
    lines.set([{"cents": 450, "qty": 2}])
    world.settle()
    assert world.ran() == []
    eye = world.effect(total.get, id="eye")
    world.settle()
    assert (world.ran(), total.peek()) == (["total", "eye"], 900)
    world.scheduler.remove(eye)
    assert world.ran_after(lambda: lines.set([])) == []


def test_an_effect_over_two_invalid_inputs_runs_once() -> None:
    world = World()
    cents, qty = world.cell(450), world.cell(1)
    price = world.computed(lambda: cents.get(), id="price")
    count = world.computed(lambda: qty.get(), id="count")
    seen: list[int] = []
    world.effect(lambda: seen.append(price.get() * count.get()), id="eye")
    world.settle()
    cents.set(500)
    qty.set(3)
    world.settle()
    assert seen == [450, 1_500]


def test_a_shallow_reader_ignores_deep_edits_and_sees_keys_length_and_links() -> None:
    world = World()
    board = world.cell({"cards": {"a": {"title": "x"}}, "order": ["a"], "home": Link(None, "space", "one", ())})
    seen: list[tuple[object, ...]] = []
    cards, order, home = board.at("cards"), board.at("order"), board.at("home")
    world.effect(lambda: seen.append((cards.shape(), order.shape(), home.shape())), id="eye")
    world.settle()
    assert world.ran_after(lambda: board.at("cards", "a", "title").set("y")) == []
    assert world.ran_after(lambda: board.at("order", 0).set("b")) == []
    assert world.ran_after(lambda: board.at("cards", "b").set({"title": "z"})) == ["eye"]
    assert world.ran_after(lambda: board.at("cards", "a").set(ABSENT)) == ["eye"]
    assert world.ran_after(lambda: order.set(["b", "c"])) == ["eye"]
    assert world.ran_after(lambda: home.set(Link(None, "space", "two", ()))) == ["eye"]


def test_switching_a_branch_drops_the_old_input_and_picks_the_new_one() -> None:
    world = World()
    is_metric, km, miles = world.cell(True), world.cell(5), world.cell(3)
    shown = world.computed(lambda: km.get() if is_metric.get() else miles.get(), id="shown")
    seen = world.look(shown, id="eye")
    world.settle()
    is_metric.set(False)
    world.settle()
    assert world.ran_after(lambda: km.set(6)) == []
    assert world.ran_after(lambda: miles.set(4)) == ["shown", "eye"]
    assert seen == [5, 3, 4]


def test_a_sink_on_a_link_wakes_when_its_target_appears_later() -> None:
    """The link names a document that is not here and, when it arrives, not there either; then somebody writes it."""
    world = World(lazy=True)
    pointer = world.cell({"to": "later"})
    later = world.absent_cell("later")
    seen: list[object] = []
    world.effect(lambda: seen.append(later.get() if pointer.at("to").get() == "later" else None))
    world.settle()
    assert seen == []
    world.arrive(later)
    world.settle()
    assert seen == [ABSENT]
    later.set("hello")
    world.settle()
    assert seen == [ABSENT, "hello"]


def test_a_debounced_child_of_a_live_parent_keeps_its_claim_until_its_gate_opens() -> None:
    """Provisional demand lasts until the first run, however many passes that takes."""
    world = World()
    source = world.cell(0)
    missing = world.absent_cell("missing")
    children: list[Handle] = []

    def child() -> int:
        return int(source.get()) + int(missing.get())

    def parent() -> None:
        source.get()
        if not children:
            world.driver.lazy = True
            children.append(world.computed(child, id="child", output=output, debounce_ms=100))

    output = world.document("child")
    world.effect(parent, id="parent")
    world.settle()
    node = world.node("child")
    assert node.live
    assert node.runs == 0
    world.arrive(missing, 10)
    source.set(1)
    world.settle()
    source.set(2)
    world.settle()
    assert node.live
    world.advance(200)
    assert node.runs == 1
    assert children[0].peek() == 12
    assert not node.live, "nobody reads it, so its claim is over"


def test_a_child_without_a_reader_runs_once_and_then_sleeps() -> None:
    world = World()
    source = world.cell(0)
    made: list[Handle] = []

    def parent() -> None:
        if not made:
            made.append(world.computed(lambda: source.get() + 1, id="child"))

    world.effect(parent, id="parent")
    world.settle()
    assert made[0].peek() == 1
    assert not world.node("child").live
    assert world.ran_after(lambda: source.set(5)) == []


def test_a_list_makes_one_child_per_item_and_changes_run_only_their_own() -> None:
    """A coordinator registers a computation for each key, reads them all, and removes those whose key leaves."""
    world = World()
    items = world.cell({"a": 1, "b": 2})
    children: dict[str, Node] = {}
    outputs: dict[str, Handle] = {}

    def coordinate() -> object:
        keys = items.shape()
        for key in [key for key in children if key not in keys]:
            world.scheduler.remove(children.pop(key))
        for key in keys:
            if key not in children:
                cell = items.at(key)
                outputs[key] = world.computed(
                    lambda cell=cell: cell.get() * 10,  # type: ignore[misc]
                    id=f"child {key}",
                    output=world.document(f"child {key}"),
                    parent=world.node("list"),
                )
                children[key] = world.node(f"child {key}")
        return {key: outputs[key].get() for key in keys}

    seen = world.look(world.computed(coordinate, id="list"))
    world.settle()
    assert seen[-1] == {"a": 10, "b": 20}
    assert world.ran_after(lambda: items.at("b").set(5))[:2] == ["child b", "list"]
    items.at("c").set(7)
    world.settle()
    items.at("a").set(ABSENT)
    world.settle()
    assert seen[-1] == {"b": 50, "c": 70}
    assert world.scheduler.find("child a") is None
    check_world(world)


def test_a_true_cycle_is_retried_slowly_while_another_graph_stays_instant() -> None:
    world = World()
    ping, pong = (Handle(world, world.document(name)) for name in ("ping", "pong"))

    def bounce(other: Handle) -> int:
        value = other.get()
        return 0 if value is ABSENT else int(value) + 1

    world.computed(lambda: bounce(pong), id="ping", output=ping.document)
    world.computed(lambda: bounce(ping), id="pong", output=pong.document)
    world.look(ping)
    source = world.cell(0)
    seen = world.look(world.computed(lambda: source.get() * 2))
    world.settle()
    for value in range(1, 20):
        source.set(value)
        world.settle()
        assert seen[-1] == value * 2
        world.advance(500)
    runs = world.node("ping").runs
    world.advance(10_000)
    assert runs < world.node("ping").runs <= runs + 6 * world.scheduler.limits.node_runs


def test_one_wake_timer_serves_everybody_and_none_is_left() -> None:
    world = World()
    source = world.cell(0)
    nodes = [world.effect(source.get, debounce_ms=delay) for delay in (300, 100, 200)]
    world.settle()
    source.set(1)
    world.settle()
    assert world.driver.timer_at == 100_000
    world.scheduler.set_delays(nodes[0], debounce_us=50_000)
    assert world.driver.timer_at == 50_000
    for node in nodes:
        world.scheduler.remove(node)
    assert world.driver.timer_at is None


def test_a_failing_computation_is_told_once_and_recovers_by_itself() -> None:
    world = World()
    divisor = world.cell(0)
    result = world.computed(lambda: 100 // divisor.get(), id="result")
    seen: list[object] = []
    world.effect(lambda: seen.append(result.get()), id="eye")
    world.settle()
    told = [failure.node for failure in world.driver.failures]
    assert told.count("result") == 1
    assert seen == []
    world.advance(60_000)
    assert [failure.node for failure in world.driver.failures] == told
    divisor.set(4)
    world.settle()
    assert seen == [25]


def test_a_run_reads_two_spaces_and_writes_its_own() -> None:
    world = World()
    elsewhere, key = Replica(), DocKey("space", "rate")
    Detached(elsewhere).watch([key])
    world.scheduler.attach(elsewhere)
    here, there = world.cell(1), Handle(world, elsewhere.documents.of(key))
    there.set(10)
    result = world.computed(lambda: here.get() * there.get(), id="result")
    seen = world.look(result)
    world.settle()
    there.set(20)
    world.settle()
    here.set(2)
    world.settle()
    assert seen == [10, 20, 40]
    world.effect(lambda: there.set(1), id="foreign")
    world.settle()
    assert [failure.node for failure in world.driver.failures] == ["foreign"]
    check_world(world)
