r"""Regular expressions as REGEX and REPLACE know them: XPath's language, translated to Python's.

The two differ in more than notation: `$` is the very end of the text, `\w` is everything but punctuation, separators
and control characters (so `_` is not in it), `[a-z-[aeiou]]` subtracts, `\b` and look-around do not exist.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import groupby
from typing import TypeAlias

from cqels.model.limits import LONGEST_TEXT
from cqels.model.values import ExpressionError
from cqels.plan.functions.blocks import BLOCKS

Ranges: TypeAlias = tuple[tuple[int, int], ...]

_WHITE_SPACE = " \t\n\r"
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
_QUANTIFIER = re.compile(r"(?:[?*+]|\{[0-9]+(?:,[0-9]*)?\})\??")
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
    return compile_pattern(pattern, flags).search(text) is not None


def replace(text: str, pattern: str, replacement: str, flags: str = "") -> str:
    """fn:replace: every match replaced; `$1` in the replacement is the first group, `\\$` a dollar sign."""
    regex = compile_pattern(pattern, flags)
    if regex.search("") is not None:
        raise ExpressionError("the pattern of REPLACE matches the empty string")
    parts = [replacement] if "q" in flags else _replacement_parts(replacement, regex.groups)

    size = len(text)

    def filled(match: re.Match[str]) -> str:
        nonlocal size
        texts = [part if isinstance(part, str) else match[part] or "" for part in parts]
        size += sum(map(len, texts)) - (match.end() - match.start())
        if size > LONGEST_TEXT:
            raise ExpressionError(f"the text would be longer than {LONGEST_TEXT:,} characters")
        return "".join(texts)

    return regex.sub(filled, text)


@lru_cache(maxsize=512)
def compile_pattern(pattern: str, flags: str = "") -> re.Pattern[str]:
    if strange := set(flags) - set("smixq"):
        raise ExpressionError(f"{min(strange)!r} is not a flag of a regular expression")
    if "q" in flags:
        translated = re.escape(pattern)
    else:
        translated = _Translation(_without_space(pattern) if "x" in flags else pattern, flags).run()
    try:
        return re.compile(translated, re.IGNORECASE if "i" in flags else re.NOFLAG)
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
        self.dot = "(?s:.)" if "s" in flags else r"[^\n]"
        self.start = r"(?:\A|(?<=\n)(?!\Z))" if "m" in flags else r"(?:\A)"
        self.end = r"(?:(?=\n)|(?<!\n)\Z)" if "m" in flags else r"(?:\Z)"

    def run(self) -> str:
        out: list[str] = []
        while self.at < len(self.pattern):
            match self.next():
                case "(":
                    out.append(self.open_group())
                    continue
                case "|":
                    out.append("|")
                    continue
                case ")":
                    if not self.open:
                        raise self.error("a parenthesis is closed that is not open")
                    self.open.pop()
                    atom = ")"
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
            out.append(atom + self.quantifier())
        if self.open:
            raise self.error("a parenthesis is not closed")
        return "".join(out)

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
        if self.peek("?:"):
            self.at += 2
            self.open.append(0)
            return "(?:"
        self.groups += 1  # "(?=" and its kin fail at the "?", which has nothing to repeat
        self.open.append(self.groups)
        return "("

    def quantifier(self) -> str:
        found = _QUANTIFIER.match(self.pattern, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

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
