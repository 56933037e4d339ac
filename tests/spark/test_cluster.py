"""A cluster of processes on this machine gives what one process gives; the package is brought to it, not installed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

import cqels
from cqels.model.errors import CqelsError

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

import pyspark

from cqels.spark import App, start, stop
from cqels.spark.driver.metrics import Metrics
from cqels.spark.session.java import find_java
from cqels.spark.sinks import Files

pytestmark = pytest.mark.cluster

OBS = "http://ex.org/obs"
QUERIES = {
    "hot": f"""
        PREFIX : <http://ex.org/>
        SELECT ?room (COUNT(*) AS ?n) WHERE {{
          STREAM <{OBS}> [RANGE 3s] {{ ?s :temp ?t }} ?s :in ?room FILTER(?t > 30)
        }} GROUP BY ?room""",
    "all": f"PREFIX : <http://ex.org/> SELECT ?s ?t WHERE {{ STREAM <{OBS}> [RANGE 2s SLIDE 1s] {{ ?s :temp ?t }} }}",
}
PATIENCE = 300.0
"""Seconds that a step may take on a busy machine."""


@dataclass(frozen=True)
class Cluster:
    """The address of a master, and a zip of the package for its workers."""

    master: str
    package: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers with a core each; they know nothing of this package."""
    folder = tmp_path_factory.mktemp("cluster")
    try:
        java = find_java()
    except CqelsError as error:
        pytest.skip(str(error))
    package = shutil.make_archive(str(folder / "cqels"), "zip", Path(cqels.__file__).parents[1], "cqels")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }
    port, page = free_port(), free_port()
    master = f"spark://127.0.0.1:{port}"
    place = ["--host", "127.0.0.1"]
    with (
        daemon("master.Master", [*place, "--port", str(port), "--webui-port", str(page)], environment, folder),
        daemon("worker.Worker", [*place, "--cores", "1", "--memory", "700m", master], environment, folder),
        daemon("worker.Worker", [*place, "--cores", "1", "--memory", "700m", master], environment, folder),
    ):
        wait_for_workers(f"http://127.0.0.1:{page}/json/", 2)
        yield Cluster(master, Path(package))


@contextmanager
def daemon(name: str, arguments: list[str], environment: dict[str, str], folder: Path) -> Iterator[None]:
    """A process of Spark, until the end of the block."""
    command = [Path(environment["SPARK_HOME"]) / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_workers(page: str, count: int) -> None:
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        with suppress(OSError, ValueError), urlopen(page) as answer:  # it may be there and not ready
            if json.load(answer)["aliveworkers"] == count:
                return
        time.sleep(0.2)
    pytest.fail(f"the master does not have {count} workers")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Readings in some files, one after the other, and a file of rooms."""
    draw = random.Random(7)
    folder = tmp_path_factory.mktemp("data")
    rooms = (f"<http://ex.org/s{n}> <http://ex.org/in> <http://ex.org/room{n % 3}> .\n" for n in range(10))
    (folder / "rooms.ttl").write_text("".join(rooms))
    (folder / "obs").mkdir()
    now = 0
    for number in range(3):
        texts = []
        for _ in range(60):
            now += draw.choice([0, 0, 20, 150])
            value = f'"{draw.randrange(20, 40)}"^^<http://www.w3.org/2001/XMLSchema#integer>'
            texts.append(f"<http://ex.org/s{draw.randrange(12)}> <http://ex.org/temp> {value} {now} .\n")
        (folder / "obs" / f"{number}.nt").write_text("".join(texts))
    return folder


def written(files: Path, folder: Path, master: str, settings: dict[str, str]) -> tuple[dict[str, bytes], set[str]]:
    """The files that two queries write, each in an engine of its own; and where tasks have the package from."""

    def origin(number: int) -> str:
        import cqels

        return cqels.__file__

    metrics = Metrics()
    spark = start(master=master, partitions=2, settings=settings)
    try:
        origins = set(spark.sparkContext.parallelize(range(8), 4).map(origin).collect())
        app = App(spark, checkpoint=folder / "checkpoint", instances=2, batch_bytes=1 << 12)
        app.files(f"<{OBS}>={files}/obs/*.nt")
        app.load(files / "rooms.ttl")
        for name, query in QUERIES.items():
            app.add(query, name=name, emit="changes")
        run = app.run(Files(folder / "results", "csv"), metrics=metrics)
        try:
            assert run.wait(PATIENCE)
        finally:
            run.stop()
    finally:
        stop(spark)
    totals = metrics.totals
    assert (totals.instances, totals.elements, totals.ended) == (2, 180, True)
    assert totals.store_bytes is not None
    return {path.name: path.read_bytes() for path in (folder / "results").glob("*.csv")}, origins


def test_a_cluster_gives_what_one_process_gives(cluster: Cluster, files: Path, tmp_path: Path) -> None:
    expected, here = written(files, tmp_path / "local", "local[2]", {})
    assert {name: data.count(b"\n") > 20 for name, data in expected.items()} == {"hot.csv": True, "all.csv": True}
    settings = {
        "spark.submit.pyFiles": str(cluster.package),
        "spark.executor.memory": "600m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    found, brought = written(files, tmp_path / "cluster", cluster.master, settings)
    assert found == expected
    assert brought
    assert not brought & here
    assert all(cluster.package.name in place for place in brought)
