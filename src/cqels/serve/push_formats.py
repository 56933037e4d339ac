"""What a push is, by its media type and its first bytes: how it is lifted.

lines     timed N-Triples: each line is an element
element   N-Triples or N-Quads without times: one element
graphs    N-Quads, TriG or JSON-LD: each graph that has a prov:generatedAtTime is an element
document  Turtle, TriG or JSON-LD: one element
json, csv records, by the stream's template: each is an element
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile
from pathlib import Path

from pyoxigraph import RdfFormat, serialize

from cqels.ingest.lifting_template import Template, read_template
from cqels.ingest.parse_errors import UNREADABLE, parsed
from cqels.ingest.record_readers import check_columns, csv_names, csv_records
from cqels.ingest.timed_lines import LOOK_AHEAD, parse_statements
from cqels.model.errors import CqelsError, DataError
from cqels.pipeline.lift import row_lifts
from cqels.pipeline.lift.row_lifts import Form, Lift
from cqels.serve.served_stream import ServedStream

MEDIA_TYPES = {
    "application/n-triples": "ntriples",
    "application/n-quads": "nquads",
    "text/turtle": "turtle",
    "application/x-turtle": "turtle",
    "application/trig": "trig",
    "application/ld+json": "jsonld",
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/csv": "csv",
    "text/plain": "",
    "application/octet-stream": "",
    "application/x-www-form-urlencoded": "",
    "": "",
}
"""What bodies may be called, and the format; where that is empty the first bytes tell."""
CHARSETS = {
    "utf-8": "",
    "utf8": "",
    "us-ascii": "",
    "ascii": "",
    "iso-8859-1": "iso-8859-1",
    "latin1": "iso-8859-1",
    "iso-8859-15": "iso-8859-15",
    "windows-1252": "windows-1252",
    "utf-16": "utf-16",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
}
"""What a body may be written in, and how it is read; where that is empty it is as it should be."""
_LITERAL = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"(?:\^\^<[^<>\s]*+>|@[\w-]++)?+'
_RESOURCE = rb"(?:<[^<>\s]*+>|_:[^\s<\"]++)"
_VALUE = rb"(?:" + _RESOURCE + rb"|" + _LITERAL + rb'|[-+.\w][^\s"<>]*+(?:(?<=\^\^)<[^<>\s]*+>)?+(?=\s))'
_TIME = rb"(?:" + _LITERAL + rb"|[-+]?+\d++)"
_STATEMENT = re.compile(
    rb"\s*+" + _RESOURCE + rb"\s*+<[^<>\s]*+>\s*+" + _VALUE + rb"\s*+"
    rb"(?:(?P<time>" + _TIME + rb")|(?P<graph>" + _RESOURCE + rb"))?+"
    rb"[^\S\n]*+(?:\.|(?=[\n#])|\Z)",
    re.DOTALL,
)
"""A statement of N-Triples or N-Quads, perhaps with its time. Turtle never has four terms in a row."""
_BLANK = re.compile(rb"(?:\s++|#[^\n]*+)*+")
_RESYNC = re.compile(rb"\.\s*+(?=<|_:)")
_JSON_GAP = re.compile(rb"\}[\s,]*+[{\[]")
_GRAPH_TIME = b"generatedAtTime"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A push and how it is lifted."""

    values: tuple[bytes, ...]
    lift: Lift
    arrival: bool = False
    """What it carries of times does not count."""
    places: tuple[str, ...] = ()
    """What the values are called in answers, if they are records."""
    has_lines: bool = True
    """Lines of the values are lines of the body."""


class UnknownMediaType(DataError):
    """A body is of a kind that is not taken."""


