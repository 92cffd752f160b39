"""What has to hold between the steps of a history, said of a runtime and of the engine's log. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.data.value import MaybeValue, equal, same
from headwater.engine import Engine
from headwater.protocol.commit import CommitPart, parts_of
from headwater.replica import NOT_HERE, Document, NotLoaded
from tests.simulation.replica_runtime import Runtime


class Broken(Exception):
    """An invariant does not hold. `invariant` says which."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(what)
        self.invariant = invariant


def is_same(one: MaybeValue | NotLoaded, other: MaybeValue | NotLoaded) -> bool:
    """Return whether a reader sees no difference. The order of keys is one: a reader of a map sees it."""
    if one is NOT_HERE or other is NOT_HERE:
        return one is other
    return same(one, other)


def is_dormant(document: Document) -> bool:
    """Return whether a document shows a result that is not sent and that no run replaces.

    Nothing demands its node, which is invalid or read such a result.
    """
    entry = document.entry
    if entry is None:
        return False
    tier = document.home.tier
    return not tier.is_demanded(entry.source) and (entry.is_held or not tier.is_current(entry.source))


def fetched_for_somebody(runtime: Runtime) -> None:
    """I2: what is asked for is read by an attempt, or made by one, or was written here."""
    wanted = runtime.wanted | runtime.eye.wanted
    unwanted = [name for name in runtime.wire.watched if name not in wanted]
    if unwanted:
        runtime.eye.wrong("I2", f"{unwanted} were fetched for nobody")


def shows_what_is_stored(runtime: Runtime, engine: Engine) -> None:
    """I1: at the end nothing is pending, nobody waits, and what is shown is what is stored.

    A result that was not sent before its node became invalid and lost all demand is kept, and not stored.
    """
    problems = [f"{node!r} waits" for node in runtime.nodes() if node.live and node.loading]
    problems += [] if runtime.replica.is_confirmed() else [f"commits are pending: {runtime.replica.layers()}"]
    for document in runtime.replica.documents.held():
        stored = engine.read(document.key).value
        if document.value is not NOT_HERE and not equal(document.value, stored) and not is_dormant(document):
            problems.append(f"{document!r} shows {document.value!r}, and {stored!r} is stored")
    for each in problems:
        runtime.eye.wrong("I1", each)


def _is_a_result_of_its_node(runtime: Runtime, number: int, part: CommitPart) -> None:
    """A result has a number once it is sent. The eye does not see that of a result which was shown already."""
    provenance = part.provenance
    causes = {(key.id, path) for key, path in provenance.causes}
    documents = {operation.doc.id for operation in part.operations}
    results = runtime.eye.results.get(provenance.node, [])
    sent = [each for each in results if each.entry and each.entry.local_seq == number]
    results = sent or [each for each in results if each.entry is None]
    runtime.eye.done["causes"] += len(causes)
    fits = [each for each in results if each.must <= causes <= each.may]
    is_together = len(documents) > 1  # results that read each other
    if not (fits and documents <= fits[-1].outputs) and not (results and is_together):
        why = f"says because of {sorted(causes)}, its runs were because of {[sorted(e.must) for e in results]}"
        runtime.eye.wrong("I8", f"no run of {provenance.node!r} made {documents}, which {why}")


def says_who_and_why(engine: Engine, since: int, runtimes: Iterable[Runtime]) -> None:
    """I8: every derived commit of the log says which node it was, and exactly the changes that made it run."""
    of_session = {runtime.client.session.key: runtime for runtime in runtimes}
    for logged in engine.changes(since=since, limit=1_000).items:
        runtime = of_session[logged.session]
        provenance = logged.commit.provenance
        wrote = runtime.eye.wrote.get(logged.commit.local_seq)
        if logged.commit.results:
            for part in parts_of(logged.commit):
                if part.operations:
                    _is_a_result_of_its_node(runtime, logged.commit.local_seq, part)
            continue
        causes = {(key.id, path) for key, path in provenance.causes}
        documents = {operation.doc.id for operation in logged.commit.operations}
        if wrote is None:
            if provenance.derived or provenance.node or provenance.causes:
                runtime.eye.wrong("I8", f"{logged} is of no run")
            continue
        runtime.eye.done["causes"] += len(causes)
        if (provenance.node, provenance.derived) != (wrote.node, True) or not documents <= wrote.outputs:
            runtime.eye.wrong("I8", f"{logged} is of {wrote.node}")
        if not wrote.must <= causes <= wrote.may:
            why = f"because of {sorted(wrote.must)}, and says because of {sorted(causes)}"
            runtime.eye.wrong("I8", f"{wrote.node} ran {why}")
