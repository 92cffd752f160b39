"""What an operator can see of reactions: how much waits, how old the oldest is, and what came of attempts.

Asked of the engines when somebody looks; spaces are summed, since their names are users' data. Of a name of a reaction
only its class and member are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headwater.engine.host import ThreadHost
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
    """The reactions of all open spaces."""

    def __init__(self, hosts: Callable[[], dict[str, ThreadHost]]) -> None:
        self._hosts = hosts

    def collect(self) -> Iterable[Metric]:
        by_name: dict[str, list[ReactionState]] = {}
        for host in self._hosts().values():
            for state in _states(host):
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


def _states(host: ThreadHost) -> tuple[ReactionState, ...]:
    try:
        answer = host.call(lambda engine, _: engine.deliver(QueryReactions(0)))
    except StorageError:
        return ()  # It is closing, or has stopped: the figures of the others count.
    assert isinstance(answer, Reactions)
    return answer.reactions
