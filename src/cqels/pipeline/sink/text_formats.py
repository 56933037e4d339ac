"""The results of a micro-batch as the bytes of a format, from whole columns; the same that `cqels.results` writes."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from functools import lru_cache, partial
from json.encoder import encode_basestring
from typing import Any

import pyarrow
import pyarrow.compute

from cqels.model.dictionary import term_of
from cqels.model.errors import CqelsError
from cqels.model.terms import XSD_DATE_TIME
from cqels.model.time import format_date_time, format_time
from cqels.pipeline.sink.result_batch import TRIPLE, Sent, by_distinct
from cqels.plan.algebra import Query
from cqels.results import RESULT_FORMATS, writer_for
from cqels.results.result import TextWriter, generated_at, graph_name, json_term, lexical

_TEXT = pyarrow.large_string()
_FEW = 16
"""Results up to which it is quicker to write one after the other."""
_ELEMENTS = ("ntriples", "nquads", "trig")
"""Formats of constructed elements."""
_SPECIAL = re.compile(r'[,"\r\n]')


def check(query: Query, format: str) -> None:
    """Refuse a format in which the results of a query cannot be written."""
    if format not in RESULT_FORMATS:
        raise CqelsError(f"results have no format '{format}'", hint=f"the formats are {', '.join(RESULT_FORMATS)}")
    if format not in _ELEMENTS:
        return
    if query.form != "construct":
        raise CqelsError(f"the format {format} writes the triples of CONSTRUCT only", hint="use text, csv or jsonl")
    if query.emit in ("changes", "snapshot"):
        what = "a triple is withdrawn" if query.emit == "changes" else "there is nothing"
        raise CqelsError(f"the format {format} cannot say that {what}", hint="use text, csv or jsonl")


def head(query: Query, format: str) -> bytes:
    """What a file begins with."""
    if format != "csv":
        return b""
    stream = io.StringIO(newline="")
    columns = ("boolean",) if query.form == "ask" else query.variables
    writer_for("csv", stream, columns, {}).close()
    return stream.getvalue().encode()


def body(sent: Sent, format: str, width: int = 0) -> tuple[bytes, int]:
    """The results without the head; and the width of a text's first column, which those before have made `width`."""
    match format, sent.query.form:
        case "csv", "select":
            return _bytes(_csv_rows(sent)), width
        case "jsonl", _:
            return lines_of(json_lines(sent)), width
        case (("ntriples" | "nquads" | "trig"), _):
            return "".join(_elements(sent, format)).encode(), width
        case _:
            return _written(sent, format, width)


def messages(sent: Sent, format: str, *, ids: bool = False) -> list[str]:
    """Each result as a message of its own; in JSON with its id, if asked for."""
    if format != "jsonl":
        return _elements(sent, format)
    texts: list[str] = (json_lines_with_ids if ids else json_lines)(sent).to_pylist()
    return texts


MESSAGE_FORMATS = ("jsonl", *_ELEMENTS)
"""The formats of messages, which are of one result each."""


def json_lines(sent: Sent) -> Any:
    """Each result as a JSON object, in an array of texts."""
    if sent.query.form != "select":
        return _texts(_written(sent, "jsonl", 0)[0].decode().split("\n")[:-1])
    columns = sent.columns
    sign = by_distinct(columns["sign"], lambda signs: _texts([f', "sign": "{each}"' if each else "" for each in signs]))
    begin = _joined(
        f'{{"query": {_string(sent.name)}, "time": "',
        _times(columns["time"]),
        '", "tick": ',
        columns["tick"].combine_chunks().cast(_TEXT),
        sign,
    )
    pairs = [by_distinct(columns[f"?{name}"], partial(_bindings, name)) for name in sent.query.variables]
    bound = pyarrow.compute.utf8_slice_codeunits(_joined(*pairs), 2) if pairs else ""  # without the first comma
    whole = _joined(begin, ', "bindings": {', bound, "}}")
    return _where_empty(sent, lambda: _joined(begin, ', "empty": true}'), whole)


def json_lines_with_ids(sent: Sent) -> Any:
    """The same, each with its `id`, `<query>/<number>`, in the first place."""
    before = f'{{"id": {_string(f"{sent.name}/")[:-1]}'
    numbers = pyarrow.array(range(sent.number, sent.number + len(sent)), pyarrow.int64()).cast(_TEXT)
    rest = pyarrow.compute.utf8_slice_codeunits(json_lines(sent), 1)
    return _joined(before, numbers, '", ', rest)


def lines_of(texts: Any) -> bytes:
    """The bytes of texts, each a line."""
    return _bytes(_joined(texts, "\n"))


def lines_with_ids(sent: Sent) -> bytes:
    """`json_lines_with_ids` as lines. A few results are written one by one: columns are dearer for them."""
    if len(sent) > _FEW:
        return lines_of(json_lines_with_ids(sent))
    before = f'{{"id": {_string(f"{sent.name}/")[:-1]}'
    lines = _written(sent, "jsonl", 0)[0].decode().split("\n")[:-1]
    return "".join(f'{before}{number}", {line[1:]}\n' for number, line in enumerate(lines, sent.number)).encode()


