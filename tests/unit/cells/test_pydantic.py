"""Frozen pydantic models are values, for those who have pydantic. Headwater itself never imports it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pydantic
import pytest

from headwater.cells.codec import codec_for
from headwater.cells.selector import PathSelector
from headwater.errors import AuthoringError, InvalidValueError
from tests.unit.cells.handle_kit import Hand


class Person(pydantic.BaseModel, frozen=True):
    name: str
    age: int = pydantic.Field(default=3, alias="years")
    tags: tuple[str, ...] = ()

    @pydantic.field_validator("name")
    @classmethod
    def checked(cls, name: str) -> str:
        if name == "nobody":
            raise ValueError("a name, please")
        return name


class Money(pydantic.BaseModel, frozen=True):
    amount: Decimal
    currency: str = "EUR"


class Invoice(pydantic.BaseModel, frozen=True):
    due: date
    lines: Mapping[str, Money] = pydantic.Field(default_factory=dict)
    payer: Person | None = None


class Changing(pydantic.BaseModel):
    name: str = ""


class Cat(pydantic.BaseModel, frozen=True):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel, frozen=True):
    kind: Literal["dog"] = "dog"
    tricks: tuple[str, ...] = ()


def test_the_codecs_import_no_pydantic() -> None:
    code = "import sys, headwater.cells.codec, headwater.cells.view; print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_frozen_pydantic_model_is_stored_by_field_name() -> None:
    codec = codec_for(Person)
    value = Person(name="ann", years=7, tags=("x",))
    raw: Any = codec.encode(value)
    assert raw == {"name": "ann", "age": 7, "tags": ("x",)}
    assert codec.decode(raw) == value
    assert codec.decode({"name": "bob"}) == Person(name="bob")
    assert codec.merge({"name": "ann", "age": 1, "tags": (), "later": 5}, value) == {**raw, "later": 5}
    assert PathSelector().select(codec, lambda p: p.age).path == ("age",)
    memo = codec.memo()
    assert memo.decode(raw) == value
    assert memo.decode({**raw, "age": 8}).age == 8


def test_its_validators_run_when_it_is_read() -> None:
    with pytest.raises(InvalidValueError, match=r"Person cannot be made of it: .*a name, please"):
        codec_for(Person).decode({"name": "nobody"})


def test_one_that_can_change_is_refused() -> None:
    with pytest.raises(AuthoringError, match=r"Write model_config = ConfigDict\(frozen=True\) in class Changing"):
        codec_for(Changing)


def test_cells_of_models_in_models_are_read_and_written_by_field() -> None:
    hand = Hand()
    invoices = hand.cell(Mapping[str, Invoice], default={})
    invoices.key("a").set(Invoice(due=date(2026, 1, 2), lines={"tea": Money(amount=Decimal("4.50"))}))
    seen = hand.seen(lambda: invoices.key("a").at(lambda i: i.due).get())
    invoices.key("a").at(lambda i: i.lines).key("milk").set(Money(amount=Decimal("1.20")))
    invoices.key("a").at(lambda i: i.payer).set(Person(name="ann", years=4))
    hand.settle()
    assert invoices.key("a").get() == Invoice(
        due=date(2026, 1, 2),
        lines={"tea": Money(amount=Decimal("4.50")), "milk": Money(amount=Decimal("1.20"))},
        payer=Person(name="ann", years=4),
    )
    assert seen == [date(2026, 1, 2)]  # Nothing that it read has changed.
    assert invoices.key("a").at(lambda i: i.lines["milk"].amount).get() == Decimal("1.20")


def test_a_computed_may_return_one() -> None:
    hand = Hand()
    cents = hand.cell(int, 450)
    price = hand.core.cell("shop", "price", Money)
    encode = price.memo().merge
    out = hand.computed(lambda: Money(amount=Decimal(cents.get()) / 100), Money, encode=lambda v, old: encode(old, v))
    seen = hand.seen(out.get)
    cents.set(500)
    hand.settle()
    assert seen == [Money(amount=Decimal("4.5")), Money(amount=Decimal(5))]


class Renamed(pydantic.BaseModel, frozen=True):
    one: int = pydantic.Field(default=0, validation_alias="uno")
    two: int = pydantic.Field(default=0, validation_alias=pydantic.AliasChoices("dos", "zwei"))


class Open(pydantic.BaseModel, frozen=True, extra="allow"):
    name: str = ""


class Names(pydantic.RootModel[tuple[str, ...]], frozen=True):
    pass


def test_a_field_that_is_given_under_another_name_is_stored_under_its_own() -> None:
    hand = Hand()
    cell = hand.cell(Renamed)
    cell.set(Renamed(uno=1, dos=2))  # type: ignore[call-arg]
    assert hand.stored(cell) == {"one": 1, "two": 2}
    assert cell.get() == Renamed(uno=1, dos=2)  # type: ignore[call-arg]


def test_one_whose_values_would_be_stored_in_part_is_refused() -> None:
    with pytest.raises(AuthoringError, match=r"fields that it does not name have no type\. Write extra='ignore'"):
        codec_for(Open)
    with pytest.raises(AuthoringError, match=r"it is what it holds, under no name\. Write the type that it holds"):
        codec_for(Names)


def test_a_union_of_them_is_told_apart() -> None:
    hand = Hand()
    pet = hand.cell(Cat | Dog)
    pet.set(Dog(tricks=("sit",)))
    assert pet.get() == Dog(tricks=("sit",))
    pet.set(Cat())
    assert pet.get() == Cat()
