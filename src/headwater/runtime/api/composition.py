"""The composition of a runtime: makes its parts and connects their ports.

Each part receives the parts that it uses. This is the only module that knows all rooms of a runtime. `Runtime` and the
objects that an application calls delegate to the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.pieces.declarations import FoldMember, GivenMember, HandlerMember, ResourceMember
from headwater.replica.detached import Detached
from headwater.replica.replica import Replica
from headwater.runtime.channel.backend import Backend
from headwater.runtime.channel.sessions import UserSessions
from headwater.runtime.core.core import Core
from headwater.runtime.core.local_space import LocalSpace
from headwater.runtime.core.policy import Policy
from headwater.runtime.core.waiting import Tasks
from headwater.runtime.events.context import Contexts
from headwater.runtime.events.events import Events
from headwater.runtime.pieces.fold import Folds
from headwater.runtime.pieces.generation_check import ClassClaims, Takeovers
from headwater.runtime.pieces.handles import OWN_MAKERS
from headwater.runtime.pieces.instance import InstanceParts
from headwater.runtime.pieces.lifecycle import Lifecycle, PieceOpener
from headwater.runtime.pieces.links import LinkAccess, Links
from headwater.runtime.pieces.piece_documents import Erasures, PieceDocuments
from headwater.runtime.pieces.prefetch import Prefetch
from headwater.runtime.pieces.records import Records
from headwater.runtime.pieces.registry import PieceRegistry
from headwater.runtime.pieces.resource import Resources, Worker
from headwater.runtime.pieces.view import Makers, ViewParts
from headwater.runtime.reactions.serve import ServedReactions
from headwater.runtime.resume.clean_pieces import report_clean_pieces
from headwater.runtime.resume.parts import ResumeParts
from headwater.runtime.resume.resume import Resume
from headwater.runtime.writing.space_channel import SpaceChannel
from headwater.runtime.writing.transactions import Transactions


class RuntimeParts:
    """The parts of one runtime above its core."""

    __slots__ = (
        "_backend",
        "_branches",
        "_core",
        "_erasures",
        "_observes",
        "_policy",
        "channels",
        "events",
        "lifecycle",
        "opener",
        "pieces",
        "resume",
        "served",
        "sessions",
        "tasks",
        "transactions",
    )

    def __init__(
        self,
        core: Core,
        backend: Backend,
        policy: Policy,
        *,
        identity: str | None,
        observes: bool,
        branches: Mapping[str, str],
        make_space: Callable[[str, str, str], object],
    ) -> None:
        """Make the parts.

        `identity` names this runtime over restarts. `observes` says whether observations of nodes are sent, and queried
        when the nodes are opened again. `branches` are chosen when their spaces are opened. `make_space` returns the
        application's object for a space, user and session.
        """
        self._core = core
        self._backend = backend
        self._policy = policy
        self._observes = observes
        self._branches = branches  # by space; a space that is not named is on main
        self.channels: dict[str, SpaceChannel] = {}  # by space; a space without an engine has none
        self.tasks = Tasks(core)
        self.transactions = Transactions(core, self.channels)
        origin = core.clock.new_token()  # part of the ids of this runtime's events, claims and sessions
        self.sessions = UserSessions(self.channels.get, origin)
        records = Records(core)
        self.pieces = PieceRegistry(core, records, policy.named_pieces)
        prefetch = Prefetch(core, self.pieces)
        self.events = Events(
            self.pieces,
            core,
            records=records,
            tasks=self.tasks,
            policy=policy,
            channel=self.channels.get,
            transactions=self.transactions,
            sessions=self.sessions,
            origin=origin,
        )
        self.resume = Resume(
            ResumeParts(self.pieces, core, self.tasks, policy, self.channels.get), identity=identity, backend=backend
        )
        self.served = ServedReactions(
            core,
            self.tasks,
            self.channels,
            pieces=self.pieces,
            events=self.events,
            backend=backend,
            origin=origin,
        )
        self._connect_pieces(records, origin, make_space)
        self.events.is_prepared = self.served.is_declared
        self.events.before_handling = self.served.declare
        self.events.on_emitted = self.served.emits
        self.events.on_declared = self.served.declared
        core.record_port = self.events
        core.on_missed = prefetch.prefetch_for_run
        self.transactions.on_missed = prefetch.prefetch_for_author
        self.transactions.release_if_unread = prefetch.release_if_unread

    def _connect_pieces(self, records: Records, origin: str, make_space: Callable[[str, str, str], object]) -> None:
        """Make the parts that instances of pieces and their views use, and those that open and delete pieces."""
        core = self._core
        documents = PieceDocuments(core, self.channels.get, self.transactions)
        self._erasures = Erasures(core, self.tasks, self.sessions, documents, self._policy.erasures)
        access = LinkAccess(core, self.sessions, self.pieces, self.events)
        core.check_link = access.check
        links = Links(core, self.pieces, records, access)
        makers: Makers = {
            **OWN_MAKERS,
            GivenMember: links.make_input,
            HandlerMember: self.events.make_handle,
            FoldMember: Folds(core, self.tasks, self.channels.get).make,
            ResourceMember: Resources(core, self.tasks, self.transactions, Worker(self._backend, origin)).make,
        }
        self.events.contexts = Contexts(core, self.pieces, records, links, make_space)
        views = ViewParts(makers, self.events, self.sessions)
        class_claims = ClassClaims(self.channels.get, is_only=self._backend.is_only)
        takeovers = Takeovers(
            records=records, class_claims=class_claims, transactions=self.transactions, tasks=self.tasks
        )
        self.pieces.connect(
            InstanceParts(core, self.pieces, self.events, self.resume, self._erasures, views, takeovers)
        )
        self.opener = PieceOpener(
            core,
            self.pieces,
            records=records,
            links=links,
            documents=documents,
            class_claims=class_claims,
            node_source=self.resume,
            transactions=self.transactions,
        )
        self.lifecycle = Lifecycle(core, self.pieces, documents, self.is_quiet)

    def open_space(self, name: str) -> LocalSpace:
        """Add a space to the core, with a channel to its engine if it has one."""
        core, transport = self._core, self._backend.transport(name)
        if transport is None:
            replica = Replica()
            return core.add_space(name, replica, Detached(replica))
        channel = SpaceChannel(core, name, transport, token=self._backend.token, policy=self._policy.retry)
        local = core.add_space(name, channel.replica, channel)
        local.kept_unread = self._policy.unread_kept
        self.channels[name] = channel
        if name in self._branches:
            channel.replica.choose_branch(self._branches[name])
        channel.driver.session.runs.is_on = self._observes and name not in self._policy.unobserved
        channel.start(local)
        self.events.pickup.attend(channel)
        self.served.attend(channel, local)
        return local

    def is_quiet(self) -> bool:
        """Return whether no event waits for its turn or for local work, and no piece is being resumed."""
        return not self.events.has_local_work() and self.resume.is_quiet()

    def has_ended(self) -> bool:
        """Return whether every event sent here has an outcome, other spaces know their readers, and no erasure runs."""
        # fault forget.not_waited_for: return not self.events.in_hand and self.resume.foreign_reads.is_told()
        return not self.events.in_hand and self.resume.foreign_reads.is_told() and self._erasures.is_over()

    async def report_clean_pieces(self) -> None:
        """Report which of the pieces that run here are clean, for the runtime that opens them next."""
        await report_clean_pieces(self.resume, [*self.pieces.running_pieces()])
