"""The over-approximations of the engine: reasons for which it may reject a commit that the naive model admits.

C2 allows overlap to be over-approximated, never under-approximated. Each kind is defined here from the naive history
alone, without asking the engine, so that a rejection that fits none of them is a disagreement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from headwater.data.address import Depth
from headwater.data.change import changed_touches, overlaps
from headwater.data.patch import Patch, Touch, apply
from headwater.data.path import Path
from headwater.data.value import ABSENT, MaybeValue
from headwater.engine import Limits
from headwater.engine.verify import NaiveSpace, Past, folded, names, writes
from headwater.protocol.commit import Read

KINDS: Final[dict[str, str]] = {
    "splice_whole_array": "a splice counts as a write to its whole array",
    "remove_value_whole_array": "so does a remove_value that took something out",
    "add_sorted_whole_array": "so does an add_sorted that put something in",
    "bounded_append": "so does an append that dropped elements at the front",
    "replaced_container": "a container replaced as a whole counts as written in every part of it",
    "no_net_change": "a change that its own commit undid counts if that commit changes another part of the document",
    "merged_marks": "past its size the write index merges its oldest paths into their parent",
    "parent_after_fork": "a basis before the fork also meets the parent's writes after it",
    "forgotten_own": "of own commits no longer in memory, any write to the document counts",
    "layers_over_array": "a read that stands on layers and looks into an array depends on all of it",
    "basis_expired": "the history that would tell was compacted, or is too long to walk",
    "acknowledged": "the keys of acknowledged commits are gone after a compaction",
}

_BY_PATCH: Final = {
    "splice": "splice_whole_array",
    "remove_value": "remove_value_whole_array",
    "add_sorted": "add_sorted_whole_array",
    "append": "bounded_append",
    "replace": "replaced_container",
    "add": "replaced_container",
}

TRUE: Final = "true"
"""Not an over-approximation: the naive model sees this very conflict, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """The history that the engine may have dropped when it judged."""

    limits: Limits
    forgotten_seq: int  # own commits up to this seq may be out of memory
    kept_from: int  # history before this seq was compacted away


def explain(naive: NaiveSpace, session: str, branch: str, read: Read, seq: int, around: Circumstances) -> str | None:
    """Why the engine may say that the read missed the write at `seq`: a kind, TRUE, or None: nothing fits."""
    if not read.seq < seq <= naive.last_seq or not writes(naive.history[seq - 1].commit, read.doc):
        return None
    kind = _explain(naive, session, branch, read, naive.history[seq - 1], around)
    if kind is None and read.layers:
        wider = _whole_array(read)
        return _explain(naive, session, branch, wider, naive.history[seq - 1], around) and "layers_over_array"
    return kind


def _whole_array(read: Read) -> Read:
    """Return a read of all of the first array on the path: the effect of a layer on an array depends on all of it."""
    cut = next((place for place, step in enumerate(read.path) if isinstance(step, int)), len(read.path))
    return msgspec.structs.replace(read, path=read.path[:cut], depth=Depth.DEEP)


def _explain(naive: NaiveSpace, session: str, branch: str, read: Read, past: Past, around: Circumstances) -> str | None:
    if past in naive.line(branch):
        return _explain_visible(naive, session, branch, read, past, around)
    fork_seq = naive.branches[branch].fork_seq
    if past.commit.branch in _ancestors(naive, branch) and read.seq < fork_seq:
        kind = _explain_visible(naive, session, past.commit.branch, read, past, around)
        return kind and "parent_after_fork"
    return None


def _explain_visible(
    naive: NaiveSpace, session: str, branch: str, read: Read, past: Past, around: Circumstances
) -> str | None:
    own = past.session == session
    named = own and names(read, past.commit.local_seq)
    if not named:
        if past.seq in naive.missed(session, branch, read):
            return TRUE
        for patch, before, touched in _steps(naive, branch, past, read):
            if any(overlaps(touch, read.path, read.depth) for touch in touched):
                really = changed_touches(before, apply(before, patch)[0])
                if any(overlaps(touch, read.path, read.depth) for touch in really):
                    return "no_net_change"
                return _BY_PATCH.get(patch.kind)
        if own and read.layers and read.seq < around.forgotten_seq:
            return "forgotten_own"
    if _is_crowded(naive, branch, read, around.limits):
        return "merged_marks"
    return None


def _steps(naive: NaiveSpace, branch: str, past: Past, read: Read) -> list[tuple[Patch, MaybeValue, tuple[Touch, ...]]]:
    """Return the patches of a commit to the document read, each with the value before it and its touches."""
    value: MaybeValue = ABSENT
    for earlier in naive.line(branch, past.seq - 1):
        value = folded(value, earlier.commit, read.doc)
    found = []
    for operation in past.commit.operations:
        if operation.doc == read.doc:
            for patch in operation.patches:
                after, touched = apply(value, patch)
                found.append((patch, value, touched))
                value = after
    return found


def _is_crowded(naive: NaiveSpace, branch: str, read: Read, limits: Limits) -> bool:
    """Whether the index of the document, on the branch or an ancestor, may have been merged."""
    for line in (branch, *_ancestors(naive, branch)):
        nodes: set[Path] = {()}
        for past in naive.history:
            if past.commit.branch == line:
                for _, _, touched in _steps(naive, line, past, read):
                    nodes.update(touch.path[:end] for touch in touched for end in range(len(touch.path) + 1))
        if len(nodes) > limits.marks_per_document:
            return True
    return False


def expired(naive: NaiveSpace, branch: str, read: Read, around: Circumstances) -> bool:
    """Whether the engine may say that history does not reach back to the basis of this read."""
    if not read.layers or read.seq >= around.forgotten_seq:
        return False
    if read.seq < around.kept_from - 1:
        return True
    lines = (branch, *_ancestors(naive, branch))
    walked = [
        past
        for past in naive.history
        if past.commit.branch in lines and past.seq > read.seq and writes(past.commit, read.doc)
    ]
    return len(walked) > around.limits.scan_commits


def _ancestors(naive: NaiveSpace, branch: str) -> list[str]:
    found = []
    parent = naive.branches[branch].parent
    while parent is not None:
        found.append(parent)
        parent = naive.branches[parent].parent
    return found
