"""Which elements of several streams may come in one micro-batch without changing their order."""

from __future__ import annotations


class Going:
    """Streams that come together are merged by time: an element goes as if no later one of its stream had been before.

    So it may come together with those before it if it goes after all of them.
    """

    def __init__(self) -> None:
        self._reached: dict[int, int] = {}
        self._last: tuple[int, int] | None = None

    def fits(self, stream: int, time: int) -> bool:
        """Whether the next element goes after those of the present micro-batch, which it belongs to from now on."""
        place = max(time, self._reached.get(stream, time)), stream
        fits = self._last is None or place >= self._last
        self._reached[stream], self._last = place[0], place
        return fits

    def begin(self) -> None:
        """The next element is the first of a micro-batch."""
        self._last = None
