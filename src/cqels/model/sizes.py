"""Sizes of memory as counts of bytes, and the texts that stand for them; a kB has 1024 bytes."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kMGT]?)i?B?", re.IGNORECASE)
_LETTERS = " kmgt"
_UNITS = ("B", "kB", "MB", "GB", "TB")


def parse_size(text: str) -> int:
    """The bytes of `32MB`.

    >>> parse_size("32MB"), parse_size("1.5k"), parse_size("700")
    (33554432, 1536, 700)
    """
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(float(found[1]) * 1024 ** _LETTERS.index(found[2].lower() or " "))
    if size < 1:
        raise ValueError(f"'{text}' is not a size such as 32MB or 500kB")
    return size


def format_size(size: int) -> str:
    """A size in the largest unit of which it has one, with three digits at most.

    >>> format_size(33554432), format_size(1536), format_size(700)
    ('32 MB', '1.5 kB', '700 B')
    """
    number, power = float(size), 0
    while number >= 1000 and power < len(_UNITS) - 1:
        number, power = number / 1024, power + 1
    return f"{number:.3g} {_UNITS[power]}"
