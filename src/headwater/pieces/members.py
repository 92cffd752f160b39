"""The functions of a class body: `cell`, `computed`, `handler` and the others.

Each returns a declaration; type checkers see the handle that a piece has there. Options are keyword arguments.
Decorators take members of the same class, never functions of `self`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isfunction, signature
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload

from headwater.backoff import Backoff
from headwater.cells.cell import Cell
from headwater.cells.handle import Input
from headwater.cells.runtime_port import Topic
from headwater.errors import AuthoringError
from headwater.pieces.declarations import (
    Allow,
    CellMember,
    ChildMember,
    ComputedMember,
    EachMember,
    EffectMember,
    Exhausted,
    FoldMember,
    Function,
    GivenMember,
    HandlerMember,
    MaterializerMember,
    ReactionMember,
    ResourceMember,
    Scope,
    TopicMember,
)
from headwater.pieces.handles import Child, Computed, Delivery, Each, Effect, Handler, Reaction, Resource, Takes

__all__ = [
    "cell",
    "child",
    "computed",
    "each",
    "effect",
    "fold",
    "given",
    "handler",
    "materializer",
    "reaction",
    "resource",
    "topic",
]

T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
C = TypeVar("C")
E = TypeVar("E")
G = TypeVar("G")
K = TypeVar("K")
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
V = TypeVar("V")
P = ParamSpec("P")

Cleanup = Callable[[], object] | None
DEFAULT_RETRIES = 10
"""With the default backoff, the retries of a reaction last for 40 s or more."""


def cell(*, default: T, scope: Scope = "space", was: str | None = None, init: Literal[False] = False) -> Cell[T]:
    """A value that is kept: one for all, one for each user, or one for each session."""
    return CellMember(default=default, scope=scope, was=was)  # type: ignore[return-value]


def given() -> Any:
    """A handle that the maker of the piece passes in."""
    return GivenMember()


def topic(  # pyright: ignore[reportInvalidTypeVarUse]
    *, key: Callable[[Any], str] | None = None, was: str | None = None, init: Literal[False] = False
) -> Topic[T]:
    """Where records for reactions go. `key` says whose order a record is part of; without it, the piece's."""
    return TopicMember(key=key, was=was)  # type: ignore[return-value]


def _decorate(fn: Function | None, make: Callable[[Function], Any]) -> Any:
    """Serve `@name` and `@name(...)` alike."""
    return make if fn is None else make(fn)


# ---- nodes ---------------------------------------------------------------------------------------------


@overload
def computed(fn: Callable[[Any], T], /) -> Computed[T]: ...
@overload
def computed(
    *,
    scope: Scope = "space",
    writes: tuple[Cell[Any], ...] = (),
    debounce_ms: float = 0,
    throttle_ms: float = 0,
    transient: tuple[type[Exception], ...] = (),
    was: str | None = None,
) -> Callable[[Callable[[Any], T]], Computed[T]]: ...
def computed(
    fn: Function | None = None,
    /,
    *,
    scope: Scope = "space",
    writes: tuple[Any, ...] = (),
    debounce_ms: float = 0,
    throttle_ms: float = 0,
    transient: tuple[type[Exception], ...] = (),
    was: str | None = None,
) -> Any:
    """A value from values, computed while it is observed."""
    return _decorate(
        fn,
        lambda fn: ComputedMember(
            fn,
            scope=scope,
            writes=writes,
            debounce_ms=debounce_ms,
            throttle_ms=throttle_ms,
            transient=transient,
            was=was,
        ),
    )


def materializer(
    *,
    envelope: tuple[Cell[Any], ...],
    scope: Scope = "space",
    debounce_ms: float = 0,
    throttle_ms: float = 0,
    transient: tuple[type[Exception], ...] = (),
    was: str | None = None,
) -> Callable[[Callable[[Any], T]], Computed[T]]:
    """Writes inside its envelope whatever it finds to write there, when nothing else has to run."""
    return lambda fn: MaterializerMember(  # type: ignore[return-value]
        fn,
        scope=scope,
        envelope=envelope,  # type: ignore[arg-type]
        debounce_ms=debounce_ms,
        throttle_ms=throttle_ms,
        transient=transient,
        was=was,
    )


