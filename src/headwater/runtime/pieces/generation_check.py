"""`GenerationCheck`: whether this program computes the members of a piece, according to the record of the piece.

Generations. The record of a piece stores the fingerprints of its members and the version of its class as of the last
time the piece was opened, and a generation number that rises each time they differ from the stored ones. Every derived
run depends on the number, so that admission rejects commits that an older version of the class has in flight. An older
version that sees a newer number reports one error and stops running the piece. Handlers of the older version continue:
an event is a change that a sender asked for. A member without a fingerprint counts as unchanged here, and members that
store no result (effects, handlers, reactions) do not count.

Claims. Of two codes with the same version, the first is in charge until no process that runs it is connected: before a
piece is opened, or computed where it is only named, the engine is asked whether connected sessions have claimed another
code of its class (`ClassClaims`). A higher version has claims of its own, and takes over by the generation; a lower one
is refused by the record.

Opening a piece takes it over or is refused. A piece that is only named is taken over, or refused, by the same rules,
before the first run of a node that stores a result: the run waits until the code is claimed and the record is written.
Programs without a connection compute what they can, since admission compares the generation with each result; programs
without the right to write compute for themselves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from headwater.data.address import SPACE_SCOPE, Depth, DocKey
from headwater.data.ids import derive
from headwater.data.reader_trie import Spot
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AuthoringError, HeadwaterError
from headwater.protocol.messages import ClaimCode
from headwater.protocol.observations import generation_of
from headwater.replica.document import NOT_HERE, Document, NotLoaded
from headwater.replica.replica import Replica
from headwater.runtime.core.limits import RUNTIME_LIMITS
from headwater.runtime.pieces.classes import member_digests, stored_name

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core
    from headwater.runtime.core.waiting import Tasks
    from headwater.runtime.pieces.instance import PieceInstance
    from headwater.runtime.pieces.records import Records
    from headwater.runtime.writing.space_channel import SpaceChannel
    from headwater.runtime.writing.transactions import Transactions


FIRST: Final = 1
"""The generation of a record that does not name one."""


class OtherCodeError(AuthoringError):
    """Another program runs the piece with other code, and this program computes nothing of it."""


class GenerationCheck:
    """The guard of the derived nodes of one piece without a parent, and of its children (`scheduler.node.Guard`).

    No node reads the generation: the check compares the record before each derived run, and each result that is sent
    names the generation among its reads, so that admission refuses a result that an older version of the class had on
    its way.
    """

    __slots__ = (
        "_checked",
        "_checked_for",
        "_core",
        "_instance",
        "_is_stopping",
        "_refused",
        "_settled",
        "_settled_for",
        "_takeovers",
        "_taking_over",
        "document",
        "spot",
    )

    def __init__(self, core: Core, takeovers: Takeovers, instance: PieceInstance) -> None:
        key, path = generation_of(instance.id)
        self._core = core
        self._takeovers = takeovers
        self._instance = instance
        self.document = instance.space.replica.documents.of(key)
        # The read of the generation in the commits of results.
        self.spot: Spot | None = Spot(self.document, path, Depth.DEEP)
        self._checked: MaybeValue | NotLoaded = ABSENT  # the record whose generation was compared last,
        self._checked_for = 0  # and the generation that it was compared with
        self._is_stopping = False
        self._taking_over: Document | None = None  # nodes wait for it while the piece is taken over
        self._refused: OtherCodeError | None = None  # why a piece that is only named was not taken over just now
        self._settled: object = None  # the record with which no run has to wait,
        self._settled_for = 0  # and the generation for which that holds

    def awaited(self) -> Document | None:
        """Return the document that a run has to wait for: the record, or a stand-in while the piece is taken over."""
        value, instance = self.document.value, self._instance
        if value is self._settled and instance.generation == self._settled_for:
            return None
        if value is NOT_HERE or self._taking_over is not None:
            return self._taking_over or self.document
        number = _number(value)
        # fault generations.named_pieces_not_taken_over: is_run_here = True
        is_run_here = number in (0, instance.generation)
        channel = self._takeovers.channel(instance)
        if is_run_here or channel is None:
            self._settled, self._settled_for = value, instance.generation
            return None
        is_refused = self._refused is not None or _version(value) > instance.schema.version
        if instance.is_open or is_refused or not channel.is_up():
            return None  # `is_passed` decides.
        if not instance.space.replica.may_write:
            instance.generation = number  # Its results stay in this program.
            return None
        self._taking_over = Document(DocKey(SPACE_SCOPE, f"who runs {instance.id}"), Replica())
        self._takeovers.begin(self._take_over(self._taking_over), f"taking over {instance!r}")
        return self._taking_over

    async def _take_over(self, awaited: Document) -> None:
        instance, core = self._instance, self._core
        try:
            await self._takeovers.take_over(instance)
        except HeadwaterError as error:
            self._refused = OtherCodeError(str(error))
            again_us = core.clock.monotonic_us() + RUNTIME_LIMITS.take_over_again_us
            core.scheduler.gates.alarm(again_us, self.run_refused_nodes)
        else:
            for node in instance.all_nodes():
                if node.reporter is not None:
                    node.reporter.forget()  # From now on the node belongs to the generation that was taken over.
            self.run_refused_nodes()
        finally:
            self._taking_over = None
        core.scheduler.release_held(awaited)
        core.request_tick()

    def run_refused_nodes(self) -> None:
        """Run the nodes again that failed because another program had other code. Each asks again."""
        self._refused = None
        for node in self._instance.all_nodes():
            if isinstance(node.error, OtherCodeError):
                self._core.scheduler.outdate(node)

    def is_passed(self) -> bool:
        """True unless the record names a newer generation than the one that runs here; then the piece is stopped.

        The version of its class counts for a piece that was neither opened nor taken over here.
        """
        value, generation = self.document.value, self._instance.generation
        if self._refused is not None:
            return False
        if value is self._checked and generation == self._checked_for:
            return True
        version = self._instance.schema.version
        # fault generations.newer_code_ignored: if False:
        if _number(value) > generation if generation else _version(value) > version:
            self._stop()
            return False
        self._checked, self._checked_for = value, generation
        return True

    def refusal(self) -> OtherCodeError:
        """Return the error of a run that did not pass."""
        if self._refused is not None:
            return self._refused
        instance, now = self._instance, _number(self.document.value)
        if not instance.generation:
            version = instance.schema.version
            here = f"version {version}" if version else "a class without a version"
            return OtherCodeError(
                f"{instance!r} is run by a newer version of its class (version {_version(self.document.value)}, this "
                f"is {here}): this program computes nothing of it. Start it again with the new code."
            )
        return OtherCodeError(
            f"{instance!r} is run by a newer version of its class ({now}, this is {instance.generation}): "
            "results of this program are refused. Start it again with the new code."
        )

    def _stop(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        instance, core, error = self._instance, self._core, self.refusal()

        def stop() -> None:
            self._is_stopping = False
            if instance.is_open:
                instance.stop()
                core.report(f"{instance.space.name}/{instance.id}", error)

        core.afterwards(stop)


class ClassClaims:
    """The claims that one runtime makes for the code of its classes."""

    __slots__ = ("_channel", "_is_only")

    def __init__(self, channel: Callable[[str], SpaceChannel | None], *, is_only: bool) -> None:
        """`is_only`: no other process connects to the spaces, so that no code has to be claimed."""
        self._channel = channel  # returns the channel of a space by its name; None: the space has no engine
        self._is_only = is_only

    def channel(self, instance: PieceInstance) -> SpaceChannel | None:
        """Return the channel to the engine of a piece. None: no other process can run the piece."""
        return None if self._is_only else self._channel(instance.space.name)

    async def claim(self, instance: PieceInstance) -> None:
        """Before a piece is run: refuse it if connected programs run other code of this version of its class."""
        channel = self.channel(instance)
        if channel is None or not (members := member_digests(instance.cls)):
            return
        schema = instance.schema
        name = derive("class", stored_name(instance.cls), str(schema.version))
        code = derive("code", *[f"{member} {digest}" for member, digest in sorted(members.items())])
        if not await channel.driver.claim_code(ClaimCode(0, name, code)):
            raise AuthoringError(
                f"{instance!r} is not run here: programs that are connected run other code of its class. Open it when "
                f"they have stopped, or, if the code of this program is newer, write class {instance.cls.__name__}("
                f"Piece, version={schema.version + 1}), which takes over from them"
            )


class Takeovers:
    """Takes over pieces of one runtime that are only named."""

    __slots__ = ("_class_claims", "_records", "_tasks", "_transactions")

    def __init__(
        self, *, records: Records, class_claims: ClassClaims, transactions: Transactions, tasks: Tasks
    ) -> None:
        self._records = records
        self._class_claims = class_claims
        self._transactions = transactions
        self._tasks = tasks

    def channel(self, instance: PieceInstance) -> SpaceChannel | None:
        """Return the channel to the engine of a piece. None: no other process can run the piece."""
        return self._class_claims.channel(instance)

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a task that no caller awaits."""
        self._tasks.begin(work, name)

    async def take_over(self, instance: PieceInstance) -> None:
        """Have a piece that is only named run by the code of this program. Raises the error of opening the piece."""
        await self._class_claims.claim(instance)

        def write() -> None:
            if self._records.exists(instance):
                self._records.write(instance)

        if not self._records.adopt(instance):
            await self._transactions.transact(instance.space, write)


def _number(record: MaybeValue | NotLoaded) -> int:
    """Return the generation that a record names. 0: there is no record, or it is not here."""
    number = record.get("generation", FIRST) if isinstance(record, dict) else 0
    return number if isinstance(number, int) else 0


def _version(record: MaybeValue | NotLoaded) -> int:
    """Return the version of its class that a record names. 0: it names none, or is not here."""
    version = record.get("version", 0) if isinstance(record, dict) else 0
    return version if isinstance(version, int) else 0
