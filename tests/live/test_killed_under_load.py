"""A live run with files, Kafka and MQTT in, files and Kafka out, is killed at random moments while elements come.

The brokers are real; where they cannot be had, the tests are skipped.  `CQELS_KILLS` says how often it is killed, and
`CQELS_SPARK_KILLS` on Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("confluent_kafka", reason="pip install 'cqels[kafka]'")
pytest.importorskip("paho.mqtt", reason="pip install 'cqels[mqtt]'")
pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from ..spark.broker import Broker, Unavailable
from ..spark.jobs import kill, tagged
from .kills import Job, kill_often
from .load import Load, expected, lasting_broker, reference
from .mqtt_broker import MOSQUITTO

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed"),
]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Broker]:
    try:
        made = Broker(tmp_path / "kafka", partitions=1)
    except Unavailable as error:
        pytest.skip(str(error))
    with made:
        yield made


class SparkJob(Job):
    """`cqels run` on Spark, whose Java is killed with it, or has to end by itself."""

    draw = Random(6)

    def start(self) -> subprocess.Popen[bytes]:
        os.environ["CQELS_CHAOS"] = str(self.folder)
        return super().start()

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        java = [each for each in tagged(str(self.folder)) if each.java]
        super().kill(process)
        if self.draw.random() < 0.5:
            for each in java:
                kill(each)


def test_what_is_expected_is_what_the_reference_sends(tmp_path: Path) -> None:
    assert reference(tmp_path, 300) == expected(300)


def test_embedded(tmp_path: Path, kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    count = int(os.environ.get("CQELS_KILLS", "10"))
    with lasting_broker(tmp_path / "mqtt") as mqtt:
        load = Load(tmp_path, mqtt, kafka, lambda: job.kills >= count)
        job = Job([*load.arguments(), "--engine", "embedded"], tmp_path, load.feed, load.size, load.is_done)
        kill_often(job, count, Random(8))
        told = load.check()
    with capsys.disabled():
        sys.stdout.write(f"\nembedded: {job.told()}; {told}\n")


@pytest.mark.parametrize("latency", ["normal", "low"])
def test_on_spark(latency: str, tmp_path: Path, kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    count = int(os.environ.get("CQELS_SPARK_KILLS", "3"))
    with lasting_broker(tmp_path / "mqtt") as mqtt:
        load = Load(tmp_path, mqtt, kafka, lambda: job.kills >= count)
        arguments = [*load.arguments(), "--engine", "spark", "--master", "local[2]", "--latency", latency]
        job = SparkJob(arguments, tmp_path, load.feed, load.size, load.is_done, patience=300.0, early=20.0)
        kill_often(job, count, Random(9), longest=10.0)
        told = load.check()
    with capsys.disabled():
        sys.stdout.write(f"\non Spark, latency {latency}: {job.told()}; {told}\n")
