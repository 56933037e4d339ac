"""Files and their bytes: which files a path stands for, how each is decompressed, and its lines one by one."""

from __future__ import annotations

import glob
import gzip
import importlib
import io
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from pyoxigraph import Quad, RdfFormat

from cqels.ingest.parse_errors import DEEPEST, NESTED, UnreadableFile, check_nesting, quads_of
from cqels.model.errors import DataError, Source

_COMPRESSIONS = (".gz", ".zst")
CHUNK = 1 << 21
"""Bytes that are read at a time."""
_BUFFER = 1 << 17
MARK = b"\xef\xbb\xbf"
"""What some programs begin a text with."""


def files_of(path: str) -> tuple[Path, ...]:
    """The files that a path, a glob pattern or a directory stands for, in the order of their names."""
    place = Path(path)
    if place.is_dir():
        found = [file for file in place.iterdir() if file.is_file() and not file.name.startswith(".")]
    elif place.exists():  # a pipe is not a regular file, but can be read
        found = [place]
    else:
        found = [Path(name) for name in glob.glob(path, recursive=True) if Path(name).is_file()]
    if not found:
        raise DataError(f"no file at '{path}'", hint="the path is a file, a directory or a pattern such as 'data/*.nt'")
    return tuple(sorted(found))


def extension_of(path: Path) -> str:
    """The lowercase extension that tells the format, without dot and compression: `nt` for `day.NT.gz`."""
    name = Path(path.stem) if is_compressed(path) else path
    return name.suffix.lower().lstrip(".")


def is_compressed(path: Path) -> bool:
    """Its extension says so."""
    return path.suffix.lower() in _COMPRESSIONS


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, decompressed as its extension says."""
    with reading(path):
        match path.suffix.lower():
            case ".gz":
                return io.BufferedReader(_UpToFault(path, cast(io.BufferedIOBase, gzip.open(path, "rb"))), _BUFFER)
            case ".zst":
                return _open_zstandard(path)
            case _:
                return path.open("rb")


def _open_zstandard(path: Path) -> IO[bytes]:
    try:
        pyarrow = importlib.import_module("pyarrow")
    except ModuleNotFoundError:
        hint = "pip install 'cqels[arrow]'"
        raise DataError("a .zst file needs the library pyarrow", source=Source("", str(path)), hint=hint) from None
    return io.BufferedReader(_UpToFault(path, pyarrow.input_stream(str(path), compression="zstd")), _BUFFER)


class _UpToFault(io.RawIOBase):
    """Decompressed bytes. Where the file is damaged or cut off, they end with the last whole line before that.

    The fault is told when the file is closed: what was read before is the same whatever sizes it was asked for in.
    """

    def __init__(self, path: Path, file: io.BufferedIOBase) -> None:
        self._path, self._file = path, file
        self._ready, self._line = b"", bytearray()
        self._fault: DataError | None = None
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            self._read()
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _read(self) -> None:
        try:
            data = self._file.read1(_BUFFER)
        except (OSError, EOFError, zlib.error) as error:
            if getattr(error, "errno", None):  # of the disk, not of the bytes
                raise
            self._fault, self._ended = _unreadable(self._path, error), True
            return
        self._ended = not data
        end = data.rfind(b"\n") + 1
        if end or not data:
            self._ready, self._line = bytes(self._line + data[:end]), bytearray(data[end:])
        else:
            self._line += data

    def close(self) -> None:
        fault, self._fault = self._fault, None
        self._file.close()
        super().close()
        if fault is not None and not isinstance(sys.exc_info()[1], GeneratorExit):
            raise fault


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a failure to read the file (missing, not what its extension says) into a user's error."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> DataError:
    """An error of the user's: of the file's content, if the operating system had no part in it."""
    reason = getattr(error, "strerror", None) or str(error)
    message = f"the file cannot be read: {reason[:1].lower()}{reason[1:]}"
    kind = DataError if getattr(error, "errno", None) else UnreadableFile
    return kind(message, source=Source("", str(path)))


def parse_file(
    file: IO[bytes], path: Path, format: RdfFormat, base_iri: str, *, rename: bool = False
) -> Iterator[Quad]:
    """The quads of an open file, as they are read, with blank nodes of its own if asked for.

    A document that is nested too deeply for the parser is refused: it is looked through once before, if it can be.
    """
    if path.is_file() and format != RdfFormat.RDF_XML:
        signs = (b"{", b"[") if format == RdfFormat.JSON_LD else (NESTED,)
        with open_bytes(path) as again, reading(path):
            if sum(sum(map(chunk.count, signs)) for chunk in iter(lambda: again.read(_BUFFER), b"")) > DEEPEST:
                with open_bytes(path) as whole:
                    check_nesting(whole.read(), format)
    if cast(io.BufferedReader, file).peek(len(MARK)).startswith(MARK):
        file.read(len(MARK))
    return quads_of(file, format, base_iri, rename=rename)


def text_of_line(line: bytes | bytearray) -> str:
    """A line without its end, which is `\\n` or `\\r\\n`; bytes that are not UTF-8 come as surrogates."""
    return line.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, from 1. A byte that is not UTF-8 becomes a lone surrogate, which no term accepts,
    so that it costs its line and not the file."""
    with open_bytes(path) as file, reading(path):
        for number, line in enumerate(file, 1):
            text = text_of_line(line)
            yield number, text.removeprefix("\ufeff") if number == 1 else text


def numbered_lines(chunks: Iterable[bytes], first: int = 1) -> Iterator[tuple[int, str]]:
    """The lines of chunks of whole lines, as `lines_of` gives those of a file."""
    lines = (line for chunk in chunks for line in io.BytesIO(chunk))
    for number, line in enumerate(lines, first):
        yield number, text_of_line(line)


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file as a `cqels.ingest.protocols.Source`."""

    path: Path

    @property
    def place(self) -> str:
        return str(self.path)

    def chunks(self) -> Iterator[bytes]:
        with open_bytes(self.path) as file, reading(self.path):
            yield from chunks_of(file)


def chunks_of(file: IO[bytes], *, start: int = 0, size: int | None = None) -> Iterator[bytes]:
    """Whole lines from `start`, where the file stands, those that begin in the next `size` bytes."""
    left = sys.maxsize if size is None else size
    first = start == 0
    while left > 0 and (data := file.read(min(CHUNK, left))):
        if not data.endswith(b"\n"):
            data += file.readline()
        left -= len(data)
        yield data.removeprefix(MARK) if first else data
        first = False
