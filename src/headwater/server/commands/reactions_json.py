"""Reactions of a space as JSON for commands: their state, failures, and operators' actions.

An action on many targets is carried out in several steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import msgspec

from headwater.engine.engine import Engine
from headwater.errors import AbsentError, AuthoringError
from headwater.protocol.reactions import (
    Does,
    Failures,
    Operate,
    Operated,
    QueryFailures,
    QueryReactions,
    QueryTargets,
    ReactionList,
    TargetPage,
    check_matched,
)
from headwater.server.operation.limits import DEFAULT_SERVER_LIMITS, ServerLimits

if TYPE_CHECKING:
    from headwater.data.json_form import JsonForm
    from headwater.protocol.reactions import Delivers

__all__ = ["reactions_form"]

T = TypeVar("T")
DOES: Final = get_args(Does)


def reactions_form(engine: Engine, said: object, limit: int, limits: ServerLimits = DEFAULT_SERVER_LIMITS) -> JsonForm:
    """Answer a question about reactions. `said["does"]` is list, targets, failures, groups or an operator's action."""
    asked: Mapping[str, Any] = said if isinstance(said, Mapping) else {}
    does = asked.get("does") or "list"
    _check_options(does, asked)
    if does == "list":
        return [_struct_form(each) for each in _ask_engine(engine, QueryReactions(0), ReactionList).reactions]
    reaction = _find_reaction(engine, asked.get("reaction"))
    key, after, fingerprint = asked.get("key"), asked.get("after"), asked.get("fingerprint")
    if does == "targets":
        question = msgspec.convert(("query_targets", 0, reaction, asked.get("state"), after, limit), QueryTargets)
        page = _ask_engine(engine, question, TargetPage)
        return {"reaction": reaction, "targets": [_struct_form(each) for each in page.targets], "next": page.next}
    if does == "failures":
        place = asked.get("record")
        about = msgspec.convert(("query_failures", 0, reaction, key, after, limit, place), QueryFailures)
        failed = _ask_engine(engine, about, Failures)
        return {
            "reaction": reaction,
            "attempts": [_struct_form(each) for each in failed.attempts],
            "parked": [_struct_form(each) for each in failed.parked],
            "next": failed.next,
            "record": None if failed.place is None else list(failed.place),
        }
    if does == "groups":
        return _groups(engine, reaction, limits.question_failures)
    if does not in DOES:
        raise AuthoringError(f"{does!r} cannot be done with reactions: write list, targets, failures, groups, {_LIST}")
    count, matched, next_key, place = 0, 0, None, None
    while True:
        said = ("operate", 0, does, reaction, key, asked.get("record"), fingerprint, next_key, place)
        wish = msgspec.convert(said, Operate)
        done = _ask_engine(engine, wish, Operated)
        count, next_key, place = count + done.count, done.next, done.place
        matched += done.matched
        if next_key is None:
            check_matched(wish, matched)
            return {"reaction": reaction, "does": does, "count": count}


_LIST: Final = ", ".join(DOES)


_OPTIONS: Final[dict[str, frozenset[str]]] = {
    "list": frozenset(),
    "targets": frozenset({"state", "after"}),
    "failures": frozenset({"key", "after", "record"}),
    "groups": frozenset(),
}
"""Options of the actions that only read. The engine checks those of the other actions."""
_CHANGING: Final = frozenset({"key", "record", "fingerprint"})


def _check_options(does: object, asked: Mapping[str, Any]) -> None:
    """Refuse an option that the action would ignore."""
    known = _OPTIONS.get(does, _CHANGING) if isinstance(does, str) else _CHANGING
    wrong = [name for name in ("key", "record", "fingerprint", "state", "after") if asked.get(name) is not None]
    wrong = [name for name in wrong if name not in known]
    if wrong:
        raise AuthoringError(f"{does} does not take {' or '.join(f'--{name}' for name in wrong)}: leave it out")


def _groups(engine: Engine, reaction: str, most: int) -> JsonForm:
    """Return failures grouped by fingerprint, the most frequent first, with the latest message."""
    groups: dict[str, dict[str, Any]] = {}
    keys: dict[str, dict[str, None]] = {}
    after, place = None, None
    while True:  # Continues by key and record, so that it ends.
        failed = _ask_engine(engine, QueryFailures(0, reaction, None, after, most, place), Failures)
        for each in failed.attempts:
            group = groups.setdefault(each.fingerprint, {"fingerprint": each.fingerprint, "attempts": 0})
            group.update(error=each.error, message=each.message, attempts=group["attempts"] + 1)
            keys.setdefault(each.fingerprint, {})[each.key] = None
        after, place = failed.next, failed.place
        if after is None:
            break
    for fingerprint, group in groups.items():
        group["keys"] = [*keys[fingerprint]]
    found = sorted(groups.values(), key=lambda group: -len(group["keys"]))
    return {"reaction": reaction, "groups": [*found]}


def _find_reaction(engine: Engine, said: object) -> str:
    """Return a reaction by its name, or by an unambiguous end of its name."""
    names = [each.name for each in _ask_engine(engine, QueryReactions(0), ReactionList).reactions]
    if not isinstance(said, str) or not said:
        raise AuthoringError(f"say which reaction: {', '.join(names) or 'there is none here'}")
    meant = [name for name in names if name == said] or [name for name in names if name.endswith(f".{said}")]
    if len(meant) != 1:
        raise AbsentError(f"there are {len(meant)} reactions {said!r} here: write one of {', '.join(names) or 'none'}")
    return meant[0]


def _ask_engine(engine: Engine, question: Delivers, kind: type[T]) -> T:
    answer = engine.deliver(question)
    assert isinstance(answer, kind)
    return answer


def _struct_form(each: msgspec.Struct) -> dict[str, Any]:
    return {name: list(of) if isinstance(of, tuple) else of for name, of in msgspec.structs.asdict(each).items()}
