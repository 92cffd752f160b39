"""The components of an engine, and the collaborators that each receives. Decides nothing."""

from __future__ import annotations

from headwater.clock import Clock
from headwater.engine.admission.access import Access, Founders
from headwater.engine.admission.admission import Admission
from headwater.engine.admission.merge import Merge
from headwater.engine.admission.preconditions import Preconditions
from headwater.engine.admission.user_stock import UserStock
from headwater.engine.commit_group import CommitGroup
from headwater.engine.delivery.commit_outbox import CommitOutbox
from headwater.engine.delivery.facade import DeliveryFacade
from headwater.engine.limits import Limits
from headwater.engine.log.branches import Branches
from headwater.engine.log.compaction import Compaction
from headwater.engine.log.heads import Heads
from headwater.engine.log.history import History
from headwater.engine.log.log import Log
from headwater.engine.log.recovery import Recovery
from headwater.engine.log.sessions import Sessions
from headwater.engine.log.snapshots import Snapshots
from headwater.engine.observations.queries import ObservationQueries
from headwater.engine.observations.reader_index import ReaderIndex
from headwater.engine.observations.writer import ObservationWriter
from headwater.engine.planned_writes import PlannedWrites
from headwater.engine.store.port import Store


class Wiring:
    """The components of one engine, on one store."""

    __slots__ = (
        "access",
        "admission",
        "branches",
        "commit_group",
        "commit_outbox",
        "compaction",
        "delivery",
        "heads",
        "history",
        "log",
        "merge",
        "observation_queries",
        "observation_writer",
        "readers",
        "recovery",
        "sessions",
        "user_stock",
    )

    def __init__(self, store: Store, clock: Clock, limits: Limits, founders: Founders | None, observes: bool) -> None:
        """`founders`: the principals that may make the space; None: access is not checked."""
        self.log = log = Log(store, limits)
        self.branches = branches = Branches(store, limits)
        self.heads = heads = Heads(store, log, branches, limits)
        self.sessions = sessions = Sessions(store, log, limits)
        self.delivery = delivery = DeliveryFacade(store, log, clock, limits)
        preconditions = Preconditions(heads, sessions, delivery.targets)
        self.admission = admission = Admission(log, heads, sessions, preconditions, limits)
        snapshots = Snapshots(store, heads, limits)
        self.access = access = None if founders is None else Access(heads, branches, founders)
        self.commit_outbox = commit_outbox = CommitOutbox(store, log, delivery, limits)
        self.user_stock = user_stock = UserStock(store, heads, access, limits)
        commit_outbox.on_dropped = user_stock.note_dropped
        self.readers = readers = ReaderIndex(store)
        self.observation_writer = ObservationWriter(store, log, heads, admission, readers, limits, is_on=observes)
        heads.on_write_back = self.observation_writer.write_back
        self.observation_queries = ObservationQueries(store, log, heads, admission, limits, is_on=observes)
        self.commit_group = CommitGroup(
            store,
            log,
            heads,
            branches,
            sessions,
            admission,
            PlannedWrites(store, heads, snapshots, readers, limits),
            commit_outbox,
            user_stock,
            self.observation_writer,
            access,
            clock,
            limits,
        )
        self.history = history = History(store, log, heads, branches, sessions, limits)
        self.merge = Merge(store, log, heads, branches, admission, history, limits)
        self.compaction = Compaction(store, log, heads, branches, snapshots, limits)
        self.recovery = Recovery(store, log, branches, limits, self.observation_writer.restore)
