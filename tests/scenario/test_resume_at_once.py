"""Many pieces that are known to be clean are opened without looking at their records, their cells together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from headwater import Cell, Piece, cell, computed, effect, given, handler
from headwater.engine import Limits
from headwater.protocol.messages import Watch
from headwater.runtime import Backend, LocalDirectory, Policy, Transport
from tests.scenario.pieces_kit import run
from tests.scenario.resume_kit import SPACE, Process, process, wired

COUNT = 60
OTHER = "-" * 100


class Note(Piece, name="at_once.Note"):
    text: Cell[str] = cell(default="")
    marks: Cell[Mapping[str, int]] = cell(default={})
    never: Cell[int] = cell(default=3)

    @computed
    def length(self) -> int:
        return len(self.text.get()) + self.never.get()

    @effect
    def show(self) -> None:
        self.length.get()


class OtherNote(Piece, name="at_once.Note"):
    text: Cell[str] = cell(default="")
    marks: Cell[Mapping[str, int]] = cell(default={})
    never: Cell[int] = cell(default=3)

    @computed
    def length(self) -> int:
        return len(self.text.get()) * self.never.get()

    @effect
    def show(self) -> None:
        self.length.get()


class Far:
    """The same directory, as if it were somewhere else: where its logs end cannot be seen from here."""

    def __init__(self, data: LocalDirectory) -> None:
        self._data = data
        self.token = ""
        self.life = ""
        self.is_only = False

    def transport(self, space: str) -> Transport | None:
        return self._data.transport(space)

    async def close(self) -> None:
        """It is not ours."""


def _set(number: int, made: Note) -> None:
    made.text.set("x" * number)


async def _made(folder: Path, count: int = COUNT) -> None:
    async with LocalDirectory(folder, synchronous="OFF") as data, process(data, identity="one") as first:
        for number in range(count):
            await first.space.open(Note, f"n{number}", setup=partial(_set, number))
        await first.settled()


@asynccontextmanager
async def _again(
    folder: Path, *, is_far: bool = False, limits: Limits | None = None
) -> AsyncIterator[tuple[Process, Process, LocalDirectory]]:
    """A process that comes back, and another one beside it."""
    async with LocalDirectory(folder, synchronous="OFF", limits=limits or Limits()) as data:
        backend: Backend = Far(data) if is_far else data
        async with process(backend, identity="one") as again, process(data, identity="two") as other:
            yield again, other, data


async def _opened(one: Process, *, together: bool, count: int = COUNT) -> list[Note]:
    if together:
        return list(await asyncio.gather(*[one.space.open(Note, f"n{number}") for number in range(count)]))
    return [await one.space.open(Note, f"n{number}") for number in range(count)]


@pytest.mark.parametrize("is_far", [False, True], ids=["here", "far"])
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
class TestOpening:
    def test_all_sleep_with_their_cells_here_and_nothing_runs(
        self, tmp_path: Path, together: bool, is_far: bool
    ) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with _again(tmp_path, is_far=is_far) as (again, _, _):
                notes = await _opened(again, together=together)
                assert again.counts["asleep"] == COUNT
                assert [note.text.get() for note in notes] == ["x" * number for number in range(COUNT)]
                assert {note.never.get() for note in notes} == {3}
                assert again.rt.scheduler.nodes() == [], "none of their nodes is here"
                assert await notes[7].length.pull() == 10
                notes[8].text.set("")
                await again.settled()
                assert again.taken() == {"n8:length", "n8:show"}
                assert not again.errors

        run(story)

    def test_few_messages_are_needed(self, tmp_path: Path, together: bool, is_far: bool) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with LocalDirectory(tmp_path, synchronous="OFF") as data:
                backend: Backend = Far(data) if is_far else data
                async with process(backend, identity="one") as again:
                    await _opened(again, together=together)
                    host = await data.host(SPACE)
                    # One by one, and from afar, it is asked each time whether anything was written.
                    assert host.messages < (2 * COUNT if is_far and not together else COUNT // 2)

        run(story)

    def test_what_others_write_to_their_cells_is_seen(self, tmp_path: Path, together: bool, is_far: bool) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with _again(tmp_path, is_far=is_far) as (again, other, _):
                notes = await _opened(again, together=together, count=COUNT // 2)
                theirs = [other.space.piece(Note, f"n{number}") for number in range(COUNT)]
                for note in theirs:  # Also to those that were asked for and not opened.
                    await other.space.transact(lambda note=note: note.text.set(OTHER))  # type: ignore[misc]
                await again.rt.until(lambda: all(note.text.get() == OTHER for note in notes))
                await again.settled()
                assert again.taken() == {f"n{n}:{what}" for n in range(COUNT // 2) for what in ("length", "show")}
                late = await _opened(again, together=together)
                assert {note.text.get() for note in late} == {OTHER}
                await again.settled()
                assert len(again.taken()) == 2 * (COUNT - COUNT // 2)
                assert not again.errors

        run(story)

    def test_one_that_is_deleted_meanwhile_is_made_anew(self, tmp_path: Path, together: bool, is_far: bool) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with _again(tmp_path, is_far=is_far) as (again, other, _):
                await _opened(again, together=together, count=3)
                await other.space.delete(other.space.piece(Note, "n9"))
                new = await again.space.open(Note, "n9", setup=lambda made: made.text.set("new"))
                assert new.text.get() == "new"
                await again.settled()
                assert {"n9:length", "n9:show"} <= again.taken()

        run(story)

    def test_one_that_newer_code_runs_meanwhile_is_not_taken_for_the_older_one(
        self, tmp_path: Path, together: bool, is_far: bool
    ) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with _again(tmp_path, is_far=is_far) as (again, other, _):
                await _opened(again, together=together, count=3)
                await other.space.open(OtherNote, "n9")
                await other.settled()
                note = await again.space.open(Note, "n9")
                assert again.counts["asleep"] == 3
                await again.settled()
                assert note.text.get() == "x" * 9

        run(story)


class Shared(Piece, name="at_once.Shared"):
    values: Cell[Mapping[str, int]] = cell(default={})


class Reader(Piece, name="at_once.Reader"):
    values: Cell[Mapping[str, int]] = given()

    @computed
    def read(self) -> int:
        return self.values.key("a").get(0)

    @effect
    def show(self) -> None:
        self.read.get()


class TestSharing:
    def test_a_write_that_none_of_many_sleepers_reads_costs_the_same_for_all_of_them(self, tmp_path: Path) -> None:
        async def messages(folder: Path, count: int) -> int:
            async with LocalDirectory(folder, synchronous="OFF") as data, process(data, identity="one") as first:
                shared = await first.space.open(Shared, "shared", setup=lambda made: made.values.set({"a": 1}))
                for number in range(count):
                    await first.space.open(Reader(values=shared.values), f"r{number}")
                await first.settled()
            async with LocalDirectory(folder, synchronous="OFF") as data, process(data, identity="one") as again:
                shared = await again.space.open(Shared, "shared")
                for number in range(count):
                    await again.space.open(Reader, f"r{number}")  # type: ignore[arg-type]  # It is there.
                await again.settled()
                assert again.counts["asleep"] == count + 1
                host = await data.host(SPACE)
                before = host.messages
                shared.values.key("b").set(2)
                await again.settled()
                asked = host.messages - before
                assert again.taken() == set()
                shared.values.key("a").set(2)
                await again.settled()
                assert again.taken() == {f"r{n}:{what}" for n in range(count) for what in ("read", "show")}
                assert again.counts["woken"] == 0
                return asked

        async def story() -> None:
            few, many = await messages(tmp_path / "few", 3), await messages(tmp_path / "many", 12)
            assert many <= few + 2, "acknowledgements may travel by themselves"

        run(story)


class Cart(Piece, name="at_once.Cart"):
    lines: Cell[tuple[int, ...]] = cell(default=())

    @computed
    def total(self) -> int:
        return sum(self.lines.get())

    @effect
    def show(self) -> None:
        print(self.total.get())

    @handler
    def add(self, line: int) -> None:
        self.lines.push(line)

    @handler
    def checkout(self) -> int:
        total = self.total.get()
        self.lines.set(())
        return total


class TestSending:
    @pytest.mark.parametrize("waits", [True, False])
    def test_what_comes_of_a_send_is_shown_as_in_a_process_that_stayed(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], waits: bool
    ) -> None:
        async def bought(one: Process) -> list[int]:
            cart = one.space.piece(Cart, "ann")
            capsys.readouterr()
            if waits:
                await cart.add.send(450)
                assert await cart.checkout.send() == 450
            else:
                assert await asyncio.gather(cart.add.send(450), cart.checkout.send()) == [None, 450]
            await one.settled()
            return [*map(int, capsys.readouterr().out.split())]

        async def story() -> None:
            async with process(tmp_path, identity="one") as first:
                await first.space.open(Cart, "ann")
                await first.settled()
                shown = [await bought(first)]
            for _ in range(2):
                async with process(tmp_path, identity="one") as again:
                    await again.space.open(Cart, "ann")
                    assert again.counts["asleep"] == 1
                    shown.append(await bought(again))
                    assert again.counts["woken"] == 0
            # If both land before anything is shown, what was between them is seen by nobody; the end of it is.
            assert all(each == [450, 0] or (each == [0] and not waits) for each in shown), shown

        run(story)


class TestLimits:
    def test_where_not_all_can_be_watched_those_that_are_opened_are(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path)
            async with _again(tmp_path, limits=Limits(own_watches=40)) as (again, _, _):
                notes = await _opened(again, together=False, count=12)
                assert [note.text.get() for note in notes] == ["x" * number for number in range(12)]
                assert not again.errors

        run(story)

    def test_cells_of_a_piece_that_stopped_may_be_let_go(self, tmp_path: Path) -> None:
        async def story() -> None:
            await _made(tmp_path, 2)
            async with wired(tmp_path, identity="one", policy=Policy(unread_kept=0)) as (again, wire):
                (note, _) = await _opened(again, together=False, count=2)
                text = again.rt.cell(SPACE, "n0:text", str)

                async def is_fetched() -> bool:
                    """Whether looking at it has to ask for it."""
                    text.sink(lambda _: None).close()
                    await again.settled()
                    before = len(wire.sent)
                    await text.pull()
                    sent = [each for _, each in wire.sent[before:] if isinstance(each, Watch)]
                    return text.document.key in {selector.doc for each in sent for selector in each.selectors}

                assert not await is_fetched(), "its piece is open"
                await again.space.stop(note)
                assert await is_fetched()

        run(story)


def test_piece_deleted_meanwhile_is_made_anew(tmp_path: Path) -> None:
    async def story() -> None:
        await _made(tmp_path)
        async with _again(tmp_path) as (again, other, _):
            await _opened(again, together=False, count=3)
            await other.space.delete(other.space.piece(Note, "n9"))
            new = await again.space.open(Note, "n9", setup=lambda made: made.text.set("new"))
            assert new.text.get() == "new"

    run(story)
