"""The command line prints what the engine answers, for people and for programs, and never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest

import headwater
from headwater.cli.app import app, run
from headwater.cli.data import verify as verify_module
from headwater.data.address import Link
from headwater.data.patch import add, append, replace
from headwater.engine.directory import Directory
from headwater.engine.verify.oracle import Report, Violation
from headwater.errors import CorruptionError, StorageError
from headwater.protocol.commit import Commit, Operation, Provenance, SentEvent, TopicRecord
from tests.unit.engine.kit import doc, read, write

pytestmark = pytest.mark.thorough


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> Ran:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Ran(code=code, out=captured.out, err=captured.err)

    return call


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with one space: a cart on main, and two branches."""
    path = tmp_path / "data"
    with Directory(path, synchronous="OFF") as directory:
        engine = directory.space("shop")
        engine.open_session("ann")
        cart = {"lines": [{"sku": "tea", "qty": 1}], "$odd": b"\x00", "peer": Link(id="other")}
        engine.submit("ann", Commit(1, (write("cart", replace((), cart)),)))
        engine.submit(
            "ann",
            Commit(
                2,
                (write("cart", append(("lines",), [{"sku": "milk", "qty": 2}])),),
                (read("cart", ("lines",), seq=1),),
                events=(SentEvent("e1", "Cart.added", 1),),
                records=(TopicRecord("orders", "k", 1),),
                provenance=Provenance("Cart.add"),
            ),
        )
        engine.fork("clash")
        engine.fork("fine")
        engine.submit("ann", Commit(3, (write("cart", replace(("lines", 0, "qty"), 7)),), branch="clash"))
        engine.submit("ann", Commit(4, (write("cart", add(("note",), "hi")),), branch="fine"))
        engine.submit("ann", Commit(5, (write("cart", replace(("lines", 0, "qty"), 5)),)))
        engine.submit("ann", Commit(6, (Operation(doc("settings", "user:ann"), (replace((), {"a": 1}),)),)))
    return path


