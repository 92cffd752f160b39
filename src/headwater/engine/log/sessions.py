"""Sessions: the writers of a space, the order of their commits, and the verdict on each commit.

A session numbers its commits; the number names the commit for ever (C10). Accepted commits are in the log. The most
recent ones are also kept here with the paths that they touched, and so are the most recent rejections. Memory is
bounded: an accepted commit that was evicted is found again in the log, and of an evicted rejection it is known that it
was a rejection. Upholds C5 and C10.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from hashlib import blake2b
from hmac import compare_digest
from typing import Final, NamedTuple

from headwater.data.address import NAME_LENGTH, DocKey
from headwater.data.patch import Touch
from headwater.data.value import MAX_INT
from headwater.engine.limits import Limits
from headwater.engine.log.log import Log, entries_of, local_seq_at
from headwater.engine.store.port import SessionRow, Store
from headwater.errors import ProtocolError
from headwater.protocol.commit import Commit, lost_results
from headwater.protocol.verdict import Conflict, Rejection

MERGES: Final = "merge of "
FOUNDER: Final = "founding of the space"
PAGES: Final = "page "  # The session of a page: only the server that made it writes with it.
WINDOWS: Final = "window "  # A session that an application names for a user; no connection opens it.
BESIDE: Final = "beside "  # A second session of a runtime; no connection opens it.
RESERVED: Final = (MERGES, "founding of ", PAGES, WINDOWS, BESIDE)


def merge_session(branch: str) -> str:
    """Return the key of the session of a branch's merges: they have their own, so that they can be told apart."""
    return MERGES + branch


def check_foreign(key: str) -> None:
    if key.startswith(RESERVED):
        listed = f"{', '.join(map(repr, RESERVED[:-1]))} or {RESERVED[-1]!r}"
        raise ProtocolError(f"session keys that begin with {listed} are the engine's own")


def token_digest(token: str) -> str:
    """Return the stored form of a session's token, so that reading the file does not give sessions away."""
    return blake2b(token.encode(), digest_size=16).hexdigest() if token else ""


def _foreign(key: str) -> str:
    """The refusal of a session: the same for a session of another user and for a wrong token."""
    # fault sessions.owner_told: return f"session {key!r} is not yours {__import__('sys')._getframe(1).f_lineno}"
    return f"session {key!r} is not yours, or its token was used before. Open one under another key."


class LandedWave(NamedTuple):
    """What of a wave was accepted: the documents of these results. `lost` are the places of the others."""

    docs: frozenset[DocKey]
    lost: tuple[int, ...] = ()


def landed_wave(commit: Commit) -> LandedWave | None:
    """What of a wave was accepted, as the log keeps it. None: the commit is no wave."""
    if not commit.results:
        return None
    # fault waves.fates_forgotten: return LandedWave(frozenset([operation.doc for operation in commit.operations]))
    return LandedWave(frozenset([operation.doc for operation in commit.operations]), lost_results(commit))


class AcceptedCommit(NamedTuple):
    """An accepted commit: its seq, its branch, and the paths that it touched in each document."""

    seq: int
    branch: int
    touched: list[tuple[DocKey, tuple[Touch, ...]]]
    wave: LandedWave | None = None


class LoggedCommit(NamedTuple):
    """An accepted commit found in the log: where, and the bytes that a replay must repeat."""

    session: int
    seq: int
    branch: int
    encoded: bytes


class StoredSession:
    """The engine's memory of one session."""

    __slots__ = (
        "acked",
        "forgotten_seq",
        "id",
        "key",
        "landed",
        "landed_documents",
        "landed_in",
        "last",
        "principal",
        "refused",
        "row",
        "unstored_refusals",
    )

    def __init__(self, row: SessionRow, last: int, forgotten_seq: int) -> None:
        self.row = row
        self.id = row.session
        self.key = row.key
        self.principal = row.principal
        self.last = last  # highest local_seq that has a verdict
        self.forgotten_seq = forgotten_seq  # accepted commits up to this seq are only in the log
        self.unstored_refusals = False
        self.acked = row.acked  # as last received; the row follows now and then
        self.landed: dict[int, AcceptedCommit] = {}  # in order, since local_seq and seq rise together
        self.landed_documents = 0  # how many they touched, each counted for every commit
        self.landed_in: dict[DocKey, deque[int]] = {}  # the same by document, so that a read looks at its own only
        self.refused: OrderedDict[int, Rejection] = OrderedDict()


NO_SESSION: Final = StoredSession(SessionRow(0, "", "", 0, False, 0, "", 0), 0, 0)
"""The session that asks about reads without layers: it has no commits of its own."""


