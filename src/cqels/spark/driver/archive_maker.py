"""The maker of the class-data archive of `cqels.spark.session.class_archive`, a program.

A small pipeline runs on Spark in a process of low priority, and Java writes at its end what it has loaded.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from cqels.spark.session.class_archive import REFUSED, archive_path, locked
from cqels.spark.session.java import find_java
from cqels.spark.session.spark_home import spark_home

_NICE = 19
_LONGEST = 1800
"""Seconds after which it is given up."""
_READINGS = "".join(f'<http://ex.org/s{each % 3}> <http://ex.org/p> "{each}" {each} .\n' for each in range(2000))
_QUERY = "SELECT ?s (COUNT(*) AS ?n) { STREAM <http://ex.org/a> [RANGE 100ms] { ?s <http://ex.org/p> ?v } } GROUP BY ?s"


def make() -> Path | None:
    """Run a small pipeline on Spark and have Java write its classes at its end; None if another process does, or this
    Java makes none."""
    path = archive_path(find_java(), spark_home())
    if path is None or path.exists():
        return path
    lock = locked(path.parent)
    if lock is None:
        return None
    with suppress(OSError):
        os.nice(_NICE)
    try:
        for old in path.parent.glob("*.draft"):
            old.unlink(missing_ok=True)
        draft = path.with_suffix(".draft")
        ended = _train(draft)
        if not ended or not draft.exists():
            path.with_suffix(REFUSED).touch()
            return None
        for old in path.parent.glob("*.jsa"):  # of another Java or Spark
            old.unlink(missing_ok=True)
        draft.replace(path)
        return path
    finally:
        os.close(lock)


def _train(draft: Path) -> bool:
    """A run of a process that has Java write an archive; whether Java ended by itself."""
    with TemporaryDirectory(prefix="cqels-classes-") as folder:
        Path(folder, "readings.nt").write_text(_READINGS)
        command = [sys.executable, "-c", "from cqels.spark.driver.archive_maker import train; train()", str(draft)]
        quiet = subprocess.DEVNULL
        training = subprocess.Popen(
            command, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
        )
        try:
            return training.wait(_LONGEST) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):  # Java is a process of the same group, and may be left
                os.killpg(training.pid, signal.SIGKILL)


def train() -> None:
    """In a process of its own: the classes of a run, which Java writes to the file that is named."""
    from cqels.spark.driver.app import App
    from cqels.spark.session.spark_session import start, stop
    from cqels.spark.sinks import Memory

    settings = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={sys.argv[1]}"'}
    spark = start(master="local[2]", partitions=1, settings=settings, brief=True)
    app = App(spark, batch_bytes=20_000)
    app.files("<http://ex.org/a>=readings.nt")
    app.add(_QUERY)
    app.run(Memory()).wait()
    stop(spark, longest=_LONGEST)


if __name__ == "__main__":
    make()
