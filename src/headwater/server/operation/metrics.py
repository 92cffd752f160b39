"""Metrics of a server for its operator, in the format of Prometheus.

A request for metrics asks the engines about reactions and waits for no space longer than `ServerLimits.metrics_s`: a
space that has not answered by then is shown with its last figures, and is not asked again before it answers. Figures of
spaces are summed, and of the name of a reaction only class and member are shown: names of spaces and pieces are users'
data.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.clock import Clock
from headwater.engine.engine import Engine
from headwater.engine.sync.host import ThreadHost
from headwater.engine.sync.hub import Hub
from headwater.errors import StorageError
from headwater.protocol.messages import FromEngine, Problem, Verdicts
from headwater.protocol.reactions import QueryReactions, ReactionList, ReactionState
from headwater.protocol.verdict import Accepted
from headwater.server.operation.loop_watch import LoopWatch

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OUTCOME: Final = ("outcome", "reason")
CAME_BACK: Final = "clean"
ASLEEP: Final = "asleep"
WOKEN: Final = "woken"
"""Counts of whole pieces; the other counts are of nodes."""
CHANGED: Final = frozenset(
    {
        "its code has changed",
        "its debounce or throttle has changed",
        "it failed",
        "a value that it read was written",
        "a value that it read in another space was written",
        "written since it was asked for",
    }
)
"""Reasons that name a change. With any other reason it is not known whether something changed."""


class Metrics:
    """The metrics of one server."""

    __slots__ = (
        "_reactions",
        "_sent_lock",
        "accepted",
        "bytes_in",
        "bytes_out",
        "connections",
        "messages_in",
        "problems",
        "refused",
        "registry",
        "rejected",
        "slow",
    )

    def __init__(self, hosts: Callable[[], dict[str, ThreadHost]], clock: Clock, wait_s: float) -> None:
        """`wait_s` bounds the wait of `latest_page` for spaces."""
        registry = self.registry = CollectorRegistry()
        self.connections = Gauge("headwater_connections", "Connections that stand now.", registry=registry)
        # Plain numbers, because every message changes them. Messages in are counted on the event loop's thread,
        # messages out on any thread.
        self.messages_in = 0
        self.bytes_in = 0
        self._sent_lock = threading.Lock()
        self.bytes_out = 0
        self.accepted = 0
        self.rejected = 0
        self.problems = Counter("headwater_problems", "Problems told to replicas.", ["code"], registry=registry)
        self.refused = Counter(
            "headwater_refused", "Connections refused, by the code of the problem.", ["code"], registry=registry
        )
        self.slow = Counter("headwater_slow_consumers", "Connections closed for not reading.", registry=registry)
        registry.register(_MessageCounts(self))
        registry.register(_SpaceGauges(hosts))
        self._reactions = ReactionMetrics(hosts, clock, wait_s)
        registry.register(self._reactions)

    def count_sent(self, messages: Iterable[FromEngine], size: int) -> None:
        """Count messages to a peer and their bytes. Any thread."""
        accepted = judged = 0
        for message in messages:
            if isinstance(message, Verdicts):
                judged += len(message.verdicts)
                accepted += sum([isinstance(verdict, Accepted) for verdict in message.verdicts])
            elif isinstance(message, Problem):
                self.problems.labels(message.code).inc()
        with self._sent_lock:
            self.bytes_out += size
            self.accepted += accepted
            self.rejected += judged - accepted

    def count_resumed(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Add the outcomes of nodes of reopened pieces, as the runtime in this process counts them."""
        self.registry.register(_ResumedNodes(counts))

    def watch_server(
        self, loop_watch: LoopWatch, count_broken: Callable[[], int], free_bytes: Callable[[], int]
    ) -> None:
        """Add figures about the process and its disk."""
        self.registry.register(_ServerFigures(loop_watch, count_broken, free_bytes))

    def page(self) -> bytes:
        """Return the metrics as known now, without asking any space."""
        return generate_latest(self.registry)

    async def latest_page(self) -> bytes:
        """Return the metrics, with figures of spaces as new as possible without waiting for a busy space."""
        await self._reactions.refresh()
        return self.page()


class _ServerFigures(Collector):
    """Figures about the event loop, the disk and broken spaces."""

    def __init__(self, loop_watch: LoopWatch, count_broken: Callable[[], int], free_bytes: Callable[[], int]) -> None:
        self._loop_watch = loop_watch
        self._count_broken = count_broken
        self._free_bytes = free_bytes

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(
            "headwater_loop_holds", "Times that the event loop was held too long.", value=self._loop_watch.holds
        )
        longest = self._loop_watch.longest_us / 1e6
        yield GaugeMetricFamily("headwater_loop_longest_seconds", "Longest hold of the last minute.", value=longest)
        yield GaugeMetricFamily("headwater_disk_free_bytes", "Free on the disk of the data.", value=self._free_bytes())
        yield GaugeMetricFamily("headwater_spaces_broken", "Spaces that stopped.", value=self._count_broken())


