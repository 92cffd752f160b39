"""The child set of an `each` or a `child`: the keys of the elements, and one row for each.

The node of the child set reads the keys of the source and their order, and nothing else of the elements; every row
has a node that calls the author's method with the handle of its element. So a changed element runs its own row, a moved
element runs no row, and an added element costs the same however many there are. The result of a row is stored; the
child piece behind it exists only in this runtime. Readers of the member read the order and the rows.

The observation of a row names its child (`kept_by`): its class, and the origin of each input in the maker, the element
or a member of the maker, including the maker's own inputs. An input from elsewhere has no name; then the child cannot
be restored without a run of its row. `remade` makes unbound pieces; binding them is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

from headwater.cells.cell import Cell
from headwater.cells.codec import codec_for
from headwater.cells.codec_base import Mismatch
from headwater.cells.containers import MappingCodec
from headwater.cells.handle import Input
from headwater.cells.model import Json
from headwater.data.address import SPACE_SCOPE
from headwater.data.text import shown
from headwater.data.value import freeze
from headwater.errors import AbsentError, AuthoringError, HeadwaterError, UpstreamFailedError
from headwater.pieces.declarations import ChildMember, Declaration, EachMember, GivenMember
from headwater.pieces.handles import Child, Computed, Each, Handler
from headwater.pieces.names import child_name
from headwater.pieces.piece import Piece
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.core.nodes import encoder
from headwater.runtime.core.own_view import OwnView
from headwater.runtime.core.tracker import TransactionTracker
from headwater.runtime.pieces.elements import MappingEntries, Projection, encode_projection
from headwater.runtime.pieces.identity import KEYS, NodeIdentity, row_of
from headwater.runtime.pieces.records import described, same_inputs
from headwater.runtime.pieces.view import OtherScopeHandle
from headwater.scheduler.freshness import failed_upstream
from headwater.scheduler.node import CLEAN, Node, NodeKind
from headwater.scheduler.registry import NodeSpec
from headwater.scheduler.runner import Runner

if TYPE_CHECKING:
    from headwater.cells.codec_base import TypeCodec
    from headwater.runtime.pieces.elements import Source
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.piece_documents import Erasures
    from headwater.runtime.pieces.ports import NodeSource
    from headwater.runtime.pieces.registry import PieceRegistry
    from headwater.runtime.pieces.view import ScopedView

K = TypeVar("K")
C_co = TypeVar("C_co", covariant=True)
D = TypeVar("D")

ONLY: Final = ""
"""The key of the only row of a `child`."""
_NOT_GIVEN: Final = object()

ELEMENT: Final = "element"
MEMBER: Final = "member "


class Listing:
    """The children of a child set that were last shown together to one reader, and the size of its last request."""

    __slots__ = ("_missed", "_most", "reader", "texts")

    def __init__(self) -> None:
        self.reader: object = self  # the node that ran; None: a handler
        self.texts: tuple[str, ...] = ()
        self._missed: Document | None = None
        self._most: dict[str, int] = {}

    def note_shown(self, reader: object, texts: tuple[str, ...]) -> None:
        if self.reader is not reader:
            self.reader, self._missed = reader, None
            self._most.clear()
        self.texts = texts

    def request_size(self, missed: Document, stored: str) -> int:
        """Return the number of documents of a member to request with a miss. The same miss may be reported twice."""
        if len(self.texts) < 2 or missed is self._missed:
            return 0
        self._missed = missed
        most = self._most[stored] = min(
            self._most.get(stored, RUNTIME_LIMITS.prefetched_first // RUNTIME_LIMITS.prefetched_growth)
            * RUNTIME_LIMITS.prefetched_growth,
            RUNTIME_LIMITS.prefetched_most,
        )
        return most


class ChildRow:
    """One element, the result of the author's method for it, and the child that the row keeps."""

    __slots__ = ("child", "is_new", "key", "node", "result", "text")

    def __init__(self, key: Any, text: str) -> None:
        self.key = key
        self.text = text
        self.is_new = False  # its element was added while this child set existed
        self.node: Node | None = None
        self.result: Computed[Any] | None = None
        self.child: PieceInstance | None = None


