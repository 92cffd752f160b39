"""What the tests of previews and shadow runs share: what is stored in a directory that nobody has open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.cli.known import known_of
from headwater.data.address import DocKey
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine import Directory
from headwater.protocol.desk import Question
from headwater.runtime.binding.previewing import Known, Preview, preview
from headwater.runtime.binding.shadow import Report, shadowed
from headwater.server.nodes import current_form, nodes_form


@contextmanager
def stored(folder: Path, space: str | None = None) -> Iterator[tuple[list[Known], Any]]:
    """What is known of the nodes of a directory, or of one space and what that reads, and how documents are read."""
    with Directory(folder) as directory:

        def asked(question: Question) -> Any:
            form = nodes_form if question.what == "nodes" else current_form
            return form(directory.space(question.space), question)

        def read(space: str, doc: DocKey) -> MaybeValue:
            return directory.space(space).read(doc).value if space in directory.spaces() else ABSENT

        yield known_of(asked, directory.spaces() if space is None else [space], with_read=True), read


async def previewed(folder: Path, space: str | None = None) -> Preview:
    with stored(folder, space) as (known, _):
        return await preview(known, None if space is None else [space])


async def shadow_of(folder: Path) -> Report:
    with stored(folder) as (known, read):
        return await shadowed(known, read)


def content(folder: Path) -> object:
    """Everything that is stored in a directory: the commits, and what is known of nodes."""
    with stored(folder) as (known, _):
        nodes = [(each.space, each.observed, each.raw) for each in known]
    with Directory(folder) as directory:
        return nodes, [
            (name, directory.space(name).changes(since=0, limit=10_000).items) for name in directory.spaces()
        ]


def named(found: Preview, fate: str) -> set[str]:
    """The nodes of one fate, as the tests of restarts call them."""
    return {each.node.partition(" of ")[0].partition(", ")[0] for each in found.of(fate)}
