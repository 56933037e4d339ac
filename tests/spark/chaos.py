"""Exactly once, whatever is killed: a job, and one who kills its processes and starts it again until it ends.

    python tests/spark/chaos.py                # 20 kills of each kind, and a report
    python tests/spark/chaos.py --kills 2 --seed 7 --keep chaos

What is killed, with SIGKILL: a Python worker in the middle of work, the daemon that makes workers, the driver with its
Java.  Spark repeats what workers lose; a driver is started again, each time with another number of cores.  Beside that
the engines' memory is removed while they run.  In the end the files must have the bytes of a run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from time import monotonic, sleep
from uuid import uuid4

WORKER, DAEMON, DRIVER, MEMORY = "worker", "daemon", "driver", "memory"
KINDS = (WORKER, DAEMON, DRIVER, MEMORY)
MASTERS = ("local[1,4]", "local[2,4]", "local[3,4]")
"""A task may fail three times."""
PATIENCE = 300.0
"""Seconds in which something must happen, on a busy machine too."""
_TAG = "CQELS_CHAOS"
EARLY = 0.2
"""The share of drivers that are killed while they start."""
_LOOK = 0.02

PREFIX = "PREFIX : <http://ex.org/> "
QUERIES = {
    "join": PREFIX
    + """SELECT ?s ?v ?o ?name WHERE {
  STREAM :a [RANGE 300ms] { ?s :p ?v } STREAM :b [RANGE 500ms] { ?s :q ?o } ?s :in ?room . ?room :name ?name }""",
    "count": PREFIX
    + """SELECT ?name (COUNT(*) AS ?n) (SUM(?v) AS ?sum) (MAX(?v) AS ?most) WHERE {
  STREAM :a [RANGE 2s SLIDE 500ms] { ?s :p ?v } ?s :in ?room . ?room :name ?name } GROUP BY ?room ?name""",
    "http://ex.org/made": PREFIX + "CONSTRUCT { ?s :seen ?v } WHERE { STREAM :a [NOW] { ?s :p ?v } FILTER(?v > 94) }",
    "reader": PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :made [ELEMENTS 20] { ?s :seen ?v } } GROUP BY ?s",
    "best": PREFIX
    + """SELECT ?s ?o (SUM(?v) AS ?sum) WHERE { STREAM :a [RANGE 400ms] { ?s :p ?v } STREAM :b [RANGE 1s] { ?s :q ?o } }
  GROUP BY ?s ?o ORDER BY DESC(?sum) LIMIT 3""",
    "ours": PREFIX
    + """SELECT ?name (COUNT(*) AS ?n) (SAMPLE(?s) AS ?one) WHERE {
  STREAM :a [RANGE 1s] { ?s :p ?v } ?s :in ?room . ?room :name ?name } GROUP BY ?name""",
}
SPREAD = ("best", "ours")
"""Those that run on both engines, and of which a rest is computed by the driver."""


# ---------------------------------------------------------------- the job


def write_data(folder: Path, elements: int, seed: int = 1) -> None:
    """Two streams and static data, in which rooms are blank nodes.

    The first stream is out of order, some of it too late, and some is malformed.
    """
    draw = random.Random(seed)
    integer = "http://www.w3.org/2001/XMLSchema#integer"
    first, second = [], []
    for number in range(elements):
        back = draw.choice([0, 0, 0, 300, 900]) if draw.random() > 0.01 else 5000
        sensor, value = draw.randrange(30), draw.randrange(100)
        line = f'<http://ex.org/s{sensor}> <http://ex.org/p> "{value}"^^<{integer}> {max(0, number * 20 - back)} .'
        if draw.random() < 0.01:
            line = line[: draw.randrange(1, len(line) - 9)]
        first.append(line + "\n")
        if number % 3 == 0:
            second.append(
                f"<http://ex.org/s{sensor}> <http://ex.org/q> <http://ex.org/o{number % 4}> {number * 20} .\n"
            )
    folder.mkdir(parents=True, exist_ok=True)
    half = len(first) // 2
    (folder / "a1.nt").write_text("".join(first[:half]))
    (folder / "a2.nt").write_text("".join(first[half:]))
    (folder / "b.nt").write_text("".join(second))
    rooms = [f"<http://ex.org/s{each}> <http://ex.org/in> _:r{each % 4} .\n" for each in range(30)]
    rooms += [f'_:r{each} <http://ex.org/name> "room {each}" .\n' for each in range(4)]
    (folder / "rooms.ttl").write_text("".join(rooms))


def job(data: Path, folder: Path, master: str, batch_bytes: int) -> None:
    """The application, from where it was to the end."""
    from cqels.spark import App, start, stop
    from cqels.spark.metrics import Metrics
    from cqels.spark.rejects import Rejects
    from cqels.spark.sinks import Files

    spark = start(master=master, partitions=2, settings={"spark.local.dir": str(folder / "local")})
    app = App(spark, checkpoint=folder / "checkpoint", batch_bytes=batch_bytes, instances=2, until="1h")
    app.files(f"<http://ex.org/a>={data}/a*.nt?lateness=1s")
    app.files(f"<http://ex.org/b>={data}/b.nt")
    app.load(data / "rooms.ttl")
    for name, text in QUERIES.items():
        app.add(text, name=name, spread=name in SPREAD)
    sinks = Files(folder / "out" / "csv"), Files(folder / "out" / "jsonl", "jsonl")
    run = app.run(*sinks, rejects=Rejects(folder / "out" / "rejects.tsv"), metrics=Metrics(folder / "metrics.jsonl"))
    run.wait()
    stop(spark)


def outcome(folder: Path) -> dict[str, bytes]:
    """The files that the job has written, and what is in them."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in _files(folder)}


