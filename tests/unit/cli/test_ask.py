"""`get`, `set`, `send`, `log`, `why` and `graph` answer the same of a directory, of its owner and of an address."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.app import COMMANDS, app, run
from tests.unit.cli.kit_app import SHOP, imported, write_app
from tests.unit.cli.test_run import LIMIT_S, running

pytestmark = pytest.mark.thorough

Ask = Callable[..., Any]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with imported():
        yield


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_app(tmp_path / "app")


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run a command that has to succeed, and answer what it printed, as JSON if it is that."""

    def call(*words: object) -> Any:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        try:
            return json.loads(captured.out)
        except json.JSONDecodeError:
            return captured.out

    return call


@pytest.fixture
def fail(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run a command that has to fail, and answer what it said."""

    def call(*words: object) -> str:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert (code, captured.out) == (1, "")
        assert "Traceback" not in captured.err
        return captured.err

    return call


TEA = 'line={"sku": "tea", "cents": 450}'


@pytest.fixture
def data(tmp_path: Path, shop: Path, ask: Ask) -> Path:
    """A directory that the application has been in: a cart with tea in it."""
    path = tmp_path / "data"
    path.mkdir()
    assert ask("send", path, "shop", "Cart:ann.add", TEA, "--app", shop, "--user", "ann") == 450
    assert ask("get", path, "shop", "ann.label", "--app", shop) == ": 900"
    return path


class TestOfADirectory:
    def test_a_member_is_brought_up_to_date_by_the_application(self, ask: Ask, data: Path, shop: Path) -> None:
        ask("send", data, "shop", "ann.add", TEA, "--app", shop)
        assert ask("get", data, "shop", "ann.total") == 450  # What was stored last.
        assert ask("get", data, "shop", "ann.total", "--app", shop) == 900
        assert ask("get", data, "shop", "ann.total") == 900
        assert ask("get", data, "shop", "ann.lines#/1/sku", "--app", shop, "--json") == {
            "place": "ann.lines#/1/sku",
            "value": "tea",
        }

    def test_a_cell_is_set_with_its_type(self, ask: Ask, fail: Ask, data: Path, shop: Path) -> None:
        assert 'ann.note is "hello"' in ask("set", data, "shop", "ann.note", '"hello"', "--app", shop)
        assert ask("get", data, "shop", "ann.note") == "hello"
        assert "ann.note does not take this" in fail("set", data, "shop", "ann.note", "17", "--app", shop)
        assert "is not a cell" in fail("set", data, "shop", "ann.total", "17", "--app", shop)
        assert "which is not JSON" in fail("set", data, "shop", "ann.note", "hello", "--app", shop)
        assert "needs the application" in fail("set", data, "shop", "ann.note", '"x"')

    def test_what_is_one_user_s_is_set_for_that_user(self, ask: Ask, data: Path, shop: Path) -> None:
        ask("set", data, "shop", "ann.mine", '"a"', "--app", shop, "--user", "ann")
        assert ask("get", data, "shop", "ann.mine", "--app", shop, "--user", "ann") == "a"
        assert ask("get", data, "shop", "ann.mine", "--app", shop, "--user", "bob") == ""
        assert ask("get", data, "shop", "ann.mine", "--user", "ann") == "a"

    def test_a_refusal_and_a_mistake_are_told(self, fail: Ask, data: Path, shop: Path) -> None:
        bad = 'line={"sku": "tea", "cents": -1}'
        assert "a price is not negative" in fail("send", data, "shop", "ann.add", bad, "--app", shop)
        assert "argument line is missing" in fail("send", data, "shop", "ann.add", "--app", shop)
        assert "write NAME=VALUE" in fail("send", data, "shop", "ann.add", "tea", "--app", shop)
        assert "has no member 'nope'" in fail("send", data, "shop", "ann.nope", "--app", shop)
        assert "is not a handler" in fail("send", data, "shop", "ann.total", "--app", shop)
        assert "no piece 'bob'" in fail("send", data, "shop", "bob.add", TEA, "--app", shop)
        assert "no class 'Nonesuch'" in fail("send", data, "shop", "Nonesuch:bob.add", TEA, "--app", shop)

    def test_an_address_is_set_as_it_is(self, ask: Ask, data: Path, shop: Path) -> None:
        ask("set", data, "shop", "space:settings", '{"open": true}', "--app", shop)
        ask("set", data, "shop", "space:settings#/open", "false", "--app", shop)
        assert ask("get", data, "shop", "space:settings") == {"open": False}

    def test_why_leads_from_what_was_derived_to_what_somebody_wrote(self, ask: Ask, data: Path) -> None:
        steps = ask("why", data, "shop", "ann.label", "--json")["steps"]
        assert steps[0]["node"] == "shop/ann:label"
        assert [step["address"].partition("#")[0] for step in steps if step["node"] == "shop/ann:add"] == [
            "space:ann:lines"
        ]
        assert steps[-1]["end"] is not None
        text = ask("why", data, "shop", "ann.label")
        assert text.startswith("space:ann:label: seq ")
        assert "because of space:ann:lines" in text
        assert "(written directly)" in text

    def test_why_of_what_is_not_there(self, ask: Ask, fail: Ask, data: Path, shop: Path) -> None:
        assert "nothing is at space:ann:nothing: never written" in fail("why", data, "shop", "ann.nothing")
        assert "has no member 'nothing'" in fail("why", data, "shop", "ann.nothing", "--app", shop)
        assert "never written" in ask("why", data, "shop", "ann.note", "--app", shop)  # It has its default.

    def test_a_graph_of_what_would_run(self, ask: Ask, fail: Ask, data: Path, shop: Path) -> None:
        found = ask("graph", data, "shop", "--app", shop, "--json")
        assert {node["id"].partition(":")[2].partition(" of ")[0] for node in found["nodes"]} >= {"total", "twice"}
        assert "digraph" in ask("graph", data, "shop", "--app", shop, "--dot")
        assert "shop/ann:total" in ask("graph", data, "shop", "--app", shop)
        assert ask("graph", data, "shop", "--json") == {
            "pieces": [{"piece": "ann", "class": "shop.Cart", "inputs": {}}]
        }
        assert "shop.Cart" in ask("graph", data, "shop")
        assert "nothing runs there" in fail("graph", data, "shop", "--dot")

    def test_a_member_as_it_was_and_on_a_branch(self, ask: Ask, fail: Ask, data: Path, shop: Path) -> None:
        before = ask("log", data, "shop", "--json")["commits"][-1]["seq"]
        ask("send", data, "shop", "ann.add", TEA, "--app", shop)
        for more in ((), ("--app", shop)):
            assert len(ask("get", data, "shop", "ann.lines", "--at", before, *more)) == 1
            assert "branch 'nope' does not exist" in fail("get", data, "shop", "ann.lines", "--branch", "nope", *more)

    def test_what_the_application_prints_is_no_part_of_the_answer(
        self, ask: Ask, data: Path, shop: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = shop.read_text().replace("seen.append(self.label.get())", "print('total', self.label.get())")
        shop.write_text(f"{text}\nprint('loaded')\n")
        assert "nodes" in ask("graph", data, "shop", "--app", shop, "--json")
        assert ask("graph", data, "shop", "--app", shop, "--dot").startswith("digraph")
        assert run(["get", str(data), "shop", "ann.total", "--app", str(shop)]) == 0
        printed = capsys.readouterr()
        assert (printed.out, "loaded" in printed.err) == ("450\n", True)

    def test_a_space_that_is_not_there(self, fail: Ask, data: Path, shop: Path) -> None:
        assert "no space 'nope'" in fail("get", data, "nope", "x.y", "--app", shop)
        assert not (data / "nope.space").exists()

    def test_what_does_not_fit_is_told_as_what_was_given(self, fail: Ask, data: Path, shop: Path) -> None:
        bad = 'line={"sku": "tea", "cents": "x"}'
        for said in (
            fail("send", data, "shop", "ann.add", bad, "--app", shop),
            fail("set", data, "shop", "ann.lines", '[{"sku": "tea", "cents": "x"}]', "--app", shop),
        ):
            assert "cents: expected int" in said
            assert "stored" not in said
            assert "anew" not in said

    def test_an_access_document_that_nobody_could_mend_is_refused(
        self, ask: Ask, fail: Ask, data: Path, shop: Path
    ) -> None:
        for wrong in ('{"nonsense": 1}', '{"owner": ["ann"]}', '{"owners": []}', '{"owners": [1]}', "[]", "null"):
            assert '"owners": ["ann"]' in fail("set", data, "shop", "space:$access", wrong, "--app", shop)
        ask("set", data, "shop", "space:$access", '{"owners": ["ann"]}', "--app", shop)
        assert "owner" in fail("set", data, "shop", "space:$access#/owners", "[]", "--app", shop)
        assert ask("get", data, "shop", "space:$access") == {"owners": ["ann"]}

    def test_a_directory_that_does_not_exist(self, fail: Ask, tmp_path: Path, shop: Path) -> None:
        assert "is not a directory" in fail("get", tmp_path / "none", "shop", "ann.total", "--app", shop)
        assert not (tmp_path / "none").exists()


class TestOfAProcessThatRuns:
    def test_all_of_it_goes_through_the_process_that_owns_the_directory(
        self, tmp_path: Path, shop: Path, ask: Ask, fail: Ask
    ) -> None:
        data = tmp_path / "data"
        with running(tmp_path, str(shop), "--json", "--data", str(data)) as served:
            url = served.url()
            for where in (data, url):
                assert ask("send", where, "shop", "ann.add", TEA, "--user", "ann") == 450
                ask("set", where, "shop", "ann.note", '"hello"')
                assert ask("get", where, "shop", "space:ann:note") == "hello"
            assert ask("get", data, "shop", "ann.label") == "hello: 1800"
            assert ask("get", url, "shop", "ann.lines#/1", "--json")["value"] == {"sku": "tea", "cents": 450}
            assert len(ask("log", data, "shop", "--limit", 3, "--json")["commits"]) == 3
            assert "shop/ann:add" in ask("log", url, "shop")
            assert "because of space:ann:" in ask("why", url, "shop", "ann.label")
            assert "shop/ann:show" in ask("graph", data, "shop")
            assert "digraph" in ask("graph", url, "shop", "--dot")
            assert "a price is not negative" in fail("send", url, "shop", "ann.add", 'line={"sku": "tea", "cents": -1}')
            assert "no piece 'bob'" in fail("get", url, "shop", "bob.total")
            assert "no parts" in fail("send", url, "shop", "ann.add#/x", TEA)
            for what, *rest in (("log",), ("graph",), ("get", "x.y"), ("why", "x.y"), ("compact", "--before", "2")):
                assert "no space 'nope'" in fail(what, url, "nope", *rest)
            first = next(
                each["seq"] for each in ask("log", url, "shop", "--json")["commits"] if each["node"] == "shop/ann:add"
            )
            for where in (data, url):
                assert len(ask("get", where, "shop", "ann.lines", "--at", first)) == 1
                assert len(ask("get", where, "shop", "space:ann:lines", "--at", first)) == 1
                assert "branch 'nope' does not exist" in fail("get", where, "shop", "ann.lines", "--branch", "nope")
                assert [each["name"] for each in ask("spaces", where, "--json")] == ["shop"]
                assert "history is kept from seq" in ask("compact", where, "shop", "--before", "2")
                assert "while it is open" not in ask("graph", where, "shop")
            with urllib.request.urlopen(url, timeout=LIMIT_S) as page:
                assert b"page/index.html" in page.read()
            assert served.stop()[0] == 0

    def test_somebody_who_proves_nothing_is_told_nothing(
        self, tmp_path: Path, shop: Path, ask: Ask, fail: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = tmp_path / "data"
        ask("keys", "new", data)
        owned = '{"owners": ["cy"], "writers": [], "readers": ["ann"]}'
        ask("set", data, "shop", "space:$access", owned, "--app", shop)
        with running(tmp_path, str(shop), "--json", "--data", str(data), "--owner", "cy", secure=True) as served:
            url = served.url()
            assert "token" in fail("get", url, "shop", "ann.total")
            assert "with --user" in fail("get", data, "shop", "ann.total")
            assert "'ann' may not" in fail("log", data, "shop", "--user", "ann")
            assert ask("get", data, "shop", "ann.total", "--user", "ann") == 0
            monkeypatch.setenv("HEADWATER_TOKEN", ask("token", data, "--user", "bob").strip())
            assert "'bob' may not" in fail("get", url, "shop", "ann.total")
            assert "'bob' may not" in fail("spaces", url)
            for what, rest in (("log", ()), ("set", ("space:x", "1"))):  # Naming a space opens none.
                assert "'bob' may not do that in evil" in fail(what, url, "evil", *rest)
            monkeypatch.setenv("HEADWATER_TOKEN", ask("token", data, "--user", "cy").strip())
            assert "shop/ann:total" in ask("log", url, "shop")

    def test_a_server_without_an_application_answers_what_is_in_the_log(
        self, tmp_path: Path, data: Path, ask: Ask, fail: Ask
    ) -> None:
        with running(tmp_path, str(data), command="serve") as served:
            url = json.loads(served.until(served.err, "listening"))
            where = f"http://127.0.0.1:{url['port']}"
            assert ask("get", where, "shop", "space:ann:total") == 450
            assert ask("get", data, "shop", "space:ann:total") == 450
            assert "shop/ann:add" in ask("log", where, "shop")
            assert "(written directly)" in ask("why", where, "shop", "space:ann:label")
            assert "not imported" in fail("get", where, "shop", "ann.total")
            assert served.stop()[0] == 0

    def test_what_is_no_question_is_told_so(self, tmp_path: Path, shop: Path) -> None:
        with running(tmp_path, str(shop), "--json") as served:
            url = served.url()
            for body, says in (
                (b"tea", "truncated"),
                (b'{"what": "buy", "space": "shop"}', "what"),
                (b'{"what": "get", "space": "no space!", "place": "ann.total"}', "cannot name a space"),
                (b'"' + b"x" * 1_000_001 + b'"', "at most"),
            ):
                request = urllib.request.Request(f"{url}/v1/desk", body, method="POST")
                with pytest.raises(urllib.error.HTTPError) as caught:
                    urllib.request.urlopen(request, timeout=LIMIT_S)
                with caught.value as error:
                    told = json.loads(error.read())
                assert error.code in (400, 413)
                assert says in told["error"]
            assert served.stop()[0] == 0

    def test_an_address_where_nobody_is(self, fail: Ask) -> None:
        assert "cannot be reached" in fail("get", "http://127.0.0.1:9", "shop", "ann.total")
        assert "is not the address" in fail("get", "ftp://example.org", "shop", "ann.total")


def test_every_command_says_in_the_list_what_it_says_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name, (_, summary) in COMMANDS.items():
        assert run([name, "--help"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert summary.rstrip(".") in said, name
        assert f"Example: headwater {name}" in said or name in ("branch", "keys")
    assert set(COMMANDS) <= set(app)


def test_the_shop_of_these_tests_is_a_program() -> None:
    compile(SHOP, "shop.py", "exec")


def test_a_key_and_a_token_are_told_to_programs_too(tmp_path: Path, ask: Ask) -> None:
    key = ask("keys", "new", tmp_path, "--json")["key"]
    assert ask("keys", "list", tmp_path, "--json") == [key]
    assert ask("token", tmp_path, "--user", "ann", "--json")["user"] == "ann"


def test_the_command_is_the_package_too(tmp_path: Path) -> None:
    for module in ("headwater", "headwater.cli"):
        words = [sys.executable, "-m", module, "spaces", str(tmp_path), "--json"]
        told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=LIMIT_S)
        assert told.stdout == "[]\n"
