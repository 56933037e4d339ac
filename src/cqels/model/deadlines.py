"""Work that is to end when it takes too long, in whatever thread it is done.

A function tells from the thread's processor time whether it does.  That is asked where the work itself asks (`check`),
and, while Python computes a value, every tenth of a second: in the main thread by a signal (`model/interrupts.py`), in
others by a thread that sleeps in between.  Interrupting them needs to know their time, which not all systems tell.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, Thread, get_ident, main_thread
from typing import Any, TypeVar

T = TypeVar("T")

TICK = 0.1
_IDLE = 50
"""Ticks without anything to watch after which the thread ends."""
_clock_of: Callable[[int], int] | None = getattr(time, "pthread_getcpuclockid", None)


@dataclass(eq=False, slots=True)
class Watched:
    """What a thread works at."""

    thread: int
    clock: int | None
    """The processor time of the thread, for others."""
    is_late: Callable[[int | None], bool]
    """Whether it takes too long, by the thread's processor time; None is what the thread itself has now."""
    error: type[BaseException]
    computing: bool = False
    """A value is computed: an exception may be raised anywhere."""
    raised: bool = False

    def compute(self, function: Callable[..., T], *arguments: Any) -> T:
        """Compute a value, unless that takes too long."""
        self.computing = True
        try:
            return function(*arguments)
        finally:
            self.computing = False
            with _WATCH.lock:
                if self.raised:  # an exception that has not come yet is not to come any more
                    self.raised = False
                    _raise_in(self.thread, None)


class _Watch:
    """All that is watched, by its thread."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = Lock()
        self.works: dict[int, Watched] = {}
        self.thread: Thread | None = None

    def add(self, watched: Watched) -> None:
        with self.lock:
            self.works[watched.thread] = watched
            if self.thread is None and watched.clock is not None:
                self.thread = Thread(target=self._run, name="cqels budgets", daemon=True)
                self.thread.start()

    def remove(self, watched: Watched) -> None:
        with self.lock:
            self.works.pop(watched.thread, None)

    def _run(self) -> None:
        idle = 0
        while True:
            time.sleep(TICK)
            with self.lock:
                idle = 0 if self.works else idle + 1
                if idle > _IDLE:
                    self.thread = None
                    return
                for each in self.works.values():
                    if each.computing and each.clock is not None and each.is_late(time.clock_gettime_ns(each.clock)):
                        each.raised = True
                        _raise_in(each.thread, each.error)


_WATCH = _Watch()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WATCH.reset)  # the thread is not there, and the lock may be held for ever


@contextmanager
def watched(is_late: Callable[[int | None], bool], error: type[BaseException]) -> Iterator[None]:
    """Raise an exception in what this thread does, when it takes too long by the thread's processor time."""
    thread = get_ident()
    others = _clock_of is not None and thread != main_thread().ident
    work = Watched(thread, _clock_of(thread) if others and _clock_of else None, is_late, error)
    _WATCH.add(work)
    try:
        yield
    finally:
        _WATCH.remove(work)


def work_here() -> Watched | None:
    """What this thread works at, if that is watched."""
    return _WATCH.works.get(get_ident())


def check() -> None:
    """A point in what may take long: raise the exception if it does."""
    work = work_here()
    if work is not None and work.is_late(None):
        raise work.error


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an exception in another thread, at its next step in Python; None takes it back."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error) if error else None)
