"""Bytes that come in pieces as messages: each line is one, but lines of CSV go together with their header."""

from __future__ import annotations

from collections.abc import Iterator

from cqels.ingest.declarations import StreamDeclaration
from cqels.ingest.input_files import MARK
from cqels.pipeline.lift.declared_lift import declared_format
from cqels.pipeline.source.live_source import Message


class LineMessages:
    """Makes messages of the bytes of one connection."""

    def __init__(self, declaration: StreamDeclaration) -> None:
        self._has_header = declared_format(declaration) == "csv" and not declaration.columns
        self._header: bytes | None = None
        self._is_first = True
        self._rest: list[bytes] = []

    def of(self, data: bytes, time: int) -> list[Message]:
        """The messages of the lines that a piece of bytes completes."""
        whole, end, rest = data.rpartition(b"\n")
        if not end:
            self._rest.append(rest)
            return []
        text = b"".join((*self._rest, whole))
        self._rest = [rest] if rest else []
        return [*self._messages(text, time)]

    def last(self, time: int) -> list[Message]:
        """The message of a last line without an end."""
        text, self._rest = b"".join(self._rest), []
        return [*self._messages(text, time)]

    @property
    def unfinished(self) -> int:
        """Bytes of a line that has not ended."""
        return sum(map(len, self._rest))

    def _messages(self, text: bytes, time: int) -> Iterator[Message]:
        if self._is_first:
            text, self._is_first = text.removeprefix(MARK), False
        lines = [line.removesuffix(b"\r") for line in text.split(b"\n")]
        lines = [line for line in lines if line.strip()]
        if not self._has_header:
            for line in lines:
                yield Message(line, time)
            return
        if self._header is None and lines:
            self._header, *lines = lines
        if self._header is not None and lines:
            yield Message(b"\n".join((self._header, *lines)), time)
