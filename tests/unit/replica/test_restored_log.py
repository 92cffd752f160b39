"""A log that was replaced by an older state of itself, and grew past what was seen: nobody goes on as if nothing were.

With real files: a backup is a copy of the file, and restoring it is copying it back. What a session showed or was
promised is looked for in the log before anything of it is judged there. What is not in it any more is told loudly, and
what was on the wire becomes a failed intent, never a new commit.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from headwater.data.patch import add, append, increment, replace
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.sync.hub import Hub
from headwater.errors import SessionExpiredError
from headwater.protocol.messages import Open, Opened, Problem, Sync, Verdicts, Watched
from headwater.protocol.verdict import RuleRefused
from headwater.replica.session import LinkState
from tests.counts import scaled
from tests.unit.engine.kit import Writer, write
from tests.unit.replica.kit import Client, World, bump, doc


class Shop(World):
    """A space in a file that can be backed up and restored, with everybody connected to it."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.file = folder / "shop.space"
        super().__init__()
        self.engine.close()
        self.open_engine()
        for name in names:
            self.join(name).watch("d")
        self.settle()

    def open_engine(self) -> None:
        self.engine = Engine(SqliteStore(self.file, synchronous="OFF"), clock=self.clock, limits=self.limits)
        self.hub = Hub(self.engine, self.clock, self.limits)

    def restart(self) -> None:
        """The server is started again, on the file as it is. Nobody has a connection."""
        for client in self.clients:
            client.drop()
        self.engine.close()
        self.open_engine()

    def backup(self) -> Path:
        """A copy of the files as they are at this moment. Nobody is disturbed."""
        copy = self.file.parent / "backup"
        copy.mkdir()
        for file in self.file.parent.glob("shop.space*"):
            shutil.copy(file, copy)
        return copy

    def restore(self, backup: Path) -> None:
        for client in self.clients:
            client.drop()
        self.engine.close()
        for file in self.file.parent.glob("shop.space*"):
            file.unlink()
        for file in backup.iterdir():
            shutil.copy(file, self.file.parent)
        self.open_engine()

    def grow(self, commits: int) -> None:
        """Somebody else, who came after the restoring, writes on."""
        stranger = Writer(self.engine, f"stranger{self.engine.last_seq}")
        for number in range(commits):
            stranger.lands(write("d", add(("by",), number)))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path, "a", "b")
    made.clients[0].write("d", replace((), {"n": 0, "items": ()}))
    made.settle()
    return made


def both(shop: Shop) -> tuple[Client, Client]:
    a, b = shop.clients
    return a, b


def is_gone(client: Client) -> bool:
    return client.session.link is LinkState.GONE and any(
        isinstance(error, SessionExpiredError) for error in client.errors
    )


