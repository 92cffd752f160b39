"""The reactive libraries from PyPI, each through the fastest way it offers that still gives the right answers.

What was chosen for each, and what it was compared with, is in docs/decisions/0014-reactive-bench.md. Each library
is imported where it is opened: a contender runs in a process of its own and pays for no other.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from bench.reactive.contender import Contender, NotAvailable, Readable, Writable


def imported(name: str, hint: str = "`./dev` installs it") -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise NotAvailable(f"there is no module {missing.name}; {hint}") from missing


class Computed:
    """A computed of a library in which one is read by calling it."""

    __slots__ = ("get",)

    def __init__(self, get: Callable[[], Any]) -> None:
        self.get = get


class OfReaktiv:
    """Signals and computeds are used as they are. Effects are held here: the library holds them weakly."""

    def __init__(self, reaktiv: Any) -> None:
        self.signal: Callable[[Any], Writable] = reaktiv.Signal
        self.computed: Callable[[Callable[[], Any]], Readable] = reaktiv.Computed
        self._effect = reaktiv.Effect
        self._batch = reaktiv.batch
        self._effects: list[Any] = []

    def effect(self, fn: Callable[[], None], /) -> Callable[[], object]:
        effect = self._effect(fn)
        self._effects.append(effect)
        end: Callable[[], object] = effect.dispose
        return end

    def batch(self, write: Callable[[], None], /) -> None:
        with self._batch():
            write()

    def settle(self) -> None:
        """Nothing waits: a write outside a batch has run the effects when it returns."""

    def dispose(self) -> None:
        for effect in self._effects:
            effect.dispose()
        self._effects.clear()

    def runs(self) -> None:
        return None


def reaktiv() -> Contender:
    library = imported("reaktiv")
    # Locks that a single thread does not need: about a tenth of the time.
    library.set_thread_safety(False)
    return OfReaktiv(library)


class ObservSignal:
    """A reactive list of one: reads and writes of it are the shortest way into the library."""

    __slots__ = ("_slot",)

    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def get(self) -> Any:
        return self._slot[0]

    def set(self, value: Any, /) -> None:
        self._slot[0] = value


class OfObserv:
    """Nothing is watched deeply, since values are replaced and never edited in place.

    With `sync`, a write runs the watchers at once, each of several writes again; without, they are queued.
    """

    def __init__(self, sync: bool) -> None:
        library = imported("observ")
        scheduler = imported("observ.scheduler").scheduler
        # The queue is flushed by `settle`, without an event loop.
        scheduler.register_request_flush(lambda: None)
        self.settle: Callable[[], None] = scheduler.flush
        self._sync = sync
        self._slot = library.shallow_reactive
        self._computed = library.computed(deep=False)
        self._watch = library.watch_effect
        self._watchers: list[Any] = []

    def signal(self, value: Any, /) -> ObservSignal:
        return ObservSignal(self._slot([value]))

    def computed(self, fn: Callable[[], Any], /) -> Readable:
        return Computed(self._computed(fn))

    def effect(self, fn: Callable[[], None], /) -> Callable[[], object]:
        watcher = self._watch(fn, self._sync, False)
        self._watchers.append(watcher)
        end: Callable[[], object] = watcher.stop
        return end

    def batch(self, write: Callable[[], None], /) -> None:
        write()

    def dispose(self) -> None:
        for watcher in self._watchers:
            watcher.stop()
        self._watchers.clear()

    def runs(self) -> None:
        return None


def observ() -> Contender:
    return OfObserv(sync=False)


def observ_sync() -> Contender:
    return OfObserv(sync=True)


class OfShiny:
    """The reactive core without an app or a session; flushed by hand, without an event loop."""

    def __init__(self, reactive: Any) -> None:
        self._value = reactive.Value
        self._calc = reactive.calc(session=None)
        self._effect = reactive.effect(session=None)
        self._flush = reactive.flush
        self._effects: list[Any] = []

    def signal(self, value: Any, /) -> Writable:
        # Without a name, the library searches the source code of its caller for one.
        made: Writable = self._value(value, name="signal")
        return made

    def computed(self, fn: Callable[[], Any], /) -> Readable:
        return Computed(self._calc(fn).__call__)

    def effect(self, fn: Callable[[], None], /) -> Callable[[], object]:
        effect = self._effect(fn)
        self._effects.append(effect)
        end: Callable[[], object] = effect.destroy
        return end

    def batch(self, write: Callable[[], None], /) -> None:
        write()

    def settle(self) -> None:
        # Each effect yields once to the event loop, which has nothing else to do here.
        flushing = self._flush()
        try:
            while True:
                flushing.send(None)
        except StopIteration:
            pass

    def dispose(self) -> None:
        for effect in self._effects:
            effect.destroy()
        self._effects.clear()

    def runs(self) -> None:
        return None


def shiny() -> Contender:
    # Telemetry that nobody collects is asked for at every run otherwise.
    os.environ["SHINY_OTEL_COLLECT"] = "none"
    return OfShiny(imported("shiny.reactive"))


class SignifiedSignal:
    __slots__ = ("_signal",)

    def __init__(self, signal: Any) -> None:
        self._signal = signal

    def get(self) -> Any:
        return self._signal.value

    def set(self, value: Any, /) -> None:
        self._signal.value = value


class OfSignified:
    """As reaktiv: a write outside a batch has run the effects when it returns, and effects are held here."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._effects: list[Any] = []

    def signal(self, value: Any, /) -> Writable:
        return SignifiedSignal(self._library.Signal(value))

    def computed(self, fn: Callable[[], Any], /) -> Readable:
        return SignifiedSignal(self._library.Computed(fn))

    def effect(self, fn: Callable[[], None], /) -> Callable[[], object]:
        effect = self._library.Effect(fn)
        self._effects.append(effect)
        end: Callable[[], object] = effect.dispose
        return end

    def batch(self, write: Callable[[], None], /) -> None:
        with self._library.batch():
            write()

    def settle(self) -> None:
        """Nothing waits."""

    def dispose(self) -> None:
        for effect in self._effects:
            effect.dispose()
        self._effects.clear()

    def runs(self) -> None:
        return None


def signified() -> Contender:
    """The Rust engine. It is not in the lock: there is no file of it for the oldest Python that we support."""
    version = tuple(sys.version_info[:2])
    if version < (3, 12):
        raise NotAvailable(f"signified's Rust engine needs Python 3.12 or newer; this is {version[0]}.{version[1]}")
    return OfSignified(imported("signified", "pip install 'signified>=0.7'"))
