"""Handles that can be read. A handle is a place, not a value: any use of it as a value raises.

`get` is the hot path of the whole system: inside a run, a read that the last run made at the same point costs a look at
the run, a comparison and the value. Links on the way are followed, and each is a read of the link's shape. The run's
tracker decides which nodes run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, overload

from headwater.cells.codec_base import CELL_LIMITS, Memo, TypeCodec
from headwater.cells.handle_base import NotAValue
from headwater.cells.open_run import Run
from headwater.cells.runtime_port import Delays, HandleRuntime, SinkSubscription
from headwater.cells.selector import step
from headwater.cells.typed_path import BrokenLinkError, Root, count_stored_steps, deciding_places, descend, fill
from headwater.cells.view import open_view
from headwater.data.address import SPACE_SCOPE, Depth, Link, doc_text
from headwater.data.path import Path
from headwater.data.reader_trie import OBJECT, Spot
from headwater.data.value import ABSENT, MaybeValue, Value, lookup
from headwater.errors import AbsentError, AuthoringError, HeadwaterError, InvalidValueError, cut_frames
from headwater.replica.document import NOT_HERE, Document

if TYPE_CHECKING:
    from typing import Self

    from headwater.cells.handle_base import Member

__all__ = ["Input", "Site", "walk"]

T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")


class _Raise:
    """No default was given."""


_RAISE: Final = _Raise()


class Site(NamedTuple):
    """The final place of a handle, and the value stored there."""

    document: Document
    path: Path
    value: MaybeValue
    cell: int | None  # how many steps of the path lead to the cell; None: a link inside the cell led elsewhere


class Input(NotAValue, Generic[T_co]):
    """A handle that can be read: a place in a document, and the type of its value."""

    __slots__ = (
        "_codec",
        "_current",
        "_default",
        "_document",
        "_exact",
        "_maker",
        "_memo",
        "_parts",
        "_path",
        "_root_",
        "_runtime",
        "_shape",
        "_spot",
    )

    def __init__(
        self,
        runtime: HandleRuntime,
        document: Document,
        codec: TypeCodec[Any],
        path: Path = (),
        default: MaybeValue = ABSENT,
        root: Root | None = None,
    ) -> None:
        self._runtime = runtime
        self._current = runtime.current
        self._document = document
        self._path = path
        self._codec = codec
        self._exact = None if path else codec.exact
        self._default = default  # the value as long as nothing was written
        if not path and document.implied is not default:
            document.imply(default)
        self._root_ = root  # the cell that it is a part of; None: it is that itself
        self._maker: Callable[[], object] | None = None  # registers the nodes that write it; None: no node does
        self._memo: Memo[Any] | None = None
        self._parts: dict[tuple[Path, int], Any] | None = None
        self._spot = Spot(document, path, Depth.DEEP)
        self._shape: Spot | None = None

    if TYPE_CHECKING:  # Where a class declares it: a name on the class, the handle on a piece.

        @overload
        def __get__(self, obj: None, owner: type[Any]) -> Member[T_co]: ...
        @overload
        def __get__(self, obj: object, owner: type[Any]) -> Self: ...
        def __get__(self, obj: object | None, owner: type[Any]) -> Any: ...

    @property
    def document(self) -> Document:
        return self._document

    @property
    def path(self) -> Path:
        return self._path

    def link(self) -> Link:
        """A value that points here, for a document of any space."""
        key = self._document.key
        return Link(self._runtime.space_name(self._document), key.scope, key.id, self._path)

    def memo(self) -> Memo[Any]:
        """Return the decoded versions of this place, for a writer of the same value."""
        if self._memo is None:
            self._memo = self._codec.memo()
        return self._memo

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
                place = run.place
                if run.reads[place] is spot:
                    spot.stamp = run.number
                    run.place = place + 1
                else:
                    # As `_wake_writers` does, with one frame less of the Python stack: the writers may run inside.
                    if self._maker is not None and not self._document.writers:
                        self._maker()
                    if self._document.writers or run.overlay:
                        run.prepare(self._document)
                    self._spot = run.miss(spot)
            if run.overlay is None:
                raw = self._document.value
                if raw.__class__ is self._exact:
                    return raw
                if raw is ABSENT and self._root_ is None and self._default.__class__ is self._exact:
                    return self._default
        try:
            return self._value(default)
        except HeadwaterError as error:
            cut_frames(error)
            raise

    def exists(self) -> bool:
        """Whether a value is there. Inside a run this subscribes to its presence, not to the value."""
        try:
            self._wake_writers()
            self._record_read(self._document, self._path, Depth.SHAPE)
            return self._value_or_default(self._find(Depth.SHAPE)) is not ABSENT
        except Exception as error:
            cut_frames(error)
            raise

    def view(self) -> Any:
        """Open a lazy, read-only view: inside a run, only the parts that are touched are read."""
        self._wake_writers()
        site = self._find(None)
        document, path, stored, _ = site
        if stored is ABSENT:
            self._record_read(document, path, Depth.SHAPE)
        raw = self._value_or_default(site)
        if raw is ABSENT:
            raise self._absent()
        current, run = self._current, self._current.run
        number = 0 if run is None else run.number

        def touch(where: Path, depth: Depth) -> None:
            now = current.run
            if now is None:
                return
            if now is not run or now.number != number:
                raise AuthoringError(f"this view of {self!r} was opened outside this run: call view() inside it")
            now.record_read(Spot(document, where, depth))
            there = len(path) + count_stored_steps(stored, where[len(path) :])
            if there < len(where) and stored is not ABSENT:
                # It is not stored, and may be implied: as long as its container is there, and nothing nearer.
                now.record_read(Spot(document, (*where[:there], OBJECT), Depth.SHAPE))
                if there + 1 < len(where):
                    now.record_read(Spot(document, where[: there + 1], Depth.SHAPE))

        return open_view(self._codec, raw, path, touch)

    def _value(self, default: Any) -> Any:
        site = self._find(Depth.DEEP)
        raw = site.value
        if raw is ABSENT:
            raw = self._value_or_default(site)
            if raw is ABSENT:
                if default is _RAISE:
                    raise self._absent()
                return default
        codec = self._codec
        if raw.__class__ is codec.exact:
            return raw
        memo = self._memo
        if memo is None:
            memo = self.memo()
        try:
            return memo.decode(raw, self._path)
        except InvalidValueError as error:
            raise self._misfit(error) from None

    def value_in(self, root: MaybeValue) -> Any:
        """Return the value that it reads in a document with this root. ABSENT: none; LookupError: the root alone does
        not tell.
        """
        at_link, raw = walk(root, self._path)
        if at_link is not None and not (at_link == len(self._path) and self._holds_links()):
            raise LookupError("a link led elsewhere")
        if raw is not ABSENT:
            return self._codec.memo().decode(raw, self._path)
        if self._root_ is not None or (self._default is not ABSENT and self._default):
            raise LookupError("it was implied")
        return ABSENT

    def _value_or_default(self, site: Site) -> MaybeValue:
        """Return the value that a place reads as: the stored one, or a default of the cell or of a field on the way."""
        if site.value is not ABSENT:
            return site.value
        if self._root_ is None or site.cell is None:
            return self._default
        anchor, below = site.path[: site.cell], site.path[site.cell :]
        stored = lookup(self._root(site.document), anchor)
        if self._current.run is not None:
            for place, depth in deciding_places(self._root_, stored, below):
                self._record_read(site.document, anchor + place, depth)
        return fill(self._root_, stored, below).value

    # ---- where it is -------------------------------------------------------------------------------

    def _find(self, depth: Depth | None) -> Site:
        """Where it is in the end. The read of its own place is noted by the caller; None: nothing is read there."""
        document, path = self._document, self._path
        root = self._root(document)
        cell = len(self._root_.path) if self._root_ is not None else len(path)
        if not path and root.__class__ is not Link:
            return Site(document, path, root, cell)
        at_link, value = walk(root, path)
        if at_link is None or (at_link == len(path) and self._holds_links()):
            return Site(document, path, value, cell)
        return self._follow(document, path, cell, depth)

    def _follow(self, document: Document, path: Path, cell: int | None, depth: Depth | None) -> Site:
        """Follow links. Each is read as a shape: its target matters, not the value at the target."""
        hops: list[tuple[Document, Path]] = []
        while True:
            if self._current.run is not None:
                self._current.run.prepare(document)
            root = self._root(document)
            at_link, value = walk(root, path)
            if at_link is None or (at_link == len(path) and self._holds_links()):
                if document is not self._document:
                    # A link led here. Once the document is deleted, this reader sees another default than others.
                    # fault handle.default_of_target_kept: pass
                    document.imply(ABSENT)
                if depth is not None:
                    self._record_read(document, path, depth)
                return Site(document, path, value, cell)
            here = (document, path[:at_link])
            self._record_read(*here, Depth.SHAPE)
            is_circle = here in hops
            hops.append(here)
            if is_circle or len(hops) > CELL_LIMITS.link_hops:
                way = " -> ".join(doc_text(each.key, at) for each, at in hops[-8:])
                problem = "round in circles" if is_circle else "too far"
                raise BrokenLinkError(
                    f"links go {problem}: {way}. Let one of them point elsewhere: set() where it stands."
                )
            link = lookup(root, path[:at_link])
            assert type(link) is Link
            document, target = self._runtime.resolve(document, link)
            # A link at the cell or above it leads to all of it; one inside leads to a part, whose cell is elsewhere.
            cell = None if cell is None or at_link > cell else len(target) + cell - at_link
            path = target + path[at_link:]

    def set_maker(self, maker: Callable[[], object]) -> None:
        """Set the callback that registers the nodes that write the value, for a run that reads it without any."""
        self._maker = maker

    def _wake_writers(self) -> None:
        run = self._current.run
        if run is not None:
            if self._maker is not None and not self._document.writers:
                self._maker()
            run.prepare(self._document)

    def resolve_document(self) -> Document:
        """The document that it reads in the end: its own, unless a link on its way leads elsewhere."""
        return self._find(None).document

    def _holds_links(self) -> bool:
        return Link in self._codec.kinds

    def _root(self, document: Document) -> MaybeValue:
        """The document as this run sees it, or as it is shown now."""
        run = self._current.run
        if run is None:
            return self._runtime.visible(document)
        if run.overlay is not None and document in run.overlay and run.transaction is not None:
            return run.transaction.look_up(document)
        value = document.value
        return self._missing(run, document) if value is NOT_HERE else value

    def _missing(self, run: Run, document: Document) -> MaybeValue:
        self._runtime.check_thread()
        run.tracker.absent(run, document)
        raise AssertionError("the attempt was stopped")  # pragma: no cover

    def _record_read(self, document: Document, path: Path, depth: Depth) -> None:
        run = self._current.run
        if run is None:
            return
        if document is self._document and path == self._path:
            if depth is Depth.SHAPE:
                if self._shape is None:
                    self._shape = Spot(document, path, depth)
                self._shape = run.record_read(self._shape)
            else:
                self._spot = run.record_read(self._spot)
        else:
            run.record_read(Spot(document, path, depth))

    def _absent(self) -> AbsentError:
        where = doc_text(self._document.key, self._path)
        circle = self._runtime.circle(self._document)
        if circle:
            return AbsentError(
                f"nothing is at {where}, because its value depends on itself: {' reads '.join(circle)}. Let one of "
                "them read cells only, or read it with get(default)"
            )
        return AbsentError(f"nothing is at {where}: write it first, or read it with get(default)")

    # ---- further down ------------------------------------------------------------------------------

    def key(self: Input[Mapping[K, V]], k: K, /) -> Input[V]:
        """The handle of one entry of a Mapping."""
        try:
            return self._part(*step(self._codec, k))  # type: ignore[no-any-return]
        except Exception as error:
            cut_frames(error)
            raise

    def at(self, path: Callable[[T_co], U], /) -> Input[U]:
        """The handle of a field at any depth: `at(lambda card: card.title)`."""
        try:
            return self._part(*self._runtime.selector.select(self._codec, path))  # type: ignore[no-any-return]
        except Exception as error:
            cut_frames(error)
            raise

    def below(self, path: Path, /) -> Any:
        """Return the handle at a stored path below this one, for callers that name places by their paths."""
        return self._part(path, descend(self._codec, path))

    def encoded(self, value: Any, /) -> Value:
        """A value of its type as it is stored."""
        return self._codec.encode(value)

    def _misfit(self, error: InvalidValueError) -> InvalidValueError:
        """Return the error for a value that does not fit here, with the place."""
        key = self._document.key
        where = key.id if key.scope == SPACE_SCOPE else f"{key.id} of {key.scope}"
        return InvalidValueError(f"{where}, {error}", path=error.path)

    def _part(self, path: Path, codec: TypeCodec[Any]) -> Any:
        """Return the handle of a part. The same part has the same handle, which reuses its decoded values."""
        parts = self._parts
        if parts is None:
            parts = self._parts = {}
        known = parts.get((path, id(codec)))
        if known is not None:
            return known
        default = self._default
        below = ABSENT if default is ABSENT else lookup(default, path)
        root = self._root_ or Root(self._codec, default, self._path)
        made = type(self)(self._runtime, self._document, codec, self._path + path, below, root)
        if len(parts) >= CELL_LIMITS.kept_parts:
            parts.clear()
        made._maker = self._maker
        parts[path, id(codec)] = made  # The handle keeps the codec alive, so that its id stays unique.
        return made

    # ---- observing ---------------------------------------------------------------------------------

    def pull(self) -> Coroutine[Any, Any, T_co]:
        """Bring it up to date and return it."""
        try:
            return self._runtime.pull(self)
        except Exception as error:
            cut_frames(error)
            raise

    def watch(self) -> AsyncIterator[T_co]:
        """The value now, then the latest whenever it changed; never a backlog."""
        return self._runtime.watch(self)

    def sink(
        self,
        fn: Callable[[T_co], object],
        /,
        *,
        group: object | None = None,
        debounce_ms: float = 0,
        throttle_ms: float = 0,
        auto_debounce: bool = True,
    ) -> SinkSubscription:
        """Call `fn` with the value now and whenever it changes, but not for changes made with the same group."""
        try:
            return self._runtime.sink(self, fn, group, Delays.of(debounce_ms, throttle_ms, auto_debounce))
        except Exception as error:
            cut_frames(error)
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {doc_text(self._document.key, self._path)}>"


def walk(value: MaybeValue, path: Path) -> tuple[int | None, MaybeValue]:
    """Return the number of steps to the first link, if there is one, and the value at the end if there is none."""
    at: MaybeValue = value
    for steps, each in enumerate(path):
        if at.__class__ is Link:
            return steps, at
        at = lookup(at, (each,))
    return (len(path), at) if at.__class__ is Link else (None, at)
