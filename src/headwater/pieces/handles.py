"""Handles that only pieces have: on computed values, resources, children and handlers.

A handle on a handler checks the arguments and passes them to the port `PieceSender`. `Pending`, `Ready` and `Failed`
are the values of a resource: under way, present, failed; with the last value where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, Protocol, TypeVar, overload

from headwater.cells.handle import Input
from headwater.cells.handle_base import NotAValue
from headwater.cells.runtime_port import Delays
from headwater.data.text import shown
from headwater.data.value import Value
from headwater.errors import AuthoringError, author_call, cut_frames

if TYPE_CHECKING:
    from typing import Self

    from headwater.cells.handle_base import Member
    from headwater.pieces.declarations import HandlerMember
    from headwater.pieces.signature import Signature

__all__ = [
    "Child",
    "Computed",
    "Delivery",
    "Each",
    "Effect",
    "Failed",
    "Handler",
    "Intent",
    "Options",
    "Pending",
    "PieceSender",
    "Reaction",
    "Ready",
    "Resource",
    "Takes",
]

EVENT_ID_LENGTH: Final = 256
"""Characters of an id of an event that a caller chooses."""

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Pending(Generic[T_co]):
    """The value is being fetched. Never stored: readers see it while there is no value."""

    last: T_co | None = None
    __match_args__ = ("last",)


@dataclass(frozen=True, slots=True)
class Ready(Generic[T_co]):
    """The value is present."""

    value: T_co
    __match_args__ = ("value",)


@dataclass(frozen=True, slots=True)
class Failed(Generic[T_co]):
    """Fetching failed; `error` is the reason."""

    error: str
    last: T_co | None = None
    __match_args__ = ("error",)


C_co = TypeVar("C_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)
D = TypeVar("D")
K = TypeVar("K")
P = ParamSpec("P")
R = TypeVar("R")


class Computed(Input[T_co]):
    """A handle on a value that is computed."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __call__(self) -> NoReturn:
            raise AuthoringError(f"{self!r} is not called: write .get() or, from outside, await .pull()")


class Resource(Input[Pending[T_co] | Ready[T_co] | Failed[T_co]]):
    """A handle on a value that comes from outside."""

    __slots__ = ()

    def value(self, default: D, /) -> T_co | D:
        """The value, the last one while it is under way or after a failure, or the default if there never was one."""
        match self.get(Pending()):
            case Ready(value):
                return value
            case Pending(last=last) | Failed(last=last):
                return default if last is None else last


class Each(Input[Mapping[K, C_co]]):
    """One child per element: a Mapping from key to child, in the order of the source."""

    __slots__ = ()


class Child(Input[C_co]):
    """The one child."""

    __slots__ = ()


class Effect:
    """A handle on an effect: it runs, and there is nothing to read."""

    __slots__ = ("_set_delays", "id")

    def __init__(self, id: str, set_delays: Callable[[Delays], object]) -> None:
        self.id = id  # of its node
        self._set_delays = set_delays

    def set_delays(
        self, *, debounce_ms: float | None = None, throttle_ms: float | None = None, auto_debounce: bool | None = None
    ) -> None:
        """Change its delays here, until the piece is stopped. What is left out stays as it is; 0 ends a delay."""
        self._set_delays(Delays.of(debounce_ms, throttle_ms, auto_debounce))

    def __repr__(self) -> str:
        return f"<effect {self.id}>"


class Reaction:
    """A handle on a reaction: it runs, and there is nothing to read."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __repr__(self) -> str:
        return f"<reaction {self._what}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One record on its way to one reaction; or a batch of them."""

    id: str
    attempt: int
    emitted_at: datetime
    ids: tuple[str, ...] = ()  # of each record by itself, however it is batched


class Intent:
    """An event that was posted and may still be withdrawn."""

    __slots__ = ("_withdraw", "id")

    def __init__(self, id: str, withdraw: Callable[[], bool]) -> None:
        self.id = id
        self._withdraw = withdraw

    def withdraw(self) -> bool:
        """Withdraw the event. Return False if it was dispatched already."""
        return self._withdraw()

    def __repr__(self) -> str:
        return f"<intent {self.id}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an event is sent."""

    id: str | None = None
    retries: int | None = None
    durable: bool = False
    wait: bool = True


