"""What was promised of the subjects of one stream: no element with a triple of a subject before a time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from cqels.model.time import EARLIEST


class SubjectPromises:
    """Subjects are words. Those that the stream has had, and of which nothing was promised, are known too."""

    def __init__(self, times: Mapping[int, int | None] | None = None) -> None:
        self.times: dict[int, int | None] = dict(times or {})
        """The subjects, and before what time none of them will come."""
        self._open = sum(time is None for time in self.times.values())
        """How many subjects have promised nothing."""
        self._earliest = [(time, subject) for subject, time in self.times.items() if time is not None]
        heapq.heapify(self._earliest)

    def note(self, subjects: Iterable[int]) -> None:
        """The stream has had elements with these subjects."""
        for subject in subjects:
            if subject not in self.times:
                self.times[subject] = None
                self._open += 1

    def promise(self, subject: int, time: int) -> None:
        """No element with this subject before a time; an earlier promise stays."""
        known = self.times.get(subject, EARLIEST)
        if known is None:
            self._open -= 1
        if known is None or subject not in self.times or time > known:
            self.times[subject] = time
            heapq.heappush(self._earliest, (time, subject))

    def limit(self, subject: int) -> int:
        """What an element with this subject must not be behind."""
        time = self.times.get(subject)
        return EARLIEST if time is None else time

    @property
    def common(self) -> int | None:
        """Before what time none of all subjects will come; None if some of them has promised nothing."""
        if self._open:
            return None
        while self._earliest and self.times[self._earliest[0][1]] != self._earliest[0][0]:
            heapq.heappop(self._earliest)  # it has promised more since
        return self._earliest[0][0] if self._earliest else None
