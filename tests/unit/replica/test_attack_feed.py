"""Attacks on the feed: a listener that ends more abruptly than by an exception."""

from __future__ import annotations

import pytest

from headwater.data.patch import replace
from headwater.replica.feed import Notification
from tests.unit.replica.kit import doc, holding


def test_a_listener_that_is_interrupted_does_not_silence_the_feed() -> None:
    replica = holding(d={"n": 0})
    heard: list[object] = []

    def listen(notification: Notification) -> None:
        heard.append(notification.after)
        if len(heard) == 1:
            raise KeyboardInterrupt

    replica.feed.subscribe(listen)

    def write(number: int) -> None:
        transaction = replica.begin()
        transaction.write(doc("d"), replace(("n",), number))
        replica.commit(transaction)

    with pytest.raises(KeyboardInterrupt):
        write(1)
    write(2)
    assert heard == [{"n": 1}, {"n": 2}]
