"""What a shared program has to show: the naive model replays the logs of the engines.

The logs say which commits landed, in which order, and which runtime made each. Handlers and transactions add their ids
to a cell. A plain write is known by its place only: the model makes of its cell what the log has there with one of the
next plain writes of that runtime to that cell. A plain write that changes nothing need not be in the log.

After each commit, all cells of the model are compared with those that are stored. Each answer is compared with the
model at its place in the log. A refused event has no place: the model has to refuse it somewhere between the state that
its sender had seen and its answer. What an action reads of another space is a state that its runtime had seen between
the moment at which it was made and its answer; commits of its own runtime to that space that had no place yet then are
on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from headwater import Model
from headwater.data.address import Link
from headwater.data.value import ABSENT
from headwater.engine import Engine
from headwater.testing.author.stored import log_of
from tests.simulation.programs.build import NaiveProgram
from tests.simulation.programs.description import By, Program, Send, Transact, Write
from tests.simulation.programs.expressions import CELL_KINDS
from tests.simulation.programs.naive import NOTHING, Address, Step, Values, changed, inside, merged, replaced
from tests.simulation.programs.record import DONE, FAILED, REFUSED, Mismatch, apply, stored_form
from tests.simulation.programs.stored import owner_of, sent

__all__ = ["UNSEEN", "WHO", "Answer", "Decode", "Entry", "Made", "Sender", "entries_of", "replayed"]

WHO: Final = "who:"
"""How the id of the document begins by which a runtime tells its name."""
UNSEEN: Final = object()
"""Stands for a value that its reader did not have yet."""
Decode = Callable[[str, str, Any], Any]
"""Decodes the stored value of a member: of piece, member and value."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit of a log: the documents of cells that it wrote, with their values after it."""

    seq: int
    session: str
    documents: Mapping[str, Any]
    sends: tuple[By, ...] = ()  # events that it stored
    deleted: frozenset[str] = frozenset()  # pieces that it deleted


class Sender(Protocol):
    """A runtime that made actions."""

    name: str
    label: str  # other than those of all other runtimes of this user
    is_gone: bool  # its process was killed


