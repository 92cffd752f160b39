"""The port from handles to their runtime, and the handles that only send.

`HandleRuntime` is implemented by the runtime. A read needs only its `current`; everything else that a handle does goes
through its methods. `Stream` (events for one handler) and `Topic` (records for reactions) have an address and a type;
they check a payload and pass it to the runtime, which refuses it in a run that may be repeated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, overload

from headwater.cells.codec_base import TypeCodec
from headwater.cells.handle_base import NotAValue
from headwater.data.address import Link, doc_text
from headwater.data.path import Path
from headwater.data.text import shown
from headwater.data.value import MaybeValue, Value
from headwater.errors import AuthoringError, InvalidValueError, author_call
from headwater.replica.document import Document

if TYPE_CHECKING:
    from typing import Self

    from headwater.cells.cell import Cell
    from headwater.cells.handle import Input
    from headwater.cells.handle_base import Member
    from headwater.cells.open_run import Current
    from headwater.cells.selector import PathSelector

__all__ = ["Stream", "Topic"]


class Delays(NamedTuple):
    """The delays of an effect or a sink. None: not said."""

    debounce_ms: float | None = None  # how long its inputs have to be quiet before it runs
    throttle_ms: float | None = None  # from the start of one run to the next
    auto_debounce: bool | None = None  # whether it gets a debounce by itself if its runs are slow

    @classmethod
    def of(cls, debounce_ms: float | None, throttle_ms: float | None, auto_debounce: bool | None) -> Delays:
        """Check what a caller said."""
        for name, ms in (("debounce_ms", debounce_ms), ("throttle_ms", throttle_ms)):
            if ms is not None:
                check_duration(name, ms)
        if auto_debounce is not None and type(auto_debounce) is not bool:
            raise AuthoringError(f"auto_debounce={shown(auto_debounce)}: write True or False")
        return cls(debounce_ms, throttle_ms, auto_debounce)

    def filled_from(self, other: Delays) -> Delays:
        """These delays, and those of `other` where nothing is said here."""
        debounce_ms = other.debounce_ms if self.debounce_ms is None else self.debounce_ms
        throttle_ms = other.throttle_ms if self.throttle_ms is None else self.throttle_ms
        auto_debounce = other.auto_debounce if self.auto_debounce is None else self.auto_debounce
        return Delays(debounce_ms, throttle_ms, auto_debounce)


def check_duration(what: str, ms: object) -> float:
    """Milliseconds of an option."""
    if isinstance(ms, bool) or not isinstance(ms, (int, float)) or not 0 <= ms < 1e12:
        raise AuthoringError(f"{what}={shown(ms)}: write how many milliseconds, 0 or more")
    return ms


class Subscription:
    """Something that goes on until it is closed, or until it ends by itself."""

    __slots__ = ("_close", "ended")

    def __init__(self, close: Callable[[], object]) -> None:
        self._close: Callable[[], object] | None = close
        self.ended: Exception | None = None  # the reason why it ended by itself, if it did

    def close(self) -> None:
        """Stop it. Closing twice is harmless."""
        close, self._close = self._close, None
        if close is not None:
            close()


class SinkSubscription(Subscription):
    """A subscription to a value, and the delays of its calls."""

    __slots__ = ("_set_delays",)

    def __init__(self, close: Callable[[], object], set_delays: Callable[[Delays], object]) -> None:
        super().__init__(close)
        self._set_delays = set_delays

    def set_delays(
        self, *, debounce_ms: float | None = None, throttle_ms: float | None = None, auto_debounce: bool | None = None
    ) -> None:
        """Change its delays, from now on. What is left out stays as it is; 0 ends a delay."""
        self._set_delays(Delays.of(debounce_ms, throttle_ms, auto_debounce))


class UndecidedPlaces(NamedTuple):
    """Where earlier writes of a runtime that have no outcome yet have written, as seen from one path."""

    is_replaced: bool  # one of them replaced the value at the path, or the path itself
    is_removed: bool  # one of them removed it: fields that are confirmed may be missing because of that
    below: list[Path]  # the places below the path, relative to it


class HandleRuntime(Protocol):
    """The part of a runtime that handles call; `runtime.core.core.Core` implements it."""

    current: Current
    selector: PathSelector

    def check_thread(self) -> None:
        """Raises unless this is the runtime's own thread, and no run of another runtime is open on it."""

    def visible(self, document: Document) -> MaybeValue:
        """Return the value of a document outside any run. NotReadyError: it has not arrived, or was never computed."""

    def space_name(self, document: Document) -> str:
        """The name of the space that a document is of."""

    def circle(self, document: Document) -> tuple[str, ...]:
        """Inside a run: the nodes that stand on each other, if the run's own is one and makes this document, too."""

    def resolve(self, document: Document, link: Link) -> tuple[Document, Path]:
        """Return the document and path that a stored link points at."""

    def put(self, document: Document, value: Value, again: Callable[[], object], group: object | None) -> bool:
        """Replace a whole document, outside any run. `again` is the same write, for a write that never left.

        False: it has to stand on earlier writes. Use `write`.
        """

    def write(self, cell: Cell[Any], act: Callable[[], object], group: object | None) -> None:
        """Call `act` in a transaction of its own: again if its reads are stale, later if a document is not here.

        A refusal that is not awaited goes to the error channel.
        """

    def undecided_places(self, document: Document, path: Path) -> UndecidedPlaces:
        """Return where earlier writes without an outcome have written a document, at a path and below."""

    def unseen_places(self, document: Document) -> Iterable[Path]:
        """Return where earlier writes have written a document after the write that is being made was asked for.

        They waited then, or were retried meanwhile.
        """

    def pull(self, handle: Input[Any]) -> Coroutine[Any, Any, Any]:
        """Bring up to date, and answer with the value."""

    def sink(
        self, handle: Input[Any], fn: Callable[[Any], object], group: object | None, delays: Delays
    ) -> SinkSubscription:
        """Call with the value now and whenever it changes."""

    def watch(self, handle: Input[Any]) -> AsyncIterator[Any]:
        """The value now, then the latest whenever it changed; never a backlog."""

    def post(self, stream: Stream[Any], payload: Value) -> None:
        """Send an event. Refused where a run is repeated."""

    def emit(self, topic: Topic[Any], record: Value) -> None:
        """Emit a record. Refused where a run is repeated."""


