"""Shadow runs tell how many nodes were checked, of how many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.cli.data.stored_nodes import load_stored_nodes
from headwater.data.address import DocKey
from headwater.data.value import MaybeValue
from headwater.engine import Directory
from headwater.protocol.command_messages import CommandQuestion
from headwater.runtime.api.entry_points import open_dry
from headwater.runtime.resume.shadow_run import shadowed
from headwater.server.commands.nodes_json import current_form, nodes_form
from tests.scenario.pieces_kit import run
from tests.scenario.resume_kit import SPACE, filled, process
from tests.scenario.test_resume import ALL


def test_progress_is_told_for_each_node(tmp_path: Path) -> None:
    async def story() -> None:
        async with process(tmp_path) as first:
            await filled(await first.open())
            await first.settled()
        told: list[tuple[int, int]] = []
        with Directory(tmp_path) as directory:

            def asked(question: CommandQuestion) -> Any:
                form = nodes_form if question.what == "nodes" else current_form
                return form(directory.space(question.space), question)

            def read(space: str, doc: DocKey) -> MaybeValue:
                return directory.space(space).read(doc).value

            await shadowed(
                load_stored_nodes(asked, [SPACE]),
                read,
                lambda done, total: told.append((done, total)),
                open_dry=open_dry,
            )
        assert told == [(done, ALL) for done in range(ALL + 1)]

    run(story)
