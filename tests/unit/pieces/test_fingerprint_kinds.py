"""Fingerprints: every kind of thing that a function can name."""

from __future__ import annotations

import dis
import logging
import statistics
import textwrap
import types
from types import CodeType

import pytest

from headwater.backoff import Backoff
from headwater.pieces.fingerprints.fingerprint import Fingerprinter, fingerprint_of
from headwater.pieces.fingerprints.functions import take_apart
from tests.unit.pieces.fingerprint_kit import digest, program

SETUP = """
import abc, collections, dataclasses, datetime, decimal, enum, fractions, functools, itertools, logging, math, operator
import pathlib, re, types, typing, uuid, zoneinfo
import msgspec, pydantic
from headwater.backoff import Backoff
from headwater.cells.model import Json, Model, field
from headwater.data.value import ABSENT
def plain(n): return n
def changed(n): return n + 1
"""


def of_value(value: str) -> str:
    return digest(f"{SETUP}\nVALUE = {value}\ndef total(): return VALUE\n")


VALUES = [
    "None", "0", "1", "1.0", "-0.0", "0.0", "True", "False", "''", "'1'", "b'1'", "bytearray(b'1')", "1j", "...",
    "()", "(1,)", "(1.0,)", "(True,)", "[1]", "{1}", "frozenset({1})", "frozenset({1, 2})", "{1: 2}", "{1: 2.0}",
    "{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", "types.MappingProxyType({1: 2})", "10**5000", "10**5000 + 1",
    "'x' * 1_000_000", "'x' * 1_000_001", "'\\ud800'", "range(3)", "range(4)", "slice(1, 2)",
    "decimal.Decimal('1')", "decimal.Decimal('1.0')", "fractions.Fraction(1, 3)", "uuid.UUID(int=1)",
    "datetime.date(2026, 1, 1)", "datetime.datetime(2026, 1, 1)", "datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)",
    "datetime.timedelta(1)", "zoneinfo.ZoneInfo('UTC')", "pathlib.PurePosixPath('/a')", "re.compile('a')",
    "re.compile('a', re.I)", "collections.deque([1])", "collections.Counter('aab')", "collections.OrderedDict(a=1)",
    "collections.defaultdict(int)", "collections.defaultdict(list)", "types.SimpleNamespace(a=1)", "object()",
    "operator.itemgetter(1)", "operator.itemgetter(2)", "Backoff.fixed(base_ms=1)", "Backoff.fixed(base_ms=2)",
    "len", "str.upper", "str.lower", "'a'.join", "'b'.join", "math.floor", "math.ceil", "[].append", "print",
    "plain", "changed", "lambda m: m", "lambda n: n + 2", "lambda n, m=1: n", "lambda n, m=2: n",
    "functools.partial(plain)", "functools.partial(changed)", "functools.partial(plain, 1)",
    "functools.partial(plain, n=1)", "functools.lru_cache(plain)", "functools.lru_cache(8)(plain)",
    "functools.lru_cache(8)(changed)", "functools.wraps(plain)(lambda *a: plain(*a))",
    "functools.wraps(plain)(lambda *a: changed(*a))", "functools.singledispatch(plain)",
    "functools.singledispatch(changed)", "staticmethod(plain)", "classmethod(plain)", "property(plain)",
    "functools.cached_property(plain)", "functools.cached_property(changed)", "functools.partialmethod(plain, 1)",
    "int", "str", "tuple[int, ...]", "tuple[str, ...]", "int | None", "str | None", "typing.Optional[bytes]",
    "typing.Annotated[int, 1]", "typing.Annotated[int, 2]", "typing.Literal[1]", "typing.Literal[True]",
    "typing.NewType('A', int)", "typing.NewType('A', str)", "Json", "Model", "ABSENT", "msgspec.Struct",
    "typing.Callable[[int], str]", "typing.Callable[..., str]", "typing.ClassVar[int]", "typing.Final[int]",
    "typing.Any", "typing.Self", "typing.Never", "typing.TypeVar('T')", "typing.ParamSpec('P')",
    "typing.ParamSpec('P').args",
    "list['A']", "typing.List['A']", "typing.Mapping[str, int]", "typing.TypeGuard[int]", "typing.Union[int, str]",
    "typing.Concatenate[int, typing.ParamSpec('P')]", "typing.Type[int]", "type[int]", "typing.Unpack[tuple[int]]",
    "re", "math", "pydantic.BaseModel", "ValueError('a')", "ValueError('b')", "enum.Enum('E', 'A B')",
    "enum.Enum('E', 'A B').B", "enum.Enum('E', 'A C')", "collections.namedtuple('P', 'x y')",
    "collections.namedtuple('P', 'x z')", "collections.namedtuple('P', 'x y')(1, 2)",
    "collections.namedtuple('P', 'x y')(1, 3)", "{plain, changed}", "{plain}", "{'k': [plain, {'d': changed}]}",
]  # fmt: skip


