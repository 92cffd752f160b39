"""The engine of the model: admission, one group at a time, what a crash leaves.

A state is a value; each function answers the state after a step. Judging runs ahead of the disk inside a
group, as in the shipped engine; a flush makes the group durable and lets its verdicts go. Checks C1, C3, C4, C5
and C10 at the moment a commit is judged, against what its reads really saw.
"""

from __future__ import annotations

from typing import NamedTuple

from model.messages import Broken, Commit, Id, Verdict, called, listed
from model.rules import Lookup, Rules


class Session(NamedTuple):
    """What the engine knows of one replica."""

    last: int = 0  # highest local_seq that has a verdict; memory
    judged: int = 0  # the same as last stored; durable
    acked: int = 0  # the replica has these verdicts and will not name them again; durable
    forgotten: int = 0  # accepted commits up to this seq are not known to be its own; 0 by the true rules


class Judged(NamedTuple):
    """A commit of the group that is not durable yet. `commit` is None if it adds nothing to the log."""

    replica: int
    verdict: Verdict
    commit: Commit | None
    reply: bool  # False: the connection that waits for it is gone


class Engine(NamedTuple):
    """The log is durable, the group is not."""

    log: tuple[Commit, ...]
    group: tuple[Judged, ...]
    sessions: tuple[Session, ...]

    @property
    def history(self) -> tuple[Commit, ...]:
        """The log as admission sees it: with what the group will add."""
        return self.log + tuple(judged.commit for judged in self.group if judged.commit is not None)


class Outcome(NamedTuple):
    """What happens to a commit that arrives: the engine after it, and the verdict that it owes."""

    what: str
    engine: Engine
    verdict: Verdict | None
    is_decision: bool = False  # the reads decided, so that C1 and C3 must hold of it


Leaving = tuple[tuple[Verdict, ...], ...]
"""The verdicts that leave when a group is durable, for each replica."""


def new_engine(replicas: int) -> Engine:
    return Engine((), (), (Session(),) * replicas)


# ---- judging -----------------------------------------------------------------------------------------


def judge(engine: Engine, commit: Commit, rules: Rules, refusals: bool) -> list[Outcome]:
    """Every possible outcome of judging a commit that arrives."""
    session = engine.sessions[commit.replica]
    history = engine.history
    known = _known(session, history, commit, rules)
    if known is not None:
        if not rules.replay_is_answered:
            return [Outcome(f"the engine knows {commit} and drops it", engine, None)]
        return [Outcome(f"the engine knows {commit}: {known}", _owing(engine, commit, known, None), known)]
    what = f"the engine judges {commit}"
    if commit.basis > len(history):
        raise Broken("protocol", f"it was read at seq {commit.basis}, but the log ends at {len(history)}", what)
    judged = _with_session(engine, commit.replica, session._replace(last=max(session.last, commit.local)))
    rejected = Verdict(commit.local, 0)
    if not _is_admitted(session, history, commit, rules):
        return [Outcome(f"{what}: {rejected}", _owing(judged, commit, rejected, None), rejected, is_decision=True)]
    accepted = Verdict(commit.local, len(history) + 1)
    outcomes = [Outcome(f"{what}: {accepted}", _owing(judged, commit, accepted, commit), accepted, is_decision=True)]
    if refusals:
        outcomes.append(Outcome(f"{what}: refused by a rule", _owing(judged, commit, rejected, None), rejected))
    return outcomes


def _known(session: Session, history: tuple[Commit, ...], commit: Commit, rules: Rules) -> Verdict | None:
    """C10: a commit that has a verdict gets it again, before anything else is looked at."""
    if rules.lookup is Lookup.NONE or commit.local > session.last:
        return None
    for seq, accepted in enumerate(history[session.forgotten :], session.forgotten + 1):
        if accepted.id == commit.id:
            if accepted.bytes != commit.bytes:
                why = f"it was accepted at seq {seq} with other content"
                raise Broken("C10", why, f"the engine knows {commit}")
            return Verdict(commit.local, seq)
    if commit.local <= session.acked:
        raise Broken("protocol", "its verdict was acknowledged", f"the engine knows {commit}")
    return Verdict(commit.local, 0) if rules.rejection_is_final else None


def _is_admitted(session: Session, history: tuple[Commit, ...], commit: Commit, rules: Rules) -> bool:
    """C1, C3 and C4 as the shipped engine decides them: from the basis and the named layers alone."""
    basis = commit.basis
    forgotten = session.forgotten if rules.lookup is Lookup.SESSION else 0
    for layer in commit.layers:
        seq = 0
        if layer > session.acked:  # the keys of acknowledged commits are gone, as early as they may be
            seq = _seq_of((commit.replica, layer), history, forgotten)
        if seq == 0 and rules.engine_checks_layers:
            return False
        if not rules.engine_true_basis and layer == commit.layers[-1]:
            basis = max(basis, seq)
    named = {(commit.replica, layer) for layer in commit.layers}
    return not any(later.writes in commit.reads and later.id not in named for later in history[basis:])


