"""Parcels from a Kafka topic, counted and weighed for each city, minute by minute.

python examples/kafka/parcels.py host:9092 parcels
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import cqels
from cqels.spark import App, sources, start, stop
from cqels.spark.sinks import Files

JSON = Path(__file__).parent.parent / "json"
CONNECTOR = {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"}


def application(spark: Any, servers: str, topic: str, checkpoint: str) -> App:
    """The query over the records of the topic, which are lifted by the template of the JSON example."""
    app = App(spark, checkpoint=checkpoint)
    rows = sources.kafka(spark, servers, topic)
    app.stream("http://ex.org/parcels", rows, lift=cqels.lift.json(JSON / "parcels.toml"))
    app.add(JSON / "cities.rq")
    return app


if __name__ == "__main__":
    spark = start(settings=CONNECTOR)
    application(spark, *sys.argv[1:3], "state").run(Files("cities.csv")).wait()
    stop(spark)
