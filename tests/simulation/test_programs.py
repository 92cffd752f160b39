"""Random programs, compared with a naive model: random classes of pieces, and random steps with them.

A failing seed prints a smaller program. HEADWATER_FIRST_SEED says at which seed to begin, 0 if it is not set.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.counts import seldom
from tests.simulation.programs.draw_faults import (
    draw_alone_with_threads,
    draw_processes_with_threads,
    draw_shared_with_clock_steps,
)
from tests.simulation.programs.draw_processes import draw_changed
from tests.simulation.programs.draw_shared import draw_served
from tests.simulation.programs.play import play_alone
from tests.simulation.programs.play_processes import play_processes
from tests.simulation.programs.play_served import play_served
from tests.simulation.programs.play_simulated import play_simulated
from tests.simulation.programs.shrink import shrunk
from tests.simulation.programs.suite import failure, name_of, parts_of, play_seeds

MANY: Final = 250
"""Seeds of one test, where a program takes a part of a second."""
FEW: Final = 50
"""The same, where a program starts processes."""


@pytest.mark.random
@pytest.mark.parametrize("seeds", parts_of(seldom(5_000, least=5), MANY), ids=name_of)
def test_programs_in_one_runtime_show_the_values_of_the_naive_model(seeds: range) -> None:
    play_seeds(seeds, play_alone, draw_alone_with_threads)


def test_program_with_an_unsent_result_of_a_dormant_node_becomes_durable() -> None:
    """`durable` waited for a result that is not sent before its node is demanded again."""
    play_seeds(range(41_001_097, 41_001_098), play_alone)


@pytest.mark.random
@pytest.mark.parametrize("seeds", parts_of(seldom(5_000, least=5), MANY), ids=name_of)
def test_programs_of_several_simulated_runtimes_show_the_values_of_the_naive_model(seeds: range) -> None:
    play_seeds(seeds, play_simulated, draw_shared_with_clock_steps)


@pytest.mark.random
@pytest.mark.parametrize("seeds", parts_of(seldom(1_000, least=3), FEW), ids=name_of)
def test_programs_in_a_row_of_processes_show_the_values_of_the_naive_model(seeds: range) -> None:
    play_seeds(seeds, play_processes, draw_processes_with_threads)


@pytest.mark.random
@pytest.mark.parametrize("seeds", parts_of(seldom(1_000, least=3), FEW), ids=name_of)
def test_programs_with_changed_code_show_the_values_of_the_naive_model(seeds: range) -> None:
    play_seeds(seeds, play_processes, draw_changed)


@pytest.mark.random
@pytest.mark.parametrize("seeds", parts_of(seldom(1_000, least=2), FEW), ids=name_of)
def test_programs_on_a_served_space_show_the_values_of_the_naive_model(seeds: range) -> None:
    play_seeds(seeds, play_served, draw_served)


def test_steps_of_the_wall_clock_during_a_burst_put_nothing_on_the_error_channel() -> None:
    """A computed was reported as a cycle: its result went from runtime to runtime 11 times in a burst of events."""
    assert failure(draw_shared_with_clock_steps(44), play_simulated) is None


def test_smaller_shared_program_keeps_the_logs_that_tell_which_transactions_landed() -> None:
    """Without its log, a transaction is taken for a plain write that nobody made: that is another failure."""
    program = draw_shared_with_clock_steps(54)
    small = shrunk(program, lambda _: True)
    assert len(small.shared) < len(program.shared)
    assert all(of.of_kind("log") for of in small.classes)
