"""Limits that all parts agree on: what a query may ask for, and how large one computed term may become."""

from __future__ import annotations

MOST_COUNTED = 2**63 - 1
"""The largest LIMIT, OFFSET or window of so many triples, and the longest window in nanoseconds: 64 bits."""
MOST_JOIN_COLUMNS = 62
"""Columns that the inputs of one join can share: each is a bit of a word."""
MOST_WINDOWS = 1_000
"""Windows that one query may read, the same one as often as it is written."""
LONGEST_TEXT = 1_000_000
"""Characters of a text that a function makes of others; a longer one is an error of the expression."""
MOST_DIGITS = 10_000
"""Digits of a product or a quotient of integers and decimals; one with more is an error of the expression."""
LONGEST_VALUE = 20_000
"""Characters of a literal that is read as a number, a date or a duration; a longer one is no value of its datatype."""
