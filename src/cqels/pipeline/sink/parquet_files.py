"""The Parquet sink: a file for each micro-batch, whose columns have the same types from the first to the last."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from cqels.engine.output.arrow_columns import typed
from cqels.model.dictionary import term_of
from cqels.model.durable_files import sync_folder, write_durably
from cqels.model.errors import CqelsError
from cqels.model.terms import Term
from cqels.pipeline.sink.exactly_once_file import not_written
from cqels.pipeline.sink.result_batch import Sent, by_distinct
from cqels.plan.algebra import Query
from cqels.results.result import lexical

_TYPES = {
    "string": pyarrow.string(),
    "term": pyarrow.string(),
    "integer": pyarrow.int64(),
    "double": pyarrow.float64(),
    "boolean": pyarrow.bool_(),
    "dateTime": pyarrow.timestamp("ns", tz="UTC"),
}
TYPES = tuple(_TYPES)
"""What a variable's column can be: the lexical form, the N-Triples text, or values."""
UNITS = ("ns", "us")
_SIDE = ".run"


class Parts:
    """The folder of one query: `part-000000041.parquet` has the results of batch 41, and may be written again.

    An empty snapshot is a row whose sign is `empty`, as in CSV.
    """

    def __init__(
        self, folder: Path, query: Query, *, types: Mapping[str, str], unit: str, run: str, replace: bool
    ) -> None:
        self._folder, self._types, self._unit, self._run, self._replace = folder, types, unit, run, replace
        check_types(types)
        if unit not in UNITS:
            raise CqelsError(f"times in Parquet have no unit '{unit}'", hint=f"the units are {', '.join(UNITS)}")
        self._newest, self._count = -1, 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._start()
        except OSError as error:
            raise not_written(folder, error) from None

    def write(self, batch: int, sent: Sent) -> None:
        if batch < self._newest and not self._run:
            self._other_run()
        path = self._folder / f"part-{batch:09d}.parquet"
        temporary = path.with_name(f".{path.name}.tmp")
        table = fixed_table(sent, self._types, self._unit)
        try:
            new = not path.exists()
            with temporary.open("wb") as stream:
                pyarrow.parquet.write_table(table, stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
            sync_folder(self._folder)
        except OSError as error:
            raise not_written(path, error) from None
        self._newest, self._count = max(self._newest, batch), self._count + new
        self._note()

    def _start(self) -> None:
        """Find out whether the parts that are there are of this run."""
        known = _known(self._folder)
        parts = self._parts()
        if parts and known.get("run") != self._run:
            self._other_run()
        elif parts:
            self._newest, self._count = int(parts[-1].stem.removeprefix("part-")), len(parts)
        self._note()

    def _note(self) -> None:
        """Write down of which run the parts are, and how many."""
        write_durably(self._folder / _SIDE, json.dumps({"run": self._run, "parts": self._count}).encode())

    def _parts(self) -> list[Path]:
        return sorted(self._folder.glob("part-*.parquet"))

    def _other_run(self) -> None:
        if not self._replace:
            raise CqelsError(
                f"{self._folder} has the results of another run",
                hint="results of a new checkpoint need a new place: remove the folder, or name another",
            )
        for part in self._parts():
            part.unlink()
        self._newest, self._count = -1, 0


def lost(folder: Path, run: str, *, opened: bool) -> str | None:
    """What is gone of the parts that this run has written, if something is; it has `opened` a folder here before."""
    known, there = _known(folder), len([*folder.glob("part-*.parquet")])
    if known.get("run") != run:
        return f"{folder} is gone, which this run has written" if opened and not known and not there else None
    return f"{folder} has {there} parts, where {known['parts']} were written" if there < known["parts"] else None


def _known(folder: Path) -> dict[str, Any]:
    """Of which run parts are, and how many there were; nothing if that is not known."""
    try:
        text = (folder / _SIDE).read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    try:
        known: dict[str, Any] = json.loads(text)
        return {"run": known["run"], "parts": int(known["parts"])}
    except (ValueError, KeyError, TypeError):
        raise CqelsError(f"{folder / _SIDE} is damaged", hint="remove the folder, or name another") from None


def fixed_table(sent: Sent, types: Mapping[str, str], unit: str) -> Any:
    """Results in columns whose types do not depend on them: lexical forms, or what `types` says of a variable."""
    columns = sent.columns
    sign = columns["sign"].combine_chunks().cast(pyarrow.string())
    made = {
        "time": columns["time"].cast(pyarrow.timestamp("ns")).cast(pyarrow.timestamp(unit), safe=False),
        "tick": columns["tick"],
        "sign": pyarrow.compute.if_else(columns["empty"].combine_chunks(), "empty", sign),
    }
    if sent.query.form in ("ask", "construct"):
        column = "answer" if sent.query.form == "ask" else "triples"
        made[column] = columns[column]
    else:
        for name in sent.query.variables:
            made[name] = by_distinct(columns[f"?{name}"], _values(name, types.get(name, "string"), unit))
    return pyarrow.table(made)


def _values(name: str, kind: str, unit: str) -> Callable[[list[str]], Any]:
    if kind == "term":
        return lambda texts: pyarrow.array(texts, _TYPES[kind])
    if kind == "string":
        return lambda texts: pyarrow.array([lexical(term_of(text)) for text in texts], _TYPES[kind])
    return lambda texts: _converted(name, kind, list(map(term_of, texts)), unit)


def _converted(name: str, kind: str, terms: list[Term], unit: str) -> Any:
    """The values of terms, which must all be of a kind; a type that was asked for loses nothing silently."""
    column = typed(pyarrow, terms)
    wanted = _TYPES[kind]
    numbers = kind == "double" and column.type == pyarrow.int64()
    if len(column) and column.type != wanted and not numbers:
        other = next(term for term in terms if not _is(kind, typed(pyarrow, [term]).type))
        raise CqelsError(f"?{name} has the value {other}, which is no {kind}", hint="its type can be string or term")
    made = column.cast(wanted) if len(column) else pyarrow.array([], wanted)
    return made.cast(pyarrow.timestamp(unit, tz="UTC"), safe=False) if kind == "dateTime" else made


def _is(kind: str, type: Any) -> bool:
    return type == _TYPES[kind] or (kind == "double" and type == pyarrow.int64())


def check_types(types: Mapping[str, str]) -> None:
    """Refuse a type that a column cannot have."""
    for name, kind in types.items():
        if kind not in TYPES:
            raise CqelsError(f"?{name} cannot be of type '{kind}'", hint=f"the types are {', '.join(TYPES)}")