def test_each_of_many_values_has_a_fingerprint_of_its_own() -> None:
    made = {value: of_value(value) for value in VALUES}
    seen: dict[str, str] = {}
    for value, found in made.items():
        assert found not in seen, (value, seen[found])
        seen[found] = value
    assert made == {value: of_value(value) for value in VALUES}


CLASSES = {
    "a method": ("class A:\n    def m(self): return 1", "class A:\n    def m(self): return 2"),
    "a base": ("class B: x = 1\nclass A(B): pass", "class B: x = 2\nclass A(B): pass"),
    "a constant": ("class A: x = 1", "class A: x = True"),
    "a nested class": ("class A:\n  class B: x = 1", "class A:\n  class B: x = 2"),
    "a lambda in the body": ("class A:\n    f = lambda self: 1", "class A:\n    f = lambda self: 2"),
    "a class method": (
        "class A:\n  @classmethod\n  def f(c): return 1",
        "class A:\n  @classmethod\n  def f(c): return 2",
    ),
    "a static method": (
        "class A:\n  @staticmethod\n  def f(): return 1",
        "class A:\n  @staticmethod\n  def f(): return 2",
    ),
    "a property": ("class A:\n  @property\n  def f(s): return 1", "class A:\n  @property\n  def f(s): return 2"),
    "a slot": ("class A: __slots__ = ('x',)", "class A: __slots__ = ('y',)"),
    "an enum's method": (
        "class A(enum.Enum):\n    X = 1\n    def f(self): return 1",
        "class A(enum.Enum):\n    X = 1\n    def f(self): return 2",
    ),
    "what an enum does with unknown values": (
        "class A(enum.Enum):\n    X = 1\n    @classmethod\n    def _missing_(cls, v): return cls.X",
        "class A(enum.Enum):\n    X = 1\n    @classmethod\n    def _missing_(cls, v): return None",
    ),
    "the order of an enum": ("class A(enum.Enum):\n    X = 1\n    Y = 2", "class A(enum.Enum):\n    Y = 2\n    X = 1"),
    "an abstract method": (
        "class A(abc.ABC):\n  @abc.abstractmethod\n  def f(self): return 1",
        "class A(abc.ABC):\n  @abc.abstractmethod\n  def f(self): return 2",
    ),
    "a field of a dataclass": (
        "@dataclasses.dataclass\nclass A:\n    x: int = 1",
        "@dataclasses.dataclass\nclass A:\n    x: int = 2",
    ),
    "a factory of a dataclass": (
        "@dataclasses.dataclass\nclass A:\n    x: int = dataclasses.field(default_factory=lambda: 1)",
        "@dataclasses.dataclass\nclass A:\n    x: int = dataclasses.field(default_factory=lambda: 2)",
    ),
    "an option of a dataclass": (
        "@dataclasses.dataclass(order=True)\nclass A:\n    x: int = 1",
        "@dataclasses.dataclass\nclass A:\n    x: int = 1",
    ),
    "the type of a field": ("class A(Model):\n    x: int", "class A(Model):\n    x: str"),
    "the order of fields": ("class A(Model):\n  x: int\n  y: int", "class A(Model):\n  y: int\n  x: int"),
    "a stored name": ("class A(Model):\n  x: int = field(was='a')", "class A(Model):\n  x: int = field(was='b')"),
    "an option of a Struct": (
        "class A(msgspec.Struct, frozen=True): x: int",
        "class A(msgspec.Struct, frozen=True, omit_defaults=True): x: int",
    ),
    "a factory of a Struct": (
        "class A(msgspec.Struct):\n    x: list = msgspec.field(default_factory=lambda: [1])",
        "class A(msgspec.Struct):\n    x: list = msgspec.field(default_factory=lambda: [2])",
    ),
    "a nested Model": (
        "class B(Model):\n    x: int\nclass A(Model):\n    b: 'tuple[B, ...]'",
        "class B(Model):\n    x: str\nclass A(Model):\n    b: 'tuple[B, ...]'",
    ),
    "a field of a NamedTuple": (
        "class A(typing.NamedTuple):\n  x: int = 1",
        "class A(typing.NamedTuple):\n  x: int = 2",
    ),
    "a TypedDict": ("class A(typing.TypedDict):\n  x: int", "class A(typing.TypedDict):\n  x: str"),
    "a pydantic field": ("class A(pydantic.BaseModel):\n  x: int = 1", "class A(pydantic.BaseModel):\n  x: int = 2"),
    "a pydantic constraint": (
        "class A(pydantic.BaseModel):\n  x: int = pydantic.Field(gt=1)",
        "class A(pydantic.BaseModel):\n  x: int = pydantic.Field(gt=2)",
    ),
    "a pydantic validator": (
        "class A(pydantic.BaseModel):\n  x: int\n  @pydantic.field_validator('x')\n  def f(cls, v): return 1",
        "class A(pydantic.BaseModel):\n  x: int\n  @pydantic.field_validator('x')\n  def f(cls, v): return 2",
    ),
    "a metaclass": (
        "class M(type):\n    def f(cls): return 1\nclass A(metaclass=M): pass",
        "class M(type):\n    def f(cls): return 2\nclass A(metaclass=M): pass",
    ),
    "a generic class": (
        "T = typing.TypeVar('T')\nclass A(typing.Generic[T]):\n    def f(self): return 1",
        "T = typing.TypeVar('T')\nclass A(typing.Generic[T]):\n    def f(self): return 2",
    ),
    "a cached property": (
        "class A:\n  @functools.cached_property\n  def f(s): return 1",
        "class A:\n  @functools.cached_property\n  def f(s): return 2",
    ),
    "a dispatched method": (
        "class A:\n  @functools.singledispatchmethod\n  def f(s, x): return 1",
        "class A:\n  @functools.singledispatchmethod\n  def f(s, x): return 2",
    ),
    "a made dataclass": (
        "A = dataclasses.make_dataclass('A', [('x', int, 1)])",
        "A = dataclasses.make_dataclass('A', [('x', int, 2)])",
    ),
    "a made Struct": (
        "A = msgspec.defstruct('A', [('x', int, 1)], module='msgspec')",
        "A = msgspec.defstruct('A', [('x', int, 2)], module='msgspec')",
    ),
    "a made class": ("A = type('A', (), {'x': 1})", "A = type('A', (), {'x': 2})"),
    "a class of no module": (
        "made = {}\nexec('class A: x = 1', made)\nA = made['A']",
        "made = {}\nexec('class A: x = 2', made)\nA = made['A']",
    ),
    "an async method": ("class A:\n  async def f(s): return 1", "class A:\n  async def f(s): return 2"),
}


