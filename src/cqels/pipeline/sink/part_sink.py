"""The sink of parts: a folder for each query with files that never change, written by the tasks of Spark side by side.

`results/hot/part-000000041-000000001200.csv` has results of batch 41 from number 1,200 on, so that parts are in the
order of their names.  A part is written aside, to `.aside`, and gets its name when its batch is committed; a batch
that is repeated replaces its parts.  Then a line of `_manifest.jsonl` says which parts the batch has: that is its
commit, and the file grows exactly once (`exactly_once_file.py`).  Who reads the parts that it names sees each result
once; who reads all parts does so too, but may see a batch before it is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet

from cqels.model.durable_files import sync_folder
from cqels.model.errors import CqelsError
from cqels.pipeline.sink.exactly_once_file import GrowingFile, not_written, progress_of
from cqels.pipeline.sink.exactly_once_file import lost as file_lost
from cqels.pipeline.sink.file_sink import FILE_FORMATS
from cqels.pipeline.sink.parquet_files import check_types, fixed_table
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import EXACTLY_ONCE, query_name
from cqels.pipeline.sink.text_formats import body, check, head
from cqels.plan.algebra import Query
from cqels.results import file_name
from cqels.results.result import EXTENSIONS

MANIFEST = "_manifest.jsonl"
_ASIDE = ".aside"


@dataclass(frozen=True, slots=True)
class PartWriter:
    """Writes parts aside, in any process that has the folder."""

    place: Path
    format: str
    types: Mapping[str, str] = field(default_factory=dict)
    unit: str = "ns"

    def folder(self, query: str) -> Path:
        return self.place / file_name(query, "parquet")

    def __call__(self, batch: int, sent: Sent) -> dict[str, Any]:
        """Write results aside: the name of the part, and where it is until then."""
        folder = self.folder(sent.name) / _ASIDE
        name = f"part-{batch:09d}-{sent.number:012d}.{EXTENSIONS[self.format]}"
        aside = folder / f"{name}.{uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with aside.open("wb") as stream:
                if self.format == "parquet":
                    pyarrow.parquet.write_table(fixed_table(sent, self.types, self.unit), stream)
                else:
                    stream.write(head(sent.query, self.format) + body(sent, self.format)[0])
                stream.flush()
                os.fsync(stream.fileno())
                size = stream.tell()
        except OSError as error:
            raise not_written(aside, error) from None
        return {"part": name, "aside": aside.name, "first": sent.number, "results": len(sent), "bytes": size}


class PartFolder:
    """A folder of parts for each query, each result in it once, whatever crashes.

    On Spark the tasks write them, wherever a query runs on one engine instance; so results do not come together in the
    driver.  All machines must have the folder.
    """

    promise = EXACTLY_ONCE

    def __init__(
        self,
        place: str | Path,
        format: str = "parquet",
        *,
        types: Mapping[str, str] | None = None,
        unit: str = "ns",
        replace: bool = False,
    ) -> None:
        if format not in FILE_FORMATS:
            known = ", ".join(FILE_FORMATS)
            raise CqelsError(f"results have no format '{format}'", hint=f"the formats are {known}")
        check_types(types or {})
        self.task_writer = PartWriter(Path(place).absolute(), format, dict(types or {}), unit)
        self.place = str(place)
        self._replace = replace
        self._manifests: dict[str, GrowingFile] = {}
        self._gone: set[Path] = set()

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        for query in queries:
            if self.task_writer.format != "parquet":
                check(query, self.task_writer.format)
            name = query_name(query)
            if name in self._manifests:
                self._manifests.pop(name).close()
            path = self._manifest(name)
            if not _is_of(path, run):
                self._remove_parts(path.parent)
            anew = path in self._gone
            self._manifests[name] = GrowingFile(path, run=run, replace=self._replace, anew=anew)

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        self.commit(batch, {name: [self.task_writer(batch, each)] for name, each in sent.items() if len(each)})

    def commit(self, batch: int, written: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        for name, parts in written.items():
            folder = self.task_writer.folder(name)
            try:
                for each in parts:
                    os.replace(folder / _ASIDE / each["aside"], folder / each["part"])
                for other in (folder / _ASIDE).glob(f"part-{batch:09d}-*"):  # of tasks that failed
                    other.unlink()
                sync_folder(folder)
            except OSError as error:
                raise not_written(folder, error) from None
            line = {
                "batch": batch,
                "first": min(each["first"] for each in parts),
                "results": sum(each["results"] for each in parts),
                "parts": [{key: each[key] for key in ("part", "results", "bytes")} for each in parts],
            }
            data = (json.dumps(line) + "\n").encode()
            self._manifests[name].append(batch, lambda _, data=data: (data, 0))  # type: ignore[misc]

    def close(self) -> None:
        for manifest in self._manifests.values():
            manifest.close()
        self._manifests.clear()

    def places(self, queries: Sequence[Query]) -> list[Path]:
        return [self._manifest(query_name(query)) for query in queries]

    def lost(self, queries: Sequence[Query], *, run: str, opened: Collection[str], done: int) -> list[str]:
        found = {}
        for path in self.places(queries):
            loss = file_lost(path, run, opened=str(path.absolute()) in opened, done=done)
            if loss is None and _is_of(path, run) and path.exists():
                there = {each.name for each in path.parent.glob("part-*")}
                if missing := [part for part in committed_parts(path.parent) if part.name not in there]:
                    loss = f"{missing[0]} is gone, and {len(missing) - 1} other parts"
            if loss is not None:
                found[path] = loss
        self._gone = {*found}
        return [*found.values()]

    def begin_anew(self) -> None:
        self._replace = True

    def _manifest(self, query: str) -> Path:
        return self.task_writer.folder(query) / MANIFEST

    def _remove_parts(self, folder: Path) -> None:
        """Take away what another run has left, if that is allowed."""
        parts = [*folder.glob("part-*"), *(folder / _ASIDE).glob("part-*")]
        if parts and not self._replace:
            raise CqelsError(
                f"{folder} has the results of another run",
                hint="results of a new checkpoint need a new place: remove the folder, or name another",
            )
        for part in parts:
            part.unlink()


def committed_parts(folder: Path) -> list[Path]:
    """The parts of a query's folder whose batches are complete, in the order of the results."""
    try:
        lines = (folder / MANIFEST).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [folder / each["part"] for line in lines for each in json.loads(line)["parts"]]


def _is_of(manifest: Path, run: str) -> bool:
    known = progress_of(manifest)
    return known is not None and known.run == run
