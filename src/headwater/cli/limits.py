"""Every bound of the commands. Those of the server that a command asks are in `server.operation.limits`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """Bounds on the waits of commands, and on the lines that they print for people."""

    answer_s: float = 60.0  # for the answer of a server, and of the token that a command makes for one question
    follow_s: float = 0.5  # between two questions of `intents --follow`
    reload_s: float = 0.3  # between two looks at the files of an application, with `run --reload`
    import_s: float = 30.0  # for the import of an application that is tried before a new start
    switch_interval_s: float = 0.000_5  # after which a thread of a serving process gives way to another
    page: int = 1_000  # nodes, pieces or reads in one question of `preview` and `verify`
    document_page: int = 200  # documents that are searched for pieces at once
    pages: int = 10_000  # of nodes of one space
    listed_nodes: int = 50  # printed by `preview`
    listed_findings: int = 50  # printed by `verify`
    listed_changes: int = 100  # documents of a page of `branch diff`, and changes printed
    listed_writes: int = 5  # of one commit printed by `log`, and newer writes by `why`
    listed_causes: int = 3  # of one node printed by `nodes`, of one piece by `backlog`
    piped_width: int = 200  # characters of a line for a program: wide, because lines must not break there


DEFAULT_COMMAND_LIMITS = CommandLimits()
