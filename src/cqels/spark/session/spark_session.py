"""The one place that makes a Spark session: its settings, its Java, its quiet, and its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Lock
from typing import TYPE_CHECKING
from warnings import filterwarnings

from cqels.model.errors import CqelsError
from cqels.spark.session.class_archive import archive_path, using
from cqels.spark.session.java import Java, find_java, quiet_home
from cqels.spark.session.spark_home import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL = "pip install 'cqels[spark]'"
_PARTS = ("pyspark", "pandas", "pyarrow", "google.protobuf")
_LOGGING = Path(__file__).with_name("log4j2.properties")
_OPTIONS = "spark.driver.extraJavaOptions"
_PARTITIONS = "spark.sql.shuffle.partitions"
_SETTING = Lock()
"""A setting of a session is another one for a moment."""
_STACK = "-Xss16m"
"""Of a thread of Java: Spark looks for known words in the error of a batch that is stopped by a regular expression that
takes stack for each character, and ended with a StackOverflowError."""
_BRIEF = "-XX:TieredStopAtLevel=1"
"""The fast compiler alone: on two cores the start waits for the other one."""
_LONGEST_END = 20
"""Seconds that Java has to end by itself."""

_SECRET = "(?i)secret|password|passwd|passphrase|token|credential|jaas|(access|api|private)[._-]?key"

SETTINGS: dict[str, str] = {
    # between Java and Python
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # state
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",  # one is needed to go on; its files are found sooner among few
    "spark.sql.streaming.stateStore.maintenanceInterval": "15s",  # what is not needed goes before there is much of it
    # passwords of sources and sinks are not shown in plans, pages and logs
    "spark.redaction.regex": _SECRET,
    "spark.sql.redaction.options.regex": f"{_SECRET}|(?i)url",
    # times are those of the data, wherever this runs
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL: dict[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""What holds only where all is on one machine."""
RENAMED_FILES: dict[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Files of checkpoints are written in a quarter of the time, and never replaced: what a repeated micro-batch writes is
thrown away without a word, and the state is then mixed from two of its runs.  So this is only for local sessions whose
queries are all pipelines: these remove what an incomplete micro-batch has left (`Checkpoint.discard_incomplete`)."""


def start(
    *,
    master: str = "local[2]",
    name: str = "cqels",
    partitions: int | None = None,
    ui: bool = False,
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
    brief: bool = False,
) -> SparkSession:
    """A Spark session with the settings that were measured to be best; the one that runs already, if there is one.

    `partitions` is the number of tasks after a shuffle, and so of engines that can run side by side.  `settings` are
    Spark's own and go before ours; options for Java are added.  With a `log`, all that Java and its workers say goes to
    that file, and Ctrl-C does not reach them.  A `brief` session is up in half the processor time: Java compiles less
    well, which pays if it runs for seconds, or for minutes that are mostly spent in engines.
    """
    check_installed()
    from pyspark.sql import SparkSession

    if (running := SparkSession.getActiveSession()) is not None:
        return running
    java, home = find_java(), spark_home() if master.startswith("local") else None
    ours = settings_for(master, name=name, partitions=partitions, ui=ui)
    options = [ours[_OPTIONS], _BRIEF if brief else "", using(archive_path(java, home)), (settings or {}).get(_OPTIONS)]
    chosen = ours | dict(settings or {}) | {_OPTIONS: " ".join(each for each in options if each)}
    filterwarnings(
        "ignore", "PySpark does not yet fully support pandas", FutureWarning
    )  # of which we use nothing there
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _environment(java, home):
        if log is not None:
            _launch(chosen, log)
        spark: SparkSession = builder.getOrCreate()
    return spark


def check_installed() -> None:
    """All of Spark is there."""
    if missing := missing_parts():
        raise CqelsError(f"Spark is not installed: there is no {' and no '.join(missing)}", hint=INSTALL)


def missing_parts() -> list[str]:
    """The packages that Spark needs and that are not installed."""
    return [part for part in _PARTS if not _is_there(part)]


def _launch(settings: Mapping[str, str], log: Path) -> None:
    """Start Java away from the terminal of this process."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf().setAll(list(settings.items()))
    with log.open("ab") as file:
        apart = {"stdout": file, "stderr": file, "start_new_session": True}
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, apart), conf=conf)


def _is_there(part: str) -> bool:
    try:
        return find_spec(part) is not None
    except ModuleNotFoundError:  # what it is a part of is not there
        return False


def settings_for(master: str, *, name: str, partitions: int | None, ui: bool) -> dict[str, str]:
    """All settings of a session."""
    local = master.startswith("local")
    chosen = {"spark.master": master, "spark.app.name": name, "spark.ui.enabled": str(ui).lower(), **SETTINGS}
    chosen[_OPTIONS] = f"{_STACK} -Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    if local:
        chosen |= LOCAL
    if partitions is not None or local:
        chosen[_PARTITIONS] = str(partitions or 2)
    return chosen


@contextmanager
def partitioned(spark: SparkSession, partitions: int) -> Iterator[None]:
    """Have a query that is started meanwhile take so many tasks after a shuffle; 0 is what the session has.

    A query takes the settings of its session when it is started, and a checkpoint keeps this one from then on.
    """
    with _SETTING:
        before = spark.conf.get(_PARTITIONS)
        if partitions:
            spark.conf.set(_PARTITIONS, str(partitions))
        try:
            yield
        finally:
            if partitions and before is not None:
                spark.conf.set(_PARTITIONS, before)


def stop(spark: SparkSession, *, longest: float = _LONGEST_END) -> None:
    """End a session and its Java, whatever state that is in; another one can be made afterwards.

    Java has the `longest` seconds to end by itself.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    with suppress(Exception):  # Java may have been killed: then there is nothing to stop
        spark.stop()
    if gateway is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(longest)
    except TimeoutExpired:
        process.kill()
        process.wait()


def kill() -> None:
    """End Java at once, if there is one, and leave the rest to the end of this process."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


@contextmanager
def _environment(java: Java, home: Path | None) -> Iterator[None]:
    """What Spark reads from the environment when it starts: where it is, and Java, and which Python workers are."""
    wanted = {"JAVA_HOME": str(quiet_home(java))}
    if "SPARK_LAUNCHER_OPTS" not in os.environ:
        wanted["SPARK_LAUNCHER_OPTS"] = f"{_BRIEF} -XX:+UseSerialGC"  # of a Java that only makes the command of another
    if "PYSPARK_PYTHON" not in os.environ:
        wanted["PYSPARK_PYTHON"] = sys.executable
        if home is not None and "SPARK_HOME" not in os.environ:  # this Python has the PySpark that the home is of
            wanted["SPARK_HOME"] = str(home)
    before = {key: os.environ.get(key) for key in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value
