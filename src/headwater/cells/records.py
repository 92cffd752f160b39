"""Codecs of records: Models and other frozen Structs, frozen dataclasses, frozen pydantic models.

A record is stored as an object with a key per field, under the first stored name of the field (`was=`). `codec` decides
which classes are allowed. Invariants: `join` keeps a field that this version of the class does not know; a field that
is not stored has its default; one that neither has is an error.

Where every field is native, msgspec decodes the record in one call; a record that it refuses is decoded by field, which
either succeeds (1.0 is an int) or names the culprit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headwater.cells.codec_base import Lazy, Mismatch, TypeCodec, is_known_to_msgspec
from headwater.data.json_form import json_form, json_key
from headwater.data.value import ABSENT, MaybeValue, Value

__all__ = ["TAG", "Field", "RecordCodec"]

TAG: Final = "$type"
"""The key of a tag. No field can have that name, so that no field can collide with it."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Field:
    """One field of a record. `codec` is set once, right after the record's codec was made: types may be recursive."""

    name: str
    stored: str
    codec: TypeCodec[Any]
    default: Callable[[], Any] | None
    """Makes the default; None where the field is required."""

    argument: str
    """The name of the constructor's argument."""


class RecordCodec(TypeCodec[Any]):
    """A record of one class."""

    __slots__ = (
        "_make",
        "_native_type",
        "_reuses",
        "always_tagged",
        "by_name",
        "fields",
        "keeps",
        "tag",
        "tag_key",
        "type",
    )

    def __init__(self, type_: type[Any], expected: str, make: Callable[..., Any]) -> None:
        super().__init__(expected, dict)
        self.type = type_
        self._make = make
        self.fields: tuple[Field, ...] = ()
        self.by_name: Mapping[str, Field] = {}
        self._native_type: Any = None
        self.keeps = True  # unknown stored fields
        self.tag: str | int = type_.__name__  # the tag that a union writes beside the fields
        self.tag_key = TAG
        self.always_tagged = False  # in a union or not, because the class says so
        self._reuses = False  # parts of another instance may go into a new one: its constructor leaves them alone

    def complete(self, fields: tuple[Field, ...], *, native_type: Any, reuses: bool) -> None:
        """Give it its fields. Called once, by the builder."""
        self.fields = fields
        self.by_name = {field.name: field for field in fields}
        self.hashable = all(field.codec.hashable for field in fields)
        self._reuses = reuses
        is_native = native_type is not None and not self.always_tagged and all(field.codec.native for field in fields)
        if is_native and is_known_to_msgspec(native_type):
            self._native_type = native_type
            self.native = True

    # ---- storing -----------------------------------------------------------------------------------------

    def enter(self, value: object, level: int) -> Value:
        return self.join(ABSENT, value, ABSENT, level)

    def join(self, old: MaybeValue, new: object, known: object, level: int) -> Value:
        if type(new) is not self.type:
            new = self._exact(new)
        if new is known:
            return old  # type: ignore[return-value]  # It was decoded from there.
        self.room(level, len(self.fields))
        is_old = type(old) is dict
        stored: dict[str, Value] = old if is_old else {}  # type: ignore[assignment]
        made: dict[str, Value] = dict(stored) if self.keeps else {}
        if self.always_tagged:
            made[self.tag_key] = self.tag
        same = is_old and len(made) == len(stored) and (not self.always_tagged or stored.get(self.tag_key) == self.tag)
        for field in self.fields:
            value = getattr(new, field.name)
            try:
                if is_old:
                    before = stored.get(field.stored, ABSENT)
                    if before is not ABSENT and before is value and type(value) is field.codec.exact:
                        made[field.stored] = before  # Most fields of a changed copy: the object that is stored.
                        continue
                    then = ABSENT if known is ABSENT or before is ABSENT else getattr(known, field.name)
                    raw = field.codec.join(before, value, then, level + 1)
                    same = same and raw is before
                else:
                    raw = field.codec.enter(value, level + 1)
            except Mismatch as mismatch:
                mismatch.steps.append(field.stored)
                raise
            made[field.stored] = raw
        return old if same else made  # type: ignore[return-value]

    def _exact(self, value: object) -> object:
        if isinstance(value, Lazy):
            value = value.__whole__()
        if type(value) is self.type:
            return value
        if isinstance(value, self.type):
            return self.misfit(value, f"write {self.expected} | {type(value).__name__} where it is declared")
        return self.misfit(value, f"write {self.expected}(...)" if isinstance(value, Mapping) else "")

    def accepts(self, value: object) -> bool:
        return isinstance(value, self.type)

    # ---- reading -----------------------------------------------------------------------------------------

    def leave(self, raw: Value) -> Any:
        if self._native_type is not None:
            try:
                return msgspec.convert(raw, self._native_type)
            except (msgspec.ValidationError, RecursionError):
                pass  # Field by field finds the culprit, or that it can be read after all.
        return self._by_field(raw, ABSENT, None)

    def leave_changed(self, old: Value, known: Any, raw: Value) -> Any:
        if self._native_type is not None or not self._reuses or type(old) is not dict:
            return self.leave(raw)
        return self._by_field(raw, known, old)

    def _by_field(self, raw: Value, known: Any, old: dict[str, Value] | None) -> Any:
        if type(raw) is not dict:
            return self.misfit_stored(raw)
        if not self.keeps and (unknown := raw.keys() - {field.stored for field in self.fields} - {self.tag_key}):
            raise Mismatch(f"{self.expected} forbids unknown fields, and {sorted(unknown)[0]!r} is stored")
        arguments: dict[str, Any] = {}
        changed = old is None
        for field in self.fields:
            item = raw.get(field.stored, ABSENT)
            before = ABSENT if old is None else old.get(field.stored, ABSENT)
            if item is before and item is not ABSENT:
                arguments[field.argument] = getattr(known, field.name)
                continue
            if item is not before:
                changed = True
            if item is not ABSENT:
                arguments[field.argument] = self._field(field, before, known, item)
            elif field.default is None:
                raise Mismatch(
                    f"the field {field.stored!r} of {self.expected} is missing",
                    stored_advice=f"give {self.expected}.{field.name} a default, or write the value anew",
                )
        if not changed:
            return known  # Only fields that this version does not know are different.
        return self._construct(arguments)

    def _field(self, field: Field, before: MaybeValue, known: Any, item: Any) -> Any:
        try:
            if before is ABSENT:
                return field.codec.leave(item)
            return field.codec.leave_changed(before, getattr(known, field.name), item)
        except Mismatch as mismatch:
            mismatch.steps.append(field.stored)
            raise

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        made: dict[str, Any] = {"title": self.expected, "type": "object"}
        if self.type in within:
            return made  # A type that contains itself: the schema ends here.
        inner = (*within, self.type)
        made["properties"] = {json_key(field.stored): self._field_schema(field, inner) for field in self.fields}
        if self.always_tagged:
            made["properties"][json_key(self.tag_key)] = {"const": self.tag}
        required = [json_key(field.stored) for field in self.fields if field.default is None]
        return {**made, "required": required} if required else made

    def _field_schema(self, field: Field, within: tuple[type, ...]) -> dict[str, Any]:
        found = field.codec.schema(within)
        if field.default is not None:
            found["default"] = json_form(field.codec.encode(field.default()))
        return found

    def _construct(self, arguments: dict[str, Any]) -> Any:
        try:
            return self._make(**arguments)
        except (ValueError, TypeError) as error:
            raise Mismatch(f"{self.expected} cannot be made of it: {' '.join(str(error).split())[:200]}") from error