class TestALogThatIsAnother:
    def test_a_session_that_saw_what_is_not_there_any_more_is_over_although_the_log_is_longer(self, shop: Shop) -> None:
        a, b = both(shop)
        backup = shop.backup()
        for _ in range(3):
            a.do(bump("d"))
            shop.settle()
        assert a.shows("d") == b.shows("d")
        seen = a.replica.confirmed.seq
        shop.restore(backup)
        shop.grow(10)
        assert shop.engine.last_seq > seen
        for client in (a, b):
            client.up()
        shop.settle()
        assert is_gone(a)
        assert is_gone(b)
        assert f"it has seen another log up to seq {seen}" in str(a.errors[-1])

    def test_what_was_on_the_wire_becomes_a_failed_intent_and_never_a_new_commit(self, shop: Shop) -> None:
        a, _ = both(shop)
        backup = shop.backup()
        a.write("d", replace(("n",), 7))
        shop.settle()
        told = a.write("d", append(("items",), ("mine",)))
        a.session.outgoing.clear()  # sent, and never arrived
        unread = a.do(lambda t: t.write(doc("d"), increment(("n",), 1)))
        shop.restore(backup)
        shop.grow(5)
        ends = shop.engine.last_seq
        a.up()
        shop.settle()
        assert is_gone(a)
        for one in (told, unread):
            assert isinstance(one.rejection, RuleRefused)
            assert one.rejection.rule == "session_gone"
        assert shop.engine.last_seq == ends
        assert shop.value("d") == {"n": 0, "items": (), "by": 4}

    def test_a_commit_that_was_accepted_and_is_not_shown_yet_is_missed(self, shop: Shop) -> None:
        """Only its verdict was heard: what is shown is in both logs, and the promise is not."""
        a, b = both(shop)
        backup = shop.backup()
        told = a.write("d", replace(("n",), 1))
        a.send()
        assert isinstance(a.waiting()[0], Verdicts)
        a.hear(1)
        assert told.landed
        assert a.replica.confirmed.seq < shop.engine.last_seq
        shop.restore(backup)
        shop.grow(5)
        for client in (a, b):
            client.up()
        shop.settle()
        assert is_gone(a)
        assert "commit 2 was accepted at seq 2, and is not in the log any more" in str(a.errors[-1])
        assert b.is_up  # It saw nothing of that.
        assert b.shows("d") == shop.value("d")

    def test_a_space_that_was_begun_anew_is_another_one(self, shop: Shop) -> None:
        a, _ = both(shop)
        a.write("d", replace(("n",), 1))
        shop.settle()
        for client in shop.clients:
            client.drop()
        shop.engine.close()
        shop.file.unlink()
        shop.open_engine()
        Writer(shop.engine, "first").lands(write("d", replace((), {"n": 0})))
        shop.grow(5)
        a.up()
        shop.settle()
        assert is_gone(a)

    def test_a_copy_that_lives_on_beside_the_original_is_another_log(self, shop: Shop) -> None:
        """As many commits, with the same content, at other times."""
        a, _ = both(shop)
        backup = shop.backup()
        a.write("d", replace(("n",), 1))
        shop.settle()
        shop.restore(backup)
        shop.clock.advance(1_000)
        again = Writer(shop.engine, "again")
        again.lands(write("d", replace(("n",), 1)))
        assert shop.engine.last_seq == a.replica.confirmed.seq
        a.up()
        shop.settle()
        assert is_gone(a)


class TestALogThatIsTheSame:
    def test_who_saw_nothing_beyond_the_backup_goes_on(self, shop: Shop) -> None:
        a, b = both(shop)
        backup = shop.backup()
        b.drop()
        a.write("d", replace(("n",), 1))
        a.pump()
        shop.restore(backup)
        shop.grow(4)
        b.up()
        shop.settle()
        assert b.is_up
        assert b.errors == []
        assert b.shows("d") == shop.value("d")

    def test_a_session_that_the_log_does_not_remember_writes_what_it_had_on_the_wire_once(self, shop: Shop) -> None:
        backup = shop.backup()
        late = shop.join("late")
        late.watch("d")
        shop.settle()
        told = late.write("d", append(("items",), ("late",)))
        late.send()  # taken in, and its verdict is lost
        shop.restore(backup)
        late.up()
        shop.settle()
        assert late.is_up
        assert told.landed
        assert late.shows("d") == shop.value("d") == {"n": 0, "items": ("late",)}
        late.write("d", append(("items",), ("more",)))
        shop.settle()
        assert shop.value("d") == {"n": 0, "items": ("late", "more")}

    def test_restarts_change_nothing(self, shop: Shop) -> None:
        a, b = both(shop)
        for number in range(5):
            told = a.write("d", append(("items",), (number,)))
            if number % 2:
                a.send()
            shop.restart()
            for client in (a, b):
                client.up()
            shop.settle()
            assert told.landed or not number % 2
        assert a.errors == b.errors == []
        assert a.shows("d") == b.shows("d") == shop.value("d")

    def test_what_was_compacted_away_since_cannot_be_told_apart_and_is_read_again(self, shop: Shop) -> None:
        a, b = both(shop)
        a.drop()
        for number in range(6):
            b.write("d", replace(("n",), number))
            shop.settle()
        shop.engine.compact(shop.engine.last_seq)
        shop.restart()
        a.up()
        shop.settle()
        assert a.is_up
        assert a.shows("d") == shop.value("d")

    def test_a_replica_that_was_told_no_name_is_believed(self, shop: Shop) -> None:
        """An engine of an older version names no log."""
        a, _ = both(shop)
        a.session.receive(Sync(a.replica.confirmed.seq, ()))
        a.again()
        assert isinstance(a.session.outgoing[0], object)
        shop.settle()
        opens = [message for message in a.sent if isinstance(message, Open)]
        assert opens[-1].chain is None
        assert a.is_up


