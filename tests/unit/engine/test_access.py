"""Who may read, write and administer a space, and what each refusal says."""

from __future__ import annotations

import pytest

from headwater.clock import VirtualClock
from headwater.data.address import Depth, DocKey
from headwater.data.patch import Patch, add_unique, append, remove, remove_value, replace
from headwater.engine.admission.access import ACCESS, founding
from headwater.engine.engine import Engine
from headwater.engine.store.sqlite import SqliteStore
from headwater.protocol.commit import Commit, EntityAbsent, Operation, Read, SentEvent, TopicRecord
from headwater.protocol.verdict import Accepted, Conflict, Rejected, RuleRefused, Verdict, as_error
from tests.unit.engine.kit import Writer, doc, read, seq_of, write

ROLES = {"owners": ["ann"], "writers": ["wes"], "readers": ["rob"]}


class Space:
    """A space with an access document and a session for whoever asks."""

    def __init__(self, access: object = ROLES) -> None:
        self.engine = Engine(SqliteStore(":memory:", synchronous="OFF"), clock=VirtualClock(), access=True)
        self.root = Writer(self.engine, "root")
        if access is not None:
            self.root.lands(Operation(ACCESS, (replace((), access),)))
        self.root.lands(write("d", replace((), {"x": 0})))
        self.writers: dict[str, Writer] = {}

    def of(self, user: str) -> Writer:
        if user not in self.writers:
            self.writers[user] = Writer(self.engine, f"session-of-{user}", principal=user)
        return self.writers[user]

    def send(self, user: str, *operations: Operation, **options: object) -> Verdict:
        return self.of(user).send(*operations, **options)  # type: ignore[arg-type]

    def changes_access(self, user: str, *patches: Patch) -> Verdict:
        return self.send(user, Operation(ACCESS, patches))

    def roles(self) -> object:
        return self.engine.read(ACCESS).value


def refusal(verdict: Verdict) -> str:
    assert isinstance(verdict, Rejected), verdict
    assert isinstance(verdict.rejection, RuleRefused), verdict
    assert verdict.rejection.rule == "access"
    return verdict.rejection.detail


class TestReadingAndWriting:
    @pytest.mark.parametrize("user", ["ann", "wes"])
    def test_owners_and_writers_write(self, user: str) -> None:
        space = Space()
        assert seq_of(space.send(user, write("d", replace(("x",), 1)), reads=[read("d", seq=2)]))

    def test_a_reader_cannot_write_and_is_told_so(self) -> None:
        space = Space()
        said = refusal(space.send("rob", write("d", replace(("x",), 1))))
        assert said == "'rob' may read this space, but not write to it"
        assert space.engine.read(doc("d")).value == {"x": 0}

    @pytest.mark.parametrize("what", ["operation", "read", "event", "record", "nothing"])
    def test_a_stranger_can_do_nothing_at_all(self, what: str) -> None:
        space = Space()
        stranger = space.of("sam")
        commit = {
            "operation": Commit(1, (write("d", replace(("x",), 1)),)),
            "read": Commit(1, (), (read("d", seq=0),)),
            "event": Commit(1, events=(SentEvent("e", "s", 1),)),
            "record": Commit(1, records=(TopicRecord("t", "k", 1),)),
            "nothing": Commit(1),
        }[what]
        (verdict,) = space.engine.submit(stranger.key, commit)
        assert refusal(verdict) == "'sam' may not use this space. Ask one of its owners."

    def test_a_reader_sends_no_events_and_emits_no_records(self) -> None:
        space = Space()
        rob = space.of("rob")
        for number, commit in enumerate(
            (Commit(1, events=(SentEvent("e", "s", 1),)), Commit(2, records=(TopicRecord("t", "k", 1),)))
        ):
            (verdict,) = space.engine.submit(rob.key, commit)
            assert "but not write" in refusal(verdict), number

    def test_a_refused_commit_is_refused_again_and_leaves_no_trace(self) -> None:
        space = Space()
        rob = space.of("rob")
        commit = Commit(1, (write("d", replace(("x",), 1)),))
        last = space.engine.last_seq
        assert space.engine.submit(rob.key, commit) == space.engine.submit(rob.key, commit)
        assert space.engine.last_seq == last

    def test_the_engine_s_own_sessions_may_all(self) -> None:
        space = Space()
        assert isinstance(space.root.send(Operation(DocKey("user:ann", "x"), (replace((), 1),))), Accepted)

    def test_everybody_is_written_with_a_star(self) -> None:
        space = Space({"owners": ["ann"], "readers": ["*"]})
        assert "not write" in refusal(space.send("anyone", write("d", replace(("x",), 1))))
        space = Space({"owners": ["ann"], "writers": ["*"]})
        assert seq_of(space.send("anyone", write("d", replace(("x",), 1))))

    def test_the_strongest_of_several_roles_counts(self) -> None:
        space = Space({"owners": ["ann"], "writers": ["rob"], "readers": ["rob", "*"]})
        assert seq_of(space.send("rob", write("d", replace(("x",), 1))))

    def test_a_space_without_an_access_document_is_open(self) -> None:
        space = Space(None)
        assert seq_of(space.send("whoever", write("d", replace(("x",), 1))))

    def test_an_engine_that_does_not_check_lets_everything_pass(self) -> None:
        engine = Engine(SqliteStore(":memory:", synchronous="OFF"), clock=VirtualClock())
        assert engine.is_founded
        sam = Writer(engine, "s", principal="sam")
        assert sam.lands(Operation(DocKey("user:ann", "x"), (replace((), 1),)))
        assert engine.may_see(DocKey("user:ann", "x"), "sam", "s")


