"""Runtimes and the engine together: the moves, and the properties that are checked.

A move is a tuple of its kind, the runtime's number and arguments. Moves of progress need no author and no fault; once
these cease, the moves of progress come to an end, and then everything has settled.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from model.derived.engine import Connection, Engine
from model.derived.graph import (
    BELOW_DISPUTED,
    CELLS,
    DISPUTED,
    FAILED,
    MODULUS,
    NODES,
    OF_PIECE,
    RECORD,
    REFUSED,
    Value,
    result_of,
)
from model.derived.messages import Fate, Sync, Verdict
from model.derived.rules import Rules
from model.derived.runtime import Runtime, Stage, State
from model.messages import NAMES, Broken

Move = tuple[str, int, str, int]
"""Kind, runtime, document or node, value."""

ASIDE: Final = "y"
"""The document that a runtime may set aside: changes of it do not arrive until it is asked for again."""


class Setting(NamedTuple):
    """The circumstances of a world that do not change."""

    runtimes: int = 2
    read_only: bool = False  # the last runtime may not write
    differing: str = (
        ""  # "own": B's function for a node differs, and its fingerprint; "shared": the fingerprint does not
    )
    refuses: bool = False  # the engine refuses one result of that node
    gated: bool = False  # A runs that node late: its readers may run before it, on its last value


class World:
    """A state of the model."""

    __slots__ = ("connections", "engine", "rules", "runtimes", "sessions", "setting")

    def __init__(self, rules: Rules, setting: Setting) -> None:
        self.rules = rules
        self.setting = setting
        differing = {1: setting.differing} if setting.differing else {}
        self.engine = Engine(rules, refuses=setting.refuses, differing=differing)
        self.runtimes = []
        self.connections: list[Connection | None] = []
        self.sessions = setting.runtimes
        for number in range(setting.runtimes):
            differs = number in differing
            read_only = setting.read_only and number == setting.runtimes - 1
            fingerprint = "own" if differing.get(number) == "own" else DISPUTED
            self.runtimes.append(
                Runtime(
                    number,
                    rules,
                    differs=differs,
                    fingerprint=fingerprint,
                    read_only=read_only,
                    gated=setting.gated and number == 0,
                )
            )
            self.connections.append(None)
            self._begin(number, number)

    def copy(self) -> World:
        other = object.__new__(World)
        other.rules, other.setting, other.sessions = self.rules, self.setting, self.sessions
        other.engine = self.engine.copy()
        other.runtimes = [runtime.copy() for runtime in self.runtimes]
        other.connections = [connection and connection.copy() for connection in self.connections]
        return other

    def key(self) -> object:
        connections = tuple(
            connection and (connection.seq, connection.answered, connection.aside, connection.fetched)
            for connection in self.connections
        )
        return self.engine.key(), tuple(runtime.key() for runtime in self.runtimes), connections

    # ---- moves ---------------------------------------------------------------------------------------

    def progress(self) -> list[Move]:
        """The moves that need no author and no fault."""
        moves: list[Move] = []
        for number, runtime in enumerate(self.runtimes):
            moves += [("run", number, node, 0) for node in runtime.runnable()]
            connection = self.connections[number]
            if connection is None:
                moves.append(("connect", number, "", 0))
                continue
            if runtime.is_flushable():
                moves.append(("flush", number, "", 0))
            if runtime.up:
                moves.append(("judge", number, "", 0))
            if runtime.down:
                moves.append(("hear", number, "", 0))
            moves += [("sync", number, "", end) for end in self.engine.next_ends(connection)[-2:]]
            if runtime.aside - runtime.asked:
                moves.append(("ask", number, "", 0))
        return moves

    def is_open(self, move: Move) -> bool:
        """Whether an author or a fault can make a move now."""
        kind, number, document, _ = move
        runtime = self.runtimes[number]
        writes = not runtime.read_only
        match kind:
            case "set" | "overwrite":
                return writes
            case "increment":
                return writes and document not in runtime.aside
            case "handle":
                return writes and runtime.is_fresh(document)
            case "delete":
                return writes and runtime.shown(RECORD) is not None
            case "make":
                return writes and runtime.shown(RECORD) is None
            case "stop":
                return not runtime.stopped
            case "start":
                return runtime.stopped
            case "aside":
                return runtime.is_connected and ASIDE not in runtime.aside and not runtime.layers_of(ASIDE)
            case "lose":
                return runtime.is_connected
            case _:
                return True

    def make(self, move: Move) -> None:
        """Make a move, and check that it broke no property."""
        kind, number, document, value = move
        runtime = self.runtimes[number]
        match kind:
            case "run":
                runtime.evaluate(document)
            case "flush":
                runtime.flush()
            case "judge":
                self._judge(number)
            case "hear":
                self._hear(number)
            case "sync":
                self._send_sync(number, value)
            case "connect":
                self._connect(number)
            case "ask":
                self._ask(number)
            case "lose":
                self._lose(number)
            case "crash":
                self.engine.crash()
                for each in range(len(self.runtimes)):
                    self._lose(each)
            case "kill":
                self.sessions += 1
                self._begin(number, self.sessions - 1)
            case "aside":
                connection = self.connections[number]
                assert connection is not None
                # The engine hears of it at once. Changes under way still arrive, so the runtime takes them in.
                runtime.aside |= {ASIDE}
                connection.aside |= {ASIDE}
            case _:
                self._author(runtime, kind, document, value)
        self.check(number)

    def _author(self, runtime: Runtime, kind: str, document: str, value: int) -> None:
        match kind:
            case "set" | "overwrite":
                runtime.write((), ((document, value),))
            case "increment":
                number = runtime.shown(document)
                runtime.write((document,), ((document, ((number or 0) + 1) % MODULUS),), (document,))
            case "handle":
                if runtime.is_registered(document):
                    runtime.evaluate(document)
                    if not runtime.is_fresh(document):
                        return
                read = runtime.shown(document)
                cell = CELLS[value % 2]
                runtime.write((), ((cell, ((read or 0) + 1 + value) % MODULUS),), (document,))
            case "delete":
                runtime.write((RECORD,), ((RECORD, None), (OF_PIECE, None)))
            case "make":
                runtime.write((RECORD,), ((RECORD, 10 * runtime.made + runtime.number + 2),))
            case "want":
                runtime.want(document)
            case "stop":
                runtime.stop()
            case "start":
                runtime.start()
            case _:
                raise AssertionError(kind)

    # ---- connections ---------------------------------------------------------------------------------

    def _begin(self, number: int, session: int) -> None:
        """Begin a session of a runtime that knows the confirmed state and nothing else."""
        runtime = self.runtimes[number]
        moment = self.engine.moments[-1]
        if session != number and number in self.engine.differing:
            self.engine.differing[session] = self.engine.differing[number]
        runtime.begin(session, self.engine.seq, moment.values, {doc: made.seq for doc, made in moment.origins.items()})
        runtime.resume(moment.origins)
        runtime.is_connected = True
        self.connections[number] = Connection(session, runtime.seq, 0, frozenset(), frozenset())

    def _lose(self, number: int) -> None:
        runtime = self.runtimes[number]
        runtime.is_connected = False
        runtime.up = runtime.down = ()
        self.connections[number] = None

    def _connect(self, number: int) -> None:
        """Replay the messages without an answer, byte for byte, and take back the layers that were never sent."""
        runtime = self.runtimes[number]
        before, yielding = runtime.view(), runtime.yielding()
        runtime.take_back({layer.commit.id for layer in runtime.layers if not layer.message})
        runtime.arm(yielding)
        runtime.announce(before, {})
        if not self.rules.replay_in_bytes:
            for sent, message in runtime.unanswered.items():
                entries = tuple(
                    entry._replace(value=runtime.tier[entry.node].value, version=runtime.tier[entry.node].version)
                    if entry.node in runtime.tier and runtime.tier[entry.node].value != FAILED
                    else entry
                    for entry in message.entries
                )
                runtime.unanswered[sent] = message._replace(entries=entries)
        runtime.up = tuple(runtime.unanswered.values())
        runtime.is_connected = True
        answered = min(runtime.unanswered, default=runtime.messages + 1) - 1
        self.connections[number] = Connection(runtime.session, runtime.seq, answered, runtime.aside, frozenset())
        runtime.asked = frozenset()

    def _ask(self, number: int) -> None:
        runtime, connection = self.runtimes[number], self.connections[number]
        assert connection is not None
        runtime.asked |= runtime.aside
        connection.aside -= runtime.asked
        connection.fetched |= runtime.asked

    def _judge(self, number: int) -> None:
        runtime, connection = self.runtimes[number], self.connections[number]
        assert connection is not None
        message, runtime.up = runtime.up[0], runtime.up[1:]
        runtime.down += (self.engine.judge(message),)
        connection.answered = max(connection.answered, message.number)

    def _send_sync(self, number: int, end: int) -> None:
        runtime, connection = self.runtimes[number], self.connections[number]
        assert connection is not None
        sync = self.engine.sync(connection, end)
        if self.rules.verdict_before_sync:
            runtime.down += (sync,)
        else:
            earlier = tuple(message for message in runtime.down if isinstance(message, Sync))
            verdicts = tuple(message for message in runtime.down if isinstance(message, Verdict))
            runtime.down = (*earlier, sync, *verdicts)

    def _hear(self, number: int) -> None:
        runtime = self.runtimes[number]
        message, runtime.down = runtime.down[0], runtime.down[1:]
        if isinstance(message, Verdict):
            self._check_verdict(runtime, message)
            runtime.hear(message)
        else:
            self._check_sync(runtime, message)
            runtime.integrate(message)

    # ---- properties ----------------------------------------------------------------------------------

    def _check_verdict(self, runtime: Runtime, verdict: Verdict) -> None:
        """An entry is told to be accepted if and only if the log has it."""
        sent = runtime.unanswered.get(verdict.number)
        if sent is None:
            return
        told = [(commit.id, seq > 0) for commit, seq in zip(sent.commits, verdict.commits, strict=True)]
        for name, is_accepted in told:
            if is_accepted != ((runtime.session, name) in self.engine.accepted):
                raise Broken("C6", f"{NAMES[runtime.number]} is told of commit {name} what the log does not say")
        for entry, fate in zip(sent.entries, verdict.fates, strict=True):
            if (fate is Fate.ACCEPTED) != ((runtime.session, (sent.number, entry.node)) in self.engine.accepted):
                raise Broken("C6", f"{NAMES[runtime.number]} is told of {entry.node} what the log does not say")

    def _check_sync(self, runtime: Runtime, sync: Sync) -> None:
        for seq in range(runtime.seq + 1, sync.seq + 1):
            session, number = self.engine.owners[seq]
            if session == runtime.session and number in runtime.unanswered:
                raise Broken("C6", f"{NAMES[runtime.number]} is shown message {number} before its verdict")
        if sync.seq not in self.engine.ends:
            raise Broken("cut", f"{NAMES[runtime.number]} is shown a commit without the wave of its message")

    def check(self, number: int) -> None:
        """Every clean node of a runtime shows the result of its function on the documents shown."""
        runtime = self.runtimes[number]
        for node in NODES:
            known = runtime.nodes[node]
            if known.state is State.CLEAN and runtime.is_registered(node) and not runtime.yields(node):
                self._check_node(runtime, node)

    def _check_node(self, runtime: Runtime, node: str) -> None:
        if node == DISPUTED and self.setting.differing == "shared":
            return
        made = result_of(node, differs=runtime.differs, read=runtime.shown)
        shown = runtime.shown(node)
        if shown != made and not (shown == FAILED and self.setting.refuses and node == DISPUTED and made == REFUSED):
            raise Broken("I1", f"{NAMES[runtime.number]} shows {node} = {shown}, clean, and its inputs make it {made}")

    def check_settled(self) -> None:
        """No move of progress is left: every runtime shows, and the log has, what a recomputation makes."""
        values = self.engine.values
        for number, runtime in enumerate(self.runtimes):
            name = NAMES[number]
            if runtime.unanswered or runtime.layers or runtime.aside:
                raise Broken("settles", f"{name} waits for ever")
            if runtime.seq != self.engine.seq or runtime.confirmed != values:
                raise Broken("C6", f"the confirmed state of {name} is not the log's")
            for node, entry in runtime.tier.items():
                if (
                    entry.stage is not Stage.LOCAL
                    and not runtime.nodes[node].paused
                    and not self._is_held(runtime, node)
                ):
                    raise Broken("settles", f"{name} keeps the result of {node} for ever: {entry.stage.name}")
            if not self.setting.differing and any(node.paused for node in runtime.nodes.values()):
                raise Broken("I6", f"{name} holds a node back although all runtimes have the same functions")
            live = runtime.live()
            for node in NODES:
                if not runtime.is_registered(node):
                    continue
                if node in live:
                    if not runtime.nodes[node].paused and not self._is_held(runtime, node):
                        self._check_node(runtime, node)
                elif runtime.nodes[node].state is not State.CLEAN and runtime.shown(node) != values[node]:
                    why = f"{name} shows {node} = {runtime.shown(node)}, dormant, of writes that never were"
                    raise Broken("I1", why)
            for commit, seq in runtime.fates.items():
                in_log = any((session, commit) in self.engine.accepted for session in range(self.sessions))
                if in_log != (seq > 0):
                    raise Broken("C6", f"{name} was told of {commit} what the log does not say")
        self._check_store()

    def _is_held(self, runtime: Runtime, node: str) -> bool:
        """Whether a node reads one that pauses because runtimes disagree."""
        return any(
            document in NODES and (runtime.nodes[document].paused or self._is_held(runtime, document))
            for document in runtime.nodes[node].reads
        )

    def _check_store(self) -> None:
        values = self.engine.values
        if values[RECORD] is None and values[OF_PIECE] is not None:
            raise Broken("store", f"the log has {OF_PIECE} of a deleted piece")
        for node in NODES:
            owners = [each for each in self.runtimes if node in each.live() and not each.read_only]
            if not owners or (self.setting.differing and node in BELOW_DISPUTED):
                continue
            made = self._recomputed(node)
            if made != FAILED and values[node] != made:
                raise Broken("store", f"the log has {node} = {values[node]}, and its cells make it {made}")

    def _recomputed(self, node: str) -> Value:
        values = self.engine.values
        has_owner = any(OF_PIECE in each.live() and not each.read_only for each in self.runtimes)

        def read(document: str) -> Value:
            if document not in NODES or (document == OF_PIECE and not has_owner):
                return values[document]
            return self._recomputed(document)

        value = result_of(node, differs=False, read=read)
        return FAILED if self.setting.refuses and node == DISPUTED and value == REFUSED else value
