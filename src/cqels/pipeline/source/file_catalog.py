"""The catalog of a file source: the files of all streams in reading order, and the offsets among them.

The driver's side of `file_source.py` asks it what comes next.  The catalog is kept in the checkpoint and only grows, so
an offset means the same after a restart: the number of a piece in its stream, and a byte in that piece.  A piece is a
file, or what was appended to a file since its last piece.  Elements are not read here; files are opened only to find
out what kind they are, where their last complete line ends, and whether they have changed.
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
"""The bits of a position that hold the byte; the bits above them hold the number of the piece."""
MOST_APPENDED = 16 << 20
"""Bytes of a CSV file that are searched for the ends of records at a time."""
LONGEST_RECORD = 1 << 20
"""Bytes of a CSV record in quotes that is waited for; one that is longer ends with its line, and is rejected."""
MOST_LINES = 100
"""Lines of a CSV record in quotes that is waited for, likewise: a quote may never be closed."""
_NAME = "files.jsonl"
_ANEW = "restore it from a copy, or begin with a new checkpoint"
_VERSION = 2
_FINGERPRINTED = 1024
"""Bytes at the beginning of a file, and before where reading stopped, whose hashes identify it."""
_CHUNK = 1 << 16

Streams: TypeAlias = Mapping[int, StreamDeclaration]
"""By their numbers in the application."""
StreamOffset: TypeAlias = tuple[int, int]
"""How far a stream has been read: the number of a piece, and a byte in it."""
Offsets: TypeAlias = dict[int, StreamOffset]
"""Those of all streams, by their numbers."""
Kind: TypeAlias = Literal["lines", "records", "whole"]
Changed: TypeAlias = Literal["stop", "skip", "reread"]
"""What to do with a file that was replaced, shortened or removed."""
CHANGED: tuple[Changed, ...] = get_args(Changed)
CHANGED_HINT = (
    "skip goes on with what is appended from now on, reread with the file as it is now, from its beginning "
    "(--changed skip, --changed reread; app.files(…, changed=…))"
)


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A piece of a file, as it was when it was added to the catalog: its bytes from `start` to `end`.

    With `lines`, each line is an element, and a piece may be cut between lines; with `records`, it ends between two
    records; else it is the whole file.  `head` and `tail` are hashes of the file's first bytes and of those before
    `end`.  A file that does not grow was last `modified` then.  The catalog on disk has these fields by their names.
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
    """A change of the file, to be reported among the rejected input when the piece is read."""
    gone: bool = False
    """The file is no longer there: one of this name is another."""

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def lines(self) -> bool:
        return self.kind == "lines"

    def change(self) -> str | None:
        """How the file differs from what was catalogued, if it does; an append is no difference."""
        try:
            now = os.stat(self.path)
            if self.modified is not None:
                is_same = (now.st_size, now.st_mtime_ns) == (self.end, self.modified)
                return None if is_same else "a file of the stream has changed since it was listed"
            if now.st_size < self.end:
                return "a file of the stream is shorter than what was read of it"
            with open(self.path, "rb") as file:
                if _fingerprints(file, self.end) != (self.head, self.tail):
                    return "a file of the stream was replaced by another"
        except OSError as error:
            return f"a file of the stream is no longer there: {(error.strerror or str(error)).lower()}"
        return None


def refuse_change(path: str, change: str) -> DataError:
    return DataError(change, source=Source("", path), hint=CHANGED_HINT)


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of bytes of a piece, or all of it. The lines that begin in the range belong to it."""

    stream: int
    number: int
    file: FilePiece
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
        """Its offset in the stream as one number, by which rows are ordered."""
        return self.number << BYTE_BITS | self.start