@pytest.mark.parametrize("what", CLASSES)
@pytest.mark.parametrize("use", ["A", "A.__name__", "tuple[A, ...]", "lambda: A"])
def test_a_class_that_is_named_counts(what: str, use: str) -> None:
    one, two = (digest(f"{SETUP}\n{text}\ndef total(): return {use}\n") for text in CLASSES[what])
    assert one != two
    assert one == digest(f"{SETUP}\n# moved\n{CLASSES[what][0]}\ndef total(): return {use}\n")


def test_a_self_referring_model_has_a_fingerprint() -> None:
    source = (
        "class Tree(Model):\n    kids: 'tuple[Tree, ...]' = ()\n    n: {kind} = 1\ndef total(t: Tree): return t.n\n"
    )
    assert digest(SETUP + source.format(kind="int")) != digest(SETUP + source.format(kind="float"))


OBJECTS = """
class Rate:
    def __init__(self, n):
        self.n = n
    def __call__(self, x):
        return x * self.n + {offset}
    def times(self, x):
        return x * self.n
rate = Rate({n})
def total(): return {use}
"""


@pytest.mark.parametrize("use", ["rate(1)", "rate.n", "METHOD(1)", "[r(1) for r in ALL]", "MINE['a']"])
def test_instances_count_with_their_class_and_state(use: str) -> None:
    more = "METHOD = rate.times\nALL = (rate, rate)\nMINE = {'a': rate}\n"
    made = [digest(OBJECTS.format(n=n, offset=o, use=use) + more) for n, o in ((1, 1), (2, 1), (1, 2), (1, 1))]
    assert len(set(made)) == 3
    assert made[0] == made[-1]


