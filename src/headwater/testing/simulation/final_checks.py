"""The checks at the end of every simulated history, when everything has healed.

Every replica shows the engine's state and waits for nothing, every commit has one fate that both sides agree on (C6),
nothing is in the log twice (C10), every accepted read saw the value at its seq (C1), the file obeys the rules
(`verify`), and the past equals the folded log (C11).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.data.address import DocKey
from headwater.data.patch import apply
from headwater.data.value import ABSENT, equal, lookup
from headwater.data.value import same as same_order
from headwater.engine import Engine
from headwater.engine.verify import NaiveSpace, same, verify_store
from headwater.errors import AbsentError
from headwater.protocol.verdict import conflict_text
from headwater.replica import LinkState
from headwater.testing.simulation.access import WRITE
from headwater.testing.simulation.attempts import Attempt
from headwater.testing.simulation.intents import MAX_ATTEMPTS
from headwater.testing.simulation.oracle import Oracle, links_in
from headwater.testing.simulation.process import ReplicaProcess
from headwater.testing.simulation.server import ServerProcess
from headwater.testing.simulation.trace import Trace

NAIVE_EVERY = 8


def check_all(server: ServerProcess, processes: Sequence[ReplicaProcess], oracle: Oracle, trace: Trace) -> None:
    engine = server.engine
    if engine is None:
        trace.broken("healing", "server", "it is down although nothing is wrong any more")
        return
    oracle.follow(engine)
    for process in processes:
        if process.is_shut_out:  # it waits to be let in, and shows its last state
            for attempt in process.books.attempts:
                attempt.is_alone = attempt.is_alone or not attempt.fired
        else:
            _check_settled(process, trace)
            _check_shown(process, engine, oracle, trace)
        _check_attempts([*process.past_attempts, *process.books.attempts], oracle, trace, process.name)
        _check_intents(process, oracle, trace)
    oracle.compare_all(engine)
    oracle.access.check_document(len(oracle.log))
    _check_past(engine, oracle, trace)
    report = verify_store(server.store)
    if report.violation is not None:
        trace.broken(report.violation.rule, "verify", str(report.violation))
    if trace.seed % NAIVE_EVERY == 0:
        _check_naively(oracle, trace)


def _check_settled(process: ReplicaProcess, trace: Trace) -> None:
    """Check that nothing waits after healing."""
    session, who = process.session, process.name
    if session.link is not LinkState.UP:
        trace.broken("healing", who, f"its session is {session.link.value}")
    if not process.replica.is_confirmed():
        layers = [(layer.local_seq, layer.fate.value) for layer in process.replica.layers()]
        trace.broken("healing", who, f"commits are still pending, these are not dead: {layers}")
    if session.is_loading():
        trace.broken("healing", who, "it still waits for documents")
    if not process.tokens.is_answered:
        trace.broken("token", who, "it renewed its token, and nobody said so")
    if not process.conversation.is_answered:
        trace.broken("query", who, "a query was neither answered nor refused")
    for intent in process.intents:
        if not intent.is_over:
            why = conflict_text(intent.conflict) if intent.conflict is not None else f"{intent.missing}"
            trace.broken("healing", who, f"{intent.tag} is still {intent.status}: {why}")


def _check_shown(process: ReplicaProcess, engine: Engine, oracle: Oracle, trace: Trace) -> None:
    """Check that every watched document is here, targets of links included, and equals the engine's."""
    end, branch = len(oracle.log), process.replica.branch
    for root, follow in process.wants.wanted.items():
        for doc in _reachable(root, engine, oracle, process) if follow else [root]:
            if not process.replica.is_here(doc) and doc not in process.wants.dropped:
                trace.broken("watch", process.name, f"{doc} is watched through {root} and is not here")
    for doc, value in process.replica.snapshot().items():
        there = process.books.shown(doc, oracle.value(doc, end, branch))
        if not same_order(value, there):
            trace.broken("convergence", process.name, f"{doc} is {value!r}, on branch {branch} it is {there!r}")


def _reachable(root: DocKey, engine: Engine, oracle: Oracle, process: ReplicaProcess) -> list[DocKey]:
    found = {root: None}
    waiting = [root]
    while waiting:
        for link in links_in(oracle.value(waiting.pop(), len(oracle.log), process.replica.branch)):
            doc = DocKey(link.scope, link.id)
            if doc not in found and engine.may_see(doc, process.user, process.session.key):
                found[doc] = None
                waiting.append(doc)
    return list(found)


