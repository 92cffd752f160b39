"""The validator sees what the run saw: also the failure of somebody who is tried again later."""

from __future__ import annotations

from headwater.errors import UpstreamFailedError
from headwater.testing.scheduler.kit import World


def test_a_reader_of_a_transient_failure_that_is_tried_again_later_is_idempotent() -> None:
    world = World()
    x = world.cell(1, id="x")

    def fails() -> int:
        if x.get() > 0:
            raise ConnectionError("not now")
        return 0

    up = world.computed(fails, id="up", transient=(ConnectionError,))

    def careful() -> int:
        try:
            return int(up.get())
        except UpstreamFailedError:
            return -1

    out = world.computed(careful, id="out")
    world.look(out, id="eye")
    world.scheduler.introspection.idempotency.switch(on=True)
    world.settle()
    assert out.peek() == -1
    world.scheduler.introspection.idempotency.assert_idempotent()
