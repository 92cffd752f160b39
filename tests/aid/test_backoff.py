"""A wrong `backoff=` is an AuthoringError where it is written."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import Backoff, Cell, Piece, Topic, cell, reaction, resource, topic
from headwater.errors import AuthoringError
from headwater.scheduler import SchedulerLimits

WRONG: tuple[Any, ...] = ({"base_ms": 10}, {}, "exponential", "", 250, 0, 1.5, False, [10, 20], Backoff, Backoff.none)
IDS = ("dict", "{}", "name", "empty", "number", "zero", "float", "bool", "list", "class", "function")


@pytest.mark.parametrize("wrong", WRONG, ids=IDS)
def test_wrong_backoff_of_a_reaction_is_an_authoring_error_where_it_is_written(wrong: Any) -> None:
    placed: Topic[str] = topic()

    async def charge(self: Piece, order: str) -> None: ...

    with pytest.raises(AuthoringError, match=r"^@reaction charge: backoff=.* is not a Backoff: write Backoff\.none"):
        reaction(on=placed, backoff=wrong)(charge)


@pytest.mark.parametrize("wrong", WRONG, ids=IDS)
def test_wrong_backoff_of_a_resource_is_an_authoring_error_where_it_is_written(wrong: Any) -> None:
    url: Cell[str] = cell(default="")

    async def page(self: Piece, url: str) -> str:
        return url

    with pytest.raises(AuthoringError, match=r"^@resource page: backoff=.* is not a Backoff: write Backoff\.none\(\)"):
        resource(url, backoff=wrong)(page)


@pytest.mark.parametrize(
    "wrong",
    [*({OSError: wrong} for wrong in WRONG), [(OSError, Backoff.none())], 250],
    ids=[*IDS, "pairs", "no_mapping"],
)
def test_wrong_backoff_for_a_class_of_errors_is_an_authoring_error_where_it_is_written(wrong: Any) -> None:
    placed: Topic[str] = topic()

    async def charge(self: Piece, order: str) -> None: ...

    with pytest.raises(AuthoringError, match=r"^@reaction charge: errors=.*: write a "):
        reaction(on=placed, errors=wrong)(charge)


@pytest.mark.parametrize("wrong", WRONG, ids=IDS)
@pytest.mark.parametrize("option", ["exhausted", "transient"])
def test_wrong_backoff_of_the_scheduler_is_an_authoring_error_where_it_is_written(option: str, wrong: Any) -> None:
    with pytest.raises(AuthoringError, match=f"^SchedulerLimits: {option}=.* is not a Backoff"):
        SchedulerLimits(**{option: wrong})


def test_no_backoff_is_accepted() -> None:
    class Shop(Piece):
        url: Cell[str] = cell(default="")
        placed: Topic[str] = topic()

        @reaction(on=placed, backoff=None)
        async def charge(self, order: str) -> None: ...

        @resource(url, backoff=None)
        async def page(self, url: str) -> str:
            return url

    assert str(Shop.charge)
    assert str(Shop.page)
