"""How much memory there is and how much this process has, and what is done where that is nearly all it may."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes import CDLL
from pathlib import Path
from threading import Event, Thread

import pyarrow

from cqels.model.errors import CqelsError
from cqels.model.sizes import format_size

_CLOSE, _GAP, _FULL = 0.85, 0.05, 0.92
"""Shares of the limit: from the first on senders have to wait, and again when it is less by the second; from the third
on a query is dropped."""
_WORTH = 0.05
"""The share of the limit that a query has at least whose end would help."""
_LOOK = 0.25
_LOG = logging.getLogger("cqels")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_memory() -> int:
    """Bytes of the machine, or of the container if that has fewer."""
    found = _PAGE * os.sysconf("SC_PHYS_PAGES")
    for path in _CONTAINER:
        try:
            found = min(found, int(path.read_text()))
        except (OSError, ValueError):  # there is no such file, or no limit
            continue
    return found


def resident_memory() -> int:
    """Bytes of this process that are in memory, without pages of files, which the system may drop."""
    try:
        words = Path("/proc/self/status").read_text().split()
        anonymous, shared = (int(words[words.index(name) + 1]) for name in ("RssAnon:", "RssShmem:"))
        return 1024 * (anonymous + shared)
    except (OSError, ValueError):  # not Linux
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class MemoryLimit:
    """Looks from time to time how much memory this process has: senders wait, then the largest query is dropped."""

    def __init__(
        self,
        limit: int,
        sizes: Callable[[], Mapping[str, int]],
        drop: Callable[[str, str], None],
        *,
        resident: Callable[[], int] = resident_memory,
    ) -> None:
        """`sizes` has the bytes of the queries' states; `drop` is given a query and the reason."""
        self.limit, self._sizes, self._drop, self._resident = limit, sizes, drop, resident
        self.is_close = False
        """Nothing more is to be taken now."""
        self._said = False
        self._ended = Event()
        self._thread = Thread(target=self._watch, name="cqels memory", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK):
            try:
                self.look()
            except CqelsError as error:  # the run has ended
                _LOG.debug("%s", error)

    def look(self) -> None:
        """See how much memory there is, and do what has to be done."""
        share = self._resident() / self.limit
        if share >= _CLOSE:
            gc.collect()
            _give_back()
            share = self._resident() / self.limit
        if share < _CLOSE - _GAP:
            self.is_close = self._said = False
            return
        self.is_close = self.is_close or share >= _CLOSE
        if share < _FULL:
            return
        sizes = self._sizes()
        largest = max(sizes, key=lambda name: sizes[name], default=None)
        if largest is None or sizes[largest] < _WORTH * self.limit:
            if not self._said:
                _LOG.warning(
                    "the service has nearly all of its memory (%s), and no query has much of it: senders have to wait",
                    format_size(self.limit),
                )
            self._said = True
            return
        self._drop(
            largest,
            f"the service has nearly all of its memory ({format_size(self.limit)}), and this query's state was the "
            f"largest ({format_size(sizes[largest])})",
        )


def _give_back() -> None:
    """Have Arrow and the C library return what they do not need."""
    pyarrow.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # another C library has no such function
        CDLL(None).malloc_trim(0)
