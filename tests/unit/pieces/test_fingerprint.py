"""Fingerprints: what is a change of a program, and what is not."""

from __future__ import annotations

import pytest

from tests.unit.pieces.fingerprint_kit import digest

SHOP = '''
from __future__ import annotations
from dataclasses import dataclass
from enum import Enum
from headwater.cells.model import Model, field
import helpers
from helpers import discount, LIMIT

class Line(Model):
    sku: str
    cents: int
    qty: int = 1
    def price(self) -> int:
        return self.cents * self.qty

class Colour(Enum):
    RED = 1
    GREEN = 2

@dataclass(frozen=True)
class Point:
    x: int = 0

RATES = {"a": 1, "b": 2}

def total(lines: tuple[Line, ...], factor: int = 2, *, plus: int = 0) -> int:
    """Sums up."""
    started = Point(), Colour.RED
    found = [discount(line.price()) for line in lines if line.cents < LIMIT]
    return sum(found, plus) * factor + helpers.tax(RATES["a"]) + len("tea")

def unrelated() -> int:
    return 1
'''
HELPERS = """
LIMIT = 100
BASE = 3

def tax(n):
    return n + _inner(n)

def _inner(n):
    return n * BASE

def discount(n, share=(1, 2)):
    return n - share[0]

def unused():
    return 1
"""


@pytest.fixture(scope="module")
def original() -> str:
    return digest(SHOP, helpers=HELPERS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("class Line", "\n\n# a comment\n\nclass Line"),
        ("    found =", "    # a comment\n\n    found ="),
        ('"""Sums up."""', '"""Sums up the lines, at last."""'),
        ('    """Sums up."""\n', ""),
        ("    return 1\n", "    return 2\n"),
        ("RATES =", "OTHER = object()\nRATES ="),
        ("def total", "def between():\n    pass\n\ndef total"),
    ],
)
def test_what_the_program_does_not_do_is_no_change(original: str, old: str, new: str) -> None:
    assert old in SHOP
    assert digest(SHOP.replace(old, new), helpers=HELPERS) == original


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("factor: int = 2", "factor: int = 3"),
        ("factor: int = 2", "factor: int = True"),
        ("plus: int = 0", "plus: int = 1"),
        ("plus: int = 0", "plus: int = 0.0"),
        ('"tea"', '"tee"'),
        ("line.cents < LIMIT", "line.cents <= LIMIT"),
        ("line.cents < LIMIT", "line.qty < LIMIT"),
        ("qty: int = 1", "qty: int = 2"),
        ("qty: int = 1", "qty: int = 1\n    note: str = ''"),
        ("qty: int = 1", "qty: int = field(default=1, was='number')"),
        ("qty: int = 1", "qty: float = 1"),
        ("class Line(Model):", "class Line(Model, tag='position'):"),
        ("self.cents * self.qty", "self.cents * self.qty + 1"),
        ("GREEN = 2", "GREEN = 3"),
        ("GREEN = 2", "GREEN = 2\n    BLUE = 3"),
        ("x: int = 0", "x: int = 1"),
        ("x: int = 0", "x: int = 0\n    y: int = 0"),
        ('"b": 2', '"b": 3'),
        ('"b": 2', '"b": 2.0'),
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
        ("lines: tuple[Line, ...]", "lines: tuple[int, ...]"),
        ("started", "began"),
        ("def total", "import functools\n@functools.lru_cache\ndef total"),
        ("def total", "import contextlib\n@contextlib.contextmanager\ndef total"),
        ("from helpers import discount, LIMIT", "from helpers import tax as discount, LIMIT"),
    ],
)
def test_what_the_program_does_is_a_change(original: str, old: str, new: str) -> None:
    assert old in SHOP
    assert digest(SHOP.replace(old, new), helpers=HELPERS) != original


@pytest.mark.parametrize(
    ("old", "new", "is_change"),
    [
        ("n + _inner(n)", "n - _inner(n)", True),
        ("n * BASE", "n * BASE + 1", True),
        ("BASE = 3", "BASE = 4", True),
        ("LIMIT = 100", "LIMIT = 101", True),
        ("share=(1, 2)", "share=(1, 3)", True),
        ("share=(1, 2)", "share=(1, True + 1)", False),
        ("return 1", "return 2", False),
        ("def tax", "# moved\n\ndef tax", False),
        ("LIMIT = 100\nBASE = 3", "BASE = 3\nLIMIT = 100", False),
    ],
)
def test_a_helper_counts_as_far_as_it_is_used(original: str, old: str, new: str, is_change: bool) -> None:
    assert old in HELPERS
    assert (digest(SHOP, helpers=HELPERS.replace(old, new)) != original) is is_change


PIECE = """
import helpers
class Base:
    def rate(self):
        return 2
    def kept(self):
        return 5

class Cart(Base):
    LIMIT = 10
    factor = lambda n: n * 3
    def total(self):
        return self.plain(1) + self.tax + self.LIMIT
    def plain(self, n):
        return helpers.through(self) + Cart.factor(n)
    @property
    def tax(self):
        return 1
    @staticmethod
    def other():
        return 1
    def rate(self):
        return super().rate() + 1
"""
THROUGH = "def through(cart):\n    return cart.rate()\n"


