"""Places in a text, and the errors that point at them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cqels.model.redact import redacted
from cqels.model.sizes import format_size

_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Ends of lines, control characters, and what stands for bytes that are no characters."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of characters in a text: `start` is the first, `end` is one past the last."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The smallest span that covers both."""
        return Span(min(self.start, other.start), max(self.end, other.end))


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the name a person knows it by (a path, or `<query>`)."""

    text: str
    name: str = "<query>"

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character, both counted from 1."""
        offset = max(0, min(offset, len(self.text)))
        line = self.text.count("\n", 0, offset) + 1
        return line, offset - (self.text.rfind("\n", 0, offset) + 1) + 1

    def line(self, number: int) -> str:
        lines = self.text.split("\n")
        return lines[number - 1].rstrip("\r") if number <= len(lines) else ""


class CqelsError(Exception):
    """A user's error: one lowercase sentence, where known a location, and a hint; no passwords in either."""

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        source: Source | None = None,
        hint: str | None = None,
    ) -> None:
        message, hint = _sentence(redacted(message)), None if hint is None else _sentence(redacted(hint))
        super().__init__(message)
        self.message = message
        self.span = span
        self.source = source
        self.hint = hint

    def locate(self, source: Source) -> None:
        """Tell the text that the span counts in, unless it is known."""
        if self.source is None:
            self.source = source

    def __str__(self) -> str:
        """The error as it is shown: message, location with the line and a marker below it, hint."""
        lines = [self.message]
        if self.source is not None:
            lines += self._location(self.source)
        if self.hint:
            lines.append(f"   = hint: {self.hint}")
        return "\n".join(lines)

    def _location(self, source: Source) -> list[str]:
        if self.span is None:
            return [f"  --> {source.name}"]
        row, column = source.position(self.span.start)
        text = _UNWRITABLE.sub(_aligned, redacted(source.line(row), aligned=True))
        width = max(1, min(self.span.end - self.span.start, len(text) - column + 1))
        if len(text) > 200:  # a very long line: show the part around the location
            cut = max(0, column - 60)
            text, column = text[cut : cut + 120], column - cut
            width = min(width, max(1, len(text) - column + 1))
        marker = "".join("\t" if c == "\t" else " " for c in text[: column - 1]) + "^" * width
        location = source.position(self.span.start)
        return [f"  --> {source.name}:{location[0]}:{location[1]}", f"   | {text}", f"   | {marker}"]


def _sentence(text: str) -> str:
    """A message that stays on its line and that every terminal and file takes, whatever data it quotes."""
    return _UNWRITABLE.sub(lambda found: "\ufffd" if found[0] >= "\ud800" else ascii(found[0])[1:-1], text)


def _aligned(found: re.Match[str]) -> str:
    """Instead of a character of a line that is shown, another one that can be."""
    return "\t" if found[0] == "\t" else "\ufffd"


class QueryError(CqelsError):
    """A query that cannot run exactly as written."""

    query: object = None
    """The planned query, where the error was found after its text was read."""


class QueryStopped(CqelsError):
    """A query that took more than its budget has no more results."""


class ArenaFull(CqelsError, MemoryError):
    """An engine has no more memory."""

    def __init__(self, size: int | None = None) -> None:
        told = "the arena is full" if size is None else f"the arena of {format_size(size)} is full"
        super().__init__(
            f"the engine has no more memory: {told}",
            hint="is a window too large, or does it slide too often? A query with a budget (memory='200MB') is stopped "
            "alone; an engine may have more (size=…)",
        )


class Damaged(CqelsError):
    """State that is not what was written: bytes were changed, lost or added."""


class OtherLayouts(CqelsError):
    """State of a release with other layouts, for which what is kept beside it is not enough."""

    def __init__(self, what: str, release: str, why: str, *, hint: str) -> None:
        told = f"{what} was written by cqels {release}, which laid its memory out in another way"
        super().__init__(f"{told}, and cannot be rebuilt: {why}", hint=hint)
        self.release, self.why = release, why


class DataError(CqelsError):
    """Input data that cannot be read."""