class ChildSet:
    """The rows of one member of one piece."""

    __slots__ = (
        "_apart",
        "_due",
        "_elements",
        "_erasures",
        "_gone",
        "_instance",
        "_node_source",
        "_order",
        "_registry",
        "_source",
        "_unmade",
        "_unordered",
        "listing",
        "member",
        "node",
        "rows",
    )

    def __init__(
        self,
        instance: PieceInstance,
        member: EachMember | ChildMember,
        registry: PieceRegistry,
        node_source: NodeSource,
        erasures: Erasures,
        *,
        is_sparse: bool = False,
    ) -> None:
        self._instance = instance
        self._registry = registry
        self._node_source = node_source
        self._erasures = erasures
        self.member = member
        self._unmade: dict[str, None] | None = {} if is_sparse else None  # listed rows of a sparse child set
        self._unordered: Mapping[str, Exception] = {}  # by key: errors of `order=`, with which their rows fail
        self._elements = instance.schema.elements(member)
        self.rows: dict[str, ChildRow] = {}
        self.listing = Listing()
        view = instance.view("space")
        core = instance.core
        self._order: Computed[Any] = Computed(core, view.result_document(member.stored), codec_for(tuple[str, ...]))
        self._source: Source | None = None
        self._apart: dict[str, Any] = {}  # the keys on the view of a transaction, by their text
        self._gone: dict[str, None] = {}  # keys that left the source, until an erasure finds them stored
        self._due: Cell[Mapping[str, str]] | None = None  # stored keys of children to be erased
        if isinstance(member, EachMember):
            self._source = self._find_elements(member)
            if member.forget:
                document = view.document(f"{member.stored}/due")
                self._due = Cell(core, document, codec_for(Mapping[str, str]), (), freeze({}))
        id = view.node_id(member.stored)
        self.node = instance.register(
            NodeSpec(
                id=id,
                kind=NodeKind.COMPUTATION,
                fn=self._run,
                home=instance.space.replica,
                outputs=(self._order.document, *(() if self._due is None else (self._due.document,))),
                encode=encoder(id, self._order),
                parent=instance.maker,
                fingerprint=instance.digest(member, keys=True),
                apart=self._keys_apart,
            ),
            NodeIdentity(
                member=member.stored,
                code=KEYS + member.stored if isinstance(member, EachMember) else "",
                is_keeper=not is_sparse,
                started=self._listed,
                restore=self._restore,
            ),
        )
        if self._due is not None:
            erasures.when_known(self._due.document, self._erase)  # An earlier runtime may have stored some.

    def _find_elements(self, member: EachMember) -> Source:
        """Return the entries of a Mapping, or the projection of a tuple, whose node is registered."""
        instance, codec = self._instance, self._elements.source

        def find_source() -> Input[Any]:
            found: Input[Any] = instance.view("space").handle(member.source)
            return found

        if isinstance(codec, MappingCodec):
            return MappingEntries(member, codec, find_source)
        assert codec is not None
        view = instance.view("space")
        stored = f"{member.stored}/elements"
        document = view.result_document(stored)
        source = Projection(instance.core, document, member, codec, find_source)
        instance.register(
            NodeSpec(
                id=view.node_id(stored),
                kind=NodeKind.COMPUTATION,
                fn=source.project,
                home=instance.space.replica,
                outputs=(document,),
                encode=encode_projection,
                parent=instance.maker,
                fingerprint=instance.digest(member, keys=True),
            ),
            NodeIdentity(member=stored, code=KEYS + member.stored),
        )
        return source

    def handle(self, view: ScopedView) -> Any:
        """Create the handle of the member for a view."""
        kind = EachHandle if isinstance(self.member, EachMember) else ChildHandle
        made: EachHandle[Any, Any] | ChildHandle[Any] = kind(self, view, self._order)
        made.set_maker(self._instance.maker_of(lambda: made.now))
        return made

    def current_set(self) -> ChildSet:
        """Return the current child set of the member: this one may be released. A stopped piece has only this one."""
        instance = self._instance
        return self if instance.is_stopped else instance.child_set(self.member)

    @property
    def values(self) -> TypeCodec[Any] | None:
        """The codec of the values that the rows make. None: they make pieces."""
        return self._elements.value

    def instances(self) -> list[PieceInstance]:
        return [row.child for row in self.rows.values() if row.child is not None]

    def child(self, text: str) -> PieceInstance | None:
        """Inside a run: return the child of one element, after the keys and the row are up to date."""
        self._order.get(())
        self.read_rows((text,), self._instance.view("space"))
        return self._child_of(text, self.rows.get(text))

    async def pull_child(self, text: str) -> PieceInstance | None:
        """Outside a run: bring the keys and the row of one element up to date, and return its child. None: no child."""
        core = self._instance.core
        await core.pull(self._order)
        row = self.rows.get(text)
        if row is None or row.result is None:
            return None
        await core.pull(row.result)
        return row.child

    # ---- its own run -------------------------------------------------------------------------------

    def _run(self) -> tuple[str, ...]:
        found = {ONLY: ONLY} if self._source is None else self._source.keys()
        if self._due is not None:
            self._forget(self._due, found)
        if self.is_sparse:  # From here on it has and keeps all rows, as in a piece that is awake.
            self.make_listed_rows()
            self._instance.core.afterwards(lambda: self._instance.keep_children(self.member))
        with self._node_source.batch_nodes():
            for text, key in found.items():
                if text not in self.rows:
                    self.rows[text] = self._row(key, text, is_new=True)
        for text in [text for text in self.rows if text not in found]:
            self._remove_row(self.rows.pop(text))
        self._fail_unordered({} if self._source is None else self._source.unordered)
        self._node_source.drop_rows(self._instance, self.member.stored, found)
        return tuple(found)

    def _fail_unordered(self, unordered: Mapping[str, Exception]) -> None:
        """Have the row of each element fail for which `order=` failed, and those run that failed so before."""
        before, self._unordered = self._unordered, unordered
        changed = [text for text in {**before, **unordered} if repr(before.get(text)) != repr(unordered.get(text))]
        rows = [self.rows[text] for text in changed if text in self.rows]
        self._instance.core.invalidate_readers([row.node for row in rows if row.node is not None])

    def _forget(self, due: Cell[Mapping[str, str]], found: Container[str]) -> None:
        """Store the keys that left the source, in the commit of this run.

        Keys that left are also looked for in the stored list of rows: they may have left before this runtime started. A
        key whose commit was rejected is in no list any more, and is stored again.
        """
        core, listed, stored = self._instance.core, self._order.document.value, due.document.value
        rows = [*(map(str, listed) if isinstance(listed, tuple) else ()), *self.rows]
        # fault forget.not_stored: gone: list[str] = []
        gone = [text for text in dict.fromkeys(rows) if text not in found]
        kept = [text for text in self._gone if text not in found]
        rejected = [text for text in kept if not (isinstance(stored, Mapping) and text in stored)]
        for text in dict.fromkeys((*gone, *rejected)):
            due.key(text).set(core.clock.new_token(8))
        self._gone = dict.fromkeys((*kept, *gone))
        if self._gone:
            core.afterwards(self._erase)

    def _erase(self) -> None:
        """Begin to erase the documents of the children whose keys left the source."""
        assert self._due is not None
        document, instance = self._due.document, self._instance
        if document.value is NOT_HERE:
            self._erasures.when_known(document, self._erase)
            return
        for text in document.value if isinstance(document.value, Mapping) else ():
            child = child_name(instance.id, self.member.stored, text)
            self._erasures.begin(instance.space, document, text, child, partial(self._is_back, text))

    def _is_back(self, text: str) -> bool:
        """Inside the transaction of the erasure for a stored key: return whether the source has that key again."""
        assert self._source is not None
        self._gone.pop(text, None)
        return self._source.has(text)

    def _row(self, key: Any, text: str, *, is_new: bool = False) -> ChildRow:
        instance, member = self._instance, self.member
        row = ChildRow(key, text)
        row.is_new = is_new
        view = instance.view("space")
        stored = member.stored if self._source is None else f"{member.stored}/{text}"
        id = view.node_id(f"{stored} row")
        codec = self._elements.value or codec_for(Json)
        document = instance.space.document(f"{child_name(instance.id, member.stored, text)}:row")
        row.result = Computed(instance.core, document, codec)
        row.node = instance.register(
            NodeSpec(
                id=id,
                kind=NodeKind.COMPUTATION,
                fn=self._call(row, view),
                home=instance.space.replica,
                outputs=(document,),
                encode=encoder(id, row.result),
                parent=self.node,
                fingerprint=instance.digest(member),
                apart=lambda: self._row_apart(row.text, row.key),
            ),
            NodeIdentity(
                member=row_of(member.stored),
                code=member.stored,
                element=text,
                is_new=is_new,
                started=lambda: kept_by(instance, row, self._element),
                restore=lambda said: self._restore_row(row, said),
            ),
        )
        return row

    def _call(self, row: ChildRow, view: ScopedView) -> Callable[[], object]:
        fn, piece = self.member.fn, view.piece
        elements = () if self._source is None else (self._source.element(row.key),)

        def call() -> object:
            if row.text in self._unordered:
                raise self._unordered[row.text]
            try:
                made = fn(piece, *elements)
            except Exception:
                self._look_first()
                raise
            return self._keep_result(row, made)

        return call

    def _look_first(self) -> None:
        """Bring the keys up to date after a row failed: its element may be gone, which ends the row."""
        with suppress(UpstreamFailedError):
            self._order.exists()

    # ---- on the view of a transaction --------------------------------------------------------------

    def _own_view(self) -> OwnView | None:
        """Return the view of the open transaction. None: no transaction is open, or it has written nothing."""
        run = self._instance.core.current.run
        return run.tracker.own_view if run is not None and isinstance(run.tracker, TransactionTracker) else None

    def _keys_apart(self) -> tuple[str, ...]:
        """Return the texts of the keys as the open transaction sees them. Rows and children stay as they are."""
        self._apart = {ONLY: ONLY} if self._source is None else self._source.keys()
        return tuple(self._apart)

    def _row_apart(self, text: str, key: Any) -> Any:
        """Return the result of the author's method for an element, as the open transaction sees it.

        A child that the row does not keep so far exists until the end of the transaction. If the transaction is
        committed, the row makes it again, with the same id.
        """
        elements = () if self._source is None else (self._source.element(key),)
        if self._source is not None and text in self._source.unordered:
            raise self._source.unordered[text]
        made = self.member.fn(self._instance.view("space").piece, *elements)
        if self._elements.value is not None:
            self._elements.value.encode(made)  # Raises if it is of another type.
            return made
        own, row = self._own_view(), self.rows.get(text)
        assert own is not None
        id = child_name(self._instance.id, self.member.stored, text)
        transient = cast("PieceInstance | None", own.children.pop(id, None))
        if made is not None:
            self._check_child(made)
            if row is None or row.child is None or not _is_same_child(row.child, made):
                if transient is None or not _is_same_child(transient, made):
                    own.children[id] = self._registry.make_transient_child(self._instance, made, id)
                else:
                    own.children[id] = transient
        if transient is not None and own.children.get(id) is not transient:
            transient.stop()
        return None if made is None else described(self._instance.core, made)

    def _child_of(self, text: str, row: ChildRow | None) -> PieceInstance | None:
        """Return the child of a row, or the child that takes its place in the open transaction."""
        own = self._own_view()
        if own is not None and own.children:
            found = own.children.get(child_name(self._instance.id, self.member.stored, text))
            if found is not None:
                return cast("PieceInstance", found)
        return None if row is None else row.child

    def _shown_apart(self, own: OwnView, text: str, view: ScopedView) -> Any:
        """Return the child or value of a key that the open transaction has added. None: the key is left out."""
        run = self._instance.core.current.run
        assert run is not None
        tracker = cast(TransactionTracker, run.tracker)
        try:
            made = tracker.call_apart(lambda: own.call(None, lambda: self._row_apart(text, self._apart[text])))
            if made is None or self._elements.value is not None:
                return made
        except Exception as error:
            id = self._instance.view("space").node_id(f"{self.member.stored}/{text} row")
            raise failed_upstream(id, error) from error
        child = self._child_of(text, None)
        return None if child is None else child.view(view.scope, view.user, view.session).piece

    # ---- restoring rows ----------------------------------------------------------------------------

    def _listed(self) -> tuple[str, ...] | None:
        """Return the keys of the rows, each with the type of the key as its first character.

        None: it has to run again in the next process, to know the rows that `order=` fails for.
        """
        if self._unordered:
            return None
        return tuple([f"{'i' if type(row.key) is int else 's'}{text}" for text, row in self.rows.items()])

    @property
    def is_sparse(self) -> bool:
        """Whether some rows are listed without a node. A sleeping piece makes only the rows that are needed."""
        return self._unmade is not None

    def row(self, text: str) -> ChildRow | None:
        """Return one row; make and demand it if it is only listed. None: there is no such row."""
        listed = next((each for each in (f"s{text}", f"i{text}") if self._unmade and each in self._unmade), None)
        if listed is not None and text not in self.rows:
            made = self.rows[text] = self._row(self._key(listed), text)
            assert made.node is not None
            self._instance.core.scheduler.demand(made.node)
        return self.rows.get(text)

    def make_listed_rows(self) -> None:
        """Make all listed rows."""
        unmade, self._unmade = self._unmade, None
        if unmade:
            self._restore(tuple(unmade))

    def rest(self) -> None:
        """Make all listed rows, and end the demand of single ones: the piece is only named from now on."""
        self.make_listed_rows()
        for row in self.rows.values():
            if row.node is not None and row.node.rooted:
                self._instance.core.scheduler.demand(row.node, is_demanded=False)

    def _restore(self, listed: tuple[str, ...]) -> bool:
        """Restore the rows that the last run of the child set left. Each row is then resumed, or runs, by itself."""
        if self._unmade is not None:
            self._unmade = dict.fromkeys(listed)
            return True
        try:
            keys = {each[1:]: self._key(each) for each in listed}
            for text, key in keys.items():
                if text not in self.rows:
                    self.rows[text] = self._row(key, text)
        except (HeadwaterError, ValueError, Mismatch):
            return False  # The run of the child set reports the error; rows made so far stay.
        return True

    def _key(self, listed: str) -> Any:
        if self._source is None:
            return ONLY
        return self._source.restored(listed[1:], is_number=listed[:1] == "i")

    def _element(self, row: ChildRow) -> Input[Any] | None:
        return None if self._source is None else self._source.element(row.key)

    def _restore_row(self, row: ChildRow, said: tuple[str, ...]) -> bool:
        """Restore the child that a row kept, if it kept one. Return False if the row has to run."""
        if self._elements.value is not None or not said:
            return True
        try:
            made = remade(self._instance, self._elements.pieces, self._element(row), said)
        except HeadwaterError:
            made = None
        if made is None:
            return False
        # A row is judged again if its piece wakes meanwhile: nodes of its child may have been resumed by then.
        # fault child_set.restored_child_replaced: if True:
        if row.child is None or not _is_same_child(row.child, made):
            id = child_name(self._instance.id, self.member.stored, row.text)
            row.child = self._registry.add_child(self._instance, made, id, row.node, is_back=True)
        return True

    def _keep_result(self, row: ChildRow, made: Any) -> Any:
        """Keep the result of the author's method for an element, and return the value to store."""
        if self._elements.value is not None:
            return made
        id = child_name(self._instance.id, self.member.stored, row.text)
        if made is None:
            # I7: observations of the child of this or an earlier process do not hold for a later child of the row.
            if row.child is not None or (row.node is not None and not row.node.runs):
                self._node_source.drop_child(self._instance, id)
            self._stop_child(row)
            return None
        self._check_child(made)
        child = row.child
        if child is None or not _is_same_child(child, made):
            if child is not None:
                self._stop_child(row)
                self._node_source.drop_child(self._instance, id)
            row.child = self._registry.add_child(self._instance, made, id, row.node, is_new=row.is_new)
        return described(self._instance.core, made)

    def _check_child(self, made: object) -> None:
        """Check that the author's method made a new piece."""
        if not isinstance(made, Piece):
            raise AuthoringError(f"{self.member!r} returned {shown(made)}: return a piece, or None to leave it out")
        if made.__bound__ is not None:
            raise AuthoringError(f"{self.member!r} returned {made!r}, which lives elsewhere: make one for this element")

    def _remove_row(self, row: ChildRow) -> None:
        """Remove a row whose element is gone, with its child."""
        for each in [*([] if row.child is None else row.child.all_nodes()), *filter(None, [row.node])]:
            if each.reporter is not None:
                each.reporter.report_removal(each)
        id = child_name(self._instance.id, self.member.stored, row.text)
        if self._elements.value is None and self._node_source.may_have_more_nodes(self._instance.root):
            self._node_source.drop_child(self._instance, id)
        self._stop_child(row)
        if row.node is not None and not row.node.removed:
            core, node = self._instance.core, row.node
            core.outside_run(lambda: core.remove(node))

    def _stop_child(self, row: ChildRow) -> None:
        child, row.child = row.child, None
        if child is not None:
            child.stop()

    # ---- for readers -------------------------------------------------------------------------------

    def read_rows(self, texts: tuple[str, ...], view: ScopedView) -> dict[Any, Any]:
        """Return the children or values of the rows by key, in order, as a view sees them."""
        found: dict[Any, Any] = {}
        run = self._instance.core.current.run
        self._request_results(texts)
        for text in texts:
            row = self.rows.get(text)
            if row is None or row.result is None:
                own = self._own_view()
                if own is not None and text in self._apart and own.is_computed(self._order.document):
                    made = self._shown_apart(own, text, view)
                    if made is not None:
                        found[self._apart[text]] = made
                continue  # Otherwise another runtime listed it; this child set runs in the next pass.
            if run is None and row.node is not None and not row.node.is_known and row.node.error is None:
                continue  # Its document has not arrived: a read outside a run skips the row until then.
            made = row.result.get()
            if made is None:
                continue
            if self._elements.value is not None:
                found[row.key] = made
            elif (child := self._child_of(text, row)) is not None:
                found[row.key] = child.view(view.scope, view.user, view.session).piece
        return found

    def read_all_rows(self) -> None:
        """Inside a run that keeps the rows: read each of them. A row that fails does not release the others."""
        texts: tuple[str, ...] = self._order.get(())
        self._request_results(texts)
        for text in texts:
            row = self.rows.get(text)
            if row is not None and row.result is not None:
                with suppress(UpstreamFailedError):
                    row.result.get()

    def _request_results(self, texts: tuple[str, ...]) -> None:
        """Inside a run: request the results of some rows together, and have stale ones run together."""
        run = self._instance.core.current.run
        if run is not None and isinstance(run.tracker, (TransactionTracker, Runner)):
            self.listing.note_shown(run.node, texts)
            rows = [self.rows[text] for text in texts if text in self.rows]
            self._load_results(rows)
            for row in rows:
                if row.node is not None and row.node.status != CLEAN and row.result is not None:
                    run.prepare(row.result.document)  # Without a second call of the function that reads the rows.
            run.tracker.need(run, [row.result.document for row in rows if row.result is not None])

    def _load_results(self, rows: list[ChildRow]) -> None:
        """Request the missing results of resumed rows, all at once."""
        for row in rows:
            if row.result is not None and row.result.document.value is NOT_HERE and row.node and row.node.as_of:
                self._instance.space.load(row.result.document)  # Not core.load: nothing is left to prefetch.


