"""Files as a source of Spark: all file streams of an application through one reader, which keeps them in step.

The driver decides how far a micro-batch goes in each stream; workers read the bytes themselves and make arriving rows
(`row_schemas.py`), and then what they expect the next micro-batch to have.  The same offsets give the same rows,
always.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from hashlib import sha256
from itertools import zip_longest
from math import ceil, inf
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxBytes, SupportsTriggerAvailableNow

from cqels.ingest import Rejected, StreamDeclaration
from cqels.ingest.declarations import FUTURE
from cqels.ingest.element_batch import Batch
from cqels.ingest.element_grouping import Reject
from cqels.ingest.file_batches import file_batches, has_timed_records, line_batches, object_batches, record_batches
from cqels.ingest.input_files import chunks_of, reading
from cqels.ingest.lifting_template import Template, read_template
from cqels.ingest.parse_errors import UnreadableFile
from cqels.ingest.stream_files import format_of
from cqels.model.errors import CqelsError, DataError, Source
from cqels.model.time import EARLIEST
from cqels.spark.lift.block_writer import Packer, Row, new_terms, table
from cqels.spark.lift.lift_settings import (
    read_declaration,
    read_wanted,
    write_declaration,
    write_template,
    write_wanted,
)
from cqels.spark.lift.lift_settings import read_template as told_template
from cqels.spark.lift.predicate_pushdown import Wanted
from cqels.spark.lift.row_schemas import ARRIVING, ARRIVING_COLUMNS, place_of
from cqels.spark.source import read_ahead
from cqels.spark.source.file_catalog import Catalog, Changed, Place, Stretch, refuse_change
from cqels.spark.source.replay_rate import Pace, Times, seek_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit

BATCH_BYTES = 1 << 30
"""Bytes of all files together that a micro-batch has at most, where nothing else is asked for."""
FIRST_BYTES = 4 << 20
"""Bytes of the first ones: results come soon."""
BATCH_SECONDS = 4.0
"""What a micro-batch should take: those that follow have as many bytes as could be worked off in that time."""
BATCH_OVERHEAD = 0.5
"""What it takes whatever it has."""
MOST_GROWTH = 16
"""How many times as large as a micro-batch was those after it may be."""
LEAST_TASK = 1 << 20
"""Bytes below which it does not pay to have one more task."""
BLOCK_SIZE = 1 << 17
"""Elements and triples together from which on a block is sent."""
LEAST_AHEAD = 1 << 20
"""Bytes of a task below which it does not pay to read ahead."""
MOST_REJECTED = 1 << 12
"""Rejected lines that are not yet sent."""
LOOK = 0.2
"""Seconds between two looks at what files are there."""
_COUNTED = 1 << 22
_NAME = "cqels-files"

FileStream: TypeAlias = tuple[int, StreamDeclaration, tuple[Wanted | None, ...]]
"""The number of a stream in the application, what it is, and what each engine instance wants of it."""
Offset: TypeAlias = dict[str, list[int]]
"""The place in each stream, as Spark keeps it."""


def file_rows(spark: SparkSession, settings: Settings) -> DataFrame:
    """The streams' files as arriving rows: a streaming DataFrame."""
    spark.dataSource.register(FileSource)
    return spark.readStream.format(_NAME).option("settings", settings.text()).load()


