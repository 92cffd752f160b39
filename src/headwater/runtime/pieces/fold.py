"""`fold`: one value over many elements, updated with the changed elements only.

The node of a fold keeps the elements of its last run and the value made from them. Unchanged raw values are shared
between versions of the source, so that the same object means the same element. The kept elements and value belong
together, so that a rejected commit does no harm. `add` and `remove` are called for the elements that came, left or
changed, in the order of the source. The first run in a process continues from the stored value if its elements can be
determined (`FoldCheckpoint`); otherwise it goes over all elements.

`FoldCheckpoint` is the stored state from which the next process continues. The stored value alone tells neither which
elements went into it nor which code made it. Beside it is a note, written in the same commit: the fingerprint of `add`,
`remove`, `by`, `start` and the types, and a number that rises, so that a value never changes without its note. The
elements that went in are not stored: admission accepts a commit only if all its reads still hold (C1), and the past can
be read (C11). So the elements of a value are its source as of the seq of its commit. If the source was not written
since, that is the source as loaded; otherwise the source is read as of that seq, once, and the elements that differ are
removed and added. A stored copy of the elements would cost a second write per element, by every runtime with the piece
open, only to save work at a start.

The fold starts from nothing if the stored state does not fit: another fingerprint or none, a value that another writer
wrote or that is not confirmed yet (as in a piece that is stopped and opened at once), a source in another space, behind
a link or implied by a default, or history that was compacted away. An element that changed without changing the value
counts as changed since: no commit is spent to record otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.codec_base import Mismatch
from headwater.cells.containers import MappingCodec
from headwater.cells.handle import Input
from headwater.cells.model import Json
from headwater.data.address import DocKey
from headwater.data.json_form import canonical
from headwater.data.text import shown
from headwater.data.value import ABSENT, Absent, MaybeValue
from headwater.errors import AuthoringError, HeadwaterError, InvalidValueError, LoadError
from headwater.pieces.declarations import GivenMember
from headwater.pieces.handles import Computed
from headwater.pieces.types import instead
from headwater.protocol.messages import Query
from headwater.protocol.verdict import Conflict
from headwater.replica.document import NOT_HERE, Document
from headwater.replica.feed import Kind, Notification
from headwater.replica.replica import Replica
from headwater.replica.session import LinkState
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.nodes import encoder
from headwater.runtime.pieces.classes import member_digests
from headwater.runtime.pieces.identity import part_of
from headwater.scheduler.node import NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.cells.codec_base import TypeCodec
    from headwater.pieces.declarations import FoldMember
    from headwater.runtime.channel.channel import EngineChannel
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.pieces.view import ScopedView


@dataclass(frozen=True, slots=True)
class Basis:
    """A stored value, and the elements that went into it."""

    value: Any
    elements: Any  # ABSENT: the source was absent


@dataclass(frozen=True, slots=True)
class _Found:
    """A stored value, and the document with the source as of its commit."""

    value: Any
    past: Document | None  # None: the confirmed source was not written since


class FoldCheckpoint:
    """The stored value and the note of one fold."""

    __slots__ = ("_code", "_folds", "_found", "_is_known", "_member", "_note", "_output", "_value", "_view")

    def __init__(self, member: FoldMember, value: Computed[Any], view: ScopedView, folds: Folds) -> None:
        self._member = member
        self._value = value
        self._view = view
        self._folds = folds
        self._output = value.document
        self._note: Cell[Any] = Cell(
            view.instance.core, view.result_document(f"{member.stored}/folded"), codec_for(Json)
        )
        self._code: str | None = None
        self._is_known = False  # whether `_code` was looked up
        self._found: _Found | None = None  # the stored state to continue from, while its source is fetched

    @property
    def note(self) -> Document:
        """The document of the note beside the value."""
        return self._note.document

    def forget(self) -> None:
        """Drop the known fingerprint and stored state, after the code may have changed."""
        self._is_known = False
        self._found = None

    @property
    def code(self) -> str | None:
        if not self._is_known:
            cls = self._view.instance.cls
            self._code = member_digests(cls).get(f"{cls.__schema__.name}.{self._member.stored}")
            self._is_known = True
        return self._code

    # ---- continuing from the stored state ----------------------------------------------------------

    def basis(self, source: Input[Any]) -> Basis | None:
        """Inside a run: return the state to continue from, if there is one. Stop the attempt until it is loaded."""
        if self.code is None:
            return None
        self._need(self.note)
        found = self._found
        if found is None:
            # Looked up once: the stored state stays true while its source is fetched, whatever is written meanwhile.
            found = self._found = self._stored(source.document)
            if found is None:
                return None
        if found.past is None:
            root: Any = source.document.confirmed
        else:
            self._need(found.past)
            said: Any = found.past.value
            self._folds.past_of(self._view.instance.space.name).let_go(found.past)
            if said is None:
                self._found = None
                return None
            root = said[0] if said else ABSENT
        self._found = None
        try:
            return Basis(found.value, source.value_in(root))
        except (LookupError, InvalidValueError):
            return None

    def _stored(self, source: Document) -> _Found | None:
        output, note = self._output, self.note
        space = self._view.instance.space.name
        said: Any = note.value
        if source.home is not output.home or not self._folds.has_past(space):
            return None  # Seqs of another space do not compare, and without a log there are none.
        is_unconfirmed = any(each.layers or each.entry is not None for each in (output, note))
        if is_unconfirmed or not isinstance(said, Mapping) or said.get("code") != self.code:
            return None
        raw: Any = output.value
        if raw is ABSENT or not 0 < output.written <= note.written:
            return None  # The value was written without its note, so not by a fold.
        try:
            value = self._value.memo().decode(raw)
        except InvalidValueError:
            return None
        if source.written <= note.written:
            return _Found(value, None)
        return _Found(value, self._folds.past_of(space).document(source.key, note.written))

    def _need(self, document: Document) -> None:
        if document.value is NOT_HERE:
            run = self._view.instance.core.current.run
            assert run is not None
            run.tracker.absent(run, document)

    # ---- writing the note --------------------------------------------------------------------------

    def say(self, value: Any) -> None:
        """Inside the run that makes a value: write the note for it, unless value and note are already stored."""
        if self.code is None:
            return
        self._need(self.note)
        said: Any = self.note.value
        turn = 0
        if isinstance(said, Mapping):
            turn = said["turn"] if type(said.get("turn")) is int else 0
            if said.get("code") == self.code and self._is_stored(value):
                return
        self._note.set({"code": self.code, "turn": turn + 1})

    def _is_stored(self, value: Any) -> bool:
        raw: MaybeValue = self._output.value  # type: ignore[assignment]  # Its run has begun, so that it is here.
        try:
            there = ABSENT if raw is ABSENT else self._value.memo().decode(raw)
        except InvalidValueError:
            return False
        return same(dict(there) if self._member.by is not None and isinstance(there, Mapping) else there, value)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are one object, or equal and of the same type: True is not 1."""
    return one is other or (one.__class__ is other.__class__ and one == other)


