"""Files as a source of Spark: any size of micro-batches gives the elements of the embedded engine, each once."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from heapq import merge
from itertools import accumulate
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from cqels.ingest import Rejected, StreamDeclaration, declare, read_stream
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import CqelsError, DataError

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from cqels.pipeline.lift.block_format import unpack
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.lift.row_schemas import files_of_sequence
from cqels.pipeline.source.file_source_settings import prepared
from cqels.spark.source import read_ahead
from cqels.spark.source.file_source import LEAST_AHEAD, FileReader, file_rows

ALL = PushedPatterns(frozenset([ANYTHING]))
OBS, OTHER = "http://ex.org/obs", "http://ex.org/other"
EVERYTHING = 1 << 30
Elements = list[tuple[int, list[tuple[str, ...]]]]
Read = tuple[Elements, list[tuple[str, str]]]
Rows = list[Any]

TEMPLATE = """
subject = "x:{id}"
[time]
column = "at"
[predicates]
"x:value" = "value"
"x:other" = { text = "of {id}" }
"""


def line(number: int, time: int) -> str:
    subject = f"_:b{number % 5}" if number % 4 == 0 else f"<x:s{number % 50}>"
    return f'{subject} <x:p{number % 3}> "value {number}" {time} .'


def lines(count: int, *, first: int = 0) -> str:
    return "".join(line(number, 10 * number) + "\n" for number in range(first, first + count))


# ---------------------------------------------------------------- running


class Here:
    """Reads streams of files to their end as Spark would, without Spark, and keeps the rows of each micro-batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.batches: list[Rows] = []

    def __call__(self, *streams: StreamDeclaration, instances: int = 1, **options: Any) -> Rows:
        declared = tuple((number, each, (ALL,) * instances) for number, each in enumerate(streams))
        settings = prepared(declared, self._folder, tasks=2, **options)
        self.batches = []
        reader = FileReader(settings.text())
        limit, offset = reader.getDefaultReadLimit(), reader.initialOffset()
        while (end := reader.latestOffset(offset, limit)) != offset:
            tasks = [pickle.loads(pickle.dumps(task)) for task in reader.partitions(offset, end)]
            batches = [batch for task in reversed(tasks) for batch in FileReader(settings.text()).read(task)]
            self.batches.append([SimpleNamespace(**row) for batch in batches for row in batch.to_pylist()])
            offset = json.loads(json.dumps(end))
        return [row for batch in self.batches for row in batch]


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path / "here")


class Run:
    """Runs streams of files on Spark to their end, or until something is raised, and keeps the rows."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.batches: dict[int, Rows] = {}

    def __call__(
        self,
        *streams: StreamDeclaration,
        instances: int = 1,
        seen: Callable[[int, Rows], None] = lambda number, rows: None,
        available: bool = True,
        **options: Any,
    ) -> Rows:
        declared = tuple((number, each, (ALL,) * instances) for number, each in enumerate(streams))
        rows = file_rows(self._spark, prepared(declared, self._folder / "files", tasks=2, **options))

        def keep(frame: Any, number: int) -> None:
            found = frame.collect()
            seen(number, found)
            self.batches[number] = found

        writing = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(self._folder / "checkpoint"))
        query = (writing.trigger(availableNow=True) if available else writing).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        return [row for number in sorted(self.batches) for row in self.batches[number]]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Run:
    return Run(spark, tmp_path / "run")


def found(rows: Rows, stream: int = 0, instance: int = 0) -> Read:
    """The elements of a stream's blocks, its files merged by time, and what was rejected."""
    mine = sorted(
        (row for row in rows if row.stream == stream and row.instance == instance),
        key=lambda row: (row.position, row.number),
    )
    terms = Terms(ArenaDictionary(Arena(size=1 << 26)))
    files: dict[int, Elements] = {}
    for row in mine:
        if row.kind == "block":
            first, last = files_of_sequence(row.place)
            for at, number, triples in unpack(bytes(row.block), terms.dictionary).rows():
                assert number == stream
                element = at, [tuple(str(terms.decode(word)) for word in each) for each in triples]
                files.setdefault(first, []).append(element)
            if last > first:  # and what comes of the last one comes behind these
                files.setdefault(last, files[first])
    return in_time([*{id(each): each for _, each in sorted(files.items())}.values()]), sorted(
        (row.place, row.reason) for row in mine if row.kind == "rejected"
    )


