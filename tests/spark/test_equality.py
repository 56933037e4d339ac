"""Case files and random scenarios on Spark: what each sends is what the embedded engine sends.

All of them go through one run, each on an engine instance of its own, so that there is time for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

import pyarrow
import pyarrow.parquet
from pyspark.sql import SparkSession

from cqels.pipeline.lift.row_schemas import ARRIVING, RESULTS, SENT_COLUMNS
from cqels.spark.operator.stateful_processor import Evaluation
from cqels.spark.session.spark_session import start, stop

from ..cases import read_case
from ..properties.test_engine import COMPANY
from ..random_queries import scenarios
from ..random_variants import crowd
from ..scenarios import Scenario, run
from ..test_cases import FILES, play
from .recorded import Recorded

SCHEMA = pyarrow.schema([("key", pyarrow.int32()), *ARRIVING])
COLUMNS = (
    "key int, instance int, stream int, kind string, place string, position long, number long, block binary, "
    "reason string, text string"
)
ALL = 1000
MORE = pytest.mark.fuzz


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=MORE), pytest.param(4, marks=MORE)])
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    session = start(partitions=request.param)
    yield session
    stop(session)


def recorded_cases() -> list[Recorded]:
    made: list[Recorded] = []
    for path in FILES:
        play(read_case(path), _into(made))
    return made


def recorded_scenarios(count: int) -> list[Recorded]:
    made: list[Recorded] = []

    @settings(max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(scenarios(COMPANY, beside=1))
    def record(scenario: Scenario) -> None:
        run(scenario, engine=_into(made))

    record()
    return made


def recorded_crowd() -> list[Recorded]:
    made: list[Recorded] = []
    run(crowd(0, restless=4), engine=_into(made))
    return made


def _into(made: list[Recorded]) -> Callable[..., Recorded]:
    """Makes what records, and keeps it."""

    def make(*arguments: Any, **options: Any) -> Recorded:
        made.append(Recorded(*arguments, **options))
        return made[-1]

    return make


def sent_on_spark(spark: SparkSession, recorded: list[Recorded], size: int, folder: Path) -> list[dict[str, list[Any]]]:
    """What the queries of each send, in micro-batches of so many elements."""
    batches = [each.batches(size) for each in recorded]
    (folder / "in").mkdir()
    for number in range(max(map(len, batches))):
        rows = [
            {"key": key, **row}
            for key, each in enumerate(batches)
            for row in (each[number] if number < len(each) else [])
        ]
        table = pyarrow.Table.from_pylist(rows, SCHEMA)
        path = folder / "in" / f"{number:05d}.parquet"
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (number, number))  # the order in which Spark takes them; those of one time it takes in any
    arriving = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    evaluation = Evaluation({key: each.program for key, each in enumerate(recorded)})
    found: dict[tuple[int, str], list[Any]] = {}

    def deliver(frame: Any, batch: int) -> None:
        for row in frame.where(f"kind = '{RESULTS}'").collect():
            found.setdefault((row.instance, row.query), []).append(row)

    query = (
        arriving.groupBy("key")
        .transformWithState(evaluation, SENT_COLUMNS, "append", "none")
        .writeStream.foreachBatch(deliver)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    made: list[dict[str, list[Any]]] = []
    for key, each in enumerate(recorded):
        made.append({})
        for name in each.sent:
            rows = sorted(found.get((key, name), []), key=lambda row: row.number)
            made[-1][name] = [result for row in rows for result in each.results(name, bytes(row.payload))]
    return made


@pytest.mark.parametrize("size", [20, pytest.param(1, marks=MORE), pytest.param(ALL, marks=MORE)])
def test_a_crowd(spark: SparkSession, tmp_path: Path, size: int) -> None:
    """Two hundred queries on one instance, which come and go; embedded, each sends what it sends alone."""
    recorded = recorded_crowd()
    assert sent_on_spark(spark, recorded, size, tmp_path) == [each.sent for each in recorded]


@pytest.mark.parametrize("size", [3, pytest.param(1, marks=MORE), pytest.param(ALL, marks=MORE)])
def test_cases(spark: SparkSession, tmp_path: Path, size: int) -> None:
    recorded = recorded_cases()
    assert sent_on_spark(spark, recorded, size, tmp_path) == [each.sent for each in recorded]


@pytest.mark.parametrize("size", [2, pytest.param(1, marks=MORE), pytest.param(ALL, marks=MORE)])
def test_random_scenarios(spark: SparkSession, tmp_path: Path, size: int) -> None:
    recorded = recorded_scenarios(40)
    assert sent_on_spark(spark, recorded, size, tmp_path) == [each.sent for each in recorded]
