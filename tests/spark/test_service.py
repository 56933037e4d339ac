"""SERVICE on Spark: the driver asks once, engines and later runs know the same answer, and nobody the password."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyspark.sql import SparkSession

from cqels.model.errors import QueryError
from cqels.spark.app import App
from cqels.spark.sinks import Memory

from ..unit.test_permissions import ROOMS, Server, answer, query, server

__all__ = ["server"]


def made(spark: SparkSession, folder: Path, url: str, checkpoint: Path | None = None) -> App:
    app = App(spark, allow_service=["127.0.0.1"], checkpoint=checkpoint)
    app.files(f"<http://ex.org/obs>={folder}/obs.nt")
    app.add(query(url), name="rooms")
    return app


def test_an_endpoint_is_asked_once_and_for_all(
    spark: SparkSession, tmp_path: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [f'<http://ex.org/s1> <http://ex.org/temp> "{number}" {number} .\n' for number in range(9)]
    (tmp_path / "obs.nt").write_text("".join(lines))
    url = server.url().replace("http://", "http://me:pa55word@") + "?token=t0ken"
    first, memory = made(spark, tmp_path, url, tmp_path / "c"), Memory()
    assert "on Spark SERVICE is not asked again" in caplog.text
    assert len(server.headers) == 1
    first.run(memory).wait()
    assert [result.values[1].value for result in memory.results("rooms")] == ["hall"] * 9
    assert len(server.headers) == 1
    for path in (tmp_path / "c").rglob("*"):
        if path.is_file():
            assert b"pa55word" not in path.read_bytes(), path
            assert b"t0ken" not in path.read_bytes(), path
    server.paths["/sparql"] = lambda handler: handler.send_error(503)
    with pytest.raises(QueryError, match="HTTP 503"):
        made(spark, tmp_path, url, tmp_path / "c")
    server.paths["/sparql"] = lambda handler: answer(handler, ROOMS.replace(b"hall", b"attic"))
    again = made(spark, tmp_path, url.replace("pa55word", "an0ther"), tmp_path / "c")
    again.run(Memory()).wait()
    assert again.answers == first.answers
    assert "pa55word" not in caplog.text
    assert "an0ther" not in caplog.text


def test_what_spark_does_not_allow(spark: SparkSession, tmp_path: Path, server: Server) -> None:
    app = App(spark)
    app.files(f"<http://ex.org/obs>={tmp_path}/obs.nt")
    with pytest.raises(QueryError, match="is a loopback address"):
        app.add(query(server.url()))
    with pytest.raises(QueryError, match="is not loaded"):
        app.add("SELECT ?s FROM <urn:g> WHERE { STREAM <http://ex.org/obs> { ?s ?p ?o } }")
    assert server.headers == []