def test_objects_that_refer_to_each_other_have_a_fingerprint() -> None:
    source = "class A: pass\na, b = A(), A()\na.other, b.other = b, a\na.n = {n}\ndef total(): return a\n"
    assert digest(source.format(n=1)) == digest(source.format(n=1))
    assert digest(source.format(n=1)) != digest(source.format(n=2))


def test_a_decorator_of_the_application_counts_with_what_it_wraps() -> None:
    source = """
import functools
def twice(fn):
    @functools.wraps(fn)
    def wrapped(*args):
        return fn(*args) * {times}
    return wrapped
{decorated}
def total(n): return n + {plus}
"""
    forms = [{"times": 2, "decorated": "@twice", "plus": 1}, {"times": 3, "decorated": "@twice", "plus": 1}]
    forms += [{"times": 2, "decorated": "@twice", "plus": 2}, {"times": 2, "decorated": "", "plus": 1}]
    assert len({digest(source.format(**form)) for form in forms}) == 4


def test_implementations_of_a_dispatched_function_count() -> None:
    source = """
import functools
@functools.singledispatch
def total(n): return 1
@total.register
def _(n: int): return {result}
"""
    assert digest(source.format(result=1)) != digest(source.format(result=2))


def test_what_a_closure_holds_counts() -> None:
    source = "def make(n):\n    return lambda x: x * n\ntotal = make({n})\n"
    assert digest(source.format(n=1)) != digest(source.format(n=2))


def test_a_function_of_no_module_counts_with_its_code() -> None:
    source = "made = {{}}\nexec('def f(): return {n}', made)\nmade2 = {{'__name__': 'json'}}\n"
    source += "exec('def f(): return {m}', made2)\nf, g = made['f'], made2['f']\ndef total(): return f(), g()\n"
    assert len({digest(source.format(n=n, m=m)) for n, m in ((1, 1), (1, 2), (2, 1))}) == 3


def test_a_class_reached_by_the_type_of_a_cell_counts_with_its_methods() -> None:
    source = "class A:\n    def f(self): return {n}\n"
    made = []
    for n in (1, 2):
        with program(shop=source.format(n=n)) as modules:
            made.append(Fingerprinter().of(len, types=(types.GenericAlias(tuple, (modules["shop"].A, ...)),)).digest)
    assert made[0] != made[1]


def test_types_and_extra_values_count() -> None:
    def fn() -> None: ...

    made = Fingerprinter()
    options = [{}, {"types": (int,)}, {"types": (tuple[int, ...],)}, {"extra": (1,)}, {"extra": (1.0,)}]
    assert len({made.of(fn, **each).digest for each in options}) == 5  # type: ignore[arg-type]
    assert made.of(fn, types=(int,)) == fingerprint_of(fn, types=(int,))


def test_an_object_may_say_what_stands_for_it() -> None:
    source = """
import threading
class Client:
    def __init__(self): self.lock = threading.Lock()
    def __fingerprint__(self): return ({version},)
client = Client()
def total(): return client.ask()
"""
    assert digest(source.format(version=1)) != digest(source.format(version=2))


