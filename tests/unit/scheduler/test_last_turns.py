"""I9: what runs out of turn, or brings about what does, leaves everybody else in order, readers included."""

from __future__ import annotations

import pytest

from headwater.testing.scheduler.kit import World


def test_what_a_materializer_wrote_is_run_for_in_order_whatever_ran_before_it_in_the_pass() -> None:
    world = World()
    x = world.cell(0, id="x")
    env = world.cell({"k": 0, "j": 0}, id="env")
    a = world.computed(lambda: env.at("k").get() * 10, id="a")
    made: list[tuple[object, object]] = []

    def both() -> tuple[object, object]:
        made.append((a.get(), env.at("j").get() * 10))
        return made[-1]

    b = world.computed(both, id="b")
    world.look(b, id="eye")
    c = world.computed(lambda: x.get() + 1, id="c")  # its turn lies between a's and b's
    world.look(c, id="eye c")

    def m() -> None:
        env.at("k").set(x.get())
        env.at("j").set(x.get())

    world.materializer(m, [env], id="m")
    world.settle()
    made.clear()
    assert world.ran_after(lambda: x.set(1)) == ["c", "eye c", "m", "a", "b", "eye"]
    assert made == [(10, 10)]


def test_the_same_for_what_an_effect_s_callback_writes() -> None:
    world = World()
    x, k, j = world.cell(0, id="x"), world.cell(0, id="k"), world.cell(0, id="j")
    a = world.computed(lambda: k.get() * 10, id="a")
    b = world.computed(lambda: (a.get(), j.get() * 10), id="b")
    world.look(b, id="eye")
    c = world.computed(lambda: x.get() + 1, id="c")

    def answer() -> None:
        value = c.get()
        run, world.scheduler.current.run = world.scheduler.current.run, None  # as a sink's callback is called
        k.set(value)
        j.set(value)
        world.scheduler.current.run = run

    world.effect(answer, id="answer")
    world.settle()
    assert world.ran_after(lambda: x.set(5)) == ["c", "answer", "a", "b", "eye"]


def test_dormant_nodes_that_are_demanded_again_run_in_order_and_once() -> None:
    world = World()
    is_on, x = world.cell(True, id="s"), world.cell(0, id="x")
    a = world.computed(lambda: x.get(), id="a")
    b = world.computed(lambda: a.get(), id="b")
    made: list[object] = []

    def both() -> object:
        made.append((a.get(), b.get(), x.get()))
        return made[-1]

    c = world.computed(both, id="c")
    world.effect(lambda: c.get() if is_on.get() else None, id="eye")
    world.settle()
    is_on.set(False)
    world.settle()
    made.clear()
    x.set(1)
    assert world.ran_after(lambda: is_on.set(True)) == ["a", "b", "c", "eye"]
    assert made == [(1, 1, 1)]


@pytest.mark.parametrize("kind", ["computation", "effect"])
def test_who_waited_for_a_materializer_waits_for_what_comes_of_it_too(kind: str) -> None:
    world = World()
    x, env = world.cell(0, id="x"), world.cell({"j": 0}, id="env")
    world.materializer(lambda: env.at("j").set(x.get()), [env], id="m")
    a = world.computed(lambda: env.at("j").get() * 10, id="a")
    made: list[object] = []

    def look() -> object:
        made.append((x.get(), env.at("j").get(), a.get()))
        return made[-1]

    if kind == "effect":
        world.effect(lambda: look() and None, id="r")
    else:
        world.look(world.computed(look, id="r"), id="eye")
    world.settle()
    made.clear()
    assert [each for each in world.ran_after(lambda: x.set(1)) if each != "eye"] == ["m", "a", "r"]
    assert made == [(1, 1, 10)]