def in_time(files: list[Elements]) -> Elements:
    keyed = [
        [(key, element) for element, key in zip(each, accumulate((at for at, _ in each), max), strict=True)]
        for each in files
    ]
    return [element for _, element in merge(*keyed, key=lambda pair: pair[0])]


def ends(rows: Rows) -> list[tuple[int, int]]:
    return sorted((row.stream, row.instance) for row in rows if row.kind == "end")


def embedded(declaration: StreamDeclaration) -> Read:
    rejected: list[Rejected] = []
    elements = list(read_stream(declaration, rejected.append))
    made = [(each.time, [tuple(map(str, triple)) for triple in each.triples]) for each in elements]
    return made, sorted((each.place, each.reason) for each in rejected)


# ---------------------------------------------------------------- formats


NODES = """
[time]
column = "at"
[nodes.observation]
subject = "x:{id}"
[nodes.observation.predicates]
"x:result" = { node = "result" }
"x:name" = { column = "id", lookup = "names.csv", key = "id", value = "name", default = "many" }
[nodes.result.predicates]
"x:value" = "value"
"""
ARRAYS = """
[time]
column = "at"
[nodes.item]
each = "each"
[nodes.item.predicates]
"x:value" = "v"
"x:at" = "at"
"""


def several_formats(folder: Path) -> dict[str, StreamDeclaration]:
    """The same kind of elements in every format, most of them in two files."""
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    template = folder / "lift.toml"
    template.write_text(TEMPLATE)

    def place(name: str, *contents: str | bytes) -> Path:
        made = folder / name.replace(".", "-")
        made.mkdir()
        for number, content in enumerate(contents):
            (made / f"{number}.{name}").write_bytes(content.encode() if isinstance(content, str) else content)
        return made

    nodes = folder / "nodes.toml"
    nodes.write_text(NODES)
    (folder / "names.csv").write_text("id,name\n1,one\n2,two\n")
    (folder / "arrays.toml").write_text(ARRAYS)
    arrays = "".join(f'{{"at": {n * 10}, "each": [{{"v": {n}}}, {{"v": "x"}}]}}\n' for n in range(20))
    two = lines(300), lines(200, first=300)
    broken = lines(20) + "not a line\n" + lines(10, first=20)
    graphs = [
        "".join(
            f"<x:a> <x:p> _:b <x:g{n}> .\n_:b <x:p> <x:a> <x:g{n}> .\n"
            f'<x:g{n}> <http://www.w3.org/ns/prov#generatedAtTime> "{n}" <x:g{n}> .\n'
            for n in range(first, first + 100)
        )
        + "not a quad\n"
        for first in (0, 100)
    ]
    turtle = [f"<x:a> <x:p> [ <x:q> {n} ], {n} ; <x:at> {n} ." for n in range(5)]
    trig = "".join(f"<x:g{n}> {{ <x:a> <x:p> {n} ; <x:at> {n} }}\n" for n in range(20))
    jsonld = "".join(f'{{"@id": "x:{n}", "x:p": {n}, "x:at": {n}}}\n' for n in range(20))
    csv = "".join(f"{n},{n * 10},v{n}\n" for n in range(50))
    json = "".join(f'{{"id": {n}, "at": {n * 10}, "value": {n}}}\n' for n in range(50)) + "{\n"
    table = folder / "table.parquet"
    parquet.write_table(
        pyarrow.Table.from_pylist([{"id": n, "at": n * 10 or None, "value": n / 2} for n in range(50)]), table
    )
    return {
        "lines": declare(OBS, place("nt", *two, broken)),
        "gz": declare(OBS, place("nt.gz", *(gzip.compress(each.encode()) for each in two))),
        "zst": declare(OBS, place("nt.zst", *(pyarrow.compress(each.encode(), "zstd", asbytes=True) for each in two))),
        "times": declare(OBS, place("time.nt", *two), element="time", unit="s"),
        "graphs": declare(OBS, place("nq", *graphs)),
        "documents": declare(OBS, place("ttl", *turtle, "not Turtle"), time="x:at"),
        "trig": declare(OBS, place("trig", trig), time="x:at"),
        "json-ld lines": declare(OBS, place("jsonld", jsonld), time="x:at", element="line"),
        "csv": declare(OBS, place("csv", f"id,at,value\n{csv}", f"id,at,value\n{csv}1,2\n"), template=template),
        "json": declare(OBS, place("jsonl", json), template=template),
        "parquet": declare(OBS, place("parquet", table.read_bytes()), template=template),
        "nodes of csv": declare(OBS, place("nodes.csv", f"id,at,value\n{csv}"), template=nodes),
        "nodes of json": declare(OBS, place("nodes.jsonl", json), template=nodes),
        "arrays": declare(OBS, place("arrays.jsonl", arrays), template=folder / "arrays.toml"),
    }


