"""I1: a result that was found in place, and so was not written, counts as read: also one of a materializer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.unit.scheduler.several_kit import Runtime, Several


def _race(several: Several) -> None:
    """Two writes of x; what r2 derives from its own lands before r1's x, which lands last."""
    r1, r2 = several.runtimes
    for _ in range(6):
        several.work()
    r2.cell("x").set(5)
    r2.client.session.flush()
    r2.client.send()
    r1.client.hear()  # r1 knows of x = 5, not yet of what is derived from it
    r1.cell("x").set(3)
    r1.world.settle()  # finds some of its results in place; what it says is not sent yet
    r2.world.settle()
    r2.client.send()
    r2.client.drop()  # It never hears of x = 3, and never comes back.
    r1.client.send()
    for _ in range(6):
        r1.client.hear()
        r1.world.scheduler.heard()
        r1.world.settle()
        r1.client.send()


def _two(tmp_path: Path, build: Callable[[Runtime], object]) -> Several:
    several = Several(tmp_path, "one", "two")
    several.watch("x", "env", "o", "side")
    several.write("x", 2)
    several.write("env", {"k": 1, "j": 0})
    several.work()
    for runtime in several.runtimes:
        build(runtime)
    return several


def test_a_whole_result_that_was_found_in_place(tmp_path: Path) -> None:
    several = _two(tmp_path, lambda r: r.computed("o", lambda: r.cell("x").get() // 2))
    _race(several)
    r1 = several.runtimes[0]
    assert (r1.cell("x").peek(), r1.cell("o").peek()) == (3, 1)


def test_a_side_write_that_was_found_in_place(tmp_path: Path) -> None:
    def build(r: Runtime) -> None:
        x, side = r.cell("x"), r.cell("side")

        def fn() -> object:
            side.set(x.get() // 2)
            return x.get()

        r.computed("o", fn, writes=(side,))

    several = _two(tmp_path, build)
    _race(several)
    r1 = several.runtimes[0]
    assert (r1.cell("x").peek(), r1.cell("o").peek(), r1.cell("side").peek()) == (3, 3, 1)


def test_a_materializer_s_result_that_was_found_in_place(tmp_path: Path) -> None:
    def build(r: Runtime) -> None:
        x, env = r.cell("x"), r.cell("env")
        r.world.materializer(lambda: env.at("k").set(x.get() // 2), [env], id="m")

    several = _two(tmp_path, build)
    _race(several)
    r1 = several.runtimes[0]
    assert (r1.cell("x").peek(), r1.cell("env").peek()) == (3, {"k": 1, "j": 0})


def test_one_key_of_two_of_a_materializer_that_was_found_in_place(tmp_path: Path) -> None:
    def build(r: Runtime) -> None:
        x, env = r.cell("x"), r.cell("env")

        def m() -> None:
            env.at("k").set(x.get() // 2)
            env.at("j").set(x.get())

        r.world.materializer(m, [env], id="m")

    several = _two(tmp_path, build)
    _race(several)
    r1 = several.runtimes[0]
    assert (r1.cell("x").peek(), r1.cell("env").peek()) == (3, {"k": 1, "j": 3})


def test_a_primary_result_that_was_found_in_place_by_a_run_that_wrote_something_else(tmp_path: Path) -> None:
    def build(r: Runtime) -> None:
        x, side = r.cell("x"), r.cell("side")

        def fn() -> object:
            side.set(x.get())
            return x.get() // 2

        r.computed("o", fn, writes=(side,))

    several = _two(tmp_path, build)
    _race(several)
    r1 = several.runtimes[0]
    assert (r1.cell("x").peek(), r1.cell("o").peek(), r1.cell("side").peek()) == (3, 1, 3)
