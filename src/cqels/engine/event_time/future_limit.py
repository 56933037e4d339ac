"""Times far beyond the wall clock: one such element would make all that follows late, so it is rejected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cqels.ingest import future_reason
from cqels.ingest.element_batch import Batch, Words
from cqels.ingest.term_codec import Terms
from cqels.model.time import LATEST


def limit_of(future: int | None, now: int) -> int:
    """The latest time that is not further beyond `now` than `future`; None is no limit."""
    return LATEST if future is None else min(now + future, LATEST)


def is_beyond(batch: Batch, limit: int) -> bool:
    """Whether some element is later than a limit."""
    size = len(batch.times)
    return size > 0 and int(batch.times.item(0) if size == 1 else batch.times.max()) > limit


def near(
    batch: Batch,
    future: int | None,
    limit: int,
    terms: Terms,
    reject: Callable[[str, str], None],
    promised: Words | None = None,
) -> Batch:
    """The elements up to `limit`, which is `future` beyond the wall clock; `reject` has reason and text of others.

    `promised` are times that elements speak of (`PromiseFinder.latest`): they must not be beyond it either.
    """
    if future is None or (promised is None and not is_beyond(batch, limit)):
        return batch
    times = batch.times if promised is None else np.maximum(batch.times, promised)
    is_far = times > limit
    for index in np.flatnonzero(is_far).tolist():
        one = batch[index : index + 1]
        triples = terms.decode_rows(one.triples.reshape(-1, 3))
        text = " ".join(" ".join(map(str, triple)) + " ." for triple in triples)
        reject(future_reason(int(times[index]), future), text)
    return batch.take(np.flatnonzero(~is_far)) if is_far.any() else batch
