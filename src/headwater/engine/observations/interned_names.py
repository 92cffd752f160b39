"""String interning for observation rows: each text is stored once under a number. Sweeps texts that no row uses.

Fingerprints, members and errors of former programs are unused after a while. When there are far more names than rows
could use, they are swept: some rows with each transaction that observes, so that no commit pays for all of it. A name
that is used during a sweep is kept. Owns the table; its memory follows the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.engine.limits import Limits
from headwater.engine.log.log import number_in_meta
from headwater.engine.observations.codec import first_of, forms_of
from headwater.engine.store.port import NodeNumbers, Part, Store


class _Sweep:
    """The progress of a sweep: first it collects the names that rows use, then it drops all others."""

    __slots__ = ("after", "branches", "number", "used")

    def __init__(self, branches: list[int]) -> None:
        self.used: set[int] = set()
        self.branches = branches  # still to collect
        self.after: NodeNumbers | None = None  # in the first of them
        self.number = 0  # names up to here are swept


class InternedNames:
    """The names of one space, inside the open store transaction."""

    __slots__ = ("_left", "_limits", "_numbers", "_store", "_sweep", "is_added")

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._left = 0  # how many the last sweep left
        self.forget()

    def forget(self) -> None:
        """Drop everything kept in memory, so that the disk decides."""
        self._numbers: dict[str, int] = {}
        self._sweep: _Sweep | None = None
        self.is_added = False  # whether a name was added since this was set back

    def numbers_of(self, names: Sequence[str]) -> list[int]:
        """The numbers of names, which they have from now on. 0: the empty one."""
        known = self._numbers
        if self._sweep is not None:
            return [self.number_of(name) for name in names]
        return [(known.get(name) or self.number_of(name)) if name else 0 for name in names]

    def number_of(self, name: str) -> int:
        """The number of a name, which it has from now on. 0: the empty one."""
        if not name:
            return 0
        number = self._numbers.get(name)
        if number is None:
            number = self._store.number_of(name)
            if number is None:
                self.is_added = True
                number = self._store.add_name(name)
            self._numbers[name] = number
        if self._sweep is not None:
            self._sweep.used.add(number)
        return number

    def evict(self, most: int) -> None:
        """Evict the oldest names from memory."""
        while len(self._numbers) > most:
            del self._numbers[next(iter(self._numbers))]

    # ---- sweeping --------------------------------------------------------------------------------

    @property
    def is_sweeping(self) -> bool:
        return self._sweep is not None

    def mark_used(self, numbers: Iterable[int]) -> None:
        """A row is written that names these."""
        if self._sweep is not None:
            self._sweep.used.update(numbers)

    def begin_sweep(self) -> None:
        """Sweep from now on, if there are far more names than rows could use."""
        if self._sweep is None:
            made, rows = [
                number_in_meta(self._store, f"{part.value}_made", 0) for part in (Part.NAMES, Part.OBSERVATIONS)
            ]
            # A node may have a fingerprint of its own, and shares most other texts.
            used = self._limits.names_per_row * rows
            if made > max(self._limits.unswept_names + used, 2 * self._left):
                self._sweep = _Sweep([row.branch for row in self._store.branches()])

    def sweep_some(self) -> bool:
        """Look at some rows, or drop some names. True: some were dropped, and nothing that was remembered counts."""
        sweep = self._sweep
        if sweep is None:
            return False
        if sweep.branches:
            self._look_at_nodes(sweep)
        else:
            return self._drop(sweep)
        return False

    def _look_at_nodes(self, sweep: _Sweep) -> None:
        size = self._limits.swept_rows
        after = sweep.after or first_of(sweep.branches[0], 0)
        rows = self._store.observations_after(after, size)
        for row in rows:
            sweep.used.update((row.piece, row.member, row.scope))
            forms = forms_of(row)
            if forms is not None:
                state = forms[0]
                sweep.used.update((state.kind, state.fingerprint, state.gate, state.failed))
        if len(rows) == size:
            sweep.after = rows[-1].key
        else:
            sweep.after = None
            del sweep.branches[0]

    def _drop(self, sweep: _Sweep) -> bool:
        last, dropped = self._store.drop_names(sweep.number, self._limits.swept_rows, sweep.used)
        if dropped:
            self._numbers.clear()
        if last is not None:
            sweep.number = last
        else:
            self._sweep, self._left = None, number_in_meta(self._store, f"{Part.NAMES.value}_made", 0)
        return bool(dropped)
