"""What an operator can see of reactions: how much waits, how old the oldest is, and what came of attempts.

A request for metrics asks the engines and waits for no space longer than `metrics_s`: a space that has not answered by
then is shown with its last figures, and is not asked again before it has. Spaces are summed, since their names are
users' data. Of a name of a reaction only its class and member are told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.clock import Clock
from headwater.engine.engine import Engine
from headwater.engine.sync.hub import Hub
from headwater.engine.sync.space_worker import ThreadHost
from headwater.errors import StorageError
from headwater.protocol.reactions import QueryReactions, Reactions, ReactionState

GAUGES: Final = {
    "due": "Targets with something to deliver, now or later.",
    "blocked": "Targets that wait for an operator.",
    "parked": "Records that were passed over.",
}
AGES: Final = {
    "oldest_us": ("headwater_reaction_oldest_seconds", "How long the oldest of what is due has been waiting."),
    "unserved_us": ("headwater_reaction_unserved_seconds", "How long nobody has claimed what is due."),
}
HOW: Final = ("delivered", "failed", "lost")


class ReactionMetrics(Collector):
    """The reactions of all open spaces, as each of them last said. Belongs to the event loop's thread."""

    def __init__(self, hosts: Callable[[], dict[str, ThreadHost]], clock: Clock, wait_s: float) -> None:
        """`wait_s` is how long `refresh` waits for spaces, and how long it takes figures for new."""
        self._hosts = hosts
        self._clock = clock
        self._wait_s = wait_s
        self._said: dict[ThreadHost, tuple[int, tuple[ReactionState, ...]]] = {}  # and when
        self._asked: dict[ThreadHost, asyncio.Future[None]] = {}  # who has not answered yet

    async def refresh(self) -> None:
        """Ask every space, and wait a moment for those that were not asked before."""
        hosts = set(self._hosts().values())
        self._said = {host: said for host, said in self._said.items() if host in hosts}
        old_us = self._clock.monotonic_us() - round(self._wait_s * 1e6)
        asked = [
            self._ask(host)
            for host in hosts
            if host not in self._asked and (host not in self._said or self._said[host][0] <= old_us)
        ]
        if asked:
            # fault metrics.waits_for_spaces: await asyncio.wait(asked)
            await asyncio.wait(asked, timeout=self._wait_s)

    def _ask(self, host: ThreadHost) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        over = self._asked[host] = loop.create_future()

        def said(states: tuple[ReactionState, ...] | None) -> None:
            """On the host's thread."""
            with suppress(RuntimeError):  # The loop is closed, and this with it.
                loop.call_soon_threadsafe(self._heard, host, states)

        try:
            host.ask(_states, said, lambda _: said(None))
        except StorageError:
            self._heard(host, None)  # It is closing, or has stopped: the figures of the others count.
        return over

    def _heard(self, host: ThreadHost, states: tuple[ReactionState, ...] | None) -> None:
        self._asked.pop(host).set_result(None)
        if states is None:
            self._said.pop(host, None)
        else:
            self._said[host] = self._clock.monotonic_us(), states

    def collect(self) -> Iterable[Metric]:
        by_name: dict[str, list[ReactionState]] = {}
        for _, said in self._said.values():
            for state in said:
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
            "headwater_reaction_attempts", "What came of targets that were claimed.", labels=["reaction", "how"]
        )
        for name, states in by_name.items():
            for how in HOW:
                ends.add_metric([name, how], sum(getattr(state, how) for state in states))
        yield ends


def _states(engine: Engine, _: Hub) -> tuple[ReactionState, ...]:
    answer = engine.deliver(QueryReactions(0))
    assert isinstance(answer, Reactions)
    return answer.reactions
