"""The naive model: drawn classes as plain Python over one dict, in which every read recomputes.

A `World` maps the address of a cell to its value. The classes of a drawn program are executed a second time with the
declarations of this module in the place of Headwater's: `get()` of a computed calls its function, an `each` makes its
children again at each read, a fold goes over all elements. There is no graph, no order of runs and no cache beyond the
values of one state.

A handler reads cells as it wrote them, and computeds as they follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec

from headwater import AbsentError, Model
from tests.simulation.programs.description import ANN, By, Send, user_of
from tests.simulation.programs.values import Rec

__all__ = [
    "NAMES",
    "NOTHING",
    "Address",
    "CellDeclaration",
    "Declaration",
    "NaivePiece",
    "Readable",
    "Step",
    "Values",
    "World",
    "changed",
    "constant",
    "inside",
    "merged",
    "reads_of",
    "replaced",
]

Address = tuple[str, str]
"""Path of a piece, and name of a member; for a user or session each, with the name of that."""
Step = tuple[str, object]
"""One step into a value: ("key", k) or ("field", name)."""
Values = dict[Address, Any]

NOTHING: Final = object()
_RAISE: Final = object()
_SHOWN: Final[list[Any]] = []
Reads = list[tuple[Callable[[], Any], Any]]
_READS: Final[list[Reads]] = []


class World:
    """The values of all written cells."""

    def __init__(self) -> None:
        self.cells: Values = {}
        self.pieces: dict[str, NaivePiece] = {}  # also children that are not there any more, as they were last
        self._window = ANN  # code runs for this one
        self.posted: list[By] = []  # events that handlers sent, which are to be handled
        self.is_trying = False  # a computed is run for its declared writes
        self._known: dict[Address, Any] = {}  # values of computeds in the present state
        self.seen: Any = None  # the value of its cell that the caller of a plain write saw; None: nothing is merged
        self.written: set[tuple[Address, tuple[Step, ...]]] = set()  # places that were written, also without effect

    def write(self, address: Address, value: Any) -> None:
        self.cells = {**self.cells, address: value}
        self._known = {}

    def address(self, path: str, member: str, scope: str) -> Address:
        """The address of a member for the present window."""
        owner = {"space": "", "user": "@" + user_of(self._window), "session": "@" + self._window}[scope]
        return path, member + owner

    @contextmanager
    def seen_from(self, window: str) -> Iterator[None]:
        """Run code for a window."""
        before, self._window = self._window, window
        try:
            yield
        finally:
            self._window = before

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Undo all writes and events of the block if it raises."""
        before = self.cells
        posted = tuple(self.posted)
        try:
            yield
        except Exception:
            self.restore(before)
            self.posted[:] = posted
            raise

    @contextmanager
    def merging(self, seen: Any) -> Iterator[None]:
        """Have a plain write in the block merge by field with the value of its cell that its caller saw."""
        self.seen = seen
        try:
            yield
        finally:
            self.seen = None

    def restore(self, cells: Values) -> None:
        self.cells = cells
        self._known = {}

    def computed(self, address: Address, compute: Callable[[], Any]) -> Any:
        """The value of a computed in the present state."""
        if _READS:
            _READS.append([])  # Reads of a computed are not those of its reader.
            try:
                return self._computed(address, compute)
            finally:
                _READS.pop()
        return self._computed(address, compute)

    def _computed(self, address: Address, compute: Callable[[], Any]) -> Any:
        if address not in self._known:
            self._known[address] = compute()
        return self._known[address]

    def post(self, send: Send) -> None:
        """Keep an event for the present window."""
        self.posted.append(By(self._window, send))

    def tried(self, compute: Callable[[], Any]) -> tuple[Any, Values]:
        """The result of a function and the cells with its declared writes, which are undone."""
        before, self.is_trying = self.cells, True
        try:
            return compute(), self.cells
        finally:
            self.is_trying = False
            self.cells = before

    def forget(self, path: str) -> None:
        """Delete a piece with its children, and what it keeps for the present window."""
        gone = {at for at in self.cells if at[0] == path or at[0].startswith(path + "/")}
        gone = {at for at in gone if "@" not in at[1] or at[1].endswith("@" + self._window)}
        self.restore({at: value for at, value in self.cells.items() if at not in gone})


# ---- handles -------------------------------------------------------------------------------------------------


class Recorder:
    """Records the fields that a function names."""

    def __init__(self) -> None:
        self.steps: tuple[Step, ...] = ()

    def __getattr__(self, name: str) -> Recorder:
        self.steps = (*self.steps, ("field", name))
        return self


