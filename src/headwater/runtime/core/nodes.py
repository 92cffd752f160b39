"""Registration of nodes without declared classes: a function, and handles that name its inputs and outputs.

Turns handles into the `NodeSpec` of the scheduler: documents, a home space and an encoder for results. Members of
pieces come to the same specification another way (`pieces`). Runs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from headwater.cells.codec_base import Mismatch, TypeCodec
from headwater.cells.handle import Input
from headwater.data.value import ABSENT, MaybeValue
from headwater.errors import AuthoringError, InvalidValueError
from headwater.replica.replica import Replica
from headwater.scheduler.node import STATUS, Node, NodeKind
from headwater.scheduler.registry import NodeSpec

if TYPE_CHECKING:
    from headwater.runtime.core.core import Core

Kind = Literal["computation", "effect", "materializer"]


class NodeHandle:
    """A registered node: its state, and the settings that can still be changed."""

    __slots__ = ("_core", "node")

    def __init__(self, core: Core, node: Node) -> None:
        self._core = core
        self.node = node

    def __repr__(self) -> str:
        return f"<node {self.node.id}>"

    @property
    def id(self) -> str:
        return self.node.id

    @property
    def runs(self) -> int:
        """Completed runs, failed ones included."""
        return self.node.runs

    @property
    def status(self) -> str:
        return STATUS[self.node.status]

    @property
    def is_live(self) -> bool:
        """True if the node is demanded."""
        return self.node.live

    def remove(self) -> None:
        """Remove the node, with the nodes that its runs created."""
        self._core.remove(self.node)

    def set_debounce(self, ms: float) -> None:
        """Run the node only after `ms` without a change."""
        self._configure(debounce_us=_us("set_debounce", ms))

    def clear_debounce(self) -> None:
        """Clear the debounce, including one chosen automatically for slow runs; none is chosen again."""
        self._core.scheduler.set_delays(self._open(), debounce_us=0, no_auto=True)
        self._core.request_tick()

    def set_throttle(self, ms: float) -> None:
        """Begin at most one run per `ms`."""
        self._configure(throttle_us=_us("set_throttle", ms))

    def _configure(self, *, debounce_us: int | None = None, throttle_us: int | None = None) -> None:
        self._core.scheduler.set_delays(self._open(), debounce_us=debounce_us, throttle_us=throttle_us)
        self._core.request_tick()

    def _open(self) -> Node:
        self._core.check_thread()
        if self.node.removed:
            raise AuthoringError(f"{self!r} was removed: register it again")
        return self.node


def _us(what: str, ms: float) -> int:
    if ms <= 0:
        raise AuthoringError(f"{what}({ms:g}): write how many milliseconds, more than 0")
    return round(ms * 1_000)


def register(
    core: Core,
    fn: Callable[[], object],
    *,
    kind: Kind,
    id: str | None,
    output: Input[Any] | None,
    writes: Iterable[Input[Any]],
    envelope: Iterable[Input[Any]],
    reads: Iterable[Input[Any]],
    debounce_ms: float,
    throttle_ms: float,
    transient: tuple[type[Exception], ...],
    parent: NodeHandle | None,
) -> NodeHandle:
    """Register a node. Nothing is read and nothing runs before the node is demanded."""
    name = id or _name(core, fn)
    try:
        node_kind = NodeKind(kind)
    except ValueError:
        raise AuthoringError(f"kind={kind!r} of {name!r}: write 'computation', 'effect' or 'materializer'") from None
    if inspect.iscoroutinefunction(fn):
        raise AuthoringError(f"{name!r} is an async function: a run never awaits. Make it a plain function.")
    outputs = (*(() if output is None else (output,)), *writes)
    for each in outputs:
        if each.path:
            raise AuthoringError(f"{name!r} writes {each!r}: declare the whole document, or make it a materializer")
    inside = tuple((each.document, each.path) for each in envelope)
    open_run = core.current.run
    creator = open_run.node if open_run is not None and isinstance(open_run.node, Node) else None
    node = core.register(
        NodeSpec(
            id=name,
            kind=node_kind,
            fn=fn,
            home=_home(core, outputs, inside),
            outputs=tuple(each.document for each in outputs),
            returns=output is not None,
            encode=None if output is None else encoder(name, output),
            envelope=inside,
            declared=tuple(each.document for each in reads),
            parent=parent.node if parent is not None else creator,
            transient=transient,
            debounce_ms=debounce_ms,
            throttle_ms=throttle_ms,
        )
    )
    return NodeHandle(core, node)


def _name(core: Core, fn: Callable[[], object]) -> str:
    """Return an id for a function registered without one: its module and name, and a number if that id is taken.

    An attempt that starts again gives out the same ids in the same order, so that it takes over the nodes that the
    stopped attempt registered.
    """
    name = f"{getattr(fn, '__module__', '?')}.{getattr(fn, '__qualname__', type(fn).__name__)}"
    for kept in core.scheduler.kept():
        stem, _, number = kept.id.rpartition(" ")
        if kept.id == name or (stem == name and number.isdecimal()):
            return kept.id
    if core.scheduler.find(name) is None:
        return name
    return f"{name} {core.next_number()}"


def _home(core: Core, outputs: tuple[Input[Any], ...], envelope: tuple[tuple[Any, Any], ...]) -> Replica:
    """Return the replica of the space that the node writes. A node that writes nothing belongs to no space."""
    if outputs:
        return outputs[0].document.home
    home: Replica = envelope[0][0].home if envelope else core.time.replica
    return home


def encoder(name: str, output: Input[Any]) -> Callable[[object, MaybeValue], MaybeValue]:
    """Return a function that checks a result by the type of the output and merges it with the stored value."""
    return ResultEncoder(name, output).encode


class ResultEncoder:
    """Turns the results of one node into values of its output."""

    __slots__ = ("_codec", "_exact", "_name", "_output")

    def __init__(self, name: str, output: Input[Any]) -> None:
        self._name = name  # of the node, for messages
        self._output = output
        self._codec: TypeCodec[Any] = output._codec
        self._exact = self._codec.exact

    def encode(self, result: object, before: MaybeValue) -> MaybeValue:
        if result.__class__ is self._exact:  # Its stored form has no parts that could be taken from the value before.
            try:
                return self._codec.enter(result, 0)
            except Mismatch:
                pass  # `merge` says what is wrong with it.
        if result is ABSENT:
            return ABSENT
        name = self._name
        if inspect.iscoroutine(result):
            result.close()
            raise AuthoringError(f"{name!r} returned a coroutine: a run never awaits. Make it a plain function.")
        try:
            return self._output.memo().merge(before, result)
        except InvalidValueError as error:
            raise InvalidValueError(f"{name}, result: {error}", path=error.path) from None
