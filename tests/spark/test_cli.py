"""The command line on Spark: the bytes of the embedded engine, checkpoints, signals, nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

import cqels
from cqels.cli import main, run_spark
from cqels.cli.demo import evening
from cqels.cli.new_project import make_project
from cqels.scenarios.answers import answers
from cqels.scenarios.taxi import SCENARIO
from cqels.spark.session.spark_session import start, stop
from cqels.spark.sinks import Console

PATIENCE = 300.0
"""Seconds that a step may take on a busy machine."""
SIZE = 600
KIND = "http://www.w3.org/2001/XMLSchema#integer"
PREFIX = "PREFIX : <http://ex.org/>\n"
HOT = PREFIX + "SELECT ?s ?v ?room WHERE { STREAM :a [RANGE 200ms] { ?s :p ?v } ?s :in ?room FILTER(?v > 4) }"
COUNT = PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM :a [RANGE 1s] { ?s :p ?v } } GROUP BY ?s"
STREAM = ("--stream", "<http://ex.org/a>=a*.nt")

Run = Callable[..., tuple[int, str, str]]


def line(number: int) -> str:
    """Three elements have the same time."""
    return f'<http://ex.org/s{number % 9}> <http://ex.org/p> "{number % 7}"^^<{KIND}> {number // 3 * 30} .\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where all tests and Spark are."""
    folder = tmp_path_factory.mktemp("cli")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(Path(cqels.__file__).parent.parent))  # for workers, who are here too
        lines = [line(number) for number in range(SIZE)]
        Path("a1.nt").write_text("".join(lines[: SIZE // 2]) + "this is no triple\n")
        second = lines[SIZE // 2 :]
        Path("a2.nt").write_text("".join([second[0], lines[0], *second[1:]]))  # the second one is late
        Path("late.nt").write_text(lines[9] + lines[0])
        Path("rooms.ttl").write_text(
            "@prefix : <http://ex.org/> . " + " ".join(f":s{number} :in :r{number % 2} ." for number in range(9))
        )
        Path("hot.rq").write_text(HOT)
        Path("count.rq").write_text(COUNT)
        yield folder


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[SparkSession]:
    session = start(partitions=2)
    yield session
    stop(session)


@pytest.fixture
def run(folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process, in the session of all tests."""
    monkeypatch.setattr(run_spark.Java, "start", lambda java: spark)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cqels", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        output = capsys.readouterr()
        return code, output.out, output.err

    return call


def test_the_bytes_are_those_of_the_embedded_engine(run: Run) -> None:
    """Of several queries too, whatever the micro-batches are, though elements of one time are in two of them.

    And if each query is spread over two engines.
    """
    spread = ("--spread", "--instances", "2", "--metrics", "metrics.jsonl")
    both = ("run", "hot.rq", "count.rq", *STREAM, "--data", "rooms.ttl", "--until", "30s", "--emit", "changes")
    for format, options in {"text": (), "csv": ("--out", "tables/"), "jsonl": ("--out", "results/")}.items():
        seen = []
        for engine in (("--engine", "embedded"), ("--batch", "25kB", *(spread if format == "csv" else ()))):
            code, out, err = run(*both, "--format", format, *options, *engine)
            assert code == 0, err
            files = {each.name: each.read_bytes() for each in (*Path().glob("tables/*"), *Path().glob("results/*"))}
            seen.append((out, files, sorted(err.splitlines())))
        assert seen[0] == seen[1]
        assert len(seen[0][0]) + sum(map(len, seen[0][1].values())) > 1000
    told = seen[0][2]
    assert any(each.startswith("rejected: a1.nt:301: ") for each in told)
    assert any(each.startswith(f"{SIZE + 1:,} elements") and "1 rejected, 1 late" in each for each in told)
    assert {each.name for each in Path().glob("results/*")} == {"hot.jsonl", "count.jsonl"}
    assert list(Path().glob(".*")) == []
    assert '"hot (2 of 2)"' in Path("metrics.jsonl").read_text()


def test_a_checkpoint_is_gone_on_from(run: Run) -> None:
    """A run that has come to its end has nothing left; what does not belong to a checkpoint is refused."""
    words = ("run", "hot.rq", *STREAM, "--data", "rooms.ttl", "--checkpoint", "state", "--out", "hot.csv")
    code, out, _ = run(*words, "--rejects", "rejects.tsv", "--metrics", "metrics.jsonl", "--prometheus", "metrics.prom")
    assert (code, out) == (0, "")
    assert Path("metrics.jsonl").read_text().startswith('{"batch": 0, ')
    assert "cqels_elements_total" in Path("metrics.prom").read_text()
    assert Path("rejects.tsv").read_text().startswith("a1.nt:301\t")
    before = Path("hot.csv").read_bytes()
    code, _, err = run(*words)
    assert code == 0
    assert "nothing left to do" in err
    assert Path("hot.csv").read_bytes() == before
    code, _, err = run(*words[:2], "--stream", "<http://ex.org/a>=a*.nt?lateness=1s", *words[4:])
    assert code == 2
    assert "lateness of stream <http://ex.org/a> was 0" in err
    code, _, err = run(*words[:-3], "other", *words[-2:])
    assert code == 2
    assert "hot.csv has the results of another run" in err


def test_strict_stops_at_what_is_malformed_or_late(run: Run) -> None:
    code, _, err = run("run", "count.rq", *STREAM, "--strict")
    assert code == 2
    assert err.startswith("error: a1.nt:301: ")
    code, _, err = run("run", "count.rq", "--stream", "<http://ex.org/a>=late.nt", "--strict")
    assert code == 2
    assert "late" in err.splitlines()[0]


def test_a_failure_is_a_sentence_and_the_place_of_a_log(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no room")

    monkeypatch.setattr(Console, "write", fail)
    code, out, err = run("run", "hot.rq", *STREAM, "--data", "rooms.ttl", "--rejects", "some.tsv")
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first == "error: the sink Console failed: ValueError: no room"
    log = Path(second.rpartition(" ")[2])
    assert "no room" in log.read_text()
    log.unlink()


def test_the_demonstration_comes_to_its_end(run: Run) -> None:
    """With lists that are those of the embedded engine, and a map."""
    code, out, err = run("demo", "--size", "1500", "--speed", "10000", "--map", "city.svg")
    assert (code, err) == (0, "")
    found = (re.match(r"([\w.]+) +([\d,]+) ", line) for line in out.splitlines())
    numbers = {each[1]: int(each[2].replace(",", "")) for each in found if each}
    assert numbers["trips"] + numbers["skipped"] == 1500
    assert numbers["rejected"] == 0
    with TemporaryDirectory() as folder:
        lists = answers([SCENARIO.query(each) for each in SCENARIO.queries], evening(1500, Path(folder)))
    for name, results in lists.items():
        assert numbers[f"{name}.rq"] == len({result.tick for result in results}) > 100
    assert "map        city.svg" in out
    assert ElementTree.parse("city.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


def test_a_map_that_cannot_be_saved_is_told_at_once(run: Run) -> None:
    code, out, err = run("demo", "--map", "nowhere/city.svg")
    assert (code, out) == (2, "")
    assert err.startswith("error: the map cannot be written to nowhere/city.svg")


# ---------------------------------------------------------------- a process of its own


class Process:
    """A command in a session of its own, as in a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from cqels.cli import main; main()", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(Path("temporary").resolve())},
        )

    def interrupt(self) -> None:
        """Ctrl-C: all of the session have it."""
        os.killpg(self._process.pid, signal.SIGINT)

    def awaited(self, what: Callable[[], bool]) -> None:
        """Wait until something is so, or the process ends."""
        limit = time.monotonic() + PATIENCE
        while not what():
            assert self._process.poll() is None, self.end()
            assert time.monotonic() < limit
            time.sleep(0.1)

    def end(self) -> tuple[int, str, str]:
        out, err = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, out, err


def processes_with(text: str) -> list[str]:
    """The commands of processes that have a text in their environment."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (each / "environ").read_bytes():
                found.append((each / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        except OSError:
            continue
    return found


def test_ctrl_c_and_on(folder: Path) -> None:
    """Interrupted while it waits for files, and started again: nothing lost, nothing twice, no Java left."""
    Path("temporary").mkdir()
    Path("in").mkdir()
    Path("in/1.nt").write_text("".join(map(line, range(300))))
    Path("all.rq").write_text(PREFIX + "SELECT ?s ?v WHERE { STREAM :a [NOW] { ?s :p ?v } }")
    words = ("run", "all.rq", "--stream", "<http://ex.org/a>=in", "--follow", "--checkpoint", "following")
    words = (*words, "--out", "all.csv", "--master", "local[2]")

    def results() -> int:
        return Path("all.csv").read_text().count("\n") - 1 if Path("all.csv").exists() else 0

    first = Process(*words)
    first.awaited(lambda: results() == 300)
    first.interrupt()
    code, out, err = first.end()
    assert (code, out) == (0, "")
    assert err.splitlines() == [
        "",
        "stopping; once more to end at once",
        "300 elements, 300 results, up to 2970ms",
        "stopped; the same command goes on from here",
    ]
    second = Process(*words)
    Path("part").write_text("".join(map(line, range(300, 400))))
    Path("part").rename("in/2.nt")
    second.awaited(lambda: results() == 400)
    second.interrupt()
    code, _, err = second.end()
    assert code == 0
    assert "100 elements, 100 results" in err
    rows = [each.split(",") for each in Path("all.csv").read_text().splitlines()[1:]]
    assert [int(row[1]) for row in rows] == list(range(1, 401))
    assert processes_with(str(Path("temporary").resolve())) == []
    assert [each.name for each in Path("temporary").iterdir() if each.name.startswith("cqels-")] == []


def test_a_new_project_runs_live_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cqels init`, `cqels run`: alerts of what is there, then of a line that is appended; Ctrl-C and on."""
    make_project(folder / "building")
    monkeypatch.chdir(folder / "building")
    Path("temporary").mkdir()

    def alerts() -> int:
        return Path("alerts.csv").read_text().count("\n") - 1 if Path("alerts.csv").exists() else 0

    run = Process("run", "--master", "local[2]")
    run.awaited(lambda: alerts() == 4)
    with Path("readings.csv").open("a") as readings:
        readings.write("2025-01-06T09:00:00Z,kitchen,35.5\n")
    run.awaited(lambda: alerts() == 5)
    run.interrupt()
    code, out, err = run.end()
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()] == [":server"] * 4 + [":kitchen"]
    told = err.splitlines()
    assert told[:2] == [
        "engine  Spark at local[2]",
        "stream  :readings from readings.csv, lifted by readings.toml, followed",
    ]
    assert "sink    alerts.csv: each result arrives exactly once, whatever crashes" in told
    assert "state   state, which is new" in told
    assert told[-2:] == [
        "16 elements, 5 results, up to 2025-01-06T09:00:00Z",
        "stopped; the same command goes on from here",
    ]


def test_a_scenario_is_measured_on_spark(run: Run, folder: Path) -> None:
    code, out, _ = run("bench", "run", "taxi", "--engine", "spark", "--together", "--out", "bench")
    assert (code, "report.md" in out) == (0, True)
    (found,) = json.loads((folder / "bench" / "measured.json").read_text())["measured"]
    assert found["query"] == "routes + profit"
    assert found["engine"] == "spark"
    assert found["elements"] == 192
    expected = SCENARIO.folder / "expected"
    lines = sum((expected / f"{name}.csv").read_text().count("\n") - 1 for name in ("routes", "profit"))
    assert found["results"] == lines
    assert found["elements/s"] > 0
