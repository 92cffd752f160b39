"""Stored observations of nodes, loaded page by page for a command that has the code of the application.

Turns the answers of questions into the input of `runtime.resume.preview`. Nothing is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headwater.cells.codec import codec_for
from headwater.cli.data.target import ask
from headwater.cli.limits import DEFAULT_COMMAND_LIMITS, CommandLimits
from headwater.data.codec import from_json_form
from headwater.errors import HeadwaterError, InvalidValueError
from headwater.pieces.names import SEPARATOR
from headwater.protocol.command_messages import CommandQuestion
from headwater.protocol.observations import ForeignRead, NodeKey, Observed
from headwater.runtime.pieces.records import Record
from headwater.runtime.resume.fingerprint import owner_of
from headwater.runtime.resume.preview import PreviewInput

Ask = Callable[[CommandQuestion], Any]


def make_asker(where: str, user: str, token: str) -> Ask:
    """Return a function that asks one directory, or one server, for one user."""

    def asked(question: CommandQuestion) -> Any:
        return ask(where, msgspec.structs.replace(question, user=user), token=token)

    return asked


def choose_spaces(asked: Ask, named: Sequence[str]) -> list[str]:
    """Return the named spaces, or all spaces if none is named."""
    return list(named) or [str(each["name"]) for each in asked(CommandQuestion("spaces", ""))]


def load_stored_nodes(
    asked: Ask,
    spaces: Sequence[str],
    branch: str | None = None,
    *,
    with_read: bool = False,
    limits: CommandLimits = DEFAULT_COMMAND_LIMITS,
) -> list[PreviewInput]:
    """Load everything stored about the nodes and pieces of some spaces.

    `with_read` adds the spaces that these nodes read, as far as they can be asked.
    """
    found = [_load_space(asked, space, branch, limits) for space in spaces]
    if with_read:
        found += _load_read_spaces(asked, found, branch, limits)
    named = [_add_named_records(asked, each, found, branch, limits.page) for each in found]
    return [_check_foreign_reads(asked, each, limits.page) for each in named]


def _load_read_spaces(
    asked: Ask, known: Sequence[PreviewInput], branch: str | None, limits: CommandLimits
) -> list[PreviewInput]:
    """Load the spaces that nodes read, and the spaces that nodes of those read."""
    found: list[PreviewInput] = []
    seen, waiting = {each.space for each in known}, deque(known)
    while waiting:
        for space in dict.fromkeys([read.space for each in waiting.popleft().observed for read in each.foreign]):
            if space in seen:
                continue
            seen.add(space)
            try:
                found.append(_load_space(asked, space, branch, limits))
            except HeadwaterError:
                continue  # Reads of this space are then unknown.
            waiting.append(found[-1])
    return found


def _add_named_records(
    asked: Ask, known: PreviewInput, everything: Sequence[PreviewInput], branch: str | None, most: int
) -> PreviewInput:
    """Add the records of pieces that nodes read and that have no observations: their classes decide about the reads."""
    docs = [read.doc for each in known.observed for read in each.reads]
    docs += [r.doc for other in everything for each in other.observed for r in each.foreign if r.space == known.space]
    ids = dict.fromkeys([owner_of(doc)[0].partition(SEPARATOR)[0] for doc in docs])
    missing = [id for id in ids if id and id not in known.raw]
    raw = dict(known.raw)
    for first in range(0, len(missing), most):
        chosen = {"records": True, "piece": missing[first], "also": missing[first : first + most]}
        page = asked(CommandQuestion("nodes", known.space, value=chosen, limit=1, branch=branch))
        raw |= {piece: None if said is None else from_json_form(said) for piece, said in page["records"].items()}
    records = {piece: _decode_record(said) for piece, said in raw.items()}
    return PreviewInput(space=known.space, observed=known.observed, records=records, raw=raw)


def _load_space(asked: Ask, space: str, branch: str | None, limits: CommandLimits) -> PreviewInput:
    observed: list[Observed] = []
    raw: dict[str, Any] = {}
    after = ""
    chosen = {"records": True}
    for _ in range(limits.pages):
        page = asked(CommandQuestion("nodes", space, value=chosen, after=after, limit=limits.page, branch=branch))
        observed += [msgspec.convert(each, Observed) for each in page["observed"]]
        raw |= {piece: None if said is None else from_json_form(said) for piece, said in page["records"].items()}
        after = page["next"]
        if after is None:
            break
    records = {piece: _decode_record(said) for piece, said in raw.items()}
    return PreviewInput(space=space, observed=tuple(observed), records=records, raw=raw)


def _decode_record(said: Any) -> Record | None:
    """Decode the record of a piece; None if there is none, or it cannot be decoded."""
    if said is None:
        return None
    try:
        made: Record = codec_for(Record).decode(said)
    except InvalidValueError:
        return None
    return made


def _check_foreign_reads(asked: Ask, known: PreviewInput, most: int) -> PreviewInput:
    """Add which reads of other spaces are current. A space that cannot be asked leaves them unknown."""
    wanted: dict[tuple[str, str], dict[ForeignRead, None]] = {}
    for each in known.observed:
        for read in each.foreign:
            wanted.setdefault((read.space, read.branch), {})[read] = None
    holding: set[ForeignRead] = set()
    for (space, branch), reads in wanted.items():
        listed = list(reads)
        for first in range(0, len(listed), most):
            some = listed[first : first + most]
            try:
                raw = [msgspec.to_builtins(read) for read in some]
                said = asked(CommandQuestion("current", space, value=raw, branch=branch))
            except HeadwaterError:
                continue
            stale = {place for place, _ in said["stale"]}
            holding |= {read for place, read in enumerate(some) if place not in stale}
    held: frozenset[NodeKey] = frozenset(
        each.node for each in known.observed if each.foreign and all(read in holding for read in each.foreign)
    )
    return PreviewInput(space=known.space, observed=known.observed, records=known.records, raw=known.raw, held=held)