class TestScopes:
    @pytest.mark.parametrize("user", ["ann", "wes", "rob"])
    def test_everybody_who_may_read_keeps_documents_of_their_own(self, user: str) -> None:
        space = Space()
        own = DocKey(f"user:{user}", "settings")
        here = DocKey(f"session:session-of-{user}", "scroll")
        assert seq_of(space.send(user, Operation(own, (replace((), 1),)), Operation(here, (replace((), 2),))))

    @pytest.mark.parametrize("user", ["ann", "wes", "rob"])
    @pytest.mark.parametrize("scope", ["user:zoe", "session:session-of-zoe"])
    @pytest.mark.parametrize("how", ["write", "read", "probe"])
    def test_nobody_touches_what_belongs_to_somebody_else(self, user: str, scope: str, how: str) -> None:
        """Not even an owner; and not even whether it exists can be found out."""
        space = Space()
        key = DocKey(scope, "secret")
        space.root.lands(Operation(key, (replace((), "s"),)))
        writer = space.of(user)
        commit = {
            "write": Commit(1, (Operation(key, (replace((), 1),)),)),
            "read": Commit(1, (), (Read(key, (), Depth.DEEP, 0),)),
            "probe": Commit(1, preconditions=(EntityAbsent(key),)),
        }[how]
        (verdict,) = space.engine.submit(writer.key, commit)
        assert refusal(verdict) == f"{scope}:secret belongs to another user or session than {user!r}"

    def test_an_absent_document_of_somebody_else_gives_the_same_answer(self) -> None:
        space = Space()
        rob = space.of("rob")
        for number, name in enumerate(("there", "not-there"), 1):
            key = DocKey("user:zoe", name)
            if name == "there":
                space.root.lands(Operation(key, (replace((), 1),)))
            (verdict,) = space.engine.submit(rob.key, Commit(number, preconditions=(EntityAbsent(key),)))
            assert refusal(verdict) == f"user:zoe:{name} belongs to another user or session than 'rob'"

    def test_who_may_see_what(self) -> None:
        engine = Space().engine
        seen = {user: [engine.may_see(key, user, "s1") for key in KEYS] for user in ("ann", "wes", "rob", "sam", "")}
        assert seen == {
            "ann": [True, True, False, True, False],
            "wes": [True, False, False, True, False],
            "rob": [True, False, True, True, False],
            "sam": [False] * 5,
            "": [True] * 5,
        }


KEYS = (
    doc("d"),
    DocKey("user:ann", "x"),
    DocKey("user:rob", "x"),
    DocKey("session:s1", "x"),
    DocKey("session:s2", "x"),
)


