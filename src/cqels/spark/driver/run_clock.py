"""The wall clock of a run: a thread of the driver that decides which heartbeats are due, and writes them to a file.

`clock_source.py` reads that file as a source of Spark, whose offsets are the times of the heartbeats: so Spark records
which micro-batch they belong to before it begins, and a repeated one has the same.  The file is part of the checkpoint,
since a later run must know when the streams were last heard of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from time import time_ns

from cqels.engine.event_time.wall_clock import WallClock, fitting_tick, settling_time
from cqels.ingest import StreamSettings
from cqels.model.time import MILLISECOND, SECOND
from cqels.plan.algebra import Query

BEHIND = 500 * MILLISECOND
"""How far heartbeats are behind the wall clock: what arrives while Spark plans a micro-batch is not in it."""
_LOOKS = 5
"""Looks at the clock in a tick."""


class RunClock:
    """The clock of a run, with the file that tells its heartbeats."""

    def __init__(
        self,
        file: Path,
        streams: Iterable[StreamSettings],
        *,
        tick: int | None = None,
        now: Callable[[], int] = time_ns,
    ) -> None:
        self._file, self._given, self._now = file, tick, now
        self._clock = WallClock(streams)
        self._beats: dict[str, int] = {}
        self._lock, self._ended = Lock(), Event()
        self._thread: Thread | None = None
        self._changed = False
        with suppress(OSError, ValueError, KeyError):  # what is not there is observed anew
            written = json.loads(file.read_text())
            self._clock.restore(written["state"])
            self._beats = dict(written["beats"])

    def set_queries(self, queries: Iterable[Query]) -> None:
        """Know the queries that run: they tell how long time matters, and how finely."""
        listed = list(queries)
        with self._lock:
            self._clock.settling = settling_time(listed)
            self._clock.tick = self._given or fitting_tick(listed)

    def add(self, settings: StreamSettings) -> None:
        """One more stream, which the engines know."""
        with self._lock:
            self._clock.add(settings)

    def start(self, has_read_all: Callable[[], bool]) -> None:
        """Begin to tell the time, as long as all that has arrived has been read."""
        self._thread = Thread(target=self._go_on, args=[has_read_all], daemon=True, name="cqels-clock")
        self._thread.start()

    def observe(self, reports: Iterable[Mapping[str, int]]) -> None:
        """Instances have had elements in a micro-batch: the latest times, by the numbers of streams."""
        with self._lock:
            for latest in reports:
                for stream, time in latest.items():
                    self._clock.observe(int(stream), time, self._now())
                    self._changed = True

    def look(self, *, has_read_all: bool) -> None:
        """Tell what is due now."""
        with self._lock:
            due = self._clock.due(self._now() - BEHIND) if has_read_all else []
            self._beats |= {str(stream): time for time, stream in due}
            if due or self._changed:
                self._write()

    def _write(self) -> None:
        content = json.dumps({"beats": self._beats, "state": self._clock.state()})
        beside = self._file.with_suffix(".new")
        with suppress(OSError):  # it is written again; without it time stands still, and nothing is lost
            beside.write_text(content)
            os.replace(beside, self._file)
            self._changed = False

    def _go_on(self, has_read_all: Callable[[], bool]) -> None:
        while not self._ended.wait(min(self._clock.tick, SECOND) / SECOND / _LOOKS):
            self.look(has_read_all=has_read_all())

    def close(self) -> None:
        """Tell the time no more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
