"""The sinks, the last stage of a pipeline: terminal, files, Kafka, memory, a function. Rejected input: `rejects.py`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO, runtime_checkable

from cqels.model.errors import CqelsError
from cqels.plan.algebra import Query
from cqels.results import RESULT_FORMATS, InTime, Result, ResultWriter, file_name, format_of_file, writer_for
from cqels.results.result import EXTENSIONS
from cqels.spark.sink.exactly_once_file import GrowingFile, PassingFile
from cqels.spark.sink.exactly_once_file import lost as file_lost
from cqels.spark.sink.parquet_files import Parts
from cqels.spark.sink.parquet_files import lost as parts_lost
from cqels.spark.sink.result_batch import Sent
from cqels.spark.sink.text_formats import body, check, head, json_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_FORMATS = (*RESULT_FORMATS, "parquet")
_KAFKA = re.compile(r"kafka:(?P<servers>[^/]+)/(?P<topic>[^/]+)")


class Sink(Protocol):
    """Takes the results of some queries, a micro-batch at a time."""

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        """Be ready for the results of these queries, which have names. Called again when more are added.

        `run` is the id of the streaming query, which Spark keeps in its checkpoint: it tells whether what is there
        already is of the same run.
        """

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        """The results of one micro-batch, by query name.

        Called again with the same number and the same results after a crash.
        """

    def close(self) -> None: ...


@runtime_checkable
class Lasting(Protocol):
    """A sink whose results stay where they are written: what is gone of them is found when a run goes on."""

    def places(self, queries: Sequence[Query]) -> list[Path]:
        """Where it writes the results of these queries."""

    def lost(self, queries: Sequence[Query], *, run: str, opened: Collection[str], done: int) -> list[str]:
        """What is gone of what a run has written, in words; where that is, it begins anew when it is opened.

        `opened` are the places that the run has written to, and `done` its last complete micro-batch.
        """

    def begin_anew(self) -> None:
        """Replace what is there: all results are written once more."""


class Console:
    """Shows results as they come, those of a micro-batch in the order of time.

    With `exact`, what all queries send is in one order, whatever the micro-batches are; so results of the latest time
    wait for the next micro-batch.  A batch that is repeated after a crash is shown again.
    """

    def __init__(self, format: str = "text", stream: TextIO | None = None, *, exact: bool = False) -> None:
        self._format = format
        self._stream = stream or sys.stdout
        self._exact = exact
        self._writers: dict[str, ResultWriter] = {}
        self._order = InTime(0)
        self._last = -1

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        for query in queries:
            check(query, self._format)
            columns = ("boolean",) if query.form == "ask" else query.variables
            self._writers[_name(query)] = writer_for(self._format, self._stream, columns, dict(query.prefixes))
        self._show(self._order.rest())
        self._order = InTime(len(self._writers))

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        if batch <= self._last:
            return
        self._show(self._order.add([list(sent[name].results()) if name in sent else [] for name in self._writers]))
        if not self._exact:
            self._show(self._order.rest())
        self._stream.flush()
        self._last = batch

    def _show(self, results: Iterable[tuple[int, Result]]) -> None:
        writers = list(self._writers.items())
        for number, result in results:
            name, writer = writers[number]
            if self._format == "text" and len(writers) > 1:
                self._stream.write(f"{name}  ")
            writer.write(result)

    def close(self) -> None:
        self._show(self._order.rest())
        for writer in self._writers.values():
            writer.close()


class Files:
    """A growing file for each query in a folder, or one file; each result is in it once, whatever crashes.

    `results/` has `<query>.csv`; `out.csv` is the file of a single query.  In Parquet a query has a folder of parts,
    one for each micro-batch (`types` and `unit`: see `parquet_files.py`).  Files are those of the machine that the
    driver runs on.  Files of another run are refused, unless they may be replaced.  Where no run goes on from another,
    `passing`, nothing is noted beside them.  `single` says whether the place is a file, where its name does not.
    """

    def __init__(
        self,
        place: str | Path,
        format: str | None = None,
        *,
        types: Mapping[str, str] | None = None,
        unit: str = "ns",
        single: bool | None = None,
        replace: bool = False,
        passing: bool = False,
    ) -> None:
        self._place = Path(place)
        self._format = format or format_of_file(str(place)) or "csv"
        if self._format not in FILE_FORMATS:
            raise CqelsError(
                f"results have no format '{self._format}'", hint=f"the formats are {', '.join(FILE_FORMATS)}"
            )
        named = self._place.suffix == f".{EXTENSIONS[self._format]}"
        self._single = named if single is None else single
        self._types, self._unit, self._replace, self._passing = dict(types or {}), unit, replace, passing
        self._files: dict[str, GrowingFile | PassingFile] = {}
        self._parts: dict[str, Parts] = {}
        self._gone: set[Path] = set()

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        names = {*map(_name, queries), *self._files, *self._parts}
        if self._single and len(names) > 1:
            raise CqelsError(
                f"{self._place} is one file, and there are {len(names)} queries", hint="name a folder: results/"
            )
        for query in queries:
            name, path = _name(query), self._path(query)
            if name in self._files:
                self._files.pop(name).close()
            if self._format == "parquet":
                self._parts[name] = Parts(
                    path, query, types=self._types, unit=self._unit, run=run, replace=self._replace
                )
                continue
            check(query, self._format)
            begin = head(query, self._format)
            if self._passing:
                self._files[name] = PassingFile(path, begin)
            else:
                anew = path in self._gone
                self._files[name] = GrowingFile(path, begin, run=run, replace=self._replace, anew=anew)

    def places(self, queries: Sequence[Query]) -> list[Path]:
        return [] if self._passing else [self._path(query) for query in queries]

    def lost(self, queries: Sequence[Query], *, run: str, opened: Collection[str], done: int) -> list[str]:
        found = {}
        for path in self.places(queries):
            known = str(path.absolute()) in opened
            if self._format == "parquet":
                found[path] = parts_lost(path, run, opened=known)
            else:
                found[path] = file_lost(path, run, opened=known, done=done)
        self._gone = {path for path, loss in found.items() if loss is not None}
        return [loss for loss in found.values() if loss is not None]

    def begin_anew(self) -> None:
        self._replace = True

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        for name, each in sent.items():
            if not len(each):
                continue
            if self._format == "parquet":
                self._parts[name].write(batch, each)
            else:
                self._files[name].append(batch, partial(body, each, self._format))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _path(self, query: Query) -> Path:
        return self._place if self._single else self._place / file_name(_name(query), self._format)


class Kafka:
    """Records in a topic: the value is a line of JSON, the key `<query>/<number>`, the results of a query from 0 on.

    At least once: after a crash a batch is written again with the same keys, by which a reader drops repetitions.
    Spark's own connector writes, `org.apache.spark:spark-sql-kafka-0-10_2.13` in `spark.jars.packages`.  `options` are
    Kafka's, such as `{"kafka.security.protocol": "SASL_SSL"}`.
    """

    def __init__(self, servers: str, topic: str, *, options: Mapping[str, str] | None = None) -> None:
        self._options = {"kafka.bootstrap.servers": servers, "topic": topic, **dict(options or {})}

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        pass

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        import pyarrow

        tables = [
            pyarrow.table(
                {
                    "key": pyarrow.array(
                        [f"{name}/{number}" for number in range(each.number, each.number + len(each))]
                    ),
                    "value": json_lines(each).cast(pyarrow.string()),
                }
            )
            for name, each in sent.items()
            if len(each)
        ]
        if tables:
            rows = _session().createDataFrame(pyarrow.concat_tables(tables))
            rows.write.format("kafka").options(**self._options).save()

    def close(self) -> None:
        pass


class Memory:
    """Keeps everything: for notebooks and tests."""

    def __init__(self) -> None:
        self._queries: dict[str, Query] = {}
        self._batches: dict[str, dict[int, Sent]] = {}

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        for query in queries:
            self._queries[_name(query)] = query
            self._batches.setdefault(_name(query), {})

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        for name, each in sent.items():
            self._batches[name][batch] = each

    def close(self) -> None:
        pass

    def arrow(self, query: str | None = None) -> Any:
        """A table of Arrow. The name may be left out if there is one query."""
        return self._all(query).table()

    def pandas(self, query: str | None = None) -> Any:
        """A data frame of pandas."""
        return self.arrow(query).to_pandas()

    def results(self, query: str | None = None) -> list[Result]:
        """The results one by one."""
        return list(self._all(query).results())

    def _all(self, query: str | None) -> Sent:
        known = ", ".join(self._queries) or "none"
        if query is None and len(self._queries) != 1:
            raise CqelsError(f"there are {len(self._queries)} queries", hint=f"name one of them: {known}")
        name = next(iter(self._queries)) if query is None else query
        if name not in self._queries:
            raise CqelsError(f"there is no query '{name}'", hint=f"the queries are {known}")
        batches = [batch for _, each in sorted(self._batches[name].items()) for batch in each.batches]
        return Sent(self._queries[name], batches)


class Callback:
    """Calls a function with each result; with `tables`, with a query's name and a table of each micro-batch.

    At least once: after a crash the last batch is given again.
    """

    def __init__(self, function: Callable[..., Any], *, tables: bool = False) -> None:
        self._function, self._tables = function, tables
        self._last = -1

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        pass

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        if batch <= self._last:
            return
        for name, each in sent.items():
            if self._tables:
                self._function(name, each.table())
            else:
                for result in each.results():
                    self._function(result)
        self._last = batch

    def close(self) -> None:
        pass


def sink_of(text: str, *, format: str | None = None, replace: bool = False) -> Sink:
    """The sink of a text: `console`, `memory`, `kafka:servers/topic`, a folder `results/` or a file `out.csv`."""
    if text in ("console", "-"):
        return Console(format or "text")
    if text == "memory":
        return Memory()
    if text.startswith("kafka:"):
        match = _KAFKA.fullmatch(text)
        if match is None:
            raise CqelsError(f"'{text}' does not name a topic", hint="write kafka:host:9092/topic")
        return Kafka(match["servers"], match["topic"])
    if not text or (format is None and not text.endswith("/") and format_of_file(text) is None):
        raise CqelsError(
            f"results cannot go to '{text}'",
            hint="console, memory, kafka:servers/topic, a folder such as results/, or a file such as out.csv",
        )
    return Files(text, format, replace=replace)


def _name(query: Query) -> str:
    assert query.name is not None
    return query.name


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    session: SparkSession | None = SparkSession.getActiveSession()
    if session is None:
        raise CqelsError("there is no Spark session to write to Kafka with", hint="cqels.spark.start()")
    return session
