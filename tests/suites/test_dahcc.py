"""A real wearable's observations replayed as a stream, against sums made in plain Python from the text of the file.

The file has 2,000 observations of four properties (blood volume pulse, acceleration on three axes), 500 of each, one
property after the other and each in the order of time: about 16 ms apart for the pulse, 32 ms for the accelerometer.
So the first 500 lines are in order, and the whole file is only in order once it has been sorted by a lateness.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice, pairwise
from pathlib import Path

import pytest
from pyoxigraph import Literal, NamedNode

from cqels.ingest import Rejected, declare, read_stream
from cqels.model.time import SECOND, parse_duration
from cqels.plan.prepare import prepare
from cqels.reference.reference_engine import Reference, StreamSettings
from cqels.results import Result
from cqels.store.dataset import Store

FILE = Path(__file__).resolve().parents[3] / "shared" / "suites" / "dahcc" / "participant1.ttl"
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason=f"the DAHCC observations are not at {FILE}")

STREAM = "http://example.org/wearable"
TIME = "https://saref.etsi.org/core/hasTimestamp"
PREFIX = 500
PER_PROPERTY = f"""
    PREFIX saref: <https://saref.etsi.org/core/>
    SELECT ?property (COUNT(?observation) AS ?n)
    WHERE {{ STREAM <{STREAM}> [RANGE 1s SLIDE 1s] {{ ?observation saref:relatesToProperty ?property }} }}
    GROUP BY ?property
"""
RUNNING = f"""
    PREFIX saref: <https://saref.etsi.org/core/>
    PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
    SELECT (COUNT(*) AS ?n) (SUM(?exact) AS ?sum) (AVG(?exact) AS ?mean) (MIN(?value) AS ?low) (MAX(?value) AS ?high)
    WHERE {{
      STREAM <{STREAM}> [RANGE 1s] {{
        ?observation saref:hasValue ?value ; saref:relatesToProperty ?property .
        BIND (xsd:decimal(STR(?value)) AS ?exact)
      }}
    }}
"""


@dataclass(frozen=True)
class Observation:
    time: int
    property: str
    value: Decimal


def observations() -> list[Observation]:
    """The file read with regular expressions, without the code under test."""
    return list(_observations())


def _observations() -> Iterator[Observation]:
    start = datetime(1970, 1, 1, tzinfo=UTC)
    for line in FILE.read_text().splitlines():
        if not line.strip():
            continue
        (stamp,) = re.findall(rf'<{TIME}> "([^"]*)"', line)
        (kind,) = re.findall(r"/relatesToProperty> <([^>]*)>", line)
        (value,) = re.findall(r'/hasValue> "([^"]*)"', line)
        since = datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=UTC) - start
        microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        yield Observation(microseconds * 1000, kind, Decimal(value))


def replay(
    query: str, *, count: int | None = None, lateness: str = "0s", emit: str | None = None, policy: str | None = None
) -> tuple[list[Result], list[Rejected]]:
    """The results of a query over the file's first observations, and the elements that came late."""
    rejected: list[Rejected] = []
    reference = Reference(Store(), [StreamSettings(STREAM, lateness=parse_duration(lateness))], reject=rejected.append)
    registered = reference.register(prepare(query, emit=emit, policy=policy))
    for element in islice(read_stream(declare(STREAM, FILE, element="line", time=TIME), rejected.append), count):
        assert len(element.triples) == 6
        reference.push(element)
    reference.finish()
    assert reference.late == len(rejected)
    return registered.take(), rejected


def counts_per_second(seen: list[Observation]) -> Counter[tuple[int, str]]:
    """For each whole second that something later closes, how many of a property were in the second before it."""
    last = max(each.time for each in seen)
    ends = ((-(-each.time // SECOND) * SECOND, each.property) for each in seen)
    return Counter((end, kind) for end, kind in ends if end < last)


def counted(results: list[Result]) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for result in results:
        kind, number = result.values
        assert isinstance(kind, NamedNode)
        assert isinstance(number, Literal)
        assert (result.nanoseconds, kind.value) not in found
        found[result.nanoseconds, kind.value] = int(number.value)
    return found


def test_file_is_as_described() -> None:
    seen = observations()
    assert Counter(Counter(each.property for each in seen).values()) == {500: 4}
    assert len(seen) == 2000
    backwards = [place for place, (one, next) in enumerate(pairwise(seen), 1) if next.time < one.time]
    assert backwards == [500, 1000, 1500]


def test_elements_have_the_times_of_the_file() -> None:
    elements = read_stream(declare(STREAM, FILE, element="line", time=TIME), pytest.fail)
    assert [element.time for element in elements] == [each.time for each in observations()]


@pytest.mark.parametrize("policy", ["cqels", "window-close"])
def test_count_per_property_in_each_second(policy: str) -> None:
    results, late = replay(PER_PROPERTY, count=PREFIX, emit="rstream", policy=policy)
    expected = counts_per_second(observations()[:PREFIX])
    assert late == []
    assert len(expected) == 7
    assert counted(results) == expected


def test_running_sums_over_the_last_second() -> None:
    """A tick for each observation, and the window closed at both ends. Decimals, so sums are exact."""
    results, late = replay(RUNNING, count=PREFIX, emit="rstream")
    seen = observations()[:PREFIX]
    assert late == []
    assert [result.nanoseconds for result in results] == [each.time for each in seen]
    for place, result in enumerate(results):
        now = seen[place].time
        window = [each.value for each in seen[: place + 1] if now - SECOND <= each.time]
        number, total, mean, low, high = (Decimal(term.value) for term in result.values if isinstance(term, Literal))
        assert (number, total, low, high) == (len(window), sum(window), min(window), max(window))
        assert abs(mean - sum(window) / len(window)) < Decimal("1e-15")


def test_lateness_puts_the_whole_file_in_order() -> None:
    results, late = replay(PER_PROPERTY, lateness="16s", policy="window-close")
    expected = counts_per_second(observations())
    assert late == []
    assert len({kind for _, kind in expected}) == 4
    assert counted(results) == expected


def test_without_lateness_what_comes_late_is_counted() -> None:
    results, late = replay(PER_PROPERTY, policy="window-close")
    in_time: list[Observation] = []
    for each in observations():
        if not in_time or each.time >= in_time[-1].time:
            in_time.append(each)
    assert len(late) == 2000 - len(in_time) > 0
    assert counted(results) == counts_per_second(in_time)
