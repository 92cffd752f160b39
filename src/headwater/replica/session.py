"""The session: the replica's side of the protocol with an engine. Does no input or output.

The transport calls `connected`, `receive` and `lost`, and sends the messages in `outgoing`. A session outlives its
connections: commits that were sent without a verdict are replayed byte for byte; layers that were never sent are
reverted, and their authors commit again. The session acknowledges the messages that it took in, so that the engine can
forget them.

Commits of authors are sent when they are made. Results of nodes travel as waves, which `Replica.compose_wave` makes
when `flush` is called: after a slice of the scheduler, and never while a commit is being made, because then the nodes
that read its writes are not marked yet. Commits of one session are sent in the order of their numbers, so that a wave
waits until no commit of an author is waiting.

`LogPosition` is the part of the log that the session knows, and that it names when it resumes on another connection. A
log may have been replaced meanwhile by an older state of it, as by restoring a backup, and have grown past the seq that
was seen here: then neither the shown values nor the accepted commits are in it, although every number looks right. So
the engine names its log wherever it tells its end (`chain`), and a session repeats the last name that it received.
`LogPosition` never decides the fate of a session whose log is another one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final

from headwater.data.address import DocKey
from headwater.data.path import Path
from headwater.data.value import size_of
from headwater.errors import HeadwaterError, LoadError, ProtocolError, SessionExpiredError
from headwater.protocol.commit import Commit, WellFormed
from headwater.protocol.messages import (
    VERSION,
    Ack,
    Bye,
    FromEngine,
    FromReplica,
    Hello,
    Open,
    Opened,
    Problem,
    Query,
    Renew,
    Renewed,
    Sync,
    Transact,
    Verdicts,
    Watched,
    Welcome,
)
from headwater.protocol.verdict import Accepted, Conflict, Rejected, Rejection, RuleRefused
from headwater.replica.feed import ignore
from headwater.replica.observation_queue import ObservationQueue
from headwater.replica.pending import Fate, Layer
from headwater.replica.queries import Queries, Reply
from headwater.replica.replica import Replica
from headwater.replica.tier import SentWave
from headwater.replica.watches import Watches


def size_of_commit(commit: Commit) -> int:
    """Return the approximate size of a commit on the wire, in bytes."""
    size = 64
    for read in commit.reads:
        size += 40 + len(read.doc.id) + 12 * len(read.layers)
        if read.path:
            size += _size_of_path(read.path)
    for doc, path in commit.provenance.causes:
        size += 16 + len(doc.id) + (_size_of_path(path) if path else 0)
    for result in commit.results:
        size += 24 + len(result.provenance.node) + len(result.provenance.fingerprint) + 4 * len(result.reads)
        for doc, path in result.provenance.causes:
            size += 16 + len(doc.id) + (_size_of_path(path) if path else 0)
    for operation in commit.operations:
        size += 32 + len(operation.doc.id)
        for patch in operation.patches:
            size += 16 + (_size_of_path(patch.path) if patch.path else 0) + size_of(patch.arg)
    for event in commit.events:
        size += 64 + size_of(event.payload)
    for handled in commit.handled:
        size += 8 + len(handled)
    for record in commit.records:
        size += 64 + size_of(record.payload)
    for declared in commit.declared:
        size += 32 + len(declared.reaction) + len(declared.topic)
    return size


def _size_of_path(path: Path) -> int:
    size = 0
    for step in path:
        size += 4 + len(step) if type(step) is str else 8
    return size


EXPIRED: Final = frozenset({"session_gone", "stale_token", "revoked"})
"""Codes of problems after which this session cannot be resumed."""


class LogPosition:
    """The log as the session last received it: a seq with its name there, and the last own commit that was accepted."""

    __slots__ = ("_chain", "_landed", "_seq")

    def __init__(self) -> None:
        self._seq = 0
        self._chain: int | None = None
        self._landed = (0, 0)  # the local_seq and the seq of the last accepted own commit

    def heard(self, seq: int, chain: int | None) -> None:
        self._seq, self._chain = seq, chain

    def accepted(self, local_seq: int, seq: int) -> None:
        self._landed = max(self._landed, (local_seq, seq))

    def chain_at(self, seq: int) -> int | None:
        """Return the name of the log at the shown seq, or None if no engine has told it."""
        return self._chain if seq == self._seq else None

    def sent(self, commits: Iterable[Layer | SentWave], seq: int) -> tuple[int, ...]:
        """Return the commits to ask for: those without a verdict, and the last accepted one if it is not shown yet."""
        numbers = {each.local_seq for each in commits}
        return tuple(sorted(numbers | {self._landed[0]} if self._landed[1] > seq else numbers))

    def broken_promise(self, message: Opened, seq: int) -> Problem | None:
        """Return a problem if an accepted commit is not at its seq: this is another log than the one that took it."""
        if self._landed[1] <= seq or self._landed in message.landed:
            return None
        return Problem(
            "session_gone",
            f"commit {self._landed[0]} was accepted at seq {self._landed[1]}, and is not in the log any more. The "
            "server was given an older state of it, as by restoring a backup. Open a new session.",
        )


def replayed(commits: Iterable[Layer | SentWave]) -> Iterator[tuple[Commit, ...]]:
    """Yield the frames that were on the wire, byte for byte (C10). A frame stays whole: its commits name each other."""
    frame: list[Layer | SentWave] = []
    # fault resuming.replays_reversed: for sent in [*commits][::-1]:
    for sent in commits:
        # fault resuming.waves_split: if frame:
        if frame and sent.frame != frame[0].frame:
            yield tuple([other.commit for other in frame])
            frame = []
        # fault+ resuming.renumbered: commit = sent.commit.__replace__(local_seq=sent.local_seq + 999)
        # fault+ resuming.renumbered: sent = SentWave(commit, (), {})
        frame.append(sent)
    if frame:
        yield tuple([other.commit for other in frame])


CAPABILITIES: Final = ("waves", "follow")


class LinkState(Enum):
    """The state of the connection."""

    DOWN = "down"
    GREETING = "greeting"
    OPENING = "opening"
    UP = "up"
    GONE = "gone"  # the session is over, and cannot be resumed


class Session:
    """One session of a replica in a space, over any number of connections."""

    __slots__ = (
        "_acked",
        "_following",
        "_heard",
        "_held",
        "_keeps_derived",
        "_last_frame",
        "_last_frame_bytes",
        "_new_token",
        "_resume",
        "_retried",
        "_token",
        "_watches",
        "_wave",
        "key",
        "link",
        "on_error",
        "on_load_failed",
        "on_released",
        "outgoing",
        "queries",
        "replica",
        "runs",
        "seen",
        "space",
        "unacknowledged",
    )

    def __init__(
        self,
        replica: Replica,
        *,
        space: str,
        key: str,
        new_token: Callable[[], str],
        token: str = "",
        keeps_derived: bool = False,
    ) -> None:
        """`keeps_derived`: results and derived commits that are refused for access stay local."""
        self.replica = replica
        self.space = space
        self.key = key
        self.link = LinkState.DOWN
        self._keeps_derived = keeps_derived
        self.outgoing: deque[FromReplica] = deque()
        self.on_error: Callable[[HeadwaterError], object] = _unheard
        self.on_load_failed: Callable[[tuple[DocKey, ...], LoadError], object] = _unheard_load
        self.on_released: Callable[[], object] = ignore  # a held commit may be sent now: the listener calls `flush`
        self._token = token
        self._new_token = new_token
        self._resume = ""  # the token that the last answered Open chose
        self._following = ""  # the token that the unanswered Open chose; repeated until it is answered
        self._retried = False
        self._acked = 0  # the number that the engine was told
        self._heard = 0  # verdicts up to here have arrived
        self.unacknowledged = 0  # messages that were taken in; the caller decides when to acknowledge them
        self.seen = LogPosition()
        self._wave: list[Layer] = []
        self._last_frame: Transact | None = None  # further commits join it until it is taken from `outgoing`
        self._last_frame_bytes = 0
        self._held: dict[Layer, list[Layer]] = {}  # undecided commits of other spaces: the layers that wait for each
        self._watches = Watches(replica, self._say)
        self.runs = ObservationQueue(replica.limits)
        self.queries = Queries(self._say, self._watches.new_number, replica.limits.queries)
        replica.on_layer = self._queue_layer

    # ---- the connection ----------------------------------------------------------------------------

    def connected(self) -> None:
        """Greet the engine on a new connection. Messages that an earlier connection did not send are dropped."""
        if self.link is LinkState.GONE:
            raise SessionExpiredError(f"session {self.key!r} is over. Open a new one.")
        self.queries.fail("the connection was replaced")
        self.outgoing.clear()
        self.unacknowledged = 0
        self._wave.clear()
        self.link = LinkState.GREETING
        self.outgoing.append(Hello((VERSION,), CAPABILITIES, self._token))

    def renew(self, token: str) -> None:
        """Use another access token from now on: on this connection, if there is one, and on every later one."""
        # fault session.renewed_token_forgotten: pass
        self._token = token
        # fault session.renewed_token_not_sent: if False:
        if self.link in (LinkState.GREETING, LinkState.OPENING, LinkState.UP):
            self.outgoing.append(Renew(token))

    def lost(self) -> None:
        """Take note that the connection is gone. The replica keeps working on the documents that are here."""
        if self.link is not LinkState.GONE:
            self.link = LinkState.DOWN
        self.outgoing.clear()
        self.queries.fail("the connection was lost")

    def close(self) -> None:
        """End the session: every verdict is here, and no commit will be replayed."""
        if not self.replica.is_confirmed():
            raise ProtocolError(f"session {self.key!r} still has commits without an end")
        if self.link is LinkState.UP:
            self.outgoing.append(Bye(self._heard))
        self.link = LinkState.GONE

    def receive(self, message: FromEngine) -> None:
        """Apply one message. After a ProtocolError, the caller should close the connection and make a new one."""
        match message:
            case Welcome():
                self._greeted(message)
            case Opened():
                self._opened(message)
            case Verdicts(verdicts):
                self._expect_up(message)
                self._verdicts(verdicts)
                if self._wave:
                    self._send_layers()  # there is room on the wire again
            case Watched():
                self._expect_up(message)
                if self._watches.arrived(message):
                    self.seen.heard(message.seq, message.chain)
                    self.unacknowledged += 1
            case Sync():
                self._expect_up(message)
                self.replica.integrate(message)
                self.seen.heard(message.seq, message.chain)
                self._watches.followed(message)
                self.unacknowledged += 1
            case Renewed():
                pass  # No state depends on it: the next connection sends the new token in any case.
            case Problem():
                self._problem(message)
            case _:
                self.queries.answered(message.id, message)
        if self.replica.feed.errors:
            self.replica.report()

    def _expect_up(self, message: FromEngine) -> None:
        if self.link is not LinkState.UP:
            raise ProtocolError(f"the engine sent {type(message).__name__} to a session that is {self.link.value}")

    def _greeted(self, message: Welcome) -> None:
        if self.link is not LinkState.GREETING:
            raise ProtocolError("the engine greeted twice")
        if message.version != VERSION:
            raise ProtocolError(f"the engine speaks version {message.version} of the protocol, not {VERSION}")
        self.link = LinkState.OPENING
        self._retried = False
        self._open()

    def _open(self) -> None:
        """Ask for the session. An unanswered Open is repeated with the same token: the engine may have received it."""
        seen = self.replica.confirmed.seq
        self._following = self._following or self._new_token()
        self.outgoing.append(
            Open(
                self.space,
                self.key,
                self._resume,
                self._following,
                self.replica.branch,
                seen,
                self.seen.sent(self._undecided(), seen),
                self._releasable(),
                self._watches.numbers(),
                self.seen.chain_at(seen),
            )
        )

    def _opened(self, message: Opened) -> None:
        if self.link is not LinkState.OPENING:
            raise ProtocolError("the engine opened a session that was not asked for")
        if (broken := self.seen.broken_promise(message, self.replica.confirmed.seq)) is not None:
            self._expire(broken)
            return
        self._resume, self._following = self._following, ""
        self.replica.skip_to(message.judged + 1)
        landed = dict(message.landed)
        # C5: replays go out first, before any message that the callbacks below cause.
        # fault session.nothing_replayed: sent = ()
        sent = replayed([commit for commit in self._undecided() if commit.local_seq not in landed])
        self.outgoing.extend([Transact(frame, tuple(self.runs.of_commits(frame))) for frame in sent])
        self.link = LinkState.UP
        self._watches.reopened(message)
        self.queries.connected()
        # C6: accepted commits are known before a state that includes them is shown.
        # fault waves.resumed_without_fates: lost = {}
        lost = dict(message.superseded)
        for local_seq, seq in landed.items():
            self._heard = max(self._heard, local_seq)
            wave = self.replica.tier.get(local_seq)
            if wave is None:
                self._accepted(local_seq, seq)
            else:
                self._wave_judged(wave, Accepted(local_seq, seq, True, lost.get(local_seq, ())))
        self.replica.revert_unsent()
        self.runs.only([commit.local_seq for commit in self._undecided()])
        if not self.replica.may_write:
            self.replica.may_write = True  # The right may have been granted meanwhile: the next verdict tells.
            # fault session.local_layers_stay: pass
            self.replica.revert_local()

    # ---- writing -----------------------------------------------------------------------------------

    def _queue_layer(self, layer: Layer) -> None:
        """Take in a new layer. Derived commits of one pass are sent together; any other commit is sent at once."""
        derived = layer.is_derived()
        if derived and not self.replica.may_write:
            self.replica.pending.keep_here(layer)
            return
        self._wave.append(layer)
        for each in layer.waits or ():
            held = self._held.get(each)
            if held is not None:
                held.append(layer)
            else:
                self._held[each] = [layer]
                each.settled = [*(each.settled or ()), self._settled_elsewhere]
        if not derived:
            self._send_layers()

    def _undecided(self) -> list[Layer | SentWave]:
        """Return the commits on the wire without a verdict, in order."""
        layers, wave = self.replica.pending.undecided(), self.replica.tier.on_wire()
        return sorted([*layers, *([] if wave is None else [wave])], key=lambda each: each.local_seq)

    def _settled_elsewhere(self, base: Layer, rejection: Rejection | None) -> None:
        """Release or reject the layers that stand on a commit of another space, which has its verdict now.

        After an acceptance, the next `flush` sends the layers that wait for no other commit. After a rejection, the
        layers show effects of a write that never was. They were not sent, and are made again.
        """
        held = [layer for layer in self._held.pop(base) if layer.fate is Fate.QUEUED]
        # fault across.base_rejected_unnoticed: if False:
        if rejection is not None:
            self.replica.all_rejected({layer.local_seq: Conflict(dead_layers=(layer.local_seq,)) for layer in held})
            self.replica.report()
            return
        for layer in held:
            if layer.waits is not None:
                layer.waits.discard(base)
        if any(not layer.is_held() for layer in held):
            self.on_released()

    def flush(self) -> None:
        """Send the waiting layers, and a wave of results if none is under way. Not to be called inside a commit."""
        self._send_layers()
        if self.link is LinkState.UP:
            if not self._wave:
                self._send_results()
            self.runs.settle(self.replica, *[each.local_seq for each in self._wave[:1]])
            if self.runs.are_many:
                self.tell_runs()

    def has_unsent(self) -> bool:
        """True if a commit, a result or an observation waits for a `flush`."""
        return bool(self._wave) or self.replica.tier.is_due() or self.runs.has_drafts()

    def _send_results(self) -> None:
        """Send a wave. Its observations travel with it. A result that is too long is refused here."""
        limits = self.replica.limits
        if self.replica.pending.in_flight() >= limits.in_flight:
            return
        while (wave := self.replica.compose_wave()) is not None:
            # A result that is longer than a wave may be is alone in its wave.
            is_alone = len(wave.commit.results) == 1
            size = size_of_commit(wave.commit) if is_alone else wave.size
            self.runs.made_wave(wave)
            if size <= limits.commit_bytes or not is_alone:
                wave.frame = self._put_frame([wave.commit], size)
                return
            self._wave_judged(wave, Rejected(wave.local_seq, _too_long(size, limits.commit_bytes)))
            self.replica.report()

    def _send_layers(self) -> None:
        """Send the waiting layers.

        A commit that stands on undecided commits of other spaces waits for them, and later commits wait behind it:
        commits of a session are sent in the order in which they were made. A commit cannot wait for itself, since the
        commits that it stands on were made before it, in its own space or in another one.
        """
        if self.link is not LinkState.UP:
            self._wave.clear()  # these layers are never sent: they are reverted and made again on reconnection
            return
        limits = self.replica.limits
        room = max(limits.in_flight - self.replica.pending.in_flight(), 0) if self._wave else 0
        # I4: a value that was read of another space is committed there before this commit is sent.
        held = next((at for at, layer in enumerate(self._wave[:room]) if layer.is_held()), room)
        waiting, self._wave = self._wave[:held], self._wave[held:]
        for layer in waiting:
            if layer.fate is not Fate.QUEUED:
                continue  # C4: refused before it is sent
            size = size_of_commit(layer.commit)
            if size > limits.commit_bytes:
                self.replica.rejected(layer.local_seq, _too_long(size, limits.commit_bytes))
                continue
            # From now on its commit does not change: a replay repeats it.
            layer.send(self._put_frame([layer.commit], size))
            self.replica.pending.sent(layer)

    def tell_runs(self) -> None:
        """Send the observations of runs that changed nothing, if the commits that they stand on were sent."""
        if self.link is LinkState.UP:
            self.runs.settle(self.replica, *[each.local_seq for each in self._wave[:1]])
            if observed := self.runs.taken():
                self.outgoing.append(Transact((), observed))

    def _put_frame(self, commits: list[Commit], size: int) -> int:
        """Put commits on the wire, in the last frame if it was not taken from `outgoing` yet and has room for them.

        Returns the number of the frame, which is that of its first commit.
        """
        limits, outgoing, last = self.replica.limits, self.outgoing, self._last_frame
        if (
            last is not None
            and outgoing
            and outgoing[-1] is last
            and self._last_frame_bytes + size <= limits.frame_bytes
            and len(last.commits) + len(commits) <= limits.frame_commits
            and not self.runs.are_waiting  # They may stand on a commit of that frame, which has to be judged first.
        ):
            outgoing.pop()
            before, seen = last.commits, last.observations
            self._last_frame_bytes += size
        else:
            before, seen = (), ()
            self._last_frame_bytes = size
        observations = (*seen, *self.runs.taken_with(commits))
        # fault session.frames_not_trusted: frame = Transact((*before, *commits), observations)
        frame = Transact(WellFormed((*before, *commits)), observations)
        self._last_frame = frame
        outgoing.append(frame)
        return frame.commits[0].local_seq

    def _verdicts(self, verdicts: Iterable[Accepted | Rejected]) -> None:
        """Apply verdicts in order (C5). The verdict of a replayed commit may repeat an earlier one."""
        refused: dict[int, Rejection] = {}  # consecutive rejections, which are reverted in one step
        for verdict in verdicts:
            self._heard = max(self._heard, verdict.local_seq)
            wave = self.replica.tier.get(verdict.local_seq)
            if isinstance(verdict, Rejected) and wave is None:
                self.runs.ended(verdict.local_seq)
                refused[verdict.local_seq] = self._rejection(verdict)
                continue
            if refused:
                self.replica.all_rejected(refused)
                refused = {}
            if wave is not None:
                self._wave_judged(wave, verdict)
            elif isinstance(verdict, Accepted):
                self.runs.ended(verdict.local_seq)
                self._accepted(verdict.local_seq, verdict.seq)
        if refused:
            self.replica.all_rejected(refused)

    def _accepted(self, local_seq: int, seq: int) -> None:
        self.seen.accepted(local_seq, seq)
        self.replica.accepted(local_seq, seq)

    def _wave_judged(self, wave: SentWave, verdict: Accepted | Rejected) -> None:
        """Apply the verdict on a wave, result by result."""
        superseded: Sequence[int] = ()
        refused: dict[int, Rejection]
        if isinstance(verdict, Accepted):
            seq = newest = verdict.seq
            self.seen.accepted(verdict.local_seq, seq)
            superseded, refused = verdict.superseded, {**dict(verdict.refused)}
        else:
            seq = newest = 0
            refused = {**dict(verdict.refused)}
            every = range(len(wave.commit.results))
            if isinstance(verdict.rejection, Conflict):
                newest = max([collision.seq for collision in verdict.rejection.collisions], default=0)
                superseded = [place for place in every if place not in refused]
            else:
                refused = dict.fromkeys(every, verdict.rejection)
        # fault session.refusal_not_learned: is_reader = False
        is_reader = self._keeps_derived and any(map(_is_about_access, refused.values()))
        if is_reader:
            superseded, refused = [*superseded, *refused], {}
        self.runs.wave_ended(wave.local_seq, superseded)  # I7: the run of a refused result is not observed.
        self.replica.wave_judged(wave, seq, superseded, newest, refused)
        if is_reader:
            self.replica.keep_here()

    def _rejection(self, verdict: Rejected) -> Rejection:
        layer, rejection = self.replica.pending.get(verdict.local_seq), verdict.rejection
        refused = _is_about_access(rejection)
        # fault+ session.any_refusal_keeps_derived: if refused: self.replica.may_write = False
        if refused and self._keeps_derived and layer is not None and layer.is_derived():
            # Without the right to write, derived layers are local: the node runs again, and its commit is not sent.
            # fault session.refusal_not_learned: pass
            self.replica.keep_here()
            return Conflict(dead_layers=(verdict.local_seq,))
        return rejection

    def ready(self, conflict: Conflict) -> bool:
        """Return True if a retry is useful: every write that won against the commit is here."""
        newest = max((collision.seq for collision in conflict.collisions), default=0)
        # fault session.retries_too_early: return self.link is LinkState.UP
        return self.link is LinkState.UP and self.replica.confirmed.seq >= newest

    def acknowledge(self) -> None:
        """Acknowledge the messages that were taken in since the last acknowledgement, with one for all of them."""
        if self.unacknowledged and self.link is LinkState.UP:
            self.unacknowledged = 0
            self._acked = self._releasable()
            self.outgoing.append(Ack(self.replica.confirmed.seq, self._acked))

    def _releasable(self) -> int:
        """Return the number up to which no later commit will replay or name a commit.

        While many commits wait, a lower number is returned, which does no harm.
        """
        pending = self.replica.pending
        first_by_result = self.replica.tier.first_named()
        firsts = (pending.oldest(), first_by_result, self.replica.may_name(), self._heard + 1)
        oldest = min(n for n in firsts if n is not None)
        if oldest - 1 - self._acked <= pending.waiting() // 64 * 8:
            return self._acked
        # fault session.acknowledges_one_more: return max(min(oldest, pending.first_named() or oldest), self._acked)
        return max(min(oldest, pending.first_named() or oldest) - 1, self._acked)

    # ---- watching ----------------------------------------------------------------------------------

    def watch(self, docs: Iterable[DocKey], *, follow: bool = False, ahead: Iterable[DocKey] | None = None) -> None:
        """Ask for documents, and for every change of them (`Watches.watch`)."""
        self._watches.watch(docs, follow=follow, ahead=ahead)

    def unwatch(self, doc: DocKey) -> bool:
        """Stop watching a document, and drop it with those that came by following it. False: not possible now."""
        return self._watches.unwatch(doc)

    def is_loading(self) -> bool:
        return self._watches.is_loading()

    def loads(self) -> int:
        """Return the number of watches without an answer."""
        return self._watches.loads()

    @property
    def generation(self) -> int:
        """A number that rises when a load begins and when it ends."""
        return self._watches.generation

    def query(self, query: Query, reply: Reply) -> None:
        """Ask once for documents. `queries` has the other questions."""
        self.queries.ask(query, reply)

    def _say(self, message: FromReplica) -> bool:
        if self.link is LinkState.UP:
            self.outgoing.append(message)
        return self.link is LinkState.UP

    def _problem(self, message: Problem) -> None:
        error = ProtocolError(f"the engine refused: {message.message}")
        if (docs := self._watches.failed(message.id)) is not None:
            self.on_load_failed(docs, LoadError(message.message, code=message.code))
            return
        if self.queries.answered(message.id, LoadError(message.message, code=message.code)):
            return
        if message.code == "stale_token" and self.link is LinkState.OPENING and not self._retried:
            # The engine had received the Open whose answer was lost: the token that it chose is valid now.
            self._retried = True
            self._resume, self._following = self._following, ""
            self._open()
            return
        if message.code in EXPIRED or (message.code == "absent" and message.fatal and self.link is LinkState.OPENING):
            self._expire(message)  # The branch that it showed was deleted, or another client has the session.
            return
        self.on_error(error)
        if message.fatal:
            raise error

    def _expire(self, message: Problem) -> None:
        """End a session that cannot be resumed: its unanswered commits become failed intents, never new commits."""
        self.link = LinkState.GONE
        self.outgoing.clear()
        expired = SessionExpiredError(f"session {self.key!r} is gone: {message.message}")
        self.queries.fail("the session is gone")
        gone = RuleRefused("session_gone", f"session {self.key!r} is gone, and whether this commit landed is unknown")
        self.replica.all_rejected({layer.local_seq: gone for layer in self.replica.pending.undecided()})
        wave = self.replica.tier.on_wire()
        if wave is not None:
            self._wave_judged(wave, Rejected(wave.local_seq, Conflict()))
        self.replica.revert_unsent()
        self.on_error(expired)


def _is_about_access(rejection: Rejection) -> bool:
    return isinstance(rejection, RuleRefused) and rejection.rule == "access"


def _too_long(size: int, limit: int) -> RuleRefused:
    return RuleRefused("commit_bytes", f"it is about {size} bytes long; {limit} can be sent. Write less at once.")


def _unheard(error: HeadwaterError) -> None:
    raise error


def _unheard_load(docs: tuple[DocKey, ...], error: LoadError) -> None:
    raise error
