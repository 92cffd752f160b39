"""A child that is gone takes along the observations of its nodes and of everything inside it, and no others."""

from __future__ import annotations

import pytest

from headwater.data.patch import replace
from headwater.engine.engine import Engine
from headwater.protocol.commit import Commit
from headwater.protocol.observations import BETWEEN, About, Footprint, NodeKey, Observation, Touched, encode_part
from tests.unit.engine.kit import doc, open_engine, write
from tests.unit.engine.observing_kit import Runner, observed


@pytest.fixture
def engine() -> Engine:
    return open_engine()


def _started(engine: Engine, **docs: object) -> Runner:
    runner = Runner(engine)
    runner.send(Commit(1, tuple(write(id, replace((), value)) for id, value in docs.items())))
    return runner


class TestGoneBelow:
    def _gone(self, runner: Runner, child: str) -> Observation:
        runner.order += 1
        return Observation(encode_part(About(NodeKey("p", 1, "", child))), b"", runner.order, 0, 1, gone=True)

    def _of(self, runner: Runner, child: str) -> Observation:
        about = encode_part(About(NodeKey("p", 1, "n", child), "", "code"))
        runner.order += 1
        return Observation(about, encode_part(Footprint((Touched(doc("a")),))), runner.order, 0, 1)

    def _children(self, engine: Engine) -> list[str]:
        return sorted([each.node.child for each in observed(engine)])

    def test_a_child_goes_with_what_is_in_it_and_with_nothing_else(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        below = ("p/c/1", f"p/c/1{BETWEEN}x", "p/c/1/d/2")
        others = ("", "p/c/10", "p/c", f"{BETWEEN}1")
        runner.observe(*[self._of(runner, child) for child in (*below, *others)])
        runner.observe(self._gone(runner, "p/c/1"))
        assert self._children(engine) == sorted(others)

    def test_what_is_observed_behind_it_stays(self, engine: Engine) -> None:
        runner = _started(engine, a=1)
        runner.observe(self._of(runner, "p/c/1"), self._of(runner, "p/c/2"))
        runner.observe(self._gone(runner, "p/c/1"), self._of(runner, "p/c/1"), self._gone(runner, "p/c/2"))
        assert self._children(engine) == ["p/c/1"]