class Catalog:
    """The pieces of files of all streams, on disk and in memory."""

    def __init__(self, folder: Path, streams: Streams) -> None:
        """Load the catalog of an earlier run, if the folder has one."""
        self._path = folder / _NAME
        self._streams = streams
        self.files: dict[int, list[FilePiece]] = {number: [] for number in streams}
        self._sizes: dict[int, list[int]] = {number: [0] for number in streams}
        """The bytes of a stream before each piece; the last number is the size of all pieces."""
        self._latest: dict[int, dict[str, tuple[int, FilePiece]]] = {number: {} for number in streams}
        """The last piece of each file, and its number."""
        self._seen: dict[tuple[int, str], tuple[int, int, int]] = {}
        """Inode, size and time of change of files when they were last found unchanged."""
        self._sum = ""
        if self._path.exists():
            self._load()

    @property
    def exists(self) -> bool:
        """There is a catalog on disk, of now or of an earlier run."""
        return self._path.exists()

    def create(self, *, follow: bool) -> None:
        """Add the files that exist now, those of each stream in the order of their first times.

        With `follow`, they are in the order of their names.
        """
        pieces: list[tuple[int, FilePiece]] = []
        for number, declaration in self._streams.items():
            paths = list(current_files(declaration, may_be_none=follow))
            for path in paths:
                check_readable(path)
            template = check_files(declaration, (path for path in paths if not follow or path.stat().st_size))
            if follow:
                begun = [Begun(path, EARLIEST) for path in paths]
            else:
                begun = in_time(declaration, paths, template)
            pieces += ((number, _piece_of(declaration, each, grows=follow)) for each in begun)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._write(pieces)

    def _write(self, pieces: Iterable[tuple[int, FilePiece]]) -> None:
        """Write a new catalog with these pieces."""
        fresh = self._path.with_suffix(".new")
        head = self._header()
        self._sum = _checksum("", head)
        with fresh.open("w") as file:
            file.write(_line(head, self._sum) + self._append(pieces))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)

    def refresh(self, start: Offsets, changed: Mapping[int, Changed]) -> None:
        """Add new files, in the order in which they were last written, and what was appended to known ones.

        Everything before the offsets `start` has been read.
        """
        fresh: list[tuple[int, FilePiece]] = []
        for number, declaration in self._streams.items():
            known = self._latest[number]
            new: list[tuple[int, FilePiece]] = []
            there = {str(path): path for path in _files_if_any(declaration)}
            for name, path in there.items():
                found = path.stat()
                looks = found.st_ino, found.st_size, found.st_mtime_ns
                if name not in known:
                    check_readable(path)
                    new.append((found.st_mtime_ns, _piece_of(declaration, Begun(path, EARLIEST), grows=True)))
                elif self._seen.get((number, name)) != looks:
                    since = list(self._new_pieces(declaration, known[name][1], changed[number]))
                    new += ((found.st_mtime_ns, each) for each in since)
                    if not since:
                        self._seen[number, name] = looks
            for name in [name for name in known if name not in there]:
                new += ((0, each) for each in self._removed(number, *known[name], start[number], changed[number]))
                del known[name]
            fresh += ((number, each) for _, each in sorted(new, key=lambda each: (each[0], each[1].path)))
        if not fresh:
            return
        with self._path.open("a") as file:
            file.write(self._append(fresh))
            file.flush()
            os.fsync(file.fileno())

    def _new_pieces(self, declaration: StreamDeclaration, known: FilePiece, changed: Changed) -> Iterator[FilePiece]:
        """What a known file has that is not in the catalog yet."""
        change = known.change()
        if change is None:
            if known.kind != "whole":
                grown = _appended_piece(declaration, known)
                if grown.size:
                    yield grown
            return
        if changed == "stop":
            raise refuse_change(known.path, change)
        now = _piece_of(declaration, Begun(Path(known.path), EARLIEST), grows=True)
        if changed == "reread":
            yield replace(now, note=f"{change}: it is read from its beginning")
        else:
            yield replace(now, start=now.end, note=f"{change}: what it has now is left out")

    def _removed(
        self, stream: int, number: int, known: FilePiece, start: StreamOffset, changed: Changed
    ) -> Iterator[FilePiece]:
        """A file was removed, which is not reported if it was one of many and all of it had been read."""
        declared = self._streams[stream].path
        if number < start[0] and (Path(declared).is_dir() or glob.has_magic(declared)):
            return
        change = "a file of the stream is no longer there"
        if changed == "stop":
            raise refuse_change(known.path, change)
        yield replace(known, start=known.end, note=f"{change}: the stream goes on without it", gone=True)

    def _append(self, pieces: Iterable[tuple[int, FilePiece]]) -> str:
        """Add pieces in memory: their lines in the catalog."""
        lines = []
        for number, each in pieces:
            entry = json.dumps({"stream": number, **asdict(self._add(number, each))})
            self._sum = _checksum(self._sum, entry)
            lines.append(_line(entry, self._sum))
        return "".join(lines)

    def _add(self, stream: int, piece: FilePiece) -> FilePiece:
        number, before = self._latest[stream].pop(piece.path, (0, None))
        if before is not None and piece.start == before.end > 0:
            piece = replace(piece, origin=number if before.origin is None else before.origin)
        if not piece.gone:
            self._latest[stream][piece.path] = len(self.files[stream]), piece
        self.files[stream].append(piece)
        self._sizes[stream].append(self._sizes[stream][-1] + piece.size)
        return piece

    def ranges(self, stream: int, start: StreamOffset, end: StreamOffset) -> Iterator[FileRange]:
        """The ranges of a stream from one offset to another, piece by piece."""
        if end > (len(self.files[stream]), 0):
            raise self._damaged("it has fewer files than were read")
        for number in range(start[0], min(end[0] + 1, len(self.files[stream]))):
            file = self.files[stream][number]
            first = start[1] if number == start[0] else 0
            last = end[1] if number == end[0] else file.size
            if first < last or (file.note and first == 0 and number < end[0]):
                yield FileRange(stream, number, file, file.start + first, file.start + last)

    def size(self, stream: int, offset: StreamOffset | None = None) -> int:
        """The bytes of a stream, or those before an offset."""
        number, byte = offset or (len(self.files[stream]), 0)
        if number >= len(self._sizes[stream]):
            raise self._damaged("it has fewer files than were read")
        return self._sizes[stream][number] + byte

    def advance(self, stream: int, offset: StreamOffset, size: int) -> StreamOffset:
        """The offset `size` bytes on, or the end of a file that is read whole; empty files count as read."""
        number, byte = offset
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
            raise self._damaged("it is not text") from None
        *lines, cut = text.split("\n")
        if not lines:
            raise self._damaged("it is empty")
        if lines[0].startswith('{"version": 1,'):
            if lines[0] != self._header(1):
                raise self._of_other_streams()
            self._upgrade(lines[1:])
            return
        for number, line in enumerate(lines):
            entry, _, known = line.rpartition("\t")
            self._sum = _checksum(self._sum, entry)
            if known != self._sum:
                raise self._damaged(f"line {number + 1} is not what was written")
            if number == 0:
                if entry != self._header():
                    raise self._of_other_streams()
                continue
            content = json.loads(entry)
            self._add(content.pop("stream"), FilePiece(**content))
        self._drop_partial_line(cut, len(text.encode()))

    def _drop_partial_line(self, cut: str, size: int) -> None:
        """Remove a last line that a killed writer left incomplete: nothing refers to it. A whole one is damaged."""
        entry, _, known = cut[:-1].rpartition("\t")
        if known == _checksum(self._sum, entry):
            raise self._damaged("its last line does not end as it was written")
        if cut:
            os.truncate(self._path, size - len(cut.encode()))

    def _upgrade(self, lines: list[str]) -> None:
        """Rewrite a catalog of version 1, which had whole files and no checksums, in today's format."""
        pieces: list[tuple[int, FilePiece]] = []
        for number, line in enumerate(lines):
            try:
                old = json.loads(line)
                kind: Kind = "lines" if old["lines"] else "whole"
                first = old.get("first", EARLIEST)
                each = FilePiece(old["path"], 0, old["size"], kind, "", "", old["modified"], first)
                pieces.append((old["stream"], each))
            except (ValueError, KeyError, TypeError):
                raise self._damaged(f"line {number + 2} is not what was written") from None
        self._write(pieces)

    def _damaged(self, how: str) -> CqelsError:
        return CqelsError(
            f"the list of files of the checkpoint, {self._path}, is damaged: {how}",
            hint=_ANEW,
        )

    def _of_other_streams(self) -> CqelsError:
        return CqelsError(
            f"the checkpoint in '{self._path.parent}' is of other streams",
            hint="go on with the streams as they were declared, or choose another checkpoint",
        )

    def _header(self, version: int = _VERSION) -> str:
        streams = [[number, each.iri, each.path] for number, each in self._streams.items()]
        return json.dumps({"version": version, "streams": streams})


