"""What works so far, in a few seconds: `python -m examples.demo`, or `./dev demo`.

Two people share a shopping list. They edit at once, collide, retry, and add to one list without colliding. Then
the program is killed in the middle of its work, the log is opened again, and nothing that was acknowledged is
missing. A branch is tried and merged, the past is read, and the whole history is checked against the rules. Then
a small graph of derived values follows what is written, runs only what somebody looks at, and says why. At the end
a kanban board is served at an address that it prints, with two people at work on it, until somebody says stop.

Every step checks what it claims. With `--check` nothing is told but the summary, and a step that does not hold
ends the program with an error. All of it happens in a temporary directory that is removed at the end.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from examples.demo_board import a_board_is_shared
from examples.demo_graph import a_graph_settles
from headwater.data.address import Depth, DocKey, doc_text
from headwater.data.codec import to_json
from headwater.data.patch import Patch, add, append, replace
from headwater.data.path import Path as ValuePath
from headwater.data.value import Value, lookup
from headwater.engine.directory import Directory
from headwater.engine.engine import Engine
from headwater.engine.verify.oracle import verify_file
from headwater.protocol.commit import Commit, Operation, Provenance, Read
from headwater.protocol.verdict import Accepted, Conflict, Rejected, Verdict, conflict_text

SPACE = "home"
LIST = DocKey("space", "shopping")
DIARY = DocKey("space", "diary")
ACKNOWLEDGED_BEFORE_THE_KILL = 200
CHAPTERS = 12
UNATTENDED_S = 3.0


class Story:
    """Tells what happens, in colour where a terminal and rich are there. Silent when it is only a check."""

    def __init__(self, *, silent: bool) -> None:
        self._silent = silent
        self._console = None
        self.checked = 0
        if not silent:
            try:
                from rich.console import Console  # noqa: PLC0415 (rich is optional)

                self._console = Console(highlight=False)
            except ModuleNotFoundError:
                pass

    def chapter(self, title: str) -> None:
        self._tell(f"\n{title}", "bold cyan")

    def tell(self, line: str) -> None:
        """What happens."""
        self._tell(f"  {line}", None)

    def because(self, line: str) -> None:
        """Why it matters."""
        self._tell(f"  {line}", "italic green")

    def show(self, line: str) -> None:
        """What the engine says, word for word."""
        self._tell(f"    {line}", "yellow")

    def holds(self, condition: bool, claim: str) -> None:
        """A claim of the story that is checked while it is told."""
        if not condition:
            raise SystemExit(f"the demo claims that {claim}, and it does not hold")
        self.checked += 1

    def _tell(self, line: str, style: str | None) -> None:
        if self._silent:
            return
        if self._console is None:
            print(line)
        else:
            self._console.print(line, style=style, markup=False, soft_wrap=True)


class Person:
    """Somebody with a session: looks at the list, then changes it on the strength of what was seen."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name
        self._sent = engine.open_session(name).last

    def look(self, doc: DocKey, path: ValuePath = ()) -> tuple[Value, Read]:
        """A value, and the record of having read it."""
        document = self._engine.read(doc)
        value = lookup(document.value, path)
        return value, Read(doc, path, Depth.DEEP, document.as_of)  # type: ignore[return-value]  # All is there.

    def change(self, doc: DocKey, *patches: Patch, seen: Sequence[Read] = (), branch: str = "main") -> Verdict:
        self._sent += 1
        commit = Commit(
            self._sent,
            (Operation(doc, patches),),
            tuple(seen),
            branch=branch,
            provenance=Provenance(f"{self.name}'s phone"),
        )
        return self._engine.submit(self.name, commit)[0]


def two_people_edit_at_once(story: Story, engine: Engine) -> None:
    story.chapter("1. Two people, one shopping list")
    ann, bob = Person(engine, "ann"), Person(engine, "bob")
    ann.change(LIST, replace((), {"tea": {"qty": 1}, "milk": {"qty": 2}}))
    story.tell("Ann and Bob look at the same list, then both edit it: she the tea, he the milk.")
    tea, saw_tea = ann.look(LIST, ("tea", "qty"))
    milk, saw_milk = bob.look(LIST, ("milk", "qty"))
    first = ann.change(LIST, replace(("tea", "qty"), 3), seen=[saw_tea])
    second = bob.change(LIST, replace(("milk", "qty"), 4), seen=[saw_milk])
    story.holds((tea, milk) == (1, 2), "both saw the same list")
    story.holds(isinstance(first, Accepted) and isinstance(second, Accepted), "disjoint edits both land")
    story.show(text(engine.read(LIST).value))
    story.because("Nobody waited and nobody lost: writes collide only where they touch what the other read.")


