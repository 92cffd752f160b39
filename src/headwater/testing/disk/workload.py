"""The workload that a crash interrupts: a seeded script of several sessions, branches and leases on one space.

`Script` makes the steps. A step is plain data, so that the same step can be given to a recovered engine again. Every
rejection in the script is final: a commit that was rejected once is rejected however often it is sent again, so that a
crash cannot turn it into an acceptance.

`observed_of` makes the observations of a frame: runs that made commits, and runs that changed nothing. It draws
nothing, so that a workload with observations is otherwise the one without. Several sessions run some of the nodes,
pieces get new generations, nodes are removed, and some documents that nodes read are written later, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headwater.clock import Random
from headwater.data.address import Depth, DocKey
from headwater.data.patch import Patch, add, add_unique, append, increment, remove, replace
from headwater.engine import Limits, Outcome
from headwater.protocol.commit import (
    MAIN,
    Commit,
    Declared,
    EntityAbsent,
    Frame,
    LeaseHeld,
    Operation,
    OriginCommitted,
    Precondition,
    Provenance,
    Read,
    SentEvent,
    TopicRecord,
)
from headwater.protocol.observations import About, Footprint, NodeKey, Observation, Touched, encode_part
from headwater.protocol.verdict import Accepted
from headwater.testing.disk.steps import (
    JOB,
    LEASE,
    PRINTER,
    Acknowledge,
    Acquire,
    Compact,
    DeleteBranch,
    Fork,
    Frames,
    Listen,
    LookThrough,
    MergeBranch,
    OpenSession,
    Release,
    Restart,
    Step,
)

COUNTS: Final = DocKey("space", "counts")


def token_of(claim: int) -> int:
    """The token of the first claim, or of the second, which comes after a restart: the first one of an epoch."""
    return claim * 2**32 + 1


def observed_of(key: str, frame: Frame, last_seq: int, created: Sequence[DocKey]) -> tuple[Observation, ...]:
    """Runs that made every other commit of a frame, and one in front of it that changed nothing."""
    first = frame[0].local_seq
    runs = [
        _run(f"{key}-{commit.local_seq % 3}", commit, last_seq, created) for commit in frame if commit.local_seq % 2
    ]
    quiet = _run(f"shared-{first % 4}", Commit(first), last_seq, created)
    return (msgspec.structs.replace(quiet, local_seq=0, gone=first % 11 == 0), *runs)


def _run(piece: str, commit: Commit, last_seq: int, created: Sequence[DocKey]) -> Observation:
    number = commit.local_seq
    node = NodeKey(piece, 1 + number // 30, f"member-{number % 5}", f"key-{number}" if number % 7 == 0 else "")
    docs = (COUNTS, DocKey("space", "draft-notes"), DocKey("space", f"made-ann-{number + 3}"), *created[-1:])
    reads = tuple(Touched(doc, ("by",) if doc == COUNTS else ()) for doc in docs[number % 2 :])
    return Observation(
        encode_part(About(node, "computed", f"code-{number // 20}")),
        encode_part(Footprint(reads, ("c1", "c2") if number % 3 else ())),
        number,
        number,
        last_seq,
        cause=0,
        took_us=number,
    )


LIMITS: Final = Limits(
    snapshot_patches=3,
    snapshots_fresh=3,
    marks_patches=6,
    heads_commits=20,
    cache_bytes=24_000,  # so that documents are read from the disk again and again
    session_commits=16,
    session_rejections=8,
    marks_per_document=48,
)
"""Small, so that a workload of 200 commits meets snapshots, thinning, forgotten sessions and merged marks."""

WRITERS: Final = ("ann", "bob", "cid")
LINES: Final = DocKey("space", "lines")
SETTINGS: Final = DocKey("user:ann", "settings")


class Script:
    """Makes the steps one after the other, as clients would who hear every answer."""

    __slots__ = (
        "_accepted",
        "_branches",
        "_commits",
        "_created",
        "_due",
        "_last_seq",
        "_local",
        "_makers",
        "_random",
        "_sent",
        "_token",
    )

    def __init__(self, random: Random, commits: int) -> None:
        self._random = random
        self._commits = commits
        self._accepted = 0
        self._last_seq = 0
        self._local = dict.fromkeys(WRITERS, 0)
        self._sent: dict[str, list[Frame]] = {key: [] for key in WRITERS}
        self._created: list[DocKey] = []
        self._branches: list[str] = []
        self._token = token_of(1)
        self._due = self._milestones()
        # More entries: more often. About a fifth of them is refused.
        self._makers: list[Callable[[str], Frame]] = [
            *(self._intent, self._intent, self._edit, self._edit, self._wave, self._wave, self._create),
            *(self._create, self._message, self._leased, self._branch_edit, self._branch_edit),
            *(self._follow, self._stale, self._doomed_wave, self._refused, self._delete, self._again),
        ]

    def next(self, last_seq: int) -> Step | None:
        """The next step, or None when enough was accepted. `last_seq` is where the log ends now."""
        self._last_seq = last_seq
        while self._due and self._accepted * 100 >= self._due[0][0] * self._commits:
            return self._due.pop(0)[1]()
        if self._accepted >= self._commits:
            return None
        batch = tuple(self._frame() for _ in range(self._random.choice((1, 1, 2, 4))))
        return Frames(batch, tuple(observed_of(key, frame, self._last_seq, self._created) for key, frame in batch))

    def heard(self, outcomes: list[Outcome]) -> None:
        """Take in the answers to the last step."""
        for outcome in outcomes:
            if not isinstance(outcome, Exception):
                self._accepted += sum(isinstance(v, Accepted) and not v.replayed for v in outcome)

    def _milestones(self) -> list[tuple[int, Callable[[], Step]]]:
        """Return the steps that are due when so many percent of the commits were accepted."""
        opening: list[tuple[int, Callable[[], Step]]] = [
            *((0, lambda key=key: OpenSession(key)) for key in WRITERS),
            (0, lambda: Listen("print", "placed", "now")),
            (0, lambda: Listen(PRINTER, JOB.topic, "now")),
            (0, self._first),
            (0, lambda: Acquire("ann", self._token)),
        ]
        return [
            *opening,
            (10, lambda: self._forked("draft", MAIN)),
            (25, Restart),
            (35, lambda: self._forked("side", MAIN)),
            (40, lambda: self._forked("deep", "draft")),
            (45, lambda: Listen("count", "seen", "beginning")),
            (46, lambda: LookThrough("count")),
            (50, lambda: self._leaving("draft", MergeBranch("draft"), stays=True)),
            (55, lambda: Release(self._token)),
            (55, self._acquired),
            (65, lambda: self._leaving("side", DeleteBranch("side"))),
            (70, lambda: Acknowledge("bob", self._local["bob"])),
            (72, lambda: self._leaving("deep", MergeBranch("deep"), stays=True)),
            (78, lambda: self._leaving("deep", DeleteBranch("deep"))),
            (82, lambda: self._compacting("draft")),
            (82, lambda: Compact(self._last_seq // 2)),
            (90, Restart),
        ]

    def _forked(self, name: str, parent: str) -> Step:
        self._branches.append(name)
        return Fork(name, parent)

    def _leaving(self, name: str, step: Step, *, stays: bool = False) -> Step:
        if not stays:
            self._branches.remove(name)
        return step

    def _compacting(self, branch: str) -> Step:
        """Compaction keeps everything after the oldest fork: the branch goes first."""
        self._sent["bob"].clear()  # acknowledged before: those may not be sent again
        return self._leaving(branch, DeleteBranch(branch))

    def _acquired(self) -> Step:
        self._token = token_of(2)
        return Acquire("bob", self._token)

    # ---- frames -------------------------------------------------------------------------------------------

    def _frame(self) -> tuple[str, Frame]:
        key = self._random.choice(WRITERS)
        frame = self._random.choice(self._makers)(key)
        self._sent[key].append(frame)
        return key, frame

    def _first(self) -> Step:
        counts = self._commit("ann", (COUNTS, replace((), {"n": 0, "by": dict.fromkeys(WRITERS, 0)})))
        counts = msgspec.structs.replace(counts, records=(JOB,))
        lines = self._commit("ann", (LINES, replace((), {"all": [], "tags": []})))
        settings = self._commit("ann", (SETTINGS, replace((), {"dark": False, "text": ""})))
        return Frames((("ann", (counts, lines, settings)),))

    def _commit(
        self,
        key: str,
        *writes: tuple[DocKey, Patch],
        reads: tuple[Read, ...] = (),
        preconditions: tuple[Precondition, ...] = (),
        branch: str = MAIN,
        outgoing: bool = False,
    ) -> Commit:
        self._local[key] += 1
        local_seq = self._local[key]
        name = f"{key}-{local_seq}"
        payload = {"of": name, "text": self._text()}
        # Events sent a while ago: often stored, sometimes handled before, of a refused commit or a branch.
        handled = f"{WRITERS[local_seq % len(WRITERS)]}-{local_seq // 2}"
        return Commit(
            local_seq,
            tuple(Operation(doc, (patch,)) for doc, patch in writes),
            reads,
            preconditions,
            branch,
            (SentEvent(name, "printed", payload),) if outgoing else (),
            (TopicRecord("placed", key, payload), TopicRecord("seen", key, None)) if outgoing else (),
            Provenance(f"{key}.node"),
            (),
            (handled,) if outgoing else (),
            (),
            (Declared("bill", "placed"),) if outgoing and branch == MAIN and local_seq % 3 == 0 else (),
        )

    def _text(self) -> str:
        # Mostly a few bytes; sometimes more than a page, so that one commit writes overflow pages.
        return "abcdefgh" * self._random.choice((1, 4, 16, 64, 64, 800))

    def _read(self, doc: DocKey, *path: str, seq: int | None = None, layers: tuple[int, ...] = ()) -> Read:
        named = tuple((local_seq, local_seq) for local_seq in layers)
        return Read(doc, path, Depth.DEEP, self._last_seq if seq is None else seq, named)

    def _intent(self, key: str) -> Frame:
        patches = (append(("all",), [key, self._text()], keep=12), add_unique(("tags",), key))
        return (self._commit(key, (COUNTS, increment(("n",))), (LINES, self._random.choice(patches)), outgoing=True),)

    def _edit(self, key: str) -> Frame:
        # Its own field, and an old or a new basis: it has no other writer, so both are admitted.
        write = (COUNTS, replace(("by", key), self._random.randrange(1_000)))
        return (self._commit(key, write, reads=(self._read(SETTINGS, "dark"),)),)

    def _wave(self, key: str) -> Frame:
        """Make a wave: each commit reads the writes of the commits before it in the same frame."""
        first = self._local[key] + 1
        frame = []
        for place in range(self._random.choice((2, 3))):
            doc = DocKey("session:" + key, f"wave{place}")
            reads = (self._read(doc, layers=tuple(range(first, first + place))),) if place else ()
            frame.append(self._commit(key, (doc, add((), {"at": first, "text": self._text()})), reads=reads))
        return frame

    def _create(self, key: str) -> Frame:
        doc = DocKey("space", f"made-{key}-{self._local[key] + 1}")
        self._created.append(doc)
        write = (doc, add((), {"title": key, "text": self._text()}))
        return (self._commit(key, write, preconditions=(EntityAbsent(doc),), outgoing=True),)

    def _message(self, key: str) -> Frame:
        """Make a commit without an operation: it only sends."""
        return (self._commit(key, outgoing=True),)

    def _leased(self, key: str) -> Frame:
        # Accepted as long as the lease was not released since.
        return (self._commit(key, (COUNTS, increment(("printed",))), preconditions=(LeaseHeld(LEASE, self._token),)),)

    def _branch_edit(self, key: str) -> Frame:
        if not self._branches:
            return self._intent(key)
        branch = self._random.choice(self._branches)
        doc = DocKey("space", f"{branch}-notes")
        if self._random.random() < 0.3:
            return (self._commit(key, (SETTINGS, add((branch,), self._local[key])), branch=branch, outgoing=True),)
        return (self._commit(key, (doc, append((), [self._text()], keep=6)), branch=branch),)

    def _follow(self, key: str) -> Frame:
        origin = self._commit(key, (COUNTS, increment(("n",))))
        after = self._commit(
            key, (LINES, append(("all",), [key], keep=12)), preconditions=(OriginCommitted(origin.local_seq),)
        )
        return (origin, after)

    # ---- frames that are refused, wholly or in part ---------------------------------------------------------

    def _stale(self, key: str) -> Frame:
        """`n` was counted up since the beginning."""
        return (self._commit(key, (COUNTS, replace(("n",), 0)), reads=(self._read(COUNTS, "n", seq=1),)),)

    def _doomed_wave(self, key: str) -> Frame:
        """The first is stale, the second stands on it, the third on nothing."""
        doomed = self._stale(key)[0]
        over = self._commit(
            key,
            (LINES, add_unique(("tags",), "doomed")),
            reads=(self._read(COUNTS, layers=(doomed.local_seq,)),),
        )
        return (doomed, over, self._commit(key, (LINES, append(("all",), ["alone"], keep=12))))

    def _refused(self, key: str) -> Frame:
        precondition = self._random.choice((EntityAbsent(COUNTS), LeaseHeld(LEASE, 0)))
        return (self._commit(key, (COUNTS, increment(("n",))), preconditions=(precondition,), outgoing=True),)

    def _delete(self, key: str) -> Frame:
        """Make a deletion. Deleting a deleted document is refused; a created document is never created again."""
        if not self._created:
            return self._intent(key)
        return (self._commit(key, (self._random.choice(self._created), remove(()))),)

    def _again(self, key: str) -> Frame:
        """A frame that was answered already."""
        return self._random.choice(self._sent[key]) if self._sent[key] else self._intent(key)