class EachHandle(Each[K, C_co]):
    """The handle of an `each` for one view."""

    __slots__ = ("_child_set", "_view")

    def __init__(self, child_set: ChildSet, view: ScopedView, order: Input[Any]) -> None:
        super().__init__(view.instance.core, order.document, codec_for(tuple[str, ...]))
        self._child_set = child_set
        self._view = view

    @overload
    def get(self) -> Mapping[K, C_co]: ...
    @overload
    def get(self, default: D) -> Mapping[K, C_co] | D: ...
    def get(self, default: Any = _NOT_GIVEN) -> Any:
        """Return one child for each element, in order. Inside a run this subscribes to the set of children only."""
        try:
            texts: Any = super().get()
        except AbsentError:
            if default is _NOT_GIVEN:
                raise
            return default
        return MappingProxyType(self.now.read_rows(texts, self._view))

    @property
    def now(self) -> ChildSet:
        self._child_set = self._child_set.current_set()
        return self._child_set

    @property
    def values(self) -> TypeCodec[Any] | None:
        """The codec of the values that the rows make. None: they make pieces."""
        return self._child_set.values

    def view(self) -> Any:
        """Return the same as `get`: the contents of a child are read when its members are used."""
        return self.get()

    def key(self, k: Any, /) -> Any:
        raise AuthoringError(f"key() of {self!r}: write .get()[{k!r}], which is the child")

    def at(self, path: Any, /) -> Any:
        raise AuthoringError(f"at() of {self!r}: write .get()[key], which is the child")


