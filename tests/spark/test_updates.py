"""Static data that changes while a pipeline runs on Spark: each update once, through restarts, in every instance."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

from cqels.model.errors import CqelsError
from cqels.pipeline.instance.program import Dataset
from cqels.plan.prepare import prepare
from cqels.spark.driver import dataset_changes
from cqels.spark.driver.app import App
from cqels.spark.driver.dataset_changes import DatasetChanges, KeptDataset, accepted
from cqels.spark.driver.dataset_updates import Updates
from cqels.spark.driver.run import Run
from cqels.spark.sinks import Memory
from cqels.store.dataset import Store

OBS = "http://ex.org/obs"
ROOMS = "SELECT ?s ?r { STREAM <http://ex.org/obs> [RANGE 1h] { ?s <u:temp> ?t } ?s <u:in> ?r . FILTER(?t > 0) }"
TOTAL = """SELECT ?r (COUNT(*) AS ?n) {
  STREAM <http://ex.org/obs> [RANGE 1h] { ?s <u:temp> ?t } ?s <u:in> ?r } GROUP BY ?r ORDER BY ?r LIMIT 9"""


def moved(sensor: str, room: str) -> str:
    return f"DELETE WHERE {{ <u:{sensor}> <u:in> ?r }}; INSERT DATA {{ <u:{sensor}> <u:in> <u:{room}> }}"


class Updated:
    """A pipeline that follows a folder, with a file of static data."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        (folder / "in").mkdir()
        self.write("hall")
        self.memory, self.parts = Memory(), 0
        self.runs: list[Run] = []

    def write(self, room: str) -> None:
        (self.folder / "rooms.ttl").write_text(
            f"<u:s1> <u:in> <u:{room}> . <u:s2> <u:in> <u:attic> . _:b a <u:Blank> ."
        )

    def start(self, *, watch: bool = False, spread: bool = False, later: bool = False) -> Run:
        app = App(self.spark, checkpoint=self.folder / "c", follow=True)
        app.files(f"<{OBS}>={self.folder}/in/*.nt")
        app.load(self.folder / "rooms.ttl", watch=watch)
        app.add(prepare(ROOMS, name="rooms", emit="changes"))
        if spread:
            app.add(prepare(TOTAL, name="total"), spread=True)
        if later:
            app.add(prepare(ROOMS, name="later", emit="changes"))
        self.runs.append(app.run(self.memory))
        return self.runs[-1]

    def push(self, sensor: str = "s1") -> None:
        self.parts += 1
        (self.folder / "new").write_text(
            f'<u:{sensor}> <u:temp> "{self.parts}"^^<http://www.w3.org/2001/XMLSchema#integer> "{self.parts}" .\n'
        )
        (self.folder / "new").rename(self.folder / "in" / f"{self.parts}.nt")

    def seen(self, name: str = "rooms") -> list[str]:
        return [f"{each.sign}{each.values[-1].value.removeprefix('u:')}" for each in self.memory.results(name)]

    def wait_for(self, *seen: str, name: str = "rooms") -> None:
        limit = monotonic() + 60
        while self.seen(name) != [*seen]:
            assert monotonic() < limit, self.seen(name)
            sleep(0.05)


@pytest.fixture
def updated(spark: SparkSession, tmp_path: Path) -> Iterator[Updated]:
    made = Updated(spark, tmp_path)
    yield made
    for run in made.runs:
        with suppress(CqelsError):
            run.stop()


def test_an_update_reaches_all_engines_and_later_runs(updated: Updated) -> None:
    run = updated.start(spread=True)
    assert len(run.placed) == 3
    updated.push()
    updated.wait_for("+hall")
    assert run.update(moved("s1", "attic"))
    updated.wait_for("+hall", "-hall", "+attic")  # without an element
    assert not run.update("INSERT DATA { <u:s1> <u:in> <u:attic> }")
    run.change(add=[prepare(ROOMS, name="later", emit="changes")])
    updated.push()
    updated.wait_for("+attic", name="later")
    total = [[str(value) for value in each.values] for each in updated.memory.results("total")]
    assert total[-1] == ["<u:attic>", '"2"^^<http://www.w3.org/2001/XMLSchema#integer>']
    run.stop()

    again = updated.start(spread=True, later=True)  # with the data of the beginning, which is not what there is now
    seen = ["+hall", "-hall", "+attic", "+attic"]
    again.update(moved("s1", "cellar"))
    updated.wait_for(*seen, "-attic", "-attic", "+cellar", "+cellar")
    again.stop()
    with pytest.raises(CqelsError, match="does not run"):
        again.update(moved("s1", "porch"))
    updated.write("cellar")  # with the data of now
    last = updated.start(spread=True, later=True)
    updated.push("s2")
    updated.wait_for(*seen, "-attic", "-attic", "+cellar", "+cellar", "+attic")
    last.stop()
    updated.write("porch")
    with pytest.raises(CqelsError, match="the static data has changed"):
        updated.start(spread=True, later=True)


def test_a_watched_file_changes_the_data(updated: Updated) -> None:
    run = updated.start(watch=True)
    updated.push()
    updated.wait_for("+hall")
    updated.write("attic")
    updated.wait_for("+hall", "-hall", "+attic")
    run.stop()
    updated.write("cellar")  # while nothing runs
    updated.start(watch=True)
    updated.wait_for("+hall", "-hall", "+attic", "-attic", "+cellar")


# ---------------------------------------------------------------- killed in the middle of updates

APPLICATION = """
import sys
from pathlib import Path
from cqels.spark import App, start
from cqels.spark.sinks import Files

folder, life = Path(sys.argv[1]), int(sys.argv[2])
app = App(start(master="local[2]", partitions=2), checkpoint=folder / "checkpoint", follow=True)
app.files(f"<http://ex.org/obs>={folder}/in/*.nt")
app.update("INSERT DATA { <u:s1> <u:in> <u:room> }")
app.add(sys.argv[3], name="rooms", emit="changes")
run = app.run(Files(folder / "results", "csv"))
step = 0
while not run.wait(0.05):
    step += 1
    run.update(f"DELETE WHERE {{ <u:s1> <u:in> ?r }}; INSERT DATA {{ <u:s1> <u:in> <u:room{life}-{step}> }}")
"""


@pytest.mark.cluster
def test_whoever_is_killed_makes_each_update_once(tmp_path: Path) -> None:
    """Updates change the room of all readings: results that lack one, or have one twice, do not add up."""
    (tmp_path / "in").mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    results = tmp_path / "results" / "rooms.csv"
    for life in range(3):
        line = f'<u:s1> <u:temp> "{life + 1}"^^<http://www.w3.org/2001/XMLSchema#integer> "{life}" .\n'
        (tmp_path / "in" / f"{life}.nt").write_text(line)
        command = [sys.executable, "-c", APPLICATION, str(tmp_path), str(life), ROOMS]
        process = subprocess.Popen(command, env=environment)
        try:
            size = results.stat().st_size if results.exists() else 0
            limit = monotonic() + 300
            while not results.exists() or results.stat().st_size < size + 600 * (1 + life):
                assert process.poll() is None
                assert monotonic() < limit
                sleep(0.05)
        finally:
            process.kill()
            process.wait()
        rooms = Counter[str]()
        for row in csv.DictReader(results.read_text().rpartition("\n")[0].splitlines()):
            rooms[row["r"]] += 1 if row["sign"] == "+" else -1
            assert rooms[row["r"]] >= 0
        assert sum(rooms.values()) <= life + 1


# ---------------------------------------------------------------- without Spark


def kept_in(folder: Path) -> tuple[KeptDataset, Updates]:
    updates = Updates(folder / "updates")
    return KeptDataset(folder / "dataset", updates), updates


def test_what_a_run_may_go_on_with(tmp_path: Path) -> None:
    beginning = Store()
    beginning.load(_written(tmp_path / "a.ttl", "<u:s1> <u:in> <u:hall> . _:b a <u:Blank> ."))
    first = Dataset.of(beginning)
    kept, updates = kept_in(tmp_path)
    changes = DatasetChanges(lambda: beginning, kept, updates)
    for room in ("attic", "cellar"):
        assert changes.update(moved("s1", room), lambda: first)
    for room, right in (("hall", True), ("attic", True), ("cellar", True), ("porch", False)):
        store = Store()
        store.load(_written(tmp_path / "b.ttl", f"<u:s1> <u:in> <u:{room}> . _:c a <u:Blank> ."))
        assert accepted(kept_in(tmp_path)[0], store, Dataset.of(store).digest, first.digest) is right
        if right:
            assert lines(store) == lines(beginning)  # blank nodes have the same names
    assert kept.beginning == first


def test_many_updates_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_changes, "MOST_KEPT", 3)
    store = Store()
    kept, updates = kept_in(tmp_path)
    changes = DatasetChanges(lambda: store, kept, updates)
    for number in range(4):
        changes.update(moved("s1", f"r{number}"), Dataset)
    changes.note_read([0, 1, 2, 3])
    assert len(updates.changes()) == 4  # the micro-batch may be repeated
    changes.note_read([])
    assert [number for number, _ in updates.changes()] == [3]
    changes.update(moved("s1", "last"), Dataset)
    again, later = kept_in(tmp_path)
    now = again.now()
    assert now is not None
    assert now.digest == Dataset.of(store).digest
    assert later.change('{"add": ""}') == 5


def lines(store: Store) -> list[bytes]:
    return sorted(Dataset.of(store).quads.read().splitlines())


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
