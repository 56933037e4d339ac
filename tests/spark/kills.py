"""One who kills the processes of a job, and starts it again until it ends.

What is killed, with SIGKILL: a Python worker in the middle of work, the daemon that makes workers, the driver with its
Java.  Beside that the engines' memory is removed while they run.

Spark repeats what workers lose; a driver is started again, each time with another number of cores.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep

from cqels.spark.operator.arena_files import FOLDER

from .jobs import LOOK, PATIENCE, Job, Process, Settings, committed, kill, outcome, tagged, written

WORKER, DAEMON, DRIVER, MEMORY = "worker", "daemon", "driver", "memory"
KILLS = (WORKER, DAEMON, DRIVER, MEMORY)
MASTERS = ("local[1,4]", "local[2,4]", "local[3,4]")
"""A task may fail three times."""
EARLY = 0.2
"""The share of drivers that are killed while they start."""


@dataclass
class Story:
    """What was done to a job, and what it did."""

    kills: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    """Seconds from each restart to the first result that was not there before."""
    rounds: int = 0
    batches: int = 0
    errors: int = 0
    """Runs that ended with an error, and were started again."""
    different: list[str] = field(default_factory=list)
    left: list[Process] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return not self.different and not self.left


class Tormentor:
    """Runs a job to its end, killing what there is to kill."""

    def __init__(self, settings: Settings, seed: int, tell: Callable[[str], object]) -> None:
        self._settings, self._tell = settings, tell
        self._draw = random.Random(seed)
        self._tags: list[str] = []
        self._pace = 0.5
        self.story = Story()

    def undisturbed(self, folder: Path) -> dict[str, bytes]:
        """What the job writes if nothing is killed, though it may fail to start on a machine that is too busy."""
        self.torment(folder, {}, Counter())
        began = [path.stat().st_mtime for path in (folder / "checkpoint" / "spark" / "commits").glob("[0-9]*")]
        self._pace = (max(began) - min(began)) / len(began)
        self._tell(f"undisturbed: {committed(folder)} micro-batches, {self._pace:.2f} s each")
        self.story = Story()
        return outcome(folder)

    def torment(self, folder: Path, expected: dict[str, bytes], wanted: Counter[str]) -> None:
        """One life of the job, from its beginning to its end."""
        self.story.rounds += 1
        known = None
        while True:
            settings = replace(self._settings, folder=str(folder), master=self._draw.choice(MASTERS))
            with self._started(settings) as job:
                self._disturb(job, known, wanted)
                if job.wait() == 0:
                    break
            known = written(folder)
            self.story.errors += job.failed
        self.story.batches += committed(folder)
        found = outcome(folder)
        names = sorted({*found, *expected})
        self.story.different += [f"{folder.name}: {name}" for name in names if found.get(name) != expected.get(name)]

    @contextmanager
    def _started(self, settings: Settings) -> Iterator[Job]:
        """The job; only if something goes wrong here, all that is left of it is ended."""
        job = Job(settings)
        self._tags.append(job.tag)
        try:
            yield job
        except BaseException:
            job.end()
            raise

    def _disturb(self, job: Job, known: int | None, wanted: Counter[str]) -> None:
        """Kill until the job is dead, or until there is nothing more to kill.

        Most kills wait for a micro-batch; some of those of a driver come while it still starts.
        """
        done, since = committed(job.folder), monotonic()
        early = wanted[DRIVER] > 0 and self._draw.random() < EARLY
        while not job.ended and (+wanted or known is not None):
            if known is not None and written(job.folder) > known:
                self.story.recoveries.append(monotonic() - job.began)
                known = None
            if monotonic() - since > PATIENCE:
                raise TimeoutError(f"nothing happens any more: {job.folder}")
            if early or (+wanted and known is None and committed(job.folder) > done):
                kind = DRIVER if early else self._draw.choice(list(+wanted))
                sleep(self._draw.uniform(0, (20 if early else 2) * self._pace))
                if self._strike(job, kind):
                    wanted[kind] -= 1
                    self.story.kills[kind] += 1
                    self._tell(f"{kind} at micro-batch {committed(job.folder)}, {wanted.total()} to go")
                if kind == DRIVER:
                    return
                done, since = committed(job.folder), monotonic()
            sleep(LOOK)

    def _strike(self, job: Job, kind: str) -> bool:
        if kind == DRIVER:
            return job.kill()
        if kind == MEMORY:
            return remove_memory(job.folder)
        victims = job.busy_workers() if kind == WORKER else job.daemons()
        return bool(victims) and kill(self._draw.choice(victims))

    def check_remains(self) -> None:
        """Processes of any of the runs that are still there."""
        until = monotonic() + 30
        while (left := [each for tag in self._tags for each in tagged(tag)]) and monotonic() < until:
            sleep(0.5)
        self.story.left += left
        for each in left:
            kill(each)


def remove_memory(folder: Path) -> bool:
    """Remove the files of all engines, as someone does who tidies temporary directories."""
    files = [each for each in (folder / "local").glob(f"*/userFiles-*/{FOLDER}/*") if each.is_file()]
    for each in files:
        each.unlink(missing_ok=True)
    return bool(files)
