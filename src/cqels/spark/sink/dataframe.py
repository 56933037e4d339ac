"""A sink that is a DataFrame: the results of a query, with a column for each variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow

from cqels.pipeline.lift.row_schemas import RESULTS
from cqels.pipeline.sink.parquet_files import check_types, fixed_table
from cqels.pipeline.sink.result_batch import Sent
from cqels.plan.algebra import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_UNIT = "us"


def frame_of(sent: DataFrame, query: Query, types: Mapping[str, str]) -> DataFrame:
    """The results of a query among the rows that a pipeline sends."""
    check_types(types)
    rows = sent.where(sent["kind"] == RESULTS).where(sent["query"] == query.name)
    return rows.select("number", "payload").mapInArrow(_Opened(query, dict(types)), _schema(query, types))


@dataclass(frozen=True, slots=True)
class _Opened:
    """A function of batches of rows for `DataFrame.mapInArrow`."""

    query: Query
    types: dict[str, str]

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number, payload in zip(batch["number"].to_pylist(), batch["payload"].to_pylist(), strict=True):
                table = fixed_table(Sent.read(self.query, number, [payload]), self.types, _UNIT)
                yield from _in_utc(table).to_batches()


def _in_utc(table: pyarrow.Table) -> pyarrow.Table:
    """The times as Spark has them."""
    index = table.schema.get_field_index("time")
    return table.set_column(index, "time", table["time"].cast(pyarrow.timestamp(_UNIT, tz="UTC")))


def _schema(query: Query, types: Mapping[str, str]) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(_in_utc(fixed_table(Sent(query, []), types, _UNIT)).schema)
