"""The engine of the model: a log, the last writes of each document, and the answers to messages."""

from __future__ import annotations

from typing import NamedTuple

from model.derived.graph import (
    BELOW_DISPUTED,
    DISPUTED,
    DOCUMENTS,
    FAILED,
    NODES,
    OF_PIECE,
    RECORD,
    REFUSED,
    Value,
    result_of,
)
from model.derived.messages import Commit, Fate, Id, Key, Message, Origin, Read, Sync, Verdict, WaveEntry
from model.derived.rules import Rules
from model.messages import Broken

Writer = tuple[int, int, Id | Key]
"""A write in the log: its seq, its session, and the commit or entry that made it."""


class Moment(NamedTuple):
    """The confirmed state at one seq."""

    values: dict[str, Value]
    origins: dict[str, Origin]


class Connection:
    """The engine's end of a connection: what was sent to the runtime, and which messages were answered."""

    __slots__ = ("answered", "aside", "fetched", "seq", "session")

    def __init__(self, session: int, seq: int, answered: int, aside: frozenset[str], fetched: frozenset[str]) -> None:
        self.session = session
        self.seq = seq
        self.answered = answered
        self.aside = aside
        self.fetched = fetched

    def copy(self) -> Connection:
        return Connection(self.session, self.seq, self.answered, self.aside, self.fetched)


