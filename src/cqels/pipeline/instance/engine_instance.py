"""An engine instance, which the stateful operator drives: blocks and commands in, results out, state as snapshots.

Nothing here needs Spark: `stateful_processor.py` keeps the state in Spark's state store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow

from cqels.engine.engine import Engine
from cqels.engine.event_time.stream_merge import Files, Merge
from cqels.engine.output.arrow_columns import terms_of
from cqels.engine.query_handle import StandingQuery
from cqels.engine.state.snapshot import Aside
from cqels.engine.state.window_contents import MOST_WORDS
from cqels.ingest import Rejected
from cqels.ingest.element_batch import Batch
from cqels.ingest.punctuations import placed
from cqels.model.checksummed import Bytes, seal, unseal
from cqels.model.dictionary import term_of
from cqels.model.errors import OtherLayouts
from cqels.pipeline.instance.instance_commands import (
    Arrival,
    answers_command,
    changes_quads,
    dataset_change,
    difference,
    hash_commands,
    passes,
    registered_query,
    settings_of_json,
    stops_in,
)
from cqels.pipeline.instance.program import Dataset, Program
from cqels.pipeline.lift.block_format import unpack
from cqels.pipeline.lift.row_schemas import files_of_sequence
from cqels.plan.algebra import Query
from cqels.plan.plan_json import read
from cqels.store.dataset import Store
from cqels.store.service_answers import Answers, KnownAnswers

MOST_RESULTS = 1 << 17
"""Results in one row."""
_SAVED = "SV"
"""The kind of a snapshot under its seal."""
_STATE = "the state of an engine in the checkpoint"
_ANEW = "begin with a new checkpoint"


@dataclass(frozen=True, slots=True)
class ResultChunk:
    """Some results of a query: how many it had sent before, how many these are, and an Arrow stream of them."""

    query: str
    number: int
    count: int
    payload: bytes


@dataclass
class Report:
    """What an instance did in a micro-batch, with the elements and results of each query; JSON for the driver."""

    elements: int = 0
    triples: int = 0
    late: int = 0
    time: int | None = None
    """Of the last element that was given to the queries."""
    seconds: float = 0.0
    queries: dict[str, dict[str, int]] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    """The queries that took more than their budgets, in this micro-batch or before, with the reasons."""
    sent: dict[str, int] = field(default_factory=dict)
    """How many results the parts of partitioned queries had sent before this micro-batch."""
    began: dict[str, int] = field(default_factory=dict)
    """The number of the first element that these could see."""
    latest: dict[str, int] = field(default_factory=dict)
    """The latest times of elements, by the numbers of streams, if some stream follows the wall clock."""


class Instance:
    """An engine, and the commands that it has executed."""

    def __init__(self, program: Program, memory: Path | None = None, commands: Sequence[str] = ()) -> None:
        """An engine that is then restored or attached, and had executed these `commands`; or a new one.

        `memory` is the file of the engine's arena.
        """
        self.program = program
        self._late: list[Rejected] = []
        store = program.dataset.store()
        store.services = self._services = KnownAnswers(lambda: self.program.answers)
        self._stopped: list[StandingQuery] = []
        self._engine = Engine(
            store=store, start=program.start, memory=memory, reject=self._late.append, stopped=self._stopped.append
        )
        self._sources = list(program.sources or range(len(program.streams)))
        self._merge = Merge(len(self._sources), program.bounded)
        self._files = {source: Files(firsts) for source, firsts in sorted(program.firsts.items())}
        self._interleaving: dict[int, Merge] = {}
        """The merges of sources that have several sequences, while these are read."""
        self._engine.internals.hold(
            lambda: [each.waiting().triples for each in (*self._merges(), *self._interleaving.values())]
        )
        self._finished = False
        self._sent: dict[str, int] = {}
        self._began: dict[str, int] = {}
        self._dropped: list[StandingQuery] = []
        self.commanded = hash_commands(commands)
        """A hash of all commands that were executed, by which instances are compared."""
        self._registrations: dict[str, str] = {}
        """The commands that registered the queries that run."""
        self._changes = [each for each in commands if changes_quads(json.loads(each))]
        """Those that changed the graphs of the dataset."""
        self.prints: dict[str, str] = {}
        """The queries that run: their names, and the fingerprints of those that are the program's."""
        self._added: list[str] = []
        """The commands that added streams and sources."""
        self._streams = [each.iri for each in program.streams]
        """Those that have sources, by their numbers in commands."""
        for each in program.streams:
            self._engine.internals.declare(each)
        running: dict[str, str] = {}
        for text in commands:
            command = json.loads(text)
            if self._extend(text):
                continue
            if "register" in command:
                running[command["register"]] = text
            elif "drop" in command:
                del running[command["drop"]]
            elif change := dataset_change(command):
                change(store)
        for text in running.values():
            self._register(text)
        self._stopped.clear()  # what is restored or attached knows which were

    @classmethod
    def rebuild(
        cls,
        program: Program,
        commands: Sequence[str],
        saved: bytes,
        log: Iterable[tuple[int, int, str, bytes | None, str | None]] = (),
        memory: Path | None = None,
    ) -> Instance:
        """Rebuild an engine from the state store: its commands, its snapshot, and the log of what arrived since."""
        made = cls(program, memory, commands)
        if saved:
            made.restore(saved)
        made.repeat(
            (batch, Arrival(stream, sequence, None if block is None else bytes(block), command))
            for batch, stream, sequence, block, command in log
        )
        return made

    # ------------------------------------------------------------ a micro-batch

    def advance(self, arrivals: Iterable[Arrival]) -> Report:
        """Process what has arrived in a micro-batch: the streams in their order, commands where they stand."""
        began, late = perf_counter(), self._engine.late
        report = Report()
        for is_command, some in groupby(arrivals, key=lambda each: each.command is not None):
            if is_command:
                for each in some:
                    self._execute(each.command or "")
            else:
                self._arrive(some, report)
        self._finish()
        report.late = self._engine.late - late
        report.stopped = {query.name: query.stopped for query in self._engine.queries if query.stopped is not None}
        report.sent = {name: self._sent.get(name, 0) for name in self.program.parts}
        report.began = {name: self._began.get(name, 0) for name in self.program.parts}
        report.seconds = perf_counter() - began
        return report

    def _arrive(self, arrivals: Iterable[Arrival], report: Report) -> None:
        blocks: dict[int, dict[str, list[bytes]]] = {}
        for each in arrivals:
            if each.block is None:
                self._merge.end(each.stream)
                if each.stream in self._files:
                    blocks.setdefault(each.stream, {})
            else:
                blocks.setdefault(each.stream, {}).setdefault(each.sequence, []).append(each.block)
        numbers = {self._engine.internals.number_of(iri): number for number, iri in enumerate(self._streams)}
        counts = np.zeros(1 + max(numbers, default=-1), np.int64)
        reading = [query for query in self._engine.queries if query.stopped is None]
        sources = {source: self._unpacked(source, sequences, report) for source, sequences in blocks.items()}
        for due in self._merge.flow(sources):
            self._engine.internals.push_batch(due, lifted=True)
            report.time = int(due.times[-1])
            counts += np.bincount(due.streams[due.streams >= 0], minlength=len(counts))
            if self._engine.internals.wall_clock.is_needed:
                _note_latest(report.latest, due, numbers)
        for query in reading:
            counts_of = report.queries.setdefault(query.name, {"in": 0, "out": 0})
            counts_of["in"] += int(sum(counts[each] for each in query.running.streams if each < len(counts)))

    def _unpacked(self, source: int, sequences: Mapping[str, list[bytes]], report: Report) -> Iterator[Batch]:
        """The blocks of a source one by one; those of several sequences merged by time."""
        batches_of = {name: self._read(source, blocks) for name, blocks in sorted(sequences.items())}
        if source in self._files:
            batches = self._of_files(source, batches_of)
        elif len(batches_of) == 1:
            batches = next(iter(batches_of.values()))
        else:
            merge = self._interleaving[source] = Merge(len(batches_of))
            batches = merge.flow(dict(enumerate(batches_of.values())))
        for batch in batches:
            report.elements += len(batch)
            report.triples += len(batch.triples) // 3
            yield batch
        self._interleaving.pop(source, None)

    def _of_files(self, source: int, sequences: Mapping[str, Iterator[Batch]]) -> Iterator[Batch]:
        """What is due of files that are read one after the other, to the end of all if the source has ended."""
        files = self._files[source]
        for sequence, batches in sequences.items():
            for batch in batches:
                files.go_on(*files_of_sequence(sequence), batch)
                yield files.due()
        if source not in self._merge.awaited:
            files.end_before(len(self.program.firsts[source]))
            yield files.due()

    def _read(self, source: int, blocks: Iterable[bytes]) -> Iterator[Batch]:
        stream = self._engine.internals.number_of(self._streams[self._sources[source]])
        for block in blocks:
            batch = unpack(block, self._engine.internals.dictionary)
            yield placed(batch, stream)  # a block that was pushed says nothing of its source

    def _execute(self, text: str) -> None:
        if not passes(text):
            self.commanded = hash_commands([text], self.commanded)
        command = json.loads(text)
        if "register" in command:
            self._register(text)
        elif "drop" in command:
            self._dropped.append(self._engine.query(command["drop"]))
            self._engine.drop(command["drop"])
            del self.prints[command["drop"]], self._registrations[command["drop"]]
        elif "heartbeat" in command:
            stream = command.get("stream")
            number = None if stream is None else self._engine.internals.number_of(self._streams[stream])
            subject = command.get("subject")
            self._engine.internals.promise(command["heartbeat"], number, None if subject is None else term_of(subject))
        elif self._extend(text):
            return
        elif "finish" in command:
            self._engine.finish()
        elif change := dataset_change(command):
            self._engine.update(change)
            self._engine.refresh()
            if changes_quads(command):
                self._changes.append(text)

    def _extend(self, text: str) -> bool:
        """Add a stream or a source, if a command asks for that."""
        command = json.loads(text)
        if "declare" in command:
            settings = settings_of_json(command["declare"])
            self._engine.internals.declare(settings)
            self._streams.append(settings.iri)
        elif "source" in command:
            self._sources.append(command["source"])
            self._merge.extend()
        else:
            return False
        self._added.append(text)
        return True

    def _register(self, text: str) -> None:
        command = json.loads(text)
        name, query = command["register"], read(command["query"])
        self._registrations[name] = text
        self._engine.register(  # what may have been dropped since then was there when the query was added
            query, declare=False, check_graphs=False, memory=command.get("memory"), time=command.get("time")
        )
        self.prints[name] = command["print"]
        self._sent.setdefault(name, 0)
        self._began[name] = self._engine.internals.number

    def _finish(self) -> None:
        """Once all streams have ended, nothing is held back any more."""
        if self._finished or self._merge.awaited or len(self.program.bounded) < max(len(self._sources), 1):
            return
        self._finished = True
        self._engine.finish()
        if self.program.until is not None:
            self._engine.heartbeat(self.program.until)

    def taken(self) -> Iterator[ResultChunk]:
        """Take the results since the last call, query by query."""
        dropped, self._dropped = self._dropped, []
        for query in (*dropped, *self._engine.queries):
            if not query.running.has_sent:
                continue
            results = terms_of(query.running)
            for at in range(0, results.num_rows, MOST_RESULTS):
                part = results.slice(at, MOST_RESULTS)
                before = self._sent[query.name]
                self._sent[query.name] = before + part.num_rows
                yield ResultChunk(query.name, before, part.num_rows, _written(part))

    def stops(self) -> list[Arrival]:
        """The queries that were stopped since the last call, as commands for the log of what has arrived."""
        ends = [(query.name, query.running.stopped) for query in self._stopped]
        self._stopped.clear()
        commands = [json.dumps({"stop": name, **asdict(end)}) for name, end in ends if end is not None]
        self.commanded = hash_commands(commands, self.commanded)
        return [Arrival(command=command) for command in commands]

    def compact(self, *, least: int = 0) -> list[str]:
        """The commands that lead to the queries and the dataset that there are now, instead of all that were given.

        Changes of the dataset that have more than `least` bytes are put together, which takes a look at all of it.
        """
        changed = sum(map(len, self._changes)) > least
        if changed and (len(self._changes) > 1 or "update" in json.loads(self._changes[0])):
            self._changes = [self._difference()]
        answered = [answers_command(self._services.since)] if self._services.since else []
        running = (self._registrations[query.name] for query in self._engine.queries)
        commands = [*self._added, *answered, *self._changes, *running]
        self.commanded = hash_commands(commands)
        return commands

    def _difference(self) -> str:
        """The command that makes the program's dataset the one that there is now."""
        return difference(self.program.dataset, self.dataset)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many streams and sources it has."""
        return len(self._streams), len(self._sources)

    @property
    def registered(self) -> dict[str, Query]:
        """The queries that run, by their names, in the order of registration."""
        return {name: registered_query(text) for name, text in self._registrations.items()}

    @property
    def registrations(self) -> dict[str, str]:
        """The commands that registered them."""
        return dict(self._registrations)

    @property
    def answers(self) -> Answers:
        """What endpoints have answered since the beginning."""
        return dict(self._services.since)

    def explain(self, name: str, format: str = "text") -> str:
        """The plan of a query that runs, with what it has done."""
        return self._engine.query(name).explain(format)

    @property
    def store(self) -> Store:
        return self._engine.internals.store

    @property
    def dataset(self) -> Dataset:
        """The static data as it is now."""
        return Dataset.of(self._engine.internals.store)

    def late(self) -> list[Rejected]:
        """Take the elements that were late since the last call."""
        taken = list(self._late)
        self._late.clear()
        return taken

    @property
    def finished(self) -> bool:
        """All streams have ended."""
        return self._finished

    @property
    def watermark(self) -> int | None:
        """The event time up to which the queries have been evaluated."""
        return self._engine.time

    def limit(self, stream: str) -> int | None:
        """The time before which an element of a stream would be late now; None if none would."""
        internals = self._engine.internals
        number = internals.core.state.streams.get(stream)
        return None if number is None else internals.watermarks.limit(number)

    @property
    def held(self) -> int:
        """Elements that are held back until others have come."""
        return sum(len(each.waiting()) for each in self._merges()) + self._engine.held

    @property
    def state_bytes(self) -> int:
        return 8 * self._engine.internals.arena.held

    @property
    def query_bytes(self) -> dict[str, int]:
        """What the pipeline of each query holds; one that several have a part in counts for each of them."""
        arena, found = self._engine.internals.arena, {}
        for query in self._engine.queries:
            share = query.running.member
            unit = share.running if share is not None and share.made is not None else query.running
            found[query.name] = 8 * arena.held_in(unit.pipeline.heap) if unit.compiled is not None else 0
        return found

    # ------------------------------------------------------------ state

    def keep(self) -> None:
        """Write all state into the engine's arena, for the process that attaches it next."""
        self._fill_aside()
        self._engine.internals.keep()

    def attach(self, memory: Path) -> None:
        """Take over the arena of an instance that was kept."""
        self._engine.internals.attach(memory)
        self._restore_aside()

    def saved(self) -> bytes:
        """A snapshot of all its state, for `restore`."""
        self._fill_aside()
        data = self._engine.snapshot(most=MOST_WORDS)
        packed: bytes = pyarrow.compress(data, codec="zstd", asbytes=True)
        return seal(_SAVED, [len(data).to_bytes(8, "little"), packed])

    def restore(self, saved: bytes) -> None:
        """Take over the state of a snapshot."""
        size, packed = unseal(_SAVED, saved, _STATE, hint=_ANEW)
        data = pyarrow.decompress(packed, int.from_bytes(size, "little"), codec="zstd", asbytes=True)
        with _named_layouts():
            self._engine.restore(data)
        self._restore_aside()

    def parts(self) -> list[list[Bytes]]:
        """The same in parts, for `restore_parts`: they share the engine's memory, and are of this moment."""
        self._fill_aside()
        return self._engine.internals.snapshot_parts(most=MOST_WORDS)

    def restore_parts(self, page: bytes, arena: memoryview, history: bytes) -> None:
        """Take over the state of the parts of a snapshot."""
        with _named_layouts():
            self._engine.internals.restore_parts(page, arena, history)
        self._restore_aside()

    def again(self, arrivals: Sequence[Arrival]) -> Report:
        """Do once more what was done before, as the log has it: queries are stopped where they were then."""
        with self._engine.internals.obeying(stops_in(arrivals)):
            report = self.advance(arrivals)
        self._stopped.clear()  # the log has noted them
        return report

    def repeat(self, log: Iterable[tuple[int, Arrival]]) -> None:
        """Replay a log of numbered micro-batches; the results have been sent before, so they are only counted."""
        for _, entries in groupby(log, key=lambda entry: entry[0]):
            arrivals = [arrival for _, arrival in entries]
            self.again(arrivals)
            dropped, self._dropped = self._dropped, []
            for query in (*dropped, *self._engine.queries):
                if query.running.has_sent:
                    self._sent[query.name] += terms_of(query.running).num_rows
        self._late.clear()

    def _merges(self) -> tuple[Merge | Files, ...]:
        """All that hold elements back from one micro-batch to the next."""
        return self._merge, *self._files.values()

    def _fill_aside(self) -> None:
        waiting = [each.waiting() for each in self._merges()]
        note = {
            "merge": self._merge.state(),
            "files": [each.state() for each in self._files.values()],
            "waiting": [len(each) for each in waiting],
            "finished": self._finished,
            "sent": self._sent,
            "began": self._began,
        }
        self._engine.internals.aside = Aside(note, Batch.concatenate(waiting))

    def _restore_aside(self) -> None:
        aside, self._engine.internals.aside = self._engine.internals.aside, Aside()
        first, *others = aside.note["waiting"]
        self._merge.restore(aside.note["merge"], aside.elements[:first])
        for files, state, count in zip(self._files.values(), aside.note["files"], others, strict=True):
            files.restore(state, aside.elements[first : first + count])
            first += count
        self._finished = aside.note["finished"]
        self._sent, self._began = dict(aside.note["sent"]), dict(aside.note.get("began", {}))
        self._late.clear()


def _note_latest(latest: dict[str, int], batch: Batch, numbers: Mapping[int, int]) -> None:
    """`numbers` are those of streams in commands, by those that the engine has for them."""
    for stream in np.unique(batch.streams[batch.streams >= 0]).tolist():
        time = int(batch.times[batch.streams == stream].max())
        number = str(numbers[stream])
        latest[number] = max(time, latest.get(number, time))


@contextmanager
def _named_layouts() -> Iterator[None]:
    """Say what can be done where a snapshot cannot be taken over."""
    try:
        yield
    except OtherLayouts as error:
        hint = f"go on with cqels {error.release}, or {_ANEW}, which reads files from their beginning"
        raise OtherLayouts(_STATE, error.release, error.why, hint=hint) from None


def _written(results: pyarrow.RecordBatch) -> bytes:
    sink = pyarrow.BufferOutputStream()
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
    with pyarrow.ipc.new_stream(sink, results.schema, options=options) as writer:
        writer.write_batch(results)
    return bytes(sink.getvalue())
