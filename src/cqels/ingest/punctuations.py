"""Promises about time among the elements of a stream: heartbeats and punctuations, in every format.

An element that has no triple but `<subject> cq:noElementBefore time` is no element of its stream.  With the IRI of the
stream as subject it is a heartbeat of the stream: no element before that time will come.  With another subject it is a
punctuation: no element with a triple of that subject will; only a stream that is declared `punctuated` has those, since
its subjects have to be known.  What a promise does to time is the engine's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from pyoxigraph import Literal, NamedNode

from cqels.ingest.declarations import StreamSettings
from cqels.ingest.element_batch import HEARTBEAT, Batch, Words
from cqels.ingest.term_codec import Terms
from cqels.model.terms import CQ, Term
from cqels.model.time import EARLIEST, no_time_reason, time_of

NO_ELEMENT_BEFORE = NamedNode(CQ + "noElementBefore")
"""The predicate of a promise."""
_FIRST = -2
"""In the place of a stream's number: promises of stream 0, those of stream n are n less; -1 is `HEARTBEAT`."""


def promised_time(term: Term | None, unit: str) -> int:
    """The time of a promise; a ValueError says why it is none."""
    if not isinstance(term, Literal):
        raise ValueError(f"the time {term} of cq:noElementBefore is not a literal")
    time = time_of(term, unit)
    if time is None:
        raise ValueError(no_time_reason(term))
    return time


def is_of_stream(subject: Term | None, settings: StreamSettings) -> bool:
    """Whether a promise is one about its stream, a heartbeat; a ValueError if it is about a subject and cannot be."""
    if isinstance(subject, NamedNode) and subject.value == settings.iri:
        return True
    if not settings.punctuated:
        raise ValueError(f"a promise about {subject} on a stream without punctuations: declare it with punctuated=true")
    return False


def stream_of(number: int) -> int:
    """The stream whose promises have this in the place of a stream's number.

    >>> stream_of(promises_of(3))
    3
    """
    return _FIRST - number


def promises_of(stream: int) -> int:
    """What is in the place of a stream's number where an element has promises."""
    return _FIRST - stream


def placed(batch: Batch, stream: int) -> Batch:
    """The batch as one of this stream, whatever number its source has."""
    is_promise = batch.streams <= _FIRST
    return replace(batch, streams=np.where(is_promise, promises_of(stream), np.int64(stream)))


def has_promises(batch: Batch) -> bool:
    if len(batch.streams) == 1:
        return bool(batch.streams[0] < HEARTBEAT)
    return len(batch) > 0 and bool(batch.streams.min() < HEARTBEAT)


class PromiseFinder:
    """Finds the elements with promises in batches whose words are those of one dictionary.

    As long as the dictionary does not have the predicate, that is one look at the dictionary's size.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._size = -1
        self._predicate = 0

    def forget(self) -> None:
        """Words may have other terms now."""
        self._size = -1

    @property
    def has_any(self) -> bool:
        """There has been a promise, as far as the dictionary knows."""
        dictionary = self._terms.dictionary
        if (size := len(dictionary)) != self._size:
            self._predicate, self._size = dictionary.find(NO_ELEMENT_BEFORE), size
        return self._predicate != 0

    def marked(self, batch: Batch) -> Batch:
        """The batch, with `promises_of(stream)` in the place of the stream for elements that have promises alone."""
        if not self.has_any or not len(batch):
            return batch
        found = batch.triples[1::3] == self._predicate
        if not found.any():
            return batch
        are_promises = self._whole(batch, found) & (batch.streams >= 0)
        return replace(batch, streams=np.where(are_promises, _FIRST - batch.streams, batch.streams))

    def latest(self, batch: Batch, unit: str) -> Words | None:
        """The latest time that each element of a marked batch promises, EARLIEST if none; None if no element does."""
        if not has_promises(batch):
            return None
        ends, times = 3 * np.cumsum(batch.counts), np.full(len(batch), EARLIEST)
        for place in np.flatnonzero(batch.streams <= _FIRST).tolist():
            first = int(ends[place] - 3 * batch.counts[place])
            for word in batch.triples[first + 2 : int(ends[place]) : 3].tolist():
                with suppress(ValueError):  # it is rejected where it is resolved
                    times[place] = max(int(times[place]), promised_time(self._terms.decode(word), unit))
        return times

    def _whole(self, batch: Batch, found: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which elements have found triples alone; one without triples, of which others were dropped, has not."""
        ends = np.cumsum(batch.counts)
        so_far = np.concatenate([[0], np.cumsum(found)])
        many: npt.NDArray[np.bool_] = (so_far[ends] - so_far[ends - batch.counts] == batch.counts) & (batch.counts > 0)
        return many

    def resolved(
        self,
        batch: Batch,
        streams: Sequence[StreamSettings],
        reject: Callable[[int, str, Words], None],
    ) -> Batch:
        """The batch with its promises in numbers: a subject's word, or 0 for the stream itself, then 0, then the time.

        `reject` is given the stream, the reason and the triples of promises that cannot be kept; they are left out.
        """
        kept, words = list[int](), batch.triples.copy()
        ends = np.cumsum(batch.counts)
        for place in np.flatnonzero(batch.streams <= _FIRST).tolist():
            stream = stream_of(int(batch.streams[place]))
            settings = streams[stream]
            first, last = 3 * int(ends[place] - batch.counts[place]), 3 * int(ends[place])
            try:
                for at in range(first, last, 3):
                    subject, time = self._terms.decode(int(words[at])), self._terms.decode(int(words[at + 2]))
                    own = is_of_stream(subject, settings)
                    words[at : at + 3] = 0 if own else words[at], 0, promised_time(time, settings.unit)
            except ValueError as error:
                reject(stream, str(error), batch.triples[first:last])
                continue
            kept.append(place)
        if len(kept) == int(np.count_nonzero(batch.streams <= _FIRST)):
            return replace(batch, triples=words)
        chosen = np.flatnonzero(batch.streams > _FIRST).tolist()
        return replace(batch, triples=words).take(np.array(sorted([*kept, *chosen]), np.int64))