class PushFormats:
    """The ways into one stream."""

    def __init__(self, stream: ServedStream, template: Path | None) -> None:
        """`template` is the file with the stream's lifting template."""
        self._stream = stream
        self._arrives = stream.clock == "arrival"
        self._template: Template | None = None
        if template is not None:
            self._template = read_template(template, timed=not self._arrives)
        time = None if stream.time is None or self._arrives else stream.time
        self._time = time
        self._lines = row_lifts.ntriples(unit=stream.unit)
        self._element = Lift("lines", "document", own_time=True, drops_times=self._arrives)
        self._subjects = None if time is None else row_lifts.ntriples(element="subject", time=time, unit=stream.unit)
        self._graphs = row_lifts.nquads(unit=stream.unit)

    def prepare(self, body: bytes, media_type: str, *, timed: bool) -> Prepared:
        """How a body is lifted; with `timed` it is said beside it when it was."""
        format, charset = _kind_of(media_type)
        body = _as_utf8(body, charset).removeprefix(_BOM)
        if not body.strip():
            raise DataError("there is nothing in the body", hint="an element in Turtle, N-Triples, TriG, JSON-LD …")
        format = format or self._guessed(body)
        if format == "json" and self._template is None and _is_linked(body):
            format = "jsonld"
        match format:
            case "json" | "ndjson" | "csv":
                return self._records(body, format, timed=timed)
            case "ntriples" | "nquads" if _lines_have(body, "time"):
                return self._timed_lines(body, timed=timed)
            case "nquads" | "trig" | "jsonld" if _GRAPH_TIME in body and not timed and not self._arrives:
                return self._timed_graphs(body, format)
            case "ntriples" | "nquads" if self._subjects is not None and not timed:
                return Prepared((body,), self._subjects)
            case "ntriples" | "nquads":
                return Prepared((body,), self._element)
            case _:
                return Prepared((body,), self._document(format, timed=timed))  # type: ignore[arg-type]

    def _guessed(self, body: bytes) -> str:
        text = body.lstrip()
        if text.startswith(b"{") and text[1:].lstrip()[:1] not in (b'"', b"}", b""):
            return "trig"  # the default graph: a name of JSON is in quotes
        if text.startswith(b"{") or (text.startswith(b"[") and _is_array(text)):
            return "jsonld" if self._template is None or _is_linked(body) else "json"
        if _lines_have(body, "time"):
            return "ntriples"
        if _lines_have(body, "graph"):
            return "nquads"
        return "trig" if _GRAPH_TIME in body and b"{" in body else "turtle"

    def _timed_lines(self, body: bytes, *, timed: bool) -> Prepared:
        if timed:
            raise DataError("the lines have times, and the request has one", hint="leave out one of them")
        if b"\n" not in body.strip():
            body = _cut(body)
        return Prepared((body,), self._lines, arrival=self._arrives)

    def _timed_graphs(self, body: bytes, format: str) -> Prepared:
        if format == "nquads":
            return Prepared((body,), self._graphs)
        form: Form = "trig" if format == "trig" else "jsonld"
        try:
            quads = parsed(body, RdfFormat.TRIG if form == "trig" else RdfFormat.JSON_LD)
            lines = serialize(quads, format=RdfFormat.N_QUADS) or b""
        except (*UNREADABLE, OSError):
            return Prepared((body,), Lift(form, "document", own_time=True))  # which is rejected, with the reason
        return Prepared((lines,), self._graphs, has_lines=False)

    def _document(self, form: Form, *, timed: bool) -> Lift:
        if self._time is None or timed:
            return Lift(form, "document", own_time=True)
        made = {"turtle": row_lifts.turtle, "trig": row_lifts.trig, "jsonld": row_lifts.jsonld}[form]
        return made(time=self._time, unit=self._stream.unit)

    def _records(self, body: bytes, format: str, *, timed: bool) -> Prepared:
        if self._template is None:
            raise DataError(
                "nothing says how records become triples",
                hint='give the stream a lifting template: PUT /streams/NAME {"template": "…"}; or send RDF',
            )
        time = "source" if self._arrives or timed else None
        if format == "csv":
            return self._csv(self._template, body, time)
        lift = row_lifts.json(self._template, time=time, unit=self._stream.unit)
        found = [*(_members(body) if format == "json" else _json_lines(body))]
        return Prepared(tuple(text for _, text in found), lift, places=tuple(place for place, _ in found))

    def _csv(self, template: Template, body: bytes, time: str | None) -> Prepared:
        """Its header is read here, so that each record is a row of its own."""
        delimiter = template.delimiter or ","
        lines = body.decode("utf-8", "surrogateescape").split("\n")
        rest = dropwhile(lambda line: not line.strip(), lines)
        names = csv_names(rest, delimiter, "the body")  # a name may have a line end in it
        check_columns(template.columns, names, "the body")
        lift = row_lifts.csv(template, header=names, time=time, unit=self._stream.unit)
        below = [*rest]
        found = [*_csv_texts(below, len(lines) - len(below) + 1, template, names, delimiter)]
        values = tuple(text.encode("utf-8", "surrogateescape") for _, text in found)
        return Prepared(values, lift, places=tuple(f"line {number}" for number, _ in found))


