"""What a run has done so far, for those who watch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What a run has seen: shown while it goes on and at its end."""

    elements: int = 0
    rejected: int = 0
    late: int = 0
    results: int = 0
    time: int | None = None
    watch: Callable[[Tally], None] = field(default=lambda tally: None, repr=False)
