"""What users give besides data: streams, functions, files, lengths of time. All else is refused with one sentence."""

from __future__ import annotations

import os
from datetime import timedelta
from inspect import iscoroutinefunction
from operator import index
from pathlib import Path
from typing import TypeAlias

from pyoxigraph import NamedNode

from cqels.ingest.rdf_objects import term_of
from cqels.kernels.memory.arena import is_arena
from cqels.model.errors import CqelsError, DataError
from cqels.model.time import LATEST, MICROSECOND, parse_duration

Duration: TypeAlias = timedelta | int | str
"""An int is in nanoseconds."""
SMALLEST = 1 << 20
"""Bytes that an engine needs at least."""


def refused(what: str, value: object, hint: str) -> CqelsError:
    """The error of an argument of a type that is not taken."""
    article = "an" if what[0] in "aeiou" else "a"
    return CqelsError(f"{article} {what} of type {type(value).__name__} is not taken", hint=hint)


def check_function(what: str, value: object, hint: str) -> None:
    """Refuse what cannot be called, and what is called in vain: nobody would await it."""
    if value is not None and not callable(value):
        raise refused(what, value, hint)
    if iscoroutinefunction(value):
        raise CqelsError(f"a {what} cannot be a coroutine: nothing would await it", hint=hint)


def check_text(what: str, value: object, hint: str) -> None:
    """Refuse what is neither a text nor missing."""
    if value is not None and not isinstance(value, str):
        raise refused(what, value, hint)


def iri_of(what: str, value: object) -> str:
    """The IRI that names a stream or a graph: a text, in angle brackets or not, or a term of pyoxigraph or rdflib."""
    if isinstance(value, str):
        text = str(value)  # a term of rdflib is a str that equals no other
    else:
        try:
            term = term_of(value)
        except DataError:
            raise refused(what, value, f"a {what} is its IRI") from None
        if not isinstance(term, NamedNode):
            raise refused(what, value, f"a {what} is its IRI")
        text = term.value
    return text[1:-1] if text.startswith("<") and text.endswith(">") else text


def checked_iri(what: str, value: object) -> str:
    """`iri_of`, if it is one."""
    text = iri_of(what, value)
    try:
        return NamedNode(text).value
    except ValueError:
        raise CqelsError(f"{what} '{text}' is not an IRI", hint="write it in full, as in http://ex.org/s") from None


# ---------------------------------------------------------------- lengths and sizes


def duration(value: Duration) -> int:
    """Nanoseconds, 0 or more."""
    if isinstance(value, timedelta):
        length = value // timedelta(microseconds=1) * MICROSECOND
    elif isinstance(value, int) and not isinstance(value, bool):
        length = value
    elif isinstance(value, str):
        try:
            length = parse_duration(value)
        except ValueError as error:
            raise CqelsError(str(error)) from None
    else:
        raise refused("duration", value, "write it as in '10s', or as a timedelta")
    if not 0 <= length <= LATEST:
        why = "is negative" if length < 0 else "does not fit in 64 bits of nanoseconds"
        raise CqelsError(f"the duration '{value}' {why}", hint="write it as in '10s'")
    return length


def interval(value: Duration) -> int:
    length = duration(value)
    if length == 0:
        raise CqelsError("the interval of service_refresh is not longer than 0", hint="service_refresh='5m'")
    return length


def size_of(value: int | None) -> int | None:
    """Bytes of an engine's memory, in whole words."""
    if value is None:
        return None
    hint = "it is a number of bytes, as in size=1 << 30"
    try:
        size = index(value)
    except TypeError:
        raise refused("size", value, hint) from None
    if not SMALLEST <= size < 1 << 47:
        why = "needs 1 MB at least" if size < SMALLEST else "has no room for that many"
        raise CqelsError(f"an engine with a size of {size} bytes {why}", hint=hint)
    return size // 8 * 8


# ---------------------------------------------------------------- files


def path_of(what: str, value: object) -> Path:
    """The path that a text or a path is."""
    hint = "give the path of a file"
    try:
        path = os.fspath(value)  # type: ignore[call-overload]
        if isinstance(path, str):
            path.encode("utf-8", "surrogateescape")
    except TypeError:
        raise refused(what, value, hint) from None
    except UnicodeEncodeError:
        raise CqelsError(f"the {what} is not the name of a file", hint=hint) from None
    if not isinstance(path, str):
        raise refused(what, value, hint)
    if not path or "\0" in path:
        raise CqelsError(f"the {what} '{path}' is not the name of a file", hint=hint)
    return Path(path)


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unusable(path, "read", error) from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all."""
    temporary = path.with_name(f"{path.name}.part")
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "is a directory")
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        raise unusable(path, "written", error) from None


def emptied(path: Path) -> Path:
    """A file for an engine's memory: a new one, or one that another engine has left behind."""
    try:
        if path.exists():
            with path.open("rb") as file:
                head = file.read(8)
            if head and not is_arena(head):
                raise CqelsError(f"{path} is there already, and is not the memory of an engine")
            path.unlink()
        elif not path.parent.is_dir():
            raise FileNotFoundError(None, "no such file or directory")
    except OSError as error:
        raise unusable(path, "written", error) from None
    return path


def unusable(path: Path, done: str, error: OSError) -> CqelsError:
    return CqelsError(f"{path} cannot be {done}: {(error.strerror or str(error)).lower()}")
