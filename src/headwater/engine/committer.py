"""The committer: the one thread that an engine runs on, and where frames that arrive together become a group.

While one group is being synced, the frames that arrive queue up and become the next group: under load the
price of an fsync is shared, and without load nobody waits for company. Replies are called on the committer's
thread, after the verdicts are durable. The queue is bounded; a full one refuses, it never drops.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeVar

from headwater.engine.engine import Engine
from headwater.engine.group import Outcome
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.errors import HeadwaterError, LimitError, StorageError
from headwater.protocol.commit import Frame

T = TypeVar("T")

Reply = Callable[[Outcome | BaseException], object]
"""Hears the outcome, or the error that leaves the frame's fate unknown: then nothing may be concluded but a replay."""


class Committer(Protocol):
    """Runs an engine on behalf of many callers."""

    def submit(self, session: str, frame: Frame, reply: Reply) -> None:
        """Judge a frame in its turn and answer when the verdicts are durable."""

    def call(self, work: Callable[[Engine], T]) -> T:
        """Run something else on the engine's thread, after what was submitted before, and return its result."""

    def close(self) -> None:
        """Answer everything accepted so far, then stop."""


class InlineCommitter:
    """Runs everything at once, on the caller's thread. For the simulator, which owns time and order."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def submit(self, session: str, frame: Frame, reply: Reply) -> None:
        outcome: Outcome | BaseException
        try:
            outcome = self._engine.submit_group([(session, frame)])[0]
        except StorageError as error:
            outcome = error
        reply(outcome)

    def call(self, work: Callable[[Engine], T]) -> T:
        return work(self._engine)

    def close(self) -> None:
        self._engine.close()


class ThreadCommitter:
    """Runs the engine on a thread of its own and groups what arrives while it is busy."""

    __slots__ = ("_answered", "_closing", "_engine", "_failed", "_frames", "_limits", "_thread", "_wake", "_work")

    def __init__(self, engine: Engine, limits: Limits = DEFAULT_LIMITS) -> None:
        self._engine = engine
        self._limits = limits
        self._wake = threading.Condition()
        self._frames: deque[tuple[str, Frame, Reply]] = deque()
        self._work: deque[Callable[[Engine], None]] = deque()
        self._closing = False
        self._answered = 0  # frames of the current group that were answered
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headwater-committer", daemon=True)
        self._thread.start()

    def submit(self, session: str, frame: Frame, reply: Reply) -> None:
        with self._wake:
            self._check_open()
            if len(self._frames) >= self._limits.backlog_frames:
                raise LimitError(
                    f"{len(self._frames)} frames wait for the disk, which is the limit. Wait for verdicts, then resend."
                )
            self._frames.append((session, frame, reply))
            self._wake.notify()

    def call(self, work: Callable[[Engine], T]) -> T:
        done = threading.Event()
        results: list[T] = []
        errors: list[BaseException] = []

        def run(engine: Engine) -> None:
            try:
                results.append(work(engine))
            except BaseException as error:  # handed to the caller, below
                errors.append(error)
            finally:
                done.set()

        with self._wake:
            self._check_open()
            self._work.append(run)
            self._wake.notify()
        done.wait()
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        with self._wake:
            already, self._closing = self._closing, True
            self._wake.notify()
        self._thread.join()
        if not already:
            self._engine.close()
        if self._failed is not None:
            raise self._failed

    def _check_open(self) -> None:
        if self._failed is not None:
            raise StorageError(f"the committer stopped: {self._failed}") from self._failed
        if self._closing:
            raise StorageError("the committer is closed: nothing more can be submitted")

    # ---- on the committer's thread ---------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._frames or self._work or self._closing):
                    self._wake.wait()
                group = [self._frames.popleft() for _ in range(min(len(self._frames), self._limits.group_commits))]
                # Other work waits for the frames submitted before it, so it runs once none are left.
                work = None if self._frames or not self._work else self._work.popleft()
                if not group and work is None and self._closing:
                    return
            self._answered = 0
            try:
                if group:
                    self._answer(group)
                if work is not None:
                    work(self._engine)
            except BaseException as error:
                # A bug, here or in a reply: nobody may believe that this engine still answers.
                self._stop(error, group)
                return

    def _answer(self, group: list[tuple[str, Frame, Reply]]) -> None:
        outcomes: list[Outcome | BaseException]
        try:
            outcomes = [*self._engine.submit_group([(session, frame) for session, frame, _ in group])]
        except HeadwaterError as error:
            # C6: the group's fate is unknown. No verdict leaves; whoever asked replays.
            outcomes = [error] * len(group)
        for (_, _, reply), outcome in zip(group, outcomes, strict=True):
            self._answered += 1
            reply(outcome)

    def _stop(self, error: BaseException, group: list[tuple[str, Frame, Reply]]) -> None:
        with self._wake:
            self._failed = error
            waiting = [*group[self._answered :], *self._frames]
            self._frames.clear()
            work = [*self._work]
            self._work.clear()
        for _, _, reply in waiting:
            reply(error)
        for run in work:
            run(self._engine)
