"""What a class of pieces may be: where its annotations are resolved, what it inherits, what its members are."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter
from collections.abc import Mapping
from datetime import date
from typing import Any, ForwardRef

import pytest

from headwater import (
    AuthoringError,
    Cell,
    Computed,
    Handler,
    Input,
    Model,
    Piece,
    cell,
    computed,
    each,
    fold,
    given,
    handler,
)
from headwater.cells.handle_base import Member
from headwater.pieces.annotations import annotations_of, resolve
from headwater.pieces.declarations import CellMember, ComputedMember, FoldMember
from tests.unit.pieces.declaring import module

EITHER = pytest.mark.parametrize("lazy", [True, False], ids=["lazy", "evaluated"])


def schema(cls: type[Piece]) -> Any:
    return cls.__schema__


# ---- annotations -------------------------------------------------------------------------------------------


@EITHER
def test_an_annotation_may_name_what_is_defined_later(lazy: bool) -> None:
    source = """
    class Cart(Piece):
        line: 'Cell[Late | None]' = cell(default=None)
        lines: "Cell[tuple[Late, ...]]" = cell(default=())
        @each(lines, key=lambda line: line.id)
        def views(self, line: 'Cell[Late]') -> "View": return View(line=line)
        @handler
        def add(self, line: 'Late') -> None: ...
    class Late(Model):
        id: str
    class View(Piece):
        line: Cell[Late] = given()
    """
    with module(source, lazy=lazy) as made:
        found = schema(made.Cart)
        found.check()
        assert found.codec(found.members["lines"]).element.expected == "Late"
        assert found.elements(found.members["views"]).value is None


@EITHER
def test_a_name_that_is_nothing_is_named_when_a_piece_is_opened(lazy: bool) -> None:
    with module("class Cart(Piece):\n    line: 'Cell[Nowhere | None]' = cell(default=None)", lazy=lazy) as made:
        with pytest.raises(
            AuthoringError, match=r"Cart\.line: 'Nowhere' in its annotation .* is not in module declared_"
        ):
            schema(made.Cart).check()
        vars(made)["Nowhere"] = int
        schema(made.Cart).check()


def test_text_inside_an_annotation_is_resolved() -> None:
    names = {"Late": int, "Mapping": Mapping, "tuple": tuple, "str": str}
    late: Any = ForwardRef("Late")
    text: Any = "tuple[Late, ...]"
    assert resolve(Mapping[str, text], names) == Mapping[str, tuple[int, ...]]
    assert resolve(tuple[late, ...], names) == tuple[int, ...]
    assert resolve(Handler[[late], None], names) == Handler[[int], None]
    assert resolve("tuple['Late', ...]", names) == tuple[int, ...]


def test_a_class_that_says_nothing_inherits_no_annotations() -> None:
    class One:
        n: int

    class Two(One):
        pass

    assert annotations_of(One) == {"n": "int"}
    assert annotations_of(Two) == {}


def test_a_class_inside_a_function_may_use_what_is_local_there() -> None:
    class Local(Model):
        id: str

    class Cart(Piece):
        lines: Cell[tuple[Local, ...]] = cell(default=())

        @computed
        def first(self) -> Local | None:
            return None

        @handler
        def add(self, line: Local) -> Local:
            return line

    found = schema(Cart)
    assert found.codec(found.members["lines"]).element.expected == "Local"
    assert found.name.endswith("test_a_class_inside_a_function_may_use_what_is_local_there.Cart")
    assert "<locals>" not in found.name


def test_an_annotation_may_name_what_the_class_defines_and_is_not_misled_by_a_member() -> None:
    class Shop(Piece):
        class Item(Model):
            id: str

        items: Cell[tuple[Item, ...]] = cell(default=())
        date: Cell[date | None] = cell(default=None)

    schema(Shop).check()
    assert schema(Shop).codec(schema(Shop).members["items"]).element.expected == "Item"


def test_a_class_does_not_keep_what_was_local_where_it_was_made() -> None:
    class Heavy:
        pass

    def make() -> tuple[type[Piece], weakref.ref[Heavy]]:
        heavy = Heavy()

        class Cart(Piece):
            n: Cell[int] = cell(default=0)

        return Cart, weakref.ref(heavy)

    cls, heavy = make()
    gc.collect()
    assert heavy() is None
    assert schema(cls).members


@EITHER
def test_a_class_may_have_children_of_its_own_class(lazy: bool) -> None:
    source = """
    class Node(Piece):
        parts: Cell[Mapping[str, Line]] = cell(default={})
        @each(parts)
        def nodes(self, part: Cell[Line]) -> 'Node | None': return None
    """
    with module(source, lazy=lazy) as made:
        schema(made.Node).check()


# ---- inheritance -------------------------------------------------------------------------------------------


class Counted(Piece):
    n: Cell[int] = cell(default=0)

    @computed
    def twice(self) -> int:
        return self.n.get() * self.factor()

    def factor(self) -> int:
        return 2


class Plain:
    """A mixin of methods."""

    def factor(self) -> int:
        return 3


class Thrice(Plain, Counted):
    m: Cell[int] = cell(default=1)


class Named(Piece):
    title: Cell[str] = cell(default="")


class Both(Counted, Named):
    pass


def test_a_class_has_the_members_of_those_it_derives_from() -> None:
    assert list(schema(Thrice).members) == ["n", "twice", "m"]
    assert sorted(schema(Both).members) == ["n", "title", "twice"]
    schema(Both).check()
    assert schema(Thrice).codec(schema(Thrice).members["n"]).expected == "int"


def test_a_plain_method_may_be_overridden() -> None:
    assert Thrice.factor is Plain.factor


@EITHER
def test_an_inherited_member_is_resolved_where_it_was_declared(lazy: bool) -> None:
    with module("class Base(Piece):\n    line: 'Cell[Line | None]' = cell(default=None)", lazy=lazy) as made:

        class Cart(made.Base):  # type: ignore[name-defined,misc]  # It is made of text.
            pass

        schema(Cart).check()
        assert "Line" in schema(Cart).codec(schema(Cart).members["line"]).expected


# ---- members -----------------------------------------------------------------------------------------------


class Row(Piece):
    line: Cell[int] = given()
    rate: Input[float] = given()
    done: Handler[[int], None] = given()


def test_on_the_class_a_member_is_a_name() -> None:
    assert isinstance(Counted.twice, Member)
    assert repr(Counted.twice) == "Counted.twice"
    assert Counted.twice == Counted.twice
    assert Counted.twice != Thrice.twice
    with pytest.raises(AttributeError, match=r"write piece\.twice\.get"):
        Counted.twice.get()  # type: ignore[attr-defined]


def test_nothing_can_be_assigned_to_a_piece() -> None:
    piece = Counted()
    with pytest.raises(AuthoringError, match=r"self\.total = .* cell\(default=\.\.\.\), and write self\.total\.set"):
        piece.total = 1  # type: ignore[attr-defined]
    with pytest.raises(AuthoringError, match=r"write self\.n\.set|write \.set\(\.\.\.\)"):
        piece.n = 1  # type: ignore[assignment,misc]
    with pytest.raises(AuthoringError, match=r"holds no state|cannot be deleted"):
        del piece.n


def test_a_piece_that_runs_nowhere_says_what_to_do_with_it() -> None:
    with pytest.raises(AuthoringError, match=r"space\.open\(\)"):
        _ = Counted().n
    with pytest.raises(AuthoringError, match="inside a run"):
        _ = Counted().ctx


def test_a_piece_is_made_with_exactly_its_inputs() -> None:
    with pytest.raises(AuthoringError, match=r"Row needs 'done': write Row\(done=\.\.\., line=\.\.\., rate=\.\.\.\)"):
        Row()  # type: ignore[call-arg]
    with pytest.raises(AuthoringError, match=r"Row has no input 'lines': write Row\("):
        Row(lines=1)  # type: ignore[call-arg]
    with pytest.raises(AuthoringError, match="Counted has no input 'n'"):
        Counted(n=1)  # type: ignore[call-arg]
    with pytest.raises(AuthoringError, match="'line' is 3: pass a handle, not a value"):
        Row(line=3, rate=4, done=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Row(1)  # type: ignore[call-arg,arg-type]


def test_a_default_is_never_shared_state() -> None:
    member = schema(Counted).members["n"]
    assert isinstance(member, CellMember)
    assert member.default == 0


# ---- folds and names ---------------------------------------------------------------------------------------


class Tally(Piece):
    numbers: Cell[tuple[int, ...]] = cell(default=())
    entries: Cell[Mapping[str, int]] = cell(default={})
    total = fold(numbers, start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)
    parity = fold(entries, by=lambda x: str(x % 2), start=0, add=lambda n, x: n + x, remove=lambda n, x: n - x)
    kept: Computed[tuple[int, ...]] = fold(
        numbers, start=(), add=lambda n, x: (*n, x), remove=lambda n, x: tuple(y for y in n if y != x)
    )


def test_the_type_of_a_fold_is_that_of_its_start_or_what_is_said() -> None:
    found = schema(Tally)
    assert [found.codec(each).expected for each in found.of(FoldMember)] == [
        "int",
        "Mapping[str, int]",
        "tuple[int, ...]",
    ]


class Old(Piece, name="shop.Cart", was="shop.Basket"):
    fresh: Cell[int] = cell(default=0, was="stale")


def test_a_class_may_say_its_name_and_the_one_it_had() -> None:
    assert (schema(Old).name, schema(Old).was) == ("shop.Cart", "shop.Basket")
    assert schema(Old).members["fresh"].stored == "stale"
    assert schema(Counted).name.endswith(".test_declaring.Counted")


@EITHER
def test_what_is_gone_over_may_be_declared_in_a_base(lazy: bool) -> None:
    source = """
    class Base(Piece):
        lines: Cell[Mapping[str, Line]] = cell(default={})
    """
    with module(source, lazy=lazy) as made:
        lines = vars(made.Base)["lines"]

        class Cart(made.Base):  # type: ignore[name-defined,misc]
            @each(lines)
            def doubled(self, line: Input[Any]) -> int:
                return 2 * int(line.get().cents)

        schema(Cart).check()


def test_work_to_know_the_types_of_a_class_grows_with_its_members() -> None:
    def steps(width: int) -> int:
        def plus(self: Any) -> int:
            return 1

        members: dict[str, Any] = {f"c{number}": computed(plus) for number in range(width)}
        seen = Counter[str]()

        def heard(_: object, event: str, __: object) -> None:
            seen[event] += 1

        make: Any = type
        sys.setprofile(heard)
        try:
            found = schema(make(f"Wide{width}", (Piece,), members))
            for member in found.of(ComputedMember):
                found.codec(member)
        finally:
            sys.setprofile(None)
        return seen["c_call"] + seen["call"]

    assert steps(400) < 4.4 * steps(100)
