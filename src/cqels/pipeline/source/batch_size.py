"""How many bytes a micro-batch of a file source may have: adapted to how long the ones before it took."""

from __future__ import annotations

FIRST_BYTES = 4 << 20
"""Bytes of the first micro-batches, which are small so that results come soon."""
BATCH_SECONDS = 4.0
"""Seconds that a micro-batch should take: the next ones get as many bytes as were processed in that time."""
BATCH_OVERHEAD = 0.5
"""Seconds that a micro-batch takes whatever its size."""
MOST_GROWTH = 16
"""How many times as large as the last micro-batch the next one may be."""


class BatchSizer:
    """Measures how fast micro-batches are processed, and so chooses the size of the next one."""

    def __init__(self) -> None:
        self.size = FIRST_BYTES
        """Bytes that the next micro-batch may have."""
        self._last: tuple[int, float] | None = None

    def observe(self, done: int, now: float) -> None:
        """`done` bytes have been processed in all, and more are asked for at the time `now`."""
        if self._last is not None and done > self._last[0]:
            bytes, seconds = done - self._last[0], now - self._last[1]
            growth = min(BATCH_SECONDS / max(seconds - BATCH_OVERHEAD, 0.001), MOST_GROWTH)
            self.size = max(int(bytes * growth), FIRST_BYTES)
        self._last = done, now
