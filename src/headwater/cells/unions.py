"""Codecs of unions.

The members of a union are told apart by the kind of the stored value, and records by a tag beside their fields. A union
whose members could not be told apart again is refused when its codec is made. Invariant: a value that one member wrote
is never read by another.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from headwater.cells.codec_base import Lazy, Mismatch, TypeCodec
from headwater.cells.records import RecordCodec
from headwater.cells.scalars import FloatCodec, IntCodec, LiteralCodec
from headwater.data.address import Depth
from headwater.data.json_form import json_key
from headwater.data.path import Path
from headwater.data.text import shown
from headwater.data.value import ABSENT, MaybeValue, Value
from headwater.errors import AuthoringError

__all__ = ["UnionCodec"]

_NOUNS = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
    bytes: "bytes",
    tuple: "an array",
    dict: "an object",
}


class UnionCodec(TypeCodec[Any]):
    """One of several types."""

    __slots__ = ("_by_kind", "_literals", "_tags", "members", "records")

    def __init__(self, members: tuple[TypeCodec[Any], ...]) -> None:
        records = [member for member in members if isinstance(member, RecordCodec)]
        super().__init__(
            " | ".join(member.expected for member in members),
            *frozenset().union(*(member.kinds for member in members)),
            plain=all(member.plain for member in members),
            native=all(member.native for member in members) and len(records) <= 1,
            hashable=all(member.hashable for member in members),
        )
        self.records = tuple(records)
        self.members = members
        self._literals = tuple(member for member in members if isinstance(member, LiteralCodec))
        self._tags: dict[tuple[str, str | int], RecordCodec] = {}
        self._by_kind: dict[type, TypeCodec[Any]] = {}
        for member in members:
            if isinstance(member, RecordCodec):
                self._place_record(member)
            elif not isinstance(member, LiteralCodec):
                self._place(member)
        for literal in self._literals:
            self._check_literal(literal)

    # ---- telling the members apart -----------------------------------------------------------------------

    def _place(self, member: TypeCodec[Any]) -> None:
        numbers = (IntCodec, FloatCodec)
        for kind in member.kinds:
            other = self._by_kind.get(kind) or (self.records[0] if kind is dict and self.records else None)
            if other is None:
                self._by_kind[kind] = member
            elif isinstance(other, numbers) and isinstance(member, numbers):
                self._by_kind[int if isinstance(member, IntCodec) else float] = member
            else:
                raise AuthoringError(
                    f"{self.expected} cannot be told apart once it is stored: {other.expected} and {member.expected} "
                    f"are both {_NOUNS.get(kind, kind.__name__)}. Put one of them into a Model of its own"
                )

    def _place_record(self, member: RecordCodec) -> None:
        other = self._tags.setdefault((member.tag_key, member.tag), member)
        if other is not member:
            raise AuthoringError(
                f"two classes of {self.expected} have the tag {shown(member.tag)}: "
                f"write class {member.type.__name__}(Model, tag='...') for one of them"
            )

    def _check_literal(self, literal: LiteralCodec) -> None:
        for _, value in literal.values:
            other = self._by_kind.get(type(value))
            if other is None or other.plain:
                continue
            try:
                other.leave(value)
            except Mismatch:
                continue
            raise AuthoringError(
                f"{self.expected} cannot be told apart once it is stored: {shown(value)} is also the stored form of "
                f"a {other.expected}. Choose another literal"
            )

    def member(self, raw: Value) -> TypeCodec[Any]:
        """The member that wrote `raw`. Raises Mismatch where none did."""
        for literal in self._literals:
            if literal.accepts(raw):
                return literal
        if type(raw) is dict and self.records:
            return self.records[0] if len(self.records) == 1 else self._tagged(raw)
        return self._by_kind.get(type(raw)) or self.misfit_stored(raw)

    def deciding(self, raw: Value) -> list[tuple[Path, Depth]]:
        """Return the places in `raw` that tell which member wrote it, or that none did, and the depth of each."""
        if type(raw) is not dict or len(self.records) < 2:
            return [((), Depth.SHAPE)]  # Its kind; and of something that has no parts, all there is.
        keys = {key for key, _ in self._tags}
        if any(_is_tag(raw.get(key)) for key in keys):
            return [((key,), Depth.DEEP) for key in sorted(keys)]
        return [((), Depth.DEEP)]

    def _tagged(self, raw: dict[str, Value]) -> RecordCodec:
        untagged = True
        for key in sorted({key for key, _ in self._tags}):
            tag = raw.get(key)
            if _is_tag(tag):
                if (key, tag) in self._tags:
                    return self._tags[key, tag]
                untagged = False
        if not untagged:
            return self.misfit_stored(raw, f"import the class that it names and add it to {self.expected}")
        # Stored before the type was a union: readable as long as only one class fits.
        fitting = [record for record in self.records if self._fits(record, raw)]
        return fitting[0] if len(fitting) == 1 else self.misfit_stored(raw)

    @staticmethod
    def _fits(record: RecordCodec, raw: dict[str, Value]) -> bool:
        if not raw.keys() <= {field.stored for field in record.fields}:
            return False
        try:
            record.leave(raw)
        except Mismatch:
            return False
        return True

    # ---- storing and reading -----------------------------------------------------------------------------

    def enter(self, value: object, level: int) -> Value:
        return self.join(ABSENT, value, ABSENT, level)

    def join(self, old: MaybeValue, new: object, known: object, level: int) -> Value:
        if isinstance(new, Lazy):
            new = new.__whole__()
        member = self._taker(new)
        if old is not ABSENT:
            try:
                is_same = self.member(old) is member
            except Mismatch:
                is_same = False
            if not is_same:
                old = known = ABSENT
        raw = member.join(old, new, known, level)
        if len(self.records) == 1 or not isinstance(member, RecordCodec) or type(raw) is not dict:
            return raw
        return raw if raw.get(member.tag_key) == member.tag else {**raw, member.tag_key: member.tag}

    def _taker(self, value: object) -> TypeCodec[Any]:
        for record in self.records:
            if type(value) is record.type:
                return record
        for literal in self._literals:
            if literal.accepts(value):
                return literal
        for member in self.members:
            if member.accepts(value):
                return member
        return self.misfit(value)

    def leave(self, raw: Value) -> Any:
        return self.member(raw).leave(raw)

    def schema(self, within: tuple[type, ...] = ()) -> dict[str, Any]:
        found = [member.schema(within) for member in self.members]
        if len(self.records) > 1:
            for member, made in zip(self.members, found, strict=True):
                if isinstance(member, RecordCodec):
                    key = json_key(member.tag_key)
                    made["properties"] = {**made.get("properties", {}), key: {"const": member.tag}}
                    made["required"] = list(dict.fromkeys([*made.get("required", []), key]))
        return {"anyOf": found}

    def leave_changed(self, old: Value, known: Any, raw: Value) -> Any:
        member = self.member(raw)
        return member.leave_changed(old, known, raw) if self.member(old) is member else member.leave(raw)

    def accepts(self, value: object) -> bool:
        return any(member.accepts(value) for member in self.members)


def _is_tag(value: object) -> TypeGuard[str | int]:
    return type(value) is str or type(value) is int
