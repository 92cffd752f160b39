"""What is stored of nodes must be possible: nothing that no run can have left, and no reader that nobody would find.

Owns these comparisons, made after the replay. An observation that is missing is no violation of a rule, since its node
is then unknown and runs; that somebody took it away is seen by their number. Never repairs.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from headwater.data.address import DocKey, doc_text
from headwater.engine.observations.codec import (
    Body,
    State,
    StoredDoc,
    decode_mirror,
    docs_of,
    first_of,
    forms_of,
    number_of_absent,
)
from headwater.engine.store.port import NodeNumbers, ObservationRow, Store
from headwater.engine.verify.replay import Replay
from headwater.engine.verify.report import Broken

_PAGE = 500


def check_observed(store: Store, replay: Replay) -> None:
    """Every observation of every branch, and the index of readers that follows from them."""
    for branch in replay.lines.branches.values():
        readers: Counter[tuple[int, int]] = Counter()  # by document and piece
        after = first_of(branch.branch, 0)
        while rows := store.observations_after(after, _PAGE):
            if branch.deleted:
                raise Broken("observations", 0, f"branch {branch.name!r} was deleted and has observations")
            for row in rows:
                _check(store, replay, row, readers)
            after = rows[-1].key
        _check_readers(store, branch.branch, readers)
        _check_mirrors(store, branch.branch, replay.last_seq)


def _check(store: Store, replay: Replay, row: ObservationRow, readers: Counter[tuple[int, int]]) -> None:
    name = f"the observation of node {row.piece}.{row.generation}.{row.member}"
    forms = forms_of(row)
    if forms is None:
        raise Broken("observations", 0, f"{name} cannot be read")
    state, body = forms
    _check_names(store, row.key, state, name)
    if not state.changed_at <= state.verified_at <= replay.last_seq:
        raise Broken(
            "observations",
            state.verified_at,
            f"{name} was changed at {state.changed_at} and verified at {state.verified_at}, and the log ends at "
            f"{replay.last_seq}",
        )
    if store.session(state.session) is None:
        raise Broken("observations", state.verified_at, f"{name} is of session {state.session}, which is not known")
    if state.changed_at >= replay.kept_from:
        written = store.row_at(state.changed_at)
        if written is None or written.branch != row.branch:
            raise Broken("observations", state.changed_at, f"{name} was changed by a commit of another branch")
    for doc in {_index_of(store, doc) for doc in docs_of(body.reads)}:
        readers[doc, row.piece] += 1
    _check_docs(store, state, body, name)


def _check_names(store: Store, key: NodeNumbers, state: State, name: str) -> None:
    named = (key.piece, key.member, key.scope, state.kind, state.fingerprint, state.gate, state.failed)
    for number in named:
        if number and store.name_of(number) is None:
            raise Broken("names", 0, f"{name} names text {number}, which is not stored")


def _check_docs(store: Store, state: State, body: Body, name: str) -> None:
    docs = docs_of(body.reads)
    if isinstance(state.cause, tuple):
        docs[state.cause[0]] = None
    for doc in docs:
        if isinstance(doc, int) and store.key_of(doc) is None:
            raise Broken("observations", state.verified_at, f"{name} has read document {doc}, which has no name")


def _index_of(store: Store, doc: StoredDoc) -> int:
    return doc if isinstance(doc, int) else store.doc_of(DocKey(*doc)) or number_of_absent(DocKey(*doc))


def _check_readers(store: Store, branch: int, readers: Counter[tuple[int, int]]) -> None:
    """A piece whose nodes read a document is found by it, with as many nodes as do."""
    for (doc, piece), nodes in readers.items():
        found = store.reader(doc, branch, piece)
        if found != nodes:
            raise Broken("readers", 0, f"{nodes} nodes of piece {piece} read document {doc}, the index says {found}")
    listed = store.count_readers(branch)
    if listed != len(readers):
        raise Broken("readers", 0, f"the index lists {listed} readers on branch {branch}, there are {len(readers)}")


def _check_mirrors(store: Store, branch: int, last_seq: int) -> None:
    for owner in store.mirror_owners(branch):
        after = 0
        while rows := store.mirrors_after(branch, owner, after, _PAGE):
            for row in rows:
                try:
                    docs = decode_mirror(row.body).docs
                except (msgspec.MsgspecError, ValueError) as error:
                    raise Broken("mirrors", 0, f"what piece {row.piece} of another space reads: {error}") from error
                for doc, seq in docs:
                    if seq > last_seq:
                        raise Broken("mirrors", seq, f"{doc_text(doc)} is read at {seq}, the log ends at {last_seq}")
                if store.name_of(row.owner) is None or store.name_of(row.piece) is None:
                    raise Broken("names", 0, f"piece {row.piece} of space {row.owner} has no name")
            after = rows[-1].piece