def written(folder: Path) -> int:
    """Bytes of results so far."""
    return sum(path.stat().st_size for path in _files(folder))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "out").rglob("*") if path.is_file() and not path.name.startswith("."))


# ---------------------------------------------------------------- its processes


@dataclass(frozen=True)
class Process:
    """A process as it was when it was looked at; its time of start tells it from another one with its number."""

    id: int
    parent: int
    state: str
    spent: int
    started: str
    command: str

    @property
    def java(self) -> bool:
        return self.command.partition("\0")[0].endswith("java")

    @property
    def of_daemon(self) -> bool:
        return "pyspark.daemon" in self.command


def look_at(id: int) -> Process | None:
    """A process, if it is there and not a mere entry of one that has ended."""
    try:
        words = Path(f"/proc/{id}/stat").read_text().rpartition(") ")[2].split()
        command = Path(f"/proc/{id}/cmdline").read_text()
    except OSError:
        return None
    found = Process(id, int(words[1]), words[0], int(words[11]) + int(words[12]), words[19], command)
    return None if found.state == "Z" else found


def tagged(tag: str) -> list[Process]:
    """All processes that have a tag in their environment, whoever their parents are now."""
    mark = f"{_TAG}={tag}\0".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                if mark in Path(f"/proc/{entry}/environ").read_bytes() and (process := look_at(int(entry))):
                    found.append(process)
    return found


def kill(process: Process) -> bool:
    """End a process at once, if it is still the same one."""
    now = look_at(process.id)
    if now is None or now.started != process.started:
        return False
    with suppress(ProcessLookupError):
        os.kill(process.id, signal.SIGKILL)
        return True
    return False


class Job:
    """The job as a child process, with all processes that come of it."""

    def __init__(self, data: Path, folder: Path, master: str, batch_bytes: int) -> None:
        self.tag = uuid4().hex
        self.folder = folder
        self.began = monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, "--job", str(data), str(folder), master, str(batch_bytes)]
        with (folder / "log.txt").open("ab") as log:
            self._driver = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {_TAG: self.tag})

    @property
    def ended(self) -> bool:
        return self._driver.poll() is not None

    @property
    def failed(self) -> bool:
        return self._driver.poll() not in (0, None, -signal.SIGKILL)

    def wait(self) -> int:
        """The exit code, as long as there are new micro-batches now and then."""
        done, since = -1, monotonic()
        while not self.ended:
            if (now := committed(self.folder)) != done:
                done, since = now, monotonic()
            if monotonic() - since > PATIENCE:
                raise TimeoutError(f"nothing happens any more: {self.folder}")
            sleep(_LOOK)
        return self._driver.wait()

    def daemons(self) -> list[Process]:
        processes = tagged(self.tag)
        java = {each.id for each in processes if each.java}
        return [each for each in processes if each.of_daemon and each.parent in java]

    def workers(self) -> list[Process]:
        daemons = {each.id for each in self.daemons()}
        return [each for each in tagged(self.tag) if each.of_daemon and each.parent in daemons]

    def busy_workers(self, limit: float = 20.0) -> list[Process]:
        """Workers that are working now."""
        until = monotonic() + limit
        before: dict[int, int] = {}
        while monotonic() < until and not self.ended:
            workers = self.workers()
            if busy := [each for each in workers if each.spent > before.get(each.id, each.spent)]:
                return busy
            before = {each.id: each.spent for each in workers}
            sleep(_LOOK)
        return []

    def kill(self) -> bool:
        """End the driver and its Java, in any order; what they leave behind must end by itself."""
        both = [each for each in tagged(self.tag) if each.java or each.id == self._driver.pid]
        random.shuffle(both)
        alive = not self.ended
        for each in both:
            kill(each)
        self._driver.wait(PATIENCE)
        return alive

    def end(self) -> None:
        """End whatever is left of it."""
        for each in tagged(self.tag):
            kill(each)
        with suppress(subprocess.TimeoutExpired):
            self._driver.wait(PATIENCE)


