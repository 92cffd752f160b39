"""Handles that can be written. A write is as narrow as possible: a field, an intent, a whole value.

Inside a run a write belongs to the run's transaction; outside, each is a transaction of its own. A write through a link
that redirects lands at the target of the link. Writes of one program to one document land in the order in which they
were made, unless the target of such a link is not known yet. There is no write by index.

A write reads nothing, with two exceptions, which are reads of a shape: the links on its way, and the absence of a value
that the write creates because its type implies it. Without the second, two writers who both create a Mapping for their
first key would overwrite each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, overload

from headwater.cells.codec_base import TypeCodec
from headwater.cells.containers import FrozensetCodec, TupleCodec, decode_given
from headwater.cells.handle import Input, Site, walk
from headwater.cells.scalars import ConstrainedCodec, FloatCodec, IntCodec
from headwater.cells.selector import step
from headwater.cells.typed_path import BrokenLinkError, Root, fill, is_required, known_places, own_default
from headwater.data.address import Depth, Link, doc_text
from headwater.data.diff import aligned, all_fields, changed_fields, field_patches
from headwater.data.patch import Patch, apply
from headwater.data.patch_kinds import Kind, PatchError
from headwater.data.path import Path, starts_with
from headwater.data.value import ABSENT, MaybeValue, Value, equal, lookup
from headwater.errors import (
    AbsentError,
    AccessError,
    AuthoringError,
    InvalidValueError,
    LimitError,
    cut_frames,
)
from headwater.replica.document import NOT_HERE, Document

__all__ = ["Cell", "FieldChange"]

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E")
K = TypeVar("K")
V = TypeVar("V")


class FieldChange(NamedTuple):
    """A plain `set`, or a `delete` that restores a default: the value that its caller wants, and the fields it writes.

    These are the fields that differ from the value that the caller saw, and those that earlier writes of its runtime
    without an outcome have written. All other fields keep the values that they have where the write lands.
    """

    seen: MaybeValue
    wanted: Value
    places: tuple[Path, ...] = ()  # where earlier writes without an outcome wrote

    def patches(self, now: MaybeValue) -> tuple[Patch, ...]:
        """Return the patches that write the fields in a value."""
        return field_patches(self.wanted, (*changed_fields(self.seen, self.wanted), *self.places), now)


class Cell(Input[T]):
    """A handle that can be read and written."""

    __slots__ = ()

    def key(self: Cell[Mapping[K, V]], k: K, /) -> Cell[V]:
        """The handle of one entry of a Mapping."""
        try:
            return self._part(*step(self._codec, k))  # type: ignore[no-any-return]
        except Exception as error:
            cut_frames(error)
            raise

    def at(self, path: Callable[[T], U], /) -> Cell[U]:
        """The handle of a field at any depth: `at(lambda card: card.title)`."""
        try:
            return self._part(*self._runtime.selector.select(self._codec, path))  # type: ignore[no-any-return]
        except Exception as error:
            cut_frames(error)
            raise

    def as_input(self) -> Input[T]:
        """Return a handle on the same place that can only be read."""
        made: Input[T] = Input(self._runtime, self._document, self._codec, self._path, self._default, self._root_)
        made._maker = self._maker
        return made

    # ---- whole values ------------------------------------------------------------------------------

    def set(self, value: T, /, *, group: object | None = None) -> None:
        """Replace the value. Stored fields that this program's version of a Model does not know are kept."""
        try:
            run = self._current.run
            if run is None:
                self._set_outside(value, group)
            elif run.performs is None:
                self._set(value)
            else:
                run.performs(run, lambda: self._set(value))
        except Exception as error:
            cut_frames(error)
            raise

    def _set_outside(self, value: T, group: object | None) -> None:
        self._runtime.check_thread()
        root = self._visible_root()
        if root is None:
            self._encoded(self._codec, value)  # A misfit is refused here, not when its turn comes.
            self._runtime.write(self, self._setter(value), group)
            return
        stored = lookup(root, self._path)
        try:
            raw = self.memo().merge(stored, value, self._path)
        except InvalidValueError as error:
            raise self._misfit(error) from None
        seen = self._read_in(root, self._path, self._cell_depth) if stored is ABSENT else stored
        change = self._change(self._document, self._path, seen, raw)
        self._write_change(change, self._setter(value, change), group)

    def _write_change(self, change: FieldChange, act: Callable[[], None], group: object | None) -> None:
        """Outside a run: replace the whole document, if that is here and needs no read; otherwise call `act` in one."""

        def again() -> None:
            self._runtime.write(self, act, group)

        now = self._document.value
        needs_read = now is NOT_HERE or now.__class__ is Link or (now is ABSENT and type(change.wanted) is dict)
        if self._path or needs_read or not self._runtime.put(self._document, change.wanted, again, group):
            again()

    def _visible_root(self) -> MaybeValue | None:
        """Return the document as a caller outside any run sees it: when its write has its turn, it may be another one.

        None: nothing of it was shown yet, or a link leads elsewhere.
        """
        document = self._document
        root = document.stale if document.value is NOT_HERE else document.value
        # fault cell.seen_at_first_attempt: if root is NOT_HERE or self._path or walk(root, self._path)[0] is not None:
        if root is NOT_HERE or walk(root, self._path)[0] is not None:
            return None
        return root

    def _setter(self, value: T, change: FieldChange | None = None) -> Callable[[], None]:
        """Return the write of a value outside a run. Made again, it writes the fields that it wrote first."""

        def act() -> None:
            nonlocal change
            change = self._set_fields(value, change)

        return act

    def update(self, fn: Callable[[T], T], /, *, group: object | None = None) -> None:
        """Read, change and replace. Outside a run it is repeated if another write came first."""
        try:
            if self._current.run is not None:
                self._update(fn)
            else:
                self._run_or_write(lambda: self._setter(fn(self.get()))(), group)
        except Exception as error:
            cut_frames(error)
            raise

    def _update(self, fn: Callable[[T], T]) -> None:
        self._set(fn(self.get()))

    def delete(self, *, group: object | None = None) -> None:
        """Remove it. A cell or field with a default has that again. Nothing happens if nothing is there."""
        try:
            if self._current.run is not None:
                self._run_or_write(self._delete, group)
            else:
                self._delete_outside(group)
        except Exception as error:
            cut_frames(error)
            raise

    def _delete_outside(self, group: object | None) -> None:
        """Delete, or write the fields of the default, as a plain set of the default does."""
        self._runtime.check_thread()
        root, change = self._visible_root(), None
        if root is not None and (seen := self._read_in(root, self._path, self._cell_depth)) is not ABSENT:
            default = self._default_in(root, self._path, self._cell_depth)
            if type(default) is dict:
                change = self._change(self._document, self._path, seen, default)

        def act() -> None:
            nonlocal change
            change = self._delete_fields(change)

        if change is None:
            self._runtime.write(self, act, group)
        else:
            self._write_change(change, act, group)

    # ---- intents -----------------------------------------------------------------------------------

    def push(self: Cell[tuple[E, ...]], *items: E, keep: int | None = None, group: object | None = None) -> None:
        """Append, and keep the last `keep` only. Merges with appends of others; reads nothing."""
        try:
            if keep is not None and (type(keep) is not int or keep < 0):
                raise AuthoringError(f"push to {self!r} with keep={keep!r}: write how many elements stay, 0 or more")
            element = self._element("push", TupleCodec)
            raw = tuple(self._encoded(element, item) for item in items)
            if raw or keep is not None:
                self._run_or_write(lambda: self._apply_intent("append", (raw, keep), ()), group)
        except Exception as error:
            cut_frames(error)
            raise

    @overload
    def add(self: Cell[frozenset[E]], item: E, /, *, group: object | None = None) -> None: ...
    @overload
    def add(self: Cell[tuple[E, ...]], item: E, /, *, group: object | None = None) -> None: ...
    def add(self: Cell[Any], item: Any, /, *, group: object | None = None) -> None:
        """Add an element that is not there yet, in any stored form: to a tuple at its end. Merges with additions."""
        try:
            element = self._element("add", TupleCodec, FrozensetCodec)
            raw = self._encoded(element, item)
            # fault cell.set_in_order_of_additions: kind: Kind = "add_unique"
            kind: Kind = "add_sorted" if isinstance(self._codec, FrozensetCodec) else "add_unique"
            self._run_or_write(lambda: self._apply_intent(kind, self._stored_forms(element, raw)[-1], ()), group)
        except Exception as error:
            cut_frames(error)
            raise

    @overload
    def discard(self: Cell[frozenset[E]], item: E, /, *, group: object | None = None) -> None: ...
    @overload
    def discard(self: Cell[tuple[E, ...]], item: E, /, *, group: object | None = None) -> None: ...
    def discard(self: Cell[Any], item: Any, /, *, group: object | None = None) -> None:
        """Take out every equal element, in any stored form. Merges with removals of others."""
        try:
            element = self._element("discard", TupleCodec, FrozensetCodec)
            raw = self._encoded(element, item)
            self._run_or_write(lambda: self._discard(element, raw), group)
        except Exception as error:
            cut_frames(error)
            raise

    @overload
    def increment(self: Cell[int], by: int = 1, /, *, group: object | None = None) -> None: ...
    @overload
    def increment(self: Cell[float], by: float = 1, /, *, group: object | None = None) -> None: ...
    def increment(self: Cell[Any], by: Any = 1, /, *, group: object | None = None) -> None:
        """Add to a number. Merges with increments of others; an absent number starts from 0."""
        try:
            if isinstance(self._codec, ConstrainedCodec):
                raise AuthoringError(f"increment of {self!r} would not look at the bounds of its type: use update(fn)")
            if not isinstance(self._codec, (IntCodec, FloatCodec)):
                raise AuthoringError(f"increment needs a cell of int or float, {self!r} is {self._codec.expected}")
            raw = self._encoded(self._codec, by)
            self._run_or_write(lambda: self._apply_intent("increment", raw, 0), group)
        except Exception as error:
            cut_frames(error)
            raise

    def _encoded(self, codec: TypeCodec[Any], value: Any) -> Value:
        """Return the stored form of an argument of an intent."""
        try:
            return codec.encode(value, self._path)
        except InvalidValueError as error:
            raise self._misfit(error) from None

    def _element(self, what: str, *kinds: type) -> TypeCodec[Any]:
        codec = self._codec
        if not isinstance(codec, (TupleCodec, FrozensetCodec)) or not isinstance(codec, kinds):
            wanted = " or ".join("a tuple" if kind is TupleCodec else "a frozenset" for kind in kinds)
            raise AuthoringError(f"{what} needs a cell of {wanted}, {self!r} is {codec.expected}")
        return codec.element

    def decoded(self, kind: str, raw: Value, /) -> Any:
        """Decode the argument of `set` or of an intent from its stored form, for callers that have it as JSON."""
        codec = self._element(kind, TupleCodec, FrozensetCodec) if kind in ("push", "add", "discard") else self._codec
        return decode_given(codec, raw, self._path)

    # ---- inside a transaction -----------------------------------------------------------------------

    def _run_or_write(self, act: Callable[[], None], group: object | None) -> None:
        """In the open run, or in a transaction of its own."""
        run = self._current.run
        if run is None:
            self._runtime.check_thread()
            self._runtime.write(self, act, group)
        elif run.performs is None:
            act()
        else:
            run.performs(run, act)

    def _set(self, value: T) -> None:
        """Replace the value inside a run of a node, a handler or a transaction."""
        try:
            site = self._find(None)
        except (BrokenLinkError, AccessError):
            if not self.replace_link(value):
                raise
            return
        raw = self._merged(site, value)
        if site.value is ABSENT:
            # Keys have the order in which readers saw them, in a default as in a stored value.
            # fault cell.order_of_default_replaced: pass
            raw = aligned(self._shown(site), raw)
        self._fill(site, is_whole=True)
        self._write(site.document, Patch("add", site.path, raw))
        if type(raw) is dict:
            self._read_unwritten_fields(site, raw)

    def _merged(self, site: Site, value: T) -> Value:
        """Return a value as it is stored, with the stored fields that this version of a Model does not know."""
        try:
            return self.memo().merge(site.value, value, site.path)
        except InvalidValueError as error:
            raise self._misfit(error) from None

    def _set_fields(self, value: T, change: FieldChange | None) -> FieldChange | None:
        """Make a plain set, at first or again. Returns the change that it is from now on."""
        try:
            site = self._find(None)
        except (BrokenLinkError, AccessError):
            if not self.replace_link(value):
                raise
            return None
        shown = self._shown(site)
        if change is None:
            change = self._change(site.document, site.path, shown, self._merged(site, value))
        change = self._with_unseen(change, site.document, site.path)
        self._apply_change(site, shown, change)
        return change

    def _change(self, document: Document, path: Path, seen: MaybeValue, wanted: Value) -> FieldChange:
        """Return the change that a caller who sees a value asks for now."""
        if type(seen) is not dict or type(wanted) is not dict:
            return FieldChange(seen, wanted)
        # fault cell.undecided_fields_left_out: return FieldChange(seen, wanted)
        undecided = self._runtime.undecided_places(document, path)
        places = undecided.below
        if undecided.is_replaced:
            # A write that stores a default on its way does not count as a write of all fields of the default.
            is_own = document is self._document and path == self._path  # Otherwise a link led there.
            default = self._read_in(ABSENT, path, self._cell_depth) if is_own else ABSENT
            confirmed: MaybeValue = ABSENT if document.confirmed is NOT_HERE else document.confirmed
            decided = self._read_in(confirmed, path, self._cell_depth) if is_own else lookup(confirmed, path)
            # fault+ cell.default_on_the_way_repeated: decided = ABSENT
            wrote = changed_fields(decided, seen) if type(decided) is dict else all_fields(seen)
            # A write that made a value where none was removed fields of the default at most: others came since.
            # fault cell.fields_of_others_removed: places += wrote
            places += (
                place
                for place in wrote
                if undecided.is_removed or not (lookup(seen, place) is lookup(default, place) is ABSENT)
            )
        return FieldChange(seen, wanted, tuple(places))

    def _with_unseen(self, change: FieldChange, document: Document, path: Path) -> FieldChange:
        """Add the places that earlier writes wrote after the change was asked for."""
        if type(change.wanted) is not dict:
            return change
        places = dict.fromkeys(change.places)
        for each in self._runtime.unseen_places(document):
            if starts_with(each, path) or starts_with(path, each):
                places[each[len(path) :]] = None
        return change._replace(places=tuple(places))

    def _apply_change(self, site: Site, shown: MaybeValue, change: FieldChange) -> None:
        """Write the fields of a change into the present value of a place."""
        # fault cell.fields_of_others_replaced: patches = change._replace(places=((),)).patches(shown)
        patches = change.patches(shown)
        after = shown
        for patch in patches:
            after = apply(after, patch)[0]
        if shown is not change.seen and not self._is_fit(after, site.path):
            # The fields of both writers do not fit together.
            after, patches = change.wanted, (Patch("add", (), change.wanted),)
        if self._current.written is not None:
            self._current.written.extend((site.document, (*site.path, *patch.path)) for patch in patches)
        if site.value is ABSENT:
            # fault cell.first_value_replaced: if False:
            if not site.path and type(after) is dict:
                # Two writers who both change the default merge their fields: the second one makes its write again.
                self._record_read(site.document, site.path, Depth.SHAPE)
            self._fill(site, is_whole=True)
            assert after is not ABSENT
            patches = (Patch("add", (), after),)
        for patch in patches:
            self._write(site.document, patch._replace(path=(*site.path, *patch.path)))

    def _is_fit(self, raw: MaybeValue, path: Path) -> bool:
        """Return True if a stored value has the type of the handle."""
        assert raw is not ABSENT
        try:
            self._codec.decode(raw, path)
        except InvalidValueError:
            return False
        return True

    def _shown(self, site: Site) -> MaybeValue:
        """Return the value of a place as its readers see it: the stored one, or the one that a default implies."""
        if site.value is not ABSENT:
            return site.value
        return ABSENT if site.cell is None else self._read_in(self._root(site.document), site.path, site.cell)

    @property
    def _cell_depth(self) -> int:
        """How many steps of its path lead to the cell."""
        return len(self._path) if self._root_ is None else len(self._root_.path)

    def _read_in(self, root: MaybeValue, path: Path, cell: int) -> MaybeValue:
        """Return the value that a reader sees in a document with this root. The cell is after `cell` steps."""
        # fault+ cell.implied_values_unseen: return lookup(root, path)
        return fill(self._root_ or Root(self._codec, self._default), lookup(root, path[:cell]), path[cell:]).value

    def _read_unwritten_fields(self, site: Site, raw: Value) -> None:
        """Depend on the fields of a structured value that the commit leaves out.

        The commit carries a difference by field: a field that is left out must have the same value where the commit
        lands.
        """
        run = self._current.run
        transaction = run.transaction if run is not None else None
        # fault cell.left_out_fields_unread: if False:
        if transaction is not None and transaction.reads_back:
            for path, depth in known_places(self._codec, raw, site.path):
                transaction.saw(site.document.key, path, depth)

    def replace_link(self, *value: T) -> bool:
        """Inside a run: put a value, or nothing, in the place of a link that stands right here. False: there is no
        link.

        A link that cannot be followed is a value like any other: a writer of this place can replace it.
        """
        document, path = self._document, self._path
        if lookup(self._root(document), path).__class__ is not Link:
            return False
        self._record_read(document, path, Depth.SHAPE)
        if self._current.written is not None:
            self._current.written.append((document, path))
        if value:
            self._write(document, Patch("add", path, self._codec.encode(value[0], path)))
        else:
            self._write(document, Patch("remove", path, None))
        return True

    def _delete(self) -> None:
        """Remove the value inside a run of a node, a handler or a transaction."""
        try:
            site = self._find(None)
        except (BrokenLinkError, AccessError):
            if not self.replace_link():
                raise
            return
        _, default = (ABSENT, ABSENT) if site.cell is None else self._default_put_back(site, site.cell)
        if default is ABSENT:
            self._take_away(site, Patch("remove", site.path))
            return
        # An increment or push of another session that lands later starts from the default, as readers do.
        # fault cell.deleted_default_left_out: self._write(site.document, Patch("remove", site.path))
        self._write(site.document, Patch("add", site.path, default))
        if type(default) is dict:
            # fault cell.deleted_fields_unread: pass
            self._read_unwritten_fields(site, default)

    def _delete_fields(self, change: FieldChange | None) -> FieldChange | None:
        """Make a plain delete, at first or again. The argument and the result are those of `_set_fields`."""
        try:
            site = self._find(None)
        except (BrokenLinkError, AccessError):
            if not self.replace_link():
                raise
            return None
        shown, default = (ABSENT, ABSENT) if site.cell is None else self._default_put_back(site, site.cell)
        if default is ABSENT:
            self._take_away(site, Patch("remove", site.path))
            return None
        if change is None:
            change = self._change(site.document, site.path, shown, default)
        change = self._with_unseen(change, site.document, site.path)
        # fault cell.deleted_default_left_out: self._take_away(site, Patch("remove", site.path))
        self._apply_change(site, shown, change)
        return change

    def _default_put_back(self, site: Site, cell: int) -> tuple[MaybeValue, MaybeValue]:
        """Return the value of a place, and the default that it has once deleted. ABSENT: none, or nothing is there.

        If the value to be deleted is in a default above it, that is stored first.
        """
        root = self._root(site.document)
        old = self._read_in(root, site.path, cell)
        if old is ABSENT:
            return ABSENT, ABSENT
        default = self._default_in(root, site.path, cell)
        self._fill(site, is_whole=True)
        return old, default

    def _default_in(self, root: MaybeValue, path: Path, cell: int) -> MaybeValue:
        """Return the default of a place in a document with this root. ABSENT: none, as for a key of a Mapping."""
        of, below = self._root_ or Root(self._codec, self._default), path[cell:]
        stored = lookup(root, path[:cell])
        raw = of.default if stored is ABSENT else stored
        if is_required(of, raw, below):
            raise AuthoringError(f"{self!r} is a field without a default and cannot be deleted: set it instead")
        return own_default(of, raw, below)

    def _apply_intent(self, kind: Kind, arg: Value, start: Value) -> None:
        """Write an intent over the value that a reader would see. Its own start value need not be stored first."""
        site = self._find(None)
        patch = Patch(kind, site.path, arg)
        if kind == "remove_value" and self._is_nothing(site, start):
            self._take_away(site, patch)  # There is nothing to take it out of, and nothing to make for that.
            return
        self._fill(site, is_whole=False, start=start)
        if self._current.written is not None:
            self._current.written.append((site.document, site.path))
        self._write(site.document, patch)

    def _is_nothing(self, site: Site, start: Value) -> bool:
        """Whether a place has no value, stored or implied, or only the one with which an intent starts anyway."""
        if site.value is not ABSENT or site.cell is None:
            return False
        below = site.path[site.cell :]
        stored = lookup(self._root(site.document), site.path[: site.cell])
        filled = fill(self._root_ or Root(self._codec, self._default), stored, below)
        return filled.reached == len(below) and (filled.value is ABSENT or equal(filled.value, start))

    def _take_away(self, site: Site, patch: Patch) -> None:
        """Write a patch that takes something away, whether it is there or not: it may be there where this lands."""
        # fault+ cell.absent_removals_left_out: if site.value is ABSENT: return
        run = self._current.run
        if site.value is ABSENT and run is not None and run.transaction is not None and run.transaction.derived:
            self._record_read(site.document, site.path, Depth.SHAPE)  # C1: an absence is not derived again.
        if self._current.written is not None:
            self._current.written.append((site.document, site.path))
        self._write(site.document, patch)

    def _discard(self, element: TypeCodec[Any], raw: Value) -> None:
        for form in self._stored_forms(element, raw):
            self._apply_intent("remove_value", form, ())

    def _stored_forms(self, element: TypeCodec[Any], raw: Value) -> list[Value]:
        """An element as it would be stored, then each other form of it that is: another version's reads the same."""
        forms, stored = [raw], self._find(None).value
        if type(stored) is tuple:
            item = element.decode(raw, self._path)
            for each in stored:
                if each.__class__ is element.exact or any(equal(each, form) for form in forms):
                    continue  # It is its own value, or known already.
                try:
                    known = element.decode(each, self._path)
                except InvalidValueError:
                    continue  # It reads as nothing.
                if type(known) is type(item) and known == item:
                    forms.append(each)
        return forms

    def _fill(self, site: Site, *, is_whole: bool, start: MaybeValue = ABSENT) -> None:
        """Store the implied values on the way to a place, and at it if that value is to be changed."""
        if site.value is not ABSENT or (is_whole and not site.path):
            return
        if site.cell is None:
            self._check_parents(site)
            return
        root = self._root_ or Root(self._codec, self._default)
        anchor, below = site.path[: site.cell], site.path[site.cell :]
        filled = fill(root, lookup(self._root(site.document), anchor), below)
        for path, value in filled.puts:
            if len(path) == len(below) and (is_whole or equal(value, start)):
                continue
            self._record_read(site.document, anchor + path, Depth.SHAPE)  # The first writer wins.
            self._write(site.document, Patch("add", anchor + path, value))
        if filled.reached < len(below):
            raise self._nothing_above(site, len(anchor) + filled.reached)
        if anchor:
            self._check_parents(site)

    def _check_parents(self, site: Site) -> None:
        """Everything above a place has to be there: nothing implies it."""
        root = self._root(site.document)
        for steps in range(len(site.path)):
            if lookup(root, site.path[:steps]) is ABSENT:
                raise self._nothing_above(site, steps)

    def _nothing_above(self, site: Site, steps: int) -> AbsentError:
        self._record_read(site.document, site.path[:steps], Depth.SHAPE)
        where = doc_text(site.document.key, site.path[:steps])
        return AbsentError(f"{self!r} cannot be written, because nothing is at {where}: write that first")

    def _write(self, document: Document, patch: Patch) -> None:
        run = self._current.run
        assert run is not None
        self._runtime.check_thread()
        try:
            run.tracker.write(run, document, patch)
        except PatchError as error:
            kind = LimitError if error.is_limit else AuthoringError
            raise kind(f"{self!r} cannot be written: {error}. Write a value of its type with set()") from None
