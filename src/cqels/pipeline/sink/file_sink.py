"""The sink of files: one for each query in a folder, or one file; they grow by a batch at a time, exactly once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from cqels.model.errors import CqelsError
from cqels.pipeline.sink.exactly_once_file import GrowingFile, PassingFile
from cqels.pipeline.sink.exactly_once_file import lost as file_lost
from cqels.pipeline.sink.parquet_files import Parts
from cqels.pipeline.sink.parquet_files import lost as parts_lost
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sink.sink_protocol import EXACTLY_ONCE, query_name
from cqels.pipeline.sink.text_formats import body, check, head
from cqels.plan.algebra import Query
from cqels.results import RESULT_FORMATS, file_name, format_of_file
from cqels.results.result import EXTENSIONS

FILE_FORMATS = (*RESULT_FORMATS, "parquet")


class Files:
    """A growing file for each query in a folder, or one file; each result is in it once, whatever crashes.

    `results/` has `<query>.csv`; `out.csv` is the file of a single query.  In Parquet a query has a folder of parts,
    one for each batch (`types` and `unit`: see `parquet_files.py`).  Files are those of the machine that the
    driver runs on.  Files of another run are refused, unless they may be replaced.  Where no run goes on from another,
    `passing`, nothing is noted beside them.  `single` says whether the place is a file, where its name does not.
    """

    def __init__(
        self,
        place: str | Path,
        format: str | None = None,
        *,
        types: Mapping[str, str] | None = None,
        unit: str = "ns",
        single: bool | None = None,
        replace: bool = False,
        passing: bool = False,
    ) -> None:
        self._place = Path(place)
        self._format = format or format_of_file(str(place)) or "csv"
        if self._format not in FILE_FORMATS:
            raise CqelsError(
                f"results have no format '{self._format}'", hint=f"the formats are {', '.join(FILE_FORMATS)}"
            )
        named = self._place.suffix == f".{EXTENSIONS[self._format]}"
        self._single = named if single is None else single
        self._types, self._unit, self._replace, self._passing = dict(types or {}), unit, replace, passing
        self._files: dict[str, GrowingFile | PassingFile] = {}
        self._parts: dict[str, Parts] = {}
        self._gone: set[Path] = set()

    @property
    def place(self) -> str:
        return str(self._place)

    @property
    def promise(self) -> str:
        return EXACTLY_ONCE

    def open(self, queries: Sequence[Query], *, run: str = "") -> None:
        names = {*map(query_name, queries), *self._files, *self._parts}
        if self._single and len(names) > 1:
            raise CqelsError(
                f"{self._place} is one file, and there are {len(names)} queries", hint="name a folder: results/"
            )
        for query in queries:
            name, path = query_name(query), self._path(query)
            if name in self._files:
                self._files.pop(name).close()
            if self._format == "parquet":
                self._parts[name] = Parts(
                    path, query, types=self._types, unit=self._unit, run=run, replace=self._replace
                )
                continue
            check(query, self._format)
            begin = head(query, self._format)
            if self._passing:
                self._files[name] = PassingFile(path, begin)
            else:
                anew = path in self._gone
                self._files[name] = GrowingFile(path, begin, run=run, replace=self._replace, anew=anew)

    def places(self, queries: Sequence[Query]) -> list[Path]:
        return [] if self._passing else [self._path(query) for query in queries]

    def lost(self, queries: Sequence[Query], *, run: str, opened: Collection[str], done: int) -> list[str]:
        found = {}
        for path in self.places(queries):
            known = str(path.absolute()) in opened
            if self._format == "parquet":
                found[path] = parts_lost(path, run, opened=known)
            else:
                found[path] = file_lost(path, run, opened=known, done=done)
        self._gone = {path for path, loss in found.items() if loss is not None}
        return [loss for loss in found.values() if loss is not None]

    def begin_anew(self) -> None:
        self._replace = True

    def write(self, batch: int, sent: Mapping[str, Sent]) -> None:
        for name, each in sent.items():
            if not len(each):
                continue
            if self._format == "parquet":
                self._parts[name].write(batch, each)
            else:
                self._files[name].append(batch, partial(body, each, self._format))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _path(self, query: Query) -> Path:
        return self._place if self._single else self._place / file_name(query_name(query), self._format)
