"""The sinks of an application on Spark, under their public names: those of every pipeline, and one of Spark's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cqels.model.errors import CqelsError
from cqels.pipeline.sink.kafka_sink import KafkaTopic
from cqels.pipeline.sink.mqtt_sink import MqttTopic
from cqels.pipeline.sink.part_sink import PartFolder
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import AT_LEAST_ONCE
from cqels.pipeline.sink.text_formats import json_lines
from cqels.pipeline.sink.webhook_sink import Webhook
from cqels.pipeline.sinks import (
    FILE_FORMATS,
    Callback,
    Console,
    FanOut,
    Files,
    ForQueries,
    Lasting,
    Memory,
    Sink,
    sink_of,
)
from cqels.plan.algebra import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "FILE_FORMATS",
    "Callback",
    "Console",
    "FanOut",
    "Files",
    "ForQueries",
    "Kafka",
    "KafkaTopic",
    "Lasting",
    "Memory",
    "MqttTopic",
    "PartFolder",
    "Sink",
    "Webhook",
    "sink_of",
]


class Kafka:
    """Records in a topic: the value is a line of JSON, the key `<query>/<number>`, the results of a query from 0 on.

    At least once: after a crash a batch is written again with the same keys, by which a reader drops repetitions.
    Spark's own connector writes, `org.apache.spark:spark-sql-kafka-0-10_2.13` in `spark.jars.packages`.  `options` are
    Kafka's, such as `{"kafka.security.protocol": "SASL_SSL"}`.  `KafkaTopic` writes exactly once, without a connector.
    """

    promise = AT_LEAST_ONCE

    def __init__(self, servers: str, topic: str, *, options: Mapping[str, str] | None = None) -> None:
        self.place = f"kafka://{servers}/{topic}"
        self._options = {"kafka.bootstrap.servers": servers, "topic": topic, **dict(options or {})}

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        pass

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        import pyarrow

        tables = [
            pyarrow.table(
                {
                    "key": pyarrow.array(
                        [f"{name}/{number}" for number in range(each.number, each.number + len(each))]
                    ),
                    "value": json_lines(each).cast(pyarrow.string()),
                }
            )
            for name, each in sent.items()
            if len(each)
        ]
        if tables:
            rows = _session().createDataFrame(pyarrow.concat_tables(tables))
            rows.write.format("kafka").options(**self._options).save()

    def close(self) -> None:
        pass


def _session() -> SparkSession:
    from pyspark.sql import SparkSession

    session: SparkSession | None = SparkSession.getActiveSession()
    if session is None:
        raise CqelsError("there is no Spark session to write to Kafka with", hint="cqels.spark.start()")
    return session