class Engine:
    """Judges messages in the order of their arrival. All that it decides by is durable except rejections."""

    __slots__ = ("accepted", "answers", "differing", "ends", "moments", "owners", "refuses", "rules", "writes")

    def __init__(self, rules: Rules, *, refuses: bool, differing: dict[int, str]) -> None:
        self.rules = rules
        self.refuses = refuses
        self.differing = differing  # by session: the fingerprint of its function for the disputed node
        values: dict[str, Value] = dict.fromkeys(DOCUMENTS)
        values.update({"x": 0, "y": 0, RECORD: 1})
        self.moments = [Moment(values, {})]
        self.owners: list[tuple[int, int]] = [(0, 0)]  # by seq: session and number of the message
        self.ends = [0]  # the seqs at which messages end
        self.writes: dict[str, tuple[Writer, ...]] = dict.fromkeys(DOCUMENTS, ())
        self.accepted: frozenset[tuple[int, Id | Key]] = frozenset()
        self.answers: dict[tuple[int, int], tuple[Message, Verdict]] = {}

    def copy(self) -> Engine:
        other = object.__new__(Engine)
        other.rules, other.refuses, other.differing = self.rules, self.refuses, dict(self.differing)
        other.moments, other.owners, other.ends = list(self.moments), list(self.owners), list(self.ends)
        other.writes, other.accepted, other.answers = dict(self.writes), self.accepted, dict(self.answers)
        return other

    def key(self) -> object:
        """The log: its values follow from the results that each runtime sent."""
        return tuple(self.writes.values()), tuple(self.values.values()), tuple(sorted(self.answers)), tuple(self.ends)

    @property
    def seq(self) -> int:
        return len(self.moments) - 1

    @property
    def values(self) -> dict[str, Value]:
        return self.moments[-1].values

    # ---- judging -------------------------------------------------------------------------------------

    def judge(self, message: Message) -> Verdict:
        """Answer a message; one that is known gets its first answer again."""
        known = self.answers.get((message.session, message.number))
        if known is not None:
            first, verdict = known
            if first != message:
                raise Broken("C10", f"message {message.number} was sent again with other content")
            return verdict
        commits = tuple(self._judge_commit(message, commit) for commit in message.commits)
        fates, wave = self._judge_wave(message)
        verdict = Verdict(message.number, commits, fates, wave, self.seq)
        if any(commits) or wave:
            self.ends.append(self.seq)
        self.answers[message.session, message.number] = message, verdict
        return verdict

    def _judge_commit(self, message: Message, commit: Commit) -> int:
        if (message.session, commit.id) in self.accepted:
            raise Broken("C10", f"commit {commit.id} is in the log already")
        if not all(self._stands(message.session, read) for read in commit.reads):
            return 0
        self._check_serial(message.session, commit)
        self._append(message, dict(commit.writes), {})
        for document, _ in commit.writes:
            self._note_write(document, message.session, commit.id)
        return self.seq

    def _judge_wave(self, message: Message) -> tuple[tuple[Fate, ...], int]:
        """Judge each entry on the state that the accepted ones before it make; all of them have one seq."""
        fates = []
        opened = False
        for entry in message.entries:
            fate = self._fate(message.session, entry)
            fates.append(fate)
            if fate is not Fate.ACCEPTED:
                continue
            if not opened:
                self._append(message, {}, {})
                opened = True
            self._write_entry(message, entry)
        return tuple(fates), self.seq if opened else 0

    def _fate(self, session: int, entry: WaveEntry) -> Fate:
        if not all(self._stands(session, read) for read in entry.reads):
            return Fate.SUPERSEDED
        if self.refuses and entry.node == DISPUTED and entry.value == REFUSED:
            return Fate.REFUSED
        return Fate.ACCEPTED

    def _write_entry(self, message: Message, entry: WaveEntry) -> None:
        session, node = message.session, entry.node
        values, origins = self.moments[-1]
        value = entry.value
        if entry.base is not None and value is not None:
            value += (values[node] or 0) - entry.base
        if node == OF_PIECE and values[RECORD] is None:
            raise Broken("C1", f"an entry resurrects {node}, whose piece is deleted")
        expected = result_of(node, differs=self._differs(session), read=values.__getitem__)
        if value != expected:
            raise Broken("C1", f"an entry makes {node} {value}, and its inputs in the log make it {expected}")
        values[node] = value
        reads = frozenset(read.document for read in entry.reads)
        origins[node] = Origin(session, self.seq, self.fingerprint(session, node), reads, entry.hops)
        self._note_write(node, session, (message.number, node))

    def _stands(self, session: int, read: Read) -> bool:
        """Whether a read saw exactly the writes before it in the log (C1), over accepted layers only (C4)."""
        writes = self.writes[read.document]
        if read.entry is not None:
            # An entry holds a whole result: its reader saw nothing of the writes before it.
            if not self.rules.named_is_last:
                return (session, read.entry) in self.accepted
            return bool(writes) and writes[-1][1:] == (session, read.entry)
        if not all((session, layer) in self.accepted for layer in read.layers):
            return False
        return all(
            writer == session and key in read.layers for seq, writer, key in reversed(writes) if seq > read.basis
        )

    def _append(self, message: Message, values: dict[str, Value], origins: dict[str, Origin]) -> None:
        last = self.moments[-1]
        self.owners.append((message.session, message.number))
        self.moments.append(Moment(last.values | values, last.origins | origins))
        for document in values:
            self.moments[-1].origins[document] = Origin(message.session, self.seq)

    def _note_write(self, document: str, session: int, key: Id | Key) -> None:
        self.writes[document] += ((self.seq, session, key),)
        self.accepted |= {(session, key)}

    def _differs(self, session: int) -> bool:
        return session in self.differing

    def fingerprint(self, session: int, node: str) -> str:
        return self.differing.get(session, node) if node == DISPUTED else node

    def _check_serial(self, session: int, commit: Commit) -> None:
        """The handler read the values that its functions make of the log right before its commit."""
        for name, saw in commit.saw:
            if name not in NODES:
                continue
            if "shared" in self.differing.values() and name in BELOW_DISPUTED:
                continue
            made = {self.recomputed(name, session, commit.stored, fails=fails) for fails in (False, self.refuses)}
            if saw not in made:
                raise Broken(
                    "I4", f"a handler read {name} = {saw}, and the log before it makes it {sorted(made, key=str)}"
                )

    def recomputed(self, node: str, session: int, raw: frozenset[str], *, fails: bool) -> Value:
        """Recompute a node from the cells of the log, taking the documents in `raw` as they are stored."""

        def read(document: str) -> Value:
            if document not in NODES or document in raw:
                return self.values[document]
            return self.recomputed(document, session, raw, fails=fails)

        if node in raw or (node == OF_PIECE and self.values[RECORD] is None):
            return self.values[node]
        value = result_of(node, differs=self._differs(session), read=read)
        return FAILED if fails and node == DISPUTED and value == REFUSED else value

    # ---- telling -------------------------------------------------------------------------------------

    def next_ends(self, connection: Connection) -> list[int]:
        """The seqs up to which a Sync may be sent now."""
        ends = range(self.seq + 1) if not self.rules.one_message else self.ends
        limit = self.seq
        if self.rules.verdict_before_sync:
            for seq in range(connection.seq + 1, self.seq + 1):
                session, number = self.owners[seq]
                if session == connection.session and number > connection.answered:
                    limit = seq - 1
                    break
        allowed = [end for end in ends if connection.seq < end <= limit]
        return allowed or ([connection.seq] if connection.fetched else [])

    def sync(self, connection: Connection, end: int) -> Sync:
        """Compose a Sync with the net differences since the last one, and send it."""
        before, after = self.moments[connection.seq].values, self.moments[end]
        here = [doc for doc in DOCUMENTS if doc not in connection.aside]
        changed = [doc for doc in here if before[doc] != after.values[doc] or doc in connection.fetched]
        told = here if self.rules.seqs_of_unchanged else changed
        connection.seq = end
        fetched, connection.fetched = connection.fetched, frozenset()
        return Sync(
            end,
            tuple((doc, after.values[doc]) for doc in changed),
            tuple((doc, after.origins[doc]) for doc in here if doc in after.origins),
            tuple((doc, after.origins[doc].seq) for doc in told if doc in after.origins),
            fetched,
        )

    def crash(self) -> None:
        """Lose the answers of messages of which nothing was accepted (rejections are not logged)."""
        for key, (message, verdict) in list(self.answers.items()):
            if not any(verdict.commits) and not verdict.wave:
                del self.answers[key]
            elif not self.rules.mask_stored:
                fates = (Fate.ACCEPTED,) * len(verdict.fates)
                self.answers[key] = message, verdict._replace(fates=fates, wave=verdict.wave or self.seq)