def inside(value: Any, steps: tuple[Step, ...]) -> Any:
    for kind, name in steps:
        if value is NOTHING or value is None:
            return NOTHING
        value = value.get(name, NOTHING) if kind == "key" else getattr(value, str(name))
    return value


def replaced(value: Any, steps: tuple[Step, ...], new: Any) -> Any:
    if not steps:
        return new
    (kind, name), rest = steps[0], steps[1:]
    if kind == "field":
        if value is NOTHING:
            raise AbsentError(f"nothing that has a field {name}")
        return msgspec.structs.replace(value, **{str(name): replaced(getattr(value, str(name)), rest, new)})
    entries = {} if value is NOTHING else dict(value)
    inner = replaced(entries.get(name, NOTHING), rest, new)
    entries.pop(name, None) if inner is NOTHING else entries.__setitem__(name, inner)
    return entries


def merged(seen: Any, wanted: Any, now: Any) -> Any:
    """The present value with the fields and keys that `wanted` changes in `seen`."""
    if all(isinstance(each, Mapping) for each in (seen, wanted, now)):
        made = {key: value for key, value in now.items() if key in wanted or key not in seen}
        for key, value in wanted.items():
            if key not in seen or seen[key] != value:
                made[key] = merged(seen.get(key, NOTHING), value, made.get(key, NOTHING))
        return made
    if all(isinstance(each, Model) for each in (seen, wanted, now)):
        names = [each for each in wanted.__struct_fields__ if getattr(seen, each) != getattr(wanted, each)]
        fields = {each: merged(getattr(seen, each), getattr(wanted, each), getattr(now, each)) for each in names}
        return msgspec.structs.replace(now, **fields)
    return wanted


def changed(seen: Any, wanted: Any, at: tuple[Step, ...] = ()) -> Iterator[tuple[Step, ...]]:
    """The fields that `wanted` changes in `seen`; the place itself, also if they are equal, if they have no fields."""
    if isinstance(seen, Mapping) and isinstance(wanted, Mapping):
        yield from ((*at, ("key", key)) for key in seen if key not in wanted)
        for key, value in wanted.items():
            if key not in seen or seen[key] != value:
                yield from changed(seen.get(key, NOTHING), value, (*at, ("key", key)))
    elif isinstance(seen, Model) and type(seen) is type(wanted):
        for name in seen.__struct_fields__:
            if getattr(seen, name) != getattr(wanted, name):
                yield from changed(getattr(seen, name), getattr(wanted, name), (*at, ("field", name)))
    else:
        yield at


class Readable:
    """Reads a value, or a part of it."""

    target = ""  # the place to which a link to this handle leads

    def __init__(self, root: Callable[[], Any], steps: tuple[Step, ...] = ()) -> None:
        self._root = root
        self._steps = steps

    def _value(self) -> Any:
        return inside(self._root(), self._steps)

    def get(self, default: Any = _RAISE) -> Any:
        value = self._read()
        if value is not NOTHING:
            return value
        if default is _RAISE:
            raise AbsentError(f"nothing at {self._steps}")
        return default

    def view(self) -> Any:
        return self.get()

    def exists(self) -> bool:
        return self._read() is not NOTHING

    def _read(self) -> Any:
        """Read the value, and note it as a read of the function that is being computed."""
        value = self._value()
        if _READS:
            _READS[-1].append((self._state, self._state()))
        return value

    def _state(self) -> Any:
        """The whole value, as it is compared to tell whether it changed: a read of a part may be woken by another."""
        return self._root()

    def key(self, k: object) -> Any:
        below = self._below(("key", k))
        below.target = f"{self.target}/{k}"
        return below

    def at(self, path: Callable[[Any], Any]) -> Any:
        recorder = Recorder()
        path(recorder)
        return self._below(*recorder.steps)

    def _below(self, *steps: Step) -> Any:
        return Readable(self._root, (*self._steps, *steps))


def constant(value: Any) -> Readable:
    """A handle whose value never changes."""
    return Readable(lambda: value)


def reads_of(compute: Callable[[], object]) -> Reads:
    """The values that a function reads itself, each with a function that reads it again."""
    _READS.append([])
    try:
        compute()
    finally:
        reads = _READS.pop()
    return reads


