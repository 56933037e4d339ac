"""DataFrames of Spark become streams: sockets, files of any file system, and tables with columns of their own."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cqels.model.errors import CqelsError

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from pyspark.sql import DataFrame, SparkSession

from cqels import lift
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.pipeline.lift.block_format import unpack
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns
from cqels.pipeline.lift.row_lifts import Lift, Lifting
from cqels.spark import sources
from cqels.spark.lift.dataframe_lift import DataFrameLift

ALL = PushedPatterns(frozenset([ANYTHING]))
STREAM = "http://ex.org/s"


def objects(rows: DataFrame, by: Lift, name: str, *, count: int | None = None) -> tuple[list[str], list[str]]:
    """The objects of a stream's triples and the places of what was rejected, when all is there or so many are."""
    spark = rows.sparkSession
    writing = DataFrameLift(Lifting(STREAM, 0, by, (ALL,))).apply(rows).writeStream.format("memory").queryName(name)
    query = (writing.trigger(availableNow=True) if count is None else writing).start()
    try:
        if count is None:
            assert query.awaitTermination(120)
        limit = time.monotonic() + 120
        while count is not None and spark.table(name).where("kind = 'block'").count() < count:
            assert time.monotonic() < limit
            assert query.exception() is None
            time.sleep(0.2)
        found = spark.table(name).collect()
    finally:
        query.stop()
    terms = Terms(ArenaDictionary(Arena(size=1 << 26)))
    blocks = sorted(
        (row for row in found if row.kind == "block"), key=lambda row: (row.place, row.position, row.number)
    )
    batches = [unpack(bytes(row.block), terms.dictionary) for row in blocks]
    words = [triple[2] for batch in batches for _, _, triples in batch.rows() for triple in triples]
    return [str(terms.decode(word)) for word in words], [row.place for row in found if row.kind == "rejected"]


def test_a_socket_sends_lines(spark: SparkSession) -> None:
    """Their time is that at which they came."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    client.sendall(b'<http://ex.org/a> <http://ex.org/p> "1" .\n')
                    held.append(client)

        held: list[socket.socket] = []
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        rows = sources.socket(spark, "127.0.0.1", server.getsockname()[1])
        assert objects(rows, lift.ntriples(time="source"), "lines", count=1) == (['"1"'], [])
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for client in held:
            client.close()


def test_a_table_has_columns_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    template = tmp_path / "lift.toml"
    template.write_text(
        'subject = "x:{id}"\n[time]\ncolumn = "timestamp"\n'
        '[predicates]\n"x:v" = "v.w"\n"x:d" = "d"\n"x:t" = "timestamp"\n'
    )
    frame = spark.sql(
        "SELECT 1 AS id, timestamp'1970-01-01 00:00:05' AS timestamp, named_struct('w', 1.5BD) AS v, "
        "date'2020-01-02' AS d, 'x' AS place UNION ALL SELECT 2, NULL, NULL, NULL, 'y'"
    )
    frame.coalesce(1).write.parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    xsd = "^^<http://www.w3.org/2001/XMLSchema#"
    assert objects(rows, lift.columns(template), "records") == (
        [f'"1.5"{xsd}decimal>', f'"2020-01-02"{xsd}date>', f'"1970-01-01T00:00:05Z"{xsd}dateTime>'],
        ["<source>"],
    )
    with pytest.raises(CqelsError, match="has no column 'd'"):
        DataFrameLift(Lifting(STREAM, 0, lift.columns(template), (ALL,))).apply(rows.drop("d"))
    with pytest.raises(CqelsError, match="has no column 'value'"):
        DataFrameLift(Lifting(STREAM, 0, lift.ntriples(), (ALL,))).apply(rows)
    with pytest.raises(CqelsError, match="no column 'time' or 'timestamp'"):
        DataFrameLift(Lifting(STREAM, 0, lift.nquads(time="kafka"), (ALL,))).apply(rows.selectExpr("place AS value"))
    with pytest.raises(CqelsError, match=r"the column 'time' of stream .* is an int"):
        DataFrameLift(Lifting(STREAM, 0, lift.nquads(time="kafka"), (ALL,))).apply(
            rows.selectExpr("place AS value", "id AS time")
        )


def test_a_whole_file_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text('<x:a> <x:p> "1" 1 .\n<x:a> <x:p> "2" 2 .\nodd\n')
    found, rejected = objects(sources.whole_files(spark, str(tmp_path)), lift.ntriples(), "files")
    assert found == ['"1"', '"2"']
    assert [place.rpartition("/")[2] for place in rejected] == ["a.nt:3"]


def test_without_its_jars_there_is_no_kafka(spark: SparkSession) -> None:
    with pytest.raises(CqelsError, match="no source of Kafka") as caught:
        sources.kafka(spark, "127.0.0.1:9092", "topic")
    assert "spark.jars.packages" in str(caught.value)
