"""Fingerprints: what has none, and the way to it."""

from __future__ import annotations

import json

import pytest

from headwater.pieces.fingerprints import fingerprint as fingerprint_module
from headwater.pieces.fingerprints import values
from headwater.pieces.fingerprints.fingerprint import Fingerprinter
from headwater.pieces.fingerprints.form import FingerprintLimits
from tests.unit.pieces.fingerprint_kit import digest, program, why

HELPERS = """
import io, itertools, socket, weakref
class Holder:
    def __init__(self, inner): self.inner = inner
HELD = (n for n in ())
RATES = {"x": HELD}
DEEP = Holder([1, {"y": HELD}])
FILE = open(__import__("os").devnull)
FILE.close()
LOOP = []
LOOP.append(LOOP)
NEST = ()
import functools
CACHED = len
for _ in range(2000): CACHED = functools.lru_cache(CACHED)
for _ in range(200): NEST = (NEST,)
REFERENCE = weakref.ref(Holder)
class Holding:
    held = HELD
def tax(): return HELD
def through(): return tax()
class Bad:
    def __fingerprint__(self): raise ValueError("no")
BAD = Bad()
TWINS = {lambda: 1, lambda: 2}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("helpers.HELD", "Cart.total -> helpers.HELD -> <generator>: has a state that cannot be compared"),
        ("helpers.RATES['x']", "Cart.total -> helpers.RATES['x'] -> <generator>: has a state"),
        ("helpers.DEEP", "Cart.total -> helpers.DEEP.inner[1]['y'] -> <generator>: has a state"),
        ("helpers.FILE", "Cart.total -> helpers.FILE -> <TextIOWrapper>: has a state"),
        ("helpers.REFERENCE", "Cart.total -> helpers.REFERENCE -> <"),
        ("helpers.LOOP", "Cart.total -> helpers.LOOP[0]: contains itself"),
        ("helpers.NEST", "is nested more than 64 levels deep"),
        ("helpers.CACHED", "is nested more than 64 levels deep"),
        ("helpers.through()", "Cart.total -> helpers.through -> tax -> HELD -> <generator>: has a state"),
        ("helpers.Holding", "Cart.total -> helpers.Holding.held -> <generator>: has a state"),
        ("helpers.BAD", "Cart.total -> helpers.BAD: __fingerprint__ raised ValueError: no"),
        ("helpers.TWINS", "Cart.total -> helpers.TWINS: is a set of two things called"),
        ("helpers.missing", "Cart.total -> helpers.missing: is a name that is not defined"),
        ("missing", "Cart.total -> missing: is a name that is not defined"),
        ("eval('1')", "Cart.total -> eval: reaches code that only shows when it runs"),
        ("importlib.import_module('helpers')", "Cart.total -> importlib.import_module: reaches code"),
        ("self.plain()", "Cart.total -> Cart.plain -> HELD -> <generator>: has a state"),
    ],
)
def test_what_cannot_be_known_is_never_clean_and_the_way_to_it_is_told(body: str, expected: str) -> None:
    shop = f"""
import importlib
import helpers
from helpers import HELD
class Cart:
    def total(self): return {body}
    def plain(self): return HELD
"""
    assert expected in why(shop, "Cart.total", helpers=HELPERS)


def test_a_module_that_is_imported_only_while_the_code_runs_has_no_fingerprint() -> None:
    shop = "def total():\n    from a_module_of_this_program import tax\n    return tax()\n"
    assert "import it where the module begins" in why(shop)
    assert digest("def total():\n    import wave\n    return wave\n")  # of the standard library, whose version counts


def test_several_reasons_are_told_but_not_all() -> None:
    shop = "".join(f"G{n} = (n for n in ())\ndef f{n}(): return G{n}\n" for n in range(9))
    shop += f"def total(): return {', '.join(f'f{n}()' for n in range(9))}\n"
    assert why(shop).count("<generator>") == 3


def test_the_nearest_reason_comes_first() -> None:
    shop = "HELD = (n for n in ())\ndef a(): return b()\ndef b(): return HELD\n"
    shop += "def total(): return a(), b()\n"
    assert why(shop).startswith("total -> b -> HELD -> <generator>:")


def test_a_variable_of_the_function_around_it_that_is_not_set_yet_has_no_fingerprint() -> None:
    def around() -> object:
        def fn() -> object:
            return later

        found = Fingerprinter().of(fn)
        later = 1
        return found, later

    assert "-> later: is a variable of the function around it" in str(around())


def test_a_failure_is_told_again_in_the_same_words_whoever_asks() -> None:
    made = Fingerprinter()
    lock = open  # Keeps the closure a plain one.
    nothing: tuple[int, ...] = ()
    held = [object(), (n for n in nothing)]

    def fn() -> object:
        return held, lock

    assert made.of(fn).why == made.of(fn).why
    assert "fn -> held[1] -> <generator>" in made.of(fn).why


def test_a_mutable_global_counts_with_its_content() -> None:
    shop = "RATES = {{'a': [1, {n}]}}\nSEEN = set()\ndef total(): return RATES['a'], SEEN\n"
    assert digest(shop.format(n=2)) != digest(shop.format(n=3))


def test_compiled_code_of_the_application_has_no_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiled:
        """As compilers make them: a type of their own, and functions that are pickled by name."""

        def __call__(self) -> None: ...
        def __reduce__(self) -> str:
            return "compiled"

    Compiled.__qualname__ = "Compiled"
    Compiled.__module__ = json.__name__
    monkeypatch.setattr(json, "Compiled", Compiled, raising=False)
    function = Compiled()
    assert Fingerprinter().of(function).digest is not None
    function.__module__ = __name__
    assert "is compiled code without a version" in Fingerprinter().of(function).why


def test_a_callable_of_the_application_may_be_pickled_by_name() -> None:
    shop = (
        "class Named:\n    def __call__(self): return {n}\n    def __reduce__(self): return 'total'\ntotal = Named()\n"
    )
    assert digest(shop.format(n=1)) != digest(shop.format(n=2))


def test_a_closure_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = "".join(f"def f{n}(): return f{n + 1}()\n" for n in range(9)) + "def f9(): return 1\ntotal = f0\n"
    assert digest(shop)
    monkeypatch.setattr(fingerprint_module, "LIMITS", FingerprintLimits(objects=5))
    assert "refers to more than 5 objects" in why(shop)


def test_a_container_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = "RATES = list(range(6))\ndef total(): return RATES\n"
    assert digest(shop)
    monkeypatch.setattr(values, "LIMITS", FingerprintLimits(items=5))
    assert "total -> RATES: has more than 5 items" in why(shop)


def test_a_member_that_is_inherited_stands_on_the_methods_of_the_class_it_runs_in() -> None:
    shop = "class Base:\n    def total(self): return self.plain()\n    def plain(self): return 1\n"
    shop += "class Cart(Base):\n    def plain(self): return {n}\n"
    made = []
    for n in (1, 2):
        with program(shop=shop.format(n=n)) as modules:
            base, cart = modules["shop"].Base, modules["shop"].Cart
            made.append([Fingerprinter().of(base.total, owner=owner).digest for owner in (base, cart)])
    assert made[0][0] == made[1][0]
    assert made[0][1] != made[1][1]