class TestTheWayIn:
    def test_without_a_command_it_shows_what_there_is(self, cli: Run) -> None:
        ran = cli()
        assert ran.code == 0
        for name in ("verify", "spaces", "log", "get", "compact", "branch"):
            assert name in ran.out

    def test_every_command_has_a_help_text_with_an_example(self, cli: Run) -> None:
        simple = [[name] for name in ("verify", "spaces", "log", "get", "compact")]
        branches = [["branch", name] for name in ("list", "new", "diff", "merge", "delete")]
        for words in [*simple, *branches]:
            ran = cli(*words, "--help")
            assert ran.code == 0
            assert f"Example: headwater {' '.join(words)} " in ran.out
            assert "--json" in ran.out

    def test_the_commands_for_a_data_directory_are_there(self) -> None:
        assert {"verify", "spaces", "log", "get", "compact", "branch"} <= set(app)
        assert {"list", "new", "diff", "merge", "delete"} <= set(app["branch"])

    def test_the_version_is_the_package_s(self, cli: Run) -> None:
        assert cli("--version").out.strip() == headwater.__version__

    @pytest.mark.parametrize(
        ("words", "says", "hint"),
        [
            (["nonsense"], "nonsense", "headwater --help"),
            (["branch", "nonsense"], "nonsense", "headwater branch --help"),
            (["log", "data"], "SPACE", "headwater log --help"),
            (["log", "data", "shop", "--frobnicate"], "--frobnicate", "headwater log --help"),
            (["log", "data", "shop", "--limit", "many"], "many", "headwater log --help"),
            (["compact", "data", "shop"], "--before", "headwater compact --help"),
            (["branch", "new", "data", "shop", "x", "--at", "abc"], "abc", "headwater branch new --help"),
        ],
    )
    def test_a_command_written_wrong_exits_2_and_says_where_to_look(
        self, cli: Run, words: list[str], says: str, hint: str
    ) -> None:
        ran = cli(*words)
        assert (ran.code, ran.out) == (2, "")
        assert says in ran.err
        assert f"Try: {hint}" in ran.err

    def test_it_also_runs_as_a_module(self, data: Path) -> None:
        command = [sys.executable, "-m", "headwater.cli", "spaces", str(data), "--json"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        assert [space["name"] for space in json.loads(ran.stdout)] == ["shop"]

    @pytest.mark.parametrize("missing", ["cyclopts", "rich"])
    def test_without_the_extra_it_says_what_to_install(self, missing: str) -> None:
        code = f"import sys; sys.modules[{missing!r}] = None; from headwater.cli import main; main()"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "pip install 'headwater[cli]'" in ran.stderr
        assert missing in ran.stderr
        assert "Traceback" not in ran.stderr

    def test_a_missing_package_that_is_not_of_the_extra_is_not_explained_away(self) -> None:
        code = "import sys; sys.modules['apsw'] = None; from headwater.cli import main; main()"
        ran = subprocess.run([sys.executable, "-c", code, "spaces", "."], capture_output=True, text=True, check=False)
        assert "No module named 'apsw'" in ran.stderr or "import of apsw halted" in ran.stderr
        assert "headwater[cli]" not in ran.stderr


class TestPlaces:
    """What is not there is said, not made."""

    @pytest.mark.parametrize(
        "words",
        [["spaces"], ["log", "shop"], ["get", "shop", "space:d"], ["branch", "list", "shop"]],
    )
    def test_a_directory_that_does_not_exist(self, cli: Run, tmp_path: Path, words: list[str]) -> None:
        missing = tmp_path / "missing"
        at = 2 if words[0] == "branch" else 1
        ran = cli(*words[:at], missing, *words[at:])
        assert ran.code == 1
        assert f"{missing} is not a directory" in ran.err
        assert not missing.exists()

    def test_a_space_that_does_not_exist(self, cli: Run, data: Path) -> None:
        ran = cli("log", data, "bakery")
        assert ran.code == 1
        assert "there is no space 'bakery'" in ran.err
        assert "Spaces there: shop." in ran.err
        assert not (data / "bakery.space").exists()

    def test_a_name_that_no_space_can_have(self, cli: Run, data: Path) -> None:
        ran = cli("log", data, "../shop")
        assert ran.code == 1
        assert "cannot name a space" in ran.err

    def test_a_directory_that_somebody_owns(self, cli: Run, data: Path) -> None:
        with Directory(data):
            ran = cli("spaces", data)
        assert ran.code == 1
        assert "is owned by process" in ran.err
        assert "Stop that process" in ran.err

    def test_the_spaces_are_listed_with_their_size(self, cli: Run, data: Path, tmp_path: Path) -> None:
        assert "shop" in cli("spaces", data).out
        size = (data / "shop.space").stat().st_size
        assert cli("spaces", data, "--json").json == [{"name": "shop", "bytes": size}]
        empty = tmp_path / "empty"
        empty.mkdir()
        assert "holds no space yet" in cli("spaces", empty).out

    def test_what_is_no_space_is_left_alone_and_named(self, cli: Run, data: Path) -> None:
        (data / "Foo.space").write_text("not mine")
        (data / "x.space").mkdir()
        (data / "gone.space").symlink_to(data / "nowhere")
        (data / "notes.txt").write_text("nobody's business")
        ran = cli("spaces", data, "--json")
        assert (ran.code, [each["name"] for each in ran.json]) == (0, ["shop"])
        assert ran.err.splitlines() == [
            f"headwater: {name} in {data} is not a space and was not changed"
            for name in ("Foo.space", "gone.space", "x.space")
        ]
        assert cli("log", data, "shop").code == 0
        assert (data / "Foo.space").read_text() == "not mine"

    def test_a_directory_named_like_a_space_is_none(self, cli: Run, data: Path) -> None:
        (data / "x.space").mkdir()
        ran = cli("log", data, "x")
        assert (ran.code, ran.out) == (1, "")
        assert "there is no space 'x'" in ran.err
        assert "x.space is not a file. Spaces there: shop." in ran.err


class TestLog:
    def test_commits_come_with_their_writer_and_what_they_wrote(self, cli: Run, data: Path) -> None:
        lines = cli("log", data, "shop").out.splitlines()
        assert len(lines) == 7
        assert "Cart.add" in lines[2]
        assert "append space:cart#/lines" in lines[2]
        assert "user:ann:settings" in lines[6]

    def test_pages_say_how_to_go_on(self, cli: Run, data: Path) -> None:
        ran = cli("log", data, "shop", "--since", 0, "--limit", 2)
        assert ran.out.splitlines()[-1] == "more: --since 2"
        rest = cli("log", data, "shop", "--since", 2, "--json").json
        assert [commit["seq"] for commit in rest["commits"]] == [3, 4, 5, 6]
        assert rest["next"] is None

    def test_limit_shows_the_newest_commits_and_how_to_see_earlier_ones(self, cli: Run, data: Path) -> None:
        page = cli("log", data, "shop", "--limit", 2, "--json").json
        assert [commit["seq"] for commit in page["commits"]] == [5, 6]
        assert cli("log", data, "shop", "--limit", 2).out.splitlines()[0] == "earlier commits: --since 2"
        branch = cli("log", data, "shop", "--limit", 1, "--branch", "fine", "--json").json
        assert [commit["seq"] for commit in branch["commits"]] == [4]

    def test_after_a_compaction_it_begins_with_what_is_kept(self, cli: Run, data: Path) -> None:
        cli("compact", data, "shop", "--before", 3)
        ran = cli("log", data, "shop")
        assert ran.code == 0
        assert ran.out.splitlines()[0] == "history before seq 3 was compacted away"
        assert ran.out.splitlines()[2].startswith("3 ")
        page = cli("log", data, "shop", "--since", 2, "--limit", 1, "--json").json
        assert ([commit["seq"] for commit in page["commits"]], page["next"], page["kept_from"]) == ([3], 3, 3)
        asked = cli("log", data, "shop", "--since", 0)
        assert (asked.code, "history before seq 3 was compacted away" in asked.err) == (1, True)

    def test_one_branch_alone(self, cli: Run, data: Path) -> None:
        commits = cli("log", data, "shop", "--branch", "fine", "--json").json["commits"]
        assert [(commit["seq"], commit["branch"]) for commit in commits] == [(4, "fine")]

    def test_a_program_gets_everything(self, cli: Run, data: Path) -> None:
        page = cli("log", data, "shop", "--since", 1, "--limit", 1, "--json").json
        (commit,) = page["commits"]
        assert page["next"] == 2
        assert commit["writes"] == [
            {"kind": "append", "address": "space:cart#/lines", "value": [[{"sku": "milk", "qty": 2}], None]}
        ]
        assert commit["reads"] == [{"address": "space:cart#/lines", "seq": 1}]
        assert commit["events"] == [{"id": "e1", "stream": "Cart.added"}]
        assert commit["records"] == [{"topic": "orders", "key": "k"}]
        assert (commit["session"], commit["local_seq"], commit["node"]) == ("ann", 2, "Cart.add")

    @pytest.mark.parametrize("since", ["-5", "99999999999999999999"])
    def test_a_seq_that_cannot_be_exits_1_with_the_reason(self, cli: Run, data: Path, since: str) -> None:
        ran = cli("log", data, "shop", f"--since={since}")
        assert (ran.code, ran.out) == (1, "")
        assert f"changes are read since a seq from 0 to 9007199254740991, not {since}" in ran.err

    def test_a_page_of_nothing_is_refused(self, cli: Run, data: Path) -> None:
        ran = cli("log", data, "shop", "--limit", 0)
        assert (ran.code, ran.err) == (1, "headwater: a page holds at least one row, not 0\n")


class TestGet:
    def test_a_value_is_printed_as_json(self, cli: Run, data: Path) -> None:
        assert cli("get", data, "shop", "space:cart#/lines/0").json == {"sku": "tea", "qty": 5}
        assert cli("get", data, "shop", "user:ann:settings").json == {"a": 1}
        whole = cli("get", data, "shop", "shop/space:cart").json
        assert whole["$$odd"] == {"$bytes": "AA=="}
        assert whole["peer"]["$link"]["id"] == "other"

    def test_the_past_and_a_branch(self, cli: Run, data: Path) -> None:
        place = "space:cart#/lines/0/qty"
        assert cli("get", data, "shop", place, "--at", 2).out == "1\n"
        assert cli("get", data, "shop", place, "--branch", "clash").out == "7\n"
        assert cli("get", data, "shop", place, "--branch", "clash", "--json").json == {
            "address": place, "branch": "clash", "value": 7, "seq": 3, "as_of": 6,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["space:cart#/nope"], "nothing is at space:cart#/nope on branch 'main' at seq 6: the document has no"),
            (["space:none"], "the document is absent"),
            (["cart"], "names no member: write PIECE.MEMBER"),
            (["bakery/space:cart"], "is in space 'bakery', and the command reads 'shop'"),
            (["space:cart", "--at", "99"], "there is no seq 99: the log of this space ends at 6"),
            (["space:cart", "--branch", "gone"], "branch 'gone' does not exist"),
        ],
    )
    def test_what_is_not_there_exits_1_with_the_reason(self, cli: Run, data: Path, words: list[str], says: str) -> None:
        ran = cli("get", data, "shop", *words)
        assert (ran.code, ran.out) == (1, "")
        assert says in ran.err


