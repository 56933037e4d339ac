"""Times far beyond the wall clock: one such element would make all that follows late, so it is rejected (SPEC §6)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cqels.engine.batch import Batch
from cqels.engine.terms import Terms
from cqels.io import future_reason
from cqels.model.time import LATEST

FUTURE = 86_400 * 10**9
"""How far beyond the wall clock the times of live sources may be, in nanoseconds, if nothing else is said."""


def near(batch: Batch, future: int | None, now: int, terms: Terms, reject: Callable[[str, str], None]) -> Batch:
    """The elements that are not further beyond `now` than `future`; of the others `reject` has the reason and text."""
    if future is None or not len(batch):
        return batch
    limit = min(now + future, LATEST)
    if int(batch.times[0] if len(batch) == 1 else batch.times.max()) <= limit:
        return batch
    is_far = batch.times > limit
    for place in np.flatnonzero(is_far).tolist():
        one = batch[place : place + 1]
        triples = terms.decode_rows(one.triples.reshape(-1, 3))
        text = " ".join(" ".join(map(str, triple)) + " ." for triple in triples)
        reject(future_reason(int(one.times[0]), future), text)
    return batch.take(np.flatnonzero(~is_far))
