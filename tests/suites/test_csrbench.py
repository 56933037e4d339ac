"""CSRBench queries 1 and 4 in three dialects against the answers that CQELS, C-SPARQL and SPARQLstream recorded.

The stream has one group of lines for each second from 0 to 33. Fifteen observations are above 80: sensor C1192
measures 83 at 12, 15, 18, 21, 24, 27, 30 and 33 s, sensor C0837 measures 97 at 14, 17, 20, 23, 26, 29 and 32 s.

What is compared is the bag of (second, row).  A recorded time is cut to its second, because the CQELS times (12047,
14160 …) have the delay of a live run; a time of ours is taken up to the next second, because a window that ends just
before 20 s closes at 19.999.  An average is compared as a single: the data are xsd:float, so ours is one, and the
engines printed the same number as xsd:double, xsd:decimal or xsd:integer.  Nothing else is loosened: every recorded row
that does not come out, and every row of ours that was not recorded, is listed below, one by one.

CQELS, policy `cqels-1`: all 15 and all 15 rows, no other.  `[RANGE d SLIDE d]` is read as `[RANGE d]`, closed at both
ends: the 90 at 18 s is the average of 97, 83, 97 and 83 from 14 to 18 s.  No average of 0 is sent before the first
match, and nothing when only expiry changes the average.  The elements are the lines of one second; the lines one by one
give the same rows, which is checked here on the 240 lines of the two sensors only: on the whole stream the naive
evaluator would take tens of minutes.

C-SPARQL, policy `window-close`: its windows are [c − d, c), ours are (c − d, c].  With the boundaries one
millisecond earlier (`start` is −1 ms; all times are whole milliseconds) the two are the same sets, and all 15 and all 9
rows come out, no other.  The answer of query 1 also has an empty relation at 10 s: no rows, so nothing is sent for it.

SPARQLstream, policy `window-close`: its windows are [c − d, c) too, counted from the first match, 12 s: reports at 22
and 32 s in query 1, at 16, 20 … 36 s in query 4.  With `start` at 11,999 ms
- query 1: 13 of 15 rows; the 2 of the last report are recorded at 41 s and come out at 42 s, where that window ends;
- query 4: 6 of 9 rows.  The 3 others are "null" at 39, 43 and 47 s, for windows after the end of the stream: an empty
  window is not reported.  And 3 rows of ours were not recorded: the average 0 (SPARQL 1.1 §18.5.1.4) of the windows
  that end at 4, 8 and 12 s, which hold observations but no match; nothing was recorded before the first match.

With the boundaries where the language puts them, at the multiples of the slide, an observation made exactly at a
boundary is in the window that ends there.  What that changes is listed too (`AT_MULTIPLES`): it
is what a user gets by default.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TypeAlias

import numpy
import pytest
from pyoxigraph import Literal

from cqels.ingest import Rejected, declare, read_stream
from cqels.model.time import MILLISECOND, SECOND
from cqels.plan.prepare import prepare, read_query
from cqels.reference.reference_engine import Reference, StreamSettings
from cqels.store.dataset import Store

SUITE = Path(__file__).resolve().parents[3] / "shared" / "suites" / "csrbench"
pytestmark = pytest.mark.skipif(not SUITE.is_dir(), reason=f"CSRBench is not at {SUITE}")

QUERIES = {
    ("cqels", 1): "cqels/Q1.rq",
    ("cqels", 4): "cqels/Q4.rq",
    ("csparql", 1): "csparql/Q1.rq",
    ("csparql", 4): "csparql/Q4.rq",
    ("sparqlstream", 1): "sparqlstream/q1.sparql",
    ("sparqlstream", 4): "sparqlstream/q4.sparql",
}
STREAMS = {
    "cqels": "http://ex.org/streams/test",
    "csparql": "http://ex.org/streams/test",
    "sparqlstream": "http://cwi.nl/SRBench/observations",
}
HOT_SENSORS = ("_C1192_", "_C0837_")
END = 50 * SECOND
"""Later than the last recorded report."""

BEFORE_MULTIPLES = -1 * MILLISECOND
BEFORE_FIRST_MATCH = 12 * SECOND - 1 * MILLISECOND

Row: TypeAlias = tuple[str | float, ...]
Rows: TypeAlias = Counter[tuple[int, Row]]
"""How often each row is sent in each second."""


def recorded_relations(engine: str, number: int) -> list[tuple[int, list[Row]]]:
    """Each report in an answer file: its second and its rows."""
    answer = json.loads((SUITE / "answers" / f"{engine}-answer-{number}.json").read_text())
    relations = []
    for relation in answer["relations"]:
        names = relation["head"]["vars"]
        rows = [tuple(_cell(each["binding"][name]) for name in names) for each in relation["results"]["bindings"]]
        relations.append((relation["timestamp"] // 1000, rows))
    return relations


def _cell(binding: dict[str, str]) -> str | float:
    if binding["type"] == "literal" and binding["value"] != "null":
        return float(numpy.float32(binding["value"]))
    return binding["value"]


def recorded(engine: str, number: int) -> Rows:
    return Counter((second, row) for second, rows in recorded_relations(engine, number) for row in rows)


def sent(
    engine: str, number: int, *, policy: str | None, element: str, start: int = 0, stream: Path = SUITE / "stream.n3t"
) -> Rows:
    """What the reference sends for a query over the stream, and until well after its end."""
    path = SUITE / "queries" / QUERIES[engine, number]
    iri = STREAMS[engine]
    rejected: list[Rejected] = []
    reference = Reference(Store(), [StreamSettings(iri)], start=start, reject=rejected.append)
    registered = reference.register(prepare(read_query(path), source=str(path), policy=policy))
    for each in read_stream(declare(iri, stream, element=element), rejected.append):
        reference.push(each)
    reference.heartbeat(END)
    reference.finish()
    assert rejected == []
    return Counter(
        (-(-result.nanoseconds // SECOND), tuple(_value(term) for term in result.values))
        for result in registered.take()
    )


def _value(term: object) -> str | float:
    if isinstance(term, Literal):
        return float(numpy.float32(term.value))
    return str(getattr(term, "value", term))


def hot(second: int) -> Row:
    """The row of query 1 for the observation above 80 that is made at this second of the stream."""
    sensor = "C1192" if second % 3 == 0 else "C0837"
    hour, minute = divmod(5 + 5 * second, 60)
    base = "http://knoesis.wright.edu/ssw/"
    return (
        f"{base}System_{sensor}",
        f"{base}Observation_AirTemperature_{sensor}_2004_08_08_{6 + hour:02}_{minute:02}_00",
    )


def average(*values: int) -> Row:
    return (float(numpy.float32(sum(values) / len(values))) if values else 0.0,)


NULL: Row = ("null",)

# ------------------------------------------------------------ what was recorded, and is understood


def test_recorded_rows_are_those_of_fifteen_observations() -> None:
    seconds = [12, 14, 15, 17, 18, 20, 21, 23, 24, 26, 27, 29, 30, 32, 33]
    expected = {hot(second) for second in seconds}
    for engine in STREAMS:
        rows = recorded(engine, 1)
        assert rows.total() == 15
        assert {row for _, row in rows} == expected
    assert [recorded(engine, 4).total() for engine in STREAMS] == [15, 9, 9]


def test_one_recorded_relation_is_empty() -> None:
    empty = [
        (engine, number, second)
        for engine, number in QUERIES
        for second, rows in recorded_relations(engine, number)
        if not rows
    ]
    assert empty == [("csparql", 1, 10)]


# ------------------------------------------------------------ the policies


@pytest.mark.parametrize("number", [1, 4])
def test_cqels(number: int) -> None:
    assert sent("cqels", number, policy="cqels-1", element="time") == recorded("cqels", number)


@pytest.mark.parametrize("element", ["line", "subject", "time"])
@pytest.mark.parametrize("number", [1, 4])
def test_cqels_whatever_an_element_is(number: int, element: str, tmp_path: Path) -> None:
    """What the element is changes the ticks, not the rows of a second. Only the lines of the hot sensors are kept."""
    thin = tmp_path / "hot.n3t"
    lines = (SUITE / "stream.n3t").read_text().splitlines(keepends=True)
    kept = [line for line in lines if any(sensor in line for sensor in HOT_SENSORS)]
    assert len(kept) == 240
    thin.write_text("".join(kept))
    assert sent("cqels", number, policy="cqels-1", element=element, stream=thin) == recorded("cqels", number)


@pytest.mark.parametrize("number", [1, 4])
def test_csparql(number: int) -> None:
    rows = sent("csparql", number, policy=None, element="line", start=BEFORE_MULTIPLES)
    assert rows == recorded("csparql", number)


SPARQLSTREAM: dict[int, tuple[Rows, Rows]] = {
    1: (Counter([(41, hot(32)), (41, hot(33))]), Counter([(42, hot(32)), (42, hot(33))])),
    4: (
        Counter([(39, NULL), (43, NULL), (47, NULL)]),
        Counter([(4, average()), (8, average()), (12, average())]),
    ),
}
"""Recorded and not sent, sent and not recorded, when windows are counted from the first match."""


@pytest.mark.parametrize("number", [1, 4])
def test_sparqlstream(number: int) -> None:
    rows = sent("sparqlstream", number, policy=None, element="line", start=BEFORE_FIRST_MATCH)
    assert both_differences("sparqlstream", number, rows) == SPARQLSTREAM[number]


AT_MULTIPLES: dict[tuple[str, int], tuple[Rows, Rows]] = {
    ("csparql", 1): (
        Counter([(30, hot(20)), (40, hot(30))]),
        Counter([(20, hot(20)), (30, hot(30))]),
    ),
    ("csparql", 4): (
        Counter(
            [
                (12, average()),
                (16, average(83, 97, 83)),
                (20, average(97, 83)),
                (24, average(97, 83, 97)),
                (28, average(83, 97, 83)),
                (32, average(97, 83)),
                (36, average(97, 83)),
            ]
        ),
        Counter(
            [
                (0, average()),
                (12, average(83)),
                (16, average(97, 83)),
                (20, average(97, 83, 97)),
                (24, average(83, 97, 83)),
                (28, average(97, 83)),
                (32, average(97, 83, 97)),
                (36, average(83)),
            ]
        ),
    ),
    ("sparqlstream", 1): (
        Counter(
            [(22, hot(second)) for second in (12, 14, 15, 17, 18, 20, 21)]
            + [(32, hot(second)) for second in (23, 24, 26, 27, 29, 30)]
            + [(41, hot(second)) for second in (32, 33)]
        ),
        Counter(
            [(20, hot(second)) for second in (12, 14, 15, 17, 18, 20)]
            + [(30, hot(second)) for second in (21, 23, 24, 26, 27, 29, 30)]
            + [(40, hot(second)) for second in (32, 33)]
        ),
    ),
    ("sparqlstream", 4): (
        Counter(
            [
                (16, average(83, 97, 83)),
                (20, average(97, 83)),
                (24, average(97, 83, 97)),
                (28, average(83, 97, 83)),
                (32, average(97, 83)),
                (36, average(97, 83)),
                (39, NULL),
                (43, NULL),
                (47, NULL),
            ]
        ),
        Counter(
            [
                (0, average()),
                (4, average()),
                (8, average()),
                (12, average(83)),
                (16, average(97, 83)),
                (20, average(97, 83, 97)),
                (24, average(83, 97, 83)),
                (28, average(97, 83)),
                (32, average(97, 83, 97)),
                (36, average(83)),
            ]
        ),
    ),
}
"""The same two differences with boundaries at the multiples of the slide, the default."""


@pytest.mark.parametrize(("engine", "number"), AT_MULTIPLES)
def test_boundaries_at_multiples(engine: str, number: int) -> None:
    rows = sent(engine, number, policy=None, element="line")
    assert both_differences(engine, number, rows) == AT_MULTIPLES[engine, number]


def both_differences(engine: str, number: int, rows: Rows) -> tuple[Rows, Rows]:
    expected = recorded(engine, number)
    return expected - rows, rows - expected
