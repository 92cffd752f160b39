"""Verifiers that ship: the naive definition of the rules, and the oracle that replays a file against them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.lazy import load_on_use

if TYPE_CHECKING:
    from headwater.engine.verify.naive import (
        AlreadyAccepted,
        NaiveSpace,
        Past,
        Refusal,
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
    "NaiveSpace",
    "Past",
    "Refusal",
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
        "Refusal": "headwater.engine.verify.naive",
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
