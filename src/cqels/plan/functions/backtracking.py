"""In how many ways a regular expression can match at most: so often matching may go back and try another one."""

from __future__ import annotations

from math import inf, log2
from typing import NamedTuple

_FEW = 22
"""So many ways are few, as a power of two: trying all of them takes a fraction of a second."""


class Ways(NamedTuple):
    """The most ways in which a part of an expression matches at one place of n characters: 2**bits * n**degree."""

    bits: float
    degree: float

    def longest(self) -> float:
        """The characters of a text in which all can be tried, beginning at any place; there may be no such text.

        >>> ONE_WAY.repeated(0, inf).longest() > 1000, ONE_WAY.repeated(0, inf).repeated(0, inf).longest() > 0
        (True, False)
        """
        return 2 ** ((_FEW - self.bits) / (self.degree + 1)) - 2

    def then(self, other: Ways) -> Ways:
        return Ways(self.bits + other.bits, self.degree + other.degree)

    def or_else(self, other: Ways) -> Ways:
        bits = max(self.bits, other.bits)
        return Ways(bits + log2(1 + 2 ** -abs(self.bits - other.bits)), max(self.degree, other.degree))

    def repeated(self, least: float, most: float) -> Ways:
        """From `least` times to `most` times.

        >>> Ways(1, 0).repeated(3, 3)
        Ways(bits=3.0, degree=0)
        """
        if most == inf:
            return Ways(0, 1) if self == ONE_WAY else Ways(inf, 0)
        return Ways(self.bits * most + log2(max(most - least + 1, 1)), self.degree * most)


ONE_WAY = Ways(0, 0)
