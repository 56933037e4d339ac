"""Damaged snapshots and checkpoints: refused with a sentence, or nothing of what was kept is any different."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

from pyoxigraph import Literal, NamedNode

import cqels
from cqels.ingest import Element, StreamSettings, declare
from cqels.model.errors import CqelsError
from cqels.model.time import SECOND
from cqels.pipeline.instance.program import Dataset, Origin
from cqels.pipeline.sink.exactly_once_file import GrowingFile, read_progress
from cqels.pipeline.source.file_catalog import Catalog
from cqels.plan.algebra import Values
from cqels.plan.partitioning import partition_query
from cqels.plan.prepare import prepare
from cqels.spark.driver.checkpoint import Checkpoint, Manifest, checksums
from cqels.spark.driver.global_stages import CheckpointedStage, LastFilesIndex, PartOutput
from cqels.spark.operator import stateful_processor
from cqels.spark.operator.state_layouts import FIVE_VARIABLES, TWO_VARIABLES
from cqels.store.dataset import Store

from ..spark.piped import Piped
from ..spark.test_partitioning import MANY, payload
from .damage import damaged
from .harness import Kind, shown

EX = "http://ex.org/"
P = f"PREFIX : <{EX}> "
QUERIES = {
    "join": "SELECT ?s ?v ?o { STREAM :a [RANGE 1s] { ?s :p ?v } STREAM :b [RANGE 1s] { ?s :q ?o } ?s :in ?r }",
    "sum": "SELECT ?s (SUM(?v) AS ?x) { STREAM :a [RANGE 2s SLIDE 100ms] { ?s :p ?v } } GROUP BY ?s",
    "top": "SELECT ?s ?v { STREAM :a [TRIPLES 20] { ?s :p ?v } } ORDER BY ?v LIMIT 3",
    "made": "CONSTRUCT { ?s :r ?v } { STREAM :a [RANGE 3s] { ?s :p ?v } OPTIONAL { STREAM :b [NOW] { ?s :q ?v } } }",
}


# ---------------------------------------------------------------- snapshots


def engine() -> cqels.Engine:
    made = cqels.Engine(size=1 << 26)
    made.stream(EX + "a", lateness="50ms")
    made.stream(EX + "b")
    made.update(f"INSERT DATA {{ <{EX}s1> <{EX}in> <{EX}r> }}")
    for name, text in QUERIES.items():
        made.register(P + text, name=name)
    return made


def feed(made: cqels.Engine, start: int, count: int) -> None:
    random = Random(start)
    for number in range(count):
        time = f"{start + 10 * number}ms"
        made.push(EX + "a", f"<{EX}s{random.randrange(5)}> <{EX}p> {random.randrange(100)} .", time=time)
        made.push(EX + "b", f"<{EX}s{random.randrange(5)}> <{EX}q> <{EX}o{random.randrange(9)}> .", time=time)


def sent(made: cqels.Engine) -> list[Any]:
    feed(made, 1000, 20)
    return [(query.name, result) for query in made.queries for result in query.take()]


@cache
def snapshot() -> tuple[bytes, list[Any]]:
    """A snapshot, and what is sent by an engine that goes on from it."""
    with engine() as made:
        feed(made, 0, 100)
        data = made.snapshot()
    with engine() as made:
        made.restore(data)
        return data, sent(made)


def draw_snapshot(random: Random) -> bytes:
    return damaged(snapshot()[0], random)


def check_snapshot(case: bytes) -> None:
    with engine() as made:
        try:
            made.restore(case)
        except CqelsError as error:
            shown(error)
            made.restore(snapshot()[0])  # what was refused has changed nothing
        assert sent(made) == snapshot()[1]


SNAPSHOTS = Kind("snapshots", draw_snapshot, check_snapshot, "snapshot")


# ---------------------------------------------------------------- checkpoints


@dataclass(frozen=True)
class Kept:
    """Some bytes of a checkpoint, and a function that takes up what they may have become."""

    data: bytes
    read: Callable[[bytes], Any]


def of_file(path: Path, read: Callable[[], Any]) -> Kept:
    content = path.read_bytes()

    def taken_up(data: bytes) -> Any:
        path.write_bytes(data)
        try:
            return read()
        finally:
            path.write_bytes(content)

    return Kept(content, taken_up)


@cache
def kept() -> dict[str, Kept]:
    """All files that a checkpoint has, and the values of the engines' state."""
    folder = Path(mkdtemp(prefix="cqels-fuzz-"))
    return {**manifests(folder), **lists(folder), **rests(folder), **outputs(folder), **states()}


