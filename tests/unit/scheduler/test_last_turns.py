"""I9: what effects and materializers bring about when computations are done is in order, readers included."""

from __future__ import annotations

from headwater.testing.sched_kit import World


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