def a_conflict_is_loud(story: Story, engine: Engine) -> None:
    story.chapter("2. The same line, at the same time")
    ann, bob = Person(engine, "ann"), Person(engine, "bob")
    seen, saw = bob.look(LIST, ("tea", "qty"))
    story.tell(f"Bob sees {text(seen)} packs of tea and wants one more. Before he presses the button, Ann writes 10.")
    ann.change(LIST, replace(("tea", "qty"), 10))
    rejected = bob.change(LIST, replace(("tea", "qty"), number(seen) + 1), seen=[saw])
    story.holds(isinstance(rejected, Rejected), "a stale write is rejected")
    conflict = rejected.rejection if isinstance(rejected, Rejected) else Conflict()
    story.holds(isinstance(conflict, Conflict), "the rejection is a conflict")
    if isinstance(conflict, Conflict):
        (collision,) = conflict.collisions
        where = (collision.doc, collision.path, collision.session)
        story.holds(where == (LIST, ("tea", "qty"), "ann"), "the conflict names the address and the winner")
        story.show(conflict_text(conflict))
    story.because("The write did not vanish and did not overwrite Ann's: Bob is told where, and by whom.")
    seen, saw = bob.look(LIST, ("tea", "qty"))
    retried = bob.change(LIST, replace(("tea", "qty"), number(seen) + 1), seen=[saw])
    story.holds(isinstance(retried, Accepted), "the retry on fresh state lands")
    story.holds(lookup(engine.read(LIST).value, ("tea", "qty")) == 11, "both intentions are in the result")
    story.tell(f"He looks again, sees {text(seen)}, adds one: {text(engine.read(LIST).value)}")


def appends_merge(story: Story, engine: Engine) -> None:
    story.chapter("3. Ten people, one diary")
    people = [Person(engine, f"guest-{n}") for n in range(10)]
    verdicts = [
        person.change(DIARY, append((), [f"{person.name} wrote line {line}"])) for line in range(5) for person in people
    ]
    lines = engine.read(DIARY).value
    story.holds(all(isinstance(v, Accepted) for v in verdicts), "appends by intent never conflict")
    story.holds(isinstance(lines, tuple) and len(set(lines)) == 50, "all fifty lines are there, once each")
    story.tell("Ten guests append five lines each, none of them reading first: 50 accepted, 0 conflicts, one order.")
    story.because("An intent says what is meant (add this line), not what the list should be. It merges.")


def a_crash_loses_nothing(story: Story, folder: Path) -> None:
    story.chapter("4. Pulling the plug")
    acknowledged = commit_until_killed(folder)
    story.holds(len(acknowledged) >= ACKNOWLEDGED_BEFORE_THE_KILL, "the child was killed in the middle of its work")
    story.tell(
        f"A child process committed as fast as it could; it was killed with SIGKILL after {len(acknowledged)} answers."
    )
    with Directory(folder) as directory:
        engine = directory.space(SPACE)
        there: dict[int, int] = {}
        since: int | None = 0
        while since is not None:
            page = engine.changes(since=since)
            there |= {c.commit.local_seq: c.seq for c in page.items if c.session == "child"}
            since = int(page.next) if page.next is not None else None
    missing = [local_seq for local_seq, seq in acknowledged.items() if there.get(local_seq) != seq]
    story.holds(not missing, "every acknowledged commit is in the reopened log, at its seq")
    story.holds(len(there) <= len(acknowledged) + 1, "at most one commit landed whose answer did not arrive")
    story.tell(
        f"Opened again: {len(there)} commits of the child are in the log, none that it had an answer for is missing."
    )
    story.because("An answer leaves only after the data is on the disk. What you were told, is.")


