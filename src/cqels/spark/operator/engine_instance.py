"""One engine of a pipeline: blocks in, results out; how it is made, kept and made again. Nothing here needs Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyoxigraph
from pyoxigraph import DefaultGraph, NamedNode, Quad, RdfFormat, parse, serialize

from cqels.engine.budgets import Budget, Stop
from cqels.engine.engine import Engine
from cqels.engine.event_time.stream_merge import Files, Merge
from cqels.engine.output.arrow_columns import terms_of
from cqels.engine.query_handle import StandingQuery
from cqels.engine.state.snapshot import Aside
from cqels.engine.state.window_contents import MOST_WORDS
from cqels.ingest import Rejected, StreamSettings
from cqels.ingest.element_batch import Batch
from cqels.model.checksummed import seal, unseal
from cqels.model.errors import OtherLayouts
from cqels.plan.algebra import Query
from cqels.plan.plan_json import fingerprint, read, write
from cqels.spark.lift.block_format import unpack
from cqels.spark.lift.row_schemas import files_at
from cqels.store.dataset import Store
from cqels.store.script import execute
from cqels.store.service_answers import Answers, KnownAnswers, answers_as_json, answers_of_json, read_answers

MOST_RESULTS = 1 << 17
"""Results that travel in one row."""
VERSION = 1
"""Of what is written here."""
_SAVED, _ORIGIN = "SV", "OR"
_STATE = "the state of an engine in the checkpoint"
_ANEW = "begin with a new checkpoint"


@dataclass(frozen=True, slots=True)
class Carried:
    """Bytes on their way to the engines: with each task, or in a file that each machine fetches once."""

    content: bytes = b""
    file: str | None = None
    """The name under which Spark knows it."""

    def read(self) -> bytes:
        if self.file is None:
            return self.content
        from pyspark.files import SparkFiles

        return Path(SparkFiles.get(self.file)).read_bytes()


@dataclass(frozen=True, slots=True)
class Dataset:
    """Static data on its way to the engines: N-Quads, and the names of all named graphs."""

    quads: Carried = Carried()
    graphs: tuple[str, ...] = ()

    @staticmethod
    def of(store: Store) -> Dataset:
        """The dataset of a store."""
        named = store.named_graphs()
        quads = [
            Quad(*triple, DefaultGraph() if graph is None else graph)
            for graph in (None, *named)
            for triple in store.triples(graph)
        ]
        text = serialize(quads, format=RdfFormat.N_QUADS) or b""
        return Dataset(Carried(text), tuple(name.value for name in named))

    @property
    def digest(self) -> str:
        """The same for the same data, whatever its blank nodes are called."""
        quads = self.quads.read()
        if self.has_blank_nodes:
            canonical = pyoxigraph.Dataset(parse(quads, RdfFormat.N_QUADS))
            canonical.canonicalize(pyoxigraph.CanonicalizationAlgorithm.RDFC_1_0)
            quads = serialize(canonical, format=RdfFormat.N_QUADS) or b""
        names = [name.encode() for name in self.graphs]
        return sha256(b"\n".join([*sorted(quads.splitlines()), *names])).hexdigest()

    @property
    def has_blank_nodes(self) -> bool:
        return b"_:" in self.quads.read()

    def store(self) -> Store:
        store = Store()
        for name in self.graphs:  # an empty one too
            store.create_graph(NamedNode(name))
        store.add(parse(self.quads.read(), RdfFormat.N_QUADS))
        return store


@dataclass(frozen=True, slots=True)
class Program:
    """What an instance runs: queries in the order of their registration, over streams in the order of their numbers.

    A task of Spark gets it with every micro-batch, and needs most of it only when something is new: so the queries are
    bytes.  A stream has one source or several, merged by time.  `bounded` are the sources that end: they are waited
    for, and when all have ended time goes on until `until`.
    """

    name: str
    digest: str
    """The same for the same queries."""
    queries: Carried
    streams: tuple[StreamSettings, ...]
    sources: tuple[int, ...] = ()
    """The stream of each source; each stream has one if nothing is said."""
    bounded: frozenset[int] = frozenset()
    firsts: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Of bounded sources of several files: the times of the files' first elements."""
    dataset: Dataset = field(default_factory=Dataset)
    start: int = 0
    until: int | None = None
    origin: Carried | None = None
    """An `Origin` to begin with."""
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    """Of the queries that have one, by their names."""
    parts: frozenset[str] = frozenset()
    """The queries that are parts of one that is spread."""
    services: Carried | None = None
    """What endpoints answered first, which engines do not ask themselves; what they answer later comes by commands."""

    @staticmethod
    def of(
        name: str,
        queries: Sequence[Query],
        streams: Iterable[StreamSettings],
        *,
        again: Mapping[str, int] | None = None,
        prints: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Program:
        """The program of some queries, all of which have names; some may come `again`, for so many times.

        `prints` are the fingerprints by which a checkpoint knows some.
        """
        known = {query.name or "": (prints or {}).get(query.name or "") or fingerprint(query) for query in queries}
        known = {name: f"{print}-{again[name]}" if again and name in again else print for name, print in known.items()}
        digest = sha256(json.dumps([*known.items()]).encode()).hexdigest()
        plans = {query.name: [known[query.name or ""], write(query)] for query in queries}
        return Program(name, digest, Carried(json.dumps(plans).encode()), tuple(streams), **options)

    @property
    def answers(self) -> Answers:
        """What endpoints answered first."""
        return {} if self.services is None else _answers(self.services)

    def read(self) -> dict[str, tuple[str, Query]]:
        """The queries by their names, each with its fingerprint."""
        return {name: (print, read(query)) for name, (print, query) in json.loads(self.queries.read()).items()}


@dataclass(frozen=True, slots=True)
class Origin:
    """What an instance begins with that takes queries over from another: what it is told, and all that was known."""

    commands: tuple[str, ...]
    prints: dict[str, str]
    saved: bytes

    def written(self) -> bytes:
        """For a file: the names of this class and its fields are not in it."""
        known = json.dumps({"version": VERSION, "commands": self.commands, "prints": self.prints})
        return seal(_ORIGIN, [known.encode(), self.saved])

    @staticmethod
    def read(data: bytes) -> Origin:
        known, saved = unseal(_ORIGIN, data, "what an engine begins with", hint=_ANEW)
        told = json.loads(bytes(known))
        return Origin(tuple(told["commands"]), told["prints"], bytes(saved))


class Arrival(NamedTuple):
    """A block of a source and the sequence of the source that it belongs to; or, with neither, the source's end.

    Or a command, which has no stream: `{"register": name, "query": …}` (`plan.plan_json`), with a fingerprint if it is
    the program's and the `memory` and `time` of its budget (`registration`); `{"drop": name}`; `{"heartbeat": time}`
    for all streams or one `stream`; `{"update": text}`, or what to `remove` and to `add` as N-Quads, and which `graphs`
    there are then; `{"answers": …}`, what endpoints answer now (`store.service_answers`); `{"finish": true}` if
    nothing is held back any more.  `{"stop": name, "reason": …, "ticks": …}` is not commanded but noted: a query
    took more than its budget in this micro-batch; when that is repeated, it is stopped after so many of its ticks.
    """

    stream: int = -1
    place: str = ""
    block: bytes | None = None
    command: str | None = None


def registration(query: Query, print: str = "", budget: Budget | None = None) -> str:
    """The command to register a query, which has a name; the fingerprint is that of one of the program.

    It has all of the query: an engine is made again with queries that are no longer there.
    """
    limits = {} if budget is None else {"memory": budget.memory, "time": budget.time}
    return json.dumps({"register": query.name, "print": print, "query": write(query), **limits}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Portion:
    """Some results of a query: how many it had sent before, how many these are, and an Arrow stream of them."""

    query: str
    number: int
    count: int
    payload: bytes


@dataclass
class Report:
    """What an instance did in a micro-batch; for each query, the elements of its streams and its results."""

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
    """How much queries had sent before this micro-batch that are parts of one."""
    began: dict[str, int] = field(default_factory=dict)
    """The number of the first element that these could see."""


class Instance:
    """An engine, and all that was commanded to it."""

    def __init__(self, program: Program, memory: Path | None = None, commands: Sequence[str] = ()) -> None:
        """An engine to be restored or attached, of which all this had been commanded; or a new one.

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
        self._sources = program.sources or tuple(range(len(program.streams)))
        self._merge = Merge(len(self._sources), program.bounded)
        self._files = {source: Files(firsts) for source, firsts in sorted(program.firsts.items())}
        self._interleaving: dict[int, Merge] = {}
        """The sequences of sources, while these are read."""
        self._engine.internals.hold(
            lambda: [each.waiting().triples for each in (*self._merges(), *self._interleaving.values())]
        )
        self._finished = False
        self._sent: dict[str, int] = {}
        self._began: dict[str, int] = {}
        self._dropped: list[StandingQuery] = []
        self.commanded = chained(commands)
        """The same for instances that all the same has been commanded."""
        self._registrations: dict[str, str] = {}
        """The commands that registered the queries that run."""
        self._changes = [each for each in commands if _is_of_quads(json.loads(each))]
        """Those that changed the graphs of the dataset."""
        self.prints: dict[str, str] = {}
        """The queries that run: their names, and the fingerprints of those that are the program's."""
        for each in program.streams:
            self._engine.internals.declare(each)
        running: dict[str, str] = {}
        for text in commands:
            command = json.loads(text)
            if "register" in command:
                running[command["register"]] = text
            elif "drop" in command:
                del running[command["drop"]]
            elif change := _change(command):
                change(store)
        for text in running.values():
            self._register(text)
        self._stopped.clear()  # what is restored or attached knows which were

    @classmethod
    def again(
        cls,
        program: Program,
        commands: Sequence[str],
        saved: bytes,
        log: Iterable[tuple[int, int, str, bytes | None, str | None]] = (),
        memory: Path | None = None,
    ) -> Instance:
        """An engine as the state store has it: commanded and saved, and what has arrived since (`evaluate`)."""
        made = cls(program, memory, commands)
        if saved:
            made.restore(saved)
        made.repeat(
            (batch, Arrival(stream, place, None if block is None else bytes(block), command))
            for batch, stream, place, block, command in log
        )
        return made

    # ------------------------------------------------------------ a micro-batch

    def advance(self, arrivals: Iterable[Arrival]) -> Report:
        """Go on by what has arrived in a micro-batch: the streams in their order, commands in their places."""
        began, late = perf_counter(), self._engine.late
        report = Report()
        for is_command, some in groupby(arrivals, key=lambda each: each.command is not None):
            if is_command:
                for each in some:
                    self._obey(each.command or "")
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
                blocks.setdefault(each.stream, {}).setdefault(each.place, []).append(each.block)
        counts = np.zeros(len(self.program.streams), np.int64)
        reading = [query for query in self._engine.queries if query.stopped is None]
        sources = {source: self._unpacked(source, places, report) for source, places in blocks.items()}
        for due in self._merge.flow(sources):
            self._engine.internals.push_batch(due)
            report.time = int(due.times[-1])
            counts += np.bincount(due.streams, minlength=len(counts))
        for query in reading:
            told = report.queries.setdefault(query.name, {"in": 0, "out": 0})
            told["in"] += int(sum(counts[each] for each in query.running.streams if each < len(counts)))

    def _unpacked(self, source: int, places: Mapping[str, list[bytes]], report: Report) -> Iterator[Batch]:
        """The blocks of a source one by one; those of several sequences merged by time."""
        sequences = {place: self._read(source, blocks) for place, blocks in sorted(places.items())}
        if source in self._files:
            batches = self._of_files(source, sequences)
        elif len(sequences) == 1:
            batches = next(iter(sequences.values()))
        else:
            merge = self._interleaving[source] = Merge(len(sequences))
            batches = merge.flow(dict(enumerate(sequences.values())))
        for batch in batches:
            report.elements += len(batch)
            report.triples += len(batch.triples) // 3
            yield batch
        self._interleaving.pop(source, None)

    def _of_files(self, source: int, sequences: Mapping[str, Iterator[Batch]]) -> Iterator[Batch]:
        """What is due of files that are read one after the other, to the end of all if the source has ended."""
        files = self._files[source]
        for place, batches in sequences.items():
            for batch in batches:
                files.go_on(*files_at(place), batch)
                yield files.due()
        if source not in self._merge.awaited:
            files.end_before(len(self.program.firsts[source]))
            yield files.due()

    def _read(self, source: int, blocks: Iterable[bytes]) -> Iterator[Batch]:
        stream = self._sources[source]
        for block in blocks:
            batch = unpack(block, self._engine.internals.dictionary)
            yield batch if stream == source else replace(batch, streams=np.full(len(batch), stream, np.int64))

    def _obey(self, text: str) -> None:
        self.commanded = chained([text], self.commanded)
        command = json.loads(text)
        if "register" in command:
            self._register(text)
        elif "drop" in command:
            self._dropped.append(self._engine.query(command["drop"]))
            self._engine.drop(command["drop"])
            del self.prints[command["drop"]], self._registrations[command["drop"]]
        elif "heartbeat" in command:
            stream = command.get("stream")
            self._engine.heartbeat(command["heartbeat"], None if stream is None else self._engine.streams[stream])
        elif "finish" in command:
            self._engine.finish()
        elif change := _change(command):
            self._engine.update(change)
            self._engine.refresh()
            if _is_of_quads(command):
                self._changes.append(text)

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

    def taken(self) -> Iterator[Portion]:
        """The results since the last time, query by query."""
        dropped, self._dropped = self._dropped, []
        for query in (*dropped, *self._engine.queries):
            if not query.running.has_sent:
                continue
            results = terms_of(query.running)
            for at in range(0, results.num_rows, MOST_RESULTS):
                part = results.slice(at, MOST_RESULTS)
                before = self._sent[query.name]
                self._sent[query.name] = before + part.num_rows
                yield Portion(query.name, before, part.num_rows, _written(part))

    def stops(self) -> list[Arrival]:
        """The queries that were stopped since the last time, as commands to be noted with what has arrived."""
        ends = [(query.name, query.running.stopped) for query in self._stopped]
        self._stopped.clear()
        commands = [json.dumps({"stop": name, **asdict(end)}) for name, end in ends if end is not None]
        self.commanded = chained(commands, self.commanded)
        return [Arrival(command=command) for command in commands]

    def compact(self) -> list[str]:
        """The commands that lead to the queries and the dataset that there are now, instead of all that were given."""
        if len(self._changes) > 1 or (self._changes and "update" in json.loads(self._changes[0])):
            self._changes = [self._difference()]
        answered = [answers_command(self._services.since)] if self._services.since else []
        commands = [*answered, *self._changes, *(self._registrations[query.name] for query in self._engine.queries)]
        self.commanded = chained(commands)
        return commands

    def _difference(self) -> str:
        """The command that makes the program's dataset the one that there is now."""
        before, now = self.program.dataset, Dataset.of(self._engine.internals.store)
        then, there = ({*each.quads.read().decode().splitlines()} for each in (before, now))
        removed, added = ("\n".join(sorted(each)) for each in (then - there, there - then))
        return json.dumps({"remove": removed, "add": added, "graphs": now.graphs})

    def late(self) -> list[Rejected]:
        """What was late since the last time."""
        taken = list(self._late)
        self._late.clear()
        return taken

    @property
    def finished(self) -> bool:
        """All streams have ended."""
        return self._finished

    @property
    def watermark(self) -> int | None:
        """The time that the queries have come to."""
        return self._engine.time

    @property
    def held(self) -> int:
        """Elements that wait for others."""
        return sum(len(each.waiting()) for each in self._merges()) + self._engine.held

    @property
    def state_bytes(self) -> int:
        return 8 * self._engine.internals.arena.held

    # ------------------------------------------------------------ state

    def keep(self) -> None:
        """Have all in the engine's memory, for whoever attaches it next."""
        self._put_aside()
        self._engine.internals.keep()

    def attach(self, memory: Path) -> None:
        """Go on in the memory of an instance that was kept."""
        self._engine.internals.attach(memory)
        self._take_up()

    def saved(self) -> bytes:
        """All it knows, to be restored from."""
        self._put_aside()
        data = self._engine.snapshot(most=MOST_WORDS)
        packed: bytes = pyarrow.compress(data, codec="zstd", asbytes=True)
        return seal(_SAVED, [len(data).to_bytes(8, "little"), packed])

    def restore(self, saved: bytes) -> None:
        """Be what was saved."""
        size, packed = unseal(_SAVED, saved, _STATE, hint=_ANEW)
        data = pyarrow.decompress(packed, int.from_bytes(size, "little"), codec="zstd", asbytes=True)
        try:
            self._engine.restore(data)
        except OtherLayouts as error:
            hint = f"go on with cqels {error.release}, or {_ANEW}, which reads files from their beginning"
            raise OtherLayouts(_STATE, error.release, error.why, hint=hint) from None
        self._take_up()

    def repeat(self, log: Iterable[tuple[int, Arrival]]) -> None:
        """Go on by what has arrived before, in numbered micro-batches; what that sends has been sent."""
        for _, entries in groupby(log, key=lambda entry: entry[0]):
            arrivals = [arrival for _, arrival in entries]
            with self._engine.internals.obeying(_stops(arrivals)):
                self.advance(arrivals)
            dropped, self._dropped = self._dropped, []
            for query in (*dropped, *self._engine.queries):
                if query.running.has_sent:
                    self._sent[query.name] += terms_of(query.running).num_rows
        self._late.clear()

    def _merges(self) -> tuple[Merge | Files, ...]:
        """All in which elements wait from one micro-batch to the next."""
        return self._merge, *self._files.values()

    def _put_aside(self) -> None:
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

    def _take_up(self) -> None:
        aside, self._engine.internals.aside = self._engine.internals.aside, Aside()
        first, *others = aside.note["waiting"]
        self._merge.restore(aside.note["merge"], aside.elements[:first])
        for files, state, count in zip(self._files.values(), aside.note["files"], others, strict=True):
            files.restore(state, aside.elements[first : first + count])
            first += count
        self._finished = aside.note["finished"]
        self._sent, self._began = dict(aside.note["sent"]), dict(aside.note.get("began", {}))
        self._late.clear()


@lru_cache(maxsize=8)
def _answers(services: Carried) -> Answers:
    return read_answers(services.read())


def _stops(arrivals: Iterable[Arrival]) -> dict[str, Stop]:
    """The ends of queries that were noted in a micro-batch."""
    commands = (json.loads(each.command) for each in arrivals if each.command is not None)
    return {each["stop"]: Stop(each["reason"], each["ticks"]) for each in commands if "stop" in each}


def _change(command: dict[str, Any]) -> Callable[[Store], object] | None:
    """The change of the dataset that a command is, if it is one."""
    if "update" in command:
        return lambda store: execute(store, command["update"])
    if "add" in command or "remove" in command:
        return lambda store: _changed(store, command)
    if "answers" in command:
        return lambda store: _known_answers(store).change(answers_of_json(command["answers"]))
    return None


def _is_of_quads(command: dict[str, Any]) -> bool:
    return "answers" not in command and _change(command) is not None


def _known_answers(store: Store) -> KnownAnswers:
    assert isinstance(store.services, KnownAnswers)
    return store.services


def answers_command(answers: Answers) -> str:
    """The command that tells what endpoints answer now."""
    return json.dumps({"answers": answers_as_json(answers)})


def _changed(store: Store, command: dict[str, Any]) -> None:
    """Remove and add quads, and have the graphs that there are to be."""
    removed, added = (list(parse(command.get(key, ""), RdfFormat.N_QUADS)) for key in ("remove", "add"))
    store.change(removed, added)
    if "graphs" in command:
        wanted, there = {*map(NamedNode, command["graphs"])}, {*store.named_graphs()}
        for name in wanted - there:
            store.create_graph(name)
        for name in there - wanted:
            store.clear_graph(name, drop=True)


def chained(commands: Iterable[str], before: str = "") -> str:
    """A hash of some commands behind others that have one."""
    for command in commands:
        before = sha256(f"{before}{command}".encode()).hexdigest()
    return before


def _written(results: pyarrow.RecordBatch) -> bytes:
    sink = pyarrow.BufferOutputStream()
    options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
    with pyarrow.ipc.new_stream(sink, results.schema, options=options) as writer:
        writer.write_batch(results)
    return bytes(sink.getvalue())