def check_catalog_exists(folder: Path) -> None:
    """Refuse a checkpoint whose catalog is gone: with another one its offsets would mean other bytes."""
    if not (folder / _NAME).exists():
        raise Damaged(f"{folder / _NAME} is gone, which lists the files that were read", hint=_ANEW)


def _line(entry: str, checksum: str) -> str:
    return f"{entry}\t{checksum}\n"


def _checksum(before: str, entry: str) -> str:
    """The checksum of a line and of all lines before it, so that a missing line is noticed too."""
    return sha256(f"{before} {entry}".encode()).hexdigest()[:16]


def current_files(declaration: StreamDeclaration, *, may_be_none: bool) -> Iterable[Path]:
    """The files that a stream has now; with `may_be_none`, a folder or a pattern may have none yet."""
    path = Path(declaration.path)
    if may_be_none and (path.is_dir() or glob.has_magic(declaration.path)):
        return _files_if_any(declaration)
    return files_of(declaration.path)


def _files_if_any(declaration: StreamDeclaration) -> Iterable[Path]:
    """The files of a stream that had some before, or of which more may come."""
    try:
        return files_of(declaration.path)
    except DataError:
        return ()


def check_readable(path: Path) -> None:
    """Refuse a path that a stream on Spark cannot be read from."""
    if not path.is_file():
        raise DataError("a stream on Spark is read from files", source=Source("", str(path)))
    if path.stat().st_size >= 1 << BYTE_BITS:
        raise DataError("a file is larger than a terabyte", source=Source("", str(path)), hint="cut it")


