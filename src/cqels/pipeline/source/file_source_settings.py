"""The settings of a file source: what the driver decides before a run and sends to `file_source.py` as JSON."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from cqels.ingest import StreamDeclaration
from cqels.ingest.file_batches import has_timed_records
from cqels.ingest.lifting_template import Template, read_template
from cqels.model.errors import CqelsError, DataError, Source
from cqels.pipeline.lift.lift_settings import (
    read_declaration,
    read_patterns,
    read_written_template,
    write_declaration,
    write_patterns,
    write_template,
)
from cqels.pipeline.lift.predicate_pushdown import PushedPatterns
from cqels.pipeline.source.file_catalog import Catalog, Changed
from cqels.pipeline.source.replay_rate import ReplayRate, TimeReader

BATCH_BYTES = 1 << 30
"""Bytes of all files together that a micro-batch has at most, where nothing else is asked for."""

FileStream: TypeAlias = tuple[int, StreamDeclaration, tuple[PushedPatterns | None, ...]]
"""The number of a stream in the application, its declaration, and the patterns of each engine instance."""


def prepared(
    streams: Iterable[FileStream],
    folder: Path | None,
    *,
    batch_bytes: int = BATCH_BYTES,
    tasks: int = 1,
    follow: bool = False,
    speed: float | None = None,
    strict: bool = False,
    changed: Mapping[int, Changed] | None = None,
) -> Settings:
    """The settings of a source; the catalog of its files is created, unless an earlier run has done that.

    The catalog is kept in `folder`, a part of the application's checkpoint.  With `follow`, files that come later
    are read too, and lines that are appended to files, and no stream ends.  `changed` says for a stream what is to be
    done with a file that was replaced, shortened or removed: if nothing is said, the run stops.  With `speed`, elements
    are delivered at the rate of their times, `speed` times as fast.  With `strict` the first malformed line or record
    ends the run.
    """
    if batch_bytes < 1 or (speed is not None and speed <= 0):
        raise CqelsError("the bytes of a micro-batch and the speed are larger than 0")
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="cqels-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    complete = tuple((*each, _template_of(each[1])) for each in streams)
    choices = {number: (changed or {}).get(number, "stop") for number, *_ in complete}
    settings = Settings(complete, str(folder), batch_bytes, tasks, follow, speed, strict, choices)
    catalog = settings.catalog()
    if not catalog.exists:
        catalog.create(follow=follow)
    settings.check(catalog)
    return settings


def _template_of(declaration: StreamDeclaration) -> Template | None:
    return None if declaration.template is None else read_template(declaration.template)


@dataclass(frozen=True, slots=True)
class Settings:
    """All that the reader needs to know."""

    streams: tuple[tuple[int, StreamDeclaration, tuple[PushedPatterns | None, ...], Template | None], ...]
    folder: str
    batch_bytes: int
    tasks: int
    follow: bool
    speed: float | None
    strict: bool
    changed: dict[int, Changed]

    def text(self) -> str:
        """Itself as JSON, for Spark to give to the reader."""
        streams = [
            [number, write_declaration(declaration), [*map(write_patterns, patterns)], write_template(template)]
            for number, declaration, patterns, template in self.streams
        ]
        return json.dumps({**{field.name: getattr(self, field.name) for field in fields(self)}, "streams": streams})

    def catalog(self) -> Catalog:
        return Catalog(Path(self.folder), {number: declaration for number, declaration, _, _ in self.streams})

    def firsts(self) -> dict[int, tuple[int, ...]]:
        """The first times of the files of streams that end and have several."""
        if self.follow:
            return {}
        listed = self.catalog().files
        return {number: tuple(each.first for each in files) for number, files in listed.items() if len(files) > 1}

    def replay_rate(self) -> ReplayRate | None:
        if self.speed is None:
            return None
        return ReplayRate(
            self.speed, {number: TimeReader(each.unit, template) for number, each, _, template in self.streams}
        )

    def check(self, catalog: Catalog) -> None:
        """Refuse files that cannot be replayed at the rate of their times."""
        if self.speed is None:
            return
        for number, declaration, _, _ in self.streams:
            for file in catalog.files[number]:
                if not file.lines and not has_timed_records(declaration, Path(file.path)):
                    hint = "timed N-Triples and CSV can be, one element to a line or record, and not compressed"
                    source = Source("", file.path)
                    raise DataError("the file cannot be replayed at the pace of its times", source=source, hint=hint)


@lru_cache(maxsize=4)
def read_settings(text: str) -> Settings:
    """The settings that `Settings.text` has written."""
    written = json.loads(text)
    streams = tuple(
        (
            number,
            read_declaration(declaration),
            tuple(map(read_patterns, patterns)),
            read_written_template(template),
        )
        for number, declaration, patterns, template in written["streams"]
    )
    changed = {int(number): choice for number, choice in written["changed"].items()}
    return Settings(**{**written, "streams": streams, "changed": changed})
