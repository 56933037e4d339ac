"""The files of an application's streams, in the order in which they are read, and positions among them.

The list is kept on disk and only grows, so that a position means the same after a restart: a file's number in its
stream and a byte in it.  What is in the files is not read here, except to tell what they hold.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from cqels.engine.reading import has_timed_lines
from cqels.io import StreamDeclaration
from cqels.io.faults import UnreadableFile
from cqels.io.files import files_of, is_compressed
from cqels.io.read import Begun, check_file, check_files, in_time
from cqels.model.errors import CqelsError, DataError, Source
from cqels.model.time import EARLIEST

BYTE_BITS = 40
"""Of a position as one number, for the byte: the rest is for the number of the file."""
_NAME = "files.jsonl"
_VERSION = 1

Streams: TypeAlias = Mapping[int, StreamDeclaration]
"""By their numbers in the application."""
Place: TypeAlias = tuple[int, int]
"""A file's number in its stream, and a byte in it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as it was when it was listed. With `lines`, each line is an element, and it may be cut between lines."""

    path: str
    size: int
    modified: int
    lines: bool
    first: int = EARLIEST
    """The time of its first element, where the files of a stream that ends are several."""

    def check(self) -> None:
        """Refuse a file that is not what it was."""
        source = Source("", self.path)
        try:
            now = os.stat(self.path)
        except OSError as error:
            raise DataError(
                f"a file of the stream is no longer there: {(error.strerror or str(error)).lower()}", source=source
            ) from None
        if (now.st_size, now.st_mtime_ns) != (self.size, self.modified):
            hint = "write a file elsewhere and move it to where it is read when it is complete"
            raise DataError("a file of the stream has changed since it was listed", source=source, hint=hint)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some bytes of a file of a stream, or all of it. It has the lines that begin in it."""

    stream: int
    number: int
    file: Listed
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        return (self.start, self.end) == (0, self.file.size)

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
        for number, declaration in self._streams.items():
            paths = list(files_there(declaration, may_be_none=follow))
            for path in paths:
                check_listable(path)
            template = check_files(declaration, paths)
            if follow:
                begun = [Begun(path, EARLIEST) for path in paths]
            else:
                begun = in_time(declaration, paths, template)
            self.files[number] += (_listed(declaration, each.path, each.first) for each in begun)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = [self._head(), *(_line(number, each) for number, files in self.files.items() for each in files)]
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write("".join(lines))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)

    def look(self) -> None:
        """Add the files that are new, in the order in which they were last written."""
        fresh: list[tuple[int, Listed]] = []
        for number, declaration in self._streams.items():
            known = {each.path: each for each in self.files[number]}
            new = []
            for path in files_there(declaration, may_be_none=True):
                if str(path) in known:
                    known[str(path)].check()
                else:
                    check_listable(path)
                    new.append(_listed(declaration, path))
            fresh += ((number, each) for each in sorted(new, key=lambda each: (each.modified, each.path)))
        if not fresh:
            return
        with self._path.open("a") as file:
            file.write("".join(_line(number, each) for number, each in fresh))
            file.flush()
            os.fsync(file.fileno())
        for number, each in fresh:
            self.files[number].append(each)

    def between(self, stream: int, start: Place, end: Place) -> Iterator[Stretch]:
        """What a stream has from one place to another, file by file."""
        for number in range(start[0], min(end[0] + 1, len(self.files[stream]))):
            file = self.files[stream][number]
            first = start[1] if number == start[0] else 0
            last = end[1] if number == end[0] else file.size
            if first < last:
                yield Stretch(stream, number, file, first, last)

    def size(self, stream: int, place: Place | None = None) -> int:
        """The bytes of a stream, or those before a place."""
        files = self.files[stream]
        number, byte = place or (len(files), 0)
        return sum(file.size for file in files[:number]) + byte

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
        text = self._path.read_text()
        head, *lines = text[: text.rfind("\n") + 1].splitlines(keepends=True)
        if head != self._head():
            raise CqelsError(
                f"the checkpoint in '{self._path.parent}' is of other streams",
                hint="go on with the streams as they were declared, or choose another checkpoint",
            )
        if len(text) > text.rfind("\n") + 1:  # a writer was ended in the middle of a line, which nothing refers to
            os.truncate(self._path, len(text[: text.rfind("\n") + 1].encode()))
        for line in lines:
            entry = json.loads(line)
            self.files[entry.pop("stream")].append(Listed(**entry))

    def _head(self) -> str:
        streams = [[number, each.iri, each.path] for number, each in self._streams.items()]
        return json.dumps({"version": _VERSION, "streams": streams}) + "\n"


def _line(stream: int, listed: Listed) -> str:
    return json.dumps({"stream": stream, **asdict(listed)}) + "\n"


def files_there(declaration: StreamDeclaration, *, may_be_none: bool) -> Iterable[Path]:
    """The files of a stream now. Where more may come, a folder or a pattern need not have any."""
    path = Path(declaration.path)
    if may_be_none and (path.is_dir() or glob.has_magic(declaration.path)):
        try:
            return files_of(declaration.path)
        except DataError:
            return ()
    return files_of(declaration.path)


def check_listable(path: Path) -> None:
    """Refuse a file that no stream on Spark can have."""
    if not path.is_file():
        raise DataError("a stream on Spark is read from files", source=Source("", str(path)))
    if path.stat().st_size >= 1 << BYTE_BITS:
        raise DataError("a file is larger than a terabyte", source=Source("", str(path)), hint="cut it")


def _listed(declaration: StreamDeclaration, path: Path, first: int = EARLIEST) -> Listed:
    found = path.stat()
    try:
        check_file(declaration, path)
        lines = not is_compressed(path) and has_timed_lines(declaration, path)
    except UnreadableFile:  # a worker rejects it
        lines = False
    return Listed(str(path), found.st_size, found.st_mtime_ns, lines, first)
