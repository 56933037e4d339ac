"""Limits that plans and kernels agree on."""

from __future__ import annotations

MOST_JOIN_COLUMNS = 62
"""Columns that the inputs of one join can share: each is a bit of a word."""
