"""A home of Spark whose Python processes start fast. Nothing is started here.

Spark puts a zip of PySpark that is in its home before what is installed, in every Python process that it starts.
Nothing in that is compiled, so each process compiles it anew: a second of processor time, and on a busy machine more
than the ten seconds that Spark waits for it.  In a home without the zip they import what is installed, compiled once.
"""

from __future__ import annotations

import shutil
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from cqels.model.folders import cache_part

_PARTS = ("bin", "sbin", "jars", "conf")


def spark_home() -> Path | None:
    """Links to all of the installed Spark but its zip; None if it is not installed by pip, or there is no cache."""
    found, folder = find_spec("pyspark"), cache_part("spark")
    if found is None or found.origin is None or folder is None:
        return None
    package = Path(found.origin).parent
    if not (package / "jars").is_dir() or not (package / "bin").is_dir():
        return None
    home = folder / sha256(str(package).encode()).hexdigest()[:16]
    if not home.is_dir():
        draft = Path(mkdtemp(dir=home.parent))
        for part in _PARTS:
            if (package / part).is_dir():
                (draft / part).symlink_to(package / part)
        try:
            draft.rename(home)
        except OSError:  # another process was faster
            shutil.rmtree(draft)
    return home