class Folding:
    """One fold of one piece: the elements and the value of its last run."""

    __slots__ = (
        "_codec",
        "_folded",
        "_has_begun",
        "_is_mapping",
        "_member",
        "_view",
        "elements",
        "groups",
        "sizes",
    )

    def __init__(self, member: FoldMember, view: ScopedView, folded: FoldCheckpoint, codec: TypeCodec[Any]) -> None:
        self._member = member
        self._view = view  # the view of its piece, kept alive by this reference
        self._folded = folded
        self._codec = codec  # of the source
        self._is_mapping = is_mapping = isinstance(codec, MappingCodec)
        self._has_begun = False
        self.elements: Any = {} if is_mapping else ()  # the elements that went into the value
        self.groups: dict[Any, Any] = {}  # the values, by group; one group without `by`
        self.sizes: dict[Any, int] = {}  # elements per group: a group without elements is left out

    def forget(self) -> None:
        """Start from nothing at the next run, without the stored value: another version of the function made it."""
        self._has_begun = True
        self._folded.forget()
        self.elements, self.groups, self.sizes = {} if self._is_mapping else (), {}, {}

    def run(self) -> Any:
        """Update the value with the changed elements and return it."""
        # Resolved in a run: the record that names an input may have to arrive first.
        source: Input[Any] = self._view.handle(self._member.source)
        now: Any = source.get({} if self._is_mapping else ())
        if not self._has_begun:
            self._go_on(source, now)
        groups, sizes, value = self._updated(now)
        self._folded.say(value)
        # Only now: an author's function that raises, or an attempt that is stopped, has changed nothing. The kept
        # elements and groups belong together whatever the verdict of this commit: the next run starts from them.
        self.elements, self.groups, self.sizes = now, groups, sizes
        return value

    def apart(self) -> Any:
        """Return the value on the view of the open transaction. The kept elements stay those of the last run."""
        source: Input[Any] = self._view.handle(self._member.source)
        return self._updated(source.get({} if self._is_mapping else ()))[2]

    def _updated(self, now: Any) -> tuple[dict[Any, Any], dict[Any, int], Any]:
        """Return the groups, their sizes and the value for the current elements."""
        groups, sizes = dict(self.groups), dict(self.sizes)
        gone, came = self._entries(now) if self._is_mapping else _elements(self.elements, now)
        for element in gone:
            self._take(groups, sizes, element)
        for element in came:
            self._put(groups, sizes, element)
        return groups, sizes, groups.get(None, self._member.start) if self._member.by is None else dict(groups)

    def _go_on(self, source: Input[Any], now: Any) -> None:
        """Continue from the stored value and the elements that went into it."""
        basis = self._folded.basis(source)
        self._has_begun = True
        if basis is None or basis.elements is ABSENT:
            return
        elements: Any = basis.elements if self._is_mapping else self._shared(basis.elements, now)
        each: Any = elements.values() if self._is_mapping else elements
        sizes = Counter(map(self._group, each))
        groups = dict(basis.value) if self._member.by is not None else {None: basis.value} if elements else {}
        if groups.keys() == sizes.keys():
            self.elements, self.groups, self.sizes = elements, groups, dict(sizes)

    def _shared(self, before: tuple[Any, ...], now: tuple[Any, ...]) -> tuple[Any, ...]:
        """Replace each stored element by the equal object of the current tuple: `_elements` compares by identity."""
        encode = self._codec.element.encode  # type: ignore[attr-defined]  # It is a tuple's.
        there: dict[bytes, list[Any]] = {}
        for each in now:
            there.setdefault(canonical(encode(each)), []).append(each)
        found = []
        for each in before:
            same_ones = there.get(canonical(encode(each)))
            found.append(same_ones.pop() if same_ones else each)
        return tuple(found)

    def _entries(self, now: Mapping[Any, Any]) -> tuple[list[Any], list[Any]]:
        """Return the entries that left and those that came, by key."""
        before = self.elements
        gone = [each for key, each in before.items() if key not in now or not same(each, now[key])]
        came = [each for key, each in now.items() if key not in before or not same(before[key], each)]
        return gone, came

    def _group(self, element: Any) -> Any:
        return None if self._member.by is None else self._member.by(element)

    def _put(self, groups: dict[Any, Any], sizes: dict[Any, int], element: Any) -> None:
        group = self._group(element)
        if group not in groups and self._member.by is not None:
            self._check_group(group)
        groups[group] = self._member.add(groups.get(group, self._member.start), element)
        sizes[group] = sizes.get(group, 0) + 1

    def _check_group(self, group: Any) -> None:
        """Check the key of a new group here, where the answer of by= is known: an encoding error would not name it."""
        codec = self._view.instance.schema.codec(self._member)
        assert isinstance(codec, MappingCodec)
        try:
            codec.keys.step(group)
        except Mismatch:
            raise self._member.fault(
                f"by= answered {shown(group)}, and its groups are {codec.keys.expected}",
                instead(self._member.name, group, codec.element.expected),
            ) from None

    def _take(self, groups: dict[Any, Any], sizes: dict[Any, int], element: Any) -> None:
        group = self._group(element)
        if group not in groups:
            raise AuthoringError(
                f"{self._member!r}: by= named another group for an element than before: let it depend on nothing else"
            )
        groups[group] = self._member.remove(groups[group], element)
        sizes[group] -= 1
        if not sizes[group]:
            del groups[group], sizes[group]