@lru_cache(maxsize=64)
def _kind_of(media_type: str) -> tuple[str, str]:
    """The format of a media type and how its text is read; each is empty if it says nothing."""
    name, *parameters = (each.strip().lower() for each in media_type.split(";"))
    format = MEDIA_TYPES.get(name)
    if format is None:
        known = ", ".join(sorted(each for each in MEDIA_TYPES if each))
        raise UnknownMediaType(f"the media type {media_type[:100]} is not taken", hint=f"these are: {known}")
    words = (each.partition("=") for each in parameters)
    charset = next((value.strip('" ') for word, _, value in words if word.strip() == "charset"), "utf-8")
    if charset not in CHARSETS:
        raise UnknownMediaType(f"the charset {charset[:40]} is not taken", hint=f"these are: {', '.join(CHARSETS)}")
    return format, CHARSETS[charset]


def _as_utf8(body: bytes, charset: str) -> bytes:
    if not charset:
        return body
    try:
        return body.decode(charset).encode()
    except UnicodeDecodeError as error:
        raise DataError(f"the body is not {charset}: byte {error.start:,}") from None


def _lines_have(body: bytes, fourth: str) -> bool:
    """Whether one of the first lines ends with a time, or a graph: the first that has a fourth term tells it."""
    at = 0
    for _ in range(LOOK_AHEAD):
        at = _BLANK.match(body, at).end()  # type: ignore[union-attr]
        if at == len(body):
            return False
        match = _STATEMENT.match(body, at)
        if match is not None and (match["time"] or match["graph"]):
            return match[fourth] is not None
        following = body.find(b"\n", at)
        if following < 0:  # the rest is one line
            found = _RESYNC.search(body, at)
            following = len(body) if found is None else found.end()
        at = following
    return False


def _cut(body: bytes) -> bytes:
    """A line as several, where statements with other times follow each other: `curl -d @file` leaves out line ends.

    Statements that follow without a space were lines.  With a space, those with the same time are one element, as they
    are in a file.
    """
    lines: list[bytes] = []
    start = at = 0
    before: bytes | None = b""
    """The time of the statement before, None if it was malformed."""
    while at < len(body):
        match = _STATEMENT.match(body, at)
        if at > start and not _continues(body, at, before, match):
            lines.append(body[start:at])
            start = at
        if match is not None:
            at, before = match.end(), match["time"] or b""
        else:
            following = _RESYNC.search(body, at)
            at, before = (len(body) if following is None else following.end()), None
    lines.append(body[start:])
    return b"\n".join(lines)


def _continues(body: bytes, at: int, before: bytes | None, match: re.Match[bytes] | None) -> bool:
    """Whether a statement is of the same line as the one before it."""
    if _BLANK.match(body, at).end() == len(body):  # type: ignore[union-attr]
        return True
    if match is None or before is None or not body[at : at + 1].isspace():
        return False
    time = match["time"] or b""
    return not (time and before) or time == before


