"""The page of errors: complete, in order, and drawn as it is."""

from __future__ import annotations

import inspect
import re

import pytest

from headwater import errors
from headwater.errors import HeadwaterError, InvalidValueError, InvariantViolation


def defined() -> dict[str, type[BaseException]]:
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == errors.__name__
    }


def drawn(page: str) -> dict[str, str | None]:
    """Each error in the tree of the docstring with the one it hangs from, or None for a root."""
    parents: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []  # The errors from a root down to the last line, with their columns.
    for line in page.splitlines():
        if not (
            found := re.match(r"^[ │├└─]*([A-Z]\w+(?:Error|Rejected|Violation|Refused|Failed)|Refused)(?: |$)", line)
        ):
            continue
        column, name = found.start(1), found[1]
        while above and above[-1][0] >= column:
            above.pop()
        parents[name] = above[-1][1] if above else None
        above.append((column, name))
    return parents


def test_every_error_is_exported_and_the_list_is_sorted() -> None:
    assert sorted(errors.__all__) == errors.__all__
    assert set(errors.__all__) == set(defined())


def test_the_drawn_tree_names_every_error_under_its_real_parent() -> None:
    real = {
        name: next((base.__name__ for base in error.__bases__ if base.__name__ in defined()), None)
        for name, error in defined().items()
    }
    assert drawn(inspect.getdoc(errors) or "") == real


def test_the_reader_of_the_tree_sees_parents_and_roots() -> None:
    page = """
    OurError          all
    ├── OneError      one
    │   └── TwoError  two
    └── LastRejected  three

    AnyViolation      another root
    """
    assert drawn(page) == {
        "OurError": None,
        "OneError": "OurError",
        "TwoError": "OneError",
        "LastRejected": "OurError",
        "AnyViolation": None,
    }


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_says_what_it_means(name: str) -> None:
    doc = vars(defined()[name]).get("__doc__")
    assert doc
    assert doc.endswith(".")


def test_every_error_but_the_one_about_our_own_bugs_has_one_base() -> None:
    for name, error in defined().items():
        assert issubclass(error, HeadwaterError) == (name != "InvariantViolation")
    assert not issubclass(InvariantViolation, HeadwaterError)


def test_an_invalid_value_knows_the_path_to_the_culprit() -> None:
    assert InvalidValueError("no", path=("lines", 3)).path == ("lines", 3)
    assert InvalidValueError("no").path == ()