def _elements(before: tuple[Any, ...], now: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Return the elements that left a tuple and those that came. An element that only moved is in neither list."""
    low, most = 0, min(len(before), len(now))
    while low < most and same(before[low], now[low]):
        low += 1
    high = 0
    while high < most - low and same(before[-1 - high], now[-1 - high]):
        high += 1
    gone, came = before[low : len(before) - high], now[low : len(now) - high]
    counts = Counter(map(id, gone))  # Both tuples keep their elements alive, so that ids are unique.
    left = []
    for each in came:
        if counts[id(each)]:
            counts[id(each)] -= 1
        else:
            left.append(each)
    stays = Counter(map(id, came))
    away = []
    for each in gone:
        if stays[id(each)]:
            stays[id(each)] -= 1
        else:
            away.append(each)
    return away, left


class PastDocuments:
    """Documents of a space as of earlier seqs, for runs that continue from there. Also the channel of its own replica.

    They are documents of a separate replica and never change: a run that needs one waits for it like for any document
    that is not loaded. Each is fetched with one query and released by the run that asked for it; an answer that no node
    waits for any more is not kept. The current state of the space is not available here.
    """

    __slots__ = ("_asked", "_channel", "_core", "_space", "_tasks", "replica")

    def __init__(self, core: Core, tasks: Tasks, channel: Callable[[str], EngineChannel | None], space: str) -> None:
        self._core = core
        self._tasks = tasks
        self._channel = channel  # returns the channel of a space by its name
        self._space = space
        self._asked: set[DocKey] = set()
        self.replica = Replica()
        core.add_replica(f"{space} as it was", self.replica, self)

    def document(self, doc: DocKey, seq: int) -> Document:
        """Return a document as of a seq: `(value,)`, `()` if it was absent, or None if its history is compacted."""
        return self.replica.documents.of(DocKey(doc.scope, f"{seq} {doc.id}"))

    def let_go(self, document: Document) -> None:
        """Release a document that its reader has read."""
        self.replica.let_go(document.key)

    # ---- the channel -------------------------------------------------------------------------------

    def watch(self, docs: Iterable[DocKey], *, is_ahead: bool = False) -> None:
        for doc in docs:
            if doc not in self._asked and not self.replica.is_here(doc):
                self._asked.add(doc)
                self._tasks.begin(self._fetch(doc), f"the past of {self._space}")

    def unwatch(self, doc: DocKey) -> bool:
        return self.replica.let_go(doc)

    def flush(self) -> None:
        """Do nothing: this replica has no writes."""

    def is_ready(self, conflict: Conflict) -> bool:
        """Return True: no other session writes here either."""
        return True

    def is_durable(self) -> bool:
        return True

    async def _fetch(self, doc: DocKey) -> None:
        seq, _, id = doc.id.partition(" ")
        try:
            found = await self._found(Query(0, doc.scope, id, int(seq)))
        finally:
            self._asked.discard(doc)
        core, replica = self._core, self.replica
        document = replica.documents.get(doc)
        if document is None or not core.scheduler.loads.is_awaited(document):
            return  # No node waits for it any more.
        replica.shown_anew()
        replica.confirmed.put(doc, found, 0)
        document.value = found
        replica.feed.emit(Notification(Kind.PULL, document, ABSENT, found, None, False, 0))
        replica.report()
        core.observers.check_conditions()
        core.request_tick()

    async def _found(self, query: Query) -> MaybeValue:
        channel = self._channel(self._space)
        if channel is None:
            return None
        for _ in range(RUNTIME_LIMITS.history_questions):
            try:
                answer = await channel.driver.query(query)
            except LoadError:
                if channel.driver.session.link is LinkState.UP:
                    return None  # The query was refused: that seq cannot be read.
                continue
            except HeadwaterError:
                return None  # The space is closed here, which its channel has reported.
            value = answer.documents[0].get()
            return () if isinstance(value, Absent) else (value,)
        return None


class Folds:
    """Makes the folds of the pieces of one runtime."""

    __slots__ = ("_channel", "_core", "_pasts", "_tasks")

    def __init__(self, core: Core, tasks: Tasks, channel: Callable[[str], EngineChannel | None]) -> None:
        self._core = core
        self._tasks = tasks
        self._channel = channel  # returns the channel of a space by its name; None: the space has no engine
        self._pasts: dict[str, PastDocuments] = {}  # by space

    def has_past(self, space: str) -> bool:
        """Return whether a space has an engine, and so a log of earlier seqs."""
        return self._channel(space) is not None

    def past_of(self, space: str) -> PastDocuments:
        """Return the documents of a space as of earlier seqs."""
        found = self._pasts.get(space)
        if found is None:
            found = self._pasts[space] = PastDocuments(self._core, self._tasks, self._channel, space)
        return found

    def make(self, view: ScopedView, member: FoldMember) -> Computed[Any]:
        """Create the handle of a fold and register its node."""
        instance = view.instance
        schema = instance.schema
        elements = schema.elements(member)
        document = view.result_document(member.stored)
        handle: Computed[Any] = Computed(instance.core, document, schema.codec(member))
        assert elements.source is not None
        folded = FoldCheckpoint(member, handle, view, self)
        folding = Folding(member, view, folded, elements.source)
        declared = () if isinstance(member.source, GivenMember) else (view.handle(member.source).document,)
        id = view.node_id(member.stored)
        instance.register(
            NodeSpec(
                id=id,
                kind=NodeKind.COMPUTATION,
                fn=folding.run,
                home=instance.space.replica,
                outputs=(document, folded.note),
                encode=encoder(id, handle),
                declared=declared,
                parent=instance.maker,
                fingerprint=instance.digest(member),
                owns_outputs=True,
                apart=folding.apart,
            ),
            part_of(view.scope, view.user, member),
        )
        handle.set_maker(view.maker(member))
        return handle