def test_other_pieces_count_by_name_and_by_what_is_named_of_them() -> None:
    source = """
class Outline: name = "{name}"
class Row:
    __schema__ = Outline
    def label(self): return {label}
    @staticmethod
    def width(): return {width}
class Cart:
    def total(self): return Row(), Row.width()
"""
    made = [
        digest(source.format(name=name, label=label, width=width), "Cart.total")
        for name, label, width in (("a", 1, 1), ("a", 2, 1), ("b", 1, 1), ("a", 1, 2))
    ]
    assert made[0] == made[1]
    assert len(set(made)) == 3


def test_our_own_objects_count_by_the_rules_and_records_of_ours_by_value() -> None:
    assert fingerprint_of(lambda: Backoff).digest is not None
    log = logging.getLogger("anything")
    assert fingerprint_of(lambda: log.info("said")).digest is not None


def test_a_function_that_has_run_often_is_the_same_function() -> None:
    source = "import math\nclass A: x = 1\ndef total(n=1):\n    a = A()\n    return math.floor(n) + a.x + len([n, n])\n"
    before = digest(source)
    with program(shop=source) as modules:
        for _ in range(10_000):
            modules["shop"].total()
        assert Fingerprinter().of(modules["shop"].total).digest == before


def every_code() -> list[CodeType]:
    waiting = [value.__code__ for module in (statistics, textwrap, dis, logging) for value in vars(module).values()
               if hasattr(value, "__code__")]  # fmt: skip
    found = []
    while waiting:
        code = waiting.pop()
        found.append(code)
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


def test_names_are_read_from_code_as_the_disassembler_reads_them() -> None:
    for code in every_code():
        parts = take_apart(code)
        inner = [code]
        names = set()
        for each in inner:
            names |= {i.argval for i in dis.get_instructions(each) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
            inner += [constant for constant in each.co_consts if isinstance(constant, CodeType)]
        assert {chain[0] for chain in parts.chains} == names - {"__name__"} | (
            {"__name__"} & {c[0] for c in parts.chains}
        )
        assert {name for chain in parts.chains for name in chain} <= parts.names


USED = """
from headwater.cells.codec import codec_for
@dataclasses.dataclass(frozen=True)
class Data:
    x: int = 1
    @functools.cached_property
    def y(self): return 2
class Typed(typing.TypedDict):
    x: int
class Named(typing.NamedTuple):
    x: int = 1
class Record(Model):
    x: int = 1
class Checked(pydantic.BaseModel, frozen=True):
    x: int = 1
    later: 'tuple[Checked, ...]' = ()
@typing.runtime_checkable
class Sized(typing.Protocol):
    def size(self) -> int: ...
class Base(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
class Kind(enum.Flag):
    A = 1
    B = 2
@functools.singledispatch
def dispatched(x): return x
@dispatched.register
def _(x: int): return 1
@functools.lru_cache
def cached(x): return x
@contextlib.contextmanager
def managed(): yield 1
def total() -> object:
    return Data, Typed, Named, Record, Checked, Sized, Base, Kind.A, dispatched, cached, managed
def use():
    for each in (Data, Record, Checked):
        codec_for(each)
    for each in (Data, Typed, Named, Record):
        msgspec.json.decode(b'{"x": 1}' if each is not Named else b'[1]', type=each)
    Checked.model_validate({"x": 1}), Checked.model_json_schema(), Checked().model_dump()
    isinstance(1, Sized), isinstance(1, Base), Kind(3), Kind.A | Kind.B
    dispatched(1), dispatched("a"), cached(1), hash(Data()), typing.get_type_hints(Record)
    with managed(): pass
"""


def test_using_a_class_does_not_change_it() -> None:
    source = SETUP + "\nimport contextlib\n" + USED
    before = digest(source)
    with program(shop=source) as modules:
        modules["shop"].use()
        assert Fingerprinter().of(modules["shop"].total).digest == before