@pytest.mark.parametrize(
    ("old", "new", "is_change"),
    [
        ("helpers.through(self)", "helpers.through(self) + 1", True),
        ("LIMIT = 10", "LIMIT = 11", True),
        ("n * 3", "n * 4", True),
        ("def tax(self):\n        return 1", "def tax(self):\n        return 2", True),
        ("        return 2\n", "        return 3\n", True),
        ("super().rate() + 1", "super().rate() + 2", True),
        ("def other():\n        return 1", "def other():\n        return 2", False),
        ("return 5", "return 6", False),
    ],
)
def test_plain_methods_count_where_some_code_of_the_closure_names_them(old: str, new: str, is_change: bool) -> None:
    assert old in PIECE
    before = digest(PIECE, "Cart.total", helpers=THROUGH)
    assert (digest(PIECE.replace(old, new), "Cart.total", helpers=THROUGH) != before) is is_change


def test_a_computed_name_brings_in_every_plain_method() -> None:
    dynamic = PIECE.replace("self.plain(1)", "getattr(self, 'pl' + 'ain')(1)")
    before = digest(dynamic, "Cart.total", helpers=THROUGH)
    changed = dynamic.replace("def other():\n        return 1", "def other():\n        return 2")
    assert digest(changed, "Cart.total", helpers=THROUGH) != before


@pytest.mark.parametrize(
    "body",
    [
        "m = helpers\n    return m.tax(1)",
        "return run(helpers)",
        "import helpers as h\n    return h.tax(1)",
        "from helpers import tax\n    return tax(1)",
        "return (lambda: helpers.tax(1))()",
        "return [helpers.tax(n) for n in range(3)]",
        "def inner():\n        return helpers.tax\n    return inner()(1)",
        "class Inner:\n        tax = helpers.tax\n    return Inner.tax(1)",
        "return getattr(helpers, 'ta' + 'x')(1)",
        "return operator.attrgetter('tax')(helpers)(1)",
        "return functools.partial(helpers.tax, 1)()",
    ],
)
def test_a_helper_is_found_however_it_is_reached(body: str) -> None:
    shop = f"import functools, operator\nimport helpers\ndef run(m):\n    return m.tax(1)\ndef total():\n    {body}\n"
    before = digest(shop, helpers=HELPERS)
    assert digest(shop, helpers=HELPERS.replace("n + _inner(n)", "n - _inner(n)")) != before
    assert digest(shop, helpers=HELPERS.replace("BASE = 3", "BASE = 4")) != before


def test_functions_that_call_each_other_have_a_fingerprint() -> None:
    source = """
def total(n):
    return n and odd(n - 1)
def odd(n):
    return n and total(n - {step})
HANDLERS = {{"total": total, "odd": odd}}
def both():
    return HANDLERS
"""
    one, two = source.format(step=1), source.format(step=3)
    assert digest(one) == digest(one)
    assert len({digest(text, what) for text in (one, two) for what in ("total", "odd", "both")}) == 6


def test_a_class_that_moves_its_methods_around_is_the_same() -> None:
    one = "class A:\n    def a(self): return 1\n    def b(self): return 2\ndef total(): return A()\n"
    two = "class A:\n    def b(self): return 2\n    def a(self): return 1\ndef total(): return A()\n"
    assert digest(one) == digest(two)


def test_the_text_of_a_class_inside_a_function_does_not_count() -> None:
    source = "def total():\n{lines}    class Inner:\n        '''{doc}'''\n        x = 1\n    return Inner\n"
    assert digest(source.format(lines="", doc="a")) == digest(source.format(lines="    # moved\n", doc="b"))


@pytest.mark.parametrize(
    "body",
    [
        "return LIST[0]",
        "return TABLE['list'][0]",
        "return BOX.items",
        "LIST.append(1)",
        "TABLE['x'] = 1",
        "BOX.items.append(1)",
        "return next(COUNTER)",
    ],
)
def test_content_of_a_global_counts_when_it_is_looked_at(body: str) -> None:
    assert digest(globals_of(1, body)) != digest(globals_of(2, body))


def test_lock_counts_by_its_type() -> None:
    shop = "import asyncio, threading\nHELD = {made}\ndef total():\n    with HELD: return 1\n"
    kinds = ("threading.Lock", "threading.RLock", "threading.Condition", "threading.Semaphore", "asyncio.Lock")
    digests = [digest(shop.format(made=f"{made}()")) for made in kinds]
    assert len({*digests}) == len(kinds)
    assert digest(shop.format(made="[threading.Lock()][0]; HELD.acquire()")) == digests[0]


def globals_of(number: int, body: str) -> str:
    return f"""
import itertools

class Box:
    pass

LIST = [{number}]
TABLE = {{"list": [{number}]}}
BOX = Box()
BOX.items = [{number}]
COUNTER = itertools.count({number})

def total():
    {body}
"""
