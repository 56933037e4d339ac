"""The characters of SPARQL's names ([164] to [171]): quick classes for the lexer, exact ranges to check what it took.

A class of all the ranges costs the regular expression compiler milliseconds each time, and there is one lexer for each
state of the parser.  So the lexer takes any character beyond Latin-1's signs, and the rare name that is not plain ASCII
is checked character by character afterwards.
"""

from __future__ import annotations

import string

_LETTERS = string.ascii_letters
_DIGITS = string.digits

_BASE = (
    *((0x00C0, 0x00D6), (0x00D8, 0x00F6), (0x00F8, 0x02FF), (0x0370, 0x037D), (0x037F, 0x1FFF), (0x200C, 0x200D)),
    *((0x2070, 0x218F), (0x2C00, 0x2FEF), (0x3001, 0xD7FF), (0xF900, 0xFDCF), (0xFDF0, 0xFFFD), (0x10000, 0xEFFFF)),
)
_INNER = (*_BASE, (0x00B7, 0x00B7), (0x0300, 0x036F), (0x203F, 0x2040))


def _quick(allowed: str) -> str:
    """A class of these ASCII characters and everything from U+00B7 on."""

    def escaped(character: str) -> str:
        # lark turns \\x.. into the character itself, so those that mean something in a class get a backslash
        return f"\\{character}" if character in r"\[]^-/" else f"\\x{ord(character):02x}"

    return f"[^{''.join(escaped(chr(code)) for code in range(0xB7) if chr(code) not in allowed)}]"


CLASSES = {
    "PN_BASE": _quick(_LETTERS),
    "PN_CHARS_DOT": _quick(_LETTERS + _DIGITS + "_-."),
    "PN_CHARS": _quick(_LETTERS + _DIGITS + "_-"),
    "PN_LOCAL_START": _quick(_LETTERS + _DIGITS + "_:"),
    "PN_LOCAL_DOT": _quick(_LETTERS + _DIGITS + "_-.:"),
    "PN_LOCAL": _quick(_LETTERS + _DIGITS + "_-:"),
    "VAR_START": _quick(_LETTERS + _DIGITS + "_"),
    "VAR_CHARS": _quick(_LETTERS + _DIGITS + "_"),
    "PLX": r"%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=\/?#@%]",
}
"""What stands for a class in grammar.lark, longer names before those they begin with."""


def wrong_character(name: str) -> str | None:
    """The first character that no name may have at its place, if there is one."""
    if name.isascii():
        return None
    for place, character in enumerate(name):
        ranges = _BASE if place == 0 else _INNER
        if not character.isascii() and not any(low <= ord(character) <= high for low, high in ranges):
            return character
    return None
