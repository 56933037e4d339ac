"""What is computed anew at each tick and what is not: the smallest part that has no operators, and the reason."""

from __future__ import annotations

import pytest

from cqels.engine.engine import Engine
from cqels.physical.incremental_support import computed_anew
from cqels.plan.optimizer.rules import rewrite
from cqels.plan.prepare import prepare

PREFIX = "PREFIX : <http://ex.org/> "


def recomputed(text: str) -> list[tuple[str, str]]:
    engine = Engine(size=1 << 26)
    engine.update("CREATE GRAPH <http://ex.org/g>")
    select = "SELECT * WHERE " if text.startswith("{") else ""
    running = engine.register(prepare(PREFIX + select + text)).running
    engine.heartbeat(0)  # nobody comes to share it with: it is compiled
    assert bool(running.pipeline.reasons) == running.is_recomputed
    return [(type(plan).__name__, reason) for plan, reason in running.pipeline.reasons]


@pytest.mark.parametrize(
    "text",
    [
        "{ STREAM :s [ALL] AT ?t { ?x :p ?y } }",
        "{ STREAM ?g [ALL] AT ?t { ?x :p ?y } }",
        "SELECT ?x FROM STREAM :s [RANGE 5s STEP 5s] FROM STREAM :r [RANGE TRIPLES 3] FROM :g WHERE { ?x :p ?y }",
        "{ STREAM :s [ALL] { ?x :p ?y FILTER(?y > 3 || EXISTS { ?y :q ?z }) } }",
        "{ STREAM :s [ALL] { ?x :p ?y } BIND(IF(EXISTS { ?x :in ?z }, 1, 2) AS ?b) }",
        "SELECT (SUM(IF(EXISTS { ?x :in ?z }, 1, 2)) AS ?b) WHERE { STREAM :s [ALL] { ?x :p ?y } }",
        "{ STREAM :s [ALL] { ?x :p ?y OPTIONAL { ?y :q ?z } OPTIONAL { ?x :r ?v FILTER(?v > ?z) } } }",
        "{ STREAM :s [ALL] { ?x :p ?y OPTIONAL { ?x :q ?z } FILTER NOT EXISTS { ?y :r ?v FILTER(?v > ?z) } } }",
        "{ STREAM :s [ALL] { ?x :p ?y FILTER EXISTS { ?x :q ?v BIND(?v + ?y AS ?w) FILTER(?w > 3) } } }",
        "{ STREAM :s [ALL] { ?x :p ?y } FILTER NOT EXISTS { STREAM :r [NOW] { ?x :q ?v FILTER(?v > ?y) } } }",
        "{ STREAM :s [ALL] { ?x :p ?y } FILTER EXISTS { STREAM :r [ALL] { ?x :q ?v } FILTER(?v > ?y) { ?v :r ?w } } }",
        "{ STREAM :s [ALL] { ?x :p ?y } FILTER EXISTS {{ STREAM :r { ?x :q ?v { ?v :r ?w FILTER(?w > ?y) } } } } }",
        "{ STREAM :s [ALL] { ?x :p ?y } FILTER EXISTS { GRAPH :g { ?x :in ?z FILTER(?z > ?y) } OPTIONAL {?x :q ?y} } }",
        "{ STREAM :s [ALL] { ?x :p ?y } FILTER EXISTS { { ?x :in ?z FILTER(?z > ?y) } UNION { ?x :on ?y } } }",
        "{ STREAM :s [ALL] { ?x :p ?y } } ORDER BY (EXISTS { ?x :in ?z }) LIMIT 3",
        "{ STREAM :s [ALL] { ?x :p+ ?y } STREAM :r [RANGE 5s @:at] { ?x (:p|!:q)* ?z } ?z :in ?room }",
        "{ { STREAM :r [NOW] { ?x :q* ?z } } SEQ { STREAM :s [ALL] { ?x :p ?y } } ?x :in ?room }",
        "SELECT ?x FROM STREAM :s [RANGE 5s STEP 5s] FROM :g WHERE { { ?x :p ?y } OPTIONALSEQ { ?y :q ?z } }",
        "SELECT DISTINCT ?x (getDURATION() AS ?d) WHERE { STREAM :s [ALL] { SELECT DISTINCT ?x WHERE { ?x :p ?y } } }",
        "{ STREAM :r [NOW] { ?x :q ?z } { SELECT ?x WHERE { STREAM :s [ALL] { ?x :p ?y } } ORDER BY ?y LIMIT 2 } }",
        "{ STREAM :s [ALL] { { SELECT DISTINCT ?x WHERE { ?x :p ?y } ORDER BY ?y LIMIT 2 } } ?x :in ?room }",
        "{ STREAM :s [PARTITION BY ?x TRIPLES 2] { ?x :p ?y } ?x :in ?room }",
    ],
)
def test_all_of_it_is_incremental(text: str) -> None:
    assert recomputed(text) == []


@pytest.mark.parametrize(
    ("text", "node", "reason"),
    [
        (
            "{ { SELECT ?x ?y WHERE { STREAM :s [ALL] AT ?t { ?x :p ?y } } ORDER BY (NOW() - ?t) LIMIT 2 } }",
            "OrderBy",
            "an expression that depends on the tick's time",
        ),
        (
            "{ STREAM :s [ALL] AT ?t { ?x :p ?y } FILTER(?t = NOW()) }",
            "Filter",
            "an expression that depends on the tick's time",
        ),
        (
            "{ STREAM :s [ALL] { ?x :p ?y } FILTER EXISTS { ?x :at ?a {?x :in ?z FILTER(?z>?y)} UNION {?x :on ?y} }}",
            "Filter",
            "an EXISTS that looks outside from deep inside",
        ),
    ],
)
def test_the_smallest_part_is_computed_anew(text: str, node: str, reason: str) -> None:
    assert recomputed(text) == [(node, reason)]


def test_a_table_is_not_computed_anew() -> None:
    text = "SELECT * WHERE { STREAM :s [NOW] { ?x :p ?y } GRAPH :g { ?y :in ?room } ?room :on ?floor }"
    assert computed_anew(rewrite(prepare(PREFIX + text)).plan) == []
