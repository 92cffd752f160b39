"""Search of the model of the derived tier: random schedules, and all schedules of a small script."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headwater.clock import Random, seeded
from model.derived.graph import CELLS, DISPUTED, FAILED, MODULUS, NODES, OF_PIECE
from model.derived.rules import Rules
from model.derived.world import Move, Setting, World
from model.messages import NAMES, Broken

STEPS: Final = 120
SETTLING_MOST: Final = 400
"""Moves in which a world of three runtimes settles once authors and faults cease."""

AUTHORED: Final = ("set", "increment", "handle", "want", "delete", "make", "stop", "start", "overwrite")
FAULTS: Final = ("lose", "crash", "kill", "aside")
PLAIN: Final = Setting()
PROGRESS: Final = frozenset({"run", "flush", "judge", "hear", "sync", "connect", "ask"})


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken property, and the schedule that breaks it."""

    rule: str
    why: str
    setting: Setting
    trace: tuple[Move, ...]
    seed: int = -1


def play(seed: int, rules: Rules, visit: Callable[[World], None] | None = None) -> Finding | None:
    """Play the random schedule of a seed: moves of authors, faults and progress, then progress until it settles."""
    random = seeded(f"derived/{seed}")
    setting = Setting(
        runtimes=random.choice((2, 2, 3)),
        read_only=random.random() < 0.3,
        differing=random.choice(("", "", "", "own", "shared")),
        refuses=random.random() < 0.35,
        gated=random.random() < 0.3,
    )
    weights: dict[str, float] = {kind: random.choice((0, 1, 4)) for kind in (*AUTHORED, *FAULTS)}
    weights |= {kind: weights[kind] * 0.4 for kind in FAULTS}
    eager = random.choice((1, 3, 8))
    span = random.choice((2, 3, MODULUS))
    world = World(rules, setting)
    trace: list[Move] = []
    try:
        for number in range(setting.runtimes):
            for node in NODES:
                if random.random() < 0.5:
                    _make(world, trace, ("want", number, node, 0))
        for _ in range(STEPS):
            move = _draw(world, random, weights, eager, span)
            if move is not None:
                _make(world, trace, move)
                if visit is not None:
                    visit(world)
        settle(world, trace, random)
        if visit is not None:
            visit(world)
    except Broken as broken:
        return Finding(broken.rule, broken.why, setting, tuple(trace), seed)
    return None


def settle(world: World, trace: list[Move], random: Random) -> None:
    """Make moves of progress until there are none, then check that everything has settled."""
    for _ in range(SETTLING_MOST):
        moves = world.progress()
        if not moves:
            world.check_settled()
            return
        _make(world, trace, random.choice(moves))
    raise Broken("settles", f"not settled after {SETTLING_MOST} moves")


def replay(trace: Sequence[Move], setting: Setting, rules: Rules) -> Finding | None:
    """Make the moves of a trace that are possible when their turn comes, then settle in a fixed order."""
    world = World(rules, setting)
    made: list[Move] = []
    try:
        for move in trace:
            if move in world.progress() if move[0] in PROGRESS else world.is_open(move):
                _make(world, made, move)
        for _ in range(SETTLING_MOST):
            moves = world.progress()
            if not moves:
                world.check_settled()
                return None
            _make(world, made, moves[-1])
        raise Broken("settles", f"not settled after {SETTLING_MOST} moves")
    except Broken as broken:
        return Finding(broken.rule, broken.why, setting, tuple(made))