class PieceSender(Protocol):
    """Sends events to the handlers of one piece, for one user and one user session.

    `runtime.events.events.Sender` is the sender of a handle.
    """

    def send(self, member: HandlerMember, payload: Value, options: Options) -> Coroutine[Any, Any, Any]: ...

    def post(self, member: HandlerMember, payload: Value, options: Options) -> Intent: ...

    def post_at(
        self, member: HandlerMember, when: datetime | timedelta, payload: Value, options: Options
    ) -> Intent: ...

    @property
    def core(self) -> object:
        """The core of the runtime that handles the events."""

    def place(self, member: HandlerMember) -> str:
        """Return the piece and the handler as text, for messages."""

    def seen_by(self, view: Any) -> PieceSender:
        """Return a sender to the same piece, for the user and the session of another view."""

    def same(self, other: object) -> bool:
        """True if both send to the same piece for the same user and session."""


class Takes(Protocol[A_contra]):
    """A handler that takes one argument."""

    def post(self, arg: A_contra, /) -> Intent: ...


class Handler(NotAValue, Generic[P, R]):
    """A handle on a handler: `send` from outside, `post` from inside."""

    __slots__ = ("_options", "_signature", "member", "sender")

    def __init__(
        self, sender: PieceSender, member: HandlerMember, signature: Signature, options: Options | None = None
    ) -> None:
        self.sender = sender
        self._signature = signature
        self._options = options or Options()
        self.member = member

    def _instead(self) -> str:
        return ".send(...) or, in a handler, .post(...)"

    if TYPE_CHECKING:

        @overload
        def __get__(self, obj: None, owner: type[Any]) -> Member[Callable[P, R]]: ...
        @overload
        def __get__(self, obj: object, owner: type[Any]) -> Self: ...
        def __get__(self, obj: object | None, owner: type[Any]) -> Any: ...

    if not TYPE_CHECKING:

        @author_call
        def __call__(self, *_: object, **__: object) -> NoReturn:
            name = self.member.name
            raise AuthoringError(
                f"{self!r} is not called: write await piece.{name}.send(...) or, in a handler, .post(...)"
            )

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Send an event to the handler, and wait until its commit is durable. Returns the handler's result."""
        try:
            return self.sender.send(self.member, self._signature.encode(args, kwargs), self._options)
        except Exception as error:
            cut_frames(error)
            raise

    def post(self, *args: P.args, **kwargs: P.kwargs) -> Intent:
        """Send an event without waiting. Inside a handler it is sent with the handler's commit, and only with it."""
        try:
            return self.sender.post(self.member, self._signature.encode(args, kwargs), self._options)
        except Exception as error:
            cut_frames(error)
            raise

    @author_call
    def post_at(self, when: datetime | timedelta, /, *args: P.args, **kwargs: P.kwargs) -> Intent:
        """Send an event that is handled at a given time, or after a delay."""
        if isinstance(when, datetime) and when.tzinfo is None:
            raise AuthoringError(
                f"post_at({when.isoformat()}) has no time zone: write datetime(..., tzinfo=timezone.utc)"
            )
        return self.sender.post_at(self.member, when, self._signature.encode(args, kwargs), self._options)

    @author_call
    def options(
        self,
        *,
        id: str | None = None,
        retries: int | None = None,
        durable: bool | None = None,
        wait: bool | None = None,
    ) -> Handler[P, R]:
        """Return the same handler with other options for sending: an id of the caller's, no retries, or stored first.

        `retries=0`: a conflict is the end of the event. Any other number leaves it to the retry window. `wait=False`:
        `send` raises `BacklogFullError` at once if too many events of the handler wait, instead of waiting for room.

        The same `id` of the same user to the same handler is the same event, from any sender. If the program named a
        session, in that session only.
        """
        if id is not None and (type(id) is not str or not 0 < len(id) <= EVENT_ID_LENGTH):
            raise AuthoringError(f"options(id={shown(id)}): write a text of 1 to {EVENT_ID_LENGTH} characters")
        if retries is not None and (type(retries) is not int or retries < 0):
            raise AuthoringError(f"options(retries={shown(retries)}): write how many, 0 for none")
        said = {"id": id, "retries": retries, "durable": durable, "wait": wait}
        changed = replace(self._options, **{name: value for name, value in said.items() if value is not None})  # type: ignore[arg-type]
        return Handler(self.sender, self.member, self._signature, changed)

    def same(self, other: Handler[Any, Any]) -> bool:
        """Return True if both handles lead to the same handler of the same piece."""
        return self.sender.same(other.sender) and self.member is other.member and self._options == other._options

    def seen_by(self, view: Any) -> Handler[P, R]:
        """Return the same handler, for the user and the session of a view."""
        return Handler(self.sender.seen_by(view), self.member, self._signature, self._options)

    def __repr__(self) -> str:
        return f"<{self.member!r}>"
