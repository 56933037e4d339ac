"""What windows over payload times ask of Python: the time that a literal states."""

from __future__ import annotations

from pyoxigraph import Literal

from cqels.kernels import scheduler
from cqels.kernels.operators import payload_time_window
from cqels.kernels.operators.window import KIND, TOLD
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.dictionary import decode
from cqels.model.time import time_of


def answer_times(dictionary: ArenaDictionary, pipeline: int) -> None:
    """Answer the windows of the pipeline at an offset that ask for a time."""
    words = dictionary.arena.words
    first = int(words[pipeline + scheduler.WINDOWS_AT])
    for offset in range(first, first + 3 * int(words[pipeline + scheduler.WINDOWS]), 3):
        window = int(words[offset + 1])
        if words[window + KIND] < TOLD or words[window + payload_time_window.ASKED] == 0:
            continue
        term = decode(int(words[window + payload_time_window.ASKED]), dictionary)
        time = time_of(term) if isinstance(term, Literal) else None
        words[window + payload_time_window.ASKED] = 0
        words[window + payload_time_window.ANSWER] = (
            payload_time_window.NO_TIME if time is None else payload_time_window.KNOWN
        )
        words[window + payload_time_window.ANSWER_TIME] = 0 if time is None else time