class _MessageCounts(Collector):
    """Counters that are plain numbers."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        metrics = self._metrics
        yield CounterMetricFamily("headwater_messages_in", "Messages from replicas.", value=metrics.messages_in)
        yield CounterMetricFamily("headwater_bytes_in", "Bytes of messages from replicas.", value=metrics.bytes_in)
        yield CounterMetricFamily("headwater_bytes_out", "Bytes of messages to replicas.", value=metrics.bytes_out)
        verdicts = CounterMetricFamily("headwater_verdicts", "Commits answered, by verdict.", labels=["verdict"])
        verdicts.add_metric(["accepted"], metrics.accepted)
        verdicts.add_metric(["rejected"], metrics.rejected)
        yield verdicts


class _ResumedNodes(Collector):
    """Nodes of reopened pieces: resumed without a run, run because of a change, or run because too little was known.

    Only the head of a reason is shown; the rest is about one node, which is users' data.
    """

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Metric]:
        found: dict[tuple[str, str], int] = {}
        counts = dict(self._counts())
        asleep, woken = counts.pop(ASLEEP, 0), counts.pop(WOKEN, 0)
        for reason, count in counts.items():
            count_sent = reason.partition(":")[0]
            outcome = "skipped" if count_sent == CAME_BACK else "rerun" if count_sent in CHANGED else "unknown"
            found[outcome, count_sent] = found.get((outcome, count_sent), 0) + count
        family = CounterMetricFamily(
            "headwater_resumed_nodes", "Nodes of pieces that were resumed, by outcome.", labels=OUTCOME
        )
        for (outcome, count_sent), count in sorted(found.items()):
            family.add_metric([outcome, count_sent], count)
        yield family
        yield CounterMetricFamily("headwater_asleep_pieces", "Pieces that were opened asleep, all clean.", value=asleep)
        yield CounterMetricFamily("headwater_woken_pieces", "Of these, how many were woken as a whole.", value=woken)


class _SpaceGauges(Collector):
    """Gauges read from the hosts at each collection, summed over all spaces."""

    def __init__(self, hosts: Callable[[], dict[str, ThreadHost]]) -> None:
        self._hosts = hosts

    def collect(self) -> Iterable[Metric]:
        hosts = self._hosts().values()
        yield GaugeMetricFamily("headwater_spaces_open", "Spaces that are open.", value=len(hosts))
        yield GaugeMetricFamily("headwater_inbox_depth", "Messages that wait.", value=sum(h.depth for h in hosts))
        yield GaugeMetricFamily("headwater_batches", "Batches of messages.", value=sum(h.batches for h in hosts))
        yield GaugeMetricFamily("headwater_batched", "Messages in them.", value=sum(h.messages for h in hosts))


GAUGES: Final = {
    "due": "Targets with something to deliver, now or later.",
    "blocked": "Targets that wait for an operator.",
    "parked": "Records that were passed over.",
}
AGES: Final = {
    "oldest_us": ("headwater_reaction_oldest_seconds", "Time for which the oldest due record has been waiting."),
    "unserved_us": ("headwater_reaction_unserved_seconds", "Time for which no worker has claimed a due record."),
}
HOW: Final = ("delivered", "failed", "lost")


class ReactionMetrics(Collector):
    """Figures of the reactions of all open spaces, as last answered. Used by the event loop's thread alone."""

    def __init__(self, hosts: Callable[[], dict[str, ThreadHost]], clock: Clock, wait_s: float) -> None:
        """`wait_s` bounds the wait of `refresh` for spaces, and is the age up to which figures count as new."""
        self._hosts = hosts
        self._clock = clock
        self._wait_s = wait_s
        self._latest: dict[ThreadHost, tuple[int, tuple[ReactionState, ...]]] = {}  # with the time of the answer
        self._asked: dict[ThreadHost, asyncio.Future[None]] = {}  # questions without an answer

    async def refresh(self) -> None:
        """Ask every space whose figures are old, and wait for the answers up to `wait_s`."""
        hosts = set(self._hosts().values())
        self._latest = {host: answer for host, answer in self._latest.items() if host in hosts}
        old_us = self._clock.monotonic_us() - round(self._wait_s * 1e6)
        asked = [
            self._ask(host)
            for host in hosts
            if host not in self._asked and (host not in self._latest or self._latest[host][0] <= old_us)
        ]
        if asked:
            # fault metrics.waits_for_spaces: await asyncio.wait(asked)
            await asyncio.wait(asked, timeout=self._wait_s)

    def _ask(self, host: ThreadHost) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        over = self._asked[host] = loop.create_future()

        def on_states(states: tuple[ReactionState, ...] | None) -> None:
            """Pass the answer to the event loop. Called on the host's thread."""
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(self._receive_states, host, states)

        try:
            host.ask(_states, on_states, lambda _: on_states(None))
        except StorageError:
            self._receive_states(host, None)  # A closing or failed space is left out.
        return over

    def _receive_states(self, host: ThreadHost, states: tuple[ReactionState, ...] | None) -> None:
        self._asked.pop(host).set_result(None)
        if states is None:
            self._latest.pop(host, None)
        else:
            self._latest[host] = self._clock.monotonic_us(), states

    def collect(self) -> Iterable[Metric]:
        by_name: dict[str, list[ReactionState]] = {}
        for _, latest in self._latest.values():
            for state in latest:
                by_name.setdefault(state.name, []).append(state)
        for field, text in GAUGES.items():
            family = GaugeMetricFamily(f"headwater_reaction_{field}", text, labels=["reaction"])
            for name, states in by_name.items():
                family.add_metric([name], sum(getattr(state, field) for state in states))
            yield family
        for field, (metric, text) in AGES.items():
            family = GaugeMetricFamily(metric, text, labels=["reaction"])
            for name, states in by_name.items():
                family.add_metric([name], max(getattr(state, field) or 0 for state in states) / 1e6)
            yield family
        ends = CounterMetricFamily(
            "headwater_reaction_attempts", "Outcomes of targets that were claimed.", labels=["reaction", "how"]
        )
        for name, states in by_name.items():
            for how in HOW:
                ends.add_metric([name, how], sum(getattr(state, how) for state in states))
        yield ends


def _states(engine: Engine, _: Hub) -> tuple[ReactionState, ...]:
    answer = engine.deliver(QueryReactions(0))
    assert isinstance(answer, ReactionList)
    return answer.reactions
