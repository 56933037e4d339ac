"""The files of an application's streams, in the order in which they are read, and positions among them.

The list is kept on disk and only grows, so that a position means the same after a restart: the number of a piece in its
stream and a byte in it.  A piece is a file, or what was appended to one since its last piece.  What is in the files is
not read here, except to tell what they hold, where their last complete line ends, and whether they are still the same.
"""

from __future__ import annotations

import csv
import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import IO, Literal, TypeAlias, get_args

from cqels.ingest import StreamDeclaration
from cqels.ingest.file_batches import has_timed_lines, has_timed_records
from cqels.ingest.input_files import files_of, is_compressed, reading
from cqels.ingest.lifting_template import delimiter_of, read_template
from cqels.ingest.parse_errors import UnreadableFile
from cqels.ingest.stream_files import Begun, check_file, check_files, format_of, in_time
from cqels.model.errors import CqelsError, Damaged, DataError, Source
from cqels.model.time import EARLIEST

BYTE_BITS = 40
"""Of a position as one number, for the byte: the rest is for the number of the piece."""
MOST_APPENDED = 16 << 20
"""Bytes of a CSV file that are looked at for the ends of records at a time."""
LONGEST_RECORD = 1 << 20
"""Bytes of a CSV record in quotes that is waited for; one that is longer ends with its line, and is rejected."""
_NAME = "files.jsonl"
_ANEW = "restore it from a copy, or begin with a new checkpoint"
_VERSION = 2
_MARKED = 1024
"""Bytes at the beginning of a file, and before where reading stopped, that it is known by."""
_NEAR = 1 << 16

Streams: TypeAlias = Mapping[int, StreamDeclaration]
"""By their numbers in the application."""
Place: TypeAlias = tuple[int, int]
"""A piece's number in its stream, and a byte in it."""
Kind: TypeAlias = Literal["lines", "records", "whole"]
Changed: TypeAlias = Literal["stop", "skip", "reread"]
"""What to do with a file that was replaced, shortened or removed."""
CHANGED: tuple[Changed, ...] = get_args(Changed)
CHANGED_HINT = (
    "skip goes on with what is appended from now on, reread with the file as it is now, from its beginning "
    "(--changed skip, --changed reread; app.files(…, changed=…))"
)


@dataclass(frozen=True, slots=True)
class Listed:
    """A piece of a file, as it was when it was listed: its bytes from `start` to `end`.

    With `lines`, each line is an element, and a piece may be cut between lines; with `records`, it ends between two
    records; else it is the whole file.  `head` and `tail` tell the file's first bytes and those before `end` from
    others.  A file that does not grow was last `modified` then.
    """

    path: str
    start: int
    end: int
    kind: Kind
    head: str
    tail: str
    modified: int | None = None
    first: int = EARLIEST
    """The time of its first element, where the files of a stream that ends are several."""
    origin: int | None = None
    """The number of the file's first piece, if it is another."""
    note: str = ""
    """What is to be told when it is read."""
    gone: bool = False
    """The file is no longer there: one of this name is another."""

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def lines(self) -> bool:
        return self.kind == "lines"

    def change(self) -> str | None:
        """How the file has changed, if it is not what it was; what was appended to it is no change."""
        try:
            now = os.stat(self.path)
            if self.modified is not None:
                is_same = (now.st_size, now.st_mtime_ns) == (self.end, self.modified)
                return None if is_same else "a file of the stream has changed since it was listed"
            if now.st_size < self.end:
                return "a file of the stream is shorter than what was read of it"
            with open(self.path, "rb") as file:
                if _marks(file, self.end) != (self.head, self.tail):
                    return "a file of the stream was replaced by another"
        except OSError as error:
            return f"a file of the stream is no longer there: {(error.strerror or str(error)).lower()}"
        return None


