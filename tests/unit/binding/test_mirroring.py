"""A mirror of a piece that is gone is removed by the runtime that looks for pieces to wake."""

from __future__ import annotations

from pathlib import Path

from headwater.data.address import DocKey
from headwater.protocol.mirrors import Mirror, QueryMirrors
from tests.invariants.i07_kit import asked, embedded, site, written
from tests.scenario.pieces_kit import run
from tests.scenario.test_resume_elsewhere import HERE, RATES, STOCK, Goods, first_start, sets


def test_mirror_of_a_missing_piece_is_removed(tmp_path: Path) -> None:
    async def story() -> None:
        await first_start(tmp_path)
        async with embedded(tmp_path) as data:
            ghost = Mirror(0, HERE, "ghost", ((DocKey("space", "s:n"), 0),))
            await asked(data, lambda engine: engine.looked(ghost), STOCK)
            await written(data, sets(STOCK, Goods, "s", "n", 5))
            async with site(data, identity=None) as other:
                for name in (HERE, STOCK, RATES):
                    other.space(name)
                found = await other.rt.pieces.resuming.elsewhere.mirroring.marked(HERE)
                assert {piece: set(spaces) for piece, spaces in found.items()} == {"v": {STOCK}}
            answer = await asked(data, lambda engine: engine.looked(QueryMirrors(0, HERE)), STOCK)
            assert {piece for piece, _, _ in answer.marked} == {"v"}

    run(story)