# ---------------------------------------------------------------- torment


def committed(folder: Path) -> int:
    """How many micro-batches are done, as Spark has it."""
    names = [each.name for each in (folder / "checkpoint" / "spark" / "commits").glob("[0-9]*")]
    return 1 + max(map(int, names), default=-1)


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

    def __init__(self, data: Path, batch_bytes: int, seed: int, tell: Callable[[str], object]) -> None:
        self._data, self._batch_bytes, self._tell = data, batch_bytes, tell
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
            with self._started(folder, self._draw.choice(MASTERS)) as job:
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
    def _started(self, folder: Path, master: str) -> Iterator[Job]:
        """The job; only if something goes wrong here, all that is left of it is ended."""
        job = Job(self._data, folder, master, self._batch_bytes)
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
            sleep(_LOOK)

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
    files = [each for each in (folder / "local").glob("*/userFiles-*/*-*.*") if each.is_file()]
    for each in files:
        each.unlink(missing_ok=True)
    return bool(files)


def chaos(
    folder: Path,
    *,
    elements: int,
    batch_bytes: int,
    kills: dict[str, int],
    seed: int = 0,
    tell: Callable[[str], object] = lambda text: None,
) -> Story:
    """Disturb the job so many times, in as many lives as that takes."""
    data = folder / "data"
    write_data(data, elements)
    tormentor = Tormentor(data, batch_bytes, seed, tell)
    expected = tormentor.undisturbed(folder / "quiet")
    wanted = Counter(kills)
    while +wanted:
        tormentor.torment(folder / f"life-{tormentor.story.rounds + 1}", expected, wanted)
    tormentor.check_remains()
    return tormentor.story


def report(story: Story) -> str:
    killed = ", ".join(f"{story.kills[kind]} × {kind}" for kind in KINDS)
    lines = [f"killed: {killed}", f"lives: {story.rounds}, micro-batches: {story.batches}, errors: {story.errors}"]
    if story.recoveries:
        times = sorted(story.recoveries)
        lines.append(f"from a restart to the first new result: {median(times):.1f} s, at most {times[-1]:.1f} s")
    lines += [f"different: {name}" for name in story.different]
    lines += [f"still there: process {each.id} {each.command[:80]!r}" for each in story.left]
    return "\n".join([*lines, "exactly once: " + ("yes" if story.right else "NO")]) + "\n"


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--job"]:
        data, place, master, size = arguments[1:]
        job(Path(data), Path(place), master, int(size))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each kind (default: %(default)s)")
    parser.add_argument("--only", choices=KINDS, action="append", help="a kind; may be repeated (default: all)")
    parser.add_argument("--elements", type=int, default=20_000, help="of the larger stream (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=30_000, help="bytes of a micro-batch (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="of the choices (default: a new one)")
    parser.add_argument("--keep", type=Path, help="a folder for all files, which is not removed")
    options = parser.parse_args(arguments)
    folder = options.keep or Path(mkdtemp(prefix="cqels-chaos-"))
    seed = random.randrange(1 << 30) if options.seed is None else options.seed
    sys.stdout.write(f"seed {seed}\n")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # what was started is ended then too
    began = monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"{monotonic() - began:7.1f} s  {text}\n")
        sys.stdout.flush()

    try:
        story = chaos(
            folder.absolute(),
            elements=options.elements,
            batch_bytes=options.batch,
            kills=dict.fromkeys(options.only or KINDS, options.kills),
            seed=seed,
            tell=tell,
        )
    finally:
        if options.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(report(story))
    return 0 if story.right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
