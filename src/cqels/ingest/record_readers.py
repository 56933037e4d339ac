"""Records: the rows of CSV, JSON lines, Parquet and Arrow as values by name; what they mean is in a template."""

from __future__ import annotations

import csv
import importlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any, TypeAlias

from cqels.ingest.input_files import MARK, is_compressed, open_bytes, reading, text_of_line
from cqels.ingest.parse_errors import UNREADABLE, UnreadableFile, is_not_utf8, reason_of
from cqels.model.errors import DataError, Source

_NO_VALUE = ()
_LONG_NUMBER = re.compile("[0-9]{19}")
ROWS = 10_000
"""Rows of a Parquet file that are read at a time."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time from a column of such: nanoseconds since 1970."""

    nanoseconds: int


Value: TypeAlias = str | int | float | bool | Decimal | date | Instant | None
Record: TypeAlias = Callable[[str], Value]
"""Gives the value of a column, None if it is absent; raises ValueError if it is not a single value."""
Numbered: TypeAlias = tuple[int, str, Record | str]
"""The number and the text of a record, and the record or why it is none."""


def csv_header(file: IO[bytes], delimiter: str) -> tuple[list[str], int]:
    """The names of the columns of a CSV file, and the byte behind them."""
    file.seek(len(MARK) if file.read(len(MARK)) == MARK else 0)
    lines = (text_of_line(line) for line in iter(file.readline, b""))
    names = csv_names(lines, delimiter, str(file.name))
    return names, file.tell()


def csv_names(lines: Iterable[str], delimiter: str, place: str) -> list[str]:
    """The names of the columns of a CSV file, taken from its first lines."""
    try:
        return next(csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        raise UnreadableFile(f"the header is not CSV: {error}", source=Source("", place)) from None


def csv_records(
    lines: Iterable[str],
    columns: Iterable[str],
    *,
    delimiter: str,
    place: str,
    header: list[str] | None = None,
    first: int = 1,
    give_back: Callable[[list[str]], None] | None = None,
) -> Iterator[Numbered]:
    """The records of lines without their ends, numbered from `first`, which begin with a header unless one is given.

    A quote that is not closed, or closed in another record, costs the line that it is in: lines after that are read
    again, and first given back to where they came from, if that takes them.
    """
    texts: list[str] = []
    returned: deque[str] = deque()
    source, done = iter(lines), first

    def taken() -> Iterator[str]:
        while (line := returned.popleft() if returned else next(source, None)) is not None:
            texts.append(line)
            yield line

    def reader() -> Iterator[list[str]]:
        return csv.reader((line + "\n" for line in taken()), delimiter=delimiter, strict=True)

    names = csv_names(taken(), delimiter, place) if header is None else header
    check_columns(columns, names, place)
    rows = reader()
    while True:
        start = done = done + len(texts)
        texts.clear()
        try:
            row = next(rows, None)
        except csv.Error as error:
            again, texts[1:] = texts[1:], []
            if give_back is not None:
                give_back(again)
            else:
                returned.extendleft(reversed(again))
            rows = reader()
            yield start, texts[0], f"the record is not CSV: {error}"
            continue
        if row is None:
            return
        if not row:
            continue
        if len(row) != len(names):
            yield start, "\n".join(texts), f"the record has {len(row)} columns, the header has {len(names)}"
        else:
            yield start, "\n".join(texts), dict(zip(names, row, strict=True)).__getitem__


def json_records(lines: Iterable[tuple[int, str]]) -> Iterator[Numbered]:
    """Each numbered line that is not empty is a JSON object."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            record = parse_json(line)
        except UNREADABLE as error:
            yield number, line, f"the record is not JSON: {reason_of(error, line)}"
            continue
        if isinstance(record, dict):
            yield number, line, Members(record)
        else:
            yield number, line, "the record is not a JSON object"


def parse_json(text: str) -> Any:
    """The value of a JSON text, as Python's own parser reads it; ValueError if it is none.

    orjson is several times as fast where it is installed, and gives the same but for integers beyond 64 bits; it
    refuses a few things more, of which the other then tells why.
    """
    quick = _quick_parser()
    if quick is not None and _LONG_NUMBER.search(text) is None:
        try:
            return quick(text)
        except UNREADABLE:
            pass
    return json.loads(text, parse_constant=_no_constant)


@cache
def _quick_parser() -> Callable[[str], Any] | None:
    try:
        return importlib.import_module("orjson").loads  # type: ignore[no-any-return]
    except ModuleNotFoundError:
        return None


def parquet_records(path: Path, columns: Iterable[str]) -> Iterator[Numbered]:
    """The rows of a Parquet file, numbered from 1."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise DataError(
            "a Parquet file needs the library pyarrow", source=Source("", str(path)), hint="pip install 'cqels[arrow]'"
        ) from None
    asked = list(columns)
    with open_bytes(path) as bytes_, reading(path):
        try:
            file = parquet.ParquetFile(BytesIO(bytes_.read()) if is_compressed(path) else bytes_)
            names = [each.path for each in map(file.schema.column, range(len(file.schema)))]
            structs = [name for name in file.schema_arrow.names if name not in names]
            check_columns(asked, names + structs, str(path))
            done = 0
            for batch in file.iter_batches(ROWS, columns=asked):
                yield from ((done + number, text, record) for number, text, record in arrow_records(batch))
                done += batch.num_rows
        except importlib.import_module("pyarrow").ArrowException as error:
            raise UnreadableFile(f"the file is not Parquet: {reason_of(error)}", source=Source("", str(path))) from None