def test_every_answer_that_says_where_the_log_is_names_it(shop: Shop) -> None:
    a, _ = both(shop)
    a.write("d", replace(("n",), 1))
    shop.settle()
    a.watch("e")
    shop.settle()
    named = [message for message in a.received if isinstance(message, Sync | Watched)]
    assert all(message.chain is not None for message in named)
    assert {message.chain for message in named if message.seq == shop.engine.last_seq} == {
        shop.engine.chain_at(shop.engine.last_seq)
    }
    a.again()
    shop.settle()
    assert [message.chain for message in a.sent if isinstance(message, Open)][-1] == shop.engine.chain_at(
        shop.engine.last_seq
    )


def test_a_log_knows_its_own_past_at_the_ends_of_its_rows_only(shop: Shop) -> None:
    writer = Writer(shop.engine, "w")
    names: dict[int, int] = {}
    for number in range(4):
        writer.lands(write("d", replace(("n",), number)))
        chain = shop.engine.chain_at(shop.engine.last_seq)
        assert chain is not None
        names[shop.engine.last_seq] = chain
    for seq, chain in names.items():
        assert shop.engine.may_have_ended_at(seq, chain)
        assert not shop.engine.may_have_ended_at(seq, chain ^ 1)
        assert not shop.engine.may_have_ended_at(seq - 1, chain)
    assert not shop.engine.may_have_ended_at(shop.engine.last_seq + 1, names[shop.engine.last_seq])
    assert shop.engine.chain_at(shop.engine.last_seq - 1) is None


def test_a_peer_that_says_another_log_is_answered_and_nothing_is_touched(shop: Shop) -> None:
    a, _ = both(shop)
    before = shop.engine.session("a").row
    a.drop()
    a.up()
    a.send(1)
    a.hear()
    (message,) = [a.next_out()]
    assert isinstance(message, Open)
    a.offer(Open("x", "a", message.resume, "t9", seen=1, chain=(message.chain or 0) ^ 1))
    (problem,) = a.waiting()
    assert isinstance(problem, Problem)
    assert (problem.code, problem.fatal) == ("session_gone", False)
    assert shop.engine.session("a").row == before
    a.offer(message)
    assert isinstance(a.waiting()[-1], Opened | Sync)


@pytest.mark.random
def test_after_any_restoring_a_session_is_over_or_shows_the_log(tmp_path: Path) -> None:
    """Whoever goes on shows the log as it is, and what it was told has landed is in there, once."""
    over = went_on = 0
    for seed in range(scaled(300)):
        random = Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        shop = Shop(folder, "a", "b", "c")
        shop.clients[0].write("d", replace((), {"items": ()}))
        shop.settle()
        made: list[tuple[str, object]] = []
        backup: Path | None = None
        for step in range(random.randint(4, 14)):
            if backup is None and random.random() < 0.3:
                backup = shop.backup()
            client = random.choice(shop.clients)
            label = f"{client.session.key}{step}"
            made.append((label, client.write("d", append(("items",), (label,)))))
            if random.random() < 0.6:
                client.send(random.randint(0, 3))
            if random.random() < 0.6:
                client.hear(random.randint(0, 3))
            if random.random() < 0.3:
                shop.settle()
        shop.restore(backup if backup is not None else shop.backup())
        shop.clock.advance(1)
        if random.random() < 0.8:
            shop.grow(random.randint(1, 12))
        for client in shop.clients:
            client.up()
        shop.settle()
        value = shop.value("d")
        assert isinstance(value, dict)
        items = value["items"]
        assert isinstance(items, tuple)
        assert len(set(items)) == len(items), seed
        for client in shop.clients:
            if client.is_up:
                went_on += 1
                assert client.shows("d") == value, (seed, client.session.key)
                assert client.mirror.differences() == [], seed
            else:
                over += 1
                assert is_gone(client), seed
        for label, told in made:
            calls = told.calls  # type: ignore[attr-defined]
            if not calls:
                continue  # taken back, and made again by whoever made it
            assert len(calls) == 1, (seed, label)
            client = next(each for each in shop.clients if each.session.key == label[0])
            if calls[0][1] is None and client.is_up:
                assert label in items, (seed, label)
            if calls[0][1] is not None:
                assert label not in items, (seed, label)
        shop.engine.close()
    assert over > scaled(300) // 10
    assert went_on > scaled(300) // 10