class Writable(Readable):
    """Reads and writes the value of a cell, or a part of it."""

    def __init__(self, world: World, address: Address, default: Any, steps: tuple[Step, ...] = ()) -> None:
        super().__init__(lambda: world.cells.get(address, default), steps)
        self._world, self._address, self._default = world, address, default

    def _state(self) -> Any:
        # The first write is a change, also of a default.
        return self._address in self._world.cells, self._root()

    def _below(self, *steps: Step) -> Any:
        return Writable(self._world, self._address, self._default, (*self._steps, *steps))

    def set(self, value: Any) -> None:
        seen = self._world.seen
        self._put(value if seen is None else merged(inside(seen, self._steps), value, self._value()))

    def _put(self, value: Any) -> None:
        self._world.written.add((self._address, self._steps))
        self._world.write(self._address, replaced(self._root(), self._steps, value))

    def update(self, fn: Callable[[Any], Any]) -> None:
        self._put(fn(self.get()))

    def delete(self) -> None:
        """Remove it. A cell or a field has its default again; nothing happens where nothing is."""
        self._world.written.add((self._address, self._steps))
        if self._value() is NOTHING:
            return
        if not self._steps:
            self.set(self._default)
        elif self._steps[-1][0] == "field":
            self.set(getattr(type(inside(self._root(), self._steps[:-1]))(), str(self._steps[-1][1])))
        else:
            self.set(NOTHING)

    def push(self, *items: Any, keep: int | None = None) -> None:
        whole = (*self.get(()), *items)
        self.set(whole if keep is None else whole[-keep:])

    def add(self, item: Any) -> None:
        self.set(frozenset(self.get(frozenset())) | {item})

    def discard(self, item: Any) -> None:
        if self._address in self._world.cells or self.get(frozenset()):  # Otherwise it takes nothing out of nothing.
            self.set(frozenset(self.get(frozenset())) - {item})

    def increment(self, by: int = 1) -> None:
        self.set(self.get(0) + by)


# ---- declarations --------------------------------------------------------------------------------------------


class Declaration:
    """A member of a naive class. Read on a piece it is a handle."""

    name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, piece: NaivePiece | None, owner: type) -> Any:
        if piece is None:
            return self
        handle = self.handle(piece)
        if isinstance(handle, Readable) and not handle.target:
            handle.target = f"{piece.path}:{self.name}"
        return handle

    def handle(self, piece: NaivePiece) -> Any:
        """The handle of this member on one piece. Every kind of declaration has its own."""
        raise AssertionError(f"{type(self).__name__} has no handle")


class CellDeclaration(Declaration):
    """A cell. One that a computed declares to write has the value that this computed writes."""

    def __init__(self, default: Any, scope: str = "space") -> None:
        self.default = default
        self.scope = scope
        self.writer: Callable[[Any], Any] | None = None

    def handle(self, piece: NaivePiece) -> Any:
        world, writer = piece.world, self.writer
        address = world.address(piece.path, self.name, self.scope)
        if writer is None or world.is_trying:
            return Writable(world, address, self.default)
        written = lambda: world.tried(lambda: writer(piece))[1].get(address, self.default)  # noqa: E731
        return Readable(lambda: world.computed(address, written))


class Given(Declaration):
    def handle(self, piece: NaivePiece) -> Any:
        return piece.given[self.name]


class Derived(Declaration):
    """A member whose value is the result of a function of its piece."""

    def __init__(
        self, fn: Callable[[Any], Any], writes: tuple[CellDeclaration, ...] = (), scope: str = "space"
    ) -> None:
        self.fn = fn
        self.scope = scope
        self._is_writer = bool(writes)
        for each in writes:
            each.writer = fn

    def handle(self, piece: NaivePiece) -> Any:
        def value() -> Any:
            return piece.world.tried(lambda: self.fn(piece))[0] if self._is_writer else self.fn(piece)

        address = piece.world.address(piece.path, self.name, self.scope)
        return Readable(lambda: piece.world.computed(address, value))


class Shown(Declaration):
    """An effect. Its handle returns the values that it passes to `SHOW`."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn

    def handle(self, piece: NaivePiece) -> Any:
        def shown() -> Any:
            _SHOWN.clear()
            self.fn(piece)
            return _SHOWN[-1]

        return shown


class Handled(Declaration):
    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def handle(self, piece: NaivePiece) -> Any:
        return Callback(piece, self.name, self.fn)


class Callback:
    """A handler of one piece: called when its event is applied."""

    def __init__(self, piece: NaivePiece, name: str, fn: Callable[..., Any]) -> None:
        self._piece, self._name, self._fn = piece, name, fn

    def __call__(self, eid: int, n: int, w: str) -> Any:
        with self._piece.world.transaction():
            return self._fn(self._piece, eid, n, w)

    def post(self, eid: int, n: int, w: str) -> None:
        self._piece.world.post(Send(eid, self._piece.path, self._name, n, w, is_awaited=False))


class Emits(Declaration):
    """A topic. A record is an event without a user for the handler that follows a reaction."""

    def __init__(self) -> None:
        self._followers: list[Handled] = []

    def react(self, then: Handled, **_: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Have a reaction for each record, and its result handled. It is run in the attempt that does not fail."""
        take = then.fn
        self._followers.append(then)

        def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
            def handle(piece: NaivePiece, eid: int, n: int, w: str) -> Any:
                try:
                    fn(piece, Rec(n=eid, t=w), SimpleNamespace(attempt=1)).send(None)
                except StopIteration as end:
                    return take(piece, end.value)

            then.fn = handle
            return fn

        return declare

    def handle(self, piece: NaivePiece) -> Any:
        return SimpleNamespace(emit=lambda record: self._emit(piece, record))

    def _emit(self, piece: NaivePiece, record: Rec) -> None:
        for then in self._followers:
            send = Send(record.n, piece.path, then.name, 0, record.t, is_awaited=False)
            piece.world.posted.append(By("", send))