class TestChangingAccess:
    def test_an_owner_adds_and_removes_people(self) -> None:
        space = Space()
        assert seq_of(space.changes_access("ann", append(("writers",), ["new"]), remove_value(("readers",), "rob")))
        assert seq_of(space.send("new", write("d", replace(("x",), 1))))
        assert "may not use this space" in refusal(space.send("rob", write("d", replace(("x",), 2))))

    @pytest.mark.parametrize("user", ["wes", "rob"])
    def test_others_do_not(self, user: str) -> None:
        said = refusal(Space().changes_access(user, append(("owners",), [user])))
        expected = {
            "wes": "only an owner may change who has access; 'wes' is not an owner",
            "rob": "'rob' may read this space, but not write to it",
        }
        assert said == expected[user]

    @pytest.mark.parametrize("beside", ["operation", "event", "record"])
    def test_a_change_of_access_is_alone_in_its_commit(self, beside: str) -> None:
        space = Space()
        change = Operation(ACCESS, (append(("readers",), ["x"]),))
        commit = {
            "operation": Commit(1, (change, write("d", replace(("x",), 1)))),
            "event": Commit(1, (change,), events=(SentEvent("e", "s", 1),)),
            "record": Commit(1, (change,), records=(TopicRecord("t", "k", 1),)),
        }[beside]
        (verdict,) = space.engine.submit(space.of("ann").key, commit)
        assert refusal(verdict) == "a change of access is alone in its commit, on branch 'main'"

    def test_it_is_made_on_the_main_branch_and_rules_there_rule_all_branches(self) -> None:
        space = Space()
        space.engine.fork("dev")
        verdict = space.send("ann", Operation(ACCESS, (append(("owners",), ["x"]),)), branch="dev")
        assert refusal(verdict) == "a change of access is alone in its commit, on branch 'main'"
        assert "but not write" in refusal(space.send("rob", write("d", replace(("x",), 1)), branch="dev"))
        assert seq_of(space.changes_access("ann", remove_value(("writers",), "wes")))
        assert "may not use" in refusal(space.send("wes", write("d", replace(("x",), 1)), branch="dev"))

    @pytest.mark.parametrize(
        ("patches", "said"),
        [
            (
                (replace(("owners",), []),),
                "a space keeps at least one owner by name. Add another owner first.",
            ),
            (
                (replace(("owners",), ["*"]),),
                "a space keeps at least one owner by name. Add another owner first.",
            ),
            ((remove(("owners",)),), "a space keeps at least one owner by name. Add another owner first."),
            ((remove(()),), "the access document is an object with the keys owners, writers, readers"),
            ((replace((), []),), "the access document is an object with the keys owners, writers, readers"),
            ((replace((), None),), "the access document is an object with the keys owners, writers, readers"),
            (
                (Patch("add", ("admins",), ("x",)),),
                "the access document is an object with the keys owners, writers, readers",
            ),
            ((replace(("readers",), "rob"),), "'readers' of the access document is a list of user names"),
            ((replace(("writers",), [1]),), "'writers' of the access document is a list of user names"),
            ((replace(("writers",), [""]),), "'writers' of the access document is a list of user names"),
        ],
        ids=str,
    )
    def test_a_document_that_would_lock_everybody_out_or_mean_nothing_is_refused(
        self, patches: tuple[Patch, ...], said: str
    ) -> None:
        space = Space()
        assert refusal(space.changes_access("ann", *patches)) == said
        assert space.roles() == {"owners": ("ann",), "writers": ("wes",), "readers": ("rob",)}

    def test_the_last_owner_may_leave_once_there_is_another(self) -> None:
        space = Space()
        assert seq_of(space.changes_access("ann", add_unique(("owners",), "bea")))
        assert seq_of(space.changes_access("ann", remove_value(("owners",), "ann")))
        assert "may not use" in refusal(space.changes_access("ann", append(("owners",), ["ann"])))
        assert seq_of(space.changes_access("bea", append(("owners",), ["ann"])))

    def test_two_owners_who_remove_each_other_do_not_leave_an_empty_space(self) -> None:
        space = Space({"owners": ["ann", "bea"]})
        assert seq_of(space.changes_access("ann", remove_value(("owners",), "bea")))
        assert "may not use" in refusal(space.changes_access("bea", remove_value(("owners",), "ann")))
        assert space.roles() == {"owners": ("ann",)}

    def test_a_change_in_the_same_group_counts_for_what_comes_after_it(self) -> None:
        space = Space()
        ann, wes = space.of("ann"), space.of("wes")
        outcomes = space.engine.submit_group(
            [
                (ann.key, (ann.commit(Operation(ACCESS, (remove_value(("writers",), "wes"),))),)),
                (wes.key, (wes.commit(write("d", replace(("x",), 9))),)),
            ]
        )
        assert isinstance(outcomes[1], tuple)
        assert "may not use" in refusal(outcomes[1][0])

    def test_a_change_that_does_not_apply_is_a_conflict_like_any_other(self) -> None:
        space = Space()
        verdict = space.changes_access("ann", replace(("nope", "deeper"), 1))
        assert isinstance(verdict, Rejected)
        assert isinstance(verdict.rejection, Conflict)

    def test_the_founding_document_has_one_owner_and_is_well_formed(self) -> None:
        space = Space(founding("ann"))
        assert seq_of(space.changes_access("ann", append(("writers",), ["wes"])))


def test_a_refusal_becomes_an_error_that_says_the_same() -> None:
    verdict = Space().send("rob", write("d", replace(("x",), 1)))
    assert isinstance(verdict, Rejected)
    assert "may read this space, but not write to it" in str(as_error(verdict))
