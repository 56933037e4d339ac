"""Where the words and values of a TOML text are, which `tomllib` does not tell; it reads the values.

The text is known to be TOML: what is found here is only for pointing at it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cqels.model.errors import Span

Path: TypeAlias = tuple[str | int, ...]
"""The words that lead to a value, with the numbers of the entries of lists."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'", re.DOTALL
)
_ATOM = re.compile(r"[^,\]}#\n]+")
"""A number, a time, true or false."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a word is, and its value; a table's value is its header or its braces."""

    word: Span
    value: Span


def toml_places(text: str) -> dict[Path, Place]:
    """The places of all words and entries of lists.

    >>> places = toml_places('[[streams]]\\nfrom = "a.csv"')
    >>> places["streams", 0, "from"].value
    Span(start=19, end=26)
    """
    return _Scanner(text).places()


def nearest(places: Mapping[Path, Place], path: Path) -> Place | None:
    """The place of a value, or of what it would be in."""
    return next((places[path[:length]] for length in range(len(path), 0, -1) if path[:length] in places), None)


@dataclass
class _Scanner:
    """Reads a text from its beginning, and remembers where it is."""

    text: str
    at: int = 0
    found: dict[Path, Place] = field(default_factory=dict)
    counts: dict[Path, int] = field(default_factory=dict)
    """How many tables each list of tables has."""

    def places(self) -> dict[Path, Place]:
        table: Path = ()
        self._skip()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._entry(table)
            self._skip()
        return self.found

    def _skip(self) -> None:
        blank = _BLANK.match(self.text, self.at)
        assert blank is not None
        self.at = blank.end()

    def _header(self) -> Path:
        """`[table]` or `[[tables]]`: the path of what follows."""
        begin, several = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if several else 1
        words = self._words()
        self.at = self.text.index("]", self.at) + (2 if several else 1)
        span = Span(begin, self.at)
        path: Path = ()
        for word, where in words[:-1]:
            path = self._within((*path, word))
            self.found.setdefault(path, Place(where, span))
        last, where = words[-1]
        path = (*path, last)
        if several:
            number = self.counts.get(path, 0)
            self.counts[path] = number + 1
            self.found.setdefault(path, Place(where, span))
            path = (*path, number)
        self.found[path] = Place(where, span)
        return path

    def _within(self, path: Path) -> Path:
        """The path of a table, the last one if it is a list of them."""
        return (*path, self.counts[path] - 1) if path in self.counts else path

    def _entry(self, table: Path) -> None:
        """`word = value`, where a word may have dots."""
        words, path = self._words(), table
        self.at = self.text.index("=", self.at) + 1
        self._skip()
        for word, where in words[:-1]:
            path = (*path, word)
            self.found.setdefault(path, Place(where, where))
        last, where = words[-1]
        path = (*path, last)
        self.found[path] = Place(where, where)
        self.found[path] = Place(where, self._value(path))

    def _words(self) -> list[tuple[str, Span]]:
        """A word, or several with dots between them."""
        words: list[tuple[str, Span]] = []
        while True:
            self._skip()
            begin = self.at
            quoted = _STRING.match(self.text, begin)
            found = quoted or _BARE.match(self.text, begin)
            assert found is not None
            self.at = found.end()
            word = tomllib.loads(f"word = {found[0]}")["word"] if quoted else found[0]
            words.append((word, Span(begin, self.at)))
            self._skip()
            if self.text[self.at] != ".":
                return words
            self.at += 1

    def _value(self, path: Path) -> Span:
        begin = self.at
        match self.text[begin]:
            case "[":
                self._inside("]", path)
            case "{":
                self._inside("}", path)
            case _:
                found = _STRING.match(self.text, begin) or _ATOM.match(self.text, begin)
                assert found is not None
                self.at = begin + len(found[0].rstrip())
        return Span(begin, self.at)

    def _inside(self, close: str, path: Path) -> None:
        """The entries of a list, or of a table in braces."""
        number = 0
        self.at += 1
        self._skip()
        while self.text[self.at] != close:
            if close == "}":
                self._entry(path)
            else:
                span = self._value((*path, number))
                self.found[(*path, number)] = Place(span, span)
                number += 1
            self._skip()
            if self.text[self.at] == ",":
                self.at += 1
                self._skip()
        self.at += 1
