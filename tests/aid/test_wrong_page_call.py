"""One wrong call from a page fails alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.server import DEFAULT_SERVER_LIMITS
from tests.aid.serving import Page, page, place, serving

LOOK = 1_000

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    # What the page says, without its number, and what it is told.
    "send(2)": ({"type": "send", "place": place("rename"), "args": 2}, "name each argument"),
    "send([])": ({"type": "send", "place": place("rename"), "args": ["tea"]}, "name each argument"),
    "send(null)": ({"type": "send", "place": place("rename"), "args": None}, "name each argument"),
    "send(function)": ({"type": "send", "place": place("rename")}, "name each argument"),
    "missing_argument": ({"type": "send", "place": place("rename"), "args": {}}, "argument title is missing"),
    "unknown_argument": ({"type": "send", "place": place("rename"), "args": {"titel": "x"}}, "no argument 'titel'"),
    "argument_of_wrong_type": ({"type": "send", "place": place("rename"), "args": {"title": 2}}, "argument title"),
    "entry_of_an_argument_of_wrong_type": (
        {"type": "send", "place": place("count_notes"), "args": {"notes": {"a": {"text": 2}}}},
        "Pad.count_notes, argument notes: at /a/text: expected str",
    ),
    "unknown_handler": ({"type": "send", "place": place("renam"), "args": {}}, "It has: notes, title, count"),
    "send_to_a_cell": ({"type": "send", "place": place("title"), "args": {}}, "a handler: watch it, or write to it"),
    "send_to_a_computed": ({"type": "send", "place": place("loud"), "args": {}}, "not a handler: watch it"),
    "unknown_class": ({"type": "send", "place": place("rename", cls="Padd"), "args": {}}, "It has: aid.Pad"),
    "unknown_space": (
        {"type": "send", "place": place("rename", space="elsewhere"), "args": {}},
        "no space 'elsewhere'",
    ),
    "unknown_child": (
        {"type": "send", "place": place("rename", name="", id="nobody"), "args": {}},
        "no aid.Pad 'nobody'",
    ),
    "no_place": ({"type": "send", "place": 7, "args": {}}, "$.place"),
    "no_class": ({"type": "send", "place": {"space": "pads", "member": "rename"}, "args": {}}, "`cls`"),
    "no_member": ({"type": "send", "place": {"space": "pads", "cls": "aid.Pad"}, "args": {}}, "`member`"),
    "fraction_in_a_path": ({"type": "look", "place": place("notes", path=[1.5])}, "$.place.path"),
    "look_at_a_handler": ({"type": "look", "place": place("rename")}, "nothing to look at"),
    "look_at_nothing": ({"type": "look", "place": place("nothing")}, "has no member 'nothing'"),
    "unknown_group": ({"type": "look", "place": place("title"), "group": 3}, "$.group"),
    "write_to_a_computed": ({"type": "write", "place": place("loud"), "kind": "set", "value": "x"}, "is not a cell"),
    "write_to_a_handler": ({"type": "write", "place": place("rename"), "kind": "set", "value": "x"}, "is not a cell"),
    "unknown_intent": (
        {"type": "write", "place": place("title"), "kind": "poke", "value": "x"},
        "use one of set, push",
    ),
    "no_intent": ({"type": "write", "place": place("title"), "value": "x"}, "`kind`"),
    "value_of_wrong_type": (
        {"type": "write", "place": place("title"), "kind": "set", "value": 2},
        "does not take this",
    ),
    "entry_without_a_field": (
        {"type": "write", "place": place("notes"), "kind": "set", "value": {"a": {}}},
        "'notes' does not take this: at /a: the field 'text' of Note is missing",
    ),
    "no_value": ({"type": "write", "place": place("title"), "kind": "set"}, "does not take this"),
    "intent_of_another_type": ({"type": "write", "place": place("title"), "kind": "increment", "value": 1}, "title"),
    "push_to_a_mapping": ({"type": "write", "place": place("notes"), "kind": "push", "value": 1}, "notes"),
    "number_too_large": ({"type": "write", "place": place("count"), "kind": "set", "value": 10**400}, "integer"),
    "unknown_kind_of_call": ({"type": "poke"}, "'poke'"),
    "no_kind_of_call": ({"place": place("title")}, "`type`"),
    "unknown_field": ({"type": "look", "place": place("title"), "more": 1}, "`more`"),
    "key_of_wrong_type": ({"type": "send", "place": place("rename"), "args": {"title": "x"}, "key": 9}, "$.key"),
}


RAW: dict[str, tuple[str, str]] = {
    # What only another client than /headwater.js says, with the number 77 in it.
    "half_a_character": ('{"type":"write","place":7,"kind":"set","value":"\\ud800","id":77}', "cannot be understood"),
    "nested": ('{"type":"write","value":' + "[" * 5_000 + "]" * 5_000 + ',"id":77}', "cannot be understood"),
    "string_without_end": ('{"type":"send","id":77,"args":"' + '\\"' * 200_000, "cannot be understood"),
    "key_twice": ('{"id":77,"type":"send","args":{"id":3}}', "`place`"),
}


def test_one_wrong_call_from_a_page_fails_alone(tmp_path: Path) -> None:
    async def play() -> None:
        async with serving(tmp_path) as server, page(server) as ann:
            await ann.say(type="look", id=LOOK, place=place("title"))
            await ann.hear(type="shown", id=LOOK)
            found = []
            for number, (name, (wrong, why)) in enumerate(WRONG.items()):
                answer = await ann.ask(**wrong)
                if answer["type"] != "failed" or why not in answer["error"]:
                    found.append((name, answer))
                await goes_on(ann, f"after {name} {number}")
            assert not found

    asyncio.run(play())


@pytest.mark.parametrize("name", RAW)
def test_call_that_cannot_be_read_fails_alone_by_its_number(tmp_path: Path, name: str) -> None:
    async def play() -> None:
        text, why = RAW[name]
        async with serving(tmp_path) as server, page(server) as ann:
            await ann.say(type="look", id=LOOK, place=place("title"))
            await ann.hear(type="shown", id=LOOK)
            await ann.socket.send(text)
            answer = await ann.hear(id=77)
            assert answer["type"] == "failed"
            assert why in answer["error"]
            await goes_on(ann, "tea")

    asyncio.run(play())


def test_call_that_is_too_long_fails_alone(tmp_path: Path) -> None:
    async def play() -> None:
        limits = replace(DEFAULT_SERVER_LIMITS, page_bytes=100_000, aside_bytes=50_000)
        async with serving(tmp_path, limits=limits) as server, page(server) as ann:
            await ann.say(type="look", id=LOOK, place=place("title"))
            await ann.hear(type="shown", id=LOOK)
            # In order, also where one of them takes longer to read.
            for number, size in ((101, 60_000), (102, 100_000), (103, 10)):
                await ann.say(type="write", id=number, place=place("title"), kind="set", value="x" * size)
            assert (await ann.hear(id=101))["type"] == "done"
            failed = await ann.hear(id=102)
            assert "over the limit of 100000" in failed["error"]
            assert "Send less at once" in failed["error"]
            assert (await ann.hear(id=103))["type"] == "done"
            while (await ann.hear(type="shown", id=LOOK))["value"] != "x" * 10:
                pass
            await goes_on(ann, "tea")

    asyncio.run(play())


async def goes_on(ann: Page, title: str) -> None:
    """The connection, its look at the title and other calls are as they were."""
    answer = await ann.send("rename", {"title": title})
    assert (answer["type"], answer["value"]) == ("done", title)
    assert (await ann.hear(type="shown", id=LOOK))["value"] == title
