"""Kills a live run at random moments while its input goes on: nothing may be lost, nothing may be twice.

A `Job` is what runs, what feeds it, and what shows how far it has come; `kill_often` kills it, starts it again, and
lets it come to its end.  What it has written then is compared by the one who made the job.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from threading import Event, Thread
from time import monotonic, sleep

from cqels.model.folder_lock import LOCK

ROOT = Path(__file__).parents[2]
_TICK = 0.005


@dataclass
class Job:
    """A process with its input."""

    arguments: Sequence[str]
    """Of `cqels`."""
    folder: Path
    """Its state is in `state`, and what it says in `said.txt`."""
    feed: Callable[[Event], None]
    """Gives it input, in a thread, until all is given or an event is set."""
    progress: Callable[[], int]
    """A number that grows with what the job has delivered."""
    is_done: Callable[[], bool]
    """Whether all has been delivered that comes of the input."""
    recoveries: list[float] = field(default_factory=list)
    """Seconds from each start to the first new delivery."""
    kills: int = 0
    patience: float = 60.0
    """Seconds in which a run that was started comes to something new."""
    early: float = 1.5
    """Seconds that a start takes, in which some are killed."""

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "said.txt").open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.live.live_job", *self.arguments],
                cwd=ROOT,
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End it at once."""
        process.kill()
        process.wait()

    def has_begun(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether a process has the state."""
        lock = self.folder / "state" / LOCK
        return lock.exists() and f'"pid": {process.pid},' in lock.read_text()

    def said(self) -> str:
        return (self.folder / "said.txt").read_text()

    def told(self) -> str:
        """The kills and recoveries in a sentence."""
        found = f"{self.kills} kills"
        if self.recoveries:
            middle, most = median(self.recoveries), max(self.recoveries)
            found += f", recovered in {middle:.2f} s (median of {len(self.recoveries)}), {most:.2f} s at most"
        return found


def kill_often(job: Job, count: int, random: Random, *, longest: float = 1.0) -> None:
    """Kill the job so many times: while it starts, while it recovers, and up to `longest` seconds after that."""
    stop = Event()
    feeding = Thread(target=job.feed, args=[stop], daemon=True)
    feeding.start()
    try:
        while job.kills < count:
            process = job.start()
            try:
                if random.random() < 0.25:  # in the middle of its start
                    sleep(random.uniform(0.0, job.early))
                else:
                    job.recoveries.append(_recovery(job, process))
                    sleep(random.uniform(0.0, longest))
                assert process.poll() is None, job.said()
            finally:
                job.kill(process)
            job.kills += 1
        _complete(job, feeding)
    finally:
        stop.set()
        feeding.join()


def _recovery(job: Job, process: subprocess.Popen[bytes]) -> float:
    began, before = monotonic(), job.progress()
    while job.progress() <= before and not job.is_done():
        assert process.poll() is None, job.said()
        assert monotonic() < began + job.patience, job.said()
        sleep(_TICK)
    return monotonic() - began


def _complete(job: Job, feeding: Thread) -> None:
    """Let the job come to its end, undisturbed, and stop it."""
    process = job.start()
    try:
        feeding.join()
        limit = monotonic() + job.patience
        while not (job.is_done() and job.has_begun(process)):
            assert process.poll() is None, job.said()
            assert monotonic() < limit, job.said()
            sleep(_TICK)
        process.send_signal(signal.SIGTERM)
        assert process.wait(job.patience) == 0, job.said()
    finally:
        job.kill(process)
    assert "stopped; the same command goes on from here" in job.said()
    assert "Traceback" not in job.said()
