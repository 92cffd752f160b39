"""The committer: the one thread that an engine runs on, and where frames that arrive together become a group.

While one group is being synced, the frames that arrive queue up and become the next group: under load the
price of an fsync is shared, and without load nobody waits for company. Replies are called on the committer's
thread, after the verdicts are durable. The queue is bounded; a full one refuses, it never drops.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, cast

from headwater.engine.commit_group import Outcome
from headwater.engine.engine import Engine
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.errors import AuthoringError, HeadwaterError, LimitError, StorageError
from headwater.protocol.commit import Frame

T = TypeVar("T")
MAX_REPLY_ERRORS: Final = 100

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
        except HeadwaterError as error:
            outcome = error
        reply(outcome)

    def call(self, work: Callable[[Engine], T]) -> T:
        return work(self._engine)

    def close(self) -> None:
        self._engine.close()


class _Call:
    """Something to do on the engine's thread, for a caller that waits for it."""

    __slots__ = ("_done", "_error", "_result", "_work")

    def __init__(self, work: Callable[[Engine], object]) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: object = None
        self._error: BaseException | None = None

    def run(self, engine: Engine) -> None:
        try:
            self._result = self._work(engine)
        except BaseException as error:  # handed to the caller, in `wait`
            self._error = error
        self._done.set()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._done.set()

    def wait(self) -> object:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result


_Frame = tuple[str, Frame, Reply]


class ThreadCommitter:
    """Runs the engine on a thread of its own and groups what arrives while it is busy."""

    __slots__ = ("_closing", "_engine", "_failed", "_limits", "_queue", "_reply_errors", "_thread", "_wake")

    def __init__(self, engine: Engine, limits: Limits = DEFAULT_LIMITS) -> None:
        self._engine = engine
        self._limits = limits
        self._wake = threading.Condition()
        self._queue: deque[_Frame | _Call] = deque()  # in order: a call sees what was submitted before it
        self._closing = False
        self._failed: BaseException | None = None
        self._reply_errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name="headwater-committer", daemon=True)
        self._thread.start()

    @property
    def depth(self) -> int:
        """How much waits now."""
        return len(self._queue)

    def submit(self, session: str, frame: Frame, reply: Reply) -> None:
        self._put((session, frame, reply))

    def call(self, work: Callable[[Engine], T]) -> T:
        if threading.current_thread() is self._thread:
            return work(self._engine)  # from inside a reply: it is this thread's turn already
        call = _Call(work)
        self._put(call)
        return cast(T, call.wait())

    def _put(self, item: _Frame | _Call) -> None:
        with self._wake:
            if self._failed is not None:
                raise StorageError(f"the committer stopped: {self._failed}") from self._failed
            if self._closing:
                raise StorageError("the committer is closed: nothing more can be submitted")
            if len(self._queue) >= self._limits.backlog_frames:
                raise LimitError(
                    f"{len(self._queue)} frames wait for the disk, which is the limit. Wait for verdicts, then resend."
                )
            self._queue.append(item)
            self._wake.notify()

    def close(self) -> None:
        """Answer what was taken in, then stop. Raises what replies raised, since nobody else heard of it."""
        if threading.current_thread() is self._thread:
            raise AuthoringError("a reply cannot close the committer that calls it. Close it from another thread.")
        with self._wake:
            already, self._closing = self._closing, True
            self._wake.notify()
        self._thread.join()
        if not already:
            self._engine.close()
        if self._failed is not None:
            raise self._failed
        if self._reply_errors:
            errors, self._reply_errors = self._reply_errors, []
            raise ExceptionGroup("replies failed", errors)

    # ---- on the committer's thread ---------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._queue or self._closing):
                    self._wake.wait()
                if not self._queue:
                    return
                group, call = self._next()
            try:
                if group:
                    self._answer(group)
                if call is not None:
                    call.run(self._engine)
            except BaseException as error:
                self._stop(error)
                return

    def _next(self) -> tuple[list[_Frame], _Call | None]:
        """The frames in front, as one group, or the call that is."""
        group: list[_Frame] = []
        while self._queue and len(group) < self._limits.group_commits:
            item = self._queue[0]
            if isinstance(item, _Call):
                if not group:
                    self._queue.popleft()
                    return group, item
                break
            group.append(item)
            self._queue.popleft()
        return group, None

    def _answer(self, group: list[_Frame]) -> None:
        outcomes: list[Outcome | BaseException]
        bug: BaseException | None = None
        try:
            outcomes = [*self._engine.submit_group([(session, frame) for session, frame, _ in group])]
        except HeadwaterError as error:
            # C6: the group's fate is unknown. No verdict leaves; whoever asked replays.
            outcomes = [error] * len(group)
        except BaseException as error:  # raised below, once everybody in the group has heard
            bug = error
            outcomes = [error] * len(group)
        for (_, _, reply), outcome in zip(group, outcomes, strict=True):
            self._reply(reply, outcome)
        if bug is not None:
            raise bug

    def _reply(self, reply: Reply, outcome: Outcome | BaseException) -> None:
        """One that raises keeps nobody else from hearing; `close` tells."""
        try:
            reply(outcome)
        except Exception as error:
            del self._reply_errors[MAX_REPLY_ERRORS:]
            self._reply_errors.append(error)

    def _stop(self, error: BaseException) -> None:
        """A bug of ours: nobody may believe that this engine still answers."""
        with self._wake:
            self._failed = error
            waiting = [*self._queue]
            self._queue.clear()
        for item in waiting:
            if isinstance(item, _Call):
                item.fail(error)
            else:
                self._reply(item[2], error)
