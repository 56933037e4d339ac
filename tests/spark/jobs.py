"""A job on Spark as a process of its own: its data, what it runs, the processes that come of it, and what it wrote.

python tests/spark/jobs.py '{"data": "…", "folder": "…"}'
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

PATIENCE = 300.0
"""Seconds in which something must happen, on a busy machine too."""
LOOK = 0.02
"""Seconds between looks."""
REFUSED = 2
"""The exit code of a job that ended with a sentence."""
_TAG = "CQELS_CHAOS"

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
TOPIC = "readings"
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


def write_readings(count: int) -> list[str]:
    """Lines for a topic, in the order of their times."""
    return [f'<http://ex.org/s{each % 7}> <http://ex.org/p> "{each}" {each} .' for each in range(count)]


@dataclass(frozen=True)
class Settings:
    """What a job is started with; some of it may be other at each start."""

    data: str
    folder: str
    master: str = "local[2,4]"
    partitions: int = 2
    instances: int = 2
    batch_bytes: int = 30_000
    lost: str = "stop"
    latency: str = "normal"
    """With low, there is one engine in the driver, and nothing is spread."""
    servers: str = ""
    """Of a Kafka broker, from whose topic `TOPIC` the job reads, with these `jars`, until it has so many `results`."""
    jars: str = ""
    results: int = 0


def job(settings: Settings) -> None:
    """The application, from where it was to the end."""
    from cqels.spark import start, stop

    folder = Path(settings.folder)
    options = {"spark.local.dir": str(folder / "local")} | ({"spark.jars": settings.jars} if settings.jars else {})
    spark = start(master=settings.master, partitions=settings.partitions, settings=options, brief=True)
    (_job_of_topic if settings.servers else _job_of_files)(spark, settings, folder)
    stop(spark)


def _job_of_files(spark: Any, settings: Settings, folder: Path) -> None:
    from cqels.pipeline.sink.reject_files import Rejects
    from cqels.spark import App
    from cqels.spark.driver.metrics import Metrics
    from cqels.spark.sinks import Files

    app = App(
        spark,
        checkpoint=folder / "checkpoint",
        batch_bytes=settings.batch_bytes,
        instances=None if settings.latency == "low" else settings.instances,
        until="1h",
        latency=settings.latency,
    )
    app.files(f"<http://ex.org/a>={settings.data}/a*.nt?lateness=1s")
    app.files(f"<http://ex.org/b>={settings.data}/b.nt")
    app.load(f"{settings.data}/rooms.ttl")
    for name, text in QUERIES.items():
        app.add(text, name=name, spread=name in SPREAD and settings.latency != "low")
    sinks = Files(folder / "out" / "csv"), Files(folder / "out" / "jsonl", "jsonl")
    rejects, metrics = Rejects(folder / "out" / "rejects.tsv"), Metrics(folder / "metrics.jsonl")
    app.run(*sinks, rejects=rejects, metrics=metrics, lost=settings.lost).wait()


def _job_of_topic(spark: Any, settings: Settings, folder: Path) -> None:
    from cqels import lift
    from cqels.spark import App, sources
    from cqels.spark.sinks import Files

    app = App(spark, checkpoint=folder / "checkpoint")
    app.stream("http://ex.org/a", sources.kafka(spark, settings.servers, TOPIC, most=40), lift=lift.ntriples())
    app.add(PREFIX + "SELECT ?s ?v WHERE { STREAM :a [NOW] { ?s :p ?v } }", name="values")
    file = folder / "out" / "values.csv"
    run = app.run(Files(folder / "out"))
    while not run.wait(0.2):
        if file.exists() and file.read_bytes().count(b"\n") > settings.results:  # and a line of names
            run.stop()
            return


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

    def __init__(self, settings: Settings) -> None:
        self.tag = uuid4().hex
        self.folder = Path(settings.folder)
        self.began = monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._log = self.folder / "log.txt"
        command = [sys.executable, __file__, json.dumps(asdict(settings))]
        with self._log.open("ab") as log:
            self._begin = log.tell()
            self._driver = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {_TAG: self.tag})

    @property
    def said(self) -> str:
        """The sentence that it ended with, if it did."""
        with self._log.open("rb") as log:
            log.seek(self._begin)
            return log.read().decode(errors="replace").rpartition("\nerror: ")[2]

    @property
    def ended(self) -> bool:
        return self._driver.poll() is not None

    @property
    def failed(self) -> bool:
        return self._driver.poll() not in (0, None, -signal.SIGKILL)

    def wait_until(self, batches: int) -> bool:
        """So many micro-batches are done; False if it has ended before."""
        return self._wait(lambda: committed(self.folder) >= batches) and not self.ended

    def wait(self) -> int:
        """The exit code, as long as there are new micro-batches now and then."""
        self._wait(lambda: False)
        return self._driver.wait()

    def _wait(self, holds: Callable[[], bool]) -> bool:
        """Wait until something holds or the job ends."""
        done, since = -1, monotonic()
        while not self.ended and not holds():
            if (now := committed(self.folder)) != done:
                done, since = now, monotonic()
            if monotonic() - since > PATIENCE:
                raise TimeoutError(f"nothing happens any more: {self.folder}")
            sleep(LOOK)
        return holds()

    def signal(self, number: signal.Signals) -> None:
        """Send the driver a signal."""
        self._driver.send_signal(number)

    def java(self) -> list[Process]:
        return [each for each in tagged(self.tag) if each.java]

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
            sleep(LOOK)
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


def committed(folder: Path) -> int:
    """How many micro-batches are done, as Spark has it."""
    names = [each.name for each in (folder / "checkpoint" / "spark" / "commits").glob("[0-9]*")]
    return 1 + max(map(int, names), default=-1)


def main(text: str) -> int:
    from cqels.model.errors import CqelsError

    try:
        job(Settings(**json.loads(text)))
    except CqelsError as error:
        sys.stderr.write(f"\nerror: {error}\n")
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
