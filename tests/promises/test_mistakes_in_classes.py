"""A class of pieces with a mistake is refused where it is made, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Optional, Union

import pytest

import headwater
from headwater import (
    AuthoringError,
    Cell,
    Input,
    Piece,
    Policy,
    Topic,
    cell,
    computed,
    each,
    given,
    handler,
    reaction,
    topic,
)

# mypy: disable-error-code="assignment"


def test_plain_value_of_a_cell_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(AuthoringError, match=r"Counter\.n .* is 0: write n: Cell\[int\] = cell\(default=0\)"):

        class Counter(Piece):
            n: Cell[int] = 0


def test_plain_value_of_an_input_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(AuthoringError, match=r"Row\.title .* is 'tea': write title: Input\[str\] = given\(\)"):

        class Row(Piece):
            title: Input[str] = "tea"


def test_plain_value_of_a_topic_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(AuthoringError, match=r"Cart\.placed .* is None: write placed: Topic\[str\] = topic\(\)"):

        class Cart(Piece):
            placed: Topic[str] = None


def test_plain_value_in_a_subclass_is_refused_when_the_class_is_made() -> None:
    class Base(Piece):
        pass

    with pytest.raises(AuthoringError, match=r"Counter\.n .* is 0: write"):

        class Counter(Base):
            n: Cell[int] = 0


DECLARED = r"write n: Cell\[int\] = cell\(default=0\), or"


def test_plain_value_in_a_class_that_is_not_a_piece_is_refused_when_the_piece_is_made() -> None:
    class Mixin:
        n: Cell[int] = 0

    with pytest.raises(AuthoringError, match=r"Mixin\.n .* is 0, in a class that is not a Piece: write class Mixin\("):

        class Counter(Mixin, Piece):
            pass


def test_annotation_of_a_mixin_without_a_value_is_left_to_the_piece() -> None:
    class Mixin:
        n: Cell[int]

        def shown(self) -> str:
            return str(self.n.get())

    class Counter(Mixin, Piece):
        n: Cell[int] = cell(default=0)


def test_plain_value_is_refused_inside_of_annotated_and_of_a_union() -> None:
    with pytest.raises(AuthoringError, match=DECLARED):

        class Noted(Piece):
            n: Annotated[Cell[int], "a note"] = 0

    for default in (None, 0):
        with pytest.raises(AuthoringError, match=rf"write n: Cell\[int\] = cell\(default={default}\), or"):

            class Maybe(Piece):
                n: Cell[int] | None = default

    with pytest.raises(AuthoringError, match=r"write n: Cell\[int\] = cell\(default=None\), or"):

        class Optionally(Piece):
            n: Optional[Cell[int]] = None  # noqa: UP045


def test_plain_value_is_refused_whether_annotations_are_text_or_types() -> None:
    for said in (Annotated[Cell[int], 1], Union[Cell[int], None], Cell[int] | None, Optional[Cell[int]]):  # noqa: UP007, UP045
        with pytest.raises(AuthoringError, match=DECLARED):
            type("Typed", (Piece,), {"__annotations__": {"n": said}, "n": 0, "__module__": __name__})


def test_member_of_another_class_is_refused_as_a_cell() -> None:
    class Other(Piece):
        n: Cell[int] = cell(default=0)

    with pytest.raises(AuthoringError, match=r"Counter\.m .* write m: Cell\[int\] = cell\("):

        class Counter(Piece):
            m: Cell[int] = Other.n


def test_refused_class_leaves_its_name_free(tmp_path: Path) -> None:
    """The error is kept, as a REPL keeps the last one: the refused class lives on in its traceback."""
    with pytest.raises(AuthoringError) as kept:

        class Wrong(Piece, name="promises.Jar"):
            n: Cell[list[int]] = cell(default=[])

    class Jar(Piece, name="promises.Jar"):
        n: Cell[int] = cell(default=0)

        @handler
        def fill(self, n: int) -> None:
            self.n.set(n)

    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            shelf = rt.space("shelf")
            await (await shelf.open(Jar, "jam")).fill.send(3)
            assert [each.n.get() for each in (await shelf.find(Jar)).items] == [3]

    headwater.run(main)
    assert kept.value is not None


def _counter(step: int) -> type[Piece]:
    """Define the same class once more, as a notebook cell that is run again does."""

    class Counter(Piece, name="promises.Counter"):
        n: Cell[int] = cell(default=0)

        @computed
        def shown(self) -> str:
            return f"{self.n.get()} by {step}"

        @handler
        def add(self) -> int:
            self.n.increment(step)
            return step

    return Counter


def test_class_that_is_defined_again_replaces_the_former_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("notes")
            Former = _counter(1)
            former: Any = await space.open(Former, "a")
            await former.add.send()
            assert await former.shown.pull() == "1 by 1"
            Counter = _counter(10)
            counter: Any = await space.open(Counter, "a")
            assert await counter.add.send() == 10
            assert await counter.shown.pull() == "11 by 10"
            with pytest.raises(AuthoringError, match=r"its class was defined again: write await space\.open\(Counter"):
                await former.shown.pull()
            with pytest.raises(AuthoringError, match="was defined again"):
                space.piece(Former, "a")

    headwater.run(main)


class Row(Piece, name="promises.AgainRow"):
    n: Cell[int] = given()

    @computed
    def times(self) -> int:
        return self.n.get()


def _row(factor: int) -> type[Piece]:
    """Define the class of the rows once more."""

    class Again(Piece, name="promises.AgainRow"):
        n: Cell[int] = given()

        @computed
        def times(self) -> int:
            return self.n.get() * factor

    globals()["Row"] = Again
    return Again


class Table(Piece, name="promises.AgainTable"):
    numbers: Cell[Mapping[str, int]] = cell(default={"a": 1})

    @each(numbers)
    def rows(self, n: Cell[int]) -> Row:
        return Row(n=n)

    @computed
    def all(self) -> tuple[int, ...]:
        return tuple(row.times.get() for row in self.rows.get().values())


@pytest.mark.parametrize("stops", [False, True], ids=["open", "stopped before"])
def test_class_of_rows_that_is_defined_again_replaces_the_former_one_once_their_parent_is_opened_again(
    tmp_path: Path, *, stops: bool
) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("notes")
            _row(1)
            table = await space.open(Table, "t")
            seen: list[tuple[int, ...]] = []
            table.all.sink(seen.append)
            assert await table.all.pull() == (1,)
            if stops:
                await space.stop(table)
            newest = _row(100)
            table = await space.open(Table, "t")
            table.numbers.key("b").set(2)
            await rt.settled()
            assert await table.all.pull() == seen[-1] == (100, 200)
            assert {type(row) for row in (await table.rows.pull()).values()} == {newest}

    headwater.run(main)


def test_class_that_is_defined_again_replaces_the_former_one_whatever_their_bases(tmp_path: Path) -> None:
    """The record of a piece names its class: the one that was defined last is found, below whichever base it is."""

    class Base(Piece):
        pass

    class Former(Base, name="promises.Target"):
        n: Cell[int] = cell(default=1)

    class Target(Piece, name="promises.Target"):
        n: Cell[int] = cell(default=2)

    class Pointer(Piece):
        to: Cell[headwater.Link[Target] | None] = cell(default=None)

        @handler
        def point(self, to: headwater.Link[Target]) -> None:
            self.to.set(to)

        @computed
        def value(self) -> int:
            to = self.to.get()
            return 0 if to is None else self.ctx.follow(to).n.get()

    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("notes")
            await (await space.open(Pointer, "p")).point.send(headwater.link(await space.open(Target, "t")))
        async with headwater.open(tmp_path) as rt:
            assert await rt.space("notes").piece(Pointer, "p").value.pull() == 2

    headwater.run(main)
    del Former  # It lives until here, so that both classes are there.


def _mailer(says: str) -> type[Piece]:
    class Mailer(Piece, name="promises.Mailer"):
        asked: Topic[str] = topic()
        sent: Cell[tuple[str, ...]] = cell(default=())

        @handler
        def ask(self, to: str) -> None:
            self.asked.emit(to)

        @handler
        def done(self, letter: str) -> None:
            self.sent.push(letter)

        @reaction(on=asked, then=done)
        async def send(self, to: str) -> str:
            return f"{says} {to}"

    return Mailer


def test_reaction_of_a_class_that_is_defined_again_runs_the_new_code(tmp_path: Path) -> None:
    async def main() -> None:
        async with headwater.open(tmp_path) as rt:
            space = rt.space("post")
            sent: tuple[str, ...] = ()
            for number, says in enumerate(("dear", "hello"), start=1):
                mailer: Any = await space.open(_mailer(says), "m")
                await mailer.ask.send("ann")
                async for sent in mailer.sent.watch():
                    if len(sent) == number:
                        break
            assert sent == ("dear ann", "hello ann")

    headwater.run(main)


def test_handler_with_other_arguments_is_refused_as_otherwise_by_its_name() -> None:
    with pytest.raises(AuthoringError, match=r"otherwise=handler failed: name a handler"):

        class Cart(Piece):
            placed: Topic[str] = topic()

            @handler
            def failed(self) -> None:
                pass

            @reaction(on=placed, otherwise=failed)  # type: ignore[arg-type]
            async def ship(self, sku: str) -> None:
                pass


@pytest.mark.parametrize("name", ["backlog", "in_hand", "retry_window_ms", "jitter", "named_pieces"])
def test_negative_number_in_a_policy_is_refused_where_it_is_written(name: str) -> None:
    with pytest.raises(AuthoringError, match=rf"Policy\({name}=-1\): write a number that is not negative"):
        Policy(**{name: -1})  # type: ignore[arg-type]
