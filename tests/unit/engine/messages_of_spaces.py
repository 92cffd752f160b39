"""Cases for `test_error_messages`: what is said about branches, reads, leases and engines."""

from __future__ import annotations

from pathlib import Path

from headwater.data.patch import replace
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.limits import Limits
from headwater.engine.store.sqlite import SqliteStore
from headwater.engine.sync.peer import AnswerBudget
from headwater.protocol.command_messages import split_place
from tests.unit.engine.kit import Writer, doc, open_engine, write
from tests.unit.engine.messages import ann_on, case, raised

# branches, reads, leases


@case("branch 'gone' does not exist", "`headwater branch list` shows those that do.")
def unknown_branch(_: Path) -> str:
    return raised(lambda: open_engine().diff("gone"))


@case("branch 'b' was deleted")
def deleted_branch(_: Path) -> str:
    engine = open_engine()
    engine.fork("b")
    engine.delete_branch("b")
    return raised(lambda: engine.diff("b"))


@case("'B' is not a branch name", "use 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter")
def bad_branch_name(_: Path) -> str:
    return raised(lambda: open_engine().fork("B"))


@case("branch 'main' already exists", "Names are never reused: choose another.")
def taken_branch_name(_: Path) -> str:
    return raised(lambda: open_engine().fork("main"))


@case("branch 'b' was the name of a deleted branch")
def name_of_a_deleted_branch(_: Path) -> str:
    engine = open_engine()
    engine.fork("b")
    engine.delete_branch("b")
    return raised(lambda: engine.fork("b"))


@case("branch 'main' cannot be deleted")
def deleting_main(_: Path) -> str:
    return raised(lambda: open_engine().delete_branch("main"))


@case("branch 'b' has branches of its own (c): delete those first")
def deleting_a_parent(_: Path) -> str:
    engine = open_engine()
    engine.fork("b")
    engine.fork("c", parent="b")
    return raised(lambda: engine.delete_branch("b"))


@case("branch 'b' is 1 forks away from 'main', which is the limit: merge first")
def fork_too_deep(_: Path) -> str:
    engine = open_engine(limits=Limits(branch_depth=1))
    engine.fork("b")
    return raised(lambda: engine.fork("c", parent="b"))


@case("branch 'main' has no parent to compare with")
def diff_of_main(_: Path) -> str:
    return raised(lambda: open_engine().diff("main"))


@case("'here' is not a cursor of a difference: pass `next` of the previous page")
def place_in_a_difference(_: Path) -> str:
    engine = open_engine()
    engine.fork("b")
    return raised(lambda: engine.diff("b", after="here"))


@case("branch 'b' changed 2 documents; one commit may change 1", "Raise `commit_operations` to merge it.")
def merge_too_large(_: Path) -> str:
    engine = open_engine(limits=Limits(commit_operations=1))
    engine.fork("b")
    ann = Writer(engine, "ann")
    for id in ("d", "e"):
        ann.lands(write(id, replace((), 1)), branch="b")
    return raised(lambda: engine.merge("b"))


@case("there is no seq 7: the log of this space ends at 0")
def moment_to_come(_: Path) -> str:
    return raised(lambda: open_engine().read(doc("d"), at=7))


@case("branch 'b' begins at seq 2", "Read 'main' for seq 1.")
def moment_before_the_branch(_: Path) -> str:
    engine = open_engine()
    ann_on(engine, 2)
    engine.fork("b")
    return raised(lambda: engine.read(doc("d"), branch="b", at=1))


def compacted() -> Engine:
    engine = open_engine()
    ann_on(engine, 9)
    engine.acknowledge("ann", 9)
    engine.compact(5)
    return engine


@case("history before seq 4 was compacted away; seq 1 cannot be read")
def moment_that_is_gone(_: Path) -> str:
    return raised(lambda: compacted().read(doc("d"), at=1))


@case("history before seq 5 was compacted away", "Ask for changes since 4, after reading the documents")
def changes_that_are_gone(_: Path) -> str:
    return raised(lambda: compacted().changes(since=1))


@case("changes are read since a seq from 0 to 9007199254740991, not -5")
def changes_before_the_beginning(_: Path) -> str:
    return raised(lambda: open_engine().changes(since=-5))


@case("a page holds at least one row, not 0")
def empty_page(_: Path) -> str:
    return raised(lambda: open_engine().changes(limit=0))


@case("Limits.page is 0: write an integer of at least 1")
def limit_of_nothing(_: Path) -> str:
    return raised(lambda: Limits(page=0))


# the engine and its directory


@case("this engine is closed", "Open the space again.")
def closed_engine(folder: Path) -> str:
    engine = open_engine(folder / "s.space")
    engine.close()
    return raised(lambda: engine.read(doc("d")))


@case("the data directory", "was moved, deleted or replaced while this process used it", "put the directory back")
def moved_directory(folder: Path) -> str:
    with Directory(folder / "data") as directory:
        (folder / "data").rename(folder / "elsewhere")
        return raised(directory.check)


@case("a.space was moved, deleted or replaced while this process used it", "put the file back, and start again.")
def moved_file(folder: Path) -> str:
    store = SqliteStore(folder / "a.space")
    (folder / "a.space").rename(folder / "b.space")
    store.begin()
    said = raised(store.commit)
    store.close()
    return said


@case("is owned by process", "Stop that process, or, if it serves the directory, connect to it")
def owned_directory(folder: Path) -> str:
    with Directory(folder):
        return raised(lambda: Directory(folder))


@case("cannot be a data directory")
def no_directory(folder: Path) -> str:
    (folder / "file").write_text("")
    return raised(lambda: Directory(folder / "file"))


@case("was closed here", "Open the directory again.")
def closed_directory(folder: Path) -> str:
    directory = Directory(folder)
    directory.close()
    return raised(lambda: directory.space("shop"))


@case(
    "the documents of one answer are over 10 bytes, which is the limit", "Ask for fewer or smaller documents at once."
)
def answer_without_room(_: Path) -> str:
    return raised(lambda: AnswerBudget(10).take(11))


@case("'ann' names no member: write PIECE.MEMBER, like ann.total, or ann.lines#/0/qty")
def place_without_a_member(_: Path) -> str:
    return raised(lambda: split_place("ann"))