class TestBranch:
    def test_they_are_listed(self, cli: Run, data: Path) -> None:
        assert [line.split()[0] for line in cli("branch", "list", data, "shop").out.splitlines()] == [
            "branch", "clash", "fine", "main",
        ]  # fmt: skip
        listed = cli("branch", "list", data, "shop", "--json").json
        assert [(each["name"], each["parent"], each["fork_seq"]) for each in listed["branches"]] == [
            ("clash", "main", 2),
            ("fine", "main", 2),
            ("main", None, 0),
        ]
        assert listed["next"] is None

    def test_they_are_listed_in_pages_whose_cursor_outlives_its_branch(self, cli: Run, data: Path) -> None:
        ran = cli("branch", "list", data, "shop", "--limit", 1)
        assert [line.split()[0] for line in ran.out.splitlines()] == ["branch", "clash", "more:"]
        assert ran.out.splitlines()[-1] == "more: --after clash"
        cli("branch", "delete", data, "shop", "clash")
        page = cli("branch", "list", data, "shop", "--after", "clash", "--limit", 1, "--json").json
        assert ([each["name"] for each in page["branches"]], page["next"]) == (["fine"], "fine")
        page = cli("branch", "list", data, "shop", "--after", "fine", "--limit", 1, "--json").json
        assert ([each["name"] for each in page["branches"]], page["next"]) == (["main"], None)

    @pytest.mark.parametrize("words", [["list"], ["diff", "fine"]])
    def test_a_page_of_no_branches_or_changes_is_refused(self, cli: Run, data: Path, words: list[str]) -> None:
        ran = cli("branch", words[0], data, "shop", *words[1:], "--limit", 0)
        assert (ran.code, ran.err) == (1, "headwater: a page holds at least one row, not 0\n")

    def test_a_long_difference_is_cut_for_people_and_whole_for_programs(self, cli: Run, data: Path) -> None:
        with Directory(data, synchronous="OFF") as directory:
            engine = directory.space("shop")
            patches = [add((f"k{n:03}",), n) for n in range(120)]
            engine.submit("ann", Commit(7, (write("cart", *patches),), branch="fine"))
        lines = cli("branch", "diff", data, "shop", "fine").out.splitlines()
        assert lines[0] == "'fine' against 'main': 121 changes in 1 document"
        assert len(lines) == 103
        assert lines[-1] == "and 21 changes more: headwater branch diff ... fine --json lists all"
        assert len(cli("branch", "diff", data, "shop", "fine", "--json").json["changes"]) == 121

    def test_a_difference_of_many_documents_comes_in_pages(self, cli: Run, data: Path) -> None:
        with Directory(data, synchronous="OFF") as directory:
            engine = directory.space("shop")
            written = [write(f"extra{n}", add((), n)) for n in range(4)]
            engine.submit("ann", Commit(7, tuple(written), branch="fine"))
        seen: list[str] = []
        after: str | None = ""
        for _ in range(3):
            form = cli("branch", "diff", data, "shop", "fine", "--after", after, "--limit", 2, "--json").json
            seen += [change["address"] for change in form["changes"]]
            after = form["next"]
        assert seen == ["space:cart#/note", *(f"space:extra{n}" for n in range(4))]
        assert after is None
        lines = cli("branch", "diff", data, "shop", "fine", "--limit", 2).out.splitlines()
        assert lines[0] == "'fine' against 'main': 2 changes in 2 documents"
        assert lines[-1].startswith("more: --after ")
        following = cli("branch", "diff", data, "shop", "fine", *lines[-1].split()[1:]).out.splitlines()
        assert following[0] == "'fine' against 'main': 3 changes in 3 documents"
        assert cli("branch", "diff", data, "shop", "fine", "--after", "here").code == 1

    def test_one_is_made_at_a_seq_from_any_parent(self, cli: Run, data: Path) -> None:
        assert "begins as 'main' was at seq 1" in cli("branch", "new", data, "shop", "past", "--at", 1).out
        made = cli("branch", "new", data, "shop", "deep", "--parent", "clash", "--json").json
        assert made == {"name": "deep", "parent": "clash", "fork_seq": 6}
        assert cli("get", data, "shop", "space:cart#/lines/0/qty", "--branch", "deep").out == "7\n"

    def test_a_bad_name_is_refused(self, cli: Run, data: Path) -> None:
        ran = cli("branch", "new", data, "shop", "Not-Good")
        assert ran.code == 1
        assert "is not a branch name: use 1 to 64 of a-z" in ran.err

    def test_a_difference_is_shown_with_what_collides(self, cli: Run, data: Path) -> None:
        ran = cli("branch", "diff", data, "shop", "clash")
        assert ran.code == 0
        assert "'clash' against 'main': 1 change in 1 document" in ran.out
        assert "space:cart#/lines/0/qty" in ran.out
        assert "collides: space:cart#/lines/0/qty" in ran.out
        form = cli("branch", "diff", data, "shop", "fine", "--json").json
        assert form["changes"] == [{"kind": "add", "address": "space:cart#/note", "value": "hi"}]
        assert form["collisions"] == []

    def test_a_merge_lands_in_the_parent(self, cli: Run, data: Path) -> None:
        ran = cli("branch", "merge", data, "shop", "fine")
        assert ran.code == 0
        assert "merged into 'main' at seq 7" in ran.out
        assert cli("get", data, "shop", "space:cart#/note").out == '"hi"\n'
        again = cli("branch", "merge", data, "shop", "fine")
        assert (again.code, "nothing to merge" in again.out) == (0, True)

    def test_a_merge_with_collisions_exits_1_and_writes_nothing(self, cli: Run, data: Path) -> None:
        ran = cli("branch", "merge", data, "shop", "clash")
        assert ran.code == 1
        assert "nothing was merged. Undo these changes on 'clash' or make them on 'main'" in ran.out
        form = cli("branch", "merge", data, "shop", "clash", "--json")
        assert (form.code, form.json["merged_seq"]) == (1, None)
        assert [(c["address"], c["seq"], c["session"]) for c in form.json["collisions"]] == [
            ("space:cart#/lines/0/qty", 5, "ann")
        ]
        assert cli("get", data, "shop", "space:cart#/lines/0/qty").out == "5\n"

    def test_a_deleted_branch_is_gone_and_its_name_stays_taken(self, cli: Run, data: Path) -> None:
        assert cli("branch", "delete", data, "shop", "fine").out == "branch 'fine' is deleted\n"
        assert cli("branch", "delete", data, "shop", "clash", "--json").json == {"deleted": "clash"}
        assert "was deleted" in cli("branch", "diff", data, "shop", "fine").err
        assert "Names are never reused" in cli("branch", "new", data, "shop", "fine").err

    def test_main_has_nothing_to_be_compared_with(self, cli: Run, data: Path) -> None:
        ran = cli("branch", "diff", data, "shop", "main")
        assert (ran.code, "has no parent to compare with" in ran.err) == (1, True)


