"""The streams of an application and their sources, as they are declared. Reading them is left to `pipeline_builder`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cqels.engine.event_time.wall_clock import follows, unclocked
from cqels.ingest import StreamDeclaration, StreamSettings
from cqels.ingest.declarations import check_same
from cqels.ingest.source_options import STANDARD_INPUT
from cqels.pipeline.lift.row_lifts import Lift
from cqels.pipeline.source.file_catalog import Changed
from cqels.pipeline.source.source_registry import is_received

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class DeclaredSource:
    """Where elements of a stream come from: the rows of a DataFrame with their lifting, files, or a live source."""

    iri: str
    rows: DataFrame | None = None
    lift: Lift | None = None
    files: StreamDeclaration | None = None
    live: StreamDeclaration | None = None
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
    added: dict[str, StreamSettings] | None = None
    """The streams that commands have added to an application that is served (`served_app.py`); None in others."""

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
    def known(self) -> dict[str, StreamSettings]:
        """All streams that queries can read, in the order of their numbers."""
        return self.streams | (self.added or {})

    @property
    def is_served(self) -> bool:
        """Streams and queries come and go by commands, and all instances get all that is pushed."""
        return self.added is not None

    @property
    def bounded(self) -> frozenset[int]:
        """The sources that end, and are waited for."""
        return frozenset(number for number, each in enumerate(self.sources) if self._ends(each))

    @property
    def all_end(self) -> bool:
        return not self.is_served and all(map(self._ends, self.sources))

    def _ends(self, source: DeclaredSource) -> bool:
        is_input = source.live is not None and source.live.path == STANDARD_INPUT
        return not self.follow and (source.files is not None or is_input)

    @property
    def received(self) -> dict[int, StreamDeclaration]:
        """The live sources that go through an inbox, by their numbers."""
        live = {number: each.live for number, each in enumerate(self.sources) if each.live is not None}
        return {number: each for number, each in live.items() if is_received(each)}

    @property
    def clocked(self) -> list[StreamSettings]:
        """The streams as the wall clock sees them: those of files that end do not follow it."""
        end = {self.sources[number].iri for number in self.bounded}
        return [unclocked(each) if each.iri in end else each for each in self.known.values()]

    @property
    def follow_the_clock(self) -> bool:
        """Some stream follows the wall clock while nothing arrives."""
        return any(map(follows, self.clocked))

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
                "punctuated": each.punctuated,
                "ends": [number in bounded for number, source in enumerate(self.sources) if source.iri == each.iri],
            }
            for each in self.streams.values()
        ]
