"""A live run in this process: what it reads, what it sends, and how it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow
import pytest
from pyoxigraph import NamedNode

from cqels.ingest import StreamSettings, parse_declaration
from cqels.live.inputs import Inputs
from cqels.live.live_run import LiveRun, LiveSettings, PushedStream
from cqels.model.checksummed import seal_json, unseal_json
from cqels.model.errors import CqelsError
from cqels.pipeline.lift.row_lifts import ntriples
from cqels.pipeline.sink.reject_files import Rejects
from cqels.pipeline.sinks import Files, Memory, Sink
from cqels.pipeline.source.live_source import ROWS, Message
from cqels.plan.algebra import Query
from cqels.store.dataset import Store
from cqels.store.script import execute

from .driving import EVERYTHING, EX, HOT, MEAN, OBS, query, reading

HOT_QUERY = query(HOT, "hot")
ROOMS = query(f"SELECT ?r ?t WHERE {{ STREAM <{OBS}> [NOW] {{ ?s <{EX}temp> ?t }} ?s <{EX}in> ?r }}", "rooms")


def live(
    path: Path | str,
    sinks: Sequence[Sink],
    *queries: Query,
    options: str = "",
    data: str = "",
    follow: bool = True,
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> LiveRun:
    store = Store()
    if data:
        execute(store, data)
    streams = [parse_declaration(f"<{OBS}>={path}{options}")]
    return LiveRun(
        streams, queries or [HOT_QUERY], store, sinks, settings=LiveSettings(follow=follow, **settings or {}), **more
    )


def eventually(check: Callable[[], bool], seconds: float = 10.0) -> None:
    limit = monotonic() + seconds
    while not check():
        assert monotonic() < limit
        sleep(0.005)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def started() -> Iterator[Callable[..., LiveRun]]:
    """Runs that end with the test."""
    runs: list[LiveRun] = []

    def start(*given: Any, **options: Any) -> LiveRun:
        run = live(*given, **options)
        runs.append(run)
        run.start()
        return run

    yield start
    for run in runs:
        run.stop()


def test_appended_lines_have_results_at_once(tmp_path: Path, started: Any) -> None:
    file, memory = tmp_path / "obs.nt", Memory()
    file.write_text(reading(1, 35, 1) + "\n")
    run = started(file, [memory])
    eventually(lambda: len(memory.results()) == 1)
    with file.open("a") as stream:
        stream.write(reading(2, 20, 2) + "\n" + reading(3, 40, 3) + "\n")
    eventually(lambda: len(memory.results()) == 2)
    assert run.tally.elements == 3
    assert run.metrics["watermark"] == 3 * 10**9
    run.stop()
    assert run.wait()


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path, started: Any) -> None:
    file, out = tmp_path / "obs.nt", tmp_path / "out.csv"
    file.write_text("")
    for number in range(4):
        with file.open("a") as stream:
            stream.write(reading(number, 35, number) + "\n")
        run = started(file, [Files(out)], state=tmp_path / "state")
        eventually(lambda number=number: len(lines_of(out)) == 2 + number)
        run.stop()
        assert run.tally.elements == 1
    assert [line.split(",")[-1] for line in lines_of(out)[1:]] == ["35"] * 4


@pytest.mark.parametrize("state", [True, False])
def test_files_that_end(tmp_path: Path, started: Any, *, state: bool) -> None:
    """The run ends with them; the next one has nothing left to do."""
    for number in range(3):
        (tmp_path / f"obs-{number}.nt").write_text(
            "".join(reading(at, 35 + number, 3 * at + number) + "\n" for at in range(5))
        )
    options = {"state": tmp_path / "state"} if state else {}
    memory = Memory()
    run = started(f"{tmp_path}/obs-*.nt", [memory], follow=False, **options)
    assert run.wait(10)
    assert [each.nanoseconds // 10**9 for each in memory.results()] == [*range(15)]
    assert run.tally.elements == 15
    if state:
        again = started(f"{tmp_path}/obs-*.nt", [Memory()], follow=False, **options)
        assert again.wait(1)
        assert again.finished
        assert again.tally.elements == 0


def test_rejected_and_late_input_is_written_once(tmp_path: Path, started: Any) -> None:
    file, rejects = tmp_path / "obs.nt", tmp_path / "rejects.tsv"
    file.write_text(reading(1, 35, 5) + "\nnonsense\n" + reading(1, 35, 1) + "\n")
    for _ in range(3):
        run = started(file, [Memory()], state=tmp_path / "state", rejects=Rejects(rejects))
        eventually(lambda: len(lines_of(rejects)) == 2)
        run.stop()
    assert [line.split("\t")[1].split(":")[0] for line in lines_of(rejects)] == [
        line.split("\t")[1].split(":")[0] for line in lines_of(rejects)
    ]
    assert len(lines_of(rejects)) == 2


def test_strict_ends_a_run_with_the_first(tmp_path: Path, started: Any) -> None:
    file = tmp_path / "obs.nt"
    file.write_text("nonsense\n")
    run = started(file, [Memory()], settings={"strict": True})
    with pytest.raises(CqelsError, match=r"obs\.nt:1"):
        run.wait(10)


def test_queries_come_and_go(tmp_path: Path, started: Any) -> None:
    """And stay when the run goes on."""
    file, memory = tmp_path / "obs.nt", Memory()
    file.write_text("")
    run = started(file, [memory], state=tmp_path / "state")
    run.register(query(MEAN, "mean"))
    with pytest.raises(CqelsError, match="there is a query mean already"):
        run.register(query(MEAN, "mean"))
    with pytest.raises(CqelsError, match="is not declared"):
        run.register(query("SELECT * WHERE { STREAM <http://ex.org/x> { ?s ?p ?o } }", "other"))
    with pytest.raises(CqelsError, match="there is no query other"):
        run.drop("other")
    file.write_text(reading(1, 35, 1) + "\n")
    eventually(lambda: len(memory.results("mean")) == len(memory.results("hot")) == 1)
    run.stop()
    memory = Memory()
    run = started(file, [memory], state=tmp_path / "state")
    assert [*run.queries] == ["hot", "mean"]
    run.drop("hot")
    with file.open("a") as stream:
        stream.write(reading(1, 36, 2) + "\n")
    eventually(lambda: len(memory.results("mean")) == 1)
    run.stop()
    run = started(file, [Memory()], state=tmp_path / "state")
    assert [*run.queries] == ["hot", "mean"]  # it is asked for


@pytest.mark.parametrize("how", ["text", "blank", "function"])
def test_data_changes_once(tmp_path: Path, started: Any, how: str) -> None:
    """An update is in the log, whatever makes it."""
    file, memory = tmp_path / "obs.nt", Memory()
    file.write_text("")
    text = f"INSERT DATA {{ <{EX}s1> <{EX}in> {'_:kitchen' if how == 'blank' else f'<{EX}kitchen>'} }}"
    run = started(file, [memory], ROOMS, state=tmp_path / "state")
    run.update(text if how != "function" else lambda store: execute(store, text))
    with pytest.raises(CqelsError):
        run.update("INSERT nonsense")
    file.write_text(reading(1, 35, 1) + "\n")
    eventually(lambda: len(memory.results()) == 1)
    room = memory.results()[0]["r"]
    run.stop()
    memory = Memory()
    run = started(file, [memory], ROOMS, state=tmp_path / "state")
    with file.open("a") as stream:
        stream.write(reading(1, 36, 2) + "\n")
    eventually(lambda: len(memory.results()) == 1)
    assert memory.results()[0]["r"] == room
    run.stop()


def test_updates_follow_one_another(tmp_path: Path, started: Any) -> None:
    """Though they come at once, from several threads; one that fails is told to who asked, and the run goes on."""
    file, memory = tmp_path / "obs.nt", Memory()
    file.write_text("")
    run = started(file, [memory], ROOMS, state=tmp_path / "state")
    graphs = [f"CREATE GRAPH <{EX}g{number}>" for number in range(6)]
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(run.update, graphs))
    with pytest.raises(CqelsError):
        run.update(graphs[0])
    run.update(lambda store: store.create_graph(NamedNode(EX + "last")))
    found = run._engine.instance.dataset.graphs
    assert {*found} == {f"{EX}g{number}" for number in range(6)} | {EX + "last"}
    run.stop()
    run = started(file, [memory], ROOMS, state=tmp_path / "state")
    assert {*run._engine.instance.dataset.graphs} == {*found}


def test_elements_that_are_pushed(tmp_path: Path, started: Any) -> None:
    """They are on the disk when that returns: a run that has not read them is followed by one that does."""
    memory, pushed = Memory(), EX + "pushed"
    (tmp_path / "obs.nt").write_text("")
    asked = query(f"SELECT ?o WHERE {{ STREAM <{pushed}> [NOW] {{ ?s ?p ?o }} }}", "asked")
    options = {"state": tmp_path / "state", "pushed": [PushedStream(settings=StreamSettings(pushed), lift=ntriples())]}
    run = started(tmp_path / "obs.nt", [memory], asked, **options)
    run.push(pushed, [Message(b'<urn:a> <urn:b> 1 "1000" .', 0)])
    eventually(lambda: len(memory.results()) == 1)
    with pytest.raises(CqelsError, match="nothing can be pushed"):
        run.push(OBS, [])
    run.stop()
    memory = Memory()
    run = started(tmp_path / "obs.nt", [memory], asked, **options)
    run.push(pushed, [Message(b'<urn:a> <urn:b> 2 "2000" .', 0)])
    eventually(lambda: len(memory.results()) == 1)
    run.stop()


def test_a_stream_that_is_declared_while_it_runs(tmp_path: Path, started: Any) -> None:
    """Queries over it come and go; a run that goes on is given it again, beside one that it has not known."""
    memory, late, other = Memory(), EX + "late", EX + "other"
    (tmp_path / "obs.nt").write_text("")
    first, second = (PushedStream(settings=StreamSettings(iri), lift=ntriples()) for iri in (late, other))
    run = started(tmp_path / "obs.nt", [memory], state=tmp_path / "state")
    asked = query(f"SELECT ?o WHERE {{ STREAM <{late}> [ELEMENTS 10] {{ ?s ?p ?o }} }}", "asked")
    with pytest.raises(CqelsError, match="not declared"):
        run.register(asked)
    run.declare(first)
    with pytest.raises(CqelsError, match="already"):
        run.declare(first)
    run.register(asked)
    run.push(late, [Message(b'<urn:a> <urn:b> 1 "1000" .', 0)])
    eventually(lambda: len(memory.results("asked")) == 1)
    assert run.look(lambda instance: instance.sizes) == (2, 2)
    run.stop()
    for number, pushed in enumerate(([first], [first, second], [second, first]), 2):
        memory = Memory()
        run = started(tmp_path / "obs.nt", [memory], state=tmp_path / "state", pushed=pushed)
        run.push(late, [Message(f'<urn:a> <urn:b> {number} "{number}000" .'.encode(), 0)])
        eventually(lambda memory=memory: len(memory.results("asked")) >= 1)
        assert str(memory.results("asked")[-1].values[0]).startswith(f'"{number}"')
        run.stop()


def test_time_goes_on_while_nothing_arrives(tmp_path: Path, started: Any) -> None:
    """By the clock that is given; the heartbeats are in the log."""
    file, memory, now = tmp_path / "obs.nt", Memory(), [10**9]
    file.write_text(reading(1, 35, 1) + "\n")
    gone = query(HOT, "gone", emit="dstream")
    run = started(file, [memory], gone, options="?idle=2s", now=lambda: now[0])
    eventually(lambda: run.tally.elements == 1)
    assert not memory.results()
    now[0] += 20 * 10**9
    run._notify()
    eventually(lambda: len(memory.results()) == 1)
    run.stop()


def test_a_file_that_was_replaced_ends_the_run_with_a_sentence(tmp_path: Path, started: Any) -> None:
    file = tmp_path / "obs.nt"
    file.write_text(reading(1, 35, 1) + "\n" + reading(1, 35, 2) + "\n")
    run = started(file, [Memory()])
    eventually(lambda: run.tally.elements == 2)
    file.write_text(reading(1, 35, 1) + "\n")
    with pytest.raises(CqelsError, match="shorter than what was read"):
        run.wait(10)


def test_the_last_batch_is_delivered_again_after_a_crash_alone(tmp_path: Path, started: Any) -> None:
    file, state = tmp_path / "obs.nt", tmp_path / "state"
    file.write_text(reading(1, 35, 1) + "\n")
    run = started(file, [Memory()], state=state)
    eventually(lambda: run.tally.results == 1)
    run.stop()
    for crashed in (False, True):
        if crashed:
            manifest = unseal_json((state / "state.json").read_text(), "it")
            (state / "state.json").write_text(seal_json(manifest | {"delivered": -1}))
        memory = Memory()
        run = started(file, [memory], state=state)
        sleep(0.1)
        run.stop()
        assert len(memory.results()) == crashed
        assert run.tally.results == 0


def test_results_that_are_gone_are_missed(tmp_path: Path, started: Any) -> None:
    file, out = tmp_path / "obs.nt", tmp_path / "out.csv"
    file.write_text(reading(1, 35, 1) + "\n")
    run = started(file, [Files(out)], state=tmp_path / "state")
    eventually(lambda: len(lines_of(out)) == 2)
    run.stop()
    out.unlink()
    with pytest.raises(CqelsError, match="is gone"):
        started(file, [Files(out)], state=tmp_path / "state")
    run = started(file, [Files(out)], state=tmp_path / "state", settings={"lost": "continue"})
    with file.open("a") as stream:
        stream.write(reading(2, 36, 2) + "\n")
    eventually(lambda: len(lines_of(out)) >= 2)
    run.stop()


def test_streams_and_sources_are_added_in_any_order(tmp_path: Path) -> None:
    """They keep their numbers, whatever is declared before them."""
    (tmp_path / "b.nt").write_text(reading(1, 35, 1) + "\n")
    (tmp_path / "a.nt").write_text(reading(2, 36, 1) + "\n")
    first, second = f"<{OBS}>={tmp_path}/b.nt", f"<{EX}a>={tmp_path}/a.nt"
    every = query("SELECT ?g ?s WHERE { STREAM ?g [NOW] { ?s ?p ?o } }", "every")
    for declared in ([first], [second, first], [second, first]):
        memory = Memory()
        run = LiveRun([*map(parse_declaration, declared)], [every], Store(), [memory], state=tmp_path / "state")
        run.start()
        sleep(0.2)
        run.stop()
        run.wait()
    manifest = json.loads((tmp_path / "state" / "state.json").read_text())
    assert [each["iri"] for each in manifest["streams"]] == [OBS, EX + "a"]
    assert manifest["sources"] == [0, 1]
    with pytest.raises(CqelsError, match=r"there is no stream <.*/a> any more"):
        LiveRun([parse_declaration(first)], [every], Store(), [Memory()], state=tmp_path / "state").start()


class Failing:
    """A source that fails some times: like a receiver whose thread has died of something unforeseen."""

    place = "failing://source"

    def __init__(self, failures: int) -> None:
        self.opened, self._failures = 0, failures

    def __call__(self) -> Failing:
        self.opened += 1
        return self

    def start(self) -> dict[str, Any]:
        return {"at": 0}

    def read(self, position: dict[str, Any], most: int) -> tuple[pyarrow.RecordBatch, dict[str, Any]]:
        if self.opened <= self._failures:
            raise CqelsError(f"{self.place}: it has died") from RuntimeError("it has died")
        at = position["at"]
        rows = [] if at else [{"value": reading(1, 35, 1).encode(), "place": self.place, "position": 0}]
        return pyarrow.RecordBatch.from_pylist(rows, ROWS), {"at": 1}

    def has_ended(self, position: dict[str, Any]) -> bool:
        return position["at"] > 0

    def commit(self, position: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_source_that_has_died_is_opened_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And that is said; what waiting does not mend ends the run (above)."""
    source = Failing(2)
    inputs = Inputs([], tmp_path, follow=True, notify=lambda: None)
    inputs.add("failing", OBS, source, ntriples(), None)
    inputs.want({OBS: EVERYTHING})
    inputs.open()
    for number in range(2):
        assert not inputs.read({}, 1000).arrivals
        assert source.opened == number + 1
        assert not inputs.read({}, 1000).arrivals  # it waits
        assert inputs.due is not None
        inputs._live[0].not_before = 0.0
    batch = inputs.read({}, 1000)
    assert len(batch.arrivals) == 1
    assert inputs.has_ended(batch.positions)
    assert [each.message for each in caplog.records] == [
        "failing://source: it has died; it is opened again in 1 s",
        "failing://source: it has died; it is opened again in 2 s",
    ]
