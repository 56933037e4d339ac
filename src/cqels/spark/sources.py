"""Sources as the rows that `cqels.spark.lift` takes: whole files, and the lines of files."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = "path string, modificationTime timestamp, length long, content binary"


def whole_files(spark: SparkSession, path: str, *, most: int | None = None) -> DataFrame:
    """Each file of a folder or a pattern is a row, the oldest files first; `most` is for one micro-batch.

    So a document is never cut, and a rejected line has its number.  A file has to fit in the memory of a task.
    """
    reader = spark.readStream.format("binaryFile").schema(_FILE)
    if most is not None:
        reader = reader.option("maxFilesPerTrigger", most)
    return reader.load(path).selectExpr("content AS value", "path AS place")


def lines(spark: SparkSession, path: str, *, most: int | None = None) -> DataFrame:
    """Each line is a row; large files are read by several tasks. Only for elements that are lines."""
    reader = spark.readStream.format("text")
    if most is not None:
        reader = reader.option("maxFilesPerTrigger", most)
    rows = reader.load(path)
    return rows.selectExpr("value", "_metadata.file_path AS place", "_metadata.file_block_start AS position")