class Sessions:
    """The sessions of one space."""

    __slots__ = ("_by_key", "_limits", "_log", "_next", "_row", "_store")

    def __init__(self, store: Store, log: Log, limits: Limits) -> None:
        self._store = store
        self._log = log
        self._limits = limits
        self.forget()

    def forget(self) -> None:
        """Drop everything kept in memory, so that the disk decides."""
        self._by_key: OrderedDict[str, StoredSession] = OrderedDict()
        self._row: dict[int, LoggedCommit] = {}  # the log row that was decoded last, by local_seq
        self._next = self._store.last_session() + 1

    def forget_unstored(self) -> None:
        """A transaction was rolled back: sessions it made do not exist."""
        self._next = self._store.last_session() + 1
        for key in [key for key, session in self._by_key.items() if session.id >= self._next]:
            del self._by_key[key]

    def forget_row(self) -> None:
        """Drop the log row that was decoded last: a compaction may have removed it."""
        # fault sessions.compaction_forgets_commits: self.forget()
        self._row = {}

    def get_foreign(self, key: str) -> StoredSession:
        """Return the session of a client; raises for one of the engine's own."""
        check_foreign(key)
        return self.get(key)

    def get(self, key: str) -> StoredSession:
        session = self._by_key.get(key)
        if session is not None:
            self._by_key.move_to_end(key)
            return session
        row = self._store.session_of(key)
        if row is None:
            raise ProtocolError(f"there is no session {key!r} in this space. Open it first.")
        if row.closed:
            raise ProtocolError(f"session {key!r} was closed. Open a new one under another key.")
        return self._remember(row)

    def open_own(self, key: str, now_us: int) -> StoredSession:
        """A session of the engine itself: one per branch for its merges, one that founds the space."""
        return self._open(key, "", now_us)

    def open(self, key: str, principal: str, now_us: int) -> StoredSession:
        """Make or find a session. The caller holds an open store transaction."""
        check_foreign(key)
        if not 0 < len(key) <= NAME_LENGTH:
            raise ProtocolError(f"a session key has 1 to {NAME_LENGTH} characters, not {len(key)}")
        return self._open(key, principal, now_us)

    def _open(self, key: str, principal: str, now_us: int) -> StoredSession:
        row = self._store.session_of(key)
        if row is None:
            row = SessionRow(self._next, key, principal, now_us, False, 0, "", 0)
            self._next += 1
            self._store.put_session(row)
        # fault sessions.foreign_session_opened: elif False:
        elif row.principal != principal:
            raise ProtocolError(_foreign(key))
        elif row.closed:
            raise ProtocolError(f"session {key!r} was closed. Open a new one under another key.")
        return self._by_key.get(key) or self._remember(row)

    def take_over(self, session: StoredSession, resume: str, following: str) -> None:
        """Let a connection resume the session, with the token that the last one chose; it names the next token.

        A token is good once: the second connection that presents it is refused, whether or not it is the thief.
        """
        # Before the first commit of a space a restart forgets its sessions. One whose row this very Open has made, and
        # that had nothing judged, has nothing that a token would guard.
        # fault sessions.any_token_at_restart: unknown = not session.row.resume or session.last and not session.landed
        unknown = not session.row.resume and not session.last and not session.landed
        # fault sessions.any_token_accepted: if False:
        # fault sessions.token_not_rotated: if False:
        if not unknown and not compare_digest(session.row.resume, token_digest(resume)):
            raise ProtocolError(_foreign(session.key))
        # fault sessions.token_not_rotated: session.row = session.row._replace(resume=session.row.resume or following)
        session.row = session.row._replace(resume=token_digest(following))
        self._store.put_session(session.row)

    def close(self, session: StoredSession, acked: int) -> None:
        """The client knows every verdict and will replay nothing. Its keys may be compacted away."""
        acked = max(min(acked, session.last), session.row.acked)
        session.row = session.row._replace(closed=True, judged=max(session.last, acked), acked=acked)
        self._store.put_session(session.row)
        self._by_key.pop(session.key, None)

    def acknowledge(self, session: StoredSession, local_seq: int) -> None:
        """The client has the verdicts up to `local_seq`, and no commit it sends will name those again."""
        if not 0 <= local_seq <= MAX_INT:
            raise ProtocolError(f"session {session.key!r} acknowledges commit {local_seq}, which cannot exist")
        if local_seq > session.row.acked:
            # C6: a verdict the client has is a verdict, even if a restart here forgot that it was a no.
            # fault sessions.acknowledged_without_turn:
            session.last = max(session.last, local_seq)
            # fault sessions.acknowledged_without_turn: session.row = session.row._replace(acked=local_seq)
            session.row = session.row._replace(acked=local_seq, judged=session.last)
            self._store.put_session(session.row)

    def note_acknowledged(self, session: StoredSession, local_seq: int) -> None:
        """The same without a transaction of its own. Losing it is harmless: keys are kept longer."""
        # fault sessions.acks_ahead: session.acked, session.unstored_refusals = max(session.acked, local_seq + 1), True
        session.acked = max(session.acked, min(local_seq, session.last))

    def keep_judged(self, session: StoredSession) -> None:
        """Store rejections and acknowledgements. They ride along with an accepted frame, when there is reason to."""
        # fault sessions.rejections_not_stored: if False:
        if session.unstored_refusals or session.acked >= session.row.acked + self._limits.session_acks:
            session.unstored_refusals = False
            # fault sessions.refusals_not_stored: pass
            session.row = session.row._replace(judged=session.last, acked=max(session.row.acked, session.acked))
            self._store.put_session(session.row)

    def has_unstored(self) -> bool:
        """Whether rejections were given that nothing has stored yet. A space without a commit stores nothing."""
        return self._log.last_seq > 0 and any(session.unstored_refusals for session in self._by_key.values())

    def keep_all_judged(self) -> None:
        """Store all of them when the engine closes, so that a repeated question gets the same verdict (C6)."""
        for session in self._by_key.values():
            if session.unstored_refusals:
                self.keep_judged(session)

    def key_of(self, session: int) -> str:
        row = self._store.session(session)
        return row.key if row is not None else ""

    def _remember(self, row: SessionRow) -> StoredSession:
        last = max(row.acked, row.judged)
        # fault sessions.log_not_searched: newest = None
        newest = self._store.row_of_session(row.session, 2**62)
        if newest is not None:
            last = max(last, newest.local_last)
        session = StoredSession(row, last, self._log.last_seq)
        self._by_key[row.key] = session
        return session

    def evict(self) -> bool:
        """Evict sessions past the limit, inside the open transaction. True: a row had to be stored for it."""
        stored = False
        while len(self._by_key) > self._limits.cached_sessions:
            # fault sessions.latest_evicted: _, session = self._by_key.popitem()
            _, session = self._by_key.popitem(last=False)
            # fault sessions.evicted_unstored: if False:
            # fault sessions.eviction_forgets_refusals: if False:
            if session.unstored_refusals:
                # C6: a verdict that was given is never given differently.
                self._store.put_session(session.row._replace(judged=session.last))
                stored = True
        return stored

    # ---- verdicts ----------------------------------------------------------------------------------

    def accept(self, session: StoredSession, local_seq: int, landed: AcceptedCommit) -> None:
        session.last = local_seq
        session.landed[local_seq] = landed
        session.landed_documents += len(landed.touched)
        for doc, _ in landed.touched:
            wrote = session.landed_in.get(doc)
            if wrote is None:
                session.landed_in[doc] = deque((local_seq,))
            elif wrote[-1] != local_seq:
                wrote.append(local_seq)

    def trim(self, session: StoredSession) -> None:
        """Forget the oldest accepted commits past the limits: their frames are closed, so the log has them."""
        commits, documents = self._limits.session_commits, self._limits.session_documents
        if len(session.landed) > 2 * commits or session.landed_documents > 2 * documents:
            for oldest in list(session.landed)[:-1]:
                if len(session.landed) <= commits and session.landed_documents <= documents:
                    break
                landed = session.landed.pop(oldest)
                session.landed_documents -= len(landed.touched)
                # fault sessions.forgotten_seq_not_noted: pass
                session.forgotten_seq = max(session.forgotten_seq, landed.seq)
                for doc, _ in landed.touched:
                    wrote = session.landed_in.get(doc)
                    if wrote and wrote[0] == oldest:
                        wrote.popleft()
                        if not wrote:
                            del session.landed_in[doc]

    def refuse(self, session: StoredSession, local_seq: int, rejection: Rejection) -> None:
        session.last = local_seq
        session.unstored_refusals = True
        most = self._limits.session_collisions
        if isinstance(rejection, Conflict) and len(rejection.collisions) > most:
            few = rejection.collisions[:most]
            rejection = Conflict(few, rejection.dead_layers, rejection.basis_expired)
        session.refused[local_seq] = rejection
        if len(session.refused) > self._limits.session_rejections:
            session.refused.popitem(last=False)

    def place_of(self, session: StoredSession, local_seq: int) -> tuple[int, int] | None:
        """The seq and branch of an accepted commit of this session, or None if it was not accepted."""
        landed = session.landed.get(local_seq)
        if landed is not None:
            return landed.seq, landed.branch
        # fault sessions.places_in_log_forgotten: if True:
        if local_seq in session.refused:
            return None
        found = self.logged(session, local_seq)
        return (found.seq, found.branch) if found is not None else None

    def wave_of(self, session: StoredSession, local_seq: int) -> LandedWave | None:
        """What of a wave was accepted. None: nothing, or the commit with that number is no wave."""
        landed = session.landed.get(local_seq)
        if landed is not None:
            return landed.wave
        found = None if local_seq in session.refused else self.logged(session, local_seq)
        return None if found is None else landed_wave(self._log.decoded(found.seq, found.encoded))

    def logged(self, session: StoredSession, local_seq: int) -> LoggedCommit | None:
        """An accepted commit as the log has it."""
        # fault+ sessions.log_not_searched: return None
        if local_seq not in self._row:
            row = self._store.row_of_session(session.id, local_seq)
            if row is None or row.local_last < local_seq:
                return None
            # A whole row at once: a replayed wave asks for its commits one after the other.
            self._row = {}
            for place, entry in enumerate(entries_of(row)):
                raw, seq = bytes(entry.commit), row.seq + place
                self._row[local_seq_at(seq, raw)] = LoggedCommit(session.id, seq, row.branch, raw)
        found = self._row.get(local_seq)
        if found is not None and found.session != session.id:
            self._row = {}
            return self.logged(session, local_seq)
        return found
