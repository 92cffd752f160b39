"""I1, I2, I3, I5, I6, I8 and I9 where several runtimes derive one graph over one space, each its own part of it.

Cells, links that turn elsewhere, nodes that make nodes, nodes that read what they write, cycles, runtimes without any
effect; messages in any order, conflicts, lost connections, engines and runtimes that are started anew, slices of one
attempt. Every step of every history is checked for all of these by naive definitions (`replica_eye`); each test draws
the histories in which its own invariant has most to say. `./dev test` plays a hundredth of most, `./dev sim` all.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest

from tests.counts import scaled, seldom
from tests.simulation.replica_checks import Broken
from tests.simulation.replica_rules import Flavour
from tests.simulation.replica_world import World, history

HISTORIES: Final = 5_000
LEAST = 25
FLAVOURS: Final = {
    "I1": Flavour(),
    "I2": Flavour(roots=0.4, comings=0.2, makers=0.4),
    "I3": Flavour(nodes=6, makers=0.1, sides=0.0),
    "I5": Flavour(sides=0.5, nodes=4, disturbed=0.5, steps=(4, 8)),
    "I6": Flavour(cycles=True, makers=0.0, nodes=4, steps=(4, 8), runtimes=(1, 2, 2)),
    "I6 across": Flavour(cycles=True, across=True, makers=0.0, nodes=3, steps=(2, 6), runtimes=(2, 2, 3)),
    "I8": Flavour(sides=0.6, steps=(8, 16)),
    "I9": Flavour(slices=(1, 1, 2, 3), ticks=0.9, makers=0.4, nodes=6, comings=0.03, steps=(6, 14)),
}


def play(seed: int, flavour: Flavour) -> World:
    with history(seed, flavour) as world:
        world.play()
    return world


def hold(what: str, histories: int) -> Counter[str]:
    """Play them all. What they have done, so that a test can say whether that was enough to mean anything."""
    done: Counter[str] = Counter()
    for seed in range(histories):
        try:
            world = play(seed, FLAVOURS[what])
        except Broken as broken:
            raise AssertionError(f"seed {seed} of {what}: {broken}") from broken
        done.update(world.done())
    return done


@pytest.mark.random
def test_live_nodes_show_what_comes_of_the_cells_in_every_runtime() -> None:
    """I1: whenever a runtime has nothing to run, and in the end, when all of them show what is stored."""
    done = hold("I1", seldom(HISTORIES, least=LEAST))
    assert done["rejected"] > seldom(HISTORIES, least=LEAST) // 5
    assert done["runs"] > 4 * seldom(HISTORIES, least=LEAST)


@pytest.mark.random
def test_nobody_runs_or_is_fetched_without_a_demand_in_its_own_runtime() -> None:
    """I2: what another runtime demands is not demanded here. Registering reads, fetches and runs nothing."""
    done = hold("I2", seldom(HISTORIES, least=LEAST))
    assert done["without roots"] > seldom(HISTORIES, least=LEAST) // 5


@pytest.mark.random
def test_only_what_was_read_and_is_shown_differently_makes_a_node_run_again() -> None:
    """I3: whoever wrote it, wherever; a result that is the same wakes nobody."""
    done = hold("I3", seldom(HISTORIES, least=LEAST))
    assert done["runs again"] > seldom(HISTORIES, least=LEAST)


@pytest.mark.random
def test_what_a_run_wrote_never_wakes_it_when_it_is_applied_confirmed_or_heard_again() -> None:
    """I5: nor does anybody run after all have come to rest, whatever connections and engines do."""
    done = hold("I5", seldom(HISTORIES, least=LEAST))
    assert done["own"] > seldom(HISTORIES, least=LEAST) // 5


@pytest.mark.random
def test_cycles_are_bounded_and_told_once_while_other_runtimes_go_on() -> None:
    """I6, where one runtime has the cycle and others write and read."""
    done = hold("I6", seldom(HISTORIES // 2, least=LEAST))
    assert done["held back"] > seldom(HISTORIES, least=LEAST) // 20


@pytest.mark.random
def test_cycles_through_several_runtimes_are_bounded_and_told_once() -> None:
    """I6, where nobody has all of it."""
    # They are short, and most of them have no such cycle.
    done = hold("I6 across", scaled(HISTORIES // 2, least=4 * LEAST))
    assert done["held back"] > scaled(HISTORIES, least=4 * LEAST) // 40


@pytest.mark.random
def test_every_derived_commit_of_the_log_says_who_and_exactly_why() -> None:
    """I8: the node, and each address that it had read and that had changed; also after it was rejected."""
    done = hold("I8", seldom(HISTORIES, least=LEAST))
    assert done["causes"] > seldom(HISTORIES, least=LEAST)


@pytest.mark.random
def test_every_run_sees_one_state_and_runs_once_in_a_pass_whatever_comes_in_between() -> None:
    """I9: writers before readers, parents before children, also where others' commits come between two slices."""
    done = hold("I9", seldom(HISTORIES, least=LEAST))
    assert done["interrupted"] > seldom(HISTORIES, least=LEAST) // 5


def test_the_same_seed_gives_the_same_history() -> None:
    runs = [dict(play(seed, FLAVOURS["I1"]).done()) for seed in (3, 3)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("flavour", "seed"),
    [(FLAVOURS["I1"], 1_940), (Flavour(sides=0.3), 3_000), (FLAVOURS["I9"], 38_780), (FLAVOURS["I9"], 8_543)],
)
def test_histories_that_once_failed(flavour: Flavour, seed: int) -> None:
    """Play the seeds of failures that were found.

    1940: a result found in place and replaced by another runtime. 3000: a new child that its parent waits for. 38780:
    the keys of a map change their order. 8543: a result that was not sent before its node lost all demand.
    """
    play(seed, flavour)