class TestCompact:
    def test_it_says_from_where_history_is_kept(self, cli: Run, data: Path) -> None:
        cli("branch", "delete", data, "shop", "fine")
        cli("branch", "delete", data, "shop", "clash")
        assert cli("compact", data, "shop", "--before", 4).out == "history is kept from seq 4\n"
        ran = cli("get", data, "shop", "space:cart", "--at", 1)
        assert (ran.code, "was compacted away" in ran.err) == (1, True)

    def test_it_says_when_something_older_is_still_needed(self, cli: Run, data: Path) -> None:
        ran = cli("compact", data, "shop", "--before", 6)
        assert ran.out == "history is kept from seq 3, not 6: branch 'clash' begins as 'main' was at seq 2\n"
        form = cli("compact", data, "shop", "--before", 6, "--json").json
        assert form == {"kept_from": 3, "asked": 6, "last_seq": 6}

    def test_beyond_the_end_it_says_where_the_log_ends(self, cli: Run, data: Path) -> None:
        cli("branch", "delete", data, "shop", "fine")
        cli("branch", "delete", data, "shop", "clash")
        asked = 99_999_999_999
        assert cli("compact", data, "shop", "--before", asked).out == (
            f"history is kept from seq 6, not {asked}: the log ends at seq 6, and its newest frame always stays\n"
        )

    def test_inside_a_wave_it_says_that_frames_are_kept_whole(self, cli: Run, tmp_path: Path) -> None:
        with Directory(tmp_path, synchronous="OFF") as directory:
            engine = directory.space("shop")
            engine.open_session("ann")
            engine.submit("ann", Commit(1, (write("cart", replace((), 0)),)))
            engine.submit("ann", *(Commit(n, (write("cart", replace((), n)),)) for n in range(2, 5)))
            engine.submit("ann", Commit(5, (write("cart", replace((), 5)),)))
        assert cli("compact", tmp_path, "shop", "--before", 4).out == (
            "history is kept from seq 2, not 4: seq 4 is in the middle of a wave that begins there\n"
        )

    def test_it_says_when_there_was_nothing_to_give_up(self, cli: Run, data: Path, tmp_path: Path) -> None:
        assert cli("compact", data, "shop", "--before", 0).out == "history is kept from seq 1, as it was before\n"
        cli("compact", data, "shop", "--before", 3)
        assert cli("compact", data, "shop", "--before", 2).out == "history is kept from seq 3, as it was before\n"
        with Directory(tmp_path / "new", synchronous="OFF") as directory:
            directory.space("empty").fork("b")
        assert cli("compact", tmp_path / "new", "empty", "--before", 9).out == "there is no history yet\n"


