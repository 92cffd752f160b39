"""What has to hold after a random history of events, said as naively as possible, over the logs of the engines.

I4: what a landed attempt read of a computed is what the cells made of it right before its commit. I10: a follow-up
landed if and only if its parent did. I11: every event landed at most once; what was acknowledged landed. And: everybody
was answered, with what came of their event; what ended otherwise left nothing; nothing is stored any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headwater import ConflictError, HandlerFailed, Refused, SessionExpiredError
from headwater.data.address import DocKey
from headwater.engine import Engine, Logged
from headwater.engine.verify import verify_store
from headwater.testing.author.stored import log_of
from tests.simulation.events_program import PLACES, PLANS, Plan, expected, is_private

if TYPE_CHECKING:
    from tests.simulation.events_world import Sent, World


RECEIPT: Final = "$result:"
"""How the ids of documents begin that say that an event was handled."""
VERIFIED: Final = 10
"""Every so many histories are replayed against the rules of the engine."""


@dataclass
class Landed:
    """What the logs say, by tag."""

    handled: Counter[str] = field(default_factory=Counter)  # receipts of handlings
    refused: Counter[str] = field(default_factory=Counter)  # receipts of those that were refused or failed
    marked: Counter[str] = field(default_factory=Counter)  # marks that are there in the end
    logged: Counter[str] = field(default_factory=Counter)  # the same, of whole-array writes
    launched: Counter[str] = field(default_factory=Counter)
    sent: dict[str, str] = field(default_factory=dict)  # by id of a stored event: the tag
    stale: list[str] = field(default_factory=list)  # reads that were not fresh
    left: list[str] = field(default_factory=list)  # events that are still stored
    pieces: set[str] = field(default_factory=set)  # ids of those that were launched


def problems(world: World) -> list[str]:
    """Everything that is wrong."""
    found: Landed = world.sim.server.read(_landed)
    return [
        *_receipts(found),
        *(complaint for sent in world.sent for complaint in _told(world, sent, found)),
        *_follow_ups(found),
        *found.stale,
        *world.watch.wrong,
        *(f"{each} is still stored" for each in found.left),
        *(f"{user} still keeps {len(outbox)} events" for user, outbox in world.outboxes.items() if len(outbox)),
        *_runtimes(world, found),
        *(_verified(world) if world.sim.seed % VERIFIED == 0 else ()),
    ]


def _verified(world: World) -> Iterator[str]:
    """The history of each space obeys the rules of the engine: what is stored is what was sent and nobody handled."""
    for space, store in world.sim.server.stores().items():
        report = verify_store(store)
        if report.violation is not None:
            yield f"{space} does not verify: {report.violation}"


# ---- reading the logs --------------------------------------------------------------------------------------


def _landed(engines: Mapping[str, Engine]) -> Landed:
    found = Landed()
    logs = {space: list(log_of(engine)) for space, engine in engines.items()}
    for log in logs.values():
        for event in (event for each in log for event in each.commit.events):
            found.sent[event.payload.get("id", event.id)] = event.payload["args"]["tag"]
    for space, engine in engines.items():
        for logged in logs[space]:
            _note(found, engine, logged)
        found.left += [f"{event.payload['args']['tag']} in {space}" for event in engine.events(limit=1_000).items]
    for space, name in PLACES:
        if space in engines:
            found.marked.update(_cell(engines[space], name, "marks") or ())
            found.logged.update(_cell(engines[space], name, "log") or ())
    return found


def _note(found: Landed, engine: Engine, logged: Logged) -> None:
    commit = logged.commit
    for operation in commit.operations:
        id = operation.doc.id
        value: Any = operation.patches[-1].arg
        if id.startswith(RECEIPT):
            if value.get("kept") is not None:
                beside = DocKey(f"{value['kept']}:somebody", id)
                mine: list[Any] = [each.patches[-1].arg for each in commit.operations if each.doc.id.endswith(":mine")]
                if operation.doc.scope != "space":
                    found.stale.append(f"{id} is a mark, and not for everybody")
                if any(each.doc == beside for each in commit.operations):
                    continue  # What it says is beside it.
                # Nobody can send it again: no answer is kept.
                if value["refused"] is None and value["failed"] is None:
                    found.handled[str(mine[0][0][-1])] += 1
                else:
                    found.refused[found.sent.get(id.removeprefix(RECEIPT), "?")] += 1
                continue
            if operation.doc.scope == "space" and is_private(str(value["result"])):
                found.stale.append(f"{value['result']} is for its sender alone, and everybody may read it")
            if value["refused"] is None and value["failed"] is None:
                found.handled[value["result"]] += 1
            else:
                found.refused[found.sent.get(id.removeprefix(RECEIPT), "?")] += 1
        elif id.endswith(":seen"):
            for patch in operation.patches:
                _compare(found, engine, logged, operation.doc, patch)
        elif id.endswith(":tag"):
            found.launched[value] += 1
            found.pieces.add(id.removesuffix(":tag"))


def _compare(found: Landed, engine: Engine, logged: Logged, doc: DocKey, patch: Any) -> None:
    """I4: what was read is what is computed from the cells as they were right before the commit."""
    read = dict(patch.arg) if not patch.path else {patch.path[0]: patch.arg}
    piece = doc.id.rpartition(":")[0]
    log: Any = _at(engine, piece, "log", logged.seq - 1)
    n: Any = _at(engine, piece, "n", logged.seq - 1)
    table: Any = _at(engine, piece, "table", logged.seq - 1)
    for name, value in read.items():
        should = expected(name, log or (), n or 0, table or {})
        if value != should:
            found.stale.append(f"{name} read {value} at commit {logged.seq}, and {should} it was")


def _cell(engine: Engine, name: str, member: str) -> Any:
    return _at(engine, name, member, None)


def _at(engine: Engine, piece: str, member: str, at: int | None) -> Any:
    value = engine.read(DocKey("space", f"{piece}:{member}"), at=at).value
    return value if isinstance(value, (tuple, int, Mapping)) else None


# ---- what has to hold --------------------------------------------------------------------------------------


def _receipts(found: Landed) -> Iterator[str]:
    """I11: nothing was handled twice, and what a handling left is there as often as it was handled."""
    for tag, plan in PLANS.items():
        times = found.handled[tag]
        if times > 1:
            yield f"{tag} was handled {times} times"
        for what, there in (("push", found.marked), ("append", found.logged), ("launch", found.launched)):
            if there[tag] != (times if what in plan.does else 0):
                yield f"{tag} was handled {times} times, and its {what} is there {there[tag]} times"
        if plan.ends and times:
            yield f"{tag} landed although it said no"


def _told(world: World, sent: Sent, found: Landed) -> Iterator[str]:
    """Everybody is answered, with what came of their event."""
    plan, answer, times = sent.plan, sent.answer, found.handled[sent.plan.tag]
    others = [each for each in world.sent if each is not sent and sent.is_same(each)]
    if sent.is_withdrawn and times and not others and not world.died(sent):  # A crash takes a withdrawal back.
        yield f"{plan.tag} was withdrawn and handled"
    may_fail = plan.ends or plan.unless or sent.is_hasty or any(each.is_withdrawn for each in (sent, *others))
    if world.outboxes and world.died(sent) and not times and not may_fail:
        yield f"{plan.tag} was kept by {sent.user}, which died, and was never handled"
    if not sent.is_awaited:
        if not times and not may_fail and not world.died(sent):
            yield f"{plan.tag} was posted by {sent.user} and never handled"
        return
    if not sent.is_answered:
        yield f"{plan.tag} of {sent.user} was never answered"
    elif answer == plan.tag:
        if times != 1:
            yield f"{plan.tag} was acknowledged to {sent.user}, and landed {times} times"
    elif isinstance(answer, SessionExpiredError):
        if not world.died(sent):
            yield f"{plan.tag} of {sent.user}, which lives, was told {answer}"
    elif isinstance(answer, Refused) and "withdrawn" in str(answer):
        if not any(each.is_withdrawn for each in (sent, *others)):
            yield f"{plan.tag} was told that it was withdrawn"
    elif isinstance(answer, Refused):
        yield from _refused(plan, answer, times, found)
    elif isinstance(answer, ConflictError) and sent.is_hasty:
        if times:
            yield f"{plan.tag} was told that it lost, and landed"
    elif isinstance(answer, HandlerFailed):
        if plan.ends != "raise":
            yield f"{plan.tag} failed: {answer}"
    else:
        yield f"{plan.tag} of {sent.user} was told {answer!r}"


def _refused(plan: Plan, answer: Refused, times: int, found: Landed) -> Iterator[str]:
    """A no is a no: nothing of it landed, and its reason was there."""
    if times:
        yield f"{plan.tag} was refused and landed"
    if plan.ends != "refuse":
        if not plan.unless:
            yield f"{plan.tag} was refused: {answer}"
        elif not found.handled[plan.unless]:
            yield f"{plan.tag} was refused because of {plan.unless}, which never landed"


def _follow_ups(found: Landed) -> Iterator[str]:
    """I10: a follow-up is handled if and only if what posted it was, or one of those who did."""
    posted = {post.plan.tag: post for plan in PLANS.values() for post in plan.posts}
    for tag, post in posted.items():
        parents = [plan.tag for plan in PLANS.values() if post in plan.posts]
        child, landed = post.plan, [each for each in parents if found.handled[each]]
        if found.handled[tag] and not landed:
            yield f"{tag} landed, and {' and '.join(parents)}, which posted it, did not"
        is_refused = bool(child.ends) or (child.unless and found.handled[child.unless])
        if landed and not found.handled[tag] and not is_refused:
            yield f"{tag} was posted by {landed[0]}, which landed, and was never handled"
        if landed and child.ends and not found.refused[tag]:
            yield f"{tag} said no, and nobody wrote that down"


def _runtimes(world: World, found: Landed) -> Iterator[str]:
    """Nothing is left in any runtime: no event without an end, no piece of an attempt that fell. All of it is told."""
    for user, runtime in world.runtimes.items():
        sent = {f"{each.key} {each.place}" if each.key else each.plan.tag for each in world.sent_by(user)}
        told = sum(not row.origin for row in runtime.intents())
        if told < len(sent):
            yield f"{user} has sent {len(sent)} events, and the table has {told}"
        rows = [f"{row.stream} {row.state}" for row in runtime.intents() if row.ended_us is None]
        if rows:
            yield f"{user} still has {rows}"
        for node in runtime.graph().nodes:
            piece, _, member = node.id.partition("/")[2].partition(":")
            if member.startswith("stands") and piece not in found.pieces:
                yield f"{user} runs a piece that was never launched ({piece})"
