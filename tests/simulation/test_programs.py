"""Random programs, compared with a naive model: random classes of pieces, and random steps with them.

A failing seed prints a smaller program. HEADWATER_FIRST_SEED says at which seed to begin, 0 if it is not set.
"""

from __future__ import annotations

import pytest

from tests.counts import seldom
from tests.simulation.programs.draw_processes import draw_changed, draw_processes
from tests.simulation.programs.draw_shared import draw_served, draw_shared
from tests.simulation.programs.play import play_alone
from tests.simulation.programs.play_processes import play_processes
from tests.simulation.programs.play_served import play_served
from tests.simulation.programs.play_simulated import play_simulated
from tests.simulation.programs.suite import play_seeds


@pytest.mark.random
def test_programs_in_one_runtime_show_the_values_of_the_naive_model() -> None:
    play_seeds(seldom(5_000, least=5), play_alone)


@pytest.mark.random
def test_programs_of_several_simulated_runtimes_show_the_values_of_the_naive_model() -> None:
    play_seeds(seldom(5_000, least=5), play_simulated, draw_shared)


@pytest.mark.random
def test_programs_in_a_row_of_processes_show_the_values_of_the_naive_model() -> None:
    play_seeds(seldom(1_000, least=3), play_processes, draw_processes)


@pytest.mark.random
def test_programs_with_changed_code_show_the_values_of_the_naive_model() -> None:
    play_seeds(seldom(1_000, least=3), play_processes, draw_changed)


@pytest.mark.random
def test_programs_on_a_served_space_show_the_values_of_the_naive_model() -> None:
    play_seeds(seldom(1_000, least=2), play_served, draw_served)
