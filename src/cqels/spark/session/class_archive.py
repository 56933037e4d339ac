"""A class-data archive for Spark's Java in the user's cache: classes as they are in memory, parsed and verified.

A start of Spark is mostly Java reading and verifying classes.  With the archive that is a third less processor time.
It is made once, in the background by a process of its own (`cqels.spark.driver.archive_maker`): that takes longer than
anybody wants to wait.  Java uses it if it fits the class path, and else goes on without a word; so its name has all
that it depends on.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from cqels.model.folders import cache_part
from cqels.spark.session.java import Java, find_java
from cqels.spark.session.spark_home import spark_home

_PART = "classes"
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Java says nothing of an archive that does not fit."""
_MAKER = "cqels.spark.driver.archive_maker"
REFUSED = ".refused"
"""The suffix of a file that says that this Java makes no archive."""


def archive_path(java: Java, home: Path | None) -> Path | None:
    """The archive for a Java and a home of Spark, which may not be there yet; None where there can be none."""
    if home is None or not (_is_ours(home) and (folder := cache_part(_PART))):
        return None
    jars = sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in (home / "jars").iterdir())
    parts = [str(java.program.resolve()), java.build, version("pyspark"), str(home), repr(jars)]
    return folder / f"{sha256(chr(10).join(parts).encode()).hexdigest()[:16]}.jsa"


def _is_ours(home: Path) -> bool:
    """Whether Spark is started from this home, and by this Python (`spark_session._environment`)."""
    return os.environ.get("SPARK_HOME", str(home)) == str(home) and "PYSPARK_PYTHON" not in os.environ


def using(path: Path | None) -> str:
    """Options of Java to use an archive, if it is there."""
    return f'"-XX:SharedArchiveFile={path}" -Xshare:auto {_QUIET}' if path is not None and path.exists() else ""


def make_in_background() -> bool:
    """Have the archive made if it is not there, by a process of low priority that outlives this one."""
    path = archive_path(find_java(), spark_home())
    if path is None or path.exists() or path.with_suffix(REFUSED).exists() or not _is_free(path.parent):
        return False
    quiet = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-m", _MAKER], stdin=quiet, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True
    )
    return True


def locked(folder: Path) -> int | None:
    """The lock of those who make archives; None if another process has it."""
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _is_free(folder: Path) -> bool:
    """Whether nobody makes an archive now."""
    lock = locked(folder)
    if lock is not None:
        os.close(lock)
    return lock is not None