def _csv_rows(sent: Sent) -> Any:
    columns = sent.columns
    fields = [
        by_distinct(columns[f"?{name}"], lambda texts: _texts(list(map(_field, texts))))
        for name in sent.query.variables
    ]
    sign = _where_empty(sent, lambda: "empty", columns["sign"].combine_chunks().cast(_TEXT))
    row = _joined(_times(columns["time"]), columns["tick"].combine_chunks().cast(_TEXT), sign, *fields, between=",")
    return _joined(row, "\r\n")


def _where_empty(sent: Sent, empty_text: Callable[[], Any], otherwise: Any) -> Any:
    """Another text for empty snapshots, which most micro-batches do not have."""
    empty = sent.columns["empty"].combine_chunks()
    if not pyarrow.compute.any(empty).as_py():
        return otherwise
    return pyarrow.compute.if_else(empty, empty_text(), otherwise)


def _elements(sent: Sent, format: str) -> list[str]:
    """Each constructed element as a text: a line of timed triples, or a graph."""
    texts = zip(sent.columns["time"].to_pylist(), sent.columns["triples"].to_pylist(), strict=True)
    if format == "ntriples":
        return [TRIPLE.sub(_timed(time), text) + "\n" for time, text in texts]
    made = []
    for number, (time, text) in enumerate(texts, sent.number):
        graph = graph_name(sent.name, number)
        if format == "trig":
            element = f"{graph} {{ {' '.join(found[0] for found in TRIPLE.finditer(text))} }}\n"
        else:
            element = "".join(f"{s} {p} {o} {graph} .\n" for s, p, o in TRIPLE.findall(text))
        made.append(generated_at(graph, time) + element)
    return made


@lru_cache(maxsize=1 << 10)
def _timed(time: int) -> str:
    return rf'\1 \2 \3 "{format_date_time(time)}"^^{XSD_DATE_TIME} .'


def _written(sent: Sent, format: str, width: int) -> tuple[bytes, int]:
    """By a writer, one result after the other."""
    stream = io.StringIO(newline="")
    writer = writer_for(format, stream, sent.query.variables, dict(sent.query.prefixes))
    if isinstance(writer, TextWriter):
        writer.width = width
    for result in sent.results():
        writer.write(result)
    text = stream.getvalue()
    if format == "csv":
        text = text.partition("\r\n")[2]
    return text.encode(), writer.width if isinstance(writer, TextWriter) else width


# ---------------------------------------------------------------- columns


def _times(column: Any) -> Any:
    encoded = column.combine_chunks().dictionary_encode()
    return _texts(list(map(format_time, encoded.dictionary.to_pylist()))).take(encoded.indices)


def _joined(*columns: Any, between: str = "") -> Any:
    """Row by row, columns and texts one behind the other; null is no text."""
    parts = [pyarrow.scalar(each, _TEXT) if isinstance(each, str) else each for each in (*columns, between)]
    return pyarrow.compute.binary_join_element_wise(*parts, null_handling="replace", null_replacement="")


def _texts(values: list[str]) -> Any:
    return pyarrow.array(values, _TEXT)


def _bytes(lines: Any) -> bytes:
    """The bytes of all texts, one after the other: as an array has them."""
    if not len(lines):
        return b""
    _, offsets, data = lines.buffers()
    start, end = pyarrow.Array.from_buffers(pyarrow.int64(), len(lines) + 1, [None, offsets], offset=lines.offset)[
        :: len(lines)
    ].to_pylist()
    return memoryview(data)[start:end].tobytes()


# ---------------------------------------------------------------- terms


def _field(text: str) -> str:
    """The lexical form of a term's text, quoted if a field of CSV has to be."""
    if text[0] != '"':
        plain = text[1:-1] if text[0] == "<" else text
    else:
        plain = text[1 : text.rindex('"')] if "\\" not in text else lexical(term_of(text))
    return plain if _SPECIAL.search(plain) is None else _quoted(plain)


def _quoted(plain: str) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerow([plain])
    return stream.getvalue().removesuffix("\r\n")


def _string(text: str) -> str:
    return encode_basestring(text)


def _bindings(name: str, texts: list[str]) -> Any:
    """The pairs of a variable and a term in a JSON object, each behind a comma."""
    key = ", " + _string(name)
    iri, blank = (f"{key}: {before}" for before, _ in (_around("<x:>"), _around("_:b")))
    made = []
    for text in texts:
        if text[0] == '"':
            end = text.rindex('"')
            before, after = _around('""' + text[end + 1 :])
            plain = text[1:end] if "\\" not in text else lexical(term_of(text))
            made.append(f"{key}: {before}{_string(plain)}{after}")
        elif text[0] == "<":
            made.append(f"{iri}{_string(text[1:-1])}}}")
        else:
            made.append(f"{blank}{_string(text[2:])}}}")
    return _texts(made)


@lru_cache(maxsize=1 << 10)
def _around(text: str) -> tuple[str, str]:
    """What stands before and behind the value in the JSON of all terms of this kind."""
    record = json_term(term_of(text))
    before, _, after = json.dumps(record | {"value": ""}, ensure_ascii=False).partition('"value": ""')
    return before + '"value": ', after
