"""The reference engine where a case file does not reach: arrival time, feedback, SERVICE, the start of boundaries."""

from __future__ import annotations

import pytest
from pyoxigraph import NamedNode

from cqels.ingest import Element
from cqels.model.errors import CqelsError, QueryError
from cqels.plan.prepare import prepare
from cqels.reference.event_time import StreamSettings
from cqels.reference.reference_engine import Reference, Registered
from cqels.store.dataset import Store

from ..incremental import Incremental

S = 1_000_000_000
STREAM = "http://ex.org/s"


def element(time: int, name: str = "a") -> Element:
    node = NamedNode(f"http://ex.org/{name}")
    return Element(STREAM, time * S, ((node, node, node),))


def times(registered: Registered) -> list[int]:
    return [result.nanoseconds // S for result in registered.take()]


def test_arrival_time_looks_only_at_the_arrival() -> None:
    engine = Reference(Store(), [StreamSettings(STREAM, arrival=True)])
    query = engine.register(prepare(f"SELECT ?s {{ STREAM <{STREAM}> [NOW] {{ ?s ?p ?o }} }}", emit="rstream"))
    for carried, arrived in ((5, 1), (3, 2), (9, 4)):
        engine.push(element(carried), arrived=arrived * S)
    assert times(query) == [1, 2, 4]
    assert engine.late == 0


def test_arrival_time_is_by_default_now() -> None:
    engine = Reference(Store(), [StreamSettings(STREAM, arrival=True)])
    query = engine.register(prepare(f"SELECT ?s {{ STREAM <{STREAM}> [NOW] {{ ?s ?p ?o }} }}"))
    engine.push(element(5))
    assert times(query)[0] > 1_700_000_000


def test_queries_cannot_feed_each_other_in_a_circle() -> None:
    for engine in (Reference(Store(), [StreamSettings(STREAM)]), Incremental(Store(), [StreamSettings(STREAM)])):
        text = "REGISTER STREAM <http://ex.org/{}> AS CONSTRUCT {{ ?s ?p ?v }} {{ STREAM {} [NOW] {{ ?s ?p ?o }} {} }}"
        engine.register(prepare(text.format("other", f"<{STREAM}>", "BIND(1 AS ?v)")))
        engine.register(prepare(text.format("any", "?v", "")))
        engine.drop("http://ex.org/other")
        with pytest.raises(QueryError, match="would feed itself"):
            engine.register(prepare(text.format("other", "<http://ex.org/any>", "BIND(1 AS ?v)")))
        engine.push(element(1))


def test_boundaries_are_counted_from_a_start() -> None:
    text = f"SELECT ?s {{ STREAM <{STREAM}> [RANGE 10s TUMBLING] {{ ?s ?p ?o }} }}"
    for start, boundary in ((0, 10), (3, 13)):
        engine = Reference(Store(), [StreamSettings(STREAM)], start=start * S)
        query = engine.register(prepare(text))
        engine.push(element(5))
        engine.push(element(25, "b"))
        assert times(query) == [boundary]


def test_a_dropped_query_is_silent_and_a_late_one_sees_what_comes() -> None:
    engine = Reference(Store(), [StreamSettings(STREAM)])
    text = f"SELECT ?s {{ STREAM <{STREAM}> [ALL] {{ ?s ?p ?o }} }}"
    first = engine.register(prepare(text, name="first"))
    engine.push(element(1, "a"))
    second = engine.register(prepare(text, name="second"))
    engine.push(element(2, "b"))
    engine.drop(first)
    engine.push(element(3, "c"))
    assert (times(first), times(second)) == ([1, 2], [2, 3])


def test_an_old_handle_does_not_drop_a_new_query_of_its_name() -> None:
    engine = Reference(Store(), [StreamSettings(STREAM)])
    query = prepare(f"SELECT ?s {{ STREAM <{STREAM}> [ALL] {{ ?s ?p ?o }} }}", name="x")
    first = engine.register(query)
    engine.drop("x")
    second = engine.register(query)
    with pytest.raises(CqelsError, match="x has been dropped already"):
        engine.drop(first)
    engine.push(element(1))
    assert engine.query("x") is second
    assert (times(first), times(second)) == ([], [1])


def test_queries_without_a_name_get_one_that_is_free() -> None:
    engine = Reference(Store(), [StreamSettings(STREAM)])
    text = f"SELECT ?s {{ STREAM <{STREAM}> [ALL] {{ ?s ?p ?o }} }}"
    first, second = engine.register(prepare(text)), engine.register(prepare(text))
    engine.drop(first)
    engine.register(prepare(text, name="query-3"))
    assert [second.name, engine.register(prepare(text)).name] == ["query-2", "query-4"]


def test_a_refused_query_leaves_nothing_behind() -> None:
    engine = Reference(Store(), [StreamSettings(STREAM)])
    text = "CONSTRUCT {{ ?s ?p ?o }} {{ STREAM <{}> [NOW] {{ ?s ?p ?o }} }}"
    with pytest.raises(QueryError, match="not registered"):
        engine.register(prepare(text.format("http://ex.org/none"), name="http://ex.org/made"))
    assert engine.streams == (STREAM,)
    engine.register(prepare(text.format(STREAM), name="http://ex.org/made"))
