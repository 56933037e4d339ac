"""Results arrive in every sink, once, in the bytes of the plain writers; no Spark is started here."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode, parse
from rdflib import Dataset

pytest.importorskip("pyarrow", reason="pip install 'cqels[spark]'")

import pyarrow
import pyarrow.parquet

from cqels.engine.engine import Engine
from cqels.engine.output.arrow_columns import table_of, terms_of
from cqels.ingest import Rejected, parse_declaration, read_stream
from cqels.model import durable_files
from cqels.model.errors import CqelsError
from cqels.model.terms import XSD, XSD_DATE_TIME, XSD_INTEGER
from cqels.model.time import MILLISECOND, SECOND
from cqels.pipeline.sink import exactly_once_file
from cqels.pipeline.sink.part_sink import PartFolder
from cqels.pipeline.sink.reject_files import SHOWN, Rejects
from cqels.pipeline.sink.result_batch import Sent, schema_of
from cqels.pipeline.sink.text_formats import body, head, json_lines
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.results import Result, writer_for
from cqels.spark import sinks
from cqels.spark.driver.batch_results import rejected_in
from cqels.spark.sinks import Callback, Console, Files, Kafka, KafkaTopic, Memory, MqttTopic, Webhook, sink_of

from .sending import SELECT, WHERE, batch, sent_of

ASK = prepare(f"ASK {WHERE}", name="asked")
CONSTRUCT = prepare(f"CONSTRUCT {{ ?room <x:u> ?n . ?n <x:v> ?room }} WHERE {WHERE}", name="built")
QUERIES = {query.form: query for query in (SELECT, ASK, CONSTRUCT)}

iris = st.sampled_from([NamedNode("http://ex.org/a"), NamedNode("urn:é#b"), NamedNode("http://ex.org/?q=1&r='")])
blanks = st.sampled_from([BlankNode("b"), BlankNode("f0_1.x")])
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(['a "b", c\r\n', "\u2028", "<x>", "\\"])
typed = st.sampled_from(
    [
        Literal("31", datatype=XSD_INTEGER),
        Literal("2.50", datatype=NamedNode(XSD + "decimal")),
        Literal("true", datatype=NamedNode(XSD + "boolean")),
        Literal("2026-01-31T12:00:00Z", datatype=XSD_DATE_TIME),
    ]
)
literals = (
    typed
    | st.builds(Literal, texts)
    | st.builds(lambda text: Literal(text, language="en-gb"), texts)
    | st.builds(lambda text, datatype: Literal(text, datatype=datatype), texts, iris)
)
terms = iris | blanks | literals
times = st.sampled_from([0, 4 * SECOND, 1500 * MILLISECOND, -7, 1356998400 * SECOND + 5])
triples = st.tuples(iris | blanks, iris, terms)


def results_of(form: str) -> st.SearchStrategy[list[Result]]:
    ticks, signs = st.integers(0, 10**6), st.sampled_from(["", "+", "-"])
    match form:
        case "ask":
            one = st.builds(
                lambda at, tick, yes: Result("asked", at, tick, "", (), boolean=yes), times, ticks, st.booleans()
            )
        case "construct":
            graphs = st.lists(triples, min_size=1, max_size=3).map(tuple)
            one = st.builds(lambda *given: Result("built", *given[:3], (), given[3]), times, ticks, signs, graphs)
        case _:
            rows = st.tuples(st.none() | terms, st.none() | terms)
            one = st.builds(
                lambda *given: Result("hot", *given, variables=SELECT.selected), times, ticks, signs, rows
            ) | st.builds(
                lambda at, tick: Result("hot", at, tick, "", (), empty=True, variables=SELECT.selected), times, ticks
            )
    return st.lists(one, max_size=8)


some_results = st.sampled_from(list(QUERIES)).flatmap(lambda form: st.tuples(st.just(QUERIES[form]), results_of(form)))


def written(query: Query, results: Sequence[Result], format: str) -> bytes:
    """What the plain writer makes of them."""
    stream = io.StringIO(newline="")
    writer = writer_for(format, stream, ("boolean",) if query.form == "ask" else query.variables, dict(query.prefixes))
    for result in results:
        writer.write(result)
    writer.close()
    return stream.getvalue().encode()


# ---------------------------------------------------------------- columns


@settings(max_examples=60)
@given(some_results, st.integers(1, 4))
def test_the_bytes_are_those_of_the_writers(given: tuple[Query, list[Result]], per_batch: int) -> None:
    """head + body(a) + body(b) = the writer's text of a and b"""
    query, results = given
    for format in ("csv", "jsonl", "text"):
        data, width = head(query, format), 0
        for part in (results[:3], results[3:]):
            more, width = body(sent_of(query, part, per_batch=per_batch), format, width)
            data += more
        assert data == written(query, results, format)


