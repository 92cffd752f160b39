"""Models as JSON: for JSON encoders, and as types that pydantic, and so FastAPI, validates and serializes."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

from headwater import InvalidValueError, Model, field


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Size:
    width: int
    height: int = 1


class Circle(Model):
    radius: float


class Square(Model):
    side: float


class Everything(Model):
    title: str = field(was="name")
    count: Annotated[int, msgspec.Meta(ge=0)]
    price: Decimal
    at: datetime
    day: date
    span: timedelta
    id: UUID
    data: bytes
    color: Color
    kind: Literal["a", "b"]
    size: Size
    shape: Circle | Square
    note: str | None = None
    tags: tuple[str, ...] = ()
    parts: Mapping[str, Size] = {}
    pair: tuple[int, str] = (1, "one")
    chosen: frozenset[int] = frozenset()
    done: bool = False


class Tree(Model):
    name: str
    below: tuple[Tree, ...] = ()


def _everything(**changes: Any) -> Everything:
    made: dict[str, Any] = {
        "title": "tea",
        "count": 2,
        "price": Decimal("1.50"),
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "day": date(2026, 1, 2),
        "span": timedelta(seconds=90),
        "id": UUID(int=7),
        "data": b"raw",
        "color": Color.BLUE,
        "kind": "a",
        "size": Size(3),
        "shape": Square(2.0),
        "parts": {"lid": Size(1, 2)},
        "chosen": frozenset({3, 1}),
        **changes,
    }
    return Everything(**made)


def test_model_comes_back_from_its_json() -> None:
    made = _everything()
    text = json.dumps(made.to_json())
    assert Everything.from_json(json.loads(text)) == made
    assert json.loads(text)["name"] == "tea"  # the name that the field is stored under


def test_json_that_does_not_fit_names_the_place() -> None:
    good = _everything().to_json()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({**good, "count": "two"}, "at /count: expected int"),
        ({**good, "count": -1}, "at /count"),
        ({**good, "size": {"width": "x"}}, "at /size/width: expected int"),
        ({**good, "parts": {"lid": {"width": "x"}}}, "^at /parts/lid/width: expected int"),
        ({**good, "parts": {"lid": {}}}, "^at /parts/lid: the field 'width' of Size is missing: write a value"),
        ({"name": "tea"}, "is missing"),
    ]
    for data, said in wrong:
        with pytest.raises(InvalidValueError, match=said):
            Everything.from_json(data)
    with pytest.raises(InvalidValueError, match="expected Everything"):
        Everything.from_json(["tea"])


def test_pydantic_validates_and_serializes_models() -> None:
    adapter = pydantic.TypeAdapter(Everything)
    made = _everything()
    text = adapter.dump_json(made)
    assert adapter.validate_json(text) == made
    assert adapter.validate_python(made) is made
    assert adapter.validate_python(json.loads(text)) == made
    with pytest.raises(pydantic.ValidationError, match="at /count: expected int"):
        adapter.validate_python({**made.to_json(), "count": "two"})


def test_pydantic_model_has_fields_that_are_models() -> None:
    class Order(pydantic.BaseModel):
        lines: list[Circle]
        extra: dict[str, Square] = {}

    order = Order(lines=[Circle(1.0)], extra={"a": Square(2.0)})
    assert Order.model_validate_json(order.model_dump_json()) == order
    schema = Order.model_json_schema()
    assert schema["properties"]["lines"]["items"]["properties"] == {"radius": {"type": "number"}}


def test_json_schema_of_a_model_describes_its_json() -> None:
    schema = pydantic.TypeAdapter(Everything).json_schema()
    said = schema["properties"]
    assert set(schema["required"]) == set(_everything().to_json()) - {"note", "tags", "parts", "pair", "chosen", "done"}
    assert said["name"] == {"type": "string"}
    assert said["count"] == {"type": "integer", "minimum": 0}
    assert said["at"] == {"type": "string", "format": "date-time"}
    assert said["color"]["enum"] == ["red", "blue"]
    assert said["kind"] == {"enum": ["a", "b"]}
    assert said["size"]["properties"]["height"] == {"type": "integer", "default": 1}
    assert said["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert said["parts"]["additionalProperties"]["title"] == "Size"
    assert said["chosen"]["uniqueItems"] is True
    (tag,) = {key for each in said["shape"]["anyOf"] for key, value in each["properties"].items() if "const" in value}
    assert _everything().to_json()["shape"][tag] == "Square"


def test_json_schema_of_a_model_that_contains_itself_ends() -> None:
    schema = pydantic.TypeAdapter(Tree).json_schema()
    assert schema["properties"]["below"]["items"] == {"title": "Tree", "type": "object"}
    tree = Tree("a", (Tree("b"),))
    assert pydantic.TypeAdapter(Tree).validate_python(tree.to_json()) == tree
