"""Branches, as commands ask about them: what is done with one, and what came of it as plain JSON. Decides nothing."""

from __future__ import annotations

from headwater.data.address import doc_text
from headwater.data.codec import json_form
from headwater.data.json_form import JsonForm
from headwater.data.path import path_text
from headwater.engine.admission.merge import BranchDiff
from headwater.engine.engine import Engine
from headwater.errors import AuthoringError
from headwater.protocol.commit import MAIN
from headwater.protocol.desk import Question
from headwater.protocol.verdict import Accepted, Collision, as_error

__all__ = ["branch_form"]


def branch_form(engine: Engine, asked: Question) -> dict[str, JsonForm]:
    """Do what is asked with the branches of a space."""
    match asked.value:
        case "list":
            return _listed(engine, asked)
        case "new":
            made = engine.fork(asked.name, parent=asked.branch or MAIN, at=asked.at)
            return {"name": made.name, "parent": asked.branch or MAIN, "fork_seq": made.fork_seq}
        case "diff":
            return _diff_form(engine.diff(asked.name, after=asked.after, limit=asked.limit))
        case "merge":
            return _merged(engine, asked.name)
        case "delete":
            engine.delete_branch(asked.name)
            return {"deleted": asked.name}
        case other:
            raise AuthoringError(f"{other!r} is nothing to do with a branch: list, new, diff, merge or delete")


def _listed(engine: Engine, asked: Question) -> dict[str, JsonForm]:
    page = engine.branches(after=asked.after, limit=asked.limit)
    found: list[JsonForm] = [
        {
            "name": each.name,
            "parent": each.parent.name if each.parent else None,
            "fork_seq": each.fork_seq,
            "created_us": each.row.created_us,
            "merged_seq": each.row.merged_seq or None,
        }
        for each in page.items
    ]
    return {"branches": found, "next": page.next}


def _merged(engine: Engine, name: str) -> dict[str, JsonForm]:
    found, verdict = engine.merge(name)
    if verdict is not None and not isinstance(verdict, Accepted):
        raise as_error(verdict)
    return {**_diff_form(found), "merged_seq": None if verdict is None else verdict.seq}


def _diff_form(found: BranchDiff) -> dict[str, JsonForm]:
    return {
        "branch": found.branch,
        "parent": found.parent,
        "since": found.since,
        "through": found.through,
        "documents": len(found.changes),
        "changes": [
            {
                "kind": patch.kind,
                "address": doc_text(change.doc, patch.path),
                "value": json_form(patch.arg),
            }
            for change in found.changes
            for patch in change.patches
        ],
        "collisions": [_collision_form(each) for each in found.collisions],
        "next": found.next,
    }


def _collision_form(collision: Collision) -> JsonForm:
    return {
        "address": doc_text(collision.doc, collision.path),
        "path": path_text(collision.path),
        "basis": collision.basis,
        "seq": collision.seq,
        "session": collision.session,
        "node": collision.node,
        "reason": collision.reason,
        "says": str(collision),
    }
