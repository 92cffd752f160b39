"""`headwater spaces` and `compact`: which spaces there are, and giving up the old history of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater.cli.data.commands import Token, User, Where
from headwater.cli.data.target import ask
from headwater.cli.directory import sizes_in
from headwater.cli.output import OK, print_json, remark, say, table
from headwater.cli.parameters import Json, SpaceName
from headwater.engine.directory import SUFFIX
from headwater.protocol.desk import Question


def spaces(where: Where, /, *, user: User = "", token: Token = "", json: Json = False) -> int:
    """The spaces of a data directory.

    Example: `headwater spaces ./data`
    """
    found = ask(where, Question("spaces", "", user=user), token=token)
    if json:
        print_json(found)
    elif found:
        table(("space", "bytes"), [(each["name"], str(each["bytes"])) for each in found])
    else:
        say(f"{where} holds no space yet")
    for stray in () if "://" in where else _strays(Path(where)):
        remark(f"headwater: {stray} in {where} is no space, and was left alone")
    return OK


def _strays(path: Path) -> list[str]:
    """What is named like a space and is none, as it is called in the directory."""
    there = sizes_in(path)
    return sorted(file.name for file in path.glob(f"*{SUFFIX}") if file.stem not in there)


def compact(
    where: Where, space: SpaceName, /, *, before: int, user: User = "", token: Token = "", json: Json = False
) -> int:
    """Give up history before a seq, as far as no branch and no open session needs it.

    Current values stay, and every moment from the kept seq on. This cannot be undone.

    Example: `headwater compact ./data shop --before 100000`

    Parameters
    ----------
    before
        The first seq to keep, if nothing older is needed.
    """
    found = ask(where, Question("compact", space, since=before, user=user), token=token)
    kept_from, last_seq = found["kept_from"], found["last_seq"]
    if json:
        print_json({"kept_from": kept_from, "asked": before, "last_seq": last_seq})
        return OK
    if not last_seq:
        say("there is no history yet")
    elif kept_from < before:
        say(f"history is kept from seq {kept_from}, not {before}: {_why_kept(before, found)}")
    elif kept_from == found["was_kept_from"]:
        say(f"history is kept from seq {kept_from}, as it was before")
    else:
        say(f"history is kept from seq {kept_from}")
    return OK


def _why_kept(before: int, found: Any) -> str:
    """Why compaction stopped before the seq it was asked for."""
    fork, last_seq = found["first_fork"], found["last_seq"]
    if fork is not None and fork["seq"] + 1 < min(before, last_seq):
        return f"branch {fork['branch']!r} begins as {fork['parent']!r} was at seq {fork['seq']}"
    if before > last_seq:
        return f"the log ends at seq {last_seq}, and its newest frame always stays"
    return f"seq {before} is in the middle of a wave that begins there"