def arrow_records(batch: Any) -> Iterator[Numbered]:
    """The rows of an Arrow batch, numbered from 1; a member of a struct is named as in JSON (`place.city`)."""
    pyarrow = importlib.import_module("pyarrow")
    table = pyarrow.Table.from_batches([batch])
    while any(pyarrow.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    names = table.schema.names
    columns = [_values(pyarrow, table.column(place)) for place in range(len(names))]
    for number, row in enumerate(zip(*columns, strict=True), 1):
        values = dict(zip(names, row, strict=True))
        yield number, json.dumps(values, default=_shown, ensure_ascii=False), Cells(values)


def check_columns(wanted: Iterable[str], there: Iterable[str], place: str) -> None:
    """Refuse a file that lacks a column, or has two of the name."""
    names = list(there)
    for name in wanted:
        if name not in names:
            hint = f"the columns are {', '.join(names)}" if any(names) else "it has no header"
            raise UnreadableFile(f"the file has no column '{name}'", source=Source("", place), hint=hint)
        if names.count(name) > 1:
            hint = "rename one: the template does not say which is meant"
            raise UnreadableFile(f"the file has two columns '{name}'", source=Source("", place), hint=hint)


def _no_constant(name: str) -> None:
    raise ValueError(f"the value {name} is not one of JSON")


class Members:
    """A JSON object as a record: `place.city` is a member inside another, `legs.0` the first item of an array."""

    __slots__ = ("_members",)

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members

    def inside(self, name: str) -> Any:
        """Whatever is there by this name, None if it is absent."""
        found: Any = self._members
        for step in [name] if name in self._members else name.split("."):
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                return None
        return found

    def has(self, name: str) -> bool:
        """Whether it has the member that a name begins with."""
        return name in self._members or name.partition(".")[0] in self._members

    def __call__(self, name: str) -> Value:
        found = self.inside(name)
        if isinstance(found, dict | list):
            raise ValueError(f"member '{name}' is not a single value")
        if isinstance(found, str) and is_not_utf8(found):
            raise ValueError(f"member '{name}' has half a character")
        return found  # type: ignore[no-any-return]


def _values(pyarrow: Any, column: Any) -> list[Any]:
    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = pyarrow.chunked_array([chunk.dictionary_decode() for chunk in column.chunks], kind.value_type)
        kind = column.type
    if pyarrow.types.is_timestamp(kind):
        scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
        counts = column.cast(pyarrow.int64()).to_pylist()
        return [None if count is None else Instant(count * scale) for count in counts]
    try:
        found: list[Any] = column.to_pylist()
    except UNREADABLE:  # one of them is nothing that Python has, such as a day of the year 10,000
        found = [_single(each) for each in column]
    return found


def _single(value: Any) -> Any:
    try:
        return value.as_py()
    except UNREADABLE:
        return _NO_VALUE


class Cells:
    """A row of Arrow as a record."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def inside(self, name: str) -> Any:
        """Whatever is there by this name, None if it is absent."""
        return self._values.get(name)

    def has(self, name: str) -> bool:
        return name in self._values

    def __call__(self, name: str) -> Value:
        found = self._values.get(name, self._values)
        if found is not None and not isinstance(found, str | int | float | Decimal | date | Instant):
            raise ValueError(f"column '{name}' is not a single value")
        return found


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(getattr(value, "nanoseconds", value))
