"""Time that goes on in an engine: the wall clock, and promises that come with the elements."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import cqels
from cqels.engine.file_replay import replay
from cqels.ingest import Element, Rejected, StreamSettings, parse_declaration
from cqels.ingest.timed_lines import parse_timed_line
from cqels.model.errors import CqelsError
from cqels.model.time import SECOND
from cqels.pipeline.instance.engine_instance import Instance
from cqels.pipeline.instance.instance_commands import Arrival, registration
from cqels.pipeline.instance.program import Program
from cqels.pipeline.lift.block_writer import BlockWriter
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns, pushed_patterns
from cqels.plan.prepare import prepare
from cqels.reference.reference_engine import Reference
from cqels.reference.reference_replay import replay as reference_replay
from cqels.store.dataset import Store

OBS = "http://ex.org/obs"
OTHER = "http://ex.org/other"
S = SECOND
BEFORE = "<http://cqels.org/ns#noElementBefore>"
SILENT = f"ASK {{ FILTER NOT EXISTS {{ STREAM <{OBS}> [RANGE 5s] {{ ?s <http://ex.org/temp> ?t }} }} }}"


class Wall:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1_800_000_000 * S

    def __call__(self) -> int:
        return self.now

    def go_on(self, seconds: float) -> None:
        self.now += int(seconds * S)


def reading(sensor: int = 1) -> str:
    return f"<http://ex.org/s{sensor}> <http://ex.org/temp> 1 ."


def test_an_absence_is_told_when_results_are_taken() -> None:
    wall = Wall()
    with cqels.Engine(now=wall) as engine:
        engine.stream(OBS, clock="arrival")
        query = engine.register(SILENT)
        engine.push(OBS, reading())
        assert query.take() == []
        wall.go_on(4)
        assert query.take() == []
        wall.go_on(2)
        (result,) = query.take()
        assert (result.boolean, result.nanoseconds) == (True, wall.now)
        engine.push(OBS, reading())
        assert [result.boolean for result in query.take()] == [False]


def test_a_stream_with_an_idle_time_follows_the_clock_by_ticks() -> None:
    wall = Wall()
    with cqels.Engine(now=wall) as engine:
        engine.stream(OBS, idle="2s")
        query = engine.register(SILENT)
        engine.push(OBS, reading(), time="100s")
        wall.go_on(1.5)
        engine.tick()
        wall.go_on(60)
        assert query.take() == []
        engine.tick()
        (result,) = query.take()
        assert (result.boolean, result.nanoseconds) == (True, 161_500_000_000)
        engine.push(OBS, reading(), time="162s")
        assert engine.late == 0


def test_boundaries_close_in_silence() -> None:
    wall = Wall()
    with cqels.Engine(now=wall) as engine:
        engine.stream(OBS, clock="arrival")
        text = f"SELECT (COUNT(*) AS ?n) {{ STREAM <{OBS}> [RANGE 10s TUMBLING] {{ ?s ?p ?o }} }}"
        query = engine.register(text, emit="changes")
        engine.push(OBS, reading())
        assert [result.values[0].value for result in query.take()] == ["0"]
        wall.go_on(9)
        assert [result.values[0].value for result in query.take() if result.sign == "+"] == ["1"]
        wall.go_on(2)
        assert [result.values[0].value for result in query.take() if result.sign == "+"] == ["0"]


def test_a_clock_that_nobody_follows() -> None:
    with cqels.Engine() as engine:
        query = engine.register(SILENT)
        engine.push(OBS, reading(), time="1s")
        engine.tick()
        assert query.take() == []


def test_an_engine_that_goes_on_from_a_snapshot_has_its_promises() -> None:
    def begun() -> cqels.Engine:
        engine = cqels.Engine()
        engine.stream(OBS, punctuated=True)
        engine.register(SILENT, name="silent")
        return engine

    with begun() as engine, begun() as other:
        engine.push(OBS, reading(1), time="1s")
        engine.push(OBS, reading(2), time="2s")
        engine.punctuate(OBS, "http://ex.org/s1", "9s")
        other.restore(engine.snapshot())
        for each in (engine, other):
            each.push(OBS, reading(1), time="8s")
            assert each.late == 1
            each.punctuate(OBS, "http://ex.org/s2", "10s")
            assert each.time == 9 * S


def test_only_a_punctuated_stream_has_punctuations() -> None:
    rejected: list[Rejected] = []
    with cqels.Engine(reject=rejected.append) as engine:
        engine.register(SILENT)
        with pytest.raises(CqelsError, match="has no punctuations"):
            engine.punctuate(OBS, "http://ex.org/s1", "9s")
        engine.push(OBS, f"<http://ex.org/s1> {BEFORE} 9000 .", time="1s")
        engine.push(OBS, f"<{OBS}> {BEFORE} true .", time="1s")
        engine.push(OBS, f"<{OBS}> {BEFORE} 9000 .", time="1s")
        assert engine.time == 9 * S
    assert [each.reason for each in rejected] == [
        "a promise about <http://ex.org/s1> on a stream without punctuations: declare it with punctuated=true",
        'the timestamp "true"^^<http://www.w3.org/2001/XMLSchema#boolean> is neither a dateTime nor an integer',
    ]


@pytest.mark.parametrize("clock", ["event", "arrival"])
def test_a_promise_of_the_far_future_is_rejected(clock: str) -> None:
    rejected: list[Rejected] = []
    wall = Wall()
    with cqels.Engine(reject=rejected.append, now=wall) as engine:
        engine.stream(OBS, clock=clock)
        engine.push(OBS, f'<{OBS}> {BEFORE} "2200-01-01T00:00:00Z" .', time="1s")
        engine.push(OBS, reading(), time="2s")
        assert engine.late == 0
    (found,) = rejected
    assert found.reason.startswith("the time 2200-01-01T00:00:00Z is more than 1d beyond the wall clock")


def test_what_has_other_triples_is_an_element() -> None:
    with cqels.Engine() as engine:
        query = engine.register(f"SELECT * {{ STREAM <{OBS}> [NOW] {{ ?s ?p ?o }} }}")
        engine.push(OBS, f"<{OBS}> {BEFORE} 9000 . {reading()}", time="1s")
        assert (engine.time, len(query.take())) == (S, 2)
        engine.push(OBS, f"<{OBS}> {BEFORE} 9000 .", time="1s")
        assert (engine.time, len(query.take())) == (9 * S, 0)


FILE = f"""<http://ex.org/s1> <http://ex.org/temp> "1" "1000" .
<http://ex.org/s2> <http://ex.org/temp> "2" "2000" .
<http://ex.org/s1> {BEFORE} "8000"^^<http://www.w3.org/2001/XMLSchema#integer> "2500" .
<http://ex.org/s1> <http://ex.org/temp> "3" "7000" .
<http://ex.org/s2> {BEFORE} "1970-01-01T00:00:07Z"^^<http://www.w3.org/2001/XMLSchema#dateTime> "7500" .
<http://ex.org/s2> <http://ex.org/temp> "4" "7800" .
<{OBS}> {BEFORE} "20000" "7900" .
<http://ex.org/s3> {BEFORE} <http://ex.org/never> "7900" .
<http://ex.org/s2> <http://ex.org/temp> "5" "19000" .
<http://ex.org/s2> <http://ex.org/temp> "6" "21000" .
"""


@pytest.mark.parametrize("lateness", ["0s", "30s"])
def test_promises_in_files_as_the_reference_has_them(tmp_path: Path, lateness: str) -> None:
    file = tmp_path / "obs.nt"
    file.write_text(FILE)
    declared = [parse_declaration(f"<{OBS}>={file}?punctuated=true&lateness={lateness}")]
    text = f"SELECT ?s ?t {{ STREAM <{OBS}> [RANGE 5s] {{ ?s <http://ex.org/temp> ?t }} }}"
    seen = []
    for run in (replay, reference_replay):
        rejected: list[Rejected] = []
        results = run([prepare(text, emit="changes")], declared, Store(), reject=rejected.append)
        seen.append(([(r.nanoseconds, r.sign, str(r.values)) for _, r in results], sorted(rejected, key=str)))
    assert seen[0] == seen[1]
    assert [each.reason.split(":")[0] for each in seen[0][1]] == [
        "the element of 19s is late by 1s (the watermark is 20s)",
        "the element of 7s is late by 1s",
        "the time <http",
    ]


# ------------------------------------------------------------ three engines

QUERIES = (
    f"SELECT ?s ?t {{ STREAM <{OBS}> [RANGE 3s] {{ ?s <http://ex.org/temp> ?t }} }}",
    f"SELECT ?s (COUNT(*) AS ?n) {{ STREAM <{OTHER}> [RANGE 4s SLIDE 2s] {{ ?s <http://ex.org/hum> ?h }} }} "
    "GROUP BY ?s",
    SILENT,
)


def lines_of(choose: random.Random) -> list[tuple[int, str]]:
    """Elements and promises of two streams, in the order of their arrival, as lines of timed N-Triples."""
    found, now = [], 0
    for _ in range(choose.randint(5, 40)):
        now += choose.choice([0, 200, 700, 1500])
        stream, time = choose.randrange(2), max(0, now - choose.choice([0, 0, 0, 300, 2500]))
        subject = f"<http://ex.org/s{choose.randrange(3)}>"
        if choose.random() < 0.7:
            predicate = choose.choice(["temp", "hum", "other"])
            found.append((stream, f'{subject} <http://ex.org/{predicate}> "{choose.randrange(3)}" "{time}" .'))
        else:
            whom = choose.choice([subject, subject, f"<{(OBS, OTHER)[stream]}>"])
            found.append((stream, f'{whom} {BEFORE} "{time + choose.choice([0, 500])}" "{time}" .'))
    return found


@pytest.mark.parametrize("seed", range(25))
def test_embedded_reference_and_lifted_are_the_same(seed: int) -> None:
    """Lifted elements have only the triples that queries can match, unless their stream is punctuated."""
    choose = random.Random(seed)
    lateness = [choose.choice([0, 1000, 5000]) * 10**6 for _ in range(2)]
    settings = [
        StreamSettings(OBS, lateness[0], punctuated=True),
        StreamSettings(OTHER, lateness[1], choose.choice([0, 2]) * S, punctuated=choose.random() < 0.5),
    ]
    arrivals = lines_of(choose)
    queries = [prepare(text, name=f"q{number}", emit="changes") for number, text in enumerate(QUERIES)]

    late: list[list[str]] = [[], [], []]
    reference = Reference(Store(), settings, reject=lambda each: late[0].append(each.reason))
    expected = [reference.register(query) for query in queries]
    engine = cqels.Engine(reject=lambda each: late[1].append(each.reason))
    for each in settings:
        engine.stream(each.iri, lateness=each.lateness, idle=each.idle, punctuated=each.punctuated)
    standing = [engine.register(query) for query in queries]
    everything = PushedPatterns(frozenset({ANYTHING}))
    program = Program.of("test", queries, settings)
    instance = Instance(program)
    instance.advance([Arrival(command=registration(query, print)) for print, query in program.read().values()])
    writers = [
        BlockWriter(number, (everything if each.punctuated else pushed_patterns(queries, each.iri),), iri=each.iri)
        for number, each in enumerate(settings)
    ]
    sent: dict[str, list[str]] = {query.name or "": [] for query in queries}
    for number, text in arrivals:
        (element,) = elements_of(settings[number].iri, text)
        reference.push(element)
        engine.push(element.stream, text)
        batch, _, _ = writers[number].intake.lines(number, text.encode(), reject=lambda *_: None)
        rows: list[Any] = list(writers[number].blocks(batch, "", 0, 0))
        instance.advance([Arrival(number, "", row["block"]) for row in rows])
        for chunk in instance.taken():
            table = pyarrow.ipc.open_stream(chunk.payload).read_all().to_pylist()
            answers = [(row["time"], row["sign"] or "", row.get("?s", row.get("answer"))) for row in table]
            sent[chunk.query] += [f"{time} {sign} {answer}" for time, sign, answer in answers]
    late[2] = [each.reason for each in instance.late()]
    assert late[0] == late[1] == late[2]
    for query, one, other in zip(queries, expected, standing, strict=True):
        results = [shown(each) for each in one.take()]
        assert [shown(each) for each in other.take()] == results
        assert sent[query.name or ""] == results
    engine.close()


def shown(result: cqels.Result) -> str:
    return f"{result.nanoseconds} {result.sign} {result.boolean if result.boolean is not None else result.values[0]}"


def elements_of(stream: str, text: str) -> list[Element]:
    time, triples = parse_timed_line(text, "ms", "") or (0, ())
    return [Element(stream, time, tuple(triples))]
