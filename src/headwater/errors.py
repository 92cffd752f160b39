"""Every error a user of Headwater can meet, on one page.

    HeadwaterError
    ├── AuthoringError              the program is wrong; the message shows the line to write instead
    │   └── InvalidValueError       a value that no document can hold; says where it is
    ├── CommitRejected              the engine said no to a commit
    │   ├── ConflictError           something it read was overwritten; run it again on fresh state
    │   ├── PreconditionFailedError it can never succeed; do not run it again
    │   └── RuleRefusedError        a rule of the space forbids it; do not run it again
    ├── CommitConvergenceError      a write met conflicts for as long as it may; other writers are always faster
    ├── Refused                     a handler refused its event; nothing was written, and nothing is wrong
    ├── EventExpiredError           an event is older than the receipts that are kept; send a new one
    ├── HandlerFailed               a handler raised another error: a defect of the program; see its cause
    ├── NotReadyError               something was never computed yet; await pull() first
    │   └── UpstreamFailedError     a value that a run reads could not be computed; the cause says why
    ├── NotSettlingError            nodes make each other run without end; the message shows the way round
    ├── ReactionBlockedError        a reaction gave a record up: its target is blocked, or the record was passed over
    ├── AbsentError                 a document, branch or key that is not there
    │   └── GoneError               a piece does not exist any more: its row left, or it was deleted
    ├── AccessError                 this user may not do that here
    ├── LoadError                   a document could not be fetched
    ├── SessionExpiredError         a session is over; its commits without a verdict failed
    ├── LimitError                  larger, deeper or more than the configured limit
    │   └── BacklogFullError        more is sent than can be handled; nothing was taken on, send it later
    ├── ProtocolError               a peer or a file broke the protocol
    ├── StorageError                the disk failed, or returned damaged data
    │   ├── CorruptionError         stored data contradicts itself; names the first place
    │   ├── MovedError              a data directory or a file in it was moved, deleted or replaced while in use
    │   ├── NewerVersionError       the file was written by a newer version of Headwater
    │   └── NotASpaceError          the file is of another program or of an unreleased format, or is a folder
    └── DirectoryInUseError         another process owns this data directory

    InvariantViolation              a bug of Headwater. Not a HeadwaterError: no program should catch it.

Inside, a rejection is a value (`protocol.verdict`); it becomes an exception only at the public edge.
A message names the failure, its address, and the remedy.

`cut_frames` removes the frames of this package from the traceback of an error on its way to the author; functions that
authors call are decorated with `author_call`, or do the same themselves where an additional call would be measurable.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from os.path import basename
from types import FrameType, TracebackType
from typing import Any, Final, TypeVar, cast

__all__ = [
    "AbsentError",
    "AccessError",
    "AuthoringError",
    "BacklogFullError",
    "CommitConvergenceError",
    "CommitRejected",
    "ConflictError",
    "CorruptionError",
    "DirectoryInUseError",
    "EventExpiredError",
    "GoneError",
    "HandlerFailed",
    "HeadwaterError",
    "InvalidValueError",
    "InvariantViolation",
    "LimitError",
    "LoadError",
    "MovedError",
    "NewerVersionError",
    "NotASpaceError",
    "NotReadyError",
    "NotSettlingError",
    "PreconditionFailedError",
    "ProtocolError",
    "ReactionBlockedError",
    "Refused",
    "RuleRefusedError",
    "SessionExpiredError",
    "StorageError",
    "UpstreamFailedError",
]


class HeadwaterError(Exception):
    """Base of every error that Headwater raises on purpose."""


class AuthoringError(HeadwaterError):
    """The calling program is wrong. The message shows the line to write instead."""


class InvalidValueError(AuthoringError, ValueError):
    """A value that no document can hold. `path` leads to the culprit inside the value."""

    def __init__(self, message: str, *, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class CommitRejected(HeadwaterError):
    """The engine rejected a commit. Nothing of it was written."""


class ConflictError(CommitRejected):
    """Something the commit read was overwritten meanwhile. Read again and retry."""


class PreconditionFailedError(CommitRejected):
    """A precondition of the commit, `precondition`, is false for good. Retrying cannot help."""

    def __init__(self, message: str, *, precondition: str = "") -> None:
        super().__init__(message)
        # "origin_committed": the commit that it followed from was not accepted. "entity_absent": a document that it
        # creates exists, like the receipt of an event that was handled before. "lease_held": its worker lost a lease.
        self.precondition = precondition


class RuleRefusedError(CommitRejected):
    """A rule of the space forbids this commit. Change the commit or the rule."""


class CommitConvergenceError(HeadwaterError):
    """A write was tried again and again, and each time something it had read was overwritten; nothing was written.

    `attempts` were made in `elapsed_ms` since the first conflict; the cause is the last of them. Write less often, read
    less, or write by an intent (push, increment), which cannot conflict."""

    def __init__(self, message: str, *, attempts: int, elapsed_ms: float) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.elapsed_ms = elapsed_ms


class Refused(HeadwaterError):
    """Raise it in a handler: the transaction is dropped and the sender gets it. Not a failure."""

    def __init__(self, reason: str, /) -> None:
        super().__init__(reason)
        self.reason = reason


class EventExpiredError(HeadwaterError):
    """An event is older than receipts are kept: whether it was handled before is not known any more, so that it is not.

    Look whether its writes are there, and send a new one if they are not."""


class HandlerFailed(HeadwaterError):
    """A handler raised an error other than `Refused`, which is the cause. The error channel has it, too."""


class NotReadyError(HeadwaterError):
    """A computed value was looked at that was never computed. Outside a run, `await pull()` brings it up to date."""


class UpstreamFailedError(NotReadyError):
    """A run read the output of a node whose last run raised. The cause is that error; mend that node."""


class NotSettlingError(HeadwaterError):
    """Nodes make each other run without end. They are held back and tried again, more and more slowly."""


class ReactionBlockedError(HeadwaterError):
    """A reaction gave a record up, as its `on_exhausted` says. Mend the cause, then unblock or replay it."""


class AbsentError(HeadwaterError, LookupError):
    """Something named is not there. Create it first, or read with a default."""


class GoneError(AbsentError):
    """A piece that is used is not there any more: the key of its row left, or the piece was deleted."""


class AccessError(HeadwaterError):
    """This user may not do that here. Ask an owner of the space, or use another token."""


class LoadError(HeadwaterError):
    """A document could not be fetched. The message says why; reading it again asks again."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code  # the engine's code of its reason; empty: it was not asked