class TestVerify:
    def test_a_good_file_exits_0(self, cli: Run, data: Path) -> None:
        ran = cli("verify", data / "shop.space")
        assert ran.code == 0
        assert "every rule holds (6 commits, 2 documents, 3 branches)" in ran.out
        report = cli("verify", data / "shop.space", "--json")
        assert (report.code, report.json["ok"], report.json["violation"]) == (0, True, None)
        assert report.json["commits"] == 6

    def test_a_violation_exits_1_with_the_rule_and_the_commit(
        self, cli: Run, data: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = Violation(rule="C1", seq=4, message="commit 4 missed the write of commit 3")
        report = Report(commits=3, documents=1, branches=1, violation=found, notes=("a note",))
        monkeypatch.setattr(verify_module, "verify_file", lambda path, progress=None: report)
        ran = cli("verify", data / "shop.space")
        assert ran.code == 1
        assert "rule C1 does not hold at seq 4" in ran.out
        assert "commit 4 missed the write of commit 3" in ran.out
        assert "note: a note" in ran.out
        form = cli("verify", data / "shop.space", "--json")
        assert form.code == 1
        assert form.json["violation"] == {"rule": "C1", "seq": 4, "message": found.message}

    @pytest.mark.parametrize(("error", "code"), [(CorruptionError("torn"), 1), (StorageError("busy"), 2)])
    def test_damage_exits_1_and_what_cannot_be_read_at_all_exits_2(
        self, cli: Run, data: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
    ) -> None:
        def fails(path: Path, progress: object = None) -> Report:
            raise error

        monkeypatch.setattr(verify_module, "verify_file", fails)
        ran = cli("verify", data / "shop.space")
        assert (ran.code, ran.err) == (code, f"headwater: {error}\n")

    def test_file_that_is_not_there_and_directory_without_spaces_exit_2(self, cli: Run, data: Path) -> None:
        ran = cli("verify", data / "other.space")
        assert (ran.code, "neither a file nor a directory" in ran.err) == (2, True)
        (data / "empty").mkdir()
        ran = cli("verify", data / "empty")
        assert (ran.code, "holds no space" in ran.err) == (2, True)

    def test_a_damaged_file_is_named_with_what_is_wrong(self, cli: Run, tmp_path: Path) -> None:
        other = tmp_path / "letter.txt"
        other.write_text("Dear Ann, this is not a database.\n" * 100)
        ran = cli("verify", other)
        assert ran.code == 1
        assert f"{other}: rule integrity does not hold\n" in ran.out

    def test_a_database_of_somebody_else_exits_2(self, cli: Run, tmp_path: Path) -> None:
        path = tmp_path / "theirs.db"
        connection = apsw.Connection(str(path))
        connection.cursor().execute("CREATE TABLE theirs (x)")
        connection.close()
        ran = cli("verify", path)
        assert (ran.code, ran.out) == (2, "")
        assert "not a Headwater space" in ran.err

    def test_a_file_in_use_exits_2_and_says_what_to_do(self, cli: Run, data: Path) -> None:
        with Directory(data) as directory:
            directory.space("shop")
            ran = cli("verify", data / "shop.space")
        assert (ran.code, ran.out) == (2, "")
        assert "in use by another process" in ran.err

    def test_an_edited_history_is_found(self, cli: Run, data: Path) -> None:
        connection = apsw.Connection(str(data / "shop.space"))
        connection.cursor().execute("UPDATE log SET at_us = at_us + 1 WHERE seq = 3")
        connection.close()
        ran = cli("verify", data / "shop.space")
        assert ran.code == 1
        assert "at seq 3" in ran.out

    def test_progress_is_shown_on_a_terminal_only(
        self, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        assert run(["verify", str(data / "shop.space")]) == 0
        captured = capsys.readouterr()
        assert "verifying" in captured.err
        assert captured.out.endswith("every rule holds (6 commits, 2 documents, 3 branches)\n")


def test_question_to_a_directory_loads_no_runtime(data: Path) -> None:
    """A command that reads a file starts in a part of the time in which a program of pieces does."""
    code = (
        "import sys; from headwater.cli.app import run; "
        f"assert run(['get', {str(data)!r}, 'shop', 'space:cart']) == 0; "
        "print([name for name in sys.modules if name.startswith(('headwater.scheduler', 'headwater.runtime.core'))])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr, ran.stdout.splitlines()[-1]) == (0, "", "[]")
