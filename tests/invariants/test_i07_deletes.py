"""I7 of pieces that are deleted: after a kill at any statement, another piece of that name has never run.

A process deletes a piece, which removes its documents and ends what is known of its nodes. From every state of the
file somebody makes a piece of that name, without running it, and the next one opens it: an effect that reads nothing
that was ever written must be shown, since only what is known of the former piece could say that it was.
"""

from __future__ import annotations

from pathlib import Path

from headwater import Cell, Piece, cell, computed, effect, handler
from headwater.data.address import DocKey
from headwater.data.value import ABSENT
from headwater.engine import Engine
from headwater.protocol.observations import Observations, QueryObservations
from tests.invariants.i07_kit import asked, embedded, opened, run, site, stories
from tests.invariants.test_i07_crashes import Kills

HERE = "here"


class Counter(Piece, name="i07.Counter"):
    n: Cell[int] = cell(default=1)
    never: Cell[int] = cell(default=7)

    @computed
    def twice(self) -> int:
        return 2 * self.n.get()

    @effect
    def show(self) -> None:
        self.twice.get()

    @effect
    def hello(self) -> None:
        self.never.get()

    @handler
    def put(self, n: int) -> None:
        self.n.set(n)


def _known(engine: Engine) -> tuple[bool, set[str]]:
    """Whether the piece is there, and of which nodes of its name something is known."""
    page = engine.query_observations(QueryObservations(0, "a"))
    assert isinstance(page, Observations)
    is_there = engine.read(DocKey("space", "a:@")).value is not ABSENT
    return is_there, {each.node.member for each in page.observed}


async def _history(seed: int, folder: Path) -> int:
    """Raises where another piece is taken for the one that was. Answers how many states were tried."""
    alive = folder / "alive"
    kills = Kills(alive)
    with kills.connected():
        async with embedded(alive) as data:
            async with site(data) as first:
                await opened(first, [(HERE, Counter, "a")])
            async with site(data) as second:
                if seed % 2:
                    await opened(second, [(HERE, Counter, "a")])
                with kills.watching():
                    await second.space(HERE).delete(second.space(HERE).piece(Counter, "a"))
                    if seed % 4 >= 2:  # Another one of its name, by the same process.
                        await second.space(HERE).piece(Counter, "a").put.send(3)
                    await second.settled()
                    await second.rt.close()
    was_there = 0
    for place, (left, _) in enumerate(kills.states):
        at = folder / str(place)
        at.mkdir()
        for name, content in left.items():
            (at / name).write_bytes(content)
        try:
            was_there += await _come_back(at)
        except AssertionError as error:
            error.add_note(f"killed at state {place} of {len(kills.states)}")
            raise
    assert 0 < was_there < len(kills.states), "it was never there, or never gone: then this says nothing"
    return len(kills.states)


async def _come_back(at: Path) -> bool:
    """Answers whether the piece had not been deleted yet."""
    async with embedded(at) as data:
        is_there, known = await asked(data, _known, HERE)
        is_former = "hello" in known
        assert is_there or not known, "something is known of nodes of a piece that is not there"
        async with site(data, identity=None) as other:
            await other.space(HERE).piece(Counter, "a").put.send(5)
        async with site(data) as again:
            (piece,) = await opened(again, [(HERE, Counter, "a")])
            # I7: nobody has shown anything of another one.
            assert (f"{HERE}/a:hello" in again.taken()) is not is_former
            assert await piece.twice.pull() == 10
            assert not again.errors, again.errors_told
        async with site(data) as clean:
            await opened(clean, [(HERE, Counter, "a")])
            assert clean.taken() == set(), "nothing was written since"
    return is_former


def test_another_piece_of_a_deleted_name_has_never_run_wherever_the_process_was_killed(tmp_path: Path) -> None:
    assert stories(_history, tmp_path, range(4)) > 8


# ---- by another process ----------------------------------------------------------------------------


def test_a_piece_that_another_process_made_anew_is_not_opened_asleep(tmp_path: Path) -> None:
    """Which pieces were clean as a whole is asked once for all of a space: by then this one may be another."""

    async def story() -> None:
        async with embedded(tmp_path) as data:
            async with site(data) as first:
                await opened(first, [(HERE, Counter, "a"), (HERE, Counter, "b")])
            async with site(data) as one, site(data, identity=None) as other:
                await opened(one, [(HERE, Counter, "b")])
                assert one.taken() == set(), "nothing was written since"
                piece = other.space(HERE).piece(Counter, "a")
                await other.space(HERE).delete(piece)
                await piece.put.send(4)
                await opened(one, [(HERE, Counter, "a")])
                assert f"{HERE}/a:hello" in one.taken(), "nobody has shown anything of this one"

    run(story)