class NaivePiece:
    """A piece of the naive model: a path, and the handles that it was given."""

    world: World
    path: str
    given: dict[str, Any]

    def __init_subclass__(cls, name: str = "") -> None:
        super().__init_subclass__()

    def __init__(self, **given: Any) -> None:
        self.given = given

    def placed(self, world: World, path: str) -> NaivePiece:
        self.world, self.path = world, path
        world.pieces[path] = self
        return self

    @property
    def ctx(self) -> Any:
        return SimpleNamespace(name=self.path, user="", session="", follow=self._follow)

    def _follow(self, handle: Readable) -> Any:
        """The handle of the place to which a link leads, of the present code."""
        path, _, place = handle.target.partition(":")
        member, *keys = place.split("/")
        found = getattr(self.world.pieces[path], member)
        for key in keys:
            found = found.key(key)
        return found


def _each(source: CellDeclaration, **_: Any) -> Callable[[Callable[[Any, Any], Any]], Derived]:
    """One result per entry of a Mapping; a piece is placed below its parent."""

    def declare(fn: Callable[[Any, Any], Any]) -> Derived:
        def results(piece: NaivePiece) -> Mapping[str, Any]:
            made = {}
            for key in source.handle(piece).get():
                result = fn(piece, source.handle(piece).key(key))
                if isinstance(result, NaivePiece):
                    result = result.placed(piece.world, f"{piece.path}/{fn.__name__}/{key}")
                if result is not None:
                    made[key] = result
            return made

        return Derived(results)

    return declare


def _child(fn: Callable[[Any], NaivePiece]) -> Derived:
    def made(piece: NaivePiece) -> NaivePiece:
        child = fn(piece)
        return child.placed(piece.world, f"{piece.path}/{fn.__name__}/{type(child).__name__}")

    return Derived(made)


def _fold(
    source: CellDeclaration, *, start: Any, add: Callable[[Any, Any], Any], remove: object, by: Any = None
) -> Derived:
    def folded(piece: NaivePiece) -> Any:
        elements = source.handle(piece).get()
        values = list(elements.values()) if isinstance(elements, Mapping) else list(elements)
        groups: dict[Any, Any] = {}
        for value in values:
            group = None if by is None else by(value)
            groups[group] = add(groups.get(group, start), value)
        return groups if by is not None else groups.get(None, start)

    return Derived(folded)


def _marker(declaration: Callable[[Any], Declaration]) -> Callable[..., Any]:
    """A decorator that is written with or without arguments."""

    def decorate(fn: Callable[..., Any] | None = None, **_: Any) -> Any:
        return declaration(fn) if fn is not None else lambda fn: declaration(fn)

    return decorate


def _computed(
    fn: Callable[..., Any] | None = None, *, writes: tuple[CellDeclaration, ...] = (), scope: str = "space"
) -> Any:
    return Derived(fn, writes, scope) if fn is not None else lambda fn: Derived(fn, writes, scope)


NAMES: Final = cast(
    dict[str, Any],
    {
        "Piece": NaivePiece,
        "cell": CellDeclaration,
        "given": Given,
        "computed": _computed,
        "materializer": lambda envelope: lambda fn: Derived(fn, envelope),
        "effect": _marker(Shown),
        "handler": _marker(Handled),
        "each": _each,
        "child": _marker(_child),
        "fold": _fold,
        "link": lambda handle: handle,
        "topic": Emits,
        "reaction": lambda on, **options: on.react(**options),
        "NOTE": lambda *_: None,
        "SHOW": lambda ctx, effect, values: _SHOWN.append(values),
    },
)
"""The names of this module that stand for Headwater's in drawn source."""
