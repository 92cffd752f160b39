"""Sleeping pieces: pieces that are open and clean, with nodes that are registered only when demanded or affected.

`LazyResume`: a piece sleeps if the runtime that ran it last reported all of it as clean, and nothing that decides its
results differs since. A demanded node is resumed by itself, with the nodes that write its inputs. One query per space
follows the log for writes to documents that sleeping pieces read. The affected nodes are then resumed, with their
readers, as far as needed to know whether they are demanded; single rows are resumed without the other rows. If a node
cannot be resumed by itself, the whole piece wakes and resumes node by node. Upholds I7 together with `resume`.

`register_nodes` registers single nodes of a sleeping piece, by their identities over restarts. A node of a child needs
the child, which the row of an `each` keeps; that row is made first, without the other rows of its `each`. It decides
nothing about cleanness, and runs nothing.

`FollowedSpace` is the state of one space with sleeping pieces: the pieces, and the position up to which the log was
examined.

`BulkOpen` opens many pieces: a piece that is known to be clean is opened asleep without reading its record. The report
of the engine about all pieces of a space suffices: the code and the generation as of which each was clean, and that its
record was not written since; provided that no write is unexamined here. The cells of pieces that are opened at the same
time are requested together, with those of some pieces that may be opened next, more of them each time. `BulkOpen`
decides nothing about nodes.

`explain_asleep` answers `why` for a node of a sleeping piece: the node is not registered, and all live nodes of its
piece were clean. It uses only loaded data; the cause of the node's last run is stored, and is shown once the node is
resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import msgspec

from headwater.data.address import DocKey
from headwater.errors import HeadwaterError, LoadError
from headwater.pieces.declarations import (
    ChildMember,
    ComputedMember,
    EachMember,
    EffectMember,
    FoldMember,
    GivenMember,
    MaterializerMember,
    ResourceMember,
)
from headwater.pieces.names import SEPARATOR, child_name, document_id, unescaped
from headwater.pieces.piece import Piece
from headwater.protocol.messages import ObservationAnswer
from headwater.protocol.observations import (
    BETWEEN,
    AffectedNodes,
    CleanPiece,
    CleanPieces,
    Observed,
    QueryAffectedNodes,
    QueryCleanPieces,
    QueryReaders,
    QueryWrittenDocuments,
    Readers,
    WrittenDocuments,
    generation_of,
    whose_record,
)
from headwater.replica.document import NOT_HERE, Document
from headwater.runtime.channel.backend import LocalDirectory
from headwater.runtime.channel.sessions import stable_name
from headwater.runtime.pieces.classes import with_children
from headwater.runtime.pieces.identity import Key, named, row_of
from headwater.runtime.pieces.records import record_document
from headwater.runtime.resume import clean_pieces
from headwater.scheduler.introspection.causes import ASLEEP, Explanation
from headwater.scheduler.node import CLEAN, Node, NodeKind

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.local_space import LocalSpace
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.resume.parts import ResumeParts
    from headwater.runtime.resume.resume import Resume
    from headwater.runtime.resume.resume_state import ResumeState
    from headwater.runtime.writing.space_channel import SpaceChannel


@dataclass(slots=True, eq=False)
class LoadBatch:
    """Documents that are requested in one message."""

    over: asyncio.Future[None]
    docs: dict[Document, None] = field(default_factory=dict)
    ahead: dict[Document, None] = field(default_factory=dict)


class BulkOpen:
    """Opens clean pieces of one runtime asleep."""

    __slots__ = ("_core", "_fingerprints", "_parts", "_sleeping")

    def __init__(self, sleeping: LazyResume, parts: ResumeParts) -> None:
        self._sleeping = sleeping
        self._parts = parts
        self._core = parts.core
        self._fingerprints: dict[tuple[type[Piece], int, str, str], str] = {}

    def drop_fingerprints(self) -> None:
        self._fingerprints.clear()

    # ---- falling asleep ------------------------------------------------------------------------------

    async def open_asleep(self, instance: PieceInstance, user: str, session: str) -> bool:
        """Put a piece to sleep that is about to be opened. Return False if its record has to be read."""
        sleeping = self._sleeping
        if not self._may_be_clean(instance) or (followed := await sleeping.follow_space(instance)) is None:
            return False
        if self._find_clean(followed, instance, user, session) is None or not await self._is_current(followed):
            return False
        known = self._find_clean(followed, instance, user, session) if self._may_be_clean(instance) else None
        if known is None:
            return False
        instance.generation, instance.is_made = known.generation, True
        sleeping.put_to_sleep(followed, instance, known)
        return True

    def _may_be_clean(self, instance: PieceInstance) -> bool:
        """Return True if nothing of the piece is loaded, and it has neither a parent nor inputs."""
        if (
            instance in self._sleeping.resuming.states
            or instance.is_new
            or instance.is_open
            or instance.generation
            or instance.inputs is not None
        ):
            return False
        if instance.parent is not None or instance.schema.of(GivenMember):
            return False
        record = instance.space.replica.documents.get(generation_of(instance.id)[0])
        return record is None or (record.value is NOT_HERE and not record.layers)

    def _find_clean(
        self, followed: FollowedSpace, instance: PieceInstance, user: str, session: str
    ) -> CleanPiece | None:
        known = (followed.clean or {}).get(instance.id)
        if known is None or not known.generation:
            return None  # Its record was written since.
        whom = user, stable_name(session)
        at = (instance.cls, known.generation, *whom)
        fingerprint = self._fingerprints.get(at)
        if fingerprint is None:
            resuming = self._sleeping.resuming
            fingerprint = clean_pieces.fingerprint_piece(
                resuming.fingerprints, self._core, instance, whom, resuming.identity, known.generation
            )
            self._fingerprints[at] = fingerprint
        return known if fingerprint and known.fingerprint == fingerprint else None

    async def _is_current(self, followed: FollowedSpace) -> bool:
        """Wait until the log is examined up to its present end. Return False if that is not possible."""
        resuming = self._sleeping.resuming
        backend = resuming.backend
        newest = backend.newest(followed.local.name) if isinstance(backend, LocalDirectory) else None
        if newest is None:
            newest = await self._newest(followed)
        if newest is None or not followed.channel.is_up():
            return False
        if followed.through >= newest:
            return True
        if followed.task is None:
            return False
        followed.newest, until = max(followed.newest, newest), newest
        self._core.observers.check_conditions()
        await self._core.observers.until(
            lambda: followed.through >= until or not followed.channel.is_up() or followed.local.ended is not None
        )
        return followed.through >= until

    async def _newest(self, followed: FollowedSpace) -> int | None:
        """Query the last seq of the log. Callers at the same time share one question."""
        asked = followed.asked
        if asked is None:
            asked = followed.asked = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(self._ask, followed, asked)
        return await asyncio.shield(asked)

    def _ask(self, followed: FollowedSpace, asked: asyncio.Future[int | None]) -> None:
        followed.asked = None

        def answered(answer: ObservationAnswer | LoadError) -> None:
            if not asked.done():
                asked.set_result(None if isinstance(answer, LoadError) else answer.seq)

        followed.channel.driver.session.queries.look(QueryWrittenDocuments(0, followed.through, 1), answered)
        followed.channel.driver.flush()

    # ---- cells ---------------------------------------------------------------------------------------

    async def load_cells(self, instance: PieceInstance) -> None:
        """Wait until the cells that are held for a piece are loaded, or will not arrive."""
        missing = [document for document in instance.held if document.value is NOT_HERE]
        followed = self._sleeping.space_of(instance)
        if not missing or followed is None:
            return
        loads = followed.loads
        if loads is None:
            loop = asyncio.get_running_loop()
            loads = followed.loads = LoadBatch(loop.create_future())
            loop.call_soon(self._load, followed, loads, instance)
        loads.docs.update(dict.fromkeys(missing))
        await asyncio.shield(loads.over)

    def _load(self, followed: FollowedSpace, loads: LoadBatch, first: PieceInstance) -> None:
        followed.loads = None
        local, core = followed.local, self._core
        self._look_ahead(followed, loads, first)
        for document in loads.docs:
            local.failed_loads.pop(document, None)  # It is requested again.
        wanted, ahead = [each.key for each in loads.docs], [each.key for each in loads.ahead]
        most = self._parts.limits.watched_documents
        for place in range(0, max(len(wanted), len(ahead)), most):
            followed.channel.watch_together(wanted[place : place + most], ahead[place : place + most])
        local.count_as_unread(loads.ahead)

        def are_here() -> bool:
            return all(each.value is not NOT_HERE or core.why_not(each) is not None for each in loads.docs)

        waiting = asyncio.get_running_loop().create_task(core.observers.until(are_here))
        waiting.add_done_callback(lambda task: _on_load_done(followed, loads, task))

    def _look_ahead(self, followed: FollowedSpace, loads: LoadBatch, first: PieceInstance) -> None:
        """Request the cells of the next pieces of the same class as well, twice as many each time."""
        places, clean = followed.places, followed.clean or {}
        if followed.ahead < 0 or not first.held:
            return
        most_ahead = self._parts.limits.ahead_documents  # More would be dropped before they are used.
        most = min(followed.ahead, most_ahead // len(first.held))
        followed.ahead = min(max(1, 2 * followed.ahead), most_ahead)
        members = [(each.key.scope, each.key.id.rpartition(":")[2]) for each in first.held]
        user, session = first.opened_for()[0]
        fingerprint = self._fingerprints.get((first.cls, first.generation, user, stable_name(session)))
        documents = followed.local.replica.documents
        begin = followed.order.get(first.id, len(places)) + 1
        for id in places[begin : begin + 2 * most]:
            known = clean.get(id)
            if known is not None and known.fingerprint == fingerprint and most > 0:
                most -= 1
                keys = [DocKey(scope, document_id(id, stored)) for scope, stored in members]
                loads.ahead.update(dict.fromkeys([documents.of(key) for key in keys]))


def _on_load_done(followed: FollowedSpace, loads: LoadBatch, task: asyncio.Task[None]) -> None:
    if any(document.value is NOT_HERE for document in loads.ahead):
        followed.ahead = -1  # They are too large or too many: no caller may wait for pieces that it did not open.
    if not loads.over.done():
        if task.cancelled():
            loads.over.cancel()
        elif (error := task.exception()) is not None:
            loads.over.set_exception(error)
            loads.over.exception()  # Marks it as retrieved: perhaps no caller waits any more.
        else:
            loads.over.set_result(None)


@dataclass(slots=True, eq=False)
class FollowedSpace:
    """One space: the pieces that sleep here, and the seq up to which the log was examined for them."""

    local: LocalSpace
    channel: SpaceChannel
    through: int = 0
    newest: int = 0  # the last known commit that wrote a document which a stored node read
    clean: dict[str, CleanPiece] | None = None  # clean pieces that were not opened here yet
    sleeping: dict[str, PieceInstance] = field(default_factory=dict)
    waking: list[str] = field(default_factory=list)  # pieces that are being woken; "": the log is being examined
    is_looking: bool = False
    task: asyncio.Task[None] | None = None  # examines the log
    places: list[str] = field(default_factory=list)  # the ids of the pieces that were clean, in order,
    order: dict[str, int] = field(default_factory=dict)  # and the place of each of them
    ahead: int = 0  # pieces whose cells are requested before they are opened; negative: never again
    started: dict[str, bool] = field(default_factory=dict)  # pieces with effects; False: these are not registered yet
    loads: LoadBatch | None = None  # documents that are about to be requested
    asked: asyncio.Future[int | None] | None = None  # the question for the last seq that is about to be sent

    @property
    def last(self) -> int:
        """The last commit that is known here."""
        replica = self.local.replica
        return max(self.newest, replica.newest_seq())

    def is_quiet(self) -> bool:
        """Return True if every known commit was examined, or there is no connection."""
        if self.waking:
            return False
        if not self.sleeping or not self.channel.is_up():
            return True
        return self.through >= self.last and self.local.replica.is_durable()


async def register_awake(resuming: Resume, root: PieceInstance, names: tuple[str, ...]) -> list[Node] | None:
    """Register the nodes that the report of a clean piece does not cover. None: not all can be registered."""
    found = [named(name) for name in names]
    # Nodes that keep rows come first, with all their rows.
    return await _registered(resuming, root, dict.fromkeys(sorted(found, key=lambda key: key[0].endswith(row_of("")))))


async def register_nodes(
    resuming: Resume, root: PieceInstance, found: dict[Key, Observed], seq: int
) -> list[Node] | None:
    """Register nodes of a sleeping piece; each is resumed or runs. None: not all can be registered by themselves."""
    await resuming.load_classes(root, found.values())
    return await _registered(resuming, root, {key: (observed, seq) for key, observed in found.items()})


async def _registered(
    resuming: Resume, root: PieceInstance, found: Mapping[Key, tuple[Observed, int] | None]
) -> list[Node] | None:
    state = resuming.states.get(root)
    if state is None:
        return None  # The piece was stopped while the engine was asked for its nodes.
    # Children are being made: their nodes are registered after them.
    await resuming.core.observers.until(lambda: not state.asked or resuming.states.get(root) is not state)
    state.asked += 1
    try:
        return await _nodes(resuming, root, state, found)
    except HeadwaterError:
        return None  # The whole piece wakes, and the node that fails reports the error.
    finally:
        state.asked -= 1
        resuming.foreign_reads.release_when_answered(state)
        resuming.core.observers.check_conditions()


async def _nodes(
    resuming: Resume, root: PieceInstance, state: ResumeState, found: Mapping[Key, tuple[Observed, int] | None]
) -> list[Node] | None:
    rows: dict[Key, None] = {}
    for member, child, _, _ in found:
        home_id, _, text = child.partition(BETWEEN)
        if member.endswith(row_of("")):
            rows.update(dict.fromkeys(_of_row(root, home_id, member.removesuffix(row_of("")), text)))
        above = _rows_above(root, home_id) if home_id else []
        if above is None:
            return None
        for parent, stored, at in above:
            rows.update(dict.fromkeys(_of_row(root, parent, stored, at)))
    for key, known in found.items():
        if known is not None:
            state.table.setdefault(key, known)
    # I7: a node that read another space is resumed only if that space has answered.
    await resuming.lookup.compare_foreign_reads(
        root, state, [known[0] for known in found.values() if known is not None]
    )
    missing = [key for key, known in found.items() if known is None]
    if not await resuming.lookup.known(root, state, [*missing, *(key for key in rows if key not in found)]):
        return None
    if resuming.states.get(root) is not state:
        return None
    nodes: list[Node] = []
    for key in found:
        node = resuming.core.outside_run(lambda key=key: _node(root, key))  # type: ignore[misc]
        if node is None:
            return None
        nodes.append(node)
        state.table.pop(key, None)  # It was registered before.
    return nodes


def _of_row(root: PieceInstance, home_id: str, stored: str, text: str) -> list[Key]:
    """Return the keys of the child set of a row and of the row itself."""
    child = "" if home_id in ("", root.id) else home_id
    return [(stored, child, "", ""), (row_of(stored), f"{child}{BETWEEN}{text}" if text else child, "", "")]


def _rows_above(root: PieceInstance, id: str) -> list[tuple[str, str, str]] | None:
    """Return the rows that lead to a child: the parent, the member and the key of each. None: the id was shortened."""
    found: list[tuple[str, str, str]] = []
    parent = root.id
    while parent != id:
        if not id.startswith(parent + SEPARATOR):
            return None
        stored, _, rest = id[len(parent) + 1 :].partition(SEPARATOR)
        member = unescaped(stored)
        text = unescaped(rest.partition(SEPARATOR)[0])
        found.append((parent, member, text))
        name = child_name(parent, member, text)
        if id != name and not id.startswith(name + SEPARATOR):
            return None
        parent = name
    return found


def _node(root: PieceInstance, key: Key) -> Node | None:
    """Register a node by its key, with the rows that lead to it. None: that is not possible by itself."""
    stored, child, scope, principal = key
    home_id, _, text = child.partition(BETWEEN)
    instance: PieceInstance | None = root
    for _, name, at in (_rows_above(root, home_id) or []) if home_id else []:
        row = None if instance is None else _row(instance, name, at)
        instance = None if row is None else row[0]
    if instance is None:
        return None
    schema = instance.schema
    keepers: list[EachMember | ChildMember] = [*schema.of(EachMember), *schema.of(ChildMember)]
    for each in keepers:
        if stored == row_of(each.stored):
            found = _row(instance, each.stored, text)
            return None if found is None else found[1]
    member = schema.get(stored)
    if isinstance(member, EffectMember):
        return _effect(instance, member, scope, principal)
    if isinstance(member, (EachMember, ChildMember)):
        child_set = instance.child_set(member)
        return None if child_set.is_sparse else child_set.node
    if not isinstance(member, (ComputedMember, FoldMember, MaterializerMember, ResourceMember)):
        return None
    if member.scope != (scope or "space"):
        return None
    view = instance.view(member.scope, principal)
    document = view.handle(member).document
    return next((each for each in document.writers if isinstance(each, Node) and each.outputs[0] is document), None)


def _row(instance: PieceInstance, stored: str, text: str) -> tuple[PieceInstance | None, Node | None] | None:
    """Return the child of a row, and the node of the row."""
    member = instance.schema.get(stored)
    if not isinstance(member, (EachMember, ChildMember)):
        return None
    row = instance.partial_child_set(member).row(text)
    return None if row is None else (row.child, row.node)


def _effect(instance: PieceInstance, member: EffectMember, scope: str, user: str) -> Node | None:
    """Register an effect of a piece for the user that the piece is open for."""
    for whose, session in instance.opened_for():
        view = instance.view("session", user, session)
        if whose == user and view.effect_scope() == scope:
            id = view.effect_id(member)
            there = next((node for node in instance.nodes if node.id == id), None)
            return there or instance.add_effect(view.register_effect(member), user, session)
    return None


class LazyResume:
    """The sleeping pieces of one runtime: open, and without registered nodes until one is demanded or affected."""

    __slots__ = (
        "_core",
        "_effects_known",
        "_parts",
        "_resuming",
        "_spaces",
        "bulk_open",
    )

    def __init__(self, resuming: Resume, parts: ResumeParts) -> None:
        self._resuming = resuming
        self._parts = parts
        self._core = parts.core
        self._spaces: dict[str, FollowedSpace] = {}
        self._effects_known: dict[type[Piece], bool] = {}  # True if pieces of a class, or their children, have effects
        self.bulk_open = BulkOpen(self, parts)

    @property
    def resuming(self) -> Resume:
        return self._resuming

    def space_of(self, instance: PieceInstance) -> FollowedSpace | None:
        """Return the followed space of a piece."""
        return self._spaces.get(instance.space.name)

    def is_quiet(self) -> bool:
        return all(followed.is_quiet() for followed in self._spaces.values())

    def readiness(self, root: PieceInstance) -> Callable[[], bool]:
        """Return the check whether the commits that are known now were examined for a sleeping piece."""
        followed = self._spaces.get(root.space.name)
        if followed is None or followed.sleeping.get(root.id) is not root:
            return lambda: True
        seq = followed.last
        return lambda: (
            not followed.channel.is_up()
            or followed.sleeping.get(root.id) is not root
            or (followed.through >= seq and root.id not in followed.waking)
        )

    # ---- falling asleep ------------------------------------------------------------------------------

    async def prepare_open(self, instance: PieceInstance, user: str, session: str) -> None:
        """Put a piece to sleep that is about to be opened, if all of it is known to be clean."""
        resuming = self._resuming
        if instance in resuming.states or instance.is_new or instance.is_open or not instance.generation:
            return
        followed = await self.follow_space(instance)
        if followed is None or instance in resuming.states or instance.is_open:
            return
        known = (followed.clean or {}).pop(instance.id, None)
        whom = user, stable_name(session)
        fingerprint = (
            ""
            if known is None
            else clean_pieces.fingerprint_piece(resuming.fingerprints, self._core, instance, whom, resuming.identity)
        )
        if known is None or not fingerprint or known.fingerprint != fingerprint:
            return
        # I7: if its record was written since, it may be another piece of that name.
        if record_document(instance.space, instance.id).written <= known.as_of:
            self.put_to_sleep(followed, instance, known)

    def may_be_clean(self, instance: PieceInstance) -> bool:
        """Return True if a piece was clean, or the clean pieces are not known yet."""
        followed = self._spaces.get(instance.space.name)
        return followed is None or followed.clean is None or instance.id in followed.clean

    async def follow_space(self, instance: PieceInstance) -> FollowedSpace | None:
        """Load the list of clean pieces of a space. None: there is no engine that knows them, or no connection."""
        channel = self._parts.channel(instance.space.name)
        if channel is None or not channel.driver.session.runs.is_on:
            return None
        followed = self._spaces.get(instance.space.name)
        if followed is None:
            followed = self._spaces[instance.space.name] = FollowedSpace(instance.space, channel)
        if not channel.is_up():
            await self._core.observers.until(lambda: channel.is_up() or instance.space.ended is not None)
        if not followed.is_looking and followed.clean is None:
            followed.is_looking = True
            self._parts.tasks.begin(
                self._load_clean_pieces(followed), f"which pieces of {instance.space.name} are clean"
            )
        if followed.is_looking:
            await self._core.observers.until(lambda: not followed.is_looking)
        return followed if channel.is_up() else None

    def put_to_sleep(self, followed: FollowedSpace, instance: PieceInstance, known: CleanPiece) -> None:
        """Put a clean piece to sleep: it is open without nodes, and the log is followed for it from now on."""
        resuming = self._resuming
        if followed.clean is not None:
            followed.clean.pop(instance.id, None)
        resuming.states[instance] = resuming.lookup.asleep(instance, known.as_of)
        followed.sleeping[instance.id] = instance
        resuming.counts["asleep"] += 1
        if followed.task is None:
            followed.channel.driver.session.queries.watch_marks(lambda newest: self._on_written(followed, newest))
            followed.task = self._parts.tasks.keep(self._follow(followed), f"following {instance.space.name}")
        if known.met or known.awake:
            followed.waking.append(instance.id)
            self._parts.tasks.begin(self._wake_after_open(followed, instance, known), f"waking {instance!r}")

    async def _load_clean_pieces(self, followed: FollowedSpace) -> None:
        """Load the clean pieces of a space. A piece without an answer counts as not clean."""
        try:
            await self._ask(followed)
        finally:
            followed.is_looking = False
            self._core.observers.check_conditions()

    async def _ask(self, followed: FollowedSpace) -> None:
        found: dict[str, CleanPiece] = {}
        after, seq = "", 0
        for _ in range(self._parts.limits.clean_pages):
            page = await self._parts.ask_engine(followed.channel, QueryCleanPieces(0, after, self._parts.limits.page))
            if not isinstance(page, CleanPieces):
                break
            seq = seq or page.seq
            found.update({each.piece: each for each in page.pieces})
            if page.next is None:
                break
            after = page.next
        followed.clean, followed.through = found, max(seq, followed.through)
        followed.places = [*found]
        followed.order = {id: place for place, id in enumerate(found)}

    def _on_written(self, followed: FollowedSpace, newest: int | HeadwaterError) -> None:
        if isinstance(newest, int):
            followed.newest = max(followed.newest, newest)
            self._core.observers.check_conditions()
        else:
            self._wake_all(followed)

    # ---- following the log -----------------------------------------------------------------------------

    async def _follow(self, followed: FollowedSpace) -> None:
        """Examine the log for documents that sleeping pieces read, as far as it is known here."""
        core, local = self._core, followed.local
        while True:
            await core.observers.until(
                lambda: (followed.through < followed.last and followed.channel.is_up()) or local.ended is not None
            )
            if local.ended is not None:
                return
            followed.waking.append("")
            try:
                await self._catch_up(followed)
            finally:
                followed.waking.remove("")
                core.observers.check_conditions()  # A caller of `BulkOpen` may wait for that.

    async def _catch_up(self, followed: FollowedSpace) -> None:
        # fault+ resume.catch_up_skipped: followed.through = followed.last
        # fault+ resume.catch_up_skipped: return
        since = followed.through
        page = await self._parts.ask_engine(followed.channel, QueryWrittenDocuments(0, since, self._parts.limits.page))
        if not isinstance(page, WrittenDocuments) or page.through is None:
            if followed.channel.is_up() or page is not None:
                self._wake_all(followed)
                followed.through = followed.last
            return
        met: dict[str, list[DocKey]] = {}
        for mark in page.marks:
            for id in mark.pieces:
                met.setdefault(id, []).append(mark.doc)
            after = mark.pieces[-1]
            while mark.more:
                more = await self._parts.ask_engine(
                    followed.channel, QueryReaders(0, mark.doc, after, self._parts.limits.page)
                )
                if not isinstance(more, Readers):
                    self._wake_all(followed)
                    break
                for id in more.pieces:
                    met.setdefault(id, []).append(mark.doc)
                if more.next is None:
                    break
                after = more.next
        # I7: a piece that is opened from here on is marked as affected; one that was opened before is sleeping.
        for id, docs in met.items():
            is_same = not any(whose_record(doc) == id for doc in docs)
            instance, known = followed.sleeping.get(id), (followed.clean or {}).get(id)
            if instance is not None and not is_same:
                # I7: it may be another piece of that name, and the observations of its nodes are gone.
                instance.is_made = False
                self.wake_piece(instance)
            if known is not None and followed.clean is not None:
                generation = known.generation if is_same else 0
                followed.clean[id] = msgspec.structs.replace(known, met=True, generation=generation)
        await self._wake_affected_pieces(
            followed, {id: docs for id, docs in met.items() if id in followed.sleeping}, since
        )
        followed.through = max(followed.through, page.through)

    async def _wake_affected_pieces(self, followed: FollowedSpace, pieces: dict[str, list[DocKey]], since: int) -> None:
        """Register the affected nodes of sleeping pieces that read a written document, with one question for all."""
        ids = [*pieces]
        most = self._parts.limits.page
        for first in range(0, len(ids), most):
            some = {
                id: instance for id in ids[first : first + most] if (instance := followed.sleeping.get(id)) is not None
            }
            made = {id: self._outputs_here(instance, pieces[id]) for id, instance in some.items()}
            if not some:
                continue
            one, *also = some
            every = tuple(dict.fromkeys([doc for docs in made.values() for doc in docs]))
            question = QueryAffectedNodes(0, one, since, (), every, self._parts.limits.page, tuple(also))
            met = await self._parts.ask_engine(followed.channel, question)
            for id, instance in some.items():
                if followed.sleeping.get(id) is not instance:
                    continue
                if isinstance(met, AffectedNodes) and met.all:
                    found = tuple([each for each in met.observed if each.node.piece == id])
                    if found:
                        await self._wake_affected(followed, instance, since, made[id], AffectedNodes(0, met.seq, found))
                else:  # The answer was too large for all of them: each piece is queried by itself.
                    await self._wake_affected(followed, instance, since, made[id])

    async def _wake_after_open(self, followed: FollowedSpace, instance: PieceInstance, known: CleanPiece) -> None:
        try:
            if known.awake:
                await self._register_readers(
                    followed, instance, await register_awake(self._resuming, instance, known.awake)
                )
            if known.met and followed.sleeping.get(instance.id) is instance:
                await self._wake_affected(followed, instance, known.as_of)
        finally:
            followed.waking.remove(instance.id)
            self._core.observers.check_conditions()

    def _outputs_here(self, instance: PieceInstance, docs: list[DocKey]) -> tuple[DocKey, ...]:
        """Return the documents that are results of registered nodes."""
        found = [instance.space.replica.documents.get(doc) for doc in docs]
        return tuple([each.key for each in found if each is not None and any(map(_has_result(each), each.writers))])

    async def _wake_affected(
        self,
        followed: FollowedSpace,
        instance: PieceInstance,
        since: int,
        made: tuple[DocKey, ...] = (),
        met: ObservationAnswer | None = None,
    ) -> None:
        """Register the affected nodes of a piece, and their readers."""
        # fault+ resume.closed_piece_not_opened: return
        if met is None:
            met = await self._parts.ask_engine(
                followed.channel, QueryAffectedNodes(0, instance.id, since, (), made, self._parts.limits.page)
            )
        seen: set[Key] = set()
        await self._register_readers(followed, instance, await self._register_found(instance, met, seen), seen)

    async def _register_found(
        self, instance: PieceInstance, met: ObservationAnswer | None, seen: set[Key]
    ) -> list[Node] | None:
        """Register the nodes of an answer that were not registered before. None: not possible by themselves."""
        if not isinstance(met, AffectedNodes) or not met.all:
            return None
        found = {_key(each): each for each in met.observed if _key(each) not in seen}
        seen.update(found)
        if not found:
            return []
        return (
            await register_nodes(self._resuming, instance, found, met.seq)
            if len(seen) <= self._parts.limits.affected_nodes
            else None
        )

    async def _register_readers(
        self, followed: FollowedSpace, instance: PieceInstance, nodes: list[Node] | None, seen: set[Key] | None = None
    ) -> None:
        """Register the readers of nodes of a sleeping piece, which may demand them, before any of the nodes runs."""
        scheduler, until = self._core.scheduler, self._resuming.waits_for(instance)
        seen = set() if seen is None else seen
        try:
            while followed.sleeping.get(instance.id) is instance:
                if nodes is None:
                    self.wake_piece(instance)
                    return
                for node in nodes:
                    # I7: its readers are registered before it runs, and run if its value changes.
                    if node.status != CLEAN and not node.runs and node.loading is None:
                        scheduler.hold(node, until)
                docs = [*dict.fromkeys([each.key for node in nodes for each in _outputs_of(node)])]
                if not docs:
                    return
                question = QueryAffectedNodes(
                    0, instance.id, 0, tuple(docs), self._outputs_here(instance, docs), self._parts.limits.page
                )
                met = await self._parts.ask_engine(followed.channel, question)
                nodes = await self._register_found(instance, met, seen)
        finally:
            scheduler.release_held(until)
            self._core.request_tick()

    # ---- waking up -----------------------------------------------------------------------------------

    async def start_effects(self, instance: PieceInstance) -> None:
        """Register the effects of a piece before an event for it is handled, so that they run after the handler."""
        root = instance.root
        followed = self._spaces.get(root.space.name)
        if followed is None or followed.sleeping.get(root.id) is not root or not self._has_effects(root.cls):
            return
        if followed.started.get(root.id):
            return
        if root.id not in followed.started:
            followed.started[root.id] = False
            root.start_effects()
        observers = self._core.observers
        await observers.until(lambda: _is_registered(self._resuming, root) or not followed.channel.is_up())
        for document in _awaited_documents(self._core, root):
            self._core.load(document)
        await observers.until(lambda: not any(_awaited_documents(self._core, root)) or not followed.channel.is_up())
        if root.id in followed.started:
            followed.started[root.id] = followed.channel.is_up()

    def _has_effects(self, cls: type[Piece]) -> bool:
        found = self._effects_known.get(cls)
        if found is None:
            found = self._effects_known[cls] = any(each.__schema__.of(EffectMember) for each in with_children(cls))
        return found

    def wake_piece(self, instance: PieceInstance) -> None:
        """Register all nodes of a piece. Each is resumed or runs."""
        followed = self._spaces.get(instance.space.name)
        if followed is None or followed.sleeping.pop(instance.id, None) is None:
            return
        followed.started.pop(instance.id, None)
        resuming = self._resuming
        resuming.counts["woken"] += 1
        state = resuming.states[instance] = resuming.begin(instance, followed.channel)
        # Later, because the caller may be in the middle of making a part of the piece.
        self._core.afterwards(lambda: instance.register_all() if resuming.states.get(instance) is state else None)

    def _wake_all(self, followed: FollowedSpace) -> None:
        for instance in [*followed.sleeping.values()]:
            self.wake_piece(instance)
        followed.clean = {}

    def wake_all(self) -> None:
        """Wake all pieces, because the code of classes was replaced (hot reload)."""
        self._effects_known.clear()
        self.bulk_open.drop_fingerprints()
        for followed in self._spaces.values():
            self._wake_all(followed)

    def forget(self, instance: PieceInstance) -> None:
        """Release a piece that is not open here any more."""
        followed = self._spaces.get(instance.space.name)
        if followed is not None and followed.sleeping.get(instance.id) is instance:
            del followed.sleeping[instance.id]
            followed.started.pop(instance.id, None)

    def is_asleep(self, instance: PieceInstance) -> bool:
        followed = self._spaces.get(instance.space.name)
        return followed is not None and followed.sleeping.get(instance.id) is instance


def _is_registered(resuming: Resume, root: PieceInstance) -> bool:
    """Return True if no effect of a piece or of its children waits to be registered."""
    state = resuming.states.get(root)
    is_known = state is None or not (state.asked or state in resuming.under_way)
    return is_known and not any(each.is_loading() for each in root.with_descendants())


def _awaited_documents(core: Core, root: PieceInstance) -> Iterator[Document]:
    """Yield the documents that may still arrive and for which resumed live nodes would wait if they had to run."""
    why_not = core.why_not
    for node in root.all_nodes():
        if node.live and node.as_of:
            read = [cast(Document, spot.document) for spot in node.reads if spot is not None]
            for document in (*read, *node.outputs):
                if document.value is NOT_HERE and why_not(document) is None:
                    yield document


def _outputs_of(node: Node) -> Iterator[Document]:
    """Yield the documents that a node writes."""
    yield from node.outputs
    for inside, _ in node.envelope:
        yield inside


def _has_result(document: Document) -> Callable[[object], bool]:
    """Return a check whether a writer is a resumable node whose result is the document."""
    return lambda each: (
        isinstance(each, Node) and each.returns and each.outputs[0] is document and each.reporter is not None
    )


def _key(observed: Observed) -> Key:
    node = observed.node
    return (node.member, node.child, node.scope, node.principal)


KINDS = {
    ComputedMember: NodeKind.COMPUTATION,
    EachMember: NodeKind.COMPUTATION,
    ChildMember: NodeKind.COMPUTATION,
    FoldMember: NodeKind.COMPUTATION,
    MaterializerMember: NodeKind.MATERIALIZER,
    EffectMember: NodeKind.EFFECT,
}


def explain_asleep(resuming: Resume, node: str) -> Explanation | None:
    """Explain a node that is not registered, by its id. None: it is of no sleeping piece."""
    space, _, place = node.partition("/")
    id, _, stored = place.partition(" ")[0].rpartition(":")
    root = resuming.parts.pieces.find(space, id.partition(SEPARATOR)[0])
    state = None if root is None else resuming.states.get(root)
    if root is None or state is None or not state.as_of or root.id != id:
        return None
    member = root.schema.get(stored)
    kind = KINDS.get(type(member)) if member is not None else None
    if kind is None:
        return None
    return Explanation(
        node=node,
        kind=kind.value,
        status=ASLEEP,
        runs=0,
        steps=(),
        pending=(),
        left_out=0,
        asleep_since=state.as_of,
    )
