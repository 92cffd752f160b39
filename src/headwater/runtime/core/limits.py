"""The bounds of a runtime that applications do not set. Those that they set are fields of `policy.Policy`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headwater.backoff import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeLimits:
    """Bounds on waiting writes, connections, prefetching, events and questions of one runtime. They are fixed."""

    deferred_writes: int = 10_000  # that wait for one document
    dropped_documents: int = 256  # unread, that a space drops each time messages of its engine were taken in
    writes_behind: int = 10_000  # that wait behind a write that is retried
    # after its first conflict in which a write is retried, in a space without a retrying channel
    plain_window_us: int = 30_000_000
    unread_kept: int = 1_000  # documents without a reader that stay loaded, in a space without a `Policy`
    # for which a pull waits for nodes that are held back, in a runtime without a `Policy`
    pull_window_us: int = 30_000_000
    demand_again_us: int = 1_000_000  # at least, until a demand whose time is over checks again whether it still loads
    unheard_failures: int = 1_000  # kept for the first listener that comes after they happened
    clock_check_us: int = 30_000_000  # between checks whether the wall clock was set, while an alarm is set
    clock_jump_us: int = 10_000  # by which both clocks may differ more than before without a jump
    sound_connection_us: int = 1_000_000  # after which a connection that achieved something is a success
    # after which a connection is a success even if it was ended for a message sent on it
    long_connection_us: int = 60_000_000
    # acknowledgements that become one: half of the messages that an engine has in flight to one peer
    acks_together: int = 4
    ack_delay_s: float = 0.01  # for which an acknowledgement is held back
    full_host_s: float = 0.005  # until messages are sent again to a host of this process that had no room for them
    reconnect: Backoff = field(  # delays between attempts to connect
        default_factory=lambda: Backoff.exponential(base_ms=25, max_ms=30_000, jitter=0.2)
    )
    retried_writes: int = 1_000  # outside any run that are retried at the same time
    examined_pieces: int = 8  # at a time, to find some that can be released
    prefetched_first: int = 64  # documents of siblings that are requested with the first one that a reader misses
    prefetched_growth: int = 8  # times as many with each further miss
    prefetched_most: int = 4_096  # documents per miss: an engine bounds the answers that wait for one session
    claim_us: int = 30_000_000  # until the claim of a resource that is not renewed expires
    # until a program that may not run a piece, because others run other code of its class, asks again
    take_over_again_us: int = 10_000_000
    resource_retries: int = 3  # of a resource that failed, if the member declares a backoff
    listed_documents: int = 100  # in one question for the documents of a scope
    found_pieces: int = 1_000  # in one page of `find`
    input_records: int = 100  # read to resolve an input: each may refer to an input of another piece
    history_questions: int = 5  # for one past document, if the connection is lost before the answer
    cycle_names: int = 16  # nodes that are named if a value depends on itself: half of them first, half of them last
    settle_slices: int = 1_000_000  # slices of one call of `settle`
    events_in_a_slice: int = 64  # handlers that are called before the nodes that read their writes run
    event_generations: int = 1_000  # events posted one by the handler of the other until the chain is reported
    chain_names: int = 5  # events that a message about an endless chain names
    awaited_names: int = 3  # nodes that the table of events names for an event that waits for them
    compared_keys: int = 1_000  # of one container that are compared for the advice after a conflict
    clock_skew_us: int = 60_000_000  # between machines; a period that was handled earlier by more does not count
    stored_events_page: int = 100  # stored events in one question
    taken_events: int = 256  # of one space that were taken up and have no outcome; others stay in the store
    failed_events: int = 4_096  # of one space that failed here and are remembered; an older one is tried again
    parked_events: int = 4_096  # of one space that cannot be handled here and are remembered
    parked_first_us: int = 1_000_000  # until parked events are examined again after a piece was opened, doubling
    parked_longest_us: int = 60_000_000  # up to this
    reread_us: int = 1_000_000  # until the stored events are read again, if that was due during a reading
    pickup_spread_us: int = 50_000  # over which runtimes spread that wait for the same stored event
    receipt_pages: int = 10  # that one search for expired receipts reads; all but the last have only deleted ones
    swept_scopes: int = 8  # expired scopes that are searched for receipts after one handling
    close_s: float = 10.0  # for which closing waits for work that is still to be done
    listed_targets: int = 1_000  # attempts or targets in one answer
    delivered_first_us: int = 2_000  # before the next question whether all is delivered, doubling
    delivered_longest_us: int = 250_000  # up to this


RUNTIME_LIMITS: Final = RuntimeLimits()
