"""Limits that plans and kernels agree on."""

from __future__ import annotations

MOST_COUNTED = 2**63 - 1
"""The largest LIMIT, OFFSET or window of so many triples, and the longest window in nanoseconds: 64 bits."""
MOST_JOIN_COLUMNS = 62
"""Columns that the inputs of one join can share: each is a bit of a word."""
