"""`headwater spaces` and `compact`: which spaces there are, and giving up the old history of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headwater.cli.output import OK, print_json, remark, say, table
from headwater.cli.parameters import DirectoryPath, Json, SpaceName
from headwater.cli.spaces import open_directory, open_space, strays_in
from headwater.engine.branches import Branch
from headwater.engine.reads import every

_PLACES: Final = 5  # writes of one commit that `log` lists


def spaces(directory: DirectoryPath, /, *, json: Json = False) -> int:
    """The spaces of a data directory.

    Example: `headwater spaces ./data`
    """
    with open_directory(Path(directory)) as opened:
        found = [(name, opened.file_of(name).stat().st_size) for name in opened.spaces()]
        strays = strays_in(Path(directory), opened)
    if json:
        print_json([{"name": name, "bytes": size} for name, size in found])
    elif found:
        table(("space", "bytes"), [(name, str(size)) for name, size in found])
    else:
        say(f"{directory} holds no space yet")
    for stray in strays:
        remark(f"headwater: {stray} in {directory} is no space, and was left alone")
    return OK


def compact(directory: DirectoryPath, space: SpaceName, /, *, before: int, json: Json = False) -> int:
    """Give up history before a seq, as far as no branch and no open session needs it.

    Current values stay, and every moment from the kept seq on. This cannot be undone.

    Example: `headwater compact ./data shop --before 100000`

    Parameters
    ----------
    before
        The first seq to keep, if nothing older is needed.
    """
    with open_space(Path(directory), space) as engine:
        already = engine.kept_from
        kept_from = engine.compact(before)
        last_seq, branches = engine.last_seq, list(every(lambda after: engine.branches(after=after)))
    if json:
        print_json({"kept_from": kept_from, "asked": before, "last_seq": last_seq})
        return OK
    if not last_seq:
        say("there is no history yet")
    elif kept_from < before:
        say(f"history is kept from seq {kept_from}, not {before}: {_why_kept(before, last_seq, branches)}")
    elif kept_from == already:
        say(f"history is kept from seq {kept_from}, as it was before")
    else:
        say(f"history is kept from seq {kept_from}")
    return OK


def _why_kept(before: int, last_seq: int, branches: Sequence[Branch]) -> str:
    """Why compaction stopped before the seq it was asked for."""
    forks = [(each.fork_seq, each.name, each.parent.name) for each in branches if each.parent is not None]
    fork_seq, name, parent = min(forks, default=(before, "", ""))
    if fork_seq + 1 < min(before, last_seq):
        return f"branch {name!r} begins as {parent!r} was at seq {fork_seq}"
    if before > last_seq:
        return f"the log ends at seq {last_seq}, and its newest frame always stays"
    return f"seq {before} is in the middle of a wave that begins there"