T = TypeVar("T")


class TypedAddress(NotAValue, Generic[T]):
    """A typed address."""

    __slots__ = ("_codec", "_document", "_runtime")

    def __init__(self, runtime: HandleRuntime, document: Document, codec: TypeCodec[Any]) -> None:
        self._runtime = runtime
        self._document = document
        self._codec = codec

    @property
    def document(self) -> Document:
        return self._document

    def _encoded(self, value: T) -> Value:
        try:
            return self._codec.encode(value)
        except InvalidValueError as error:
            raise InvalidValueError(f"{self._document.key.id}, {error}", path=error.path) from None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {doc_text(self._document.key)}>"


class Stream(TypedAddress[T]):
    """Where events for one handler go."""

    __slots__ = ()

    def _instead(self) -> str:
        return ".post(event) to send one"

    def post(self, event: T, /) -> None:
        """Send an event. Inside a handler it lives and dies with the handler's commit."""
        self._runtime.post(self, self._encoded(event))


class Topic(TypedAddress[T]):
    """The destination of records for reactions. `owner` is its piece; without one, no reaction receives them."""

    __slots__ = ("owner",)

    def __init__(
        self, runtime: HandleRuntime, document: Document, codec: TypeCodec[Any], owner: object | None = None
    ) -> None:
        super().__init__(runtime, document, codec)
        self.owner = owner

    if TYPE_CHECKING:

        @overload
        def __get__(self, obj: None, owner: type[Any]) -> Member[T]: ...
        @overload
        def __get__(self, obj: object, owner: type[Any]) -> Self: ...
        def __get__(self, obj: object | None, owner: type[Any]) -> Any: ...

    def _instead(self) -> str:
        return ".emit(record) to emit one"

    @author_call
    def emit(self, record: T, /) -> None:
        """Emit a record. It is stored with the commit that emitted it."""
        self._runtime.emit(self, self._encoded(record))
