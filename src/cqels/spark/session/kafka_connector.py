"""Spark's connector for Kafka: which version there is for the installed Spark, where its jars are, and how to get them.

Spark does not bring it.  Its jars are looked for where Spark, Ivy and Maven keep theirs, then fetched by name from
Maven's repository into the cache folder.  Not every release of Spark has one: then the newest before it serves.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cqels.model.errors import CqelsError
from cqels.model.folders import cache_part
from cqels.spark.session.java import find_java

SCALA = "2.13"
_SPARK = "org.apache.spark"
_CONNECTOR, _TOKENS = f"spark-sql-kafka-0-10_{SCALA}", f"spark-token-provider-kafka-0-10_{SCALA}"
_OTHERS = ("org.apache.kafka", "kafka-clients", "3.9.1"), ("org.apache.commons", "commons-pool2", "2.12.0")
_OLDER = ("4.2.0", "4.2.0"), ("4.2.0", "4.1.0-preview1")
"""Versions of the connector and of its part for tokens that work with later releases of Spark."""
_PATIENCE = 300
"""Seconds that fetching may take."""


@dataclass(frozen=True, slots=True)
class Jar:
    owner: str
    name: str
    version: str

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.jar"

    def places(self) -> Iterator[Path]:
        """Where it would be, on this machine."""
        home = Path.home()
        for ivy in sorted(home.glob(".ivy2*")):
            yield ivy / "jars" / f"{self.owner}_{self.file}"
            yield ivy / "cache" / self.owner / self.name / "jars" / self.file
        yield home.joinpath(".m2", "repository", *self.owner.split("."), self.name, self.version, self.file)
        for folder in (_spark_jars(), cache_part("kafka")):
            if folder is not None:
                yield folder / self.file

    def found(self) -> Path | None:
        return next((place for place in self.places() if place.is_file()), None)


def candidates() -> Iterator[tuple[Jar, ...]]:
    """The jars that make a connector, the version of the installed Spark first."""
    from pyspark import __version__ as version

    for connector, tokens in dict.fromkeys(((version, version), *_OLDER)):
        yield (
            Jar(_SPARK, _CONNECTOR, connector),
            Jar(_SPARK, _TOKENS, tokens),
            *(Jar(*each) for each in _OTHERS),
        )


def found_jars() -> list[Path] | None:
    """The jars of a connector that is on this machine, None if there is none."""
    for jars in candidates():
        places = [jar.found() for jar in jars]
        if all(place is not None for place in places):
            return [place for place in places if place is not None]
    return None


def connector_jars() -> list[Path]:
    """The jars of a connector, fetched if there is none on this machine."""
    if (found := found_jars()) is not None:
        return found
    for jars in candidates():
        if _fetch(jars) and (found := found_jars()) is not None:
            return found
    first, *others = next(candidates())
    raise CqelsError(
        "Spark's connector for Kafka is not on this machine, and cannot be fetched from Maven's repository",
        hint=f"get {first.file} or an earlier version, with {', '.join(each.file for each in others)}, and name them: "
        "--conf spark.jars=one.jar,other.jar",
    )


def _fetch(jars: Sequence[Jar]) -> bool:
    """Fetch jars by the Ivy that comes with Spark, each by itself, into the cache folder."""
    folder = cache_part("kafka")
    ivy = next(_spark_jars().glob("ivy-*.jar"), None)
    if folder is None or ivy is None:
        return False
    wanted = "".join(
        f'<dependency org="{jar.owner}" name="{jar.name}" rev="{jar.version}" transitive="false" '
        f'conf="default->master"/>'
        for jar in jars
    )
    with TemporaryDirectory(prefix="cqels-") as temporary:
        described = Path(temporary) / "ivy.xml"
        described.write_text(
            '<ivy-module version="2.0"><info organisation="cqels" module="connector"/><configurations>'
            f'<conf name="default"/></configurations><dependencies>{wanted}</dependencies></ivy-module>'
        )
        command = [str(find_java().home / "bin" / "java"), "-cp", str(ivy), "org.apache.ivy.Main"]
        command += ["-cache", str(Path(temporary) / "cache"), "-ivy", str(described), "-types", "jar", "bundle"]
        command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
        try:
            return subprocess.run(command, capture_output=True, timeout=_PATIENCE).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


def _spark_jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def session_settings(settings: dict[str, str]) -> dict[str, str]:
    """Settings of a session with the connector added, unless they name one."""
    if any("kafka" in settings.get(name, "") for name in ("spark.jars", "spark.jars.packages")):
        return settings
    jars = ",".join(map(str, connector_jars()))
    return {**settings, "spark.jars": ",".join(filter(None, (settings.get("spark.jars", ""), jars)))}
