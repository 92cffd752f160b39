"""Following links: everything they lead to within the space, once, nearest first."""

from __future__ import annotations

from random import Random

import pytest

from headwater.data.address import DocKey, Link
from headwater.data.value import ABSENT, MaybeValue, freeze
from headwater.engine.limits import DEFAULT_LIMITS, Limits
from headwater.engine.sync.watch_table import linked, links_in
from headwater.errors import LimitError


def doc(id: str) -> DocKey:
    return DocKey("space", id)


def follow(graph: dict[str, object], root: str = "r", limits: Limits = DEFAULT_LIMITS) -> list[str]:
    def value_of(key: DocKey) -> MaybeValue:
        return freeze(graph[key.id]) if key.id in graph else ABSENT

    return [key.id for key in linked(doc(root), value_of, limits)]


def test_links_are_found_everywhere_in_a_value_in_its_order() -> None:
    value = freeze({"a": [Link(id="1"), {"deep": {"er": Link(id="2")}}], "b": Link(id="3"), "c": "no link"})
    assert [link.id for link in links_in(value)] == ["1", "2", "3"]
    assert list(links_in(ABSENT)) == []
    assert list(links_in(Link(id="x"))) == [Link(id="x")]


def test_a_document_without_links_leads_nowhere() -> None:
    assert follow({"r": {"x": 1}}) == []
    assert follow({}) == []


def test_the_nearest_come_first_and_each_once() -> None:
    graph: dict[str, object] = {
        "r": [Link(id="a"), Link(id="b"), Link(id="a")],
        "a": [Link(id="c")],
        "b": [Link(id="c"), Link(id="d")],
    }
    assert follow(graph) == ["a", "b", "c", "d"]


def test_a_link_to_what_is_not_there_yet_is_followed_to_it() -> None:
    assert follow({"r": Link(id="later")}) == ["later"]


@pytest.mark.parametrize("back", ["r", "a", "b"])
def test_cycles_end_where_they_began(back: str) -> None:
    graph: dict[str, object] = {"r": [Link(id="a")], "a": [Link(id="b")], "b": [Link(id=back)]}
    assert follow(graph) == ["a", "b"]


def test_a_document_that_links_to_itself_is_not_its_own_target() -> None:
    assert follow({"r": [Link(id="r"), Link(id="r", path=("x",))]}) == []


def test_the_path_of_a_link_does_not_matter_and_scopes_are_kept_apart() -> None:
    found = linked(
        doc("r"),
        lambda key: (
            freeze([Link(id="a", path=("x", 1)), Link(id="a"), Link(scope="user:ann", id="a")])
            if key.id == "r"
            else ABSENT
        ),
        DEFAULT_LIMITS,
    )
    assert found == [doc("a"), DocKey("user:ann", "a")]


def test_links_into_other_spaces_are_not_followed() -> None:
    assert follow({"r": [Link(space="other", id="a"), Link(id="b")]}) == ["b"]


def test_a_long_chain_needs_no_recursion() -> None:
    graph: dict[str, object] = {str(number): [Link(id=str(number + 1))] for number in range(5_000)}
    assert len(follow(graph, "0")) == 5_000


def test_more_than_the_limit_is_an_error_that_names_root_and_limit() -> None:
    graph: dict[str, object] = {"r": [Link(id=str(number)) for number in range(4)]}
    assert len(follow(graph, limits=Limits(follow_documents=4))) == 4
    with pytest.raises(LimitError, match="links from space:r lead to more than 3 documents"):
        follow(graph, limits=Limits(follow_documents=3))


@pytest.mark.random
def test_any_graph_gives_what_is_reachable() -> None:
    for seed in range(200):
        random = Random(seed)
        names = [f"n{number}" for number in range(8)]
        graph: dict[str, object] = {
            name: [Link(id=random.choice(names)) for _ in range(random.randrange(3))] for name in names
        }
        reached: set[str] = set()
        waiting = ["n0"]
        while waiting:
            for link in graph[waiting.pop()]:  # type: ignore[attr-defined]
                if link.id not in reached and link.id != "n0":
                    reached.add(link.id)
                    waiting.append(link.id)
        found = follow(graph, "n0")
        assert set(found) == reached, seed
        assert len(found) == len(set(found)), seed
