"""What the compiler of plans says when it cannot."""

from __future__ import annotations

from cqels.model.errors import QueryError


class NotIncremental(QueryError):
    """A shape of plan that has no incremental operator."""
