"""The last run of the node that makes a document, as it was observed: also if it changed nothing, or is an effect's.

The log knows of runs that wrote something; what was observed says of the last one what made it run, when its reads were
verified, and whether they still hold. Owns which node a document's name stands for, and this form. Decides nothing.
"""

from __future__ import annotations

from headwater.data.address import SPACE_SCOPE, DocKey, doc_text
from headwater.data.json_form import JsonForm
from headwater.engine.engine import Engine
from headwater.engine.provenance import last_write
from headwater.pieces.names import SEPARATOR
from headwater.protocol.commit import MAIN
from headwater.protocol.observations import Observations, Observed, QueryObservations
from headwater.runtime.binding.ingredients import kind_of
from headwater.server.commands.foreign_reads import Abroad, Fate, spaces_of, unsure

__all__ = ["last_run_form"]

MOST = 100
"""Nodes of one name that are looked at: an effect has one for each user and runtime."""


def last_run_form(engine: Engine, doc: DocKey, abroad: Abroad | None = None) -> dict[str, JsonForm] | None:
    """What was observed of the last run of the node behind a document. None: nothing is known of such a node.

    `abroad` hears what is to be asked of other spaces that it read.
    """
    found = _observed(engine, doc)
    if found is None:
        return None
    cause: dict[str, JsonForm] | None = None
    if found.cause is not None:
        wrote = last_write(engine, found.cause[0], found.verified_at)
        cause = {
            "address": doc_text(*found.cause),
            "seq": None if wrote is None else wrote.seq,
            "at_us": None if wrote is None else wrote.at_us,
            "session": None if wrote is None else wrote.session,
            "node": None if wrote is None else wrote.commit.provenance.node,
        }
    stale = [(doc_text(found.reads[place].doc, found.reads[place].path), seq) for place, seq in found.stale]
    made: dict[str, JsonForm] = {
        "kind": kind_of(found.kind),
        "cause": cause,
        "changed_at": found.changed_at,
        "verified_at": found.verified_at,
        "took_us": found.took_us,
        "failed": bool(found.failed),
        "comparable": bool(found.fingerprint),
        "elsewhere": list(spaces_of(found.foreign)),
    }

    def settle(fate: Fate) -> None:
        made["stale"] = [{"address": address, "seq": seq} for address, seq in (*stale, *fate.written)]
        made["unasked"] = list(fate.unasked)

    settle(unsure(found.foreign))
    if abroad is not None:
        abroad.add(found.foreign, settle)
    return made


def _observed(engine: Engine, doc: DocKey) -> Observed | None:
    home, colon, member = doc.id.rpartition(":")
    if not colon:
        return None
    piece = home.partition(SEPARATOR)[0]
    child = home if SEPARATOR in home else ""
    scope, _, principal = doc.scope.partition(":")
    page = engine.looked(QueryObservations(0, piece, None, member, child, None, MOST), branch=MAIN)
    assert isinstance(page, Observations)
    whose = ("", "") if scope == SPACE_SCOPE else (scope, principal)
    for each in page.observed:
        if (each.node.scope, each.node.principal) == whose or kind_of(each.kind) == "effect":
            return each
    return None
