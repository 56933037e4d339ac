r"""Regular expressions as REGEX and REPLACE know them: XPath's language, translated to Python's.

The two differ in more than notation: `$` is the very end of the text, `\w` is everything but punctuation, separators
and control characters (so `_` is not in it), `[a-z-[aeiou]]` subtracts, `\b` and look-around do not exist.

Matching goes back and tries again, in the worst case for ever.  Python's own module is quick, but keeps all threads
waiting meanwhile; so it is given what is sure to be done soon, and `regex`, which can be interrupted, all the rest.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property, lru_cache, reduce
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from cqels.model.deadlines import check
from cqels.model.limits import LONGEST_TEXT
from cqels.model.values import ExpressionError
from cqels.plan.functions.backtracking import ONE_WAY, Ways
from cqels.plan.functions.unicode_blocks import BLOCKS

if TYPE_CHECKING:
    import regex

T = TypeVar("T")
Ranges: TypeAlias = tuple[tuple[int, int], ...]

_WHITE_SPACE = " \t\n\r"
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
_MOMENT = 0.01
"""Seconds of the processor for which matching may keep other threads waiting."""
_QUANTIFIER = re.compile(r"(?:[?*+]|\{([0-9]+)(,?)([0-9]*)\})\??")
_PROPERTY = re.compile(r"\{(?:Is([A-Za-z0-9-]+)|([A-Z][a-z]?))\}")
# NameStartChar and the rest of NameChar of XML 1.0, for `\i` and `\c`.
_NAME_START: Ranges = (
    *((0x3A, 0x3A), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x2FF)),
    *((0x370, 0x37D), (0x37F, 0x1FFF), (0x200C, 0x200D), (0x2070, 0x218F), (0x2C00, 0x2FEF), (0x3001, 0xD7FF)),
    *((0xF900, 0xFDCF), (0xFDF0, 0xFFFD), (0x10000, 0xEFFFF)),
)
_NAME_REST: Ranges = ((0x2D, 0x2E), (0x30, 0x39), (0xB7, 0xB7), (0x300, 0x36F), (0x203F, 0x2040))


def matches(text: str, pattern: str, flags: str = "") -> bool:
    """fn:matches: whether some part of the text matches."""
    return compile_pattern(pattern, flags).is_in(text)


def replace(text: str, pattern: str, replacement: str, flags: str = "") -> str:
    """fn:replace: every match replaced; `$1` in the replacement is the first group, `\\$` a dollar sign."""
    compiled = compile_pattern(pattern, flags)
    if compiled.is_in(""):
        raise ExpressionError("the pattern of REPLACE matches the empty string")
    parts = [replacement] if "q" in flags else _replacement_parts(replacement, compiled.groups)
    return compiled.replaced(text, parts)


class Pattern:
    """A regular expression, by both modules: in a translation that means the same to them."""

    def __init__(self, translated: str, ways: Ways, *, ignore_case: bool) -> None:
        self._translated = translated
        self.longest = ways.longest()
        """The characters that a text may have for the quick one."""
        self._ignore_case = ignore_case
        self._quick = re.compile(translated, re.IGNORECASE if ignore_case else re.NOFLAG)
        self.groups = self._quick.groups

    @cached_property
    def _patient(self) -> regex.Pattern[str]:
        import regex

        try:
            return regex.compile(self._translated, regex.VERSION0 | (regex.IGNORECASE if self._ignore_case else 0))
        except (regex.error, OverflowError, RecursionError) as error:
            raise ExpressionError(f"{self._translated!r} is not a regular expression: {error}") from error

    def is_in(self, text: str) -> bool:
        if len(text) <= self.longest:
            return self._quick.search(text) is not None
        return _patiently(lambda **options: self._patient.search(text, **options) is not None)

    def replaced(self, text: str, parts: Sequence[str | int]) -> str:
        """A text in which matches are replaced by literal texts and groups."""
        if len(text) <= self.longest:
            return self._quick.sub(_Filling(text, parts), text)
        return str(_patiently(lambda **options: self._patient.sub(_Filling(text, parts), text, **options)))


class _Filling:
    """What matches in a text are replaced by, as long as it does not become too long."""

    def __init__(self, text: str, parts: Sequence[str | int]) -> None:
        self._size = len(text)
        self._parts = parts

    def __call__(self, match: re.Match[str] | regex.Match[str]) -> str:
        texts = [part if isinstance(part, str) else match[part] or "" for part in self._parts]
        self._size += sum(map(len, texts)) - (match.end() - match.start())
        if self._size > LONGEST_TEXT:
            raise ExpressionError(f"the text would be longer than {LONGEST_TEXT:,} characters")
        return "".join(texts)


def _patiently(work: Callable[..., T]) -> T:
    """Try to match for a moment, then for longer and longer, while other threads go on.

    Signals are heard all the time, and a budget of time between two attempts.
    """
    timeout = _MOMENT
    while True:
        try:
            return work(timeout=timeout, concurrent=timeout > _MOMENT)
        except TimeoutError:
            check()
            timeout *= 2


@lru_cache(maxsize=512)
def compile_pattern(pattern: str, flags: str = "") -> Pattern:
    if strange := set(flags) - set("smixq"):
        raise ExpressionError(f"{min(strange)!r} is not a flag of a regular expression")
    if "q" in flags:
        translated, ways = re.escape(pattern), ONE_WAY
    else:
        translated, ways = _Translation(_without_space(pattern) if "x" in flags else pattern, flags).run()
    try:
        return Pattern(translated, ways, ignore_case="i" in flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise ExpressionError(f"{pattern!r} is not a regular expression: {error}") from error


def _replacement_parts(replacement: str, groups: int) -> list[str | int]:
    """Literal texts and numbers of groups. `$12` is group 1 and then "2" where there are fewer than 12 groups."""
    parts: list[str | int] = []
    at = 0
    while at < len(replacement):
        character, following = replacement[at], replacement[at + 1 : at + 2]
        at += 2
        match character:
            case "\\" if following in ("\\", "$"):
                parts.append(following)
            case "$" if following.isascii() and following.isdigit():
                number = int(following)
                while (digit := replacement[at : at + 1]).isascii() and digit.isdigit():
                    if number * 10 + int(digit) > groups:
                        break
                    number = number * 10 + int(digit)
                    at += 1
                parts.append(number if number <= groups else "")
            case "\\" | "$":
                raise ExpressionError(f"{character!r} in the replacement {replacement!r} needs a backslash before it")
            case _:
                parts.append(character)
                at -= 1
    return parts


def _without_space(pattern: str) -> str:
    """The pattern under flag `x`: white space outside of character classes is dropped."""
    kept: list[str] = []
    depth = 0
    escaped = False
    for character in pattern:
        if not depth and character in _WHITE_SPACE:
            continue
        if not escaped:
            depth += (character == "[") - (character == "]")
        escaped = character == "\\" and not escaped
        kept.append(character)
    return "".join(kept)


class _Translation:
    """One pass over a pattern in XPath's syntax, writing the same in Python's."""

    def __init__(self, pattern: str, flags: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.groups = 0
        self.open: list[int] = []  # the groups around this place; 0 is a group that does not capture
        self.ways = [[ONE_WAY]]  # of the alternatives so far, of the whole and of each open group
        self.dot = "(?s:.)" if "s" in flags else r"[^\n]"
        self.start = r"(?:\A|(?<=\n)(?!\Z))" if "m" in flags else r"(?:\A)"
        self.end = r"(?:(?=\n)|(?<!\n)\Z)" if "m" in flags else r"(?:\Z)"

    def run(self) -> tuple[str, Ways]:
        out: list[str] = []
        while self.at < len(self.pattern):
            ways = ONE_WAY
            match self.next():
                case "(":
                    out.append(self.open_group())
                    continue
                case "|":
                    out.append("|")
                    self.ways[-1].append(ONE_WAY)
                    continue
                case ")":
                    if not self.open:
                        raise self.error("a parenthesis is closed that is not open")
                    self.open.pop()
                    atom, ways = ")", reduce(Ways.or_else, self.ways.pop())
                case "[":
                    atom = self.character_class()
                case "\\":
                    atom = self.escape()
                case ".":
                    atom = self.dot
                case "^":
                    atom = self.start
                case "$":
                    atom = self.end
                case "?" | "*" | "+" | "{" | "}" | "]" as character:
                    raise self.error(f"{character!r} stands where it means nothing")
                case character:
                    atom = re.escape(character)
            out.append(atom + self.quantifier(ways))
        if self.open:
            raise self.error("a parenthesis is not closed")
        return "".join(out), reduce(Ways.or_else, self.ways[0])

    def error(self, reason: str) -> ExpressionError:
        return ExpressionError(f"{self.pattern!r} is not a regular expression: {reason}")

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def next(self) -> str:
        if self.at >= len(self.pattern):
            raise self.error("it ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def open_group(self) -> str:
        self.ways.append([ONE_WAY])
        if self.peek("?:"):
            self.at += 2
            self.open.append(0)
            return "(?:"
        self.groups += 1  # "(?=" and its kin fail at the "?", which has nothing to repeat
        self.open.append(self.groups)
        return "("

    def quantifier(self, ways: Ways) -> str:
        """What says how often the atom before it comes, which has so many ways to match."""
        found = _QUANTIFIER.match(self.pattern, self.at)
        if found is not None:
            self.at = found.end()
            ways = ways.repeated(*_bounds(found))
        self.ways[-1][-1] = self.ways[-1][-1].then(ways)
        return "" if found is None else found[0]

    def escape(self) -> str:
        character = self.next()
        if character in "123456789":
            return self.back_reference(int(character))
        ranges = self.class_escape(character)
        if ranges is None:
            return re.escape(self.single_escape(character))
        return f"(?-i:[{_body(ranges)}])"  # a category is not widened by flag `i`

    def back_reference(self, number: int) -> str:
        while (digit := self.pattern[self.at : self.at + 1]).isascii() and digit.isdigit():
            if number * 10 + int(digit) > self.groups:
                break
            number = number * 10 + int(digit)
            self.at += 1
        if number > self.groups or number in self.open:
            raise self.error(f"group {number} is not complete where it is referred to")
        return rf"(?({number})\{number})"  # a group that took no part matches the empty string

    def single_escape(self, character: str) -> str:
        if character in _CONTROL:
            return _CONTROL[character]
        if character.isalnum() or character in _WHITE_SPACE:
            raise self.error(f"\\{character} is unknown")
        return character

    def class_escape(self, character: str) -> Ranges | None:
        """The characters of `\\d`, `\\p{Lu}` and the like; None where the escape is of one character."""
        match character.lower():
            case "s":
                ranges: Ranges = ((9, 10), (13, 13), (32, 32))
            case "d":
                ranges = _category("Nd")
            case "w":
                ranges = _complement(_category("P") + _category("Z") + _category("C"))
            case "i":
                ranges = _NAME_START
            case "c":
                ranges = _NAME_START + _NAME_REST
            case "p":
                ranges = self.property()
            case _:
                return None
        return _complement(ranges) if character.isupper() else ranges

    def property(self) -> Ranges:
        found = _PROPERTY.match(self.pattern, self.at)
        if found is None:
            raise self.error("\\p needs a category in braces")
        self.at = found.end()
        block, category = found.groups()
        ranges = BLOCKS.get(block, ()) if block else _category(category)
        if not ranges:
            raise self.error(f"the class {found[0]} is unknown")
        return ranges

    def character_class(self) -> str:
        negated = self.peek("^")
        self.at += negated
        body: list[str] = []
        subtracted = ""
        while not (self.peek("]") and body):
            if self.peek("-[") and body:
                self.at += 2
                subtracted = f"(?!{self.character_class()})"
                break
            body.append(self.class_item())
        if self.next() != "]":
            raise self.error("a character class ends with what it subtracts")
        return f"(?:{subtracted}[{'^' if negated else ''}{''.join(body)}])"

    def class_item(self) -> str:
        """One character, range or escape inside of brackets."""
        first = self.class_character()
        if not isinstance(first, str):
            return _body(first)
        if not self.peek("-") or self.peek("-]") or self.peek("-["):
            return re.escape(first)
        self.at += 1
        last = self.class_character()
        if not isinstance(last, str) or last < first:
            raise self.error(f"the range that begins with {first!r} has no proper end")
        return f"{re.escape(first)}-{re.escape(last)}"

    def class_character(self) -> str | Ranges:
        character = self.next()
        if character in "[]":
            raise self.error(f"{character!r} inside of brackets needs a backslash before it")
        if character != "\\":
            return character
        character = self.next()
        return self.class_escape(character) or self.single_escape(character)


def _bounds(quantifier: re.Match[str]) -> tuple[float, float]:
    least, comma, most = quantifier.groups()
    if least is None:
        return float(quantifier[0][0] == "+"), 1 if quantifier[0][0] == "?" else inf
    return float(least), float(most or inf) if comma else float(least)


def _body(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges of characters as they are written between the brackets of a Python class."""
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ranges)


def _complement(ranges: Ranges) -> Ranges:
    gaps: list[tuple[int, int]] = []
    free = 0
    for first, last in sorted(ranges):
        if first > free:
            gaps.append((free, first - 1))
        free = max(free, last + 1)
    return (*gaps, (free, sys.maxunicode)) if free <= sys.maxunicode else tuple(gaps)


def _category(name: str) -> Ranges:
    """The characters of a general category (`Lu`), or of all that begin with a letter (`L`)."""
    return tuple(ranges for category, each in _categories().items() if category.startswith(name) for ranges in each)


@cache
def _categories() -> dict[str, list[tuple[int, int]]]:
    categories: dict[str, list[tuple[int, int]]] = {}
    first = 0
    for category, run in groupby(map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))):
        following = first + sum(1 for _ in run)
        categories.setdefault(category, []).append((first, following - 1))
        first = following
    return categories
