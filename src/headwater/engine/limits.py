"""Every bound of the engine, in one place, so that a test can shrink it and an operator can read it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from headwater.data.limits import DEFAULT_VALUE_LIMITS, ValueLimits
from headwater.errors import AuthoringError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on commits, connections, workers and memory; each at least 1."""

    values: ValueLimits = field(default=DEFAULT_VALUE_LIMITS)

    # commits
    frame_commits: int = 1_000
    commit_reads: int = 100_000  # with the causes that it names
    commit_operations: int = 10_000
    commit_patches: int = 10_000
    commit_events: int = 10_000  # that it sends, and that it handles
    frame_bytes: int = 64 * 1024 * 1024
    document_bytes: int = 64 * 1024 * 1024
    frame_observations: int = 10_000  # beyond it, they are dropped
    commit_bytes: int = 16 * 1024 * 1024
    read_layers: int = 4_096

    # connections
    watches: int = 100_000  # documents that one session may watch
    own_watches: int = 10_000_000  # the same for a session of the process that owns the engine: the memory is its own
    user_watches: int = 200_000  # of all sessions of one user, also of those whose connection was lost
    user_kept_sessions: int = 64  # of one user whose connection was lost and whose watches are kept
    user_events: int = 100_000  # stored events of one user who is not an owner
    user_timers: int = 10_000  # of these, those with a time
    user_documents: int = 10_000  # of one user who may only read
    watch_selectors: int = 1_000  # documents in one watch message
    follow_documents: int = 10_000  # documents that following links from one watch may bring in
    followed_links: int = 1_024  # links of one document that are remembered
    query_documents: int = 1_000  # documents in one answer
    code_claims: int = 10_000  # classes whose code one session may claim
    in_flight: int = 1_024  # commits that one session may have waiting for a verdict
    session_opens: int = 2  # `Open` messages of one connection: with the last answered token, and the one after
    catch_up_commits: int = 64  # commits read from the log for a resumed session; beyond it, its documents are compared
    answer_bytes: int = 96 * 1024 * 1024  # documents in one answer, or in one Sync; more than one may be long
    sync_patches: int = 16  # changes of one document sent one by one; beyond it the document is sent as a whole
    sync_bytes: int = 8 * 1024 * 1024  # of all changes kept for one peer; beyond it only the changed documents are kept
    small_change_bytes: int = 256  # a shorter change is not counted for `sync_bytes`
    named_hops: int = 6  # hops from which on a change says which node and session wrote it
    sync_window: int = 8  # Sync frames that may be on the way to one peer
    turn_us: int = 4_000  # how long a session has the turn after a conflict, at least: a few round trips
    turn_us_most: int = 50_000  # and at most, where sessions that had it took long
    turn_quiet_us: int = 20_000  # how long a queued session gets no news of other writes
    turn_queue: int = 256  # sessions queued at one document; a later one waits by itself

    # workers
    subscriptions: int = 1_000  # reactions of a space
    claim_targets: int = 1_000  # targets in one claim, and outcomes of targets in one message
    claim_records: int = 1_000  # records of one target in one claim
    claim_bytes: int = 1024 * 1024  # records in one claim; one may be longer
    worker_lanes: int = 64  # open claims of one worker
    attempts_kept: int = 32  # attempts kept of a record: the last ones
    priority_us: int = 1_000_000  # a target counts as due so much earlier for each step of priority
    drained_pages: int = 100  # pages of due targets looked through for records up to a commit
    failure_text: int = 2_000  # characters that are kept of an error message

    # memory
    session_kept_us: int = 30_000_000  # how long the watches of a lost connection are kept
    cache_bytes: int = 64 * 1024 * 1024
    cached_sessions: int = 4_096
    session_commits: int = 512  # accepted commits remembered per session, with their touched paths
    session_documents: int = 32_768  # documents that these touched: of wide commits fewer are remembered
    session_rejections: int = 512  # rejections remembered per session, to repeat them for a replay
    session_collisions: int = 64  # collisions remembered of one rejection
    session_acks: int = 256  # acknowledged commits after which a session's row is stored again
    commit_touches: int = 64  # touched paths remembered of a commit per document; beyond it, it counts as all of it
    outline_bytes: int = 8 * 1024 * 1024  # outlines of large commits that are remembered, with their log rows
    outline_operations: int = 16  # operations from which on the outline of a commit is remembered
    cached_observations: int = 16_384  # nodes whose last observation is kept in memory
    marks_per_document: int = 16_384  # write index nodes; beyond it the oldest are merged into their parent

    # disk
    snapshot_patches: int = 16  # commits between two fresh snapshots of a document
    snapshot_patches_most: int = 256  # commits after which a document gets one whatever its size
    marks_patches: int = 16  # writes to a document after which its write index is stored again
    marks_share: int = 4  # a stored write index waits until 1/share as many touches as it has nodes are new
    snapshot_share: int = 8  # a snapshot waits until the patches since the last are 1/share of its size
    snapshots_fresh: int = 16  # newest snapshots that thinning leaves alone
    heads_commits: int = 1_024  # commits and results between write-backs of heads and runs; opening replays these

    # cost of one call
    scan_commits: int = 1_024  # log rows one admission may walk before it answers `basis_expired`
    page: int = 1_000  # rows of one page of any listing
    swept_rows: int = 100  # rows that one transaction looks at to find names that nothing uses any more
    unswept_names: int = 256  # names that are not worth a sweep
    backlog_causes: int = 16  # documents listed as causes of one piece's backlog
    prefetch_documents: int = 8  # documents named by a commit beyond which they are rebuilt together
    branch_depth: int = 64  # branches that were started from branches, in a row
    loop_bytes: int = 64 * 1024  # gone through for messages, about, by an event loop; more is for the space's thread
    group_commits: int = 256  # frames that one store transaction may take together
    backlog_frames: int = 16_384  # frames that may wait for the thread of a space
    replayed_rows: int = 256  # log rows in memory while a space is opened
    names_per_row: int = 3  # names of its own that a row has, about: beyond it names are left over

    # nodes that are affected by writes
    clean_reports: int = 16_384  # sessions, and pieces, whose reports of clean pieces are kept in memory
    affected_places: int = 16  # written places of one document; beyond it every reader of the document is affected
    affected_revisions: int = 64  # of one document that are decoded to find its written places
    affected_documents: int = 20_000  # written since a seq of long ago; beyond it every node is affected
    affected_parts: int = 200  # strings of bytes that one statement looks for
    affected_pieces: int = 100_000  # readers of one document that are counted

    # times of the thread of a space
    gather_us: int = 200  # a wait for messages that come together: about an fsync, which that saves
    slow_step_us: int = 1_000  # from this time of a step, lately, the disk is too slow for an event loop
    slow_step_us_most: int = 4_000  # a longer step counts as this long: it says little about the next
    work_item_bytes: int = 512  # counted for a read, a document, an event or a notified peer in an estimate of work
    message_us: int = 100  # share of a message in the time of a step, which is not the disk's

    def __post_init__(self) -> None:
        for bound in fields(self):
            number = getattr(self, bound.name)
            if bound.name != "values" and (type(number) is not int or number < 1):
                raise AuthoringError(f"Limits.{bound.name} is {number!r}: write an integer of at least 1")


DEFAULT_LIMITS = Limits()
