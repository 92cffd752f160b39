"""`nodes` and `backlog`: what nodes last did, page by page, for owners, of a directory and through its owner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.app import run
from headwater.cli.data.target import ask as asked
from headwater.errors import AuthoringError, HeadwaterError
from headwater.protocol.command_messages import CommandQuestion
from headwater.server.commands.nodes_json import decode_cursor
from tests.unit.cli.kit_app import imported, write_app
from tests.unit.cli.test_run import running

Ask = Callable[..., tuple[int, str, str]]
TEA = 'line={"sku": "tea", "cents": 450}'


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    with imported():
        yield


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def call(*words: object) -> tuple[int, str, str]:
        code = run([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return call


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_app(tmp_path / "app")


@pytest.fixture
def data(tmp_path: Path, shop: Path, ask: Ask) -> Path:
    """Two carts with tea in them, and what they show."""
    path = tmp_path / "data"
    path.mkdir()
    for name in ("ann", "bob"):
        assert ask("send", path, "shop", f"Cart:{name}.add", TEA, "--app", shop, "--user", "ann")[0] == 0
        assert ask("get", path, "shop", f"{name}.label", "--app", shop)[0] == 0
    return path


def listed(ask: Ask, *words: object) -> list[Any]:
    """All nodes, one on each page."""
    found: list[Any] = []
    after: tuple[object, ...] = ()
    for _ in range(100):
        page = json.loads(ask("nodes", *words, "--limit", 1, *after, "--json")[1])
        found += page["nodes"]
        if page["next"] is None:
            return found
        after = ("--after", page["next"])
    raise AssertionError("there is no last page")


def test_nodes_are_listed_page_by_page_and_chosen_by_piece_member_and_generation(data: Path, ask: Ask) -> None:
    everything = listed(ask, data, "shop")
    assert [each["node"] for each in everything] == [
        f"{name}:{member}" for name in ("ann", "bob") for member in ("total", "twice", "label")
    ]
    assert {each["state"] for each in everything} == {"clean"}
    assert [each["node"] for each in listed(ask, data, "shop", "--piece", "bob", "--member", "twice")] == ["bob:twice"]
    assert [each["node"] for each in listed(ask, data, "shop", "--reads", "space:ann:total")] == [
        "ann:total",  # Its own result: whoever replaces that leaves nothing to be clean about.
        "ann:twice",
    ]
    assert len(listed(ask, data, "shop", "--generation", 0)) == 6
    assert listed(ask, data, "shop", "--generation", 9) == []
    assert listed(ask, data, "shop", "--piece", "nobody") == []
    code, out, _ = ask("nodes", data, "shop", "--piece", "ann", "--limit", 2)
    assert code == 0
    assert "ann:total" in out
    assert "more: --after " in out
    assert ask("nodes", data, "shop", "--piece", "nobody")[1] == "shop has no stored run of such a node\n"


def test_a_branch_has_nodes_of_its_own(data: Path, ask: Ask) -> None:
    assert ask("branch", "new", data, "shop", "better")[0] == 0
    assert listed(ask, data, "shop", "--branch", "better") == []
    assert ask("nodes", data, "shop", "--branch", "nope")[0] == 1


def test_the_backlog_says_what_is_dirty_and_what_it_costs(data: Path, shop: Path, ask: Ask) -> None:
    assert ask("backlog", data, "shop")[1] == "every node of shop that is known is clean\n"
    assert ask("send", data, "shop", "bob.add", TEA, "--app", shop)[0] == 0
    page = json.loads(ask("backlog", data, "shop", "--json")[1])
    (bob,) = page["pieces"]
    assert (bob["piece"], bob["nodes"], bob["dirty"]) == ("bob", 3, 1)
    assert bob["took_us"] > 0
    assert [each["address"] for each in bob["causes"]] == ["space:bob:lines"]
    out = ask("backlog", data, "shop")[1]
    assert "space:bob:lines at seq" in out
    assert "1 node of 1 piece took" in out
    (total,) = listed(ask, data, "shop", "--piece", "bob", "--member", "total")
    assert (total["state"], [each["address"] for each in total["stale"]]) == ("dirty", ["space:bob:lines"])


def test_a_place_that_is_none_is_told(data: Path, ask: Ask) -> None:
    for after in ("nonsense", "%%%", "AAAA"):
        code, out, err = ask("nodes", data, "shop", "--after", after)
        assert (code, out) == (1, "")
        assert "is not a cursor" in err
    with pytest.raises(AuthoringError, match="is not a cursor"):
        decode_cursor("ä")


def test_only_owners_are_told_of_nodes(tmp_path: Path, data: Path, shop: Path, ask: Ask) -> None:
    """A reader's and a writer's token do not open it: addresses reveal how a program is made."""
    assert ask("keys", "new", data)[0] == 0
    owned = '{"owners": ["cy"], "writers": ["wim"], "readers": ["ann"]}'
    assert ask("set", data, "shop", "space:$access", owned, "--app", shop)[0] == 0
    tokens = {user: ask("token", data, "--user", user)[1].strip() for user in ("cy", "wim", "ann", "nobody")}
    with running(tmp_path, str(shop), "--json", "--data", str(data), "--owner", "cy", secure=True) as served:
        url = served.url()
        for words in (("nodes",), ("backlog",)):
            for user in ("wim", "ann", "nobody"):
                code, out, err = ask(words[0], url, "shop", "--token", tokens[user])
                assert (code, out) == (1, "")
                assert f"'{user}' may not" in err
            code, out, _ = ask(words[0], url, "shop", "--token", tokens["cy"])
            assert code == 0
        for user in ("wim", "ann", "nobody"):
            with pytest.raises(HeadwaterError, match=f"'{user}' may not"):
                asked(url, CommandQuestion("current", "shop", value=[]), token=tokens[user])
        assert asked(url, CommandQuestion("current", "shop", value=[]), token=tokens["cy"])["stale"] == []
        code, out, err = ask("preview", shop, "--url", url, "--space", "shop", "--token", tokens["wim"])
        assert (code, out, "'wim' may not" in err) == (1, "", True)
        assert ask("preview", shop, "--url", url, "--space", "shop", "--token", tokens["cy"])[0] == 0
        assert "with --user" in ask("nodes", data, "shop")[2]
        assert len(listed(ask, data, "shop", "--user", "cy")) >= 6
        assert served.stop()[0] == 0
