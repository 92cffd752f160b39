"""The bounds of resuming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeLimits:
    """Bounds on the questions about stored nodes, and on the nodes and documents that are followed."""

    page: int = 1_000  # nodes, pieces or readers in one question or answer
    piece_pages: int = 1_000  # of observations of one piece; beyond them its nodes are unknown
    clean_pages: int = 100  # of clean pieces of one space; beyond them pieces are opened node by node
    foreign_reads: int = 5_000  # in one question to another space
    foreign_documents: int = 1_000  # of one other space that are loaded before their readers are resumed
    unsure_nodes: int = 100_000  # reported again when their reads of other spaces are confirmed
    node_questions: int = 3  # about one node, if its reads are written at the same time
    writer_depth: int = 100  # of pieces in pieces that are followed to the writers of reads
    known_classes: int = 100_000  # pieces whose classes are remembered
    reported_commits: int = 100  # after which a clean piece is reported again
    ahead_documents: int = 400  # of pieces that are not opened yet
    watched_documents: int = 500  # in one message
    affected_nodes: int = 300  # of one piece that one change resumes; beyond it all of the piece is resumed
    shadow_attempts: int = 100  # of one node, each after a document was fetched for it
    listed_reads: int = 5  # written since, in the reason of a preview


DEFAULT_RESUME_LIMITS: Final = ResumeLimits()
