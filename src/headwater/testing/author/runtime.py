"""The runtime of an author's simulation, and the counts of its runs.

`SimulatedRuntime` is the runtime that ships, for one user, with its diagnoses switched on: its runs are counted and
checked, and it can be killed. `Counts` has completed runs, attempts and calls of handlers for each member, over all
runtimes of the world, closed ones included. A node is named by its space, its piece and its member. An `each` or a
`child` counts the calls of its method, one for each element.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection
from typing import Any, Final

from headwater import Finding, Member
from headwater.clock import VirtualClock
from headwater.data.trace import HandlerCalled, Ran, RunFailed, RunStarted, TraceEvent
from headwater.errors import AuthoringError, HeadwaterError
from headwater.runtime import Outbox, Policy, Runtime, Space
from headwater.scheduler import Failure
from headwater.testing.author.network import Client, Route
from headwater.testing.author.trace import Trace

_NODE: Final = re.compile(r"([^/]+)/([^:]*):(\w+)(.*)", re.DOTALL)
_ROW: Final = " row"

Key = tuple[type[Any], str, bool]
"""A class, the name a member is stored under, and whether it is of one of its elements."""


class Counts:
    """The number of runs of each member."""

    __slots__ = ("_attempts", "_runs", "_trace", "total")

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._runs: Counter[Key] = Counter()
        self._attempts: Counter[Key] = Counter()
        self.total = 0

    def runs(self, member: Member[Any]) -> int:
        """Completed runs of a member's node, failed ones included."""
        if _declared(member).kind in ("handler", "topic"):
            raise AuthoringError(f"runs({member!r}): not a node. Ask attempts() of a handler, records() of a topic.")
        return _sum(self._runs, member)

    def attempts(self, member: Member[Any]) -> int:
        """How often a member's function was called: stopped and repeated attempts count, too."""
        return _sum(self._attempts, member)

    def happened(self, runtime: Runtime, who: str, event: TraceEvent) -> None:
        """Something happened to a node or a handler of a runtime."""
        if isinstance(event, RunStarted | HandlerCalled):
            self._count(self._attempts, runtime, event.node)
        elif isinstance(event, Ran | RunFailed):
            self.total += 1
            self._trace.note(who, "ran", event.node)
            self._count(self._runs, runtime, event.node)

    def _count(self, counter: Counter[Key], runtime: Runtime, node: str) -> None:
        key = _key_of(runtime, node)
        if key is not None:
            counter[key] += 1


def _key_of(runtime: Runtime, node: str) -> Key | None:
    """Return the member that a node belongs to. None: a node that a program registered, or a look from outside."""
    parts = _NODE.fullmatch(node)
    if parts is None:
        return None
    space, id, stored, rest = parts.groups()
    is_row = rest.endswith(_ROW)
    if rest and not is_row and not rest.startswith(" of "):
        return None
    cls = runtime.class_of(space, id)
    return None if cls is None else (cls, stored, is_row)


def _declared(member: Member[Any]) -> Any:
    if not isinstance(member, Member):
        raise AuthoringError(f"{member!r} is not a member of a class: write the class and its name, like Cart.total")
    return member.declaration


def _sum(counter: Counter[Key], member: Member[Any]) -> int:
    declared = _declared(member)
    return sum(count for key, count in counter.items() if _is_of(key, declared, member.owner))


def _is_of(key: Key, declared: Any, owner: type[Any]) -> bool:
    cls, stored, is_row = key
    is_rows = declared.kind in ("each", "child")
    return stored == declared.stored and is_row == is_rows and issubclass(cls, owner)


FAILURES: Final = 1_000
BROKEN: Final = "the runtime itself"


class SimulatedRuntime(Runtime):
    """The runtime of one user."""

    def __init__(
        self,
        client: Client,
        clock: VirtualClock,
        counts: Counts,
        trace: Trace,
        policy: Policy | None = None,
        outbox: Outbox | None = None,
        reacts: bool = True,
    ) -> None:
        super().__init__(Route(client), clock=clock, policy=policy, outbox=outbox, reacts=reacts)
        self.client = client
        self.failures: deque[Failure] = deque(maxlen=FAILURES)
        self.broke: Exception | None = None  # an error that must not happen
        self._trace = trace
        self.introspection.idempotency.switch(on=True)

        def happened(event: TraceEvent) -> None:
            counts.happened(self, client.user, event)

        self.introspection.on_event(happened)
        self.on_failure(self._failed)

    def space(self, name: str, /, *, user: str | None = None, session: str = "") -> Space:
        """A space, for the user of this runtime unless another one is named."""
        return super().space(name, user=self.client.user if user is None else user, session=session)

    def drop_findings(self, member: Member[Any], known: Collection[Finding]) -> int:
        """Forget the findings of the idempotency check about a member that are not in `known`. Returns how many."""
        declared, found = _declared(member), self.introspection.idempotency.found
        gone = []
        for at, finding in found.items():
            key = _key_of(self, finding.node)
            if finding not in known and key is not None and _is_of(key, declared, member.owner):
                gone.append(at)
        for at in gone:
            del found[at]
        return len(gone)

    def findings(self) -> list[Finding]:
        """The findings of the idempotency check so far."""
        return list(self.introspection.idempotency.found.values())

    def _failed(self, failure: Failure) -> None:
        self._trace.note(self.client.user, "failed:", failure.node, failure.error)
        self.failures.append(failure)
        if failure.node == BROKEN:
            self.broke = failure.error

    async def kill(self) -> None:
        """Kill the process. Callers that wait for it get an error."""
        self.client.die()
        self.reactions.abandon()
        self.close_s = 0.0
        try:
            await self.close()
        except HeadwaterError as error:  # A crash may leave work undone.
            self._trace.note(self.client.user, "is killed:", error)