def refuse_change(path: str, change: str) -> DataError:
    return DataError(change, source=Source("", path), hint=CHANGED_HINT)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some bytes of a piece of a stream, or all of it. It has the lines that begin in it."""

    stream: int
    number: int
    file: Listed
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        return (self.start, self.end) == (self.file.start, self.file.end)

    @property
    def sequence(self) -> int:
        """The same for all pieces of a file."""
        return self.number if self.file.origin is None else self.file.origin

    @property
    def position(self) -> int:
        """Its place in the stream, as one number."""
        return self.number << BYTE_BITS | self.start


class Catalog:
    """The listed files of all streams."""

    def __init__(self, folder: Path, streams: Streams) -> None:
        """What an earlier run has listed here, else what is there now."""
        self._path = folder / _NAME
        self._streams = streams
        self.files: dict[int, list[Listed]] = {number: [] for number in streams}
        self._sizes: dict[int, list[int]] = {number: [0] for number in streams}
        """The bytes before each piece, and all."""
        self._latest: dict[int, dict[str, tuple[int, Listed]]] = {number: {} for number in streams}
        """The last piece of each file, and its number."""
        self._seen: dict[tuple[int, str], tuple[int, int, int]] = {}
        """How files looked when it was last seen that they are the same."""
        self._sum = ""
        if self._path.exists():
            self._load()

    @property
    def exists(self) -> bool:
        """Files have been listed, now or in an earlier run."""
        return self._path.exists()

    def make(self, *, follow: bool) -> None:
        """List the files that are there now, those of each stream in the order of their first times.

        Where more may come, in the order of their names.
        """
        listed: list[tuple[int, Listed]] = []
        for number, declaration in self._streams.items():
            paths = list(files_there(declaration, may_be_none=follow))
            for path in paths:
                check_listable(path)
            template = check_files(declaration, (path for path in paths if not follow or path.stat().st_size))
            if follow:
                begun = [Begun(path, EARLIEST) for path in paths]
            else:
                begun = in_time(declaration, paths, template)
            listed += ((number, _listed(declaration, each, grows=follow)) for each in begun)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._write(listed)

    def _write(self, listed: Iterable[tuple[int, Listed]]) -> None:
        """Have these files, in a new list."""
        fresh = self._path.with_suffix(".new")
        head = self._head()
        self._sum = _checksum("", head)
        with fresh.open("w") as file:
            file.write(_line(head, self._sum) + self._added(listed))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)

    def look(self, start: Mapping[int, Place], changed: Mapping[int, Changed]) -> None:
        """Add the files that are new, in the order in which they were last written, and what was appended to others.

        What has come to the places `start` in the streams is done.
        """
        fresh: list[tuple[int, Listed]] = []
        for number, declaration in self._streams.items():
            known = self._latest[number]
            new: list[tuple[int, Listed]] = []
            there = {str(path): path for path in _files_now(declaration)}
            for name, path in there.items():
                found = path.stat()
                looks = found.st_ino, found.st_size, found.st_mtime_ns
                if name not in known:
                    check_listable(path)
                    new.append((found.st_mtime_ns, _listed(declaration, Begun(path, EARLIEST), grows=True)))
                elif self._seen.get((number, name)) != looks:
                    since = list(self._since(declaration, known[name][1], changed[number]))
                    new += ((found.st_mtime_ns, each) for each in since)
                    if not since:
                        self._seen[number, name] = looks
            for name in [name for name in known if name not in there]:
                new += ((0, each) for each in self._gone(number, *known[name], start[number], changed[number]))
                del known[name]
            fresh += ((number, each) for _, each in sorted(new, key=lambda each: (each[0], each[1].path)))
        if not fresh:
            return
        with self._path.open("a") as file:
            file.write(self._added(fresh))
            file.flush()
            os.fsync(file.fileno())

    def _since(self, declaration: StreamDeclaration, known: Listed, changed: Changed) -> Iterator[Listed]:
        """What a known file has that is new."""
        change = known.change()
        if change is None:
            if known.kind != "whole":
                grown = _grown(declaration, known)
                if grown.size:
                    yield grown
            return
        if changed == "stop":
            raise refuse_change(known.path, change)
        now = _listed(declaration, Begun(Path(known.path), EARLIEST), grows=True)
        if changed == "reread":
            yield replace(now, note=f"{change}: it is read from its beginning")
        else:
            yield replace(now, start=now.end, note=f"{change}: what it has now is left out")

    def _gone(self, stream: int, number: int, known: Listed, start: Place, changed: Changed) -> Iterator[Listed]:
        """A file is no longer there. That is nothing to tell where all was read of one among many."""
        declared = self._streams[stream].path
        if number < start[0] and (Path(declared).is_dir() or glob.has_magic(declared)):
            return
        change = "a file of the stream is no longer there"
        if changed == "stop":
            raise refuse_change(known.path, change)
        yield replace(known, start=known.end, note=f"{change}: the stream goes on without it", gone=True)

    def _added(self, listed: Iterable[tuple[int, Listed]]) -> str:
        """Have more pieces; their lines."""
        lines = []
        for number, each in listed:
            entry = json.dumps({"stream": number, **asdict(self._add(number, each))})
            self._sum = _checksum(self._sum, entry)
            lines.append(_line(entry, self._sum))
        return "".join(lines)

    def _add(self, stream: int, listed: Listed) -> Listed:
        number, before = self._latest[stream].pop(listed.path, (0, None))
        if before is not None and listed.start == before.end > 0:
            listed = replace(listed, origin=number if before.origin is None else before.origin)
        if not listed.gone:
            self._latest[stream][listed.path] = len(self.files[stream]), listed
        self.files[stream].append(listed)
        self._sizes[stream].append(self._sizes[stream][-1] + listed.size)
        return listed

    def between(self, stream: int, start: Place, end: Place) -> Iterator[Stretch]:
        """What a stream has from one place to another, file by file."""
        if end > (len(self.files[stream]), 0):
            raise self._damage("it has fewer files than were read")
        for number in range(start[0], min(end[0] + 1, len(self.files[stream]))):
            file = self.files[stream][number]
            first = start[1] if number == start[0] else 0
            last = end[1] if number == end[0] else file.size
            if first < last or (file.note and first == 0 and number < end[0]):
                yield Stretch(stream, number, file, file.start + first, file.start + last)

    def size(self, stream: int, place: Place | None = None) -> int:
        """The bytes of a stream, or those before a place."""
        number, byte = place or (len(self.files[stream]), 0)
        if number >= len(self._sizes[stream]):
            raise self._damage("it has fewer files than were read")
        return self._sizes[stream][number] + byte

    def forward(self, stream: int, place: Place, size: int) -> Place:
        """The place so many bytes on, or the end of a file that is read whole; empty files count as read."""
        number, byte = place
        files = self.files[stream]
        while number < len(files) and (size > 0 or files[number].size == 0):
            left = files[number].size - byte
            if files[number].lines and size < left:
                return number, byte + size
            size -= left
            number, byte = number + 1, 0
        return number, byte

    def _load(self) -> None:
        try:
            text = self._path.read_bytes().decode()
        except UnicodeDecodeError:
            raise self._damage("it is not text") from None
        *lines, cut = text.split("\n")
        if not lines:
            raise self._damage("it is empty")
        if lines[0].startswith('{"version": 1,'):
            if lines[0] != self._head(1):
                raise self._other()
            self._renew(lines[1:])
            return
        for number, line in enumerate(lines):
            entry, _, known = line.rpartition("\t")
            self._sum = _checksum(self._sum, entry)
            if known != self._sum:
                raise self._damage(f"line {number + 1} is not what was written")
            if number == 0:
                if entry != self._head():
                    raise self._other()
                continue
            content = json.loads(entry)
            self._add(content.pop("stream"), Listed(**content))
        self._cut_off(cut, len(text.encode()))

    def _cut_off(self, cut: str, size: int) -> None:
        """Remove a line in whose middle a writer was ended: nothing refers to it. A whole one is damaged."""
        entry, _, known = cut[:-1].rpartition("\t")
        if known == _checksum(self._sum, entry):
            raise self._damage("its last line does not end as it was written")
        if cut:
            os.truncate(self._path, size - len(cut.encode()))

    def _renew(self, lines: list[str]) -> None:
        """Take over a list of version 1, which had whole files and no checksums, and write it as one is now."""
        listed: list[tuple[int, Listed]] = []
        for number, line in enumerate(lines):
            try:
                old = json.loads(line)
                kind: Kind = "lines" if old["lines"] else "whole"
                first = old.get("first", EARLIEST)
                each = Listed(old["path"], 0, old["size"], kind, "", "", old["modified"], first)
                listed.append((old["stream"], each))
            except (ValueError, KeyError, TypeError):
                raise self._damage(f"line {number + 2} is not what was written") from None
        self._write(listed)

    def _damage(self, how: str) -> CqelsError:
        return CqelsError(
            f"the list of files of the checkpoint, {self._path}, is damaged: {how}",
            hint=_ANEW,
        )

    def _other(self) -> CqelsError:
        return CqelsError(
            f"the checkpoint in '{self._path.parent}' is of other streams",
            hint="go on with the streams as they were declared, or choose another checkpoint",
        )

    def _head(self, version: int = _VERSION) -> str:
        streams = [[number, each.iri, each.path] for number, each in self._streams.items()]
        return json.dumps({"version": version, "streams": streams})


def check_listed(folder: Path) -> None:
    """Refuse a checkpoint whose list is gone: another one would not mean the same places."""
    if not (folder / _NAME).exists():
        raise Damaged(f"{folder / _NAME} is gone, which lists the files that were read", hint=_ANEW)


def _line(entry: str, checksum: str) -> str:
    return f"{entry}\t{checksum}\n"


def _checksum(before: str, entry: str) -> str:
    """Of a line and all before it, so that none is missing either."""
    return sha256(f"{before} {entry}".encode()).hexdigest()[:16]


def files_there(declaration: StreamDeclaration, *, may_be_none: bool) -> Iterable[Path]:
    """The files of a stream now. Where more may come, a folder or a pattern need not have any."""
    path = Path(declaration.path)
    if may_be_none and (path.is_dir() or glob.has_magic(declaration.path)):
        return _files_now(declaration)
    return files_of(declaration.path)


def _files_now(declaration: StreamDeclaration) -> Iterable[Path]:
    """The files of a stream that had some before, or of which more may come."""
    try:
        return files_of(declaration.path)
    except DataError:
        return ()


def check_listable(path: Path) -> None:
    """Refuse a file that no stream on Spark can have."""
    if not path.is_file():
        raise DataError("a stream on Spark is read from files", source=Source("", str(path)))
    if path.stat().st_size >= 1 << BYTE_BITS:
        raise DataError("a file is larger than a terabyte", source=Source("", str(path)), hint="cut it")


def _listed(declaration: StreamDeclaration, begun: Begun, *, grows: bool) -> Listed:
    """A file as it is now; of one that may grow, what is complete of it."""
    path = begun.path
    found = path.stat()
    kind = _kind(declaration, path, grows=grows)
    with reading(path), path.open("rb") as file:
        end = found.st_size if kind == "whole" or not grows else _complete(declaration, path, file, 0, kind)
        head, tail = _marks(file, end)
    modified = None if grows and kind != "whole" else found.st_mtime_ns
    return Listed(str(path), 0, end, kind, head, tail, modified, begun.first)


def _grown(declaration: StreamDeclaration, known: Listed) -> Listed:
    """What was appended to a file and is complete."""
    path = Path(known.path)
    kind = known.kind if known.end else _kind(declaration, path, grows=True)
    with reading(path), path.open("rb") as file:
        end = _complete(declaration, path, file, known.end, kind)
        head, tail = _marks(file, end)
    return replace(known, start=known.end, end=end, kind=kind, head=head, tail=tail, origin=None, note="")


def _kind(declaration: StreamDeclaration, path: Path, *, grows: bool) -> Kind:
    try:
        check_file(declaration, path)
        return "whole" if is_compressed(path) else _cut(declaration, path, grows=grows)
    except UnreadableFile:  # a worker rejects it
        return "whole"


def _cut(declaration: StreamDeclaration, path: Path, *, grows: bool) -> Kind:
    if grows and format_of(declaration, path) == "ntriples" and declaration.element in (None, "line"):
        with path.open("rb") as file:
            if b"\n" not in file.read(_NEAR):  # there is no line yet that would tell
                return "lines" if declaration.time is None else "whole"
    if has_timed_lines(declaration, path):
        return "lines"
    is_json = format_of(declaration, path) == "json" and declaration.element in (None, "line")
    return "records" if grows and (is_json or has_timed_records(declaration, path)) else "whole"


def _marks(file: IO[bytes], end: int) -> tuple[str, str]:
    """What tells the first bytes of a file, and those before `end`, from others."""
    file.seek(0)
    head = file.read(min(_MARKED, end))
    file.seek(max(0, end - _MARKED))
    tail = file.read(min(_MARKED, end))
    return sha256(head).hexdigest()[:16], sha256(tail).hexdigest()[:16]


def _complete(declaration: StreamDeclaration, path: Path, file: IO[bytes], start: int, kind: Kind) -> int:
    """Where the last line or record of a file behind a byte ends, of those that have ended."""
    if kind == "records" and format_of(declaration, path) == "csv":
        return _complete_records(declaration, path, file, start)
    at = end = file.seek(0, os.SEEK_END)
    while at > start:
        at = max(start, end - _NEAR)
        file.seek(at)
        found = file.read(end - at).rfind(b"\n")
        if found >= 0:
            return at + found + 1
        end = at
    return start


def _complete_records(declaration: StreamDeclaration, path: Path, file: IO[bytes], start: int) -> int:
    """Where the last complete record of a CSV file ends: line breaks in quotes end none."""
    file.seek(start)
    data = file.read(MOST_APPENDED)
    data = data[: data.rfind(b"\n") + 1]
    if b'"' not in data:
        return start + len(data)
    assert declaration.template is not None
    delimiter = delimiter_of(read_template(declaration.template), path)
    lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
    ends = list(accumulate(map(len, lines), initial=start))
    rows = csv.reader((line.decode("utf-8", "surrogateescape") for line in lines), delimiter=delimiter)
    before = done = 0
    for _ in rows:
        before, done = done, rows.line_num
    if _is_closed(lines[before:done], delimiter) or ends[done] - ends[before] > LONGEST_RECORD:
        return ends[done]
    return ends[before]


def _is_closed(lines: list[bytes], delimiter: str) -> bool:
    """The last record of some lines does not end in the middle of quotes."""
    try:
        list(csv.reader((line.decode("utf-8", "surrogateescape") for line in lines), delimiter=delimiter, strict=True))
    except csv.Error as error:
        return "unexpected end of data" not in str(error)
    return True