@given(results_of("construct"))
def test_constructed_elements_are_timed_triples_and_graphs(results: list[Result]) -> None:
    came = [result._replace(sign="") for result in results]
    assert body(sent_of(CONSTRUCT, came), "ntriples")[0] == written(CONSTRUCT, came, "ntriples")
    for format in ("nquads", "trig"):
        parts = body(sent_of(CONSTRUCT, came[:3]), format)[0], body(sent_of(CONSTRUCT, came[3:], 3), format)[0]
        assert b"".join(parts) == written(CONSTRUCT, came, format)


@pytest.mark.parametrize("format", ["nquads", "trig"])
@given(results=results_of("construct"))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_graphs_are_read_back_as_the_same_stream(tmp_path: Path, format: str, results: list[Result]) -> None:
    """Also by other tools; blank nodes keep what they are joined by, not their labels."""
    came = [result._replace(sign="") for result in results]
    came.sort(key=lambda result: result.nanoseconds)
    path = tmp_path / f"out.{'nq' if format == 'nquads' else format}"
    path.write_bytes(body(sent_of(CONSTRUCT, came), format)[0])
    rejected: list[Rejected] = []
    read = list(read_stream(parse_declaration(f"<x:s>={path}"), rejected.append)) if came else []
    assert not rejected
    assert [each.time for each in read] == [result.nanoseconds for result in came]
    for element, result in zip(read, came, strict=True):
        assert without_labels(element.triples) == without_labels(result.triples)
    for tool in (as_pyoxigraph_reads, as_rdflib_reads):
        assert len(tool(path)) == len(came)


def without_labels(triples: Any) -> set[tuple[str, ...]]:
    return {tuple("_:" if isinstance(term, BlankNode) else str(term) for term in triple) for triple in triples}


def as_pyoxigraph_reads(path: Path) -> set[str]:
    return {str(quad.graph_name) for quad in parse(path=path)} - {"DEFAULT"}


def as_rdflib_reads(path: Path) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = Dataset()
        read.parse(path, format="nquads" if path.suffix == ".nq" else "trig")
        return {str(graph.identifier) for graph in read.graphs()} - {"urn:x-rdflib:default"}


@settings(max_examples=60)
@given(some_results, st.integers(1, 4))
def test_results_and_tables_are_those_of_the_engine(given: tuple[Query, list[Result]], per_batch: int) -> None:
    query, results = given
    sent = sent_of(query, results, per_batch=per_batch)
    assert list(sent.results()) == results
    assert sent.table().equals(table_of(query, results))
    assert len(json_lines(sent)) == len(sent) == len(results)


@pytest.mark.parametrize("query", [*QUERIES.values(), replace(SELECT, emit="snapshot")])
def test_what_an_engine_sends_is_understood(query: Query) -> None:
    sent = []
    for take in (lambda standing: standing.running.take(), lambda standing: terms_of(standing.running)):
        with Engine() as engine:
            engine.stream("x:s")
            standing = engine.register(query)
            for time in range(6):
                engine.push("x:s", f'<x:r{time % 2}> <x:t> {time} , "{time}\\n"@en .', time=f"{time}s")
            engine.heartbeat("9s")
            sent.append(take(standing))
    results, batch = sent
    assert len(results) > 1
    assert list(Sent(query, [batch]).results()) == results
    assert Sent(query, [batch]).table().equals(table_of(query, results))


def test_payloads_are_streams_of_arrow() -> None:
    results = [Result("hot", n, n, "+", (Literal(str(n)), None), variables=SELECT.selected) for n in range(5)]
    payloads = []
    for part in (results[:2], results[2:]):
        stream = io.BytesIO()
        with pyarrow.ipc.new_stream(stream, sent_of(SELECT, part).columns.schema) as writer:
            writer.write_table(sent_of(SELECT, part).columns)
        payloads.append(stream.getvalue())
    read = Sent.read(SELECT, 7, payloads)
    assert (list(read.results()), read.number) == (results, 7)
    assert list(Sent.read(SELECT, 7, []).results()) == []


