"""A Kafka broker with no other nodes, and Spark's connector: their jars come from Maven's repository."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyspark

from cqels.model.errors import CqelsError
from cqels.spark.session.java import find_java

VERSION = "3.9.1"
CONNECTORS = (pyspark.__version__, pyspark.__version__), ("4.2.0", "4.1.0-preview1")
"""Versions of the connector and of its part for tokens: that of Spark, else the newest that have been published."""
PATIENCE = 60
"""Seconds that a broker has to start."""
_IDENTITY = "MkU3OEVBNTcwNTJENDM2Qg"


class Unavailable(Exception):
    """What cannot be had here, and why."""


def connector(folder: Path) -> list[Path]:
    """The jars with which Spark reads topics."""
    for number, (version, tokens) in enumerate(CONNECTORS):
        jars = fetched(
            folder / str(number),
            ("org.apache.spark", "spark-sql-kafka-0-10_2.13", version),
            ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", tokens),
            ("org.apache.kafka", "kafka-clients", VERSION),
            ("org.apache.commons", "commons-pool2", "2.12.0"),
            alone=True,
        )
        if jars is not None:
            return jars
    raise Unavailable("Spark's connector for Kafka cannot be fetched from Maven's repository")


def fetched(folder: Path, *dependencies: tuple[str, str, str], alone: bool) -> list[Path] | None:
    """The jars of some packages; with all that they need, unless they come alone. None if they cannot be had."""
    folder.mkdir(parents=True)
    wanted = "".join(
        f'<dependency org="{owner}" name="{name}" rev="{version}" '
        + ('transitive="false" conf="default->master"/>' if alone else 'conf="default->default"/>')
        for owner, name, version in dependencies
    )
    (folder / "ivy.xml").write_text(
        '<ivy-module version="2.0"><info organisation="cqels" module="kafka"/><configurations><conf name="default"/>'
        f"</configurations><dependencies>{wanted}</dependencies></ivy-module>"
    )
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = [_java(), "-cp", str(ivy), "org.apache.ivy.Main", "-ivy", str(folder / "ivy.xml")]
    command += ["-types", "jar", "bundle", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    with suppress(subprocess.TimeoutExpired):
        if subprocess.run(command, capture_output=True, timeout=300).returncode == 0:
            return list(folder.glob("*.jar"))
    return None


def _java() -> str:
    try:
        return str(find_java().home / "bin" / "java")
    except CqelsError as error:
        raise Unavailable(str(error)) from None


class Broker:
    """A broker, which can be killed and started again with what it has on its disk."""

    def __init__(self, folder: Path, *, partitions: int = 2) -> None:
        if fetched(folder / "jars", ("org.apache.kafka", "kafka_2.13", VERSION), alone=False) is None:
            raise Unavailable(f"Kafka {VERSION} cannot be fetched from Maven's repository")
        self._folder = folder
        self._port, control = free_port(), free_port()
        self.servers = f"127.0.0.1:{self._port}"
        self._settings = folder / "server.properties"
        self._settings.write_text(
            f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{control}
controller.listener.names=CONTROLLER
log.dirs={folder / "logs"}
num.partitions={partitions}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
"""
        )
        self._command = [_java(), "-Xmx300m", "-cp", f"{folder / 'jars'}/*"]
        settings = str(self._settings)
        command = [*self._command, "kafka.tools.StorageTool", "format", "-t", _IDENTITY, "-c", settings]
        subprocess.run(command, check=True, capture_output=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, "kafka.Kafka", str(self._settings)], stdout=log, stderr=log
            )
        limit = time.monotonic() + PATIENCE
        while time.monotonic() < limit:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.2)
        raise TimeoutError("the broker does not answer")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    def send(self, topic: str, lines: Sequence[str]) -> None:
        """Append records to a topic."""
        command = [*self._command, "kafka.tools.ConsoleProducer", "--bootstrap-server", self.servers, "--topic", topic]
        subprocess.run(command, input="".join(f"{line}\n" for line in lines).encode(), check=True, capture_output=True)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *fault: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
