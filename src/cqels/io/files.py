"""Files and their bytes: which files a path stands for, how each is decompressed, and its lines one by one."""

from __future__ import annotations

import glob
import gzip
import importlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from cqels.model.errors import DataError, Source

_COMPRESSIONS = (".gz", ".zst")


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
                return cast(IO[bytes], gzip.open(path, "rb"))
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
    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"), 1 << 17)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a failure to read the file (missing, truncated, not what its extension says) into a user's error."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        reason = reason[:1].lower() + reason[1:]
        raise DataError(f"the file cannot be read: {reason}", source=Source("", str(path))) from error


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, from 1. A byte that is not UTF-8 becomes a lone surrogate, which no term accepts,
    so that it costs its line and not the file."""
    with open_bytes(path) as file, reading(path):
        for number, line in enumerate(file, 1):
            text = line.decode("utf-8", "surrogateescape").rstrip("\r\n")
            yield number, text.removeprefix("\ufeff") if number == 1 else text