class ChildHandle(Child[C_co]):
    """The handle of a `child` for one view."""

    __slots__ = ("_child_set", "_view")

    def __init__(self, child_set: ChildSet, view: ScopedView, order: Input[Any]) -> None:
        super().__init__(view.instance.core, order.document, codec_for(tuple[str, ...]))
        self._child_set = child_set
        self._view = view

    @overload
    def get(self) -> C_co: ...
    @overload
    def get(self, default: D) -> C_co | D: ...
    def get(self, default: Any = _NOT_GIVEN) -> Any:
        """Return the child. Inside a run this subscribes to the identity of the child, not to its contents."""
        texts: Any = super().get(())
        found = self.now.read_rows(texts, self._view)
        if ONLY in found:
            return found[ONLY]
        if default is _NOT_GIVEN:
            raise AbsentError(f"{self!r} keeps no child: its method returned None")
        return default

    @property
    def now(self) -> ChildSet:
        self._child_set = self._child_set.current_set()
        return self._child_set

    @property
    def values(self) -> TypeCodec[Any] | None:
        """The codec of the value that the row makes. None: it makes a piece."""
        return self._child_set.values


def _is_same_child(child: PieceInstance, made: Piece) -> bool:
    """True if a child is an instance of the piece that the author's method made: the same class and inputs."""
    return child.cls is type(made) and same_inputs(child.inputs or {}, made.__inputs__)