def _check_attempts(attempts: Iterable[Attempt], oracle: Oracle, trace: Trace, who: str) -> None:
    for attempt in attempts:
        if attempt.fired != 1 and not (
            attempt.is_alone or attempt.is_undone or (attempt.is_local and not attempt.fired)
        ):
            trace.broken("callbacks", who, f"{attempt.tag} ({attempt.local_seq}) was settled {attempt.fired} times")
        if attempt.commit is None or attempt.is_undone:
            continue
        landed = oracle.seq_of.get((attempt.session, attempt.local_seq), 0)
        if attempt.fired and attempt.rejection is None and landed != attempt.seq:
            trace.broken("C6", who, f"{attempt.tag} was accepted at {attempt.seq}, the log has it at {landed}")
        if attempt.rejection is not None and landed:
            trace.broken("C6", who, f"{attempt.tag} was taken back ({attempt.rejection}) and landed at {landed}")
        if landed:
            _check_landed(attempt, landed, oracle, trace, who)


def _check_landed(attempt: Attempt, seq: int, oracle: Oracle, trace: Trace, who: str) -> None:
    """Check C1: its reads are the state just before it. C7: all of its writes are there."""
    assert attempt.commit is not None
    if oracle.log[seq - 1].commit.operations != attempt.commit.operations:
        trace.broken("C7", who, f"{attempt.tag} landed at {seq} with other operations")
    for read, whole in attempt.seen:
        before = oracle.value(read.doc, seq - 1, attempt.commit.branch)
        if not same(whole, before, read):
            trace.broken("C1", who, f"{attempt.tag} at {seq} read {read} of {whole!r}, before it was {before!r}")
    _check_effect(attempt, seq, oracle, trace, who)


def _check_effect(attempt: Attempt, seq: int, oracle: Oracle, trace: Trace, who: str) -> None:
    """A commit is its author's writes at its place in the log, also those that changed nothing in the author's view.

    Except objects, which are told by their fields, and elements of arrays that the author had not read.
    """
    assert attempt.commit is not None
    for doc in dict.fromkeys(doc for doc, _ in attempt.written):
        naive = oracle.value(doc, seq - 1, attempt.commit.branch)
        after = oracle.value(doc, seq, attempt.commit.branch)
        patches = [patch for written, patch in attempt.written if written == doc]
        for patch in patches:
            # A value that an undecided write had set is told by an `add`, which lands also where it was removed since.
            is_removed = patch.kind == "replace" and lookup(naive, patch.path) is ABSENT
            naive = apply(naive, patch._replace(kind="add") if is_removed else patch)[0]
        for patch in patches:
            expected, found = lookup(naive, patch.path), lookup(after, patch.path)
            if not isinstance(expected, dict) and not equal(expected, found):
                said = f"{attempt.tag} at {seq} wrote {expected!r} to {doc} at {patch.path}, it is {found!r}"
                trace.broken("C7", who, said)


def _check_intents(process: ReplicaProcess, oracle: Oracle, trace: Trace) -> None:
    """C6, C10: an intent is in the log once if its author was told so, and never twice."""
    who, can_write = process.name, oracle.access.least(process.user) >= WRITE
    for intent in process.intents:
        seqs = oracle.tags.get(intent.tag, [])
        told = any(attempt.seq and not attempt.is_undone for attempt in intent.attempts)
        # A session without the right to write stands on commits that are refused again and again.
        if len(intent.attempts) > MAX_ATTEMPTS and intent.status == "failed" and can_write:
            trace.broken("progress", who, f"{intent.tag} was given up after {len(intent.attempts)} attempts")
        if len(seqs) > 1:
            trace.broken("C10", who, f"{intent.tag} is in the log at {seqs}")
        if told and not seqs:
            trace.broken("C6", who, f"{intent.tag} was acknowledged and is lost")
        unsure = any(attempt.is_alone or attempt.is_undone for attempt in intent.attempts)
        if intent.status == "failed" and seqs and not unsure:
            trace.broken("C6", who, f"{intent.tag} failed and is in the log at {seqs}")


def _check_past(engine: Engine, oracle: Oracle, trace: Trace) -> None:
    """Check C11: at some moments of the past, every document equals the folded log."""
    last = len(oracle.log)
    for branch in oracle.live():
        for at in {last // 3, 2 * last // 3, max(last - 1, 0)}:
            for doc in oracle.docs():
                try:
                    found = engine.read(doc, at=at, branch=branch).value
                except AbsentError:
                    break  # compacted away, or before the branch began
                expected = oracle.value(doc, at, branch)
                if not equal(found, expected):
                    said = f"{doc} at {at} on {branch} reads {found!r}, the log: {expected!r}"
                    trace.broken("C11", "engine", said)


def _check_naively(oracle: Oracle, trace: Trace) -> None:
    """Everything the engine admitted, a naive validator admits."""
    space = NaiveSpace()
    for name, line in oracle.lines.items():
        space.fork(name, line.parent, line.fork_seq)
    for logged in oracle.log:
        refusals = space.judge(logged.session, logged.commit)
        if refusals:
            trace.broken("naive", "log", f"seq {logged.seq} should have been refused: {refusals}")
        space.accept(logged.session, logged.commit)
