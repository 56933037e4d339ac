"""What the queries of a scenario answer: by the engine in this process, by the one on Spark, or by the judge."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

from cqels.engine.file_replay import replay as embedded
from cqels.model.time import parse_time
from cqels.plan.algebra import Query
from cqels.reference.reference_replay import replay as judged
from cqels.results import Result, writer_for
from cqels.scenarios.scenario import Data

Answers = dict[str, list[Result]]
"""The results of each query, in the order in which they were sent."""


def answers(queries: Sequence[Query], data: Data, *, engine: str = "embedded") -> Answers:
    """What queries, all of which have names, answer in this process: `embedded` or by the `reference`."""
    run = {"embedded": embedded, "reference": judged}[engine]
    until = None if data.until is None else parse_time(data.until)
    found: Answers = {query.name or "": [] for query in queries}
    for query, result in run(queries, data.declarations, data.store(), until=until):
        found[query.name or ""].append(result)
    return found


def answers_on_spark(
    queries: Sequence[Query],
    data: Data,
    spark: Any,
    *,
    batch_bytes: int | None = None,
) -> Answers:
    """What they answer on Spark, in a session that is there or is made when it is needed."""
    from cqels.spark.driver.app import App
    from cqels.spark.sinks import Memory

    app = App(spark, until=data.until, store=data.store(), batch_bytes=batch_bytes)
    for each in data.declarations:
        app.files(each)
    for query in queries:
        app.add(query)
    memory = Memory()
    app.run(memory).wait()
    return {query.name or "": memory.results(query.name) for query in queries}


def written(query: Query, results: Sequence[Result]) -> str:
    """Results as comma-separated values."""
    text = StringIO()
    writer = writer_for("csv", text, query.variables, dict(query.prefixes))
    for each in results:
        writer.write(each)
    writer.close()
    return text.getvalue()
