"""Frozen pydantic models are values, for those who have pydantic. Headwater itself never imports it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from headwater.cells.codec import codec_for
from headwater.cells.selector import Selector
from headwater.errors import AuthoringError, InvalidValueError


def test_the_codecs_import_no_pydantic() -> None:
    code = "import sys, headwater.cells.codec, headwater.cells.view; print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def person(**config: Any) -> Any:
    pydantic = pytest.importorskip("pydantic")

    def checked(name: str) -> str:
        if name == "nobody":
            raise ValueError("a name, please")
        return name

    return pydantic.create_model(
        "Person",
        __config__=pydantic.ConfigDict(**config),
        __validators__={"checked": pydantic.field_validator("name")(checked)},
        name=(str, ...),
        age=(int, pydantic.Field(default=3, alias="years")),
        tags=(tuple[str, ...], ()),
    )


def test_a_frozen_pydantic_model_is_stored_by_field_name() -> None:
    cls = person(frozen=True)
    codec = codec_for(cls)
    value = cls(name="ann", years=7, tags=("x",))
    raw: Any = codec.encode(value)
    assert raw == {"name": "ann", "age": 7, "tags": ("x",)}
    assert codec.decode(raw) == value
    assert codec.decode({"name": "bob"}) == cls(name="bob")
    assert codec.merge({"name": "ann", "age": 1, "tags": (), "later": 5}, value) == {**raw, "later": 5}
    assert Selector().select(codec, lambda p: p.age).path == ("age",)
    memo = codec.memo()
    assert memo.decode(raw) == value
    assert memo.decode({**raw, "age": 8}).age == 8


def test_its_validators_run_when_it_is_read() -> None:
    with pytest.raises(InvalidValueError, match=r"Person cannot be made of it: .*a name, please"):
        codec_for(person(frozen=True)).decode({"name": "nobody"})


def test_one_that_can_change_is_refused() -> None:
    with pytest.raises(AuthoringError, match=r"Write model_config = ConfigDict\(frozen=True\) in class Person"):
        codec_for(person())