def shrink(finding: Finding, rules: Rules) -> Finding:
    """Leave out moves of a finding for as long as the rest breaks the same property."""
    best = finding
    step = max(1, len(best.trace) // 4)
    while step:
        place = 0
        while place < len(best.trace):
            shorter = replay(best.trace[:place] + best.trace[place + step :], best.setting, rules)
            if shorter is not None and shorter.rule == finding.rule and len(shorter.trace) < len(best.trace):
                best = shorter
            else:
                place += step
        step //= 2
    return best


def _make(world: World, trace: list[Move], move: Move) -> None:
    trace.append(move)
    world.make(move)


def _draw(world: World, random: Random, weights: dict[str, float], eager: int, span: int) -> Move | None:
    progress = world.progress()
    kinds = [kind for kind, weight in weights.items() if weight]
    if progress and (not kinds or random.random() < eager / (eager + 2)):
        return random.choice(progress)
    if not kinds:
        return None
    kind = random.choices(kinds, [weights[kind] for kind in kinds])[0]
    document = random.choice(CELLS if kind in ("set", "increment") else NODES)
    runtime = random.choice(world.runtimes)
    if kind == "overwrite":
        document = DISPUTED
    elif kind == "handle" and random.random() < 0.7:
        # Failed nodes, and the reader of a stopped one, are rare and seldom met by chance.
        rare = [node for node in NODES if runtime.shown(node) == FAILED]
        rare += ["e"] if runtime.stopped and OF_PIECE in runtime.tier else []
        document = random.choice(rare or [document])
    move = (kind, runtime.number, document, random.randrange(span))
    return move if world.is_open(move) else None


# ---- all schedules -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Script:
    """The moves of each author in their order, and how often a connection may be lost."""

    name: str
    authors: tuple[tuple[Move, ...], ...]
    setting: Setting = PLAIN
    wanted: tuple[str, ...] = ("a", "")  # for each runtime, the nodes that it demands
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Search:
    """Every state that a script can reach was looked at, unless something was found."""

    states: int
    steps: int
    finding: Finding | None = None


class Path(NamedTuple):
    """The moves that lead to a state: the last one, and the path to the state before it."""

    before: Path | None
    move: Move


class TooLargeError(Exception):
    """A script has more states than the search may look at."""


def search(script: Script, rules: Rules, *, most: int = 1_000_000) -> Search:
    """Look at every state that the script reaches, breadth first."""
    world = World(rules, script.setting)
    for number in range(script.setting.runtimes):
        for node in script.wanted[number]:
            world.make(("want", number, node, 0))
    start = (world, (0,) * len(script.authors), script.losses)
    seen = {hash((world.key(), *start[1:]))}
    first: Path | None = None
    waiting = deque([(start, first)])
    steps = 0
    while waiting:
        (world, places, losses), path = waiting.popleft()
        moves = _steps(world)
        if not moves and all(place == len(author) for place, author in zip(places, script.authors, strict=True)):
            try:
                world.check_settled()
            except Broken as broken:
                return Search(len(seen), steps, Finding(broken.rule, broken.why, script.setting, _moves(path)))
        choices = [(move, places, losses) for move in moves]
        is_running = any(move[0] == "run" for move in moves)
        for number, (place, author) in enumerate(zip(places, script.authors, strict=True)):
            if place < len(author) and not is_running:
                later = (*places[:number], place + 1, *places[number + 1 :])
                if world.is_open(author[place]):
                    choices.append((author[place], later, losses))
        if losses and not is_running:
            lost = (("lose", number, "", 0) for number, each in enumerate(world.connections) if each is not None)
            choices += [(move, places, losses - 1) for move in lost]
        for move, later, left in choices:
            steps += 1
            reached = world.copy()
            try:
                reached.make(move)
            except Broken as broken:
                return Search(len(seen), steps, Finding(broken.rule, broken.why, script.setting, (*_moves(path), move)))
            key = hash((reached.key(), later, left))
            if key not in seen:
                if len(seen) >= most:
                    raise TooLargeError(f"{script.name} has more than {most} states")
                seen.add(key)
                waiting.append(((reached, later, left), Path(path, move)))
    return Search(len(seen), steps)


def _steps(world: World) -> list[Move]:
    """The moves of progress that a search tries: nodes run at once, and a Sync tells everything that may be told."""
    moves = world.progress()
    runs = [move for move in moves if move[0] == "run"]
    syncs = {move[1]: move for move in moves if move[0] == "sync"}
    return runs[:1] or [move for move in moves if move[0] != "sync"] + list(syncs.values())


def _moves(path: Path | None) -> tuple[Move, ...]:
    moves: list[Move] = []
    while path is not None:
        moves.append(path.move)
        path = path.before
    return tuple(reversed(moves))


def told(move: Move) -> str:
    """A move as a person reads it."""
    kind, number, document, value = move
    name = NAMES[number]
    match kind:
        case "set" | "overwrite":
            return f"{name} sets {document} to {value}"
        case "increment":
            return f"{name} increments {document}"
        case "handle":
            return f"{name} handles an event: reads {document}, writes {CELLS[value % 2]}"
        case "want":
            return f"{name} begins or ceases to demand {document}"
        case "run":
            return f"{name} runs {document}"
        case "judge":
            return f"the engine judges the next message of {name}"
        case "hear":
            return f"{name} hears the next verdict or Sync"
        case "sync":
            return f"the engine sends {name} a Sync up to seq {value}"
        case "crash":
            return "the engine crashes and restarts"
        case "aside":
            return f"{name} sets y aside"
        case "ask":
            return f"{name} asks for y again"
        case _:
            return f"{name}: {kind}"
