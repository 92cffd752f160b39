"""The members of a class as they were declared, one class for each kind.

A declaration is a descriptor. On the class it gives a `Member`, a name for tests and tools; on a piece it gives the
handle that the piece's binding makes. Nothing can be assigned to it, so that a piece holds no hidden state. Each kind
checks its own options; `class_schema` checks those that need the types of the class. Declarations run nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn

from headwater.backoff import Backoff, check_backoff
from headwater.cells.handle_base import Member
from headwater.cells.runtime_port import check_duration
from headwater.data.text import shown
from headwater.errors import AuthoringError

if TYPE_CHECKING:
    from headwater.pieces.piece import Piece

__all__ = [
    "SCOPES",
    "CellMember",
    "ChildMember",
    "ComputedMember",
    "Declaration",
    "EachMember",
    "EffectMember",
    "FoldMember",
    "FunctionMember",
    "GivenMember",
    "HandlerMember",
    "MaterializerMember",
    "ReactionMember",
    "ResourceMember",
    "Scope",
    "TopicMember",
]


Scope = Literal["space", "user", "session"]
SCOPES: tuple[Scope, ...] = ("space", "user", "session")


class Declaration:
    """One member of a class, as it was declared. Knows its name once its class is made."""

    kind = "member"
    __slots__ = ("home", "name", "options", "scope", "stored", "was")

    def __init__(self, *, scope: Scope = "space", was: str | None = None) -> None:
        if scope not in SCOPES:
            raise AuthoringError(f"scope={shown(scope)}: write 'space', 'user' or 'session'")
        if was is not None and (type(was) is not str or not was.isidentifier()):
            raise AuthoringError(f"was={shown(was)} names no member: write the name it had before, like was='total'")
        self.scope = scope
        self.was = was
        self.name = ""  # as its class calls it
        self.stored = was or ""  # as it is stored: the first name it had, so that renaming moves nothing
        self.home: type[Any] | None = None  # the class that declares it

    def __set_name__(self, owner: type[Any], name: str) -> None:
        if not self.name:  # Its first name. `class_schema` reports a second one: an error here is hidden.
            self.name = name
            self.stored = self.was or name
            self.home = owner

    def __get__(self, piece: Piece | None, owner: type[Piece]) -> Any:
        if piece is None:
            return Member(owner, self)
        bound = piece.__bound__
        if bound is None:
            raise AuthoringError(
                f"{self!r} of a {type(piece).__name__} that is in no space yet: return it from @each or @child, or "
                f"pass it to space.open() or ctx.launch(), and use the piece that these return"
            )
        handle = bound.handles.get(self)
        return bound.handle(self) if handle is None else handle

    def __set__(self, piece: Piece, value: object) -> NoReturn:
        raise AuthoringError(f"{self!r} is a handle and cannot be assigned to: write .set(...) if it is a Cell")

    def __delete__(self, piece: Piece) -> NoReturn:
        raise AuthoringError(f"{self!r} is a handle and cannot be deleted: write .delete() if it is a Cell")

    def __repr__(self) -> str:
        where = "" if self.home is None else f"{self.home.__name__}."
        return f"{self.kind} {where}{self.name or getattr(getattr(self, 'fn', None), '__name__', '?')}"

    def __fingerprint__(self) -> tuple[object, ...]:
        """Return the parts that count for code that names the member: its place, and how it is read."""
        return (self.kind, self.stored, self.scope)

    def read_as(self) -> tuple[object, ...]:
        """The types that its value is read by. A class of pieces is one whose members the code may go on to."""
        return () if self.home is None else self.home.__schema__.read_as(self)

    def fault(self, problem: str, instead: str) -> AuthoringError:
        """The error for a declaration that cannot be."""
        where = "" if self.home is None else f"{self.home.__name__}."
        return AuthoringError(f"{where}{self.name or '?'}: {problem}. Write {instead}")


Function = Callable[..., Any]
DEFAULT_BACKOFF: Final = Backoff.exponential(base_ms=100, max_ms=30_000, jitter=0.5)
"""How long a reaction waits between its attempts, unless it says otherwise."""


Allow = Literal["reader", "writer", "owner"]
Exhausted = Literal["block", "park", "skip", "never"]


class CellMember(Declaration):
    """A value that is kept."""

    kind = "cell"
    __slots__ = ("default",)

    def __init__(self, *, default: Any, scope: Scope, was: str | None) -> None:
        super().__init__(scope=scope, was=was)
        self.default = default

    def __fingerprint__(self) -> tuple[object, ...]:
        return (*super().__fingerprint__(), self.default, *self.read_as())


class GivenMember(Declaration):
    """A handle that the maker of the piece passes in."""

    kind = "input"
    __slots__ = ()

    def __fingerprint__(self) -> tuple[object, ...]:
        return (*super().__fingerprint__(), *self.read_as())


class TopicMember(Declaration):
    """Where records for reactions go."""

    kind = "topic"
    __slots__ = ("key",)

    def __init__(self, *, key: Function | None, was: str | None) -> None:
        super().__init__(was=was)
        self.key = key


class FunctionMember(Declaration):
    """A member with a function of the author's."""

    is_async: ClassVar[bool | None] = False
    """Whether its function has to be async; None: it may."""
    __slots__ = ("fn",)

    def __init__(self, fn: Function, *, scope: Scope = "space", was: str | None = None) -> None:
        super().__init__(scope=scope, was=was)
        if not callable(fn) or not hasattr(fn, "__code__"):
            raise AuthoringError(f"@{self.kind} on {shown(fn)}: put it above a method of the class")
        self.fn = fn
        name = fn.__name__
        is_async = inspect.iscoroutinefunction(fn)
        if self.is_async is False and (is_async or inspect.isasyncgenfunction(fn)):
            raise AuthoringError(
                f"@{self.kind} {name} is async, and a run never awaits: make it a plain function, and await in a "
                "@resource or a @reaction"
            )
        if self.is_async is True and not is_async:
            raise AuthoringError(f"@{self.kind} {name} is not an async function: write async def {name}(...)")
        if inspect.isgeneratorfunction(fn):
            raise AuthoringError(f"@{self.kind} {name} yields: return all of it at once, as a tuple")

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters of its function besides the piece."""
        found = list(inspect.signature(self.fn).parameters.values())
        if not found or found[0].kind not in (found[0].POSITIONAL_ONLY, found[0].POSITIONAL_OR_KEYWORD):
            raise self.fault("its function does not take the piece", f"def {self.fn.__name__}(self, ...)")
        return found[1:]

    def takes(self, count: int, example: str) -> None:
        """Refuse a function that takes more or less than it will be given."""
        if len(self.parameters()) != count:
            raise self.fault(f"its function takes {len(self.parameters())} arguments besides self", example)


class DerivedMember(FunctionMember):
    """A member whose value others read."""

    __slots__ = ()

    def __fingerprint__(self) -> tuple[object, ...]:
        return (*super().__fingerprint__(), *self.read_as())


class Paced(DerivedMember):
    """A node that time may keep back."""

    __slots__ = ("debounce_ms", "throttle_ms", "transient")

    def __init__(
        self,
        fn: Function,
        *,
        scope: Scope,
        was: str | None,
        debounce_ms: float,
        throttle_ms: float,
        transient: tuple[type[Exception], ...],
    ) -> None:
        super().__init__(fn, scope=scope, was=was)
        self.debounce_ms = check_duration("debounce_ms", debounce_ms)
        self.throttle_ms = check_duration("throttle_ms", throttle_ms)
        self.transient = transient


class ComputedMember(Paced):
    """A value from values."""

    kind = "computed"
    __slots__ = ("writes",)

    def __init__(self, fn: Function, *, writes: tuple[Declaration, ...], **options: Any) -> None:
        super().__init__(fn, **options)
        self.writes = writes
        for each in writes:
            if not isinstance(each, (CellMember, GivenMember)):
                raise AuthoringError(f"@computed(writes=...) of {fn.__name__} names {each!r}: write cells only")


class MaterializerMember(Paced):
    """Writes anywhere inside its envelope, when nothing else has to run."""

    kind = "materializer"
    __slots__ = ("envelope",)

    def __init__(self, fn: Function, *, envelope: tuple[Declaration, ...], **options: Any) -> None:
        super().__init__(fn, **options)
        self.envelope = envelope
        if not envelope or not all(isinstance(each, (CellMember, GivenMember)) for each in envelope):
            raise AuthoringError(f"@materializer {fn.__name__}: write envelope=(cell, ...), the cells it writes inside")


class EffectMember(Paced):
    """Something shown here, in every runtime that has the piece open."""

    kind = "effect"
    __slots__ = ("auto_debounce", "every_start")

    def __init__(self, fn: Function, *, auto_debounce: bool, every_start: bool, **options: Any) -> None:
        super().__init__(fn, scope="session", was=None, **options)
        self.auto_debounce = auto_debounce
        self.every_start = every_start

    def __fingerprint__(self) -> tuple[object, ...]:
        return (self.kind, self.stored)  # It has no readers.


class HandlerMember(FunctionMember):
    """A change, once per event."""

    kind = "handler"
    __slots__ = ("allow", "catch_up", "coalesce", "every_ms", "reads", "retries")

    def __init__(
        self,
        fn: Function,
        *,
        retries: int | None,
        allow: Allow,
        every_ms: int | None,
        catch_up: bool,
        reads: tuple[Declaration, ...],
        coalesce: Literal["last"] | None,
        was: str | None,
    ) -> None:
        super().__init__(fn, scope="session", was=was)
        if retries is not None and (type(retries) is not int or retries < 0):
            raise AuthoringError(f"@handler {fn.__name__}: retries={shown(retries)}: write how many, 0 for none")
        if allow not in ("reader", "writer", "owner"):
            raise AuthoringError(f"@handler {fn.__name__}: allow={shown(allow)}: write 'reader', 'writer' or 'owner'")
        if coalesce not in (None, "last"):
            raise AuthoringError(f"@handler {fn.__name__}: coalesce={shown(coalesce)}: write 'last' or leave it out")
        if every_ms is not None and (type(every_ms) is not int or every_ms < 1):
            raise AuthoringError(f"@handler {fn.__name__}: every_ms={shown(every_ms)}: write how many milliseconds")
        if every_ms is not None and self.parameters():
            raise AuthoringError(f"@handler(every_ms=...) {fn.__name__} takes arguments, and a period has none to give")
        self.retries = retries
        self.allow = allow
        self.every_ms = every_ms
        self.catch_up = catch_up
        self.reads = reads
        self.coalesce = coalesce

    def takes_one(self) -> bool:
        """Return whether it can be called with one argument."""
        parameters = self.parameters()
        return bool(parameters) and all(each.default is not each.empty for each in parameters[1:])


class ReactionMember(FunctionMember):
    """Something done outside, at least once for each record of a topic."""

    kind = "reaction"
    is_async = None
    __slots__ = (
        "backoff",
        "batch",
        "budget_ms",
        "errors",
        "lane",
        "max_retries",
        "on",
        "on_exhausted",
        "otherwise",
        "priority",
        "since",
        "then",
    )

    def __init__(
        self,
        fn: Function,
        *,
        on: Declaration,
        then: Declaration | None,
        max_retries: int,
        backoff: Backoff | None,
        on_exhausted: Exhausted,
        since: Literal["now", "beginning"] = "now",
        lane: str = "",
        priority: int = 0,
        batch: int = 1,
        budget_ms: float | None = None,
        errors: Mapping[type[BaseException], Backoff | Literal["permanent"]] | None = None,
        otherwise: Declaration | None = None,
        was: str | None = None,
    ) -> None:
        super().__init__(fn, was=was)
        if not isinstance(on, TopicMember):
            raise AuthoringError(f"@reaction {fn.__name__}: on={shown(on)}: name a topic of this class")
        if then is not None and (not isinstance(then, HandlerMember) or not then.takes_one()):
            raise AuthoringError(
                f"@reaction {fn.__name__}: then={shown(then)}: name a handler of this class that takes the result, as "
                "in def paid(self, receipt: str) -> None"
            )
        if otherwise is not None and (not isinstance(otherwise, HandlerMember) or len(otherwise.parameters()) != 2):
            raise AuthoringError(
                f"@reaction {fn.__name__}: otherwise={shown(otherwise)}: name a handler of this class that takes the "
                "record and the reason, as in def failed(self, order: Order, reason: str) -> None"
            )
        if otherwise is not None and on_exhausted == "never":
            raise AuthoringError(
                f"@reaction {fn.__name__}: with on_exhausted='never' it does not give up: leave out one of that and "
                "otherwise"
            )
        if type(max_retries) is not int or max_retries < 0:
            raise AuthoringError(
                f"@reaction {fn.__name__}: max_retries={shown(max_retries)}: write how many, 0 or more"
            )
        if on_exhausted not in ("block", "park", "skip", "never"):
            raise AuthoringError(
                f"@reaction {fn.__name__}: on_exhausted={shown(on_exhausted)}: write 'block', 'park', 'skip' or 'never'"
            )
        self.on = on
        self.then = then
        self.otherwise = otherwise
        self.max_retries = max_retries
        self.backoff = (
            DEFAULT_BACKOFF if backoff is None else check_backoff(f"@reaction {fn.__name__}: backoff", backoff)
        )
        self.on_exhausted = on_exhausted
        if since not in ("now", "beginning"):
            raise AuthoringError(f"@reaction {fn.__name__}: since={shown(since)}: write 'now' or 'beginning'")
        if not isinstance(lane, str):
            raise AuthoringError(f"@reaction {fn.__name__}: lane={shown(lane)}: write the name of a lane")
        if type(priority) is not int or not 0 <= priority <= 100:
            raise AuthoringError(f"@reaction {fn.__name__}: priority={shown(priority)}: write 0 to 100")
        if type(batch) is not int or not 1 <= batch <= 1_000:
            raise AuthoringError(f"@reaction {fn.__name__}: batch={shown(batch)}: write how many records, 1 to 1000")
        self.since: Literal["now", "beginning"] = since
        self.lane = lane
        self.priority = priority
        self.batch = batch
        self.budget_ms = None if budget_ms is None else check_duration("budget_ms", budget_ms)
        if errors is not None and not isinstance(errors, Mapping):
            raise AuthoringError(
                f"@reaction {fn.__name__}: errors={shown(errors)}: write a Mapping from classes of errors to a "
                "Backoff or 'permanent'"
            )
        self.errors = dict(errors or {})
        for kind, rule in self.errors.items():
            is_kind = isinstance(kind, type) and issubclass(kind, BaseException)
            if not is_kind or not (isinstance(rule, Backoff) or rule == "permanent"):
                raise AuthoringError(
                    f"@reaction {fn.__name__}: errors={{{shown(kind)}: {shown(rule)}}}: write a class of errors, and a "
                    "Backoff or 'permanent'"
                )


class ResourceMember(DerivedMember):
    """A value from outside, while it is observed."""

    kind = "resource"
    is_async = True
    __slots__ = ("backoff", "input", "limit", "speculative", "timeout_ms")

    def __init__(
        self,
        fn: Function,
        *,
        input: Declaration,
        timeout_ms: float | None,
        limit: int,
        backoff: Backoff | None,
        speculative: bool,
        scope: Scope,
        was: str | None,
    ) -> None:
        super().__init__(fn, scope=scope, was=was)
        if not isinstance(input, Declaration) or isinstance(input, (TopicMember, HandlerMember, EffectMember)):
            raise AuthoringError(
                f"@resource {fn.__name__} takes one input: write @resource(cell), a member that is read"
            )
        if type(limit) is not int or limit < 1:
            raise AuthoringError(f"@resource {fn.__name__}: limit={shown(limit)}: write how many at once, 1 or more")
        self.input = input
        self.timeout_ms = None if timeout_ms is None else check_duration("timeout_ms", timeout_ms)
        self.limit = limit
        self.backoff = None if backoff is None else check_backoff(f"@resource {fn.__name__}: backoff", backoff)
        self.speculative = speculative


class EachMember(DerivedMember):
    """One child, or one value, per element."""

    kind = "each"
    __slots__ = ("forget", "key", "order", "source")

    def __init__(
        self,
        fn: Function,
        *,
        source: Declaration,
        key: Callable[[Any], Any] | None,
        order: Callable[[Any], Any] | None,
        forget: bool,
        was: str | None,
    ) -> None:
        super().__init__(fn, was=was)
        if not isinstance(source, Declaration) or isinstance(source, (TopicMember, HandlerMember, EffectMember)):
            raise AuthoringError(f"@each {fn.__name__} goes over a member that is read: write @each(cell)")
        if key is not None and order is not None:
            raise AuthoringError(
                f"@each {fn.__name__}: key= is for a tuple and order= for a Mapping: write one of them"
            )
        self.source = source
        self.key = key
        self.order = order
        self.forget = forget


class ChildMember(DerivedMember):
    """One child, of whatever class its method returns."""

    kind = "child"
    __slots__ = ("forget",)

    def __init__(self, fn: Function, *, forget: bool, was: str | None) -> None:
        super().__init__(fn, was=was)
        self.forget = forget


class FoldMember(Declaration):
    """A value over many elements, which costs the changed ones only."""

    kind = "fold"
    __slots__ = ("add", "by", "remove", "source", "start")

    def __init__(
        self, *, source: Declaration, start: Any, add: Function, remove: Function, by: Function | None, was: str | None
    ) -> None:
        super().__init__(was=was)
        if not isinstance(source, Declaration) or isinstance(source, (TopicMember, HandlerMember, EffectMember)):
            raise AuthoringError(
                "fold goes over a member that is read: write fold(cell, start=..., add=..., remove=...)"
            )
        for what, fn in (("add", add), ("remove", remove), *((("by", by),) if by is not None else ())):
            if not callable(fn):
                raise AuthoringError(f"fold({what}={shown(fn)}): write a function, like {what}=lambda n, x: n + x")
        self.source = source
        self.start = start
        self.add = add
        self.remove = remove
        self.by = by

    def __fingerprint__(self) -> tuple[object, ...]:
        return (*super().__fingerprint__(), *self.read_as())
