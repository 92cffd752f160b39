"""What nobody awaits and nobody listens to is said all the same."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headwater import Cell, Piece, Runtime, cell, effect, handler
from headwater.runtime.core.error_channel import ErrorChannel
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.scheduler.failures import Failure
from tests.unit.runtime.kit import run


class Broken(Piece, name="failures.Broken"):
    n: Cell[int] = cell(default=0)

    @effect
    def show(self) -> None:
        if not self.n.get():
            raise ValueError("a typo in an effect")

    @handler
    def boom(self) -> None:
        raise KeyError("a typo in a handler")


def test_a_program_without_a_listener_says_what_failed_and_where(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with Runtime(tmp_path) as rt:
            piece = await rt.space("s").open(Broken, "b")
            await rt.settled()
            piece.boom.post()
            await rt.idle()

    with caplog.at_level(logging.ERROR, "headwater"):
        run(work)
    said = caplog.text
    assert "s/b:show of session" in said
    assert "ValueError: a typo in an effect" in said
    assert "s/b:boom failed" in said
    assert "KeyError: 'a typo in a handler'" in said
    assert __file__ in said, "the line that raised it is named"


def test_what_somebody_listens_to_is_theirs_to_say(caplog: pytest.LogCaptureFixture) -> None:
    failures, heard = ErrorChannel(), list[Failure]()
    subscription = failures.listen(heard.append)
    failures.tell(Failure("a", ValueError("x")))
    assert [each.node for each in heard] == ["a"]
    assert caplog.text == ""
    subscription.close()
    failures.tell(Failure("b", ValueError("y"), ("space:c", "space:d")))
    assert "b failed (because of space:c, space:d)" in caplog.text
    failures.listen(heard.append)
    assert [each.node for each in heard] == ["a", "b"], "whoever listens later hears of it, too"


def test_what_nobody_heard_is_bounded() -> None:
    failures, heard = ErrorChannel(), list[Failure]()
    logging.getLogger("headwater").disabled = True
    try:
        for n in range(RUNTIME_LIMITS.unheard_failures + 5):
            failures.tell(Failure(str(n), ValueError("x")))
    finally:
        logging.getLogger("headwater").disabled = False
    failures.listen(heard.append)
    assert (len(heard), heard[0].node) == (RUNTIME_LIMITS.unheard_failures, "5")
