"""The streams of an application and their sources, as they are declared. Reading them is left to `pipeline_builder`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqels.ingest import StreamDeclaration, StreamSettings
from cqels.ingest.declarations import check_same
from cqels.spark.lift.row_lifts import Lift
from cqels.spark.source.file_catalog import Changed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class DeclaredSource:
    """Where elements of a stream come from: the rows of a DataFrame and how they are lifted, or files."""

    iri: str
    rows: DataFrame | None = None
    lift: Lift | None = None
    files: StreamDeclaration | None = None
    changed: Changed = "stop"
    future: int | None = None


@dataclass
class DeclaredSources:
    """Streams by their IRIs, and the sources of all of them in the order of their declarations."""

    follow: bool
    """Files are waited for, and do not end."""
    streams: dict[str, StreamSettings] = field(default_factory=dict)
    sources: list[DeclaredSource] = field(default_factory=list)
    firsts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Of the sources that end and have several files, when these are listed: the times of their first elements."""

    def declare(self, settings: StreamSettings, source: DeclaredSource) -> bool:
        """Add a source. True if its stream is new; one that is declared again has the same settings."""
        new = settings.iri not in self.streams
        if new:
            self.streams[settings.iri] = settings
        else:
            check_same(self.streams[settings.iri], settings)
        self.sources.append(source)
        return new

    @property
    def bounded(self) -> frozenset[int]:
        """The sources that end, and are waited for."""
        return frozenset(
            number for number, each in enumerate(self.sources) if each.files is not None and not self.follow
        )

    @property
    def all_end(self) -> bool:
        return not self.follow and all(each.files is not None for each in self.sources)

    @property
    def not_files(self) -> list[str]:
        """The streams that are not read from files, and so cannot be read once more."""
        return [each.iri for each in self.sources if each.files is None]

    @property
    def streams_of_sources(self) -> tuple[int, ...]:
        """The number of each source's stream."""
        streams = [*self.streams]
        return tuple(streams.index(each.iri) for each in self.sources)

    @property
    def holds_back(self) -> bool:
        """Elements may wait for others, and so for queries that are added after them."""
        if len(self.bounded) > 1 or any(each.lateness or each.idle for each in self.streams.values()):
            return True
        files = [each.files for each in self.sources if each.files is not None and not self.follow]
        return any(not Path(each.path).is_file() for each in files)

    def for_manifest(self) -> list[dict[str, Any]]:
        """The streams as a checkpoint knows them."""
        bounded = self.bounded
        return [
            {
                "iri": each.iri,
                "lateness": each.lateness,
                "idle": each.idle,
                "arrival": each.arrival,
                "ends": [number in bounded for number, source in enumerate(self.sources) if source.iri == each.iri],
            }
            for each in self.streams.values()
        ]
