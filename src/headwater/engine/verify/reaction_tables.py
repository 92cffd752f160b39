"""What is stored of reactions must be possible, and nothing that was emitted may be without somebody who delivers it.

Owns these comparisons, made after the replay: every record has the targets of those who want it, a target that has
something to deliver can be claimed or was blocked, and what was passed over and tried is of records that there are. Who
claimed what is not in the log, so that positions are believed as far as they are possible. Never repairs.
"""

from __future__ import annotations

from headwater.data.value import MAX_INT
from headwater.engine.log.branches import MAIN_ID
from headwater.engine.log.log import number_in_meta
from headwater.engine.store.delivery_port import (
    CLAIMS_EPOCH,
    NEVER,
    Listening,
    Passed,
    Standing,
    SubscriptionRow,
    TargetRow,
)
from headwater.engine.store.port import Store
from headwater.engine.verify.replay import Replay
from headwater.engine.verify.report import Broken

_PAGE = 500
_EPOCH = 2**32


def check_delivered(store: Store, replay: Replay) -> None:
    """Every subscription with its targets, and what is kept of failures."""
    rows = store.delivery.subscriptions()
    _check_declared({row.name: row for row in rows}, replay)
    for row in rows:
        if row.state not in tuple(Listening) or max(row.until_seq, row.cursor_seq, row.start_seq) > replay.last_seq:
            raise Broken("subscriptions", row.until_seq, f"reaction {row.name!r} is at a place that the log has not")
        _check_records(store, row)
        _check_targets(store, row, replay.last_seq)
        _check_passed(store, row)


def _check_declared(rows: dict[str, SubscriptionRow], replay: Replay) -> None:
    """C7: a reaction that a commit declares is there with that commit, and hears of what it emits."""
    for name, (seq, topic) in replay.declared.items():
        row = rows.get(name)
        if row is None or row.topic != topic or row.start > (seq - 1, MAX_INT):
            raise Broken("subscriptions", seq, f"reaction {name!r} was declared for {topic!r}, and is stored as {row}")


def _check_records(store: Store, row: SubscriptionRow) -> None:
    """C7: what was emitted has its target with the commit that emitted it, or once it was looked through."""
    if row.state == Listening.RETIRED:
        return
    after, known = row.start, set[str]()
    while records := store.records_after(row.topic, after, _PAGE):
        for record in records:
            place = (record.seq, record.ordinal)
            is_due = record.seq > row.until_seq or place <= row.cursor
            if record.branch != MAIN_ID or not is_due or record.key in known:
                continue
            if store.delivery.target(row.reaction, record.key) is None:
                raise Broken(
                    "targets", record.seq, f"reaction {row.name!r} has no target for {record.key!r}, which was emitted"
                )
            known.add(record.key)
        after = (records[-1].seq, records[-1].ordinal)


def _check_targets(store: Store, row: SubscriptionRow, last_seq: int) -> None:
    epoch = number_in_meta(store, CLAIMS_EPOCH, 0)
    after: str | None = None
    while targets := store.delivery.targets_after(row.reaction, after, _PAGE):
        for target in targets:
            name = f"target {target.key!r} of reaction {row.name!r}"
            if why := _impossible(target, last_seq, epoch):
                raise Broken("targets", target.seq, f"{name} {why}")
            again = store.delivery.parked_of(row.reaction, target.key, Passed.REPLAY, MAX_INT)
            if len(again) != target.replays:
                raise Broken(
                    "parked", target.seq, f"{name} has {len(again)} records to be tried again, it says {target.replays}"
                )
            is_behind = store.delivery.has_record(row.topic, MAIN_ID, target.key, target.position)
            if target.state == Standing.IDLE and is_behind and row.state != Listening.RETIRED and not row.is_filling:
                raise Broken("targets", target.seq, f"{name} has something to deliver, and nobody would be given it")
        after = targets[-1].key


def _impossible(target: TargetRow, last_seq: int, epoch: int) -> str:
    if target.state not in tuple(Standing):
        return f"is in state {target.state}, which there is not"
    if (target.due_us == NEVER) != (target.state in (Standing.IDLE, Standing.BLOCKED)):
        return f"is due at {target.due_us} and in state {Standing(target.state).name}"
    if bool(target.holder) != (target.state == Standing.LEASED):
        return f"is with {target.holder!r} and in state {Standing(target.state).name}"
    if target.seq > last_seq:
        return f"is at record {target.position}, and the log ends at {last_seq}"
    if target.token // _EPOCH > epoch:
        return f"was given away with token {target.token}, and there were {epoch} epochs"
    return ""


def _check_passed(store: Store, row: SubscriptionRow) -> None:
    """What was passed over, and what was tried, is of a record of the target."""
    places = ("", -1, -1)
    while parked := store.delivery.parked_after(row.reaction, places, _PAGE):
        for each in parked:
            target, record = (
                store.delivery.target(row.reaction, each.key),
                store.delivery.record(row.topic, (each.seq, each.ordinal)),
            )
            is_known = target is not None and record is not None and record.key == each.key
            if target is None or not is_known or each.state not in tuple(Passed):
                raise Broken("parked", each.seq, f"{row.name!r} passed over a record that {each.key!r} does not have")
            if (each.seq, each.ordinal) > target.position:
                raise Broken("parked", each.seq, f"{row.name!r} passed over a record that {each.key!r} comes to yet")
        places = (parked[-1].key, parked[-1].seq, parked[-1].ordinal)
    slots = ("", -1, -1, -1)
    while attempts := store.delivery.attempts_after(row.reaction, slots, _PAGE):
        for tried in attempts:
            if store.delivery.target(row.reaction, tried.key) is None:
                raise Broken(
                    "attempts", tried.seq, f"{row.name!r} tried to deliver to {tried.key!r}, which has no target"
                )
        slots = (attempts[-1].key, attempts[-1].seq, attempts[-1].ordinal, attempts[-1].slot)