def check_formats(streams: dict[str, StreamDeclaration], rows: Rows) -> None:
    for number, (name, declaration) in enumerate(streams.items()):
        elements, rejected = embedded(declaration)
        assert elements, name
        assert found(rows, number) == (elements, rejected), name
        assert found(rows, number, instance=1) == (elements, []), name
    assert ends(rows) == [(number, instance) for number in range(len(streams)) for instance in range(2)]


def test_on_spark_every_format_gives_the_elements_of_the_embedded_engine(run: Run, tmp_path: Path) -> None:
    """All formats as the streams of one application."""
    streams = several_formats(tmp_path)
    rows = run(*streams.values(), batch_bytes=20_000, instances=2)
    assert len(run.batches) > 1
    check_formats(streams, rows)


class AtOnce(Thread):
    """Has done what it is for as soon as it is started."""

    def start(self) -> None:
        super().start()
        self.join()


def test_all_but_the_first_micro_batch_is_read_ahead(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one process leaves is what the tasks of the next micro-batch take, to the end of the streams."""
    (tmp_path / "ahead").mkdir()
    monkeypatch.setattr(read_ahead, "_folder", lambda: tmp_path / "ahead")
    monkeypatch.setattr(read_ahead, "Thread", AtOnce)
    monkeypatch.setattr("cqels.spark.source.file_source.LEAST_AHEAD", 1)
    monkeypatch.setattr("cqels.spark.source.file_source.LEAST_TASK", 500)
    used: list[bool] = []
    taken = read_ahead.taken

    def watched(name: str) -> Any:
        found = taken(name)
        used.append(found is not None)
        return found

    monkeypatch.setattr(read_ahead, "taken", watched)
    for name in "ab":
        (tmp_path / f"{name}.nt").write_text(lines(500) + "odd\n")
    streams = [declare(OBS, tmp_path / "a.nt"), declare(OTHER, tmp_path / "b.nt")]
    rows = here(*streams, batch_bytes=10_000)
    assert used == [False, False, *[True] * (len(used) - 2)]
    assert len(used) > 6
    assert [found(rows, stream) for stream in range(2)] == [embedded(each) for each in streams]
    assert ends(rows) == [(0, 0), (1, 0)]
    assert not list((tmp_path / "ahead").iterdir())


def test_on_spark_what_is_read_ahead_is_what_is_read(run: Run, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.nt").write_text(lines(60_000) + "odd\n")
    declaration = declare(OBS, tmp_path / "*.nt")
    rows = run(declaration, batch_bytes=3 * LEAST_AHEAD, instances=2)
    assert len(run.batches) > 1
    assert found(rows) == embedded(declaration)
    assert ends(rows) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("size", [1000, 10_000, EVERYTHING])
def test_every_format_gives_the_elements_of_the_embedded_engine(here: Here, tmp_path: Path, size: int) -> None:
    streams = several_formats(tmp_path)
    check_formats(streams, here(*streams.values(), batch_bytes=size, instances=2))


@pytest.mark.parametrize("size", [1, 13, 1000, EVERYTHING])
def test_the_size_of_micro_batches_does_not_matter(
    here: Here, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor that of tasks; also with lines that are longer than either."""
    monkeypatch.setattr("cqels.spark.source.file_source.LEAST_TASK", 7)
    monkeypatch.setattr("cqels.ingest.input_files.CHUNK", 1500)
    count = 3 if size < 1000 else 200
    long = f'<x:a> <x:p> "{"long" * (5 if size < 1000 else 500)}" 7 .\n'
    for name in "ab":
        (tmp_path / f"{name}.nt").write_text("\ufeff" + lines(count) + long + "odd\r\n" + lines(count, first=count))
    declaration = declare(OBS, tmp_path / "*.nt")
    assert found(here(declaration, batch_bytes=size)) == embedded(declaration)


def test_streams_go_forward_together_and_end_when_they_are_read(here: Here, tmp_path: Path) -> None:
    contents = {"a": lines(1000), "b": lines(100), "c": ""}
    for name, content in contents.items():
        (tmp_path / f"{name}.nt").write_text(content)
    streams = [declare(f"x:{name}", tmp_path / f"{name}.nt") for name in contents]
    rows = here(*streams, batch_bytes=len(contents["a"]) // 5)
    counts = [[len(found(batch, stream)[0]) for batch in here.batches] for stream in range(3)]
    assert [sum(each) for each in counts] == [1000, 100, 0]
    assert max(counts[0]) < 250
    assert max(counts[1]) < 30
    assert ends(here.batches[0]) == [(2, 0)]
    assert ends(rows) == [(0, 0), (1, 0), (2, 0)]
    assert ends([*here.batches[-2], *here.batches[-1]]) == [(0, 0), (1, 0)]


# ---------------------------------------------------------------- faults


def test_a_file_of_which_one_percent_is_damaged_loses_nothing_else(run: Run, tmp_path: Path) -> None:
    draw = random.Random(3)
    whole = [line(number, 10 * number).encode() for number in range(5000)]
    good, kept = 0, []
    for each in whole:
        if draw.random() > 0.01:
            good, kept = good + 1, [*kept, each]
            continue
        kept.append(
            draw.choice(
                [
                    each[: draw.randrange(1, len(each) - 12)],
                    each.replace(b"value", b"val\xffue"),
                    each.replace(b"value", b"val\\xue"),
                    each[: each.rindex(b'"') + 1] + b" .",
                    each[: each.rindex(b'"') + 1] + b' "noon" .',
                ]
            )
        )
        if draw.random() < 0.3:  # an element as any other, only large
            good += 1
            kept.append(b'<x:huge> <x:p> "' + b"x" * draw.randrange(100_000) + b'" 5 .')
    path = tmp_path / "day.nt"
    path.write_bytes(b"\n".join(kept))
    elements, rejected = found(run(declare(OBS, path), batch_bytes=200_000))
    assert (elements, rejected) == embedded(declare(OBS, path))
    assert len(elements) == good
    assert len(rejected) == len(kept) - good > 20


def test_strictly_the_first_fault_ends_the_run(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "day.nt"
    path.write_text(lines(500) + "not a line\n")
    with pytest.raises(StreamingQueryException, match=r"day.nt:501: expected a subject"):
        run(declare(OBS, path), batch_bytes=4000, strict=True)


def test_a_file_that_changes_is_told(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "day.nt"
    path.write_text(lines(500))
    here(declare(OBS, path))
    path.write_text(lines(501))
    with pytest.raises(DataError, match="a file of the stream has changed since it was listed"):
        here(declare(OBS, path))
    path.unlink()
    with pytest.raises(DataError, match="a file of the stream is no longer there"):
        here(declare(OBS, path))


# ---------------------------------------------------------------- restarts and files that come


class Killed(Exception):
    """Ends a run in the middle of a micro-batch."""


def test_a_restart_goes_on_with_the_same_files(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    for name in "bd":
        (tmp_path / f"{name}.nt").write_text(lines(300) + "odd\n")
    declaration = declare(OBS, tmp_path / "*.nt")
    expected = embedded(declaration)

    def kill(number: int, rows: Rows) -> None:
        if number == 1:
            (tmp_path / "a.nt").write_text(lines(10))  # it was not there at the start
            (tmp_path / "c.nt").write_text(lines(10))
            raise Killed

    with pytest.raises(StreamingQueryException):
        run(declaration, batch_bytes=7000, seen=kill)
    assert sorted(run.batches) == [0]
    assert found(run(declaration, batch_bytes=10_000)) == expected
    assert len(run.batches) > 2
    with pytest.raises(CqelsError, match="is of other streams"):
        run(declare(OTHER, tmp_path / "*.nt"))


def test_following_reads_the_files_that_come(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    declaration = declare(OBS, folder)
    assert here(declaration, follow=True) == []
    for number, name in enumerate(["z.nt", "m.nt", "a.nt"]):
        hidden = folder / f".{name}"
        hidden.write_text(lines(50, first=50 * number))
        os.utime(hidden, (number, number))
        hidden.rename(folder / name)
        if number != 1:
            rows = here(declaration, follow=True)
    elements, _ = found(rows)
    assert [at // 10**6 for at, _ in elements] == [10 * number for number in range(150)]
    assert not ends(rows)
    (folder / "m.nt").write_text("short")
    with pytest.raises(DataError, match="is shorter than what was read of it") as caught:
        here(declaration, follow=True)
    assert "--changed" in (caught.value.hint or "")


class Following:
    """Follows one stream as Spark would: each call reads what has come since the last, unless that ends in an error."""

    def __init__(self, folder: Path, declaration: StreamDeclaration, **options: Any) -> None:
        self._declared = [(0, declaration, (ALL,))]
        self._folder = folder
        self._options = options
        self._offset: Any = None
        self.restart()

    def restart(self, **options: Any) -> None:
        self._options |= options
        settings = prepared(self._declared, self._folder, tasks=2, follow=True, **self._options)
        self._reader = FileReader(settings.text())
        self._offset = self._offset or self._reader.initialOffset()

    def __call__(self) -> Read:
        rows: Rows = []
        self._reader._refreshed = -1.0
        limit = self._reader.getDefaultReadLimit()
        while (end := self._reader.latestOffset(self._offset, limit)) != self._offset:
            for task in self._reader.partitions(self._offset, end):
                rows += (SimpleNamespace(**row) for batch in self._reader.read(task) for row in batch.to_pylist())
            self._offset = json.loads(json.dumps(end))
        return found(rows)


def lifted(folder: Path, name: str) -> StreamDeclaration:
    (folder / "lift.toml").write_text(TEMPLATE)
    return declare(OBS, folder / name, template=folder / "lift.toml")


GROWING: dict[str, tuple[str, Callable[[int], str]]] = {
    "day.nt": ("", lambda number: line(number, 10 * number) + "\n"),
    "day.csv": ("id,at,value\n", lambda number: f'{number},{10 * number},"v\n{number}, ""2"""\n'),
    "day.tsv": ("id\tat\tvalue\n", lambda number: f"{number}\t{10 * number}\tv{number}\n"),
    "day.jsonl": ("", lambda number: json.dumps({"id": number, "at": 10 * number, "value": "v"}) + "\n"),
}


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_appended_is_read_once_from_where_reading_stopped(tmp_path: Path, name: str, seed: int) -> None:
    """However it is cut: in the middle of lines, records and quotes; and from restart to restart."""
    draw = random.Random(seed)
    head, record = GROWING[name]
    declaration = lifted(tmp_path, name) if name != "day.nt" else declare(OBS, tmp_path / name)
    content = (head + "".join(record(number) + ("odd\n" if number % 9 == 4 else "") for number in range(60))).encode()
    path = tmp_path / name
    path.write_bytes(content[:0])
    following = Following(tmp_path / "list", declaration, batch_bytes=500)
    elements: Elements = []
    rejected: list[tuple[str, str]] = []
    at = 0
    while at < len(content):
        size = draw.choice([1, 2, 7, 40, 400])
        with path.open("ab") as file:
            file.write(content[at : at + size])
        at += size
        if draw.random() < 0.3:
            following.restart()
        if draw.random() < 0.5:
            more = following()
            elements, rejected = elements + more[0], rejected + more[1]
    more = following()
    assert (elements + more[0], sorted(rejected + more[1])) == embedded(declaration)
    assert following() == ([], [])


def test_the_time_of_an_arrival_is_in_the_offsets(tmp_path: Path) -> None:
    """So that a repeated micro-batch has the same; where nothing has come, the offsets stay the same."""
    (tmp_path / "obs.nt").write_text(lines(3))
    declared = [(0, declare("http://ex.org/obs", tmp_path / "obs.nt", clock="arrival"), (ALL,))]
    settings = prepared(declared, tmp_path / "here", tasks=2, follow=True).text()
    reader = FileReader(settings)
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, limit)))
    assert reader.latestOffset(end, limit) == end
    times = []
    for each in (reader, FileReader(settings)):
        batches = [batch for task in each.partitions(start, end) for batch in each.read(task)]
        rows = [SimpleNamespace(**row) for batch in batches for row in batch.to_pylist()]
        times.append([time for time, _ in found(rows)[0]])
    assert times == [[end["arrived"]] * 3] * 2


def test_a_line_without_its_end_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "day.nt"
    path.write_text(lines(2) + line(2, 20))
    following = Following(tmp_path / "list", declare(OBS, path))
    assert len(following()[0]) == 2
    with path.open("a") as file:
        file.write("\n")
    assert len(following()[0]) == 1


@pytest.mark.parametrize("changed", ["stop", "skip", "reread"])
@pytest.mark.parametrize("how", ["replaced", "shortened", "removed"])
def test_a_file_that_is_not_the_same_is_told_and_the_checkpoint_goes_on(tmp_path: Path, changed: str, how: str) -> None:
    path = tmp_path / "day.nt"
    path.write_text(lines(100))
    following = Following(tmp_path / "list", declare(OBS, path))
    assert len(following()[0]) == 100
    match how:
        case "replaced":
            path.write_text(lines(200, first=500))
        case "shortened":
            path.write_text(lines(10))
        case _:
            path.unlink()
    reason = {"replaced": "was replaced", "shortened": "is shorter", "removed": "is no longer there"}[how]
    with pytest.raises(DataError, match=f"a file of the stream {reason}") as caught:
        following()
    assert "--changed" in (caught.value.hint or "")
    if changed == "stop":
        return
    following.restart(changed={0: changed})
    elements, rejected = following()
    there = {"replaced": 200, "shortened": 10, "removed": 0}[how]
    assert len(elements) == (there if changed == "reread" else 0)
    assert [place for place, _ in rejected] == [str(path)]
    assert reason in rejected[0][1]
    following.restart(changed={0: "stop"})
    assert following() == ([], [])
    with path.open("a") as file:
        file.write(lines(3, first=1000))
    assert len(following()[0]) == 3


def test_what_is_followed_is_not_far_in_the_future(tmp_path: Path) -> None:
    """A day is allowed, unless it is said otherwise; files that end may be of any time."""
    path = tmp_path / "day.nt"
    path.write_text(lines(3) + line(3, 7 * 10**12) + "\n" + lines(2, first=4))
    elements, rejected = Following(tmp_path / "list", declare(OBS, path))()
    assert [at // 10**7 for at, _ in elements] == [0, 1, 2, 4, 5]
    assert [place for place, _ in rejected] == [f"<{OBS}>"]
    assert "beyond the wall clock" in rejected[0][1]
    assert len(Following(tmp_path / "another", declare(OBS, path, future="100000d"))()[0]) == 6
    assert len(found(Here(tmp_path / "here")(declare(OBS, path)))[0]) == 6


def test_a_file_that_was_read_may_be_removed_from_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.nt").write_text(lines(10))
    following = Following(tmp_path / "list", declare(OBS, folder))
    assert len(following()[0]) == 10
    (folder / "1.nt").unlink()
    assert following() == ([], [])
    (folder / "1.nt").write_text(lines(5, first=20))
    assert len(following()[0]) == 5


def test_files_that_are_appended_to_side_by_side_are_merged(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    following = Following(tmp_path / "list", declare(OBS, folder))
    assert following() == ([], [])
    for turn in range(4):
        for place, name in enumerate("ab"):
            with (folder / f"{name}.nt").open("a") as file:
                file.write("".join(line(n, 10 * n) + "\n" for n in range(20 * turn + place, 20 * turn + 20, 2)))
        assert [at // 10**7 for at, _ in following()[0]] == list(range(20 * turn, 20 * turn + 20))


@pytest.mark.parametrize("changed", ["skip", "reread"])
def test_a_checkpoint_goes_on_though_a_file_has_changed(here: Here, tmp_path: Path, changed: str) -> None:
    path = tmp_path / "day.nt"
    path.write_text(lines(500))
    here(declare(OBS, path))
    path.write_text(lines(400))
    elements, rejected = found(here(declare(OBS, path), changed={0: changed}))
    assert len(elements) == (400 if changed == "reread" else 0)
    assert "has changed since it was listed" in rejected[0][1]


def test_a_damaged_list_of_files_is_refused(here: Here, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.nt").write_text(lines(5))
    declaration = declare(OBS, tmp_path / "*.nt")
    expected = found(here(declaration))
    listed = tmp_path / "here" / "files.jsonl"
    content = listed.read_bytes()
    draw = random.Random(1)
    ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
    flips = [(place, bit) for place in ends for bit in range(8)]
    flips += [(draw.randrange(len(content)), draw.randrange(8)) for _ in range(200)]
    for place, bit in flips:
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        listed.write_bytes(damaged)
        with pytest.raises(CqelsError, match="is damaged"):
            here(declaration)
    whole = content.splitlines(keepends=True)
    listed.write_bytes(b"".join([*whole[:2], *whole[3:]]))
    with pytest.raises(CqelsError, match="is damaged"):
        here(declaration)
    listed.write_bytes(content + b'{"stream": 0, "path": "cut')
    assert found(here(declaration)) == expected
    assert listed.read_bytes() == content


def test_a_list_of_files_of_version_1_goes_on(here: Here, tmp_path: Path) -> None:
    """It had whole files and no checksums; it is written again as one is now."""
    path = tmp_path / "a.nt"
    path.write_text(lines(20))
    stream = declare(OBS, path)
    expected = found(here(stream))
    listed = tmp_path / "here" / "files.jsonl"
    now = listed.read_text()
    there = path.stat()
    old = {"stream": 0, "path": str(path), "size": there.st_size, "modified": there.st_mtime_ns, "lines": True}
    head = json.dumps({"version": 1, "streams": [[0, OBS, str(path)]]})
    listed.write_text(f"{head}\n{json.dumps(old)}\n")
    with pytest.raises(CqelsError, match="of other streams"):
        here(declare(OTHER, path))
    assert found(here(stream)) == expected
    assert listed.read_text().splitlines()[0] == now.splitlines()[0]
    listed.write_text(f"{head}\n{json.dumps({'stream': 0})}\n")
    with pytest.raises(CqelsError, match="line 2 is not what was written"):
        here(stream)


def test_following_goes_on_while_a_query_runs(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0.nt").write_text(lines(10))

    def arrive(number: int, rows: Rows) -> None:
        if number == 0:
            with (folder / "0.nt").open("a") as file:
                file.write(lines(10, first=10))
        if number == 1:
            assert [at // 10**7 for at, _ in found(rows)[0]] == list(range(10, 20))
            raise Killed

    with pytest.raises(StreamingQueryException, match="Killed"):
        run(declare(OBS, folder), follow=True, available=False, seen=arrive)


def test_what_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    for follow in (False, True):
        with pytest.raises(DataError, match="no file at"):
            prepared([(0, declare(OBS, tmp_path / "none.nt"), (ALL,))], None, follow=follow)
    (tmp_path / "plain.nt").write_text("<x:a> <x:p> <x:b> .\n")
    with pytest.raises(DataError, match="a triple without a timestamp"):
        prepared([(0, declare(OBS, tmp_path / "plain.nt"), (ALL,))], None)


# ---------------------------------------------------------------- pace


def timed_lines(folder: Path, name: str, times: list[int]) -> StreamDeclaration:
    """Elements of these times in two files, as N-Triples."""
    texts = [line(number, time) + "\n" for number, time in enumerate(times)]
    (folder / f"{name}0.nt").write_text("".join(texts[:20]) + "odd\n\n")
    (folder / f"{name}1.nt").write_text("".join(texts[20:]))
    return declare(f"x:{name}", folder / f"{name}*.nt")


def timed_records(folder: Path, name: str, times: list[int]) -> StreamDeclaration:
    """The same as CSV, in which a record may have two lines, and one of them a text that looks like a record."""
    values = ["plain", '"two\n0,9999999,lines"', '"quoted, plain"']
    texts = [f"{number},{time},{values[number % 3]}\n" for number, time in enumerate(times)]
    head = "\ufeffid,at,value\n"
    (folder / f"{name}0.csv").write_text(head + "".join(texts[:20]) + "odd\n\n7,at noon,no time\n")
    (folder / f"{name}1.csv").write_text(head + "".join(texts[20:]))
    (folder / "lift.toml").write_text(TEMPLATE)
    return declare(f"x:{name}", folder / f"{name}*.csv", template=folder / "lift.toml")


@pytest.mark.parametrize("written", [timed_lines, timed_records])
def test_elements_come_at_the_pace_of_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Callable[[Path, str, list[int]], StreamDeclaration]
) -> None:
    """All that is due has been delivered at each moment, and nothing else; also after a restart."""
    now = [10**15]
    monkeypatch.setattr("cqels.pipeline.source.replay_rate.monotonic_ns", lambda: now[0])
    monkeypatch.setattr("cqels.pipeline.source.replay_rate._CHUNK", 200)
    times = [[5000 + 20 * n for n in range(200)], [6000 + 100 * (n // 3) for n in range(30)]]
    streams = [written(tmp_path, name, moments) for name, moments in zip("ab", times, strict=True)]
    declared = [(number, each, (ALL,)) for number, each in enumerate(streams)]
    settings = prepared(declared, tmp_path / "list", speed=2.0)
    reader = FileReader(settings.text())
    limit, offset = reader.getDefaultReadLimit(), reader.initialOffset()
    seen: list[list[int]] = [[], []]
    all_rows: Rows = []
    first = 5000
    for step in range(100):
        if step == 20:
            reader = FileReader(settings.text())
            first = min(moments[len(done)] for moments, done in zip(times, seen, strict=True))
        if step in (0, 1, 20, 21):  # the clock starts when what is first has been read
            started = now[0]
        end = reader.latestOffset(offset, limit)
        tasks = reader.partitions(offset, end)
        rows = [SimpleNamespace(**row) for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
        all_rows += rows
        for number, done in enumerate(seen):
            done += (at // 10**6 for at, _ in found(rows, number)[0])
        due = first + (now[0] - started) * 2 // 10**6
        assert seen == [[moment for moment in moments if moment <= due] for moments in times]
        offset = end
        now[0] += 33 * 10**6
    assert seen == times
    assert [found(all_rows, number) for number in range(2)] == [embedded(each) for each in streams]


def test_what_was_read_at_a_pace_goes_on_without_one(tmp_path: Path) -> None:
    """From the middle of a CSV file."""
    declaration = timed_records(tmp_path, "a", [5000 + 20 * number for number in range(200)])
    settings = prepared([(0, declaration, (ALL,))], tmp_path / "list", speed=1.0)
    reader = FileReader(settings.text())
    offset = reader.initialOffset()
    rows: Rows = []
    for _ in range(2):
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        tasks = reader.partitions(offset, end)
        rows += (SimpleNamespace(**row) for task in tasks for batch in reader.read(task) for row in batch.to_pylist())
        offset = end
        reader = FileReader(replace(settings, speed=None).text())
    assert found(rows) == embedded(declaration)
    assert offset == {"0": [2, 0]}


def test_what_has_no_lines_with_times_has_no_pace(tmp_path: Path) -> None:
    path = tmp_path / "a.nt.gz"
    path.write_bytes(gzip.compress(lines(3).encode()))
    with pytest.raises(DataError, match="cannot be replayed at the pace"):
        prepared([(0, declare(OBS, path), (ALL,))], None, speed=1.0)
