"""The reactive bench itself: that it counts exactly, notices wrong answers, and leaves nobody out in silence."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator

import pytest

from bench.figures import Figures
from bench.reactive import peers, processes, run
from bench.reactive.catalogue import CELLX, ENTRANTS, GROWTH, HEADWATER, KAIRO, SHAPES, UPDATE
from bench.reactive.contender import Contender, NotAvailable, Shape, Turns
from bench.reactive.exact import Exact
from bench.reactive.measure import Measuring, Opened, Timed
from bench.reactive.processes import ContenderProcess, DidNotFinish, Missing
from bench.reactive.run import Results

SHAPE = {shape.name: shape for shape in SHAPES}
PEERS = {"reaktiv": peers.reaktiv, "observ": peers.observ, "observ sync": peers.observ_sync, "shiny": peers.shiny}


def exactly(shape: Shape) -> Opened:
    return Measuring(shape, Exact, counted=True).check()


# --- the exact count -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "runs_per_update"),
    [
        ("avoidable", 2),  # the constant's equal answer stops it there
        ("broad", 3 * 50),
        ("deep", 51),
        ("diamond", 5 + 2),
        ("mux", 1 + 100 + 2),  # all who take their part from the whole, and the one whose part changed
        ("repeated", 2),
        ("triangle", 9 + 2),  # the tenth link has no reader
        ("unstable", 3),  # of the two that take turns, the one that is read
        ("update 4 to 1", 1),
        ("update 1 to 1000", 1000),
    ],
)
def test_the_exact_graph_runs_what_has_to_run_and_nothing_else(name: str, runs_per_update: int) -> None:
    shape = SHAPE[name]
    compared = len(exactly(shape).seen) - 1
    assert exactly(shape).runs == runs_per_update * compared


def test_every_shape_is_counted_anew_in_each_portion() -> None:
    measuring = Measuring(SHAPE["diamond"], Exact, counted=True)
    measuring.warm()
    assert measuring.timed(2).runs == [7 * SHAPE["diamond"].steps] * 2


def test_a_creation_shape_starts_anew_in_each_portion() -> None:
    shape = SHAPE["create 1 to 4"]
    measuring = Measuring(shape, Exact, counted=True)
    measuring.warm()
    assert measuring.timed(2).runs == [shape.creates] * 2


def test_shapes_and_entrants_have_names_of_their_own() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert len({entrant.name for entrant in ENTRANTS}) == len(ENTRANTS)
    assert {name for names in GROWTH.values() for name in names} <= {shape.name for shape in SHAPES}
    assert {way for _, ways, _ in run.GOALS for way in ways} <= {entrant.name for entrant in ENTRANTS}


# --- the peers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [*KAIRO, CELLX[0], SHAPE["simple component"], *UPDATE[:3]], ids=lambda s: s.name)
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_gives_the_right_answers(name: str, shape: Shape) -> None:
    found = Measuring(shape, PEERS[name], counted=False).check()
    assert run.compared(found, exactly(shape)) >= 1.0


# --- what is noticed -------------------------------------------------------------------------------------


class Forgetful(Exact):
    """Effects that miss what comes after the third update."""

    def __init__(self) -> None:
        super().__init__()
        self.settled = 0

    def settle(self) -> None:
        self.settled += 1
        if self.settled <= 4:
            super().settle()


def test_a_wrong_answer_is_noticed_where_it_begins() -> None:
    found = Measuring(SHAPE["deep"], Forgetful, counted=False).check()
    with pytest.raises(DidNotFinish, match="a wrong answer after update 4"):
        run.compared(found, exactly(SHAPE["deep"]))


def test_a_wrong_answer_in_a_timed_portion_is_noticed() -> None:
    with pytest.raises(DidNotFinish, match="in a timed portion"):
        run.per_run(SHAPE["deep"], Timed([1.0], [], "this"), Timed([1.0], [5], "that"))


def test_a_portion_is_divided_by_the_exact_runs_and_not_by_those_of_the_contender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "PORTIONS", 2)
    found = Timed([3.0, 5.0], [300, 300], "same")
    assert run.per_run(SHAPE["deep"], found, Timed([9.0, 9.0], [10, 20], "same")) == 0.25e6


@pytest.fixture
def process() -> Iterator[Callable[[str], ContenderProcess]]:
    made = []

    def make(name: str) -> ContenderProcess:
        made.append(ContenderProcess(next(entrant for entrant in ENTRANTS if entrant.name == name)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_shape_that_takes_too_long_is_stopped_and_the_next_one_runs(
    process: Callable[[str], ContenderProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """reaktiv walks every path, and forty layers of cellx have more of them than there is time."""
    reaktiv = process("reaktiv")
    reaktiv.start()
    with monkeypatch.context() as short:
        short.setattr(processes, "LIMIT", 0.5)
        with pytest.raises(DidNotFinish, match=r"did not finish in 0\.5 s"):
            reaktiv.check(SHAPE["cellx 40"])
    assert reaktiv.check(SHAPE["diamond"]).seen == exactly(SHAPE["diamond"]).seen


def test_who_cannot_run_here_says_why(
    process: Callable[[str], ContenderProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.reactive.peers.sys.version_info", (3, 11, 0))
    with pytest.raises(NotAvailable, match=r"needs Python 3\.12 or newer; this is 3\.11"):
        peers.signified()
    nobody = process("observ")
    monkeypatch.setattr(nobody, "_await", lambda _limit: (_ for _ in ()).throw(DidNotFinish("no such library")))
    with pytest.raises(Missing, match="no such library"):
        nobody.start()


# --- the means -------------------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {line["name"]: line for line in lines}


def test_a_mean_is_over_the_shapes_that_both_finish_by_the_faster_way(capsys: pytest.CaptureFixture[str]) -> None:
    results = Results()
    for name in ("deep", "diamond", "mux"):
        results.micros[name, HEADWATER] = 1.0
    results.micros["deep", "reaktiv"] = 8.0
    results.micros["diamond", "reaktiv"] = 2.0
    results.micros["deep", "observ"] = 3.0
    results.micros["deep", "observ sync"] = 0.5
    figures = Figures()
    run.print_means(figures, results)
    lines = printed(capsys)
    assert lines["reactive.faster_than.reaktiv"]["value"] == 4.0
    assert "2 of" in str(lines["reactive.faster_than.reaktiv"]["against"])
    assert lines["reactive.faster_than.observ"]["value"] == 0.5
    assert figures.missed == ["reactive.faster_than.shiny", "reactive.faster_than.observ"]


def test_without_headwater_no_goal_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures()
    run.print_means(figures, Results())
    lines = printed(capsys)
    assert figures.missed == [f"reactive.faster_than.{peer}" for peer, _, _ in run.GOALS]
    assert all("headwater is missing" in str(lines[name]["why"]) for name in figures.missed)


def test_a_shape_that_headwater_does_not_finish_is_a_goal_that_is_not_met(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = Results(why_not={("deep", HEADWATER): "did not finish in 6 s", ("deep", "reaktiv"): "died"})
    figures = Figures()
    run.print_shape(figures, SHAPE["deep"], [HEADWATER, "reaktiv"], results)
    assert figures.missed == ["reactive.deep.headwater"]
    assert printed(capsys)["reactive.deep.reaktiv"]["why"] == "died"


def test_growth_is_time_per_run_at_more_layers(capsys: pytest.CaptureFixture[str]) -> None:
    micros = {("deep", HEADWATER): 2.0, ("deep 100", HEADWATER): 2.0, ("deep 200", HEADWATER): 6.0}
    figures = Figures()
    run.print_growth(figures, Results(micros))
    assert printed(capsys)["reactive.growth.deep.4x.headwater"]["value"] == 3.0
    assert figures.missed == ["reactive.growth.deep.4x.headwater"]


def test_a_geometric_mean_is_one() -> None:
    assert math.isclose(run.geometric_mean([2.0, 8.0]), 4.0)


def test_a_run_too_many_is_a_fault_of_headwater_and_a_trait_of_a_peer(capsys: pytest.CaptureFixture[str]) -> None:
    names = (HEADWATER, "shiny")
    results = Results({("mux", name): 1.0 for name in names}, {("mux", name): 2.0 for name in names})
    figures = Figures()
    run.print_shape(figures, SHAPE["mux"], names, results)
    assert figures.missed == ["reactive.mux.headwater.runs"]
    assert printed(capsys)["reactive.mux.shiny.runs"]["value"] == 2.0


def test_own_runs_count_instead_of_calls_where_the_contender_keeps_an_account() -> None:
    class Stops(Exact):
        def runs(self) -> int:  # type: ignore[override]
            return 7

    def build(root: Contender) -> Turns:
        assert root.runs() == 7
        return Turns(lambda _begin, _end: None, lambda: None)

    assert Measuring(Shape("empty", "kairo", build, 1), Stops, counted=False).check().runs == 0
