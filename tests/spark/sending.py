"""Results as the columns in which engines send them."""

from __future__ import annotations

from collections.abc import Sequence

from pyoxigraph import Literal, NamedNode

from cqels.model.time import MILLISECOND
from cqels.pipeline.sink.result_batch import Sent
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.results import Result

WHERE = "{ STREAM <x:s> [RANGE 2s] { ?room <x:t> ?n } }"
SELECT = prepare(f"PREFIX : <http://ex.org/> SELECT ?room ?n WHERE {WHERE}", name="hot", emit="changes")


def sent_of(query: Query, results: Sequence[Result], number: int = 0, *, per_batch: int = 1000) -> Sent:
    """What an engine sends of these results, in record batches of at most this size."""
    return Sent(query, Sent.of(query, results).columns.to_batches(per_batch), number)


def batch(number: int, query: Query = SELECT) -> dict[str, Sent]:
    """A micro-batch, of which some have no results; the later, the longer the texts of their times."""
    if number % 3 == 2:
        return {}
    results = [
        Result(
            "hot",
            10 ** (number % 4) * MILLISECOND,
            number,
            "+-"[n % 2],
            (NamedNode(f"http://ex.org/{number}"), Literal(str(n))),
        )
        for n in range(4)
    ]
    return {"hot": sent_of(query, results, number * 10)}