def prepared(
    streams: Iterable[FileStream],
    folder: Path | None,
    *,
    batch_bytes: int = BATCH_BYTES,
    tasks: int = 1,
    follow: bool = False,
    speed: float | None = None,
    strict: bool = False,
    changed: Mapping[int, Changed] | None = None,
) -> Settings:
    """What the reader is told; the files are listed, unless they were in an earlier run.

    The list of files is kept in `folder`, a part of the application's checkpoint.  With `follow`, files that come later
    are read too, and lines that are appended to files, and no stream ends.  `changed` says for a stream what is to be
    done with a file that was replaced, shortened or removed: if nothing is said, the run stops.  With `speed`, elements
    are delivered at the pace of their times, so many times as fast.  With `strict` the first malformed line or record
    ends the run.
    """
    if batch_bytes < 1 or (speed is not None and speed <= 0):
        raise CqelsError("the bytes of a micro-batch and the speed are larger than 0")
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="cqels-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    complete = tuple((*each, _template(each[1])) for each in streams)
    choices = {number: (changed or {}).get(number, "stop") for number, *_ in complete}
    settings = Settings(complete, str(folder), batch_bytes, tasks, follow, speed, strict, choices)
    catalog = settings.catalog()
    if not catalog.exists:
        catalog.make(follow=follow)
    settings.check(catalog)
    return settings


def _template(declaration: StreamDeclaration) -> Template | None:
    return None if declaration.template is None else read_template(declaration.template)


@dataclass(frozen=True, slots=True)
class Settings:
    """All that the reader is told."""

    streams: tuple[tuple[int, StreamDeclaration, tuple[Wanted | None, ...], Template | None], ...]
    folder: str
    batch_bytes: int
    tasks: int
    follow: bool
    speed: float | None
    strict: bool
    changed: dict[int, Changed]

    def text(self) -> str:
        """Itself as JSON, for Spark to give to the reader."""
        streams = [
            [number, write_declaration(declaration), [*map(write_wanted, wants)], write_template(template)]
            for number, declaration, wants, template in self.streams
        ]
        return json.dumps({**{field.name: getattr(self, field.name) for field in fields(self)}, "streams": streams})

    def catalog(self) -> Catalog:
        return Catalog(Path(self.folder), {number: declaration for number, declaration, _, _ in self.streams})

    def firsts(self) -> dict[int, tuple[int, ...]]:
        """The first times of the files of streams that end and have several."""
        if self.follow:
            return {}
        listed = self.catalog().files
        return {number: tuple(each.first for each in files) for number, files in listed.items() if len(files) > 1}

    def pace(self) -> Pace | None:
        if self.speed is None:
            return None
        return Pace(self.speed, {number: Times(each.unit, template) for number, each, _, template in self.streams})

    def check(self, catalog: Catalog) -> None:
        """Refuse what cannot be read at the pace of its times."""
        if self.speed is None:
            return
        for number, declaration, _, _ in self.streams:
            for file in catalog.files[number]:
                if not file.lines and not has_timed_records(declaration, Path(file.path)):
                    hint = "timed N-Triples and CSV can be, one element to a line or record, and not compressed"
                    source = Source("", file.path)
                    raise DataError("the file cannot be replayed at the pace of its times", source=source, hint=hint)


class FileSource(DataSource):
    """What Spark knows the source by."""

    @classmethod
    def name(cls) -> str:
        return _NAME

    def schema(self) -> str:
        return ARRIVING_COLUMNS

    def streamReader(self, schema: Any) -> FileReader:  # noqa: N802
        return FileReader(self.options["settings"])


@dataclass(frozen=True)
class Task(InputPartition):
    """What one worker reads in a micro-batch, and the streams that end with it."""

    stretches: tuple[Stretch, ...]
    ends: tuple[int, ...] = ()
    following: Task | None = None
    """What is likely to be read next."""

    @property
    def size(self) -> int:
        return sum(each.end - each.start for each in self.stretches)

    def name(self, settings: str) -> str:
        """The same for tasks that have the same rows."""
        return sha256(repr((settings, self.stretches, self.ends)).encode()).hexdigest()


class FileReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In the driver: how far to go, and how the work is divided. In a worker: the rows of a task."""

    def __init__(self, settings: str) -> None:
        self._text = settings
        self._settings = _settings(settings)
        self._catalog: Catalog | None = None
        self._pace = self._settings.pace()
        self._looked = -inf
        self._closed = not self._settings.follow
        self._closing = False
        self._course = Course()
        self._expected: tuple[dict[int, Place], dict[int, Place]] | None = None

    # ------------------------------------------------------------ in the driver

    def initialOffset(self) -> Offset:  # noqa: N802
        return _offset({number: (0, 0) for number, *_ in self._settings.streams})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._settings.batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._closing = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        places = _places(start)
        if not self._closed and (self._closing or time.monotonic() > self._looked + LOOK):
            self._listed().look(places, self._settings.changed)
            self._settings.check(self._listed())
            self._looked = time.monotonic()
            self._closed = self._closing
        self._course.at(self._done(places), time.monotonic())
        if self._expected is not None and self._expected[0] == places:
            return _offset(self._expected[1])
        end = self._forward(places, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)
        if self._pace is not None:
            end = self._pace.due(self._listed(), places, end)
        return _offset(end)

    def partitions(self, start: Offset, end: Offset) -> list[Task]:
        first, last = _places(start), _places(end)
        tasks = self._tasks(first, last)
        if self._settings.follow or self._pace is not None:
            return tasks
        self._expected = last, self._forward(last, self._settings.batch_bytes)
        following = self._tasks(*self._expected)
        return [
            replace(task, following=next) if next is not None and next.size >= LEAST_AHEAD else task
            for task, next in zip_longest(tasks, following[: len(tasks)])
        ]

    def _tasks(self, first: dict[int, Place], last: dict[int, Place]) -> list[Task]:
        catalog = self._listed()
        stretches = [each for number in last for each in catalog.between(number, first[number], last[number])]
        tasks = [Task(each) for each in divided(stretches, self._settings.tasks)]
        ends = tuple(
            number
            for number, files in catalog.files.items()
            if not self._settings.follow and first[number] < last[number] == (len(files), 0)
        )
        if ends:
            tasks = [*tasks[:-1], replace(tasks[-1], ends=ends)] if tasks else [Task((), ends)]
        return tasks

    def _listed(self) -> Catalog:
        if self._catalog is None:
            self._catalog = self._settings.catalog()
        return self._catalog

    def _forward(self, start: dict[int, Place], size: int | None) -> dict[int, Place]:
        """So many bytes on in all streams together, so that all end at about the same time.

        Streams of listed files go to the same part of their bytes each; one that is ahead, since a file is read whole,
        waits.  Where files are still coming, each goes on by the same part of what it has left.
        """
        catalog = self._listed()
        done = {number: catalog.size(number, place) for number, place in start.items()}
        sizes = {number: catalog.size(number) for number in start}
        left = sum(sizes.values()) - sum(done.values())
        if size is not None:
            size = min(size, self._course.size)
        if size is None or size >= left:
            return {number: catalog.forward(number, place, sizes[number]) for number, place in start.items()}
        if self._settings.follow:
            steps = {number: ceil(size * (sizes[number] - done[number]) / left) for number in start}
        else:
            part = (sum(done.values()) + size) / sum(sizes.values())
            steps = {number: ceil(part * sizes[number]) - done[number] for number in start}
        return {number: catalog.forward(number, place, steps[number]) for number, place in start.items()}

    def _done(self, places: dict[int, Place]) -> int:
        return sum(self._listed().size(number, place) for number, place in places.items())

    # ------------------------------------------------------------ in a worker

    def read(self, partition: Task) -> Iterator[pyarrow.RecordBatch]:  # type: ignore[override]
        found = read_ahead.taken(partition.name(self._text)) if partition.size >= LEAST_AHEAD else None
        yield from self._read(partition) if found is None else found
        following = partition.following
        if following is not None:
            read_ahead.begin(following.name(self._text), lambda: self._read(following), ARRIVING)

    def _read(self, task: Task) -> Iterator[pyarrow.RecordBatch]:
        with _READING:
            workers = _workers(self._text)
            numbers = iter(range(1 << 62))
            for stream in dict.fromkeys(each.stream for each in task.stretches):
                stretches = [each for each in task.stretches if each.stream == stream]
                yield from workers[stream].read(stretches, numbers)
            for stream in task.ends:
                yield table(workers[stream].packer.ends())


_READING = Lock()
"""A process reads one task at a time, now or ahead."""


class Course:
    """How fast micro-batches are worked off, and so how large the next ones may be."""

    def __init__(self) -> None:
        self.size = FIRST_BYTES
        """Bytes that the next one may have."""
        self._last: tuple[int, float] | None = None

    def at(self, done: int, now: float) -> None:
        """So many bytes are done, and more is asked for."""
        if self._last is not None and done > self._last[0]:
            bytes, seconds = done - self._last[0], now - self._last[1]
            growth = min(BATCH_SECONDS / max(seconds - BATCH_OVERHEAD, 0.001), MOST_GROWTH)
            self.size = max(int(bytes * growth), FIRST_BYTES)
        self._last = done, now


def divided(stretches: list[Stretch], tasks: int) -> Iterator[tuple[Stretch, ...]]:
    """The same bytes in the same order as about so many parts of about the same size."""
    size = max(ceil(sum(each.end - each.start for each in stretches) / tasks), LEAST_TASK)
    part: list[Stretch] = []
    room = size
    for each in stretches:
        rest = each
        while rest.file.lines and rest.end - rest.start > room:
            yield (*part, replace(rest, end=rest.start + room))
            rest, part, room = replace(rest, start=rest.start + room), [], size
        part.append(rest)
        room -= rest.end - rest.start
        if room <= 0:
            yield tuple(part)
            part, room = [], size
    if part:
        yield tuple(part)


def _places(offset: Offset) -> dict[int, Place]:
    return {int(number): (file, byte) for number, (file, byte) in offset.items()}


def _offset(places: dict[int, Place]) -> Offset:
    return {str(number): [*place] for number, place in places.items()}


@lru_cache(maxsize=4)
def _settings(text: str) -> Settings:
    told = json.loads(text)
    streams = tuple(
        (number, read_declaration(declaration), tuple(map(read_wanted, wants)), told_template(template))
        for number, declaration, wants, template in told["streams"]
    )
    changed = {int(number): choice for number, choice in told["changed"].items()}
    return Settings(**{**told, "streams": streams, "changed": changed})


@lru_cache(maxsize=4)
def _workers(text: str) -> dict[int, _Worker]:
    """One for each stream in each process; Spark uses a process for many tasks."""
    settings = _settings(text)
    terms = new_terms()
    return {
        number: _Worker(
            declaration,
            template,
            Packer(
                number,
                wants,
                iri=declaration.iri,
                future=declaration.future if declaration.future is not None or not settings.follow else FUTURE,
                strict=settings.strict,
                terms=terms,
            ),
            changed=settings.changed[number],
            follow=settings.follow,
        )
        for number, declaration, wants, template in settings.streams
    }


class _Worker:
    """Reads stretches of one stream."""

    def __init__(
        self,
        declaration: StreamDeclaration,
        template: Template | None,
        packer: Packer,
        *,
        changed: Changed = "stop",
        follow: bool = False,
    ) -> None:
        self._changed = changed
        self._follow = follow
        self._declaration = declaration
        self._template = template
        self.packer = packer
        self._counted: dict[str, tuple[int, int]] = {}

    def read(self, stretches: list[Stretch], numbers: Iterator[int]) -> Iterator[pyarrow.RecordBatch]:
        """The rows of stretches that follow each other. Small files share a block, if each begins where another ends.

        The place of a block is the files that it has elements of (`row_schemas.py`).
        """
        parts: list[Batch] = []
        size, latest = 0, EARLIEST
        first = last = stretches[0]
        rejected: list[Row] = []

        def rows() -> Iterator[pyarrow.RecordBatch]:
            place = place_of(first.sequence, last.sequence)
            blocks = self.packer.blocks(Batch.concatenate(parts), place, first.position, next(numbers))
            if made := [*blocks, *rejected]:
                yield table(made)
            parts.clear()
            rejected.clear()
            self.packer.tidy()

        for stretch in stretches:

            def reject(told: Rejected, at: int = stretch.position) -> None:
                rejected.append(self.packer.rejected(told, at, next(numbers)))

            if not self._is_there(stretch, reject):
                continue
            for batch in self._batches(stretch, reject):
                if not len(batch):
                    continue
                if parts and stretch.sequence != last.sequence:
                    is_next = stretch.sequence > last.sequence and last.is_whole and stretch.is_whole
                    if not is_next or int(batch.times.min()) < latest:
                        yield from rows()
                if not parts:
                    size, latest, first = 0, EARLIEST, stretch
                last = stretch
                parts.append(batch)
                size += len(batch) + len(batch.triples) // 3
                latest = max(latest, int(batch.times.max()))
                if size >= BLOCK_SIZE or len(rejected) >= MOST_REJECTED:
                    yield from rows()
        yield from rows()

    def _is_there(self, stretch: Stretch, reject: Reject) -> bool:
        """Whether a stretch can be read. What there is to tell of its file is told."""
        file = stretch.file
        if file.note and stretch.start == file.start:
            reject(Rejected(self._declaration.iri, file.path, file.note, ""))
        if stretch.start == stretch.end:
            return False
        change = file.change()
        if change is None:
            return True
        if self._changed == "stop":
            raise refuse_change(file.path, change)
        again = self._changed == "reread" and not self._follow and Path(file.path).exists()
        what = "it is read as it is now" if again else f"bytes {stretch.start} to {stretch.end} of it are left out"
        reject(Rejected(self._declaration.iri, file.path, f"{change}: {what}", ""))
        return again

    def _batches(self, stretch: Stretch, reject: Reject) -> Iterator[Batch]:
        path = Path(stretch.file.path)
        stream, intake = self.packer.stream, self.packer.intake
        if not stretch.file.lines:
            yield from self._whole_or_part(stretch, reject)
            return
        with reading(path), path.open("rb") as file:
            begin = seek_line(file, stretch.start)

            def malformed(line: int, reason: str, text: str) -> None:
                place = f"{path}:{self._lines_before(path, begin) + line + 1}"
                reject(Rejected(self._declaration.iri, place, reason, text))

            size = max(0, stretch.end - begin)
            found = line_batches(
                self._declaration, path, chunks_of(file, start=begin, size=size), stream, intake, malformed
            )
            yield from found

    def _whole_or_part(self, stretch: Stretch, reject: Reject) -> Iterator[Batch]:
        """Of a file that has no lines to be cut between: all of it, or records that a pace or an appender cut off."""
        path = Path(stretch.file.path)
        stream, intake = self.packer.stream, self.packer.intake
        if stretch.file.kind == "whole" and stretch.is_whole:
            yield from file_batches(self._declaration, path, self._template, stream, intake, reject)
            return
        assert self._template is not None
        read = record_batches if format_of(self._declaration, path) == "csv" else object_batches
        try:
            with reading(path), path.open("rb") as file:
                yield from read(
                    self._declaration,
                    path,
                    self._template,
                    file,
                    stream,
                    intake,
                    reject,
                    start=stretch.start,
                    end=stretch.end,
                    lines_before=lambda byte: self._lines_before(path, byte),
                )
        except UnreadableFile as error:
            reject(Rejected(self._declaration.iri, str(path), error.reason, ""))

    def _lines_before(self, path: Path, byte: int) -> int:
        """The lines of a file that end before a byte, counted on from where it was counted last."""
        at, lines = self._counted.get(str(path), (0, 0))
        if at > byte:
            at, lines = 0, 0
        with path.open("rb") as file:
            file.seek(at)
            while at < byte:
                data = file.read(min(_COUNTED, byte - at))
                lines += data.count(b"\n")
                at += len(data)
        self._counted = {str(path): (at, lines)}
        return lines
