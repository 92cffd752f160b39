"""The stored form of an observation: some bytes that change with every run, and some that seldom do.

`State` is what a run changes; `Body` is what a node read and started. A document is named by its number where it has
one: a piece of a thousand nodes says the names of its documents once, among the documents of the space. Owns these
forms and the number that stands for a document that was never written; never decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from headwater.data.address import Depth, DocKey
from headwater.data.path import Path
from headwater.protocol.observations import ForeignRead

StoredDoc = int | tuple[str, str]
"""A document: its number, or its scope and id if it was never written when this was stored."""


class State(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What changes with every run. Texts are numbers of names; 0: an empty one."""

    kind: int
    fingerprint: int
    gate: int
    failed: int
    took_us: int
    changed_at: int  # the last commit that wrote its outputs; of a whole piece, its generation
    verified_at: int  # its reads were current then
    session: int  # who observed it
    order: int  # which of that session's runs it was
    cause: int | tuple[StoredDoc, Path] | None = None  # the place of a read, or an address
    foreign: tuple[ForeignRead, ...] = ()


class StoredRead(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, omit_defaults=True, gc=False
):
    doc: StoredDoc
    path: Path
    depth: int = 0


class Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """What a node read here, and what it started."""

    reads: tuple[StoredRead, ...]
    children: tuple[str, ...] = ()


class MirrorBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The documents that a piece of another space reads here, with the seqs it saw them at."""

    docs: tuple[tuple[DocKey, int], ...]
    at: int = 0  # the owner's seq at which that was all


_encoder = msgspec.msgpack.Encoder()
_states = msgspec.msgpack.Decoder(State)
_bodies = msgspec.msgpack.Decoder(Body)
_mirrors = msgspec.msgpack.Decoder(MirrorBody)

encode_form = _encoder.encode
decode_state = _states.decode
decode_body = _bodies.decode
decode_mirror = _mirrors.decode


def stored_read(doc: StoredDoc, path: Path, depth: Depth) -> StoredRead:
    return StoredRead(doc, path, int(depth))


def number_of_absent(key: DocKey) -> int:
    """A negative number for a document that has none. Two of them may have the same: it only helps to find readers."""
    digest = blake2b(f"{key.scope}\0{key.id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "big") >> 2)


def docs_of(reads: Iterable[StoredRead]) -> dict[StoredDoc, None]:
    """The documents of reads, each once."""
    return dict.fromkeys([read.doc for read in reads])
