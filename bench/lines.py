"""Timed N-Triples by the million: lines of equal width, written as arrays of bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from measure import Words

EX = "http://example.org/"
XSD_INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
BEGINNING = 1_700_000_000_000
"""Milliseconds, the time of the first element: thirteen digits for the next centuries."""
Part = bytes | tuple[Words, int]
"""Text that all lines have, or numbers with so many digits."""


def written(parts: Sequence[Part], count: int) -> bytes:
    """So many lines of these parts."""
    widths = [len(part) if isinstance(part, bytes) else part[1] for part in parts]
    table = np.empty((count, sum(widths)), np.uint8)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        if isinstance(part, bytes):
            table[:, start : start + width] = np.frombuffer(part, np.uint8)
        else:
            rest = part[0]
            for column in range(start + width - 1, start - 1, -1):
                rest, digit = np.divmod(rest, 10)
                table[:, column] = digit + 48
        start += width
    return table.tobytes()


def readings(subjects: Words, times: Words, values: Words, names: tuple[str, str]) -> bytes:
    """A line for each subject, with two predicates in turn and values from 100 to 999."""
    if len({len(name) for name in names}) != 1:
        raise ValueError("the names of the predicates have one length")
    count = len(subjects)
    predicates = np.frombuffer("".join(names).encode(), np.uint8).reshape(2, -1)
    mark = b"?" * len(names[0])
    line: list[Part] = [
        f"<{EX}s".encode(),
        (subjects, 9),
        f"> <{EX}".encode(),
        mark,
        b'> "',
        (values, 3),
        f'"^^<{XSD_INTEGER}> '.encode(),
        (times + BEGINNING, 13),
        b" .\n",
    ]
    table = np.frombuffer(bytearray(written(line, count)), np.uint8).reshape(count, -1)
    at = sum(len(part) if isinstance(part, bytes) else part[1] for part in line[:3])
    table[0::2, at : at + len(mark)] = predicates[0]
    table[1::2, at : at + len(mark)] = predicates[1]
    return table.tobytes()