@overload
def effect(fn: Callable[[Any], Cleanup], /) -> Effect: ...
@overload
def effect(
    *,
    debounce_ms: float = 0,
    throttle_ms: float = 0,
    auto_debounce: bool = True,
    transient: tuple[type[Exception], ...] = (),
    every_start: bool = False,
) -> Callable[[Callable[[Any], Cleanup]], Effect]: ...
def effect(
    fn: Function | None = None,
    /,
    *,
    debounce_ms: float = 0,
    throttle_ms: float = 0,
    auto_debounce: bool = True,
    transient: tuple[type[Exception], ...] = (),
    every_start: bool = False,
) -> Any:
    """Something shown here, in every runtime that has the piece open, again and again."""
    return _decorate(
        fn,
        lambda fn: EffectMember(
            fn,
            debounce_ms=debounce_ms,
            throttle_ms=throttle_ms,
            auto_debounce=auto_debounce,
            transient=transient,
            every_start=every_start,
        ),
    )


# ---- events --------------------------------------------------------------------------------------------


@overload
def handler(fn: Callable[Concatenate[Any, P], R], /) -> Handler[P, R]: ...
@overload
def handler(
    *,
    retries: int | None = None,
    allow: Allow = "writer",
    reads: tuple[Input[Any], ...] = (),
    coalesce: Literal["last"] | None = None,
    was: str | None = None,
) -> Callable[[Callable[Concatenate[Any, P], R]], Handler[P, R]]: ...
@overload
def handler(*, every_ms: int, catch_up: bool = True) -> Callable[[Callable[[Any], None]], Handler[[], None]]: ...
def handler(
    fn: Function | None = None,
    /,
    *,
    retries: int | None = None,
    allow: Allow = "writer",
    reads: tuple[Any, ...] = (),
    coalesce: Literal["last"] | None = None,
    every_ms: int | None = None,
    catch_up: bool = True,
    was: str | None = None,
) -> Any:
    """A change, once per event."""
    return _decorate(
        fn,
        lambda fn: HandlerMember(
            fn,
            retries=retries,
            allow=allow,
            reads=reads,
            coalesce=coalesce,
            every_ms=every_ms,
            catch_up=catch_up,
            was=was,
        ),
    )


class _Reacts(Protocol[A_co, R_contra]):
    """Forms without and with a `Delivery`; a plain function is called in a thread."""

    @overload
    def __call__(self, fn: Callable[[Any, A_co], Awaitable[R_contra]], /) -> Reaction: ...
    @overload
    def __call__(self, fn: Callable[[Any, A_co, Delivery], Awaitable[R_contra]], /) -> Reaction: ...
    @overload
    def __call__(self, fn: Callable[[Any, A_co], R_contra], /) -> Reaction: ...
    @overload
    def __call__(self, fn: Callable[[Any, A_co, Delivery], R_contra], /) -> Reaction: ...


class ReactionOptions(TypedDict, total=False):
    """How a reaction is delivered to."""

    max_retries: int  # tries after the first one
    backoff: Backoff | None  # how long it waits before each; an error's `retry_after` may make that longer
    on_exhausted: Exhausted  # then: block the target, park or skip the record, or never give up
    otherwise: Handler[[Any, str], Any]  # instead: the handler that gets the record and the reason
    errors: Mapping[type[BaseException], Backoff | Literal["permanent"]]  # for kinds of errors, before the rest
    budget_ms: float  # how long after its record was emitted there is a last try
    since: Literal["now", "beginning"]  # the records that a new reaction gets
    lane: str  # reactions of one lane share the slots of a worker
    priority: int  # a higher one counts as waiting a second longer for each step
    was: str  # the name it had before: its undelivered records stay its own


@overload
def reaction(*, on: Topic[T], batch: int, **options: Unpack[ReactionOptions]) -> _Reacts[tuple[T, ...], None]: ...
@overload
def reaction(*, on: Topic[T], **options: Unpack[ReactionOptions]) -> _Reacts[T, None]: ...
@overload
def reaction(
    *, on: Topic[T], then: Takes[R], batch: int, **options: Unpack[ReactionOptions]
) -> _Reacts[tuple[T, ...], R]: ...
@overload
def reaction(*, on: Topic[T], then: Takes[R], **options: Unpack[ReactionOptions]) -> _Reacts[T, R]: ...
def reaction(
    *,
    on: Any,
    then: Any = None,
    max_retries: int = DEFAULT_RETRIES,
    backoff: Backoff | None = None,
    on_exhausted: Exhausted = "block",
    **options: Any,
) -> Any:
    """An action outside, at least once for each record of a topic, with or without observers.

    Its result goes to the handler named by `then`, in the transaction that acknowledges the record. With `batch` it
    takes a tuple of up to so many records, all or nothing.
    """
    known = [name for name in signature(ReactionMember).parameters if name != "fn"]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise AuthoringError(f"@reaction({unknown[0]}=...) has no such option: write one of {', '.join(known)}")
    return lambda fn: ReactionMember(
        fn,
        on=on,
        then=then,
        max_retries=max_retries,
        backoff=backoff,
        on_exhausted=on_exhausted,
        **options,
    )


