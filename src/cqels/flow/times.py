"""What windows over times that elements tell ask of Python: the time that a literal states."""

from __future__ import annotations

from pyoxigraph import Literal

from cqels.kernels import machine, told
from cqels.kernels.terms import ArenaDictionary
from cqels.kernels.window import KIND, TOLD
from cqels.model.dictionary import decode
from cqels.model.time import time_of


def tell_times(dictionary: ArenaDictionary, pipeline: int) -> None:
    """Answer the windows of the pipeline at a place that ask for a time."""
    words = dictionary.arena.words
    first = int(words[pipeline + machine.WINDOWS_AT])
    for place in range(first, first + 3 * int(words[pipeline + machine.WINDOWS]), 3):
        window = int(words[place + 1])
        if words[window + KIND] < TOLD or words[window + told.ASKED] == 0:
            continue
        term = decode(int(words[window + told.ASKED]), dictionary)
        time = time_of(term) if isinstance(term, Literal) else None
        words[window + told.ASKED] = 0
        words[window + told.ANSWER] = told.NO_TIME if time is None else told.KNOWN
        words[window + told.ANSWER_TIME] = 0 if time is None else time