def _is_linked(body: bytes) -> bool:
    return b'"@' in body


def _is_array(text: bytes) -> bool:
    """Whether it is an array of JSON: a blank node of Turtle begins like one."""
    inside = text[1:].lstrip()
    return inside[:1] in (b"{", b"[", b'"') or inside.rstrip() == b"]"


def _json_lines(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The records of lines; `curl -d @file` makes one line of them."""
    if b"\n" not in body.strip():
        yield from _members(body)
        return
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            yield f"line {number}", line


def _members(body: bytes) -> Iterator[tuple[str, bytes]]:
    """The records of a JSON document, as they are written: of one object, of an array, or of several of them."""
    is_array = body.lstrip().startswith(b"[")
    if not is_array and _JSON_GAP.search(body) is None:
        yield "", body
        return
    try:
        found = [*_values(body.decode(), is_array=is_array)]
    except (ValueError, RecursionError):
        lines = [(f"line {number}", line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
        are_lines = len(lines) > 1 and all(line.lstrip().startswith(b"{") for _, line in lines)
        yield from lines if are_lines else [("", body)]  # of which those are rejected that are no records
        return
    yield from ((f"record {number}", text.encode()) for number, text in enumerate(found, 1))


_JSON = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*+")


def _values(text: str, *, is_array: bool) -> Iterator[str]:
    """The texts of the values of an array, or of values behind each other. ValueError if they are none."""

    def behind(at: int) -> int:
        return _SPACE.match(text, at).end()  # type: ignore[union-attr]

    at = behind(0)
    if is_array:
        at = behind(at + 1)
        if text[at : at + 1] == "]":
            _check_end(text, behind(at + 1))
            return
    while at < len(text):
        _, end = _JSON.raw_decode(text, at)
        yield text[at:end]
        at = behind(end)
        if not is_array:
            continue
        if text[at : at + 1] == "]":
            _check_end(text, behind(at + 1))
            return
        if text[at : at + 1] != ",":
            break
        at = behind(at + 1)
    if is_array:
        raise ValueError("the array does not end")


def _check_end(text: str, at: int) -> None:
    if at < len(text):
        raise ValueError("there is more behind the array")


def _csv_texts(
    lines: list[str], first: int, template: Template, names: list[str], delimiter: str
) -> Iterator[tuple[int, str]]:
    """The records of the lines behind the header, each with the number of its line; `first` is that of the first."""
    if not any('"' in line for line in lines):
        for number, line in enumerate(lines, first):
            if text := line.removesuffix("\r"):
                yield number, text
        return
    for number, text, _ in csv_records(
        lines, template.columns, delimiter=delimiter, place="the body", header=names, first=first
    ):
        yield number, text


def line_of_fault(value: bytes, lift: Lift) -> int | None:
    """The line of the first fault of an element that was rejected, if it has one."""
    if lift.form == "lines":
        for number, line in enumerate(value.decode("utf-8", "surrogateescape").split("\n"), 1):
            try:
                parse_statements(line.removesuffix("\r"))
            except UNREADABLE:
                return number
        return None
    if lift.form not in ("turtle", "trig", "jsonld"):
        return None
    formats = {"turtle": RdfFormat.TURTLE, "trig": RdfFormat.TRIG, "jsonld": RdfFormat.JSON_LD}
    try:
        parsed(value, formats[lift.form])
    except SyntaxError as error:
        return error.lineno
    except UNREADABLE:
        return None
    return None


def check_template(text: str, path: Path) -> None:
    """Write a template to its file, if it is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new.toml")
    fresh.write_text(text, encoding="utf-8")
    try:
        read_template(fresh, timed=False)
    except CqelsError:
        fresh.unlink()
        raise
    fresh.replace(path)
