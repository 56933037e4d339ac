"""What may go wrong around a job on Spark: a function for each kind disturbs a job, and says what must come of it.

A job ends with the files of one that nobody disturbed; or first with a sentence that says why it cannot go on, also
when it is started again while the cause is there, and then with these files once the cause is gone.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_AS, prlimit
from typing import Any

from .broker import Broker, Unavailable, connector
from .jobs import REFUSED, TOPIC, Job, Process, Settings, committed, kill, outcome, write_readings
from .kills import MASTERS

FULL = r"disk is full|no space left on device"
MEBIBYTE = 1 << 20
TRIES = 3
"""How often a job may fail to start on a machine that is too busy."""
BUSY = r"failed to connect back|worker failed to connect"


class Skipped(Exception):
    """A disturbance that cannot be had here, and why."""


class Unexpected(Exception):
    """What came of a disturbance is not what must come of it."""


class Stage:
    """A job that one disturbance is tried on: its folder, its data, which are its own, and what it must write."""

    def __init__(
        self, folder: Path, settings: Settings, expected: dict[str, bytes], batches: int, draw: random.Random
    ) -> None:
        self.folder, self.expected, self.draw = folder, expected, draw
        self.data = folder / "data"
        self._batches, self._shared = batches, settings.data.encode()
        self._jobs: list[Job] = []
        folder.mkdir(parents=True)
        shutil.copytree(settings.data, self.data)
        self.settings = replace(settings, data=str(self.data), folder=str(folder))

    def start(self, **changes: Any) -> Job:
        job = Job(replace(self.settings, **changes))
        self._jobs.append(job)
        return job

    def started(self, **changes: Any) -> Job:
        """A job that is in the middle of its work."""
        for _ in range(TRIES):
            job = self.start(**changes)
            if job.wait_until(self.draw.randint(1, max(1, self._batches // 2))):
                return job
            if not re.search(BUSY, job.said):
                break
        raise Unexpected(f"the job ended before it was disturbed: {job.said}")

    def refused(self, job: Job, sentence: str) -> None:
        """The job ends with this sentence."""
        if (code := job.wait()) != REFUSED:
            raise Unexpected(f"ended with code {code} where it should have said '{sentence}'")
        if not re.search(sentence, job.said, re.IGNORECASE):
            raise Unexpected(f"said '{job.said.strip()}' where it should have said '{sentence}'")

    def refused_twice(self, job: Job, sentence: str) -> None:
        """So does one that is started again."""
        self.refused(job, sentence)
        self.refused(self.start(), sentence)

    def finish(self, job: Job | None = None, **changes: Any) -> None:
        """The job, or one that goes on from where it was, ends with the files that it must have written."""
        job = job or self.start(**changes)
        tries = 1
        while (code := job.wait()) != 0:
            if tries == TRIES or not re.search(BUSY, job.said):
                raise Unexpected(f"ended with code {code}: {job.said.strip()[-500:]}")
            job, tries = self.start(**changes), tries + 1
        self.compare()

    def compare(self) -> None:
        there = str(self.data).encode()  # rejects tell where they were
        found = {name: content.replace(there, self._shared) for name, content in outcome(self.folder).items()}
        names = {*found, *self.expected}
        if different := sorted(name for name in names if found.get(name) != self.expected.get(name)):
            raise Unexpected(f"different: {', '.join(different)}")

    def end(self) -> None:
        """End whatever is left of its jobs."""
        for job in self._jobs:
            job.end()


# ---------------------------------------------------------------- disks


def checkpoint_full(stage: Stage) -> None:
    """The disk of the checkpoint is full, and is freed again."""
    _fill(stage, "checkpoint")


def output_full(stage: Stage) -> None:
    """The disk of the results is full, and is freed again."""
    _fill(stage, "out")


def _fill(stage: Stage, name: str) -> None:
    with _small_disk(stage.folder / name) as place:
        job = stage.started()
        ballast = place / ".ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(MEBIBYTE // 4))
            except OSError:
                pass
        stage.refused_twice(job, FULL)
        ballast.unlink()
        stage.finish()


@contextmanager
def _small_disk(place: Path) -> Iterator[Path]:
    place.mkdir(parents=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place], capture_output=True, text=True)
    if made.returncode != 0:
        raise Skipped(f"a small disk cannot be mounted: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


# ---------------------------------------------------------------- runs


def two_runs(stage: Stage) -> None:
    """A second run on the same checkpoint is refused and told who has it; the first, halted meanwhile, goes on."""
    job = stage.started()
    job.signal(signal.SIGSTOP)
    try:
        stage.refused(stage.start(), r"is in use by process \d+ on .*, since 20")
    finally:
        job.signal(signal.SIGCONT)
    stage.finish(job)


def cores_changed(stage: Stage) -> None:
    """The driver is killed, and the job goes on with other cores, partitions and engines, twice."""
    for _ in range(2):
        stage.started().kill()
        draw = stage.draw
        changes = {"partitions": draw.choice((1, 3, 4, 7)), "instances": draw.choice((1, 3, 4))}
        stage.settings = replace(stage.settings, master=draw.choice(MASTERS), **changes)
    stage.finish()


def java_killed(stage: Stage) -> None:
    """Java is killed, and not the driver, which must say so."""
    job = stage.started()
    for each in job.java():
        kill(each)
    stage.refused(job, "Java has ended")
    stage.finish()


# ---------------------------------------------------------------- memory


def worker_memory(stage: Stage) -> None:
    """Three times a worker that is working gets no more memory: Spark lets another do its work."""
    job = stage.started()
    for _ in range(3):
        if victims := job.busy_workers():
            _limit(stage.draw.choice(victims), share=0.5)
        job.wait_until(committed(stage.folder) + 1)
    stage.finish(job)


def all_memory(stage: Stage) -> None:
    """No new worker gets the memory that it needs: the run ends, and goes on when there is enough."""
    job = stage.started()
    for each in job.daemons():
        _limit(each, share=1.0, more=24 * MEBIBYTE)
    for each in job.workers():
        kill(each)
    stage.refused(job, r"out of memory|ended unexpectedly|cannot allocate memory")
    stage.finish()


def _limit(process: Process, *, share: float, more: int = 0) -> None:
    """Let a process have only so much of the address space that it has, and a bit more."""
    try:
        pages = int(Path(f"/proc/{process.id}/statm").read_text().split()[0])
        most = int(pages * os.sysconf("SC_PAGE_SIZE") * share) + more
        prlimit(process.id, RLIMIT_AS, (most, RLIM_INFINITY))
    except (ProcessLookupError, FileNotFoundError):
        pass  # it has ended by itself
    except PermissionError as error:
        raise Skipped(f"the memory of a process cannot be limited: {error}") from None


# ---------------------------------------------------------------- files


def source_removed(stage: Stage) -> None:
    """A file that is not read to its end is moved away, and comes back."""
    file, aside = stage.data / "a2.nt", stage.folder / "a2.aside"
    job = stage.start()
    if not job.wait_until(1):
        raise Unexpected(f"the job ended before it was disturbed: {job.said}")
    file.rename(aside)
    stage.refused_twice(job, "a2.nt")
    aside.rename(file)
    stage.finish()


def source_replaced(stage: Stage) -> None:
    """Another file takes the place of one that is not read to its end; then the old one is back."""
    file, aside = stage.data / "a2.nt", stage.folder / "a2.aside"
    job = stage.start()
    if not job.wait_until(1):
        raise Unexpected(f"the job ended before it was disturbed: {job.said}")
    content = file.read_text()
    file.rename(aside)
    fresh = stage.folder / "a2.fresh"
    fresh.write_text(content.replace("http://ex.org/s1>", "http://ex.org/s2>"))
    fresh.rename(file)
    stage.refused_twice(job, r"a2.nt")
    aside.replace(file)
    stage.finish()


def output_removed(stage: Stage) -> None:
    """The folder of results is removed: that is said, and what to do; all is written anew when that is chosen."""
    job = stage.started()
    shutil.rmtree(stage.folder / "out")
    stage.refused(job, r"cannot be written|is gone")
    stage.refused(stage.start(), r"is gone(?s:.)*lost=")
    stage.finish(lost="rebuild")


def state_damaged(stage: Stage) -> None:
    """A bit of a file of the checkpoint is flipped while nothing runs: it is refused, or of no use any more."""
    stage.started().kill()
    checkpoint = stage.folder / "checkpoint"
    files = sorted(each for each in checkpoint.rglob("*") if each.is_file() and each.stat().st_size)
    victim = stage.draw.choice([each for each in files if each.name != "lock"])
    content = victim.read_bytes()
    place = stage.draw.randrange(8 * len(content))
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    victim.write_bytes(changed)
    job = stage.start()
    try:
        if job.wait() == 0:
            stage.compare()
            return
        stage.refused(job, r"damaged|other bytes|not what was written|checksum")
        victim.write_bytes(content)
        stage.finish()
    except Unexpected as error:
        raise Unexpected(f"bit {place} of {victim.relative_to(checkpoint)}: {error}") from None


# ---------------------------------------------------------------- Kafka


def broker_restarted(stage: Stage) -> None:
    """The broker of a topic is killed and comes back: the job waits, or says that it cannot go on, and then can."""
    try:
        jars = connector(stage.folder / "connector")
        broker = Broker(stage.folder / "broker", partitions=1)
    except Unavailable as error:
        raise Skipped(str(error)) from None
    stage.settings = replace(
        stage.settings, servers=broker.servers, jars=",".join(map(str, jars)), results=400, master="local[2,4]"
    )
    lines = write_readings(400)
    with broker:
        broker.send(TOPIC, lines[:200])
        job = stage.start()
        job.wait_until(2)
        broker.kill()
        broker.start()
        broker.send(TOPIC, lines[200:])
        if job.wait() == REFUSED:
            job = stage.start()
        if (code := job.wait()) != 0:
            raise Unexpected(f"ended with code {code}: {job.said}")
    found = (stage.folder / "out" / "values.csv").read_text().splitlines()[1:]
    values = [line.rsplit(",", 1)[-1] for line in found]
    if values != [str(number) for number in range(400)]:
        raise Unexpected(f"there are {len(values)} results of 400, {len({*values})} of them different")


DISTURBANCES: dict[str, Callable[[Stage], None]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        checkpoint_full,
        output_full,
        two_runs,
        cores_changed,
        java_killed,
        worker_memory,
        all_memory,
        source_removed,
        source_replaced,
        output_removed,
        state_damaged,
        broker_restarted,
    )
}
