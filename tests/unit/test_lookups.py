"""What static lookups cost: tables of connected parts alone, and no row that nobody asked for."""

from __future__ import annotations

import pytest

from cqels.engine.engine import Engine
from cqels.engine.query_handle import StandingQuery
from cqels.kernels.containers.delta_queue import COUNT, TOTAL
from cqels.plan.prepare import prepare

PREFIX = "PREFIX : <http://ex.org/> "
WINDOWS = "STREAM :a [ALL] { ?x :v ?v } STREAM :b [ALL] { ?y :v ?w }"
SENSORS = 300


def registered(where: str) -> tuple[Engine, StandingQuery]:
    engine = Engine(size=1 << 27)
    triples = " ".join(f":s{number} :in :r{number % 5} ." for number in range(SENSORS))
    engine.update(f"{PREFIX} INSERT DATA {{ {triples} }}")
    query = engine.register(prepare(f"{PREFIX} SELECT * WHERE {{ {where} }}"))
    engine.heartbeat(0)  # nobody comes to share it with: it is compiled
    return engine, query


@pytest.mark.parametrize(
    "where",
    [
        f"{WINDOWS} ?x :in ?rx . ?y :in ?ry",
        f"{WINDOWS} ?x :in ?rx . ?y :in ?ry FILTER(?rx != ?ry)",
        f"{WINDOWS} {{ ?x :in ?rx . ?y :in ?ry BIND(CONCAT(STR(?rx), STR(?ry)) AS ?z) FILTER(STRLEN(?z) < 5) }}",
        f"{WINDOWS} {{ SELECT ?x ?y WHERE {{ ?x :in ?rx . ?y :in ?ry }} }}",
        f"{WINDOWS} OPTIONAL {{ ?x :in ?rx . ?y :in ?ry }}",
        f"{WINDOWS} OPTIONAL {{ ?x :in ?rx . ?y :in ?ry FILTER(?rx = ?ry) }}",
        f"{WINDOWS} MINUS {{ ?x :in ?rx . ?y :in ?ry }}",
        f"{WINDOWS} FILTER EXISTS {{ ?x :in ?rx . ?y :in ?ry }}",
        f"{WINDOWS} FILTER EXISTS {{ ?x :in ?rx . ?y :in ?ry FILTER(?rx = ?ry) }}",
        f"{WINDOWS} FILTER NOT EXISTS {{ ?x :in ?rx . ?y :in ?ry FILTER(?rx = ?ry && ?v = ?w) }}",
        f"?x :in ?rx . ?y :in ?ry OPTIONAL {{ ?ry :floor ?f }} {WINDOWS}",
    ],
)
def test_lookups_that_share_nothing_are_not_multiplied(where: str) -> None:
    engine, query = registered(where)
    pipeline, words = query.running.pipeline, engine.internals.arena.words
    assert sum(table.count for table in pipeline.tables) == 2 * SENSORS
    made = [int(words[trace.queue + TOTAL] + words[trace.queue + COUNT]) for trace in pipeline.traces]
    assert max(made) <= SENSORS, "no join of tables alone"


def test_what_shares_nothing_with_exists_is_one_row() -> None:
    _, query = registered(f"{WINDOWS} FILTER EXISTS {{ ?x :in ?rx . ?z :in :r1 }}")
    assert sorted(table.count for table in query.running.pipeline.tables) == [1, SENSORS]


def test_lookups_in_one_graph_are_not_multiplied() -> None:
    with Engine(size=1 << 27) as engine:
        for graph, sensors in ((":g", range(SENSORS)), (":h", range(2))):
            triples = " ".join(f":s{number} :in :r{number % 5} ." for number in sensors)
            engine.update(f"{PREFIX} INSERT DATA {{ GRAPH {graph} {{ {triples} }} }}")
        where = f"{WINDOWS} GRAPH ?g {{ ?x :in ?rx . ?y :in ?ry }}"
        query = engine.register(f"{PREFIX} SELECT ?g ?rx ?ry WHERE {{ {where} }}")
        for stream, sensor in (("a", 0), ("b", 1), ("b", 2)):
            engine.push(f"http://ex.org/{stream}", f"<http://ex.org/s{sensor}> <http://ex.org/v> 1 .", time=0)
        assert [table.count for table in query.running.pipeline.tables] == [SENSORS + 2] * 2
        found = sorted(" ".join(term.value[-2:] for term in row.values if term is not None) for row in query.take())
        assert found == ["/g r0 r1", "/g r0 r2", "/h r0 r1"]