class SessionExpiredError(HeadwaterError):
    """A session is over. Its unanswered commits failed; open a new one and look which of them landed."""


class LimitError(HeadwaterError):
    """Something is larger, deeper or more numerous than the configured limit allows."""


class BacklogFullError(LimitError):
    """Too many events wait to be handled, of one handler or in all, and this one was not taken on. Send it later, or
    let the handler say coalesce="last" if only the last of those that wait counts."""


class ProtocolError(HeadwaterError):
    """A peer sent something outside the protocol. The connection or call is at fault, not the data."""


class StorageError(HeadwaterError):
    """The store could not carry out a call. Nothing unacknowledged can be assumed written."""


class CorruptionError(StorageError):
    """Stored data contradicts itself. Restore a backup, or run `headwater verify` for the first violation."""


class MovedError(StorageError):
    """A data directory or a file in it was moved, deleted or replaced while in use. Stop, put it back, start again."""


class NewerVersionError(StorageError):
    """The file was written by a newer version of Headwater. Upgrade, or open it with that version."""


class NotASpaceError(StorageError):
    """The file is of another program or of an unreleased format, or is a folder. Move it elsewhere."""


class DirectoryInUseError(HeadwaterError):
    """Another process owns this data directory. Stop it, or connect to it if it serves the directory."""


class InvariantViolation(Exception):
    """A bug in Headwater itself. Deliberately not a `HeadwaterError`; never catch it, report it."""


# ---- tracebacks ----------------------------------------------------------------------------------------

_PACKAGE: Final = __name__.partition(".")[0]
ErrorT = TypeVar("ErrorT", bound=BaseException)
CallableT = TypeVar("CallableT", bound=Callable[..., Any])


def cut_frames(error: ErrorT) -> ErrorT:
    """Remove the frames of this package from the tracebacks of an error and of the errors that led to it.

    The frames of the author stay, so that the last line of a traceback is the author's line that failed. An error of
    another class that was raised in this package is a defect of it and keeps its frames. So does every error in
    Python's development mode (`python -X dev`).
    """
    seen: set[int] = set()
    waiting: list[BaseException] = [] if sys.flags.dev_mode else [error]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        steps = _steps(each)
        if steps and (isinstance(each, HeadwaterError) or not _is_ours(steps[-1].tb_frame)):
            each.__traceback__ = _joined([step for step in steps if not _is_ours(step.tb_frame)])
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
    return error


def author_call(fn: CallableT) -> CallableT:
    """Decorate a function that authors call: an error leaves it without the frames of this package (`cut_frames`)."""
    if inspect.iscoroutinefunction(fn):

        @wraps(fn)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            try:
                return await fn(*args, **kwargs)
            except Exception as error:
                cut_frames(error)
                raise

        return cast(CallableT, awaited)

    @wraps(fn)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            cut_frames(error)
            raise

    return cast(CallableT, called)


def describe_failure(error: BaseException) -> str:
    """Return the class and the message of an error of the author's code, and the line that raised it."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    theirs = [step for step in _steps(error) if not _is_ours(step.tb_frame)]
    if not theirs:
        return text
    code = theirs[-1].tb_frame.f_code
    return f"{text} ({basename(code.co_filename)}, line {theirs[-1].tb_lineno}, in {code.co_name})"


def _steps(error: BaseException) -> list[TracebackType]:
    found = []
    step = error.__traceback__
    while step is not None:
        found.append(step)
        step = step.tb_next
    return found


def _joined(steps: list[TracebackType]) -> TracebackType | None:
    made = None
    for step in reversed(steps):
        made = TracebackType(made, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return made


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE
