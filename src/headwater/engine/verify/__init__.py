"""Verifiers that ship: the naive definition of the rules, and the oracle that replays a file against them.

Start with `naive` (the rules of admission, written as simply as possible), then `oracle` (`verify_file`: checks that
everything in the file of a space follows from the rules). `replay` judges every accepted commit once more,
`document_history` keeps the documents of the replay, `derived_tables` checks the tables beside the log, `report` has
the results.

Imported by `cli`. Imports `observations`, `log` and `store`. The names below are also for tests that compare an engine
with the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.engine.verify.naive import (
        AlreadyAccepted,
        NaiveRefusal,
        NaiveSpace,
        Past,
        folded,
        names,
        numbers,
        same,
        stepped,
        writes,
    )
    from headwater.engine.verify.oracle import verify_file, verify_store
    from headwater.engine.verify.report import Report

__all__ = [
    "AlreadyAccepted",
    "NaiveRefusal",
    "NaiveSpace",
    "Past",
    "Report",
    "folded",
    "names",
    "numbers",
    "same",
    "stepped",
    "verify_file",
    "verify_store",
    "writes",
]

__getattr__ = load_on_use(
    __name__,
    {
        "verify_file": "headwater.engine.verify.oracle",
        "verify_store": "headwater.engine.verify.oracle",
        "NaiveSpace": "headwater.engine.verify.naive",
        "Past": "headwater.engine.verify.naive",
        "NaiveRefusal": "headwater.engine.verify.naive",
        "AlreadyAccepted": "headwater.engine.verify.naive",
        "folded": "headwater.engine.verify.naive",
        "names": "headwater.engine.verify.naive",
        "numbers": "headwater.engine.verify.naive",
        "same": "headwater.engine.verify.naive",
        "stepped": "headwater.engine.verify.naive",
        "writes": "headwater.engine.verify.naive",
        "Report": "headwater.engine.verify.report",
    },
)