def resource(
    input: Input[A],
    /,
    *,
    timeout_ms: float | None = None,
    limit: int = 8,
    backoff: Backoff | None = None,
    speculative: bool = False,
    scope: Scope = "space",
    was: str | None = None,
) -> Callable[[Callable[[Any, A], Awaitable[T]]], Resource[T]]:
    """A value from outside, while it is observed: awaited outside any run, for one input."""
    given: object = input
    if isfunction(given):
        raise AuthoringError(
            f"@resource {given.__name__} takes one input: write @resource(cell), a member that is read"
        )
    return lambda fn: ResourceMember(  # type: ignore[return-value]
        fn,
        input=input,  # type: ignore[arg-type]
        timeout_ms=timeout_ms,
        limit=limit,
        backoff=backoff,
        speculative=speculative,
        scope=scope,
        was=was,
    )


# ---- graphs that change shape --------------------------------------------------------------------------

if TYPE_CHECKING:

    @overload
    def each(
        source: Cell[tuple[E, ...]], /, *, key: Callable[[E], K], forget: bool = ..., was: str | None = ...
    ) -> Callable[[Callable[[Any, Cell[E]], C | None]], Each[K, C]]: ...
    @overload
    def each(
        source: Cell[Mapping[K, V]], /, *, order: Callable[[V], Any] = ..., forget: bool = ..., was: str | None = ...
    ) -> Callable[[Callable[[Any, Cell[V]], C | None]], Each[K, C]]: ...
    @overload
    def each(
        source: Input[tuple[E, ...]], /, *, key: Callable[[E], K], forget: bool = ..., was: str | None = ...
    ) -> Callable[[Callable[[Any, Input[E]], C | None]], Each[K, C]]: ...
    @overload
    def each(
        source: Input[Mapping[K, V]], /, *, order: Callable[[V], Any] = ..., forget: bool = ..., was: str | None = ...
    ) -> Callable[[Callable[[Any, Input[V]], C | None]], Each[K, C]]: ...


def each(
    source: Any,
    /,
    *,
    key: Callable[[Any], Any] | None = None,
    order: Callable[[Any], Any] | None = None,
    forget: bool = False,
    was: str | None = None,
) -> Any:
    """One child per element of a tuple, or per entry of a Mapping."""
    return lambda fn: EachMember(fn, source=source, key=key, order=order, forget=forget, was=was)


@overload
def child(fn: Callable[[Any], C], /) -> Child[C]: ...
@overload
def child(*, forget: bool = ..., was: str | None = ...) -> Callable[[Callable[[Any], C]], Child[C]]: ...
def child(fn: Function | None = None, /, *, forget: bool = False, was: str | None = None) -> Any:
    """One child, of whatever class its method returns."""
    return _decorate(fn, lambda fn: ChildMember(fn, forget=forget, was=was))


@overload
def fold(
    source: Input[Mapping[Any, E]] | Input[tuple[E, ...]],
    /,
    *,
    start: A,
    add: Callable[[A, E], A],
    remove: Callable[[A, E], A],
    was: str | None = ...,
) -> Computed[A]: ...
@overload
def fold(
    source: Input[Mapping[Any, E]] | Input[tuple[E, ...]],
    /,
    *,
    by: Callable[[E], G],
    start: A,
    add: Callable[[A, E], A],
    remove: Callable[[A, E], A],
    was: str | None = ...,
) -> Computed[Mapping[G, A]]: ...
def fold(source: Any, /, *, start: Any, add: Any, remove: Any, by: Any = None, was: str | None = None) -> Any:
    """A value over many elements, which costs the changed ones only; with `by`, one for each group."""
    return FoldMember(source=source, start=start, add=add, remove=remove, by=by, was=was)
