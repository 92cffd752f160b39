"""The counted walks: the counters on functions of known numbers, and one walk through the product."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import walks

HERE = Path(__file__).parent


def message() -> None:
    helper()


def helper() -> None:
    pass


def transaction() -> None:
    pass


def attempt() -> None:
    pass


def tick(*, is_empty: bool) -> None:
    if not is_empty:
        attempt()


MARKS = {
    "messages": [(__name__, "message")],
    "transactions": [(__name__, "transaction")],
    "ticks": [(__name__, "tick")],
    "attempts": [(__name__, "attempt")],
}


@pytest.fixture
def tally() -> Iterator[walks.Tally]:
    before = sys.getprofile()
    made = walks.Tally(MARKS, HERE)
    made.install()
    yield made
    threading.setprofile(None)
    sys.setprofile(before)


def test_calls_of_every_thread_are_counted_between_start_and_stop(tally: walks.Tally) -> None:
    message()
    tally.start()
    message()
    tick(is_empty=True)
    tick(is_empty=False)
    counts = tally.stop()
    message()
    expected = {"calls": 5, "modules": 1, "messages": 1, "transactions": 0, "ticks": 2, "empty_ticks": 1}
    assert counts == expected

    other = threading.Thread(target=transaction)
    tally.start()
    other.start()
    other.join()
    assert tally.stop()["transactions"] == 1


def test_a_mark_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        walks.Tally({"messages": [(__name__, "no_such_function")]}, HERE)


def test_every_mark_of_the_product_exists() -> None:
    walks.Tally()


def test_a_spread_has_median_least_and_most_of_each_counter() -> None:
    counts = [dict.fromkeys(walks.COUNTERS, number) for number in (3, 1, 2)]
    found = walks.spread(counts)
    assert (found["least"]["calls"], found["median"]["calls"], found["most"]["calls"]) == (1, 2, 3)
    assert found["repetitions"] == 3


# What a click costs at most. The goals are 800 calls and 60 modules: lower the numbers with each gain.
CLICK_CALLS = 955
CLICK_MODULES = 118


def test_a_click_is_counted_in_a_process_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-m", "bench.walks", "click"], check=True, stdout=subprocess.PIPE)
    (counts,) = json.loads(done.stdout).values()
    assert len(counts) == walks.REPEATS
    for each in counts:
        assert set(each) == set(walks.COUNTERS)
        assert each["calls"] > each["modules"] > 10
    # Something else may come in between once: what an earlier click left to be sent, or a collection of garbage.
    median = walks.spread(counts)["median"]
    assert median["messages"] == median["transactions"] == median["ticks"] == 1
    assert median["empty_ticks"] == 0
    assert median["calls"] <= CLICK_CALLS
    assert median["modules"] <= CLICK_MODULES