def kept_by(
    instance: PieceInstance, row: ChildRow, element_of: Callable[[ChildRow], Input[Any] | None]
) -> tuple[str, ...] | None:
    """Return the child of a row as texts. Empty: no child. None: an input of the child cannot be named."""
    child = row.child
    if child is None:
        return ()
    said = [child.schema.name]
    element = element_of(row)
    for name, value in sorted((child.inputs or {}).items()):
        origin = _origin(instance, element, value)
        if origin is None:
            return None
        said.append(f"{name}={origin}")
    return tuple(said)


def remade(
    instance: PieceInstance, classes: tuple[type[Piece], ...], element: Input[Any] | None, said: tuple[str, ...]
) -> Piece | None:
    """Return the unbound piece that the texts name.

    None: its class or an input is not known here, or the class was defined again.
    """
    cls = next((each for each in classes if each.__schema__.name == said[0]), None)
    if cls is None or cls.__schema__.is_former:
        return None
    inputs: dict[str, Any] = {}
    for each in said[1:]:
        name, _, origin = each.partition("=")
        found = _from(instance, element, origin)
        if found is None:
            return None
        inputs[name] = found
    return cls(**inputs)


def _origin(instance: PieceInstance, element: Input[Any] | None, value: Any) -> str | None:
    if element is not None and _same(value, element):
        return ELEMENT
    for member in (_member(instance, value), *instance.schema.of(GivenMember)):
        if member is not None and _same(value, instance.view("space").handle(member)):
            return f"{MEMBER}{member.stored}"
    return None