def manifests(folder: Path) -> dict[str, Kept]:
    checkpoint = Checkpoint(folder / "checkpoint")
    store = Store()
    (folder / "rooms.ttl").write_text(f'@prefix : <{EX}> . :s1 :in _:kitchen . _:kitchen :name "kitchen" .')
    store.load(folder / "rooms.ttl")
    dataset = Dataset.of(store)
    checkpoint.dataset(dataset)
    streams = [{"iri": EX + "a", "lateness": 5, "idle": 0, "arrival": False, "ends": True}]
    manifest = Manifest(
        "1", 2, [0, 3], 0, streams, dataset.digest, {"q": "1f", "r": "2e"}, {"q": 2}, placed={"q": 0, "r": 1}
    )
    checkpoint.write(manifest)
    row = (NamedNode(EX + "a"), Literal("x", language="en"), None)
    checkpoint.keep_answers({"key": Values(("s", "o", "n"), (row,))}, manifest)
    origin = Origin(('{"drop": "q"}',), {"q": "1f"}, os.urandom(500)).written()
    spark = folder / "checkpoint" / "spark"
    for name in ("offsets/0", "offsets/1", "commits/0"):
        hadoop(spark / name, name.encode() * 100)
    files = folder / "checkpoint"
    offset = spark / "offsets" / "1"
    return {
        "manifest": of_file(files / "cqels.json", checkpoint.read),
        "data": of_file(files / "data.nq", lambda: checkpoint.dataset(dataset)),
        "services": of_file(files / "services", lambda: checkpoint.answers(manifest)),
        "origin": Kept(origin, Origin.read),
        "offsets": of_file(offset, lambda: (checkpoint.tidy(), offset.read_bytes())),
        "checksum": of_file(offset.with_name(".1.crc"), lambda: (checkpoint.tidy(), offset.read_bytes())),
    }