def _seq_of(id: Id, history: tuple[Commit, ...], after: int = 0) -> int:
    return next((seq for seq, commit in enumerate(history[after:], after + 1) if commit.id == id), 0)


def _owing(engine: Engine, commit: Commit, verdict: Verdict, added: Commit | None) -> Engine:
    return engine._replace(group=(*engine.group, Judged(commit.replica, verdict, added, True)))


def _with_session(engine: Engine, replica: int, session: Session) -> Engine:
    return engine._replace(sessions=(*engine.sessions[:replica], session, *engine.sessions[replica + 1 :]))


# ---- what must hold of a decision --------------------------------------------------------------------


def check_decision(before: Engine, commit: Commit, outcome: Outcome, rules: Rules) -> None:
    """C1, C4, C5 and C10 of what was accepted, C3 of what was rejected."""
    if outcome.verdict is None or not outcome.is_decision:
        return
    if outcome.verdict.seq:
        _check_acceptance(before.history, commit, outcome.what)
    elif rules.names_are_true:
        _check_rejection(before.history, commit, outcome.what)


def _check_acceptance(history: tuple[Commit, ...], commit: Commit, what: str) -> None:
    for path, saw in zip(commit.reads, commit.saw, strict=True):
        holds = tuple(earlier.id for earlier in history if earlier.writes == path)
        if saw != holds:
            raise Broken("C1", f"{commit} read {path} as {listed(saw)}, and the log has {listed(holds)}", what)
    for layer in commit.layers:
        if not _seq_of((commit.replica, layer), history):
            raise Broken("C4", f"{commit} stands on {called((commit.replica, layer))}, which was not accepted", what)
    if _seq_of(commit.id, history):
        raise Broken("C10", f"{commit} is in the log already", what)
    for other in history:
        if other.replica == commit.replica and other.local > commit.local:
            raise Broken("C5", f"{other}, which was sent after it, is in the log already", what)


def _check_rejection(history: tuple[Commit, ...], commit: Commit, what: str) -> None:
    """C3: a commit that names its layers and its basis truly is rejected for a reason, never for want of names."""
    for path, saw in zip(commit.reads, commit.saw, strict=True):
        if saw != tuple(earlier.id for earlier in history if earlier.writes == path):
            return
    if any(not _seq_of((commit.replica, layer), history) for layer in commit.layers):
        return
    raise Broken("C3", f"{commit} saw exactly what the log has, over layers that were all accepted", what)


# ---- the disk ----------------------------------------------------------------------------------------


def flushed(engine: Engine) -> tuple[Engine, Leaving]:
    """The group is durable and its verdicts leave."""
    leaving = tuple(
        tuple(judged.verdict for judged in engine.group if judged.replica == replica and judged.reply)
        for replica in range(len(engine.sessions))
    )
    stored = engine._replace(log=engine.history, group=())
    for judged in engine.group:
        if judged.commit is not None:
            # What was rejected before an accepted commit is remembered with it, for free.
            session = stored.sessions[judged.replica]
            stored = _with_session(
                stored, judged.replica, session._replace(judged=max(session.judged, judged.verdict.local))
            )
    return stored, leaving


def crashed(engine: Engine) -> Engine:
    """Down and up again: the group and all that was only in memory is lost."""
    sessions = []
    for replica, session in enumerate(engine.sessions):
        own = [commit.local for commit in engine.log[session.forgotten :] if commit.replica == replica]
        sessions.append(session._replace(last=max(session.acked, session.judged, *own, 0)))
    return engine._replace(group=(), sessions=tuple(sessions))


# ---- sessions ----------------------------------------------------------------------------------------


def connected(engine: Engine, replica: int, rules: Rules) -> Engine:
    if rules.lookup is not Lookup.CONNECTION:
        return engine
    session = engine.sessions[replica]
    return _with_session(engine, replica, session._replace(last=0, judged=0, forgotten=len(engine.history)))


def landed(engine: Engine, replica: int, rules: Rules) -> dict[int, int]:
    """The commits of a replica that are known to be in the log, with their seqs: what it is told on reconnecting."""
    if not rules.landed_is_told or rules.lookup is Lookup.NONE:
        return {}
    known = engine.sessions[replica].forgotten
    return {commit.local: seq for seq, commit in enumerate(engine.log[known:], known + 1) if commit.replica == replica}


def disconnected(engine: Engine, replica: int) -> Engine:
    """Verdicts that waited for the disk will find no connection. What only waited to be told is dropped."""
    if not engine.group:
        return engine
    group = tuple(
        judged._replace(reply=False) if judged.replica == replica else judged
        for judged in engine.group
        if judged.commit is not None or judged.replica != replica
    )
    return engine._replace(group=group)


def acknowledged(engine: Engine, replica: int, local: int) -> Engine:
    session = engine.sessions[replica]
    last = max(session.last, local)
    return _with_session(engine, replica, session._replace(acked=local, last=last, judged=last))


def expired(engine: Engine, replica: int) -> Engine:
    """Not by the true rules: the session is dropped, and opened anew under its old name."""
    return _with_session(engine, replica, Session(forgotten=len(engine.history)))
