"""Sources of Spark whose rows are then lifted (`lift/row_lifts.py`): Kafka, sockets, whole files of any file system.

Files that every machine can open are read by `source/file_source.py`, which is faster and keeps streams in step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.source_address import address_of
from cqels.model.errors import CqelsError
from cqels.pipeline.source.kafka_source import security_of, servers_of, topics_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = "path string, modificationTime timestamp, length long, content binary"


def kafka(
    spark: SparkSession, servers: str, topic: str, *, start: str = "earliest", most: int | None = None, **options: str
) -> DataFrame:
    """Each record of some topics (`a` or `a,b`) is a row, from the `earliest` ones on or from the `latest`.

    `most` are the records of a micro-batch; `options` are those of Spark's source, with `_` for a dot:
    `kafka_security_protocol="SSL"`.
    """
    from pyspark.errors import AnalysisException

    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", start)
    if most is not None:
        reader = reader.option("maxOffsetsPerTrigger", most)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    try:
        return reader.load()
    except AnalysisException as error:
        version, scala = spark.version, "2.13"
        raise CqelsError(
            f"this Spark session has no source of Kafka: {str(error).splitlines()[0]}",
            hint=f"start it with spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}",
        ) from None


def declared_kafka(spark: SparkSession, declaration: StreamDeclaration) -> DataFrame:
    """The records of a declared source `kafka://…`."""
    address = address_of(declaration)
    protocol, mechanism = security_of(address)
    options: dict[str, Any] = {
        name: values[0] for name, values in address.options.items() if name.startswith("kafka.")
    } | {
        "kafka.isolation.level": "read_committed",
        "kafka.security.protocol": protocol,
        "includeHeaders": "true",
    }
    if address.get("ca"):
        options |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": address.get("ca")}
    if address.get("certificate"):
        options |= {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": address.get("certificate")}
    if address.get("insecure") == "true":
        options["kafka.ssl.endpoint.identification.algorithm"] = ""
    if protocol.startswith("SASL"):
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        user, password = (_quoted(each or "") for each in (address.user, address.password))
        options |= {
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.{kind}LoginModule required "
            f"username={user} password={password};",
        }
    start = address.get("start", "earliest")
    return kafka(spark, servers_of(address), ",".join(topics_of(address)), start=start, **options)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def socket(spark: SparkSession, host: str, port: int) -> DataFrame:
    """Each line that a server sends is a row, with the time at which it came. For trying out: a restart loses lines."""
    reader = spark.readStream.format("socket").option("host", host).option("port", port)
    return reader.option("includeTimestamp", "true").load()


def whole_files(spark: SparkSession, path: str, *, most: int | None = None) -> DataFrame:
    """Each file of a folder or a pattern is a row, the oldest files first; `most` is for one micro-batch.

    The path is one of Spark (`s3a://…`, `hdfs://…`).  A file has to fit in the memory of a task.  Files of the same
    millisecond come in any order: where they belong one after the other, let them have different times, or allow a
    lateness.
    """
    reader = spark.readStream.format("binaryFile").schema(_FILE)
    if most is not None:
        reader = reader.option("maxFilesPerTrigger", most)
    return reader.load(path).selectExpr("content AS value", "path AS place")