@dataclass(frozen=True, slots=True)
class Made:
    """An action, its runtime, and what that had seen: the place in each log, and the cell of a plain write."""

    action: Send | Write | Transact
    sender: Sender
    since: Mapping[str, int]
    seen: Any = UNSEEN
    is_posted: bool = False  # by a handler, and handled by any runtime


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to an action, and the places in the logs that its runtime had seen by then."""

    kind: str
    value: Any
    until: Mapping[str, int]


def entries_of(program: Program, engine: Engine) -> list[Entry]:
    """The log of a space."""
    members = {
        f"{piece.name}:{member.name}"
        for piece in program.pieces
        for member in program.class_named(piece.of).of_kind(*CELL_KINDS, "link", "log")
    }
    records = {f"{piece.name}:@" for piece in program.pieces}
    return [
        Entry(
            logged.seq,
            logged.session,
            {
                operation.doc.id + owner_of(operation.doc): engine.read(operation.doc, at=logged.seq).value
                for operation in logged.commit.operations
                if operation.doc.id in members or operation.doc.id.startswith(WHO)
            },
            tuple(By(event.payload["user"], sent(event.stream, event.payload)) for event in logged.commit.events),
            frozenset(
                operation.doc.id.removesuffix(":@")
                for operation in logged.commit.operations
                if operation.doc.id in records and engine.read(operation.doc, at=logged.seq).value is ABSENT
            ),
        )
        for logged in log_of(engine)
    ]


def replayed(
    program: Program,
    made: Mapping[int, Made],
    answers: Mapping[int, Answer],
    logs: Mapping[str, Sequence[Entry]],
    decode: Decode,
) -> NaiveProgram:
    """Replay the logs on the model and compare everything that they have. Return the model after that."""
    return _Replay(program, made, answers, logs, decode).done()


@dataclass(slots=True)
class _Queue:
    """The plain writes of one runtime to one cell, and how many of them may have landed."""

    writes: list[Made] = field(default_factory=list)
    counts: set[int] = field(default_factory=lambda: {0})
    landed: dict[int, int] = field(default_factory=dict)  # of those that are known for sure to have landed: where


@dataclass(slots=True)
class _Space:
    """One space: its log, its stored states, and the states of the model."""

    name: str
    log: Sequence[Entry]
    stored: list[tuple[int, Values]]
    states: list[tuple[int, Values]] = field(default_factory=lambda: [(0, {})])
    landed: dict[int, int] = field(default_factory=dict)  # of handlers and transactions: where
    at: dict[int, list[int]] = field(
        default_factory=dict
    )  # of a place: the handlers and transactions that landed there
    next: int = 0  # the entry of the log that is to be replayed next

    @property
    def cells(self) -> Values:
        return self.states[-1][1]


class _Replay:
    def __init__(
        self,
        program: Program,
        made: Mapping[int, Made],
        answers: Mapping[int, Answer],
        logs: Mapping[str, Sequence[Entry]],
        decode: Decode,
    ) -> None:
        self._naive = NaiveProgram(program)
        self._made, self._answers, self._decode = dict(made), answers, decode
        self._home = {piece.name: piece.space for piece in program.pieces}
        self._queues: dict[tuple[str, str], _Queue] = {}
        for each in made.values():
            if isinstance(each.action, Write):
                doc = ":".join(self._address(each))
                self._queues.setdefault((each.sender.label, doc), _Queue()).writes.append(each)
        self._sessions: dict[str, str] = {}  # of its key: the label of its runtime
        self._spaces = {name: _Space(name, log, self._stored(log)) for name, log in logs.items()}
        for space in self._spaces.values():
            self._find_landed(space)

    def _apply(self, made: Made) -> tuple[str, Any]:
        """Apply an action to the model, for its user."""
        return apply(self._naive, By(made.sender.name, made.action))

    def _address(self, made: Made) -> Address:
        """The cell of a plain write."""
        assert isinstance(made.action, Write)
        declared = type(self._naive.pieces[made.action.piece]).__dict__[made.action.member]
        with self._naive.world.seen_from(made.sender.name):
            return self._naive.world.address(made.action.piece, made.action.member, declared.scope)

    # ---- the logs --------------------------------------------------------------------------------------

    def _stored(self, log: Sequence[Entry]) -> list[tuple[int, Values]]:
        """The states of a space that are stored."""
        cells: Values = {}
        states = [(0, cells)]
        for entry in log:
            cells = dict(cells)
            for doc, raw in entry.documents.items():
                if doc.startswith(WHO):
                    self._sessions[entry.session] = doc.removeprefix(WHO)
                    continue
                piece, _, member = doc.partition(":")
                if raw is ABSENT:
                    cells.pop((piece, member), None)
                else:
                    cells[piece, member] = self._target(self._decode(piece, member.partition("@")[0], raw))
            states.append((entry.seq, cells))
        return states

    def _target(self, value: Any) -> Any:
        """The handle of the model to which a link leads; any other value as it is."""
        if not isinstance(value, Link):
            return value
        piece, _, member = value.id.partition(":")
        handle = getattr(self._naive.pieces[piece], member)
        for step in value.path:
            handle = handle.key(step)
        return handle

    def _find_landed(self, space: _Space) -> None:
        logs: dict[str, int] = {}
        for entry in space.log:
            for doc, raw in entry.documents.items():
                if raw is ABSENT:
                    logs.pop(doc, None)
                elif doc.endswith(":log"):
                    for eid in raw[logs.get(doc, 0) :]:
                        if eid in space.landed:
                            raise Mismatch(f"the event {eid} landed twice")
                        space.landed[eid] = entry.seq
                        space.at.setdefault(entry.seq, []).append(eid)
                    logs[doc] = len(raw)

    # ---- the replay ------------------------------------------------------------------------------------

    def done(self) -> NaiveProgram:
        while left := [each for each in self._spaces.values() if each.next < len(each.log)]:
            ready = next((each for each in left if self._is_known(each)), None)
            if ready is None:
                raise Mismatch(f"{left[0].log[left[0].next]} ran, and no handler that landed posted it")
            self._replay(ready, ready.log[ready.next], ready.stored[ready.next + 1][1])
            ready.next += 1
        for space in self._spaces.values():
            self._check_plain_writes(space)
        self._check_order()
        landed = {eid for space in self._spaces.values() for eid in space.landed}
        for eid, answer in self._answers.items():
            if eid not in landed:
                if answer.kind == DONE:
                    raise Mismatch(f"{self._made[eid].action} answered {answer}, and nothing of it landed")
                self._check_refusal(eid, answer)
        for eid, made in self._made.items():
            if made.is_posted and eid not in landed:
                self._check_refusal(eid, None)
        self._naive.world.restore({at: each for space in self._spaces.values() for at, each in space.cells.items()})
        return self._naive

    def _is_known(self, space: _Space) -> bool:
        """Whether the next actions of a log were made: follow-ups are when the handlers that posted them landed."""
        return all(eid in self._made for eid in space.at.get(space.log[space.next].seq, ()))

    def _replay(self, space: _Space, entry: Entry, stored: Values) -> None:
        self._skip(space, entry.documents, entry.seq)
        if entry.seq in space.at:
            cells = self._handled(space, entry, space.at[entry.seq], stored)
        elif entry.deleted:
            cells = self._deleted(space, entry, stored)
        else:
            cells = space.cells
            for doc in entry.documents:
                if not doc.startswith(WHO):
                    cells = self._written(space, entry, doc, cells, stored)
        space.states.append((entry.seq, cells))

    def _deleted(self, space: _Space, entry: Entry, stored: Values) -> Values:
        """Delete pieces, for the user of the runtime that did so."""
        world = self._naive.world
        world.restore(space.cells)
        with world.seen_from(self._sessions[entry.session].rstrip("0123456789")):
            for piece in entry.deleted:
                world.forget(piece)
        if wrong := self._difference(world.cells, stored):
            raise Mismatch(f"{', '.join(entry.deleted)} was deleted at {entry.seq} and stays on {wrong}")
        return world.cells

    def _check_plain_writes(self, space: _Space) -> None:
        """All plain writes landed, but for those of killed processes."""
        self._skip(space, [doc for _, doc in self._queues], space.states[-1][0])
        for (_, doc), queue in self._queues.items():
            last = queue.writes[-1]
            is_kept = self._space_of(last.action) == space.name and not last.sender.is_gone
            if is_kept and len(queue.writes) not in queue.counts:
                missing = queue.writes[max(queue.counts)].action
                raise Mismatch(f"{last.sender.name}: {missing} never landed; {doc} stays on {space.cells}")

    def _handled(self, space: _Space, entry: Entry, eids: list[int], stored: Values) -> Values:
        """Apply handlers and transactions, for each state of another space that they may have read."""
        cells = space.cells
        for eid in eids:
            made = self._made[eid]
            answer = self._answers.get(eid)
            problem = ""
            for others in self._others(space, eid):
                world = self._naive.world
                world.restore({**cells, **others})
                world.posted.clear()
                kind, value = self._apply(made)
                after = self._part(space, world.cells)
                posted = tuple(world.posted)
                if kind != DONE:
                    problem = f"{made.action} landed at {entry.seq}, and the model answered that it is {kind} there"
                elif answer is not None and (answer.kind, answer.value) != (kind, value):
                    problem = f"{made.action} answered {answer}, and the model answers {value!r} at {entry.seq}"
                elif posted != entry.sends:
                    problem = f"{made.action} landed at {entry.seq} and posted {entry.sends}, not {posted}"
                elif eid == eids[-1] and (wrong := self._difference(after, stored)):
                    problem = f"{made.action} landed at {entry.seq} and stays on {wrong}"
                else:
                    problem = ""
                    cells = after
                    break
            if problem:
                raise Mismatch(problem)
            if not made.is_posted:
                self._check_earlier(made, eid, entry)
            for each in entry.sends:
                assert isinstance(each.step, Send)
                since = {**made.since, space.name: entry.seq}
                self._made[each.step.eid] = Made(each.step, made.sender, since, is_posted=True)
        return cells

    def _check_earlier(self, made: Made, eid: int, entry: Entry) -> None:
        """Plain writes of a runtime to a cell land before its later handlers and transactions that write that cell."""
        for doc in entry.documents:
            queue = self._queues.get((made.sender.label, doc))
            if queue is None:
                continue
            earlier = sum(each.action.eid < eid for each in queue.writes)
            left = {count for count in queue.counts if count >= earlier}
            if not left:
                late = queue.writes[max(queue.counts)].action
                raise Mismatch(f"{made.sender.name}: {late} lands after {made.action}, which was made later")
            queue.counts = left

    def _written(self, space: _Space, entry: Entry, doc: str, cells: Values, stored: Values) -> Values:
        """Apply the plain write that a commit has."""
        sender = self._sessions.get(entry.session, "")
        queue = self._queues.get((sender, doc))
        counts: set[int] = set()
        after = cells
        tried: list[str] = []
        for count in sorted(queue.counts) if queue is not None else ():
            if queue is None or count == len(queue.writes):
                continue
            for made in self._makes(space, queue, count, cells, entry.seq):
                wrong = self._difference(made, stored)
                if not wrong:
                    counts.add(count + 1)
                    after = made
                    break
                tried.append(f"{queue.writes[count].action}: {wrong}")
        if queue is None or not counts:
            raise Mismatch(f"{sender}: the commit {entry.seq} to {doc} told no plain write of it: {tried}")
        queue.counts = counts
        if len(counts) == 1:
            queue.landed[min(counts) - 1] = entry.seq
        return after

    def _skip(self, space: _Space, documents: Mapping[str, Any] | Sequence[str], seq: int) -> None:
        """Pass over plain writes that change nothing in the present state: those need not be in the log."""
        for (_, doc), queue in self._queues.items():
            if doc not in documents or self._home[doc.partition(":")[0]] != space.name:
                continue
            for count in range(len(queue.writes)):
                if count in queue.counts and queue.writes[count].since[space.name] <= seq:
                    makes = self._makes(space, queue, count, space.cells, seq + 1)
                    if any(not self._difference(each, space.cells) for each in makes):
                        queue.counts.add(count + 1)

    def _makes(self, space: _Space, queue: _Queue, count: int, cells: Values, seq: int) -> Iterator[Values]:
        """The states that a plain write may make of a state: one, if what its caller saw is known and decided."""
        made = queue.writes[count]
        if made.seen is UNSEEN or not self._is_merged(made):
            for seen in (made.seen,) if made.seen is not UNSEEN else self._seen(space, queue.writes, count, seq):
                yield self._with_write(space, made, cells, seen)
            return
        places = self._undecided_places(space, queue, count, cells)
        yield self._with_places(space, made, self._with_write(space, made, cells, made.seen), places)
        for states in (self._with_undecided(space, made, cells, seq), self._with_written_again(space, made, cells)):
            yield from (self._with_places(space, made, each, places) for each in states)

    def _undecided_places(self, space: _Space, queue: _Queue, count: int, cells: Values) -> set[tuple[Step, ...]]:
        """The fields that earlier plain writes of a runtime to its cell wrote that had no outcome yet."""
        at, places = self._address(queue.writes[count]), set[tuple[Step, ...]]()
        for number, each in enumerate(queue.writes[:count]):
            is_sure = queue.landed.get(number, 0) > queue.writes[count].since[space.name]
            if (
                is_sure
                and each.seen is not UNSEEN
                and isinstance(each.action, Write)
                and ".update(" not in each.action.text
            ):
                before = {**cells, at: each.seen}
                after = self._value(self._with_write(space, each, before, each.seen), *at)
                for place in self._places(space, each, before, at):
                    places.update(changed(inside(each.seen, place), inside(after, place), place))
        return places

    def _with_places(self, space: _Space, made: Made, cells: Values, places: set[tuple[Step, ...]]) -> Values:
        """A state that a merged write makes, in which it has written these fields as well."""
        if not places:
            return cells
        at = self._address(made)
        before = {**cells, at: made.seen}
        wanted = self._value(self._with_write(space, made, before, made.seen), *at)
        value = self._value(cells, *at)
        for own in self._places(space, made, before, at):
            if not all(isinstance(inside(each, own), Model | Mapping) for each in (made.seen, wanted)):
                continue
            for place in sorted(places, key=len):
                if len(place) > len(own) and _is_part(place, own):
                    value = _written_with_parts(value, place, wanted, len(own))
        return {**cells, at: value}

    def _is_merged(self, made: Made) -> bool:
        assert isinstance(made.action, Write)
        value = self._value({}, *self._address(made))
        return isinstance(value, Model | Mapping) and any(each in made.action.text for each in (".set(", ".delete("))

    def _with_undecided(self, space: _Space, made: Made, cells: Values, seq: int) -> Iterator[Values]:
        """The states that a merged write makes which has fields of earlier writes of its runtime in it.

        A field that its caller saw because of a write or an event that is not decided yet is written again: that one
        may be rejected.
        """
        at = self._address(made)
        bases = self._between(space.stored, made.since[space.name], seq - 1)
        first = self._value(bases[0][1], *at)
        if made.seen == first:
            return
        for _, base in bases:
            shown = {**base, at: merged(first, made.seen, self._value(base, *at))}
            wanted = self._value(self._with_write(space, made, shown, made.seen), *at)
            yield {**cells, at: merged(self._value(base, *at), wanted, self._value(cells, *at))}

    def _with_written_again(self, space: _Space, made: Made, cells: Values) -> Iterator[Values]:
        """The states that a merged write makes which writes the places of earlier writes of its runtime again.

        Those that were not decided yet count, also if they had no effect: an event or another write of that runtime. A
        follow-up may have been handled there. Of a place that the write has a part of, it writes that part.
        """
        assert isinstance(made.action, Write)
        at = self._address(made)
        wanted = self._value(self._with_write(space, made, {**cells, at: made.seen}, made.seen), *at)
        own = self._places(space, made, cells, at)
        places: set[tuple[Step, ...]] = set()
        earlier = [
            each
            for eid, each in self._made.items()
            if each.is_posted or (each.sender is made.sender and eid < made.action.eid)
        ]
        for each in reversed(earlier):
            known = len(places)
            others = self._places(space, each, cells, at)
            places |= {max(one, other, key=len) for one in own for other in others if _is_part(one, other)}
            if len(places) > known:
                value = merged(made.seen, wanted, self._value(cells, *at))
                for place in sorted(places, key=len):
                    value = _written_again(value, place, inside(wanted, place))
                yield {**cells, at: value}

    def _places(self, space: _Space, made: Made, cells: Values, at: Address) -> set[tuple[Step, ...]]:
        """The places of a cell that an action writes in a state, also without effect."""
        world = self._naive.world
        world.restore(cells)
        world.written.clear()
        with world.merging(None if made.seen is UNSEEN else made.seen):
            self._apply(made)
        return {steps for address, steps in world.written if address == at}

    def _with_write(self, space: _Space, made: Made, cells: Values, seen: Any) -> Values:
        world = self._naive.world
        world.restore(cells)
        with world.merging(seen):
            self._apply(made)
        return self._part(space, world.cells)

    def _seen(self, space: _Space, writes: list[Made], count: int, seq: int) -> Iterator[Any]:
        """Values that a runtime may have had of a cell that it had to fetch, with its own writes on top."""
        at = self._address(writes[count])
        for _, cells in self._between(space.stored, writes[count].since[space.name], seq - 1):
            for first in range(count, -1, -1):
                on_top = cells
                for each in writes[first:count]:
                    on_top = self._with_write(space, each, on_top, self._value(on_top, *at))
                yield self._value(on_top, *at)

    # ---- other spaces ----------------------------------------------------------------------------------

    def _others(self, space: _Space, eid: int) -> Iterator[Values]:
        """The states of the other space that an action may have read."""
        others = [each for each in self._spaces.values() if each is not space]
        if not others:
            yield {}
            return
        (other,) = others
        made, answer = self._made[eid], self._answers.get(eid)
        until = answer.until[other.name] if answer is not None else other.stored[-1][0]
        if made.is_posted:
            yield from self._others_of_follow_up(space, other, made)
            return
        earlier = [
            each
            for number, each in self._made.items()
            if number < eid and each.sender is made.sender and self._space_of(each.action) == other.name
        ]
        for seq, cells in self._between(other.stored, made.since[other.name], until):
            yield cells
            pending = [
                each for each in earlier if isinstance(each.action, Write) or other.landed.get(each.action.eid, 0) > seq
            ]
            for first in range(len(pending)):
                self._naive.world.restore({**space.cells, **cells})
                for each in pending[first:]:
                    with self._naive.world.merging(None if each.seen is UNSEEN else each.seen):
                        self._apply(each)
                yield self._part(other, self._naive.world.cells)

    def _others_of_follow_up(self, space: _Space, other: _Space, made: Made) -> Iterator[Values]:
        """The states of the other space that a follow-up may have read, in whichever runtime it was handled."""
        for seq, cells in self._between(other.stored, made.since[other.name], other.stored[-1][0]):
            yield cells
            for sender in {each.sender.label: each.sender for each in self._made.values()}.values():
                pending = [
                    each
                    for each in self._made.values()
                    if each.sender is sender
                    and self._space_of(each.action) == other.name
                    and (isinstance(each.action, Write) or other.landed.get(each.action.eid, 0) > seq)
                ]
                for first in range(len(pending)):
                    self._naive.world.restore({**space.cells, **cells})
                    for each in pending[first:]:
                        with self._naive.world.merging(None if each.seen is UNSEEN else each.seen):
                            self._apply(each)
                        yield self._part(other, self._naive.world.cells)

    def _space_of(self, action: Send | Write | Transact) -> str:
        return self._home[action.writes[0].piece if isinstance(action, Transact) else action.piece]

    def _check_refusal(self, eid: int, answer: Answer | None) -> None:
        """A refused or failed event has to be refused or to fail in a state that its runtime saw meanwhile.

        A follow-up has no answer. If nothing of it landed, it has to be refused or to fail in some state.
        """
        made = self._made[eid]
        space = self._spaces[self._space_of(made.action)]
        until = space.states[-1][0] if answer is None else answer.until[space.name]
        kinds = (REFUSED, FAILED) if answer is None else (answer.kind,)
        got: list[str] = []
        for _, cells in self._between(space.states, made.since[space.name], until):
            for others in self._others(space, eid):
                self._naive.world.restore({**cells, **others})
                got.append(self._apply(made)[0])
                if got[-1] in kinds:
                    return
        raise Mismatch(f"{made.action} answered {answer or 'nothing'}, and the model has {got}")

    @staticmethod
    def _between(states: list[tuple[int, Values]], since: int, until: int) -> list[tuple[int, Values]]:
        """The states from the one that `since` names to the one that `until` names."""
        first = max((at for at, (seq, _) in enumerate(states) if seq <= since), default=0)
        return [(seq, cells) for at, (seq, cells) in enumerate(states) if at >= first and (at == first or seq <= until)]

    # ---- comparisons -----------------------------------------------------------------------------------

    def _part(self, space: _Space, cells: Values) -> Values:
        return {at: value for at, value in cells.items() if self._home[at[0]] == space.name}

    def _value(self, cells: Values, piece: str, member: str) -> Any:
        default = type(self._naive.pieces[piece]).__dict__[member.partition("@")[0]].default
        return cells.get((piece, member), default)

    def _difference(self, one: Values, two: Values) -> str:
        """A cell that two states have other values of, as text."""
        for piece, member in sorted({*one, *two}):
            got, expected = (stored_form(self._value(cells, piece, member)) for cells in (two, one))
            if got != expected:
                return f"{piece}.{member} {got!r}, and the model has {expected!r}"
        return ""

    def _check_order(self) -> None:
        """Compare the order of the logs with the order in which one runtime made events of one piece.

        Events of one piece all write its log. Events of two pieces may not meet in any cell: one of them may be
        rejected and land after the other.
        """
        last: dict[tuple[str, str], int] = {}
        for space in self._spaces.values():
            for eid, seq in space.landed.items():
                action, sender = self._made[eid].action, self._made[eid].sender
                if not isinstance(action, Send) or self._made[eid].is_posted:
                    continue
                if (before := last.get((sender.label, action.piece), 0)) > eid:
                    late = self._made[before].action
                    raise Mismatch(f"{sender.name}: {action} landed at {seq}, after {late}, which was made later")
                last[sender.label, action.piece] = eid


def _is_part(one: tuple[Step, ...], other: tuple[Step, ...]) -> bool:
    """Whether one of two places is in the other, or both are the same."""
    return all(each == same for each, same in zip(one, other, strict=False))


def _written_with_parts(value: Any, place: tuple[Step, ...], wanted: Any, least: int) -> Any:
    """A value with the part of another one at a place; with more of it, if either has nothing there."""
    above = (place[:length] for length in range(least, len(place)))
    at = next((each for each in above if NOTHING in (inside(value, each), inside(wanted, each))), place)
    return replaced(value, at, inside(wanted, at))


def _written_again(value: Any, place: tuple[Step, ...], new: Any) -> Any:
    """A value with something at a place, or with nothing there."""
    is_above = not place or inside(value, place[:-1]) is not NOTHING  # Otherwise it was not written there again.
    return replaced(value, place, new) if is_above and (new, inside(value, place)) != (NOTHING, NOTHING) else value