def _piece_of(declaration: StreamDeclaration, begun: Begun, *, grows: bool) -> FilePiece:
    """A file as it is now; of one that may grow, what is complete of it."""
    path = begun.path
    found = path.stat()
    kind = _kind(declaration, path, grows=grows)
    with reading(path), path.open("rb") as file:
        end = found.st_size if kind == "whole" or not grows else _last_line_end(declaration, path, file, 0, kind)
        head, tail = _fingerprints(file, end)
    modified = None if grows and kind != "whole" else found.st_mtime_ns
    return FilePiece(str(path), 0, end, kind, head, tail, modified, begun.first)


def _appended_piece(declaration: StreamDeclaration, known: FilePiece) -> FilePiece:
    """The complete lines or records that were appended to a file."""
    path = Path(known.path)
    kind = known.kind if known.end else _kind(declaration, path, grows=True)
    with reading(path), path.open("rb") as file:
        end = _last_line_end(declaration, path, file, known.end, kind)
        head, tail = _fingerprints(file, end)
    return replace(known, start=known.end, end=end, kind=kind, head=head, tail=tail, origin=None, note="")


def _kind(declaration: StreamDeclaration, path: Path, *, grows: bool) -> Kind:
    try:
        check_file(declaration, path)
        return "whole" if is_compressed(path) else _kind_of_uncompressed(declaration, path, grows=grows)
    except UnreadableFile:  # a worker rejects it
        return "whole"


def _kind_of_uncompressed(declaration: StreamDeclaration, path: Path, *, grows: bool) -> Kind:
    if grows and format_of(declaration, path) == "ntriples" and declaration.element in (None, "line"):
        with path.open("rb") as file:
            if b"\n" not in file.read(_CHUNK):  # there is no line yet that would tell
                return "lines" if declaration.time is None else "whole"
    if has_timed_lines(declaration, path):
        return "lines"
    is_json = format_of(declaration, path) == "json" and declaration.element in (None, "line")
    return "records" if grows and (is_json or has_timed_records(declaration, path)) else "whole"


def _fingerprints(file: IO[bytes], end: int) -> tuple[str, str]:
    """Hashes of the first bytes of a file and of those before `end`."""
    file.seek(0)
    head = file.read(min(_FINGERPRINTED, end))
    file.seek(max(0, end - _FINGERPRINTED))
    tail = file.read(min(_FINGERPRINTED, end))
    return sha256(head).hexdigest()[:16], sha256(tail).hexdigest()[:16]


def _last_line_end(declaration: StreamDeclaration, path: Path, file: IO[bytes], start: int, kind: Kind) -> int:
    """Where the last complete line or record after a byte ends."""
    if kind == "records" and format_of(declaration, path) == "csv":
        return _last_record_end(declaration, path, file, start)
    at = end = file.seek(0, os.SEEK_END)
    while at > start:
        at = max(start, end - _CHUNK)
        file.seek(at)
        found = file.read(end - at).rfind(b"\n")
        if found >= 0:
            return at + found + 1
        end = at
    return start


def _last_record_end(declaration: StreamDeclaration, path: Path, file: IO[bytes], start: int) -> int:
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
    at = 0
    while at < len(lines):
        begun = (lines[each].decode("utf-8", "surrogateescape") for each in range(at, len(lines)))
        rows, done = csv.reader(begun, delimiter=delimiter, strict=True), 0
        try:
            for _ in rows:
                done = rows.line_num
            break
        except csv.Error as error:
            at += done
            is_open = "unexpected end of data" in str(error)
            if is_open and len(lines) - at <= MOST_LINES and ends[-1] - ends[at] <= LONGEST_RECORD:
                return ends[at]
            at += 1  # what is wrong costs its line, as where records are read
    return ends[-1]
