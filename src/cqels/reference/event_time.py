"""Event time: elements are put in order, late elements are separated, silent streams are not waited for."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.ingest import Element, Rejected, StreamSettings, late_reason, promise_reason
from cqels.model.errors import CqelsError
from cqels.model.terms import CQ
from cqels.model.time import no_time_reason, time_of

__all__ = ["Heartbeat", "StreamSettings", "Watermarks"]


_PROMISE = NamedNode(CQ + "noElementBefore")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """No element before this time will come."""

    time: int


class Watermarks:
    """Holds elements until nothing earlier can come, then releases them by time and, at one time, by arrival."""

    def __init__(self, streams: Iterable[StreamSettings], late: Callable[[Rejected], None]) -> None:
        self._streams = {each.iri: each for each in streams}
        self._late = late
        self._seen: dict[str, int] = {}
        self._promised: dict[str, int] = {}
        self._subjects: dict[str, dict[NamedNode | BlankNode, int | None]] = {}
        """The subjects that punctuated streams have had, and before what time no more of them will come."""
        self._held: list[tuple[int, int, Element | Heartbeat]] = []
        self._count = 0
        self._first: int | None = None
        self._latest = 0
        self._released: int | None = None

    def arrive(self, element: Element) -> Iterator[Element | Heartbeat]:
        """What the arrival of an element releases."""
        if element.stream not in self._streams:
            known = ", ".join(f"<{iri}>" for iri in self._streams)
            raise CqelsError(f"stream <{element.stream}> is not registered", hint=f"the streams are {known}")
        if all(predicate == _PROMISE for _, predicate, _ in element.triples):
            yield from self._promises(element)
            return
        subjects = self._subjects.setdefault(element.stream, {})
        promises = [(time, subject) for subject, _, _ in element.triples if (time := subjects.get(subject)) is not None]
        behind = [each for each in promises if element.time < each[0]]
        if behind:
            time = max(time for time, _ in behind)
            subject = next(subject for each, subject in behind if each == time)
            self._reject(element, promise_reason(element.time, time, subject))
            return
        watermark = self._watermark(element.stream)
        limit = max((bound for bound in (watermark, self._released) if bound is not None), default=element.time)
        if element.time < limit:
            reason = late_reason(element.time, limit, own=watermark is not None and element.time < watermark)
            self._reject(element, reason)
            return
        for subject, _, _ in element.triples:
            subjects.setdefault(subject, None)
        self._see(element.stream, element.time)
        yield from self._hold(element.time, element)

    def _reject(self, element: Element, reason: str) -> None:
        text = " ".join(" ".join(map(str, triple)) + " ." for triple in element.triples)
        self._late(Rejected(element.stream, f"<{element.stream}>", reason, text))

    def _promises(self, element: Element) -> Iterator[Element | Heartbeat]:
        """What an element releases that is none, but promises that none before some times will come."""
        settings = self._streams[element.stream]
        times = []
        for subject, _, literal in element.triples:
            if subject != NamedNode(element.stream) and not settings.punctuated:
                reason = f"a promise about {subject} on a stream without punctuations: declare it with punctuated=true"
                self._reject(element, reason)
                return
            if not isinstance(literal, Literal):
                self._reject(element, f"the time {literal} of cq:noElementBefore is not a literal")
                return
            time = time_of(literal, settings.unit)
            if time is None:
                self._reject(element, no_time_reason(literal))
                return
            times.append(time)
        for (subject, _, _), time in zip(element.triples, times, strict=True):
            if subject == NamedNode(element.stream):
                yield from self.heartbeat(time, element.stream)
            else:
                yield from self.punctuate(time, element.stream, subject)

    def punctuate(self, time: int, stream: str, subject: NamedNode | BlankNode) -> Iterator[Element | Heartbeat]:
        """What a promise about a subject releases: nothing, until all subjects of the stream have promised as much."""
        subjects = self._subjects.setdefault(stream, {})
        before = subjects.get(subject)
        subjects[subject] = time if before is None else max(time, before)
        promised = [each for each in subjects.values() if each is not None]
        known = self._promised.get(stream)
        if len(promised) == len(subjects) and (known is None or min(promised) > known):
            yield from self.heartbeat(min(promised), stream)

    def promised(self, stream: str) -> int | None:
        """Before what time nothing of a stream will come."""
        return self._promised.get(stream)

    def heartbeat(self, time: int, stream: str | None = None) -> Iterator[Element | Heartbeat]:
        """What a promise that nothing before `time` will come, on one stream or on all, releases."""
        for iri in self._streams if stream is None else [stream]:
            self._promised[iri] = max(time, self._promised.get(iri, time))
        self._latest = time if self._first is None else max(self._latest, time)
        self._first = time if self._first is None else self._first
        yield from self._hold(time, Heartbeat(time))

    def flush(self) -> Iterator[Element | Heartbeat]:
        """The end of the input: nothing is held back any more."""
        yield from self._release(None)

    def _see(self, stream: str, time: int) -> None:
        self._seen[stream] = max(time, self._seen.get(stream, time))
        self._latest = time if self._first is None else max(self._latest, time)
        self._first = time if self._first is None else self._first

    def _hold(self, time: int, what: Element | Heartbeat) -> Iterator[Element | Heartbeat]:
        heapq.heappush(self._held, (time, self._count, what))
        self._count += 1
        yield from self._release(self._horizon())

    def _release(self, horizon: int | None) -> Iterator[Element | Heartbeat]:
        while self._held and (horizon is None or self._held[0][0] <= horizon):
            time, _, what = heapq.heappop(self._held)
            if self._released is not None and time < self._released:
                continue  # a heartbeat that time has overtaken says nothing new
            self._released = time
            yield what

    def _watermark(self, stream: str) -> int | None:
        seen = self._seen.get(stream)
        promised = self._promised.get(stream)
        known = [] if promised is None else [promised]
        if seen is not None:
            known.append(seen - self._streams[stream].lateness)
        return max(known, default=None)

    def _horizon(self) -> int:
        """Nothing earlier than this can come, but from streams that have been silent for too long.

        A stream that has been silent for its idle time is taken to be where the others are: it holds nothing back any
        more, but its lateness is still granted to it.
        """
        marks = []
        for iri, settings in self._streams.items():
            last = max(
                (time for time in (self._seen.get(iri), self._promised.get(iri)) if time is not None),
                default=self._first or 0,
            )
            mark = self._watermark(iri)
            if self._latest - last >= settings.idle:
                granted = self._latest - settings.lateness
                marks.append(granted if mark is None else max(granted, mark))
            else:
                marks.append((self._first or 0) - 1 if mark is None else mark)
        return min(marks, default=self._latest)
