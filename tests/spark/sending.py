"""Results as the columns in which engines send them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow
from pyoxigraph import Literal, NamedNode

from cqels.model.time import MILLISECOND
from cqels.plan.algebra import Query
from cqels.plan.prepare import prepare
from cqels.results import Result
from cqels.spark.sink.result_batch import Sent, schema_of

WHERE = "{ STREAM <x:s> [RANGE 2s] { ?room <x:t> ?n } }"
SELECT = prepare(f"PREFIX : <http://ex.org/> SELECT ?room ?n WHERE {WHERE}", name="hot", emit="changes")


def sent_of(query: Query, results: Sequence[Result], number: int = 0, *, per_batch: int = 1000) -> Sent:
    """What an engine sends of these results, in record batches of at most this size."""
    columns: dict[str, list[object]] = {
        "time": [result.nanoseconds for result in results],
        "tick": [result.tick for result in results],
        "sign": [result.sign or None for result in results],
        "empty": [result.empty for result in results],
    }
    if query.form == "ask":
        columns["answer"] = [result.boolean for result in results]
    elif query.form == "construct":
        columns["triples"] = [
            " ".join(" ".join(map(str, each)) + " ." for each in result.triples) for result in results
        ]
    else:
        for place, name in enumerate(query.variables):
            columns[f"?{name}"] = [
                None if result.empty or result.values[place] is None else str(result.values[place])
                for result in results
            ]
    table = pyarrow.table(columns, schema_of(query))
    return Sent(query, table.to_batches(per_batch), number)


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
