"""What `cqels doctor` looks at: the parts that a run needs, which of them are there, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from cqels.model.errors import CqelsError

LIVE = (
    ("confluent-kafka", "kafka", "streams and results in Kafka, kafka://…"),
    ("paho-mqtt", "mqtt", "MQTT, mqtt://…"),
    ("websockets", "websocket", "WebSockets, ws://…"),
    ("httpx", "http", "server-sent events and webhooks, http://…"),
    ("orjson", "json", "JSON read faster"),
    ("pyyaml", "yarrrml", "templates in YARRRML"),
    ("starlette", "serve", "cqels serve"),
    ("uvicorn", "serve", "cqels serve"),
    ("httptools", "serve", "cqels serve"),
    ("prometheus-client", "serve", "cqels serve"),
)
"""The packages of live sources and sinks and of the service, with the extras that bring them, and what each is for."""


_WIDTH = max(len(name) for name, _, _ in LIVE) + 2


@dataclass(frozen=True, slots=True)
class Part:
    """Something that is needed: its version and place if it is there, else what to do. `only` says what it is for."""

    name: str
    found: str | None
    hint: str = ""
    only: str = ""

    def __str__(self) -> str:
        if self.found is not None:
            return f"ok       {self.name:<{_WIDTH}}{self.found}"
        purpose = f" ({self.only})" if self.only else ""
        return f"missing  {self.name:<{_WIDTH}}{self.hint}{purpose}"


def examine(*, fetch: bool = False) -> list[Part]:
    """All parts, those first that every run needs; with `fetch`, Spark's connector for Kafka is fetched if missing."""
    return [
        _python(),
        _package("cqels"),
        _package("lark"),
        _package("numpy"),
        _package("pyoxigraph"),
        _kernels(),
        _package("pyarrow", only="for Spark, and results as tables", extra="spark"),
        _package("pandas", only="for Spark, and results as tables", extra="spark"),
        _package("protobuf", only="for Spark", extra="spark"),
        _package("pyspark", only="for Spark", extra="spark"),
        _java(),
        _tried("connector", "for Kafka on Spark", lambda: _found_connector(fetch=fetch)),
        *(_package(name, only=f"for {what}", extra=extra) for name, extra, what in LIVE),
    ]


def can_run(parts: list[Part]) -> bool:
    """Whether `cqels run` works, on some engine."""
    return all(part.found is not None for part in parts if not part.only)


def verdict(parts: list[Part]) -> str:
    """What `cqels run` would use."""
    if not can_run(parts):
        return "cqels run cannot work"
    missing = [part.name for part in parts if part.found is None and part.only.startswith("for Spark")]
    if missing:
        return f"cqels run needs --engine embedded: there is no Spark without {', '.join(missing)}"
    return f"cqels run uses Spark on {os.cpu_count() or 1} cores of this machine; --engine embedded needs no Java"


def _python() -> Part:
    found = f"{platform.python_version()}  {sys.executable}"
    return Part("Python", found if sys.version_info >= (3, 11) else None, "cqels needs Python 3.11 or later")


def _package(name: str, *, only: str = "", extra: str = "") -> Part:
    wanted = f"cqels[{extra}]" if extra else "cqels"
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return Part(name, None, f"pip install '{wanted}'", only)
    return Part(name, f"{found.version}  {Path(str(found.locate_file(''))).resolve()}", only=only)


def _kernels() -> Part:
    """Compile a file of kernels, or load it, and call one: nothing less tells that LLVM works here."""
    return _tried("kernels", "", _called)


def _called() -> str:
    import llvmlite
    from llvmlite import binding

    from cqels.kernels.compiler.kernel import cache_folder
    from cqels.kernels.memory.arena import Arena

    arena = Arena(size=1 << 20)
    try:
        arena.take(8)
    finally:
        arena.close()
    version = ".".join(map(str, binding.llvm_version_info))
    folder = cache_folder()
    if folder is None:
        kept = "no cache: kernels are compiled anew in every run; set CQELS_CACHE_DIR to a folder of yours"
    else:
        files = list(folder.glob("*.o"))
        size = sum(file.stat().st_size for file in files)
        kept = f"cache {folder} ({len(files)} files, {size / 2**20:.1f} MB)"
    return f"llvmlite {llvmlite.__version__}, LLVM {version} for {binding.get_host_cpu_name()}  {kept}"


def _java() -> Part:
    return _tried("Java", "for Spark", _found_java)


def _found_java() -> str:
    from cqels.spark.session.java import find_java

    java = find_java()
    return f"{java.version}  {java.home} ({java.origin})"


def _found_connector(*, fetch: bool) -> str:
    from cqels.spark.session.kafka_connector import SCALA, candidates, connector_jars, found_jars

    found = connector_jars() if fetch else found_jars()
    if found is None:
        name = next(candidates())[0].name
        raise CqelsError("", hint=f"cqels doctor --fetch gets {name} from Maven's repository, and so does cqels run")
    return f"{found[0].stem.partition(f'_{SCALA}-')[2]}  {found[0].parent}"


def _tried(name: str, only: str, look: Callable[[], str]) -> Part:
    try:
        return Part(name, look(), only=only)
    except CqelsError as error:
        return Part(name, None, error.hint or error.message, only)
    except Exception as error:  # whatever it is, it is what the user has to know
        return Part(name, None, f"{type(error).__name__}: {error}", only)