def hadoop(path: Path, content: bytes) -> None:
    """A file as Hadoop writes it, with its checksums beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.with_name(f".{path.name}.crc").write_bytes(checksums(content))


def lists(folder: Path) -> dict[str, Kept]:
    """The list of files of the streams."""
    for name in ("one", "two", "three"):
        (folder / f"{name}.nt").write_text(f"<x:s> <x:p> <x:{name}> 1000 .\n")
    streams = {number: declare(EX + "a", folder / f"{name}.nt") for number, name in enumerate(("one", "two", "three"))}
    Catalog(folder / "files", streams).create(follow=False)

    def read() -> list[Any]:  # a cut last line is forgotten, unless it was read
        listed = Catalog(folder / "files", streams)
        return [list(listed.ranges(number, (0, 0), (1, 0))) for number in streams]

    return {"files": of_file(folder / "files" / "files.jsonl", read)}


def rests(folder: Path) -> dict[str, Kept]:
    """What is kept of a spread query, micro-batch by micro-batch."""
    query = prepare(MANY, name="many", emit="changes")
    rest = partition_query(query).global_stage
    assert rest is not None
    stage, there = CheckpointedStage(query, rest, folder / "rest"), set[tuple[int, int]]()
    for number in range(4):
        now = {(number, number), (number, 1)}
        stage.process(number, [PartOutput([payload(number, there, now)], 7)])
        there = now
    stage.close()
    LastFilesIndex(folder / "rests.json").write({"rest": stage.last})

    def again() -> list[Any]:
        taken = CheckpointedStage(
            query, rest, folder / "rest", last=LastFilesIndex(folder / "rests.json").read()["rest"]
        )
        try:
            made = taken.process(4, [PartOutput([payload(4, there, {(5, 5)})], 7)])
            return [] if made is None else [*made.results()]
        finally:
            taken.close()
            (folder / "rest" / "4").unlink(missing_ok=True)

    names = {f"rest {number}": folder / "rest" / str(number) for number in range(4)}
    return {name: of_file(path, again) for name, path in {**names, "rest last": folder / "rests.json"}.items()}


def outputs(folder: Path) -> dict[str, Kept]:
    """How far a file of results has come."""
    path = folder / "results.csv"
    growing = GrowingFile(path, b"head\n", run="run")
    growing.append(0, lambda before: (b"one\n", before + 1))
    growing.close()
    side = folder / ".results.csv.progress"
    return {"progress": of_file(side, lambda: read_progress(side))}


def states() -> dict[str, Kept]:
    """What Spark keeps for an engine: each value of each variable, and all values with one gone or there twice."""
    before = stateful_processor.LEAST_LOG
    stateful_processor.LEAST_LOG = 2000
    try:
        layouts = {layout: running(layout) for layout in (FIVE_VARIABLES, TWO_VARIABLES)}
        wholes = {layout: copy.deepcopy(piped._kept[7]) for layout, piped in layouts.items()}
    finally:
        stateful_processor.LEAST_LOG = before
    found = {
        f"state {layout}-{name} {number}": Kept(data, stated(layouts[layout], whole, name, number, place, kind))
        for layout, whole in wholes.items()
        for name, values in whole.items()
        for number, entry in enumerate(values if isinstance(values, list) else [values])
        for place, value in enumerate(entry)
        if (kind := type(value)) in (str, bytes) and (data := value.encode() if kind is str else value)
    }
    expected = {"1-head", "1-commands", "1-log", "1-snapshot", "2-head", "2-entries"}
    assert {name.split()[1] for name in found} >= expected, [*found]
    return found


def running(layout: int) -> Piped:
    streams = [StreamSettings(EX + "a", lateness=SECOND // 20), StreamSettings(EX + "b")]
    piped = Piped(Store(), streams, size=5, layout=layout)
    for name, text in QUERIES.items():
        piped.register(prepare(P + text, name=name))
    push(piped, 0, 60)
    piped.register(prepare(P + QUERIES["top"].replace("20", "5"), name="last"))
    push(piped, 600, 10)
    return piped


def push(piped: Piped, start: int, count: int) -> None:
    random = Random(start)
    for number in range(count):
        for stream, name in (("a", "p"), ("b", "q")):
            triple = (NamedNode(f"{EX}s{random.randrange(5)}"), NamedNode(EX + name), Literal(random.randrange(9)))
            piped.push(Element(EX + stream, (start + 10 * number) * SECOND // 1000, (triple,)))


def stated(piped: Piped, whole: Any, name: str, number: int, place: int, kind: type) -> Callable[[bytes], Any]:
    def taken_up(data: bytes) -> Any:
        try:
            value = data.decode() if kind is str else data
        except UnicodeDecodeError:  # Spark's strings cannot be that
            raise CqelsError("not a string") from None
        changed = copy.deepcopy(whole)
        entries = changed[name] if isinstance(changed[name], list) else [changed[name]]
        entries[number] = (*entries[number][:place], value, *entries[number][place + 1 :])
        changed[name] = entries if isinstance(changed[name], list) else entries[0]
        piped._kept = {7: changed}
        piped._forget(memory=True)
        piped._waiting = []
        for asked in piped._queries.values():
            asked.sent, asked.next = [], None
        push(piped, 2000, 5)
        piped._flush()
        return {asked.name: asked.take() for asked in piped._queries.values()}

    return taken_up


@cache
def undamaged(target: str) -> Any:
    return kept()[target].read(kept()[target].data)


def draw_checkpoint(random: Random) -> bytes:
    groups = sorted({name.split()[0] for name in kept()})
    group = random.choice([*groups, "state"])
    target = random.choice([name for name in kept() if name.split()[0] == group])
    return target.encode() + b"\n" + damaged(kept()[target].data, random)


def check_checkpoint(case: bytes) -> None:
    target, _, data = case.partition(b"\n")
    name = target.decode()
    expected = undamaged(name)
    try:
        found = kept()[name].read(data)
    except CqelsError as error:
        shown(error)
        return
    assert found == expected, name


CHECKPOINTS = Kind("checkpoints", draw_checkpoint, check_checkpoint, "data")