# ---------------------------------------------------------------- batches


def all_of(numbers: Sequence[int], format: str = "csv") -> bytes:
    return written(
        SELECT, [result for number in numbers for each in batch(number).values() for result in each.results()], format
    )


BATCHES = range(8)


def go_on(place: Path, format: str, numbers: Sequence[int], **options: Any) -> None:
    """A process that takes these batches."""
    sink = Files(place, format, **options)
    sink.open([SELECT], run="r")
    for number in numbers:
        sink.write(number, batch(number))
    sink.close()


@pytest.mark.parametrize("format", ["csv", "jsonl", "text"])
def test_a_file_grows_over_restarts(tmp_path: Path, format: str) -> None:
    for numbers in ([0, 1], [1, 2, 3], [3], [2, 3, 4, 5], [6, 7]):
        go_on(tmp_path / "results", format, numbers)
    (path,) = [path for path in (tmp_path / "results").iterdir() if not path.name.startswith(".")]
    assert path.read_bytes() == all_of(BATCHES, format)


class Crash(BaseException):
    """The process ends here."""


class Failing:
    """The module `os`, which ends the process at one of its calls: before it, after it, or in the midst of a write."""

    def __init__(self, at: int, how: str) -> None:
        self.left, self.how = at, how

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._failing(name, real) if name in ("write", "fsync", "replace", "ftruncate", "lseek") else real

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self.left -= 1
            if self.left:
                return real(*given)
            if self.how == "after":
                real(*given)
            elif self.how == "midst" and name == "write":
                real(given[0], given[1][: len(given[1]) // 2])
            raise Crash

        return call


@pytest.mark.parametrize("how", ["before", "after", "midst"])
@pytest.mark.parametrize("format", ["csv", "text"])
def test_a_crash_at_any_step_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, how: str
) -> None:
    """The file of a run that crashed at step n = the file of a run that did not, for all n."""
    monkeypatch.setattr(os, "fsync", lambda file: None)  # it is slow, and only power cuts need it
    path = tmp_path / f"out.{'txt' if format == 'text' else format}"
    at, steps = 0, 0
    while True:
        at += 1
        for each in tmp_path.iterdir():
            each.unlink()
        committed = -1
        crashed = False
        failing = Failing(at, how)
        while committed < BATCHES[-1]:
            with monkeypatch.context() as patch:
                if not crashed:
                    patch.setattr(exactly_once_file, "os", failing)
                    patch.setattr(durable_files, "os", failing)
                try:
                    sink = Files(path, format)
                    sink.open([SELECT], run="r")
                    for number in range(committed + 1, BATCHES[-1] + 1):
                        sink.write(number, batch(number))
                        committed = number
                    sink.close()
                except Crash:
                    crashed = True
        assert path.read_bytes() == all_of(BATCHES, format), f"a crash {how} step {at}"
        if not crashed:
            break
        steps += 1
    assert steps > 30


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from cqels.spark.sinks import Files
from tests.spark.sending import SELECT, batch
folder = Path(sys.argv[1])
commits = folder / "commits"
done = int(commits.read_text()) if commits.exists() else -1
sink = Files(folder / "out.csv")
sink.open([SELECT], run="r")
for number in range(done + 1, 120):
    sink.write(number, batch(number))
    new = commits.with_suffix(".new")
    new.write_text(str(number))
    new.rename(commits)
"""


def test_a_killed_process_changes_nothing(tmp_path: Path) -> None:
    commits = tmp_path / "commits"
    for kill in (1, 40, 80, None):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), str(Path(__file__).parents[2])])
        try:
            while kill is not None and process.poll() is None:
                if commits.exists() and int(commits.read_text()) >= kill:
                    break
                time.sleep(0.0005)
            if kill is not None:
                os.kill(process.pid, signal.SIGKILL)
            assert process.wait(60) == (0 if kill is None else -signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
    assert (tmp_path / "out.csv").read_bytes() == all_of(range(120))


def test_files_of_another_run_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    go_on(path, "csv", [0, 1])
    with pytest.raises(CqelsError, match=r"out.csv has the results of another run"):
        Files(path).open([SELECT], run="s")
    path.unlink()  # as the hint has it; what is recorded beside it is hidden
    Files(path).open([SELECT], run="s")
    (tmp_path / "other.csv").write_text("mine")
    with pytest.raises(CqelsError, match="another run"):
        Files(tmp_path / "other.csv").open([SELECT])
    assert (tmp_path / "other.csv").read_text() == "mine"
    sink = Files(path, replace=True)
    sink.open([SELECT], run="s")
    sink.write(1, batch(1))
    sink.close()
    assert path.read_bytes() == all_of([1])


def test_without_a_run_the_numbers_of_batches_tell(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"

    def take(*numbers: int, **options: Any) -> None:
        sink = Files(path, **options)
        sink.open([SELECT])
        for number in numbers:
            sink.write(number, batch(number))
        sink.close()

    take(0, 1)
    take(1, 3)
    assert path.read_bytes() == all_of([0, 1, 3])
    with pytest.raises(CqelsError, match="has the results of batch 3, and this is batch 0"):
        take(0)
    take(0, replace=True)
    assert path.read_bytes() == all_of([0])


def test_files_that_no_run_goes_on_with_have_nothing_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "some.results"
    path.write_text("of another run")
    for _ in range(2):
        sink = Files(path, "csv", single=True, passing=True)
        sink.open([SELECT], run="r")
        for number in (0, 1, 1, 2, 3):
            sink.write(number, batch(number))
        sink.close()
        assert path.read_bytes() == all_of([0, 1, 2, 3])
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_someone_else_changed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    go_on(path, "csv", [0, 1])
    path.write_bytes(b"short")
    with pytest.raises(CqelsError, match=r"has 5 bytes, where \d+ were written"):
        go_on(path, "csv", [3])


def test_names_of_files(tmp_path: Path) -> None:
    named = [replace(SELECT, name=name) for name in ("a b", "http://ex.org/q", "..")]
    sink = Files(tmp_path)
    sink.open(named)
    sink.close()
    files = sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".csv")
    assert files == ["%2E..csv", "a b.csv", "http%3A%2F%2Fex.org%2Fq.csv"]
    assert (tmp_path / "a b.csv").read_bytes() == b"time,tick,sign,room,n\r\n"


def test_what_cannot_be_written_is_refused_before_it_comes(tmp_path: Path) -> None:
    with pytest.raises(CqelsError, match="one file, and there are 2 queries"):
        Files(tmp_path / "out.csv").open([SELECT, ASK])
    with pytest.raises(CqelsError, match="CONSTRUCT only"):
        Files(tmp_path, "ntriples").open([SELECT])
    with pytest.raises(CqelsError, match="withdrawn"):
        Files(tmp_path, "nquads").open([replace(CONSTRUCT, emit="changes")])
    with pytest.raises(CqelsError, match="no format 'pdf'"):
        Files(tmp_path, "pdf")
    (tmp_path / "file").write_text("")
    with pytest.raises(CqelsError, match="cannot be written"):
        Files(tmp_path / "file" / "out.csv").open([SELECT])


# ---------------------------------------------------------------- parquet


def test_parts_have_the_same_columns(tmp_path: Path) -> None:
    place = tmp_path / "results"
    numbers = Literal("31", datatype=XSD_INTEGER), Literal("1.5", datatype=NamedNode(XSD + "double"))
    sink = Files(place, "parquet", types={"n": "double"})
    sink.open([SELECT], run="r")
    for number, value in enumerate((*numbers, None)):
        for _ in range(2):  # a batch may come again
            sink.write(number, {"hot": sent_of(SELECT, [Result("hot", SECOND, 1, "+", (NamedNode("x:k"), value))])})
    sink.write(3, {"hot": sent_of(SELECT, [Result("hot", SECOND, 2, "", (), empty=True)])})
    sink.close()
    table = pyarrow.parquet.read_table(place / "hot")
    assert table["n"].to_pylist() == [31.0, 1.5, None, None]
    assert table["room"].to_pylist() == ["x:k", "x:k", "x:k", None]
    assert table["sign"].to_pylist() == ["+", "+", "+", "empty"]
    assert table.schema.field("time").type == pyarrow.timestamp("ns")
    assert sorted(path.name for path in (place / "hot").glob("p*"))[0] == "part-000000000.parquet"
    with pytest.raises(CqelsError, match="another run"):
        Files(place, "parquet").open([SELECT], run="s")
    Files(place, "parquet", replace=True).open([SELECT], run="s")
    assert list((place / "hot").glob("p*")) == []


@pytest.mark.parametrize(
    ("kind", "term", "value"),
    [
        ("string", Literal("31", datatype=XSD_INTEGER), "31"),
        ("term", NamedNode("x:k"), "<x:k>"),
        ("integer", Literal("31", datatype=XSD_INTEGER), 31),
        ("boolean", Literal("true", datatype=NamedNode(XSD + "boolean")), True),
    ],
)
def test_types_of_columns(tmp_path: Path, kind: str, term: Any, value: object) -> None:
    sink = Files(tmp_path, "parquet", types={"n": kind}, unit="us")
    sink.open([SELECT])
    sink.write(0, {"hot": sent_of(SELECT, [Result("hot", 1001, 1, "+", (None, term))])})
    table = pyarrow.parquet.read_table(tmp_path / "hot")
    assert table["n"].to_pylist() == [value]
    assert table.schema.field("time").type == pyarrow.timestamp("us")


def test_a_value_that_is_not_of_its_type_is_told(tmp_path: Path) -> None:
    sink = Files(tmp_path, "parquet", types={"n": "double"})
    sink.open([SELECT])
    with pytest.raises(CqelsError, match='n has the value "x", which is no double'):
        sink.write(0, {"hot": sent_of(SELECT, [Result("hot", 0, 1, "+", (None, Literal("x")))])})
    with pytest.raises(CqelsError, match="cannot be of type 'money'"):
        Files(tmp_path, "parquet", types={"n": "money"}).open([SELECT])


# ---------------------------------------------------------------- others


@pytest.mark.parametrize("exact", [True, False])
def test_the_console_has_the_order_of_time(exact: bool) -> None:
    """With `exact`, of all micro-batches: what has the latest time waits."""
    first, second = replace(SELECT, name="one"), replace(SELECT, name="two")
    values = (Literal("a"), Literal("b"))

    def sent(query: Query, *times: int) -> dict[str, Any]:
        results = [Result(query.name or "", time * SECOND, 1, "", values) for time in times]
        return {query.name or "": sent_of(query, results)}

    stream = io.StringIO()
    sink = Console(stream=stream, exact=exact)
    sink.open([first, second])
    sink.write(0, sent(second, 1, 2) | sent(first, 2))
    sink.write(1, sent(second, 3) | sent(first, 2, 4))
    sink.close()
    shown = [" ".join(line.split()[:2]) for line in stream.getvalue().splitlines()]
    if exact:
        assert shown == ["two 1s", "one 2s", "one 2s", "two 2s", "two 3s", "one 4s"]
    else:
        assert shown == ["two 1s", "one 2s", "two 2s", "one 2s", "two 3s", "one 4s"]


def test_the_console_names_queries_if_there_are_several() -> None:
    answer = Result("asked", SECOND, 1, "", (), boolean=True)
    one = io.StringIO()
    sink = Console(stream=one)
    sink.open([SELECT])
    sink.write(0, batch(0))
    sink.write(0, batch(0))
    assert one.getvalue().splitlines()[0] == '1ms  + :0 "0"'
    assert len(one.getvalue().splitlines()) == 4
    two = io.StringIO()
    sink = Console(stream=two)
    sink.open([SELECT, ASK])
    sink.write(0, batch(0) | {"asked": sent_of(ASK, [answer])})
    sink.close()
    assert two.getvalue().splitlines()[-1] == "asked  1s  true"


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_results_that_are_gone_are_missed(tmp_path: Path, format: str) -> None:
    """Also where the folder is gone as a whole, which only the checkpoint can know."""
    query = prepare("SELECT ?s { STREAM <http://ex.org/a> [NOW] { ?s ?p ?o } }", name="q")
    folder = tmp_path / "out"
    sink = sinks.Files(folder, format, single=False)

    def gone(*, run: str = "1", done: int = 1) -> list[str]:
        opened = [f"{path.absolute()}" for path in sink.places([query])]
        return sinks.Files(folder, format, single=False).lost([query], run=run, opened=opened, done=done)

    sink.open([query], run="1")
    for number in range(3):
        sink.write(number, {"q": some(query, number)})
    sink.close()
    assert gone() == []
    assert gone(run="2") == []  # of another run: that is refused when it is opened
    shutil.copytree(folder, tmp_path / "good")
    if format == "csv":
        path = folder / "q.csv"
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[:-1])
        assert gone() == []  # the last micro-batch is not done: it comes again
        assert gone(done=2) == [f"{path} has {size - 1} bytes, where {size} were written"]
        path.write_bytes(path.read_bytes()[:9])
        assert "has 9 bytes, where" in gone()[0]
        path.unlink()
        assert gone() == [f"{path} is gone, which had {size} bytes"]
    else:
        (folder / "q" / "part-000000001.parquet").unlink()
        assert gone() == [f"{folder / 'q'} has 2 parts, where 3 were written"]
    shutil.rmtree(folder)
    assert gone() == [f"{sink.places([query])[0]} is gone, which this run has written"]
    shutil.copytree(tmp_path / "good", folder)
    assert gone() == []


def test_a_file_that_is_gone_goes_on_with_what_comes(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    file = exactly_once_file.GrowingFile(path, b"head\n", run="1")
    for number in range(3):
        file.append(number, lambda before: (b"%d\n" % before, before + 1))
    file.close()
    path.unlink()
    file = exactly_once_file.GrowingFile(path, b"head\n", run="1", anew=True)
    for number in (2, 3):  # the last one may come again, and is written again
        file.append(number, lambda before: (b"%d\n" % before, before + 1))
    file.close()
    assert path.read_bytes() == b"head\n2\n3\n"
    assert exactly_once_file.lost(path, "1", opened=True, done=3) is None


def some(query: Query, number: int) -> Sent:
    row = {"time": [number], "tick": [number], "sign": [""], "empty": [False], "?s": [f"<http://ex.org/{number}>"]}
    return Sent(query, pyarrow.table(row, schema=schema_of(query)).to_batches(), number)


def test_memory_keeps_everything_once() -> None:
    memory = Memory()
    memory.open([SELECT, ASK])
    for number in (0, 1, 1, 3):
        memory.write(number, batch(number))
    expected = [result for number in (0, 1, 3) for result in batch(number)["hot"].results()]
    assert memory.results("hot") == expected
    assert memory.arrow("hot").equals(table_of(SELECT, expected))
    assert list(memory.pandas("hot").columns) == ["time", "tick", "sign", "room", "n"]
    assert memory.results("asked") == []
    with pytest.raises(CqelsError, match="no query 'cold'"):
        memory.results("cold")
    with pytest.raises(CqelsError, match="there are 2 queries"):
        memory.arrow()


def test_a_function_is_called() -> None:
    results: list[Result] = []
    sink = Callback(results.append)
    sink.write(0, batch(0))
    sink.write(0, batch(0))
    assert results == list(batch(0)["hot"].results())
    tables: list[tuple[str, int]] = []
    Callback(lambda name, table: tables.append((name, table.num_rows)), tables=True).write(0, batch(0))
    assert tables == [("hot", 4)]


class Session:
    """As much of a Spark session as writes to Kafka."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def createDataFrame(self, table: Any) -> Session:  # noqa: N802
        self.told["rows"] = table.to_pylist()
        return self

    @property
    def write(self) -> Session:
        return self

    def format(self, name: str) -> Session:
        self.told["format"] = name
        return self

    def options(self, **options: str) -> Session:
        self.told |= options
        return self

    def save(self) -> None:
        self.told["saved"] = True


def test_records_of_kafka_have_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(sinks, "_session", lambda: session)
    sink = Kafka("one:9092,two:9092", "hot")
    sink.open([SELECT])
    sink.write(2, {})
    assert session.told == {}
    sink.write(1, batch(1))
    told = session.told
    assert [row["key"] for row in told["rows"]] == ["hot/10", "hot/11", "hot/12", "hot/13"]
    assert json.loads(told["rows"][0]["value"])["bindings"]["n"] == {"type": "literal", "value": "0"}
    assert (told["kafka.bootstrap.servers"], told["topic"]) == ("one:9092,two:9092", "hot")
    assert told["saved"]


def test_texts_that_name_sinks(tmp_path: Path) -> None:
    made = {
        "console": Console,
        "-": Console,
        "memory": Memory,
        "results/": Files,
        "out.csv": Files,
        "results/?parts": PartFolder,
        "kafka:a:1,b:2/t": KafkaTopic,
        "kafka://a/t?exactly-once=false": KafkaTopic,
        "mqtt://a/t/{query}/{?room}?qos=2": MqttTopic,
        "https://ex.org/in?key=1#limit=5s": Webhook,
    }
    assert {text: type(sink_of(text)) for text in made} == made
    assert isinstance(sink_of("plain", format="jsonl"), Files)
    assert isinstance(sink_of(print), Callback)
    assert sink_of("kafka:a:1,b/t").place == "kafka://a:1,b:9092/t"
    assert sink_of("mqtts://me:secret@a/x/{?room}").place == "mqtts://a:8883/x/{?room}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "nowhere"),
        ("out.pdf", "tells no format"),
        ("kafak://a/t", "did you mean kafka"),
        ("kafka:a", "does not name a topic"),
        ("kafka://me:secret@a/t", "no user in its address"),
        ("kafka://a/t?exactly_once=no", "did you mean exactly-once"),
        ("kafka://a/t?ordered=perhaps", "true or false"),
        ("mqtt://a", "does not name a topic"),
        ("mqtt://a/x/#", "cannot be published"),
        ("mqtt://a/x?qos=3", "at most 2"),
        ("mqtt://a/x?password-env=NOT_THERE_AT_ALL", "no environment variable NOT_THERE_AT_ALL"),
        ("http:///path", "not the URL of a webhook"),
        ("http://a/#undelivered=maybe", "one of wait, stop, drop"),
        ("http://a/#timeout=soon", "a duration"),
        ("out.csv?parts", "is a file, and has no parts"),
        ("results/?part", "did you mean parts"),
    ],
)
def test_texts_that_name_no_sink(text: str, problem: str) -> None:
    with pytest.raises(CqelsError) as found:
        sink_of(text)
    assert problem in str(found.value)
    assert "secret" not in str(found.value)