def _member(instance: PieceInstance, value: Any) -> Declaration | None:
    """Return the member of the piece that a handle may belong to."""
    if isinstance(value, (Handler, OtherScopeHandle)):
        declared = value.declaration() if isinstance(value, OtherScopeHandle) else value.member
        return declared if instance.schema.get(declared.stored) is declared else None
    id, _, stored = value.document.key.id.rpartition(":") if isinstance(value, Input) else ("", "", "")
    return instance.schema.get(stored) if id == instance.id else None


def _from(instance: PieceInstance, element: Input[Any] | None, origin: str) -> Any:
    if origin == ELEMENT:
        return element
    member = instance.schema.get(origin.removeprefix(MEMBER))
    if member is None:
        return None
    handle = instance.view("space").handle(member)
    # A recorded input may be refused to the child; the access check needs a run of the row.
    return None if isinstance(member, GivenMember) and _may_be_refused(instance, handle) else handle


def _may_be_refused(instance: PieceInstance, handle: Any) -> bool:
    """Return whether an input that comes from the record of a piece may be refused to some runs of it."""
    if instance.inputs is not None:
        return False
    if isinstance(handle, Handler):
        return True
    is_plain = isinstance(handle, Input) and handle.document.home is instance.space.replica
    return not is_plain or handle.document.key.scope != SPACE_SCOPE or handle.document.key.id.startswith("$")


def _same(one: Any, other: Any) -> bool:
    return same_inputs({"": one}, {"": other})