def a_branch_is_tried(story: Story, engine: Engine) -> None:
    story.chapter("5. What if?")
    ann, bob = Person(engine, "ann"), Person(engine, "bob")
    engine.fork("party")
    story.tell(
        "Ann forks the list for a party (one row, however long the history) while Bob goes on with the real one."
    )
    ann.change(LIST, add(("cake",), {"qty": 1}), replace(("tea", "qty"), 40), branch="party")
    bob.change(LIST, replace(("milk", "qty"), 1))
    story.show(f"main:  {text(engine.read(LIST).value)}")
    story.show(f"party: {text(engine.read(LIST, branch='party').value)}")
    difference = engine.diff("party")
    for change in difference.changes:
        for patch in change.patches:
            story.show(f"{patch.kind} {doc_text(change.doc, patch.path)} {text(patch.arg)}")
    _, verdict = engine.merge("party")
    merged = engine.read(LIST).value
    story.holds(isinstance(verdict, Accepted), "a branch without collisions merges in one commit")
    story.holds(
        merged == {"tea": {"qty": 40}, "milk": {"qty": 1}, "cake": {"qty": 1}},
        "the merge keeps both Ann's party and Bob's milk",
    )
    story.tell(f"Merged: {text(merged)}")
    story.because("A branch is a cheap place to try something; merging it is an ordinary, checked commit.")


def the_past_is_there(story: Story, engine: Engine) -> None:
    story.chapter("6. What was it like?")
    last = engine.last_seq
    for at in (1, 3, 5, last):
        story.show(f"seq {at:>4}: {text(engine.read(LIST, at=at).value)}")
    first = engine.read(LIST, at=1).value
    story.holds(first == {"tea": {"qty": 1}, "milk": {"qty": 2}}, "the first list can still be read")
    story.because("Any moment can be read back, on any branch, at a cost that does not grow with history.")


def the_history_is_verified(story: Story, file: Path) -> None:
    story.chapter("7. Do not take our word for it")
    report = verify_file(file)
    story.holds(report.ok, "a naive replay of the whole history finds every rule kept")
    story.tell(
        f"verified {report.commits} commits, {report.documents} documents, {report.branches} branches: every rule holds"
    )
    story.because(
        "The checker is a second, naive definition of the rules. `headwater verify FILE` runs it on any space."
    )


# --- the process that is killed --------------------------------------------------------------------------


def commit_until_killed(folder: Path) -> dict[int, int]:
    """Start a process that commits, kill it without warning, and answer what it was told before that."""
    command = [sys.executable, "-m", "examples.demo", "--child", str(folder)]
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(ACKNOWLEDGED_BEFORE_THE_KILL)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout
    pairs = [line.split() for line in lines if line.endswith("\n")]
    return {int(local_seq): int(seq) for local_seq, seq in pairs}


def child(folder: Path) -> None:
    with Directory(folder) as directory:
        engine = directory.space(SPACE)
        engine.open_session("child")
        for local_seq in range(1, 1_000_000):
            line = append((), [f"line {local_seq}"], keep=100)
            (verdict,) = engine.submit("child", Commit(local_seq, (Operation(DocKey("space", "child"), (line,)),)))
            if isinstance(verdict, Accepted):
                print(verdict.local_seq, verdict.seq, flush=True)


# --- all of it -------------------------------------------------------------------------------------------


def text(value: object) -> str:
    return to_json(value).decode()  # type: ignore[arg-type]  # Only values are shown.


def number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def tell(story: Story, *, check: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as temporary:
        folder = Path(temporary)
        with Directory(folder) as directory:
            engine = directory.space(SPACE)
            two_people_edit_at_once(story, engine)
            a_conflict_is_loud(story, engine)
            appends_merge(story, engine)
        a_crash_loses_nothing(story, folder)
        with Directory(folder) as directory:
            engine = directory.space(SPACE)
            a_branch_is_tried(story, engine)
            the_past_is_there(story, engine)
            file = directory.file_of(SPACE)
        the_history_is_verified(story, file)
        asyncio.run(a_graph_settles(story, folder / "cart"))
        asyncio.run(a_board_is_shared(story, folder / "team", for_s=0 if check else _patience_s()))


def _patience_s() -> float | None:
    """How long the board is served: until somebody says stop, or for a moment where nobody could."""
    return None if sys.stdout.isatty() else UNATTENDED_S


def main(arguments: Sequence[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "--child":
        child(Path(arguments[1]))
        return 0
    if arguments not in ([], ["--check"]):
        print("usage: python -m examples.demo [--check]", file=sys.stderr)
        return 2
    story = Story(silent=bool(arguments))
    tell(story, check=bool(arguments))
    if arguments:
        print(f"demo: {CHAPTERS} chapters, {story.checked} claims checked, all hold")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
