"""The kit of scenarios of pieces, under its former name."""

from __future__ import annotations

from tests.scenario.pieces_kit import PLACES, Ranned, Site, Spent, alone, at, run, turns

__all__ = ["PLACES", "Ranned", "Site", "Spent", "alone", "at", "run", "turns"]
