"""The last step before the shuffle: a worker's elements as arriving rows, a block for each engine instance.

The elements come from `lift_worker.py`, or from the files of `source/file_range_reader.py`; the columns of the rows are
in `row_schemas.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import time_ns
from typing import TypeAlias

import numpy as np
import pyarrow

from cqels.engine.event_time.future_limit import limit_of, near
from cqels.ingest.element import Rejected
from cqels.ingest.element_batch import Batch, Words
from cqels.ingest.encode import Intake
from cqels.ingest.punctuations import PromiseFinder, has_promises
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import DataError
from cqels.pipeline.lift.block_format import pack
from cqels.pipeline.lift.predicate_pushdown import Matcher, PushedPatterns, only
from cqels.pipeline.lift.row_schemas import ARRIVING, BLOCK, END, REJECTED

MOST_TERMS = 1 << 20
"""Terms that a worker's dictionary keeps between batches."""
LONGEST_TEXT = 2000
"""Characters of a rejected text that are kept."""

Row: TypeAlias = dict[str, object]


class BlockWriter:
    """Writes the rows of one stream; it has a dictionary, which blocks do not depend on, and the pushed-down patterns.

    Each instance gets the triples that its queries can match, and all elements, since each is a tick and advances the
    watermark.  An instance that has no queries any more gets nothing.
    """

    def __init__(
        self,
        stream: int,
        patterns: tuple[PushedPatterns | None, ...],
        *,
        iri: str = "",
        future: int | None = None,
        strict: bool = False,
        terms: Terms | None = None,
        unit: str = "ms",
    ) -> None:
        """`patterns` are those of each instance.  Streams that are read in turn may share their `terms`.

        An element further ahead of the wall clock than `future` is rejected; `unit` is that of promises.
        """
        self._iri, self._future = iri, future
        self.stream = stream
        self.terms = new_terms() if terms is None else terms
        self.intake = Intake(self.terms)
        self._promises, self._unit = PromiseFinder(self.terms), unit
        self._strict = strict
        asked = {instance: each for instance, each in enumerate(patterns) if each is not None}
        made = {each: None if each.everything else each.matcher(self.terms) for each in asked.values()}
        self._matchers: dict[int, Matcher | None] = {instance: made[each] for instance, each in asked.items()}

    def tidy(self) -> None:
        """Forget the terms of earlier batches if they are many."""
        if len(self.terms.dictionary) > MOST_TERMS:
            self.terms.forget()
            self.terms.dictionary.keep(())

    def blocks(self, batch: Batch, sequence: str, position: int, number: int) -> Iterator[Row]:
        """A block of elements for each instance; those with the same triples are packed once.

        Promises (`punctuations.py`) are marked here, where all triples of an element are seen, and go to all instances.
        """
        far: list[Rejected] = []
        where = f"<{self._iri}>"
        self._promises.forget()  # others may have forgotten terms of the same dictionary
        batch = self._promises.marked(batch)
        batch = near(
            batch,
            self._future,
            limit_of(self._future, time_ns()),
            self.terms,
            lambda reason, text: far.append(Rejected(self._iri, where, reason, text)),
            None if self._future is None else self._promises.latest(batch, self._unit),
        )
        yield from (self.rejected(each, position, number) for each in far)
        if not len(batch):
            return
        triples = batch.triples.reshape(-1, 3)
        packed: dict[bytes, bytes] = {}
        asked: dict[Matcher | None, bytes] = {}
        for instance, matcher in self._matchers.items():
            if matcher not in asked:
                found = np.ones(len(triples), np.bool_) if matcher is None else matcher.matches(triples)
                if has_promises(batch):
                    found |= np.repeat(batch.streams < 0, batch.counts)
                content = found.tobytes()
                if content not in packed:
                    packed[content] = pack(only(batch, found), self.terms.dictionary)
                asked[matcher] = packed[content]
            yield self._row(instance, BLOCK, sequence, position, number) | {"block": asked[matcher]}

    def rejected(self, rejected: Rejected, position: int, number: int) -> Row:
        """The row of rejected input, which the first instance passes on. With `strict` it ends the run."""
        if self._strict:
            hint = "without strict such input is counted, reported and left out"
            raise DataError(str(rejected), hint=hint)
        row = self._row(min(self._matchers), REJECTED, rejected.place, position, number)
        return row | {"reason": rejected.reason, "text": rejected.text[:LONGEST_TEXT]}

    def ends(self) -> Iterator[Row]:
        """The stream has ended, for all instances."""
        for instance in self._matchers:
            yield self._row(instance, END, "", 0, 0)

    def _row(self, instance: int, kind: str, place: str, position: int, number: int) -> Row:
        return {
            "instance": instance,
            "stream": self.stream,
            "kind": kind,
            "place": place,
            "position": position,
            "number": number,
        }


def new_terms() -> Terms:
    return Terms(ArenaDictionary(Arena()))


def table(rows: Iterable[Row]) -> pyarrow.RecordBatch:
    """Rows as Arrow has them."""
    return pyarrow.RecordBatch.from_pylist(list(rows), ARRIVING)


def one_element(time: int, stream: int, words: Words) -> Batch:
    """The batch of one element with these triples."""
    return Batch(np.array([time]), np.array([stream]), np.array([len(words) // 3]), words)
