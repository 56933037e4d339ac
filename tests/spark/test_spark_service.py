"""A service on Spark: all that is pushed and asked for while it runs leads to what it leads to in this process.

It goes on where it was, with the numbers of its results.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")
pytest.importorskip("starlette", reason="pip install 'cqels[serve]'")

import httpx

from cqels.engine.budgets import Budget
from cqels.ingest import StreamSettings, parse_declaration
from cqels.live.live_run import LiveSettings, PushedStream
from cqels.model.errors import CqelsError
from cqels.options import AppOptions
from cqels.pipeline.lift.row_lifts import BLOCKS
from cqels.pipeline.sinks import Files, Memory
from cqels.pipeline.source.inbox import Inbox, InboxFull
from cqels.pipeline.source.live_source import Message
from cqels.plan.prepare import prepare
from cqels.serve.backend import Pipeline
from cqels.serve.served_stream import ServedStream
from cqels.serve.service import Service
from cqels.serve.spark_backend import SparkBackend, on_spark
from cqels.spark.driver.app import App
from cqels.spark.driver.dataset_updates import Updates
from cqels.spark.driver.pushed_inboxes import PushedInboxes, pushed_folder
from cqels.spark.driver.served_state import AddedQuery, ServedState
from cqels.spark.source.pushed_source import PushedReader
from cqels.store.dataset import Store
from cqels.store.permissions import Permissions

from ..serve.serving import serve_process
from ..unit.test_permissions import Server as EndpointServer
from ..unit.test_permissions import query as asking
from ..unit.test_permissions import server as endpoint

__all__ = ["endpoint"]

PATIENCE = 120.0
BASE = "http://localhost:7070/"
PREFIX = "PREFIX : <http://ex.org/> "
VALUES = PREFIX + "SELECT ?s ?v WHERE { STREAM <obs> [NOW] { ?s :p ?v } }"
COUNT = PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM <obs> [RANGE 200ms] { ?s :p ?v } } GROUP BY ?s"
ROOMS = PREFIX + "SELECT ?v ?room WHERE { STREAM <obs> [NOW] { ?s :p ?v } ?s :in ?room }"
BOTH = PREFIX + "SELECT ?s ?v ?w WHERE { STREAM <obs> [RANGE 1s] { ?s :p ?v } STREAM <other> [RANGE 1s] { ?s :p ?w } }"
MADE = PREFIX + "CONSTRUCT { ?s :seen ?v } WHERE { STREAM <obs> [NOW] { ?s :p ?v } FILTER(?v > 500) }"
READER = PREFIX + "SELECT ?s (COUNT(*) AS ?n) WHERE { STREAM <made> [ALL] { ?s :seen ?v } } GROUP BY ?s"
PART = 60


def elements(part: int, size: int = PART) -> str:
    """Some elements, all of them after those of the part before."""
    kind = "http://www.w3.org/2001/XMLSchema#integer"
    some = range(part * size, (part + 1) * size)
    return "".join(f'<http://ex.org/s{i % 7}> <http://ex.org/p> "{i * i % 997}"^^<{kind}> {i * 10} .\n' for i in some)


def until(done: Callable[[], bool], service: Service | None = None) -> None:
    limit = monotonic() + PATIENCE
    while not done():
        assert service is None or not service.run.wait(0)
        assert monotonic() < limit
        sleep(0.01)


def push(service: Service, stream: str, text: str, kind: str = "application/n-triples") -> int:
    """Push elements, and wait until they are processed; how many there are."""
    before = service.run.tally.elements
    outcome = asyncio.run(service.reception(stream).push(text.encode(), kind))
    assert outcome.rejected == 0
    until(lambda: service.run.tally.elements == before + outcome.accepted, service)
    return outcome.accepted


def results(service: Service, name: str) -> list[dict[str, Any]]:
    """All results of a query, of which none is missing and none is there twice."""
    found = service.results.read(name if service.runs(name) else service.names.full(name), 0, 1 << 30)
    lines = [json.loads(line) for part in found.parts for line in part.lines]
    assert [each["id"] for each in lines] == [f"{name}/{number}" for number in range(len(lines))]
    return lines


class Twins:
    """A service on Spark and one in this process, to which the same happens."""

    def __init__(self, spark: Any, folder: Path, options: AppOptions, **pipeline: Any) -> None:
        self._spark, self._folder, self._options, self.pipeline = spark, folder, options, pipeline
        self.names: set[str] = set()
        self.start()

    def start(self, folder: str = "spark") -> None:
        made = [Pipeline(store=Store(), settings=LiveSettings(lasting=True), **self.pipeline) for _ in range(2)]
        on = on_spark(self._spark, self._options)
        self.on_spark = Service(made[0], self._folder / folder, make=on)
        self.here = Service(made[1], self._folder / "here")
        for each in (self.on_spark, self.here):
            each.start()

    def stop(self) -> None:
        self.on_spark.stop()
        self.here.stop()

    def each(self, do: Callable[[Service], Any]) -> Any:
        """The same with both; what both give."""
        one, other = do(self.on_spark), do(self.here)
        assert one == other
        return one

    def push(self, stream: str, part: int) -> None:
        self.each(lambda service: push(service, stream, elements(part)))

    def register(self, name: str, text: str) -> str:
        self.names.add(name)
        return str(self.each(lambda service: service.register(name, text)["state"]))

    def check(self) -> None:
        for name in self.names:
            assert results(self.on_spark, name) == results(self.here, name), name
            assert results(self.on_spark, name), name


@pytest.fixture
def stopped() -> Iterator[list[Any]]:
    """What is stopped in the end."""
    made: list[Any] = []
    yield made
    for each in made:
        each.stop()


def served(spark: Any, folder: Path, stopped: list[Any], **options: Any) -> Service:
    service = Service(Pipeline(store=Store()), folder, make=on_spark(spark, AppOptions(**options)))
    service.start()
    stopped.append(service)
    return service


@pytest.mark.parametrize("latency", ["normal", "low"])
def test_the_same_as_in_this_process(spark: Any, tmp_path: Path, stopped: list[Any], latency: str) -> None:
    twins = Twins(spark, tmp_path, AppOptions(latency=latency))
    stopped.append(twins)
    assert twins.register("values", VALUES) == "new"  # which declares the stream
    twins.register("made", MADE)
    twins.register("reader", READER)
    twins.push("obs", 0)
    twins.register("count", COUNT)
    twins.register("rooms", ROOMS)
    twins.push("obs", 1)
    twins.each(lambda service: service.update(PREFIX + "INSERT DATA { :s1 :in :a }"))
    twins.push("obs", 2)
    assert twins.register("values", VALUES.replace("?s ?v WHERE", "?v WHERE")) == "anew"
    twins.each(lambda service: service.declare("other", ServedStream(lateness="100ms")))
    twins.register("both", BOTH)
    twins.push("obs", 3)
    twins.push("other", 4)
    twins.each(lambda service: service.drop("count"))
    twins.each(lambda service: service.update("DELETE WHERE { ?s ?p ?o }"))
    twins.push("obs", 5)
    twins.check()
    before = {name: len(results(twins.here, name)) for name in twins.names}
    twins.stop()
    (tmp_path / "spark").rename(tmp_path / "moved")
    twins.start("moved")
    assert twins.each(lambda service: {*service.run.queries}) == {
        BASE + name for name in ("values", "made", "reader", "rooms", "both")
    }
    twins.register("count", COUNT)  # its results go on being numbered
    twins.push("other", 6)
    twins.push("obs", 7)
    twins.each(lambda service: service.run.heartbeat(10_000_000_000))
    twins.check()
    grown = {name for name in twins.names if len(results(twins.on_spark, name)) > before[name]}
    assert grown == {"values", "made", "reader", "count", "both"}
    assert twins.each(lambda service: service.run.tally.late) == 0
    assert twins.on_spark.stream("obs")["waiting"] == twins.here.stream("obs")["waiting"] == 0


def test_what_a_pipeline_declares(spark: Any, tmp_path: Path, stopped: list[Any]) -> None:
    """Its queries see its files from the beginning, elements are pushed to its streams, too, and its queries may go."""
    (tmp_path / "obs.nt").write_text(elements(0))
    streams = [parse_declaration(f"<{BASE}obs>={tmp_path}/obs.nt")]
    queries = [replace(prepare(text, base=BASE), name=name) for name, text in (("values", VALUES), ("all", COUNT))]
    twins = Twins(spark, tmp_path, AppOptions(), streams=streams, queries=queries)
    stopped.append(twins)
    twins.each(lambda service: until(lambda: service.run.tally.elements == PART, service))
    twins.push("obs", 1)
    twins.register("count", COUNT)
    twins.push("obs", 2)
    twins.names |= {"values", "all"}
    for service in (twins.on_spark, twins.here):
        with pytest.raises(CqelsError, match="is in the pipeline file"):
            service.drop("all")
    twins.check()
    twins.stop()
    twins.names.remove("all")
    twins.pipeline["queries"] = queries[:1]
    twins.start()
    assert twins.each(lambda service: {*service.run.queries}) == {"values", f"{BASE}count"}
    twins.push("obs", 3)
    twins.check()


def test_time_goes_on_for_a_stream_that_was_declared(spark: Any, tmp_path: Path, stopped: list[Any]) -> None:
    service = served(spark, tmp_path, stopped, latency="low", tick=1_000_000_000)
    service.register("made", MADE)  # a stream of the engine, but none that has a number in commands
    service.declare("now", ServedStream(clock="arrival"))
    text = PREFIX + "SELECT ?s WHERE { STREAM <now> [RANGE 1s] { ?s :p ?v } }"
    service.register("seen", text, emit="changes")
    push(service, "now", "<http://ex.org/s> <http://ex.org/p> 1 .", "text/turtle")
    until(lambda: [each["sign"] for each in results(service, "seen")] == ["+", "-"], service)


def test_requests_that_are_refused_change_nothing(spark: Any, tmp_path: Path, stopped: list[Any]) -> None:
    service = served(spark, tmp_path, stopped, instances=2, placement="rotation")
    service.register("values", VALUES)
    run = service.run
    state = (tmp_path / "served.json").read_bytes()
    other = prepare("SELECT ?s WHERE { STREAM <http://ex.org/none> [NOW] { ?s ?p ?o } }", name=f"{BASE}values")
    for refused in (lambda: run.register(other), lambda: run.replace(other), lambda: run.drop("none")):
        with pytest.raises(CqelsError, match=r"there is a query|is not declared|there is no query"):
            refused()
    with pytest.raises(CqelsError, match="lateness"):
        run.declare(PushedStream(settings=StreamSettings(f"{BASE}obs", lateness=7), lift=BLOCKS))
    with pytest.raises(CqelsError, match="nothing is dropped that waits"):
        service.declare("more", ServedStream(overflow="drop-oldest"))
    with pytest.raises(CqelsError, match="nothing can be pushed to stream"):
        run.push("http://ex.org/none", [])
    with pytest.raises(CqelsError, match="there is no stream"):
        run.heartbeat(1, "http://ex.org/none")
    assert (tmp_path / "served.json").read_bytes() == state
    service.register("made", MADE)
    service.register("other", COUNT)
    with pytest.raises(CqelsError, match="already"):
        run.register(replace(prepare(VALUES, base=BASE), name=f"{BASE}values"))
    push(service, "obs", elements(0))
    assert len(results(service, "values")) == PART
    assert "Stream <http://localhost:7070/obs> [NOW] { ?s :p ?v }" in service.explain("values")
    assert service.status()["elements"] == PART
    assert service.checkpoint()["batch"] >= 0
    measures = service.run.measures
    assert measures.streams[f"{BASE}obs"].elements == measures.queries[f"{BASE}values"].elements == PART
    assert sum(measures.push.counts) == sum(measures.queries[f"{BASE}values"].latency.counts) == 1
    assert all(measures.queries[f"{BASE}{name}"].bytes > 0 for name in ("values", "made", "other"))
    with pytest.raises(CqelsError, match="is in use by"):
        SparkBackend(spark, Pipeline(store=Store()), tmp_path, [], []).start()
    service.stop()
    app = App(spark, checkpoint=tmp_path)
    app.files(f"<{BASE}obs>={tmp_path}/none.nt")
    app.add(prepare(VALUES, name="values", base=BASE))
    with pytest.raises(CqelsError, match="is of a service"):
        app.run(Memory())
    with pytest.raises(CqelsError, match="with normal latency"):
        served(spark, tmp_path, [], latency="low")


def test_a_query_over_its_budget_is_stopped_and_may_be_replaced(spark: Any, tmp_path: Path, stopped: list[Any]) -> None:
    run = SparkBackend(spark, Pipeline(store=Store()), tmp_path, [], [memory := Memory()])
    stopped.append(run)
    run.start()
    run.declare(PushedStream(settings=StreamSettings(f"{BASE}obs"), lift=BLOCKS))
    greedy = prepare(PREFIX + "SELECT ?s WHERE { STREAM <obs> [ALL] { ?s :p ?v } }", name="greedy", base=BASE)
    run.register(greedy, Budget.of("1KB", None))
    run.push(f"{BASE}obs", [Message(block(elements(0, 5000)), 1)])
    until(lambda: "greedy" in run.stopped)
    run.replace(replace(prepare(VALUES, base=BASE), name="greedy"))
    assert run.stopped == {}
    before = len(memory.results("greedy"))
    run.push(f"{BASE}obs", [Message(block(elements(100)), 1)])
    until(lambda: len(memory.results("greedy")) == before + PART)


def block(text: str) -> bytes:
    """A block of elements."""
    import pyarrow

    from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
    from cqels.pipeline.lift.row_lifts import Lifting, ntriples

    rows = pyarrow.RecordBatch.from_pydict({"value": [text.encode()]})
    lifting = Lifting(f"{BASE}obs", 0, ntriples(), (PushedPatterns(frozenset({ANYTHING})),))
    (made,) = lifting.blocks(iter([rows]))
    (row,) = made.to_pylist()
    return bytes(row["block"])


def test_a_change_that_was_cut_off_is_made_by_the_next_run(spark: Any, tmp_path: Path, stopped: list[Any]) -> None:
    """The process ended when the change was in the file of what there is, and the commands were not written."""
    service = served(spark, tmp_path, stopped, latency="low")
    service.register("values", VALUES)
    service.stop()
    path = tmp_path / "served.json"
    state = ServedState.of(path)
    assert state is not None
    change = state.last + 5  # other updates may have taken numbers
    state.drop(f"{BASE}values", change)
    query = replace(prepare(COUNT, base=BASE), name=f"{BASE}values")
    state.register(f"{BASE}values", AddedQuery.of(query, None, change), 0)
    state.last = change
    state.keep(path)
    again = served(spark, tmp_path, stopped, latency="low")
    push(again, "obs", elements(0))
    assert {*results(again, "values")[0]["bindings"]} == {"s", "n"}
    again.stop()
    (folder,) = pushed_folder(tmp_path).iterdir()
    with Inbox(folder) as inbox:
        assert inbox.end > 0
    assert Updates(tmp_path / "updates").has_commands(change)


def test_an_endpoint_that_a_new_query_asks(
    spark: Any, tmp_path: Path, stopped: list[Any], endpoint: EndpointServer
) -> None:
    store = Store()
    store.services.permissions = Permissions.of(["127.0.0.1"], None)
    service = Service(Pipeline(store=store), tmp_path, make=on_spark(spark, AppOptions(latency="low")))
    service.start()
    stopped.append(service)
    text = asking(endpoint.url()).replace("STREAM :obs", "STREAM <obs>").replace(":temp", ":p")
    service.register("rooms", text)
    push(service, "obs", elements(0))
    assert {each["bindings"]["r"]["value"] for each in results(service, "rooms")} == {"hall"}
    assert len(endpoint.headers) == 1


def test_results_that_are_gone_are_not_rebuilt(spark: Any, tmp_path: Path) -> None:
    def run(lost: Any) -> SparkBackend:
        settings = LiveSettings(lost=lost)
        out = Files(tmp_path / "out")
        queries = [prepare(VALUES, name="values", base=BASE)]
        streams = [parse_declaration(f"<{BASE}obs>={tmp_path}/obs.nt")]
        given = Pipeline(store=Store(), streams=streams, queries=queries, settings=settings)
        return SparkBackend(spark, given, tmp_path / "state", [], [out], options=AppOptions(latency="low"))

    (tmp_path / "obs.nt").write_text(elements(0))
    first = run("stop")
    first.start()
    until(lambda: first.tally.results == PART)
    first.stop()
    (path,) = (tmp_path / "out").glob("values*")
    path.unlink()
    for choice, message in (("stop", "--lost"), ("rebuild", "what was pushed is not kept")):
        with pytest.raises(CqelsError, match=message):
            run(choice).start()
    again = run("continue")
    again.start()
    again.stop()


def test_from_the_command_line(tmp_path: Path) -> None:
    arguments = ["--engine", "spark", "--master", "local[1]", "--latency", "low"]
    with serve_process(tmp_path, *arguments) as process, httpx.Client(base_url=process.url, timeout=60) as http:
        assert http.put("/queries/values", content=VALUES).status_code == 201
        assert http.post("/streams/obs", content=elements(0)).json() == {"accepted": PART, "rejected": 0}
        until(lambda: http.get("/queries/values").json()["results"] == PART)
        assert http.delete("/queries/values").status_code == 204
    assert "engine    on Spark at local[1]" in process.said()


def test_offsets_and_tasks_of_inboxes(tmp_path: Path) -> None:
    with Inbox(tmp_path / "3") as first, Inbox(tmp_path / "12") as second:
        reader = PushedReader(tmp_path, 2, 4 << 20, 3)
        start = reader.initialOffset()
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {}
        for number in range(100):
            first.append([Message(b"x" * 30_000, number)] * 2)
        second.append([Message(b"y" * 100, 1)])
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert end["12"] == second.end
        assert 4 << 20 <= end["3"] < (4 << 20) + 61_000
        parts = reader.partitions(start, end)
        assert len(parts) == 3
        ranges = sorted(each for part in parts for each in part.ranges)
        assert (12, 0, second.end) in ranges
        rest = [each for each in ranges if each[0] == 3]
        assert [rest[0][1], *(each[2] for each in rest)] == [*(each[1] for each in rest), end["3"]]
        rows = [row for batch in reader.read(parts[0]) for row in batch.to_pylist()]
        assert {row["instance"] for row in rows} == {0, 1}
        mine = [(row["position"], row["number"]) for row in rows if (row["instance"], row["stream"]) == (0, 3)]
        assert mine == sorted(mine)
        assert {number for _, number in mine} == {0, 1}
        assert max(mine)[0] == next(end for number, _, end in parts[0].ranges if number == 3)
        then = reader.latestOffset(end, reader.getDefaultReadLimit())
        assert then == {"3": first.end, "12": second.end}
        assert len(reader.partitions(then, then)) == 0


def test_room_in_an_inbox_when_a_micro_batch_is_done(tmp_path: Path) -> None:
    done: set[int] = set()
    inboxes = PushedInboxes(tmp_path, done.__contains__)
    full, other = (inboxes.open(number, f"s{number}", 100_000, "refuse") for number in (0, 1))
    full.append([Message(b"x" * 90_000, 1)])
    with pytest.raises(InboxFull):
        full.append([Message(b"x" * 90_000, 1)])
    other.append([Message(b"x" * 90_000, 1)])  # each has its own limit
    inboxes.note_read(7, {0: full.end})
    assert inboxes.has_more  # of the other
    sleep(0.1)
    assert full.uncommitted > 0
    done.add(7)
    until(lambda: full.uncommitted == 0)
    full.append([Message(b"x" * 90_000, 1)])
    inboxes.note_read(8, {0: full.end})
    done.add(8)
    until(lambda: full.uncommitted == 0)
    inboxes.close()
    again = PushedInboxes(tmp_path, done.__contains__)
    assert again.open(0, "s0", 100_000, "refuse").uncommitted == 0
    assert again.open(1, "s1", 100_000, "refuse").uncommitted > 0
    again.close()
