"""Handles that can be read. A handle is a place, not a value: it says so wherever it is used as one.

`get` is the hot path of the whole system: inside a run, a read that the last run made at the same point costs a look at
the run, a comparison and the value. Links on the way are followed, and each is a read of the link's shape. Nothing here
decides what runs; the run's tracker does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar, overload

from headwater.cells.host import Host, Subscription
from headwater.cells.scalars import LinkCodec
from headwater.cells.selector import step
from headwater.cells.typecodec import Memo, TypeCodec
from headwater.cells.view import open_view
from headwater.data.address import Depth, doc_text
from headwater.data.link import Link
from headwater.data.path import Path, lookup
from headwater.data.spots import Spot
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AbsentError, AuthoringError, NotReadyError
from headwater.replica.document import NOT_HERE, Document, NotLoaded

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
D = TypeVar("D")
U = TypeVar("U")

MAX_HOPS: Final = 32
"""Links on the way to one value."""


class _Raise:
    """No default was given."""


_RAISE: Final = _Raise()


class Input(Generic[T_co]):
    """A handle that can be read: a place in a document, and the type of what is there."""

    __slots__ = ("_codec", "_current", "_default", "_document", "_exact", "_host", "_memo", "_path", "_shape", "_spot")

    def __init__(
        self,
        host: Host,
        document: Document,
        codec: TypeCodec[Any],
        path: Path = (),
        default: MaybeValue = ABSENT,
    ) -> None:
        self._host = host
        self._current = host.current
        self._document = document
        self._path = path
        self._codec = codec
        self._exact = None if path else codec.exact
        self._default = default  # what is there as long as nothing was written
        self._memo: Memo[Any] | None = None
        self._spot = Spot(document, path, Depth.DEEP)
        self._shape: Spot | None = None

    # ---- reading -----------------------------------------------------------------------------------

    @overload
    def get(self) -> T_co: ...
    @overload
    def get(self, default: D) -> T_co | D: ...
    def get(self, default: Any = _RAISE) -> Any:
        """The value. Inside a run this subscribes to it; AbsentError if nothing is there and no default is given."""
        run = self._current.run
        if run is not None:
            spot = self._spot
            if spot.stamp != run.number:
                spot.stamp = run.number
                place = run.place
                if run.reads[place] is spot:
                    run.place = place + 1
                else:
                    self._spot = run.tracker.missed(run, spot)
            if run.overlay is None:
                raw = self._document.value
                if raw.__class__ is self._exact:
                    return raw
        return self._value(default)

    def exists(self) -> bool:
        """Whether something is there. Inside a run this subscribes to that, not to what it is."""
        return self._raw(Depth.SHAPE) is not ABSENT or self._default is not ABSENT

    def view(self) -> Any:
        """A lazy, read-only look: inside a run, only what is touched is read."""
        document, path, raw = self._place(Depth.SHAPE if self._current.run is None else None)
        if raw is ABSENT:
            raw = self._default
            self._touch(document, path, Depth.SHAPE)
        if raw is ABSENT:
            raise self._absent()
        run = self._current.run

        def touch(where: Path, depth: Depth) -> None:
            if run is not None and self._current.run is run:
                run.look(Spot(document, where, depth))

        return open_view(self._codec, raw, path, touch)

    def _value(self, default: Any) -> Any:
        raw = self._raw(None)
        if raw is ABSENT:
            raw = self._default
            if raw is ABSENT:
                if default is _RAISE:
                    raise self._absent()
                return default
        codec = self._codec
        if raw.__class__ is codec.exact or codec.plain:
            return raw
        memo = self._memo
        if memo is None:
            memo = self._memo = codec.memo()
        return memo.decode(raw, self._path)

    def _raw(self, depth: Depth | None) -> MaybeValue:
        """What is stored, with links on the way followed. `depth` None: the read of this place is noted already."""
        return self._place(depth)[2]

    def _place(self, depth: Depth | None) -> tuple[Document, Path, MaybeValue]:
        """Where it is in the end, and what is there."""
        document, path = self._document, self._path
        if depth is not None:
            self._touch(document, path, depth)
        root = self._root(document)
        if not path and root.__class__ is not Link:
            return document, path, root
        at_link, value = _walk(root, path)
        if at_link is None or (at_link == len(path) and self._holds_links()):
            return document, path, value
        return self._follow(document, path, depth or Depth.DEEP)

    def _follow(self, document: Document, path: Path, depth: Depth) -> tuple[Document, Path, MaybeValue]:
        """Links lead elsewhere. Each is read as a shape: what it points at is what matters, not what is there."""
        hops: list[str] = []
        while True:
            at_link, value = _walk(self._root(document), path)
            if at_link is None or (at_link == len(path) and self._holds_links()):
                self._touch(document, path, depth)
                return document, path, value
            hops.append(doc_text(document.key, path[:at_link]))
            if len(hops) > MAX_HOPS:
                raise AuthoringError(f"links go round in circles, or too far: {' -> '.join(hops[:8])} -> ...")
            self._touch(document, path[:at_link], Depth.SHAPE)
            link = lookup(self._root(document), path[:at_link])
            assert type(link) is Link
            rest = path[at_link:]
            document, path = self._host.resolve(document, link)
            path += rest

    def _holds_links(self) -> bool:
        return isinstance(self._codec, LinkCodec)

    def _root(self, document: Document) -> MaybeValue:
        """The document as this run sees it, or as it is shown now."""
        run = self._current.run
        if run is None:
            self._host.check_thread()
            value = document.value
            if value is NOT_HERE:
                raise NotReadyError(f"{doc_text(document.key)} has not arrived yet: await pull() first")
            if value is ABSENT and document.writers and not any(getattr(w, "runs", 1) for w in document.writers):
                raise NotReadyError(f"{doc_text(document.key)} was never computed: await pull() first")
            return value
        if run.overlay is not None and document in run.overlay and run.transaction is not None:
            return run.transaction.peek(document.key)
        return self._here(document.value, document)

    def _here(self, value: MaybeValue | NotLoaded, document: Document) -> MaybeValue:
        if value is not NOT_HERE:
            return value
        run = self._current.run
        assert run is not None
        run.tracker.absent(run, document)
        raise AssertionError("the attempt was stopped")  # pragma: no cover

    def _touch(self, document: Document, path: Path, depth: Depth) -> None:
        run = self._current.run
        if run is None:
            return
        if document is self._document and path == self._path:
            if depth is Depth.SHAPE:
                if self._shape is None:
                    self._shape = Spot(document, path, depth)
                self._shape = run.look(self._shape)
            else:
                self._spot = run.look(self._spot)
        else:
            run.look(Spot(document, path, depth))

    def _absent(self) -> AbsentError:
        where = doc_text(self._document.key, self._path)
        return AbsentError(f"nothing is at {where}: write it first, or read it with get(default)")

    # ---- further down ------------------------------------------------------------------------------

    def key(self, k: Any, /) -> Any:
        """The handle of one entry of a Mapping."""
        return self._below(*step(self._codec, k))

    def at(self, path: Callable[[Any], Any], /) -> Any:
        """The handle of a field at any depth: `at(lambda card: card.title)`."""
        return self._below(*self._host.selector.select(self._codec, path))

    def _below(self, path: Path, codec: TypeCodec[Any]) -> Any:
        default = self._default
        below = ABSENT if default is ABSENT else lookup(default, path)
        return type(self)(self._host, self._document, codec, self._path + path, below)

    # ---- observing ---------------------------------------------------------------------------------

    def pull(self) -> Coroutine[Any, Any, T_co]:
        """Bring it up to date and return it."""
        return self._host.pull(self)

    def watch(self) -> AsyncIterator[T_co]:
        """The value now, then the latest whenever it changed; never a backlog."""
        return self._host.watch(self)

    def sink(self, fn: Callable[[T_co], object], /, *, group: object | None = None) -> Subscription:
        """Call `fn` with the value now and whenever it changes, but not for changes made with the same group."""
        return self._host.sink(self, fn, group)

    # ---- what a handle is not ----------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {doc_text(self._document.key, self._path)}>"

    def __bool__(self) -> object:
        return self._no("truth")

    def __hash__(self) -> int:
        return id(self) >> 4

    def _no(self, what: str) -> NoReturn:
        raise AuthoringError(f"{self!r} is a handle, not a value, and has no {what}: write .get()")

    if not TYPE_CHECKING:  # Type checkers find these uses better where they do not see the methods.

        def __eq__(self, other: object) -> bool:
            return self is other if isinstance(other, Input) else self._no("comparison with a value")

        def __ne__(self, other: object) -> bool:
            return not self == other

        def __lt__(self, other: object) -> bool:
            self._no("order")

        __le__ = __gt__ = __ge__ = __lt__

        def __iter__(self) -> Any:
            self._no("elements")

        def __contains__(self, item: object) -> bool:
            self._no("elements")

        def __len__(self) -> int:
            return self._no("length")

        def __format__(self, spec: str) -> str:
            self._no("text")

        def __str__(self) -> str:
            return self._no("text")


def _walk(value: MaybeValue, path: Path) -> tuple[int | None, MaybeValue]:
    """How many steps lead to the first link, if one is met, and what is at the end if none is."""
    at: MaybeValue = value
    for steps, each in enumerate(path):
        if at.__class__ is Link:
            return steps, at
        at = lookup(at, (each,))
    return (len(path), at) if at.__class__ is Link else (None, at)


def raw_of(handle: Input[Any]) -> tuple[Document, Path, MaybeValue]:
    """Where a handle leads now and what is there, for writes; noted as no read beyond the links on the way."""
    return handle._place(None)
