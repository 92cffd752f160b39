"""The log of a simulated space, as it was seen to become durable, and every document at every seq.

Owns the truth that replicas are compared with: folding the log, nothing else (C11). Follows the engine after each
of its steps and never forgets, so that compaction, restarts and crashes of the engine change nothing here. Notes
what a log must not do: shrink, change, or take a commit twice (C5, C7, C10).
"""

from __future__ import annotations

from bisect import bisect_right

from headwater.data.address import DocKey
from headwater.data.patch import PatchError, apply
from headwater.data.value import ABSENT, MaybeValue, equal
from headwater.engine.engine import Engine
from headwater.engine.reads import Logged
from headwater.protocol.commit import Commit, encode_commit
from headwater.testing.sim_trace import Trace


def folded(value: MaybeValue, commit: Commit, doc: DocKey, *, lenient: bool = False) -> MaybeValue:
    """A document after a commit. Lenient: a commit that does not fit shows nothing there, as a layer does."""
    after = value
    for operation in commit.operations:
        if operation.doc == doc:
            for patch in operation.patches:
                try:
                    after = apply(after, patch).value
                except PatchError:
                    if not lenient:
                        raise
                    return value
    return after


class Oracle:
    """Everything that was ever durable in the space."""

    __slots__ = ("_last_of", "_trace", "_versions", "is_behind", "log", "seq_of", "tags")

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.log: list[Logged] = []
        self.is_behind = False  # the server died in a step: what it said then is known here when it is up again
        self.seq_of: dict[tuple[str, int], int] = {}
        self.tags: dict[str, list[int]] = {}  # what the node of a commit says -> the seqs of such commits
        self._last_of: dict[str, int] = {}
        self._versions: dict[DocKey, tuple[list[int], list[MaybeValue]]] = {}

    def follow(self, engine: Engine) -> None:
        """Take in what the log has gained."""
        while engine.last_seq > len(self.log):
            gained = engine.changes(since=len(self.log)).items
            if not gained:
                last = engine.last_seq
                self._trace.broken("C7", "log", f"the engine is at seq {last}, its log ends at {len(self.log)}")
                return
            for logged in gained:
                self._add(logged)

    def _add(self, logged: Logged) -> None:
        seq, session, commit = logged.seq, logged.session, logged.commit
        broken = self._trace.broken
        if seq != len(self.log) + 1:
            broken("C7", "log", f"seq {seq} follows {len(self.log)}")
        key = (session, commit.local_seq)
        if key in self.seq_of:
            broken("C10", "log", f"commit {key} is at seq {self.seq_of[key]} and again at {seq}")
        if commit.local_seq <= self._last_of.get(session, 0):
            broken("C5", "log", f"commit {key} comes after {self._last_of[session]}")
        self.log.append(logged)
        self.seq_of[key] = seq
        self._last_of[session] = commit.local_seq
        if commit.provenance.node:
            self.tags.setdefault(commit.provenance.node, []).append(seq)
        for operation in commit.operations:
            seqs, values = self._versions.setdefault(operation.doc, ([], []))
            try:
                value = folded(values[-1] if values else ABSENT, commit, operation.doc)
            except PatchError as error:
                broken("C7", "log", f"commit {key} at seq {seq} does not apply: {error}")
                continue
            seqs.append(seq)
            values.append(value)

    def value(self, doc: DocKey, at: int) -> MaybeValue:
        """A document as it was at a seq."""
        found = self._versions.get(doc)
        place = bisect_right(found[0], at) if found is not None else 0
        return found[1][place - 1] if found is not None and place else ABSENT

    def written(self, doc: DocKey, at: int) -> int:
        """The seq of the last commit up to `at` that wrote the document; 0: none did."""
        found = self._versions.get(doc)
        place = bisect_right(found[0], at) if found is not None else 0
        return found[0][place - 1] if found is not None and place else 0

    def docs(self) -> list[DocKey]:
        return list(self._versions)

    def compare(self, engine: Engine) -> None:
        """After a restart: nothing that was durable is gone, and the end of the log is what it was."""
        self.is_behind = False
        last = len(self.log)
        if engine.last_seq < last:
            self._trace.broken("C6", "log", f"it ended at seq {last} and ends at {engine.last_seq} after a restart")
            return
        if last:
            again = engine.changes(since=last - 1, limit=1).items[0]
            if encode_commit(again.commit) != encode_commit(self.log[-1].commit):
                self._trace.broken("C7", "log", f"seq {last} holds another commit after a restart")
        self.follow(engine)

    def compare_all(self, engine: Engine) -> None:
        """At the end: every document that the engine shows is what folding the log gives (C11)."""
        for doc in self._versions:
            shown = engine.read(doc)
            expected = self.value(doc, len(self.log))
            if not equal(shown.value, expected):
                self._trace.broken("C11", "engine", f"it shows {doc} as {shown.value!r}, the log says {expected!r}")