# ---------------------------------------------------------------- rejects


def rejected(*numbers: int) -> list[Rejected]:
    return [Rejected("x:s", f"a.nt:{number}", "no time", "text") for number in numbers]


def test_rejects_go_to_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "rejects"
    for batches in ([0, 1], [1, 2]):
        sink = Rejects(path)
        sink.open(run="r")
        for number in batches:
            sink.write(number, rejected(number))
        sink.close()
    assert path.read_text() == "".join(f"a.nt:{n}\tno time\ttext\n" for n in range(3))


def test_rejects_are_shown_and_then_counted() -> None:
    stream = io.StringIO()
    sink = Rejects(stream=stream)
    sink.open()
    sink.write(0, rejected(*range(3)))
    sink.write(0, rejected(*range(3)))
    sink.write(1, rejected(*range(3, 9)))
    sink.close()
    shown = stream.getvalue().splitlines()
    assert shown[:2] == ["rejected: a.nt:0: no time", "rejected: a.nt:1: no time"]
    assert len(shown) == SHOWN + 1
    assert sink.count == 9
    taken: list[Rejected] = []
    Rejects(taken.append).write(0, rejected(1))
    assert taken == rejected(1)


def test_what_is_late_in_all_engines_is_told_once() -> None:
    def row(instance: int, kind: str, place: str) -> SimpleNamespace:
        return SimpleNamespace(instance=instance, kind=kind, place=place, reason="why", text="", query=None)

    late = [row(instance, "late", place) for instance in (0, 2) for place in ("a", "b", "a")]
    rows = [row(0, "rejected", "x"), *late, row(2, "late", "c"), row(0, "results", "")]
    assert [each.place for each in rejected_in(rows)] == ["x", "a", "a", "b", "c"]


def test_progress_with_any_other_byte_is_refused(tmp_path: Path) -> None:
    file = exactly_once_file.GrowingFile(tmp_path / "out.csv", b"head\n", run="run")
    file.append(0, lambda before: (b"one\n", before + 1))
    file.close()
    side = tmp_path / ".out.csv.progress"
    content = side.read_bytes()
    for place in range(8 * len(content)):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        side.write_bytes(changed)
        with pytest.raises(CqelsError):
            exactly_once_file.read_progress(side)
    without = json.loads(content)
    del without["checksum"]
    side.write_text(json.dumps(without))
    with pytest.raises(CqelsError):
        exactly_once_file.read_progress(side)
