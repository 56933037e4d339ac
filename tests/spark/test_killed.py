"""An application that is killed and started again writes what one that was never disturbed writes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cqels.model.errors import CqelsError

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from cqels.spark.session.java import find_java

pytestmark = pytest.mark.cluster

PATIENCE = 600.0
"""Seconds that a run may take on a busy machine."""
APPLICATION = """
import sys
from pathlib import Path
from cqels.spark import App, start, stop
from cqels.pipeline.sink.reject_files import Rejects
from cqels.spark.sinks import Files

data, folder = map(Path, sys.argv[1:])
spark = start(partitions=2)
app = App(spark, checkpoint=folder / "checkpoint", instances=2, batch_bytes=1 << 12)
app.files(f"<http://ex.org/obs>={data}/*.nt?lateness=500ms")
where = "{ STREAM <http://ex.org/obs> [RANGE 3s] { ?s <http://ex.org/temp> ?t } }"
app.add(f"SELECT ?s (COUNT(*) AS ?n) (MAX(?t) AS ?most) WHERE {where} GROUP BY ?s", name="hot", emit="changes")
app.add(f"SELECT ?s ?t WHERE {where} ORDER BY DESC(?t) LIMIT 3", name="top")
app.run(Files(folder / "results"), rejects=Rejects(folder / "results" / "rejected.tsv")).wait()
stop(spark)
"""


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    try:
        find_java()
    except CqelsError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Readings, some of them late, some lines malformed."""
    draw = random.Random(3)
    folder = tmp_path_factory.mktemp("data")
    now = 0
    texts = []
    for number in range(1500):
        now += draw.choice([0, 20, 60])
        value = f'"{draw.randrange(20, 40)}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        texts.append(
            f"<http://ex.org/s{draw.randrange(12)}> <http://ex.org/temp> {value} {now - 900 * (number % 9 == 0)} ."
        )
        if number % 200 == 0:
            texts.append("malformed")
    (folder / "obs.nt").write_text("\n".join(texts) + "\n")
    return folder


@contextmanager
def started(data: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The application in a process, until the end of the block."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([sys.executable, "-c", APPLICATION, str(data), str(folder)], env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "results").iterdir() if path.name[0] != "."}


def test_an_application_that_is_killed_goes_on(data: Path, tmp_path: Path) -> None:
    calm, killed = tmp_path / "calm", tmp_path / "killed"
    with started(data, calm) as process:
        assert process.wait(PATIENCE) == 0
    expected = written(calm)
    assert set(expected) == {"hot.csv", "top.csv", "rejected.tsv"}
    assert expected["rejected.tsv"].count(b"\n") > 50
    file = killed / "results" / "hot.csv"
    for share in (0.1, 0.4, 0.7):
        with started(data, killed) as process:
            limit = time.monotonic() + PATIENCE
            while not (file.exists() and file.stat().st_size >= share * len(expected["hot.csv"])):
                assert process.poll() is None
                assert time.monotonic() < limit
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
    with started(data, killed) as process:
        assert process.wait(PATIENCE) == 0
    assert written(killed) == expected
