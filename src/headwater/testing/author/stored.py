"""The logs of the server of an author's simulation: records of topics, and whether promises were kept.

Reads engines and changes nothing. A record belongs to a class by its topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from headwater import Member
from headwater.engine import Engine, Logged
from headwater.testing.author.network import Client

PAGE: Final = 1_000


def log_of(engine: Engine) -> Iterator[Logged]:
    """Every commit that is kept, oldest first."""
    since: int | None = engine.kept_from - 1
    while since is not None:
        page = engine.changes(since=since, limit=PAGE)
        yield from page.items
        since = None if page.next is None else int(page.next)


def records(engines: Mapping[str, Engine], member: Member[Any]) -> list[Any]:
    """The records of a topic, in the order of each log."""
    schema = member.owner.__schema__
    declared = member.declaration
    codec = schema.codec(declared)
    topics = {f"{cls.__schema__.name}.{declared.stored}" for cls in _with_subclasses(member.owner)}
    found = []
    for engine in engines.values():
        for logged in log_of(engine):
            for record in logged.commit.records:
                if record.topic in topics:
                    found.append(codec.decode(record.payload))
    return found


def _with_subclasses(cls: type[Any]) -> list[type[Any]]:
    found = [cls]
    for each in found:
        found += each.__subclasses__()
    return found


def lost(engines: Mapping[str, Engine], clients: Iterable[Client]) -> list[tuple[str, str, int, int]]:
    """Return the commits that a runtime was told to be durable and no log has: space, session, number and seq."""
    there = {
        (space, logged.session, logged.commit.local_seq, logged.seq)
        for space, engine in engines.items()
        for logged in log_of(engine)
    }
    promised = [(*named, seq) for client in clients for named, seq in client.promised.items()]
    return [each for each in promised if each not in there]
