"""The schemas of the rows before and behind the stateful operator: blocks for the shuffle, and what the engines send.

*Arriving* rows are keyed by the engine instance that they go to.  Those of a source, whose number is in `stream`, are
in sequences, named by the column `place` and ordered by `position` and `number`; the sequences of a source, and the
sources of all streams, are merged by time.  The sequence of a file is its number in its source (`sequence_of`).

    kind       meaning
    block      elements, in `block` (see `cqels.pipeline.lift.block_format`)
    rejected   a malformed line or record: `place` for people, `reason` and `text`
    end        the source has ended, after all blocks of this micro-batch
    command    a command that the engine executes after all else of this micro-batch: JSON in `text`, see
               `instance_commands.Arrival`; under a seal, and numbered by `position`, if it has a `place`
               (`cqels.spark.driver.dataset_updates`)

*Sent* rows are few: the results of a query in one micro-batch are one row or some, each with many results.

    kind       meaning
    results    `count` results of `query`, of which `number` were sent before, in `payload`: an Arrow stream with the
               columns that `cqels.engine.output.arrow_columns.terms_of` gives
    written    what a task has written of such results, instead of them: JSON in `text`, the number of the sink in
               `place` (`cqels.spark.sink.task_output`)
    rejected   as above, the stream in `query`
    late       an element that came too late: its stream, why, and its triples
    report     one for each instance and micro-batch: what it did, as JSON in `text`
"""

from __future__ import annotations

import pyarrow

BLOCK, REJECTED, END, COMMAND = "block", "rejected", "end", "command"
RESULTS, WRITTEN, LATE, REPORT = "results", "written", "late", "report"
PUSHED = "pushed"
"""The sequence of blocks that were pushed: positions are offsets of an inbox (`cqels.spark.source.pushed_source`)."""

ARRIVING = pyarrow.schema(
    [
        ("instance", pyarrow.int32()),
        ("stream", pyarrow.int32()),
        ("kind", pyarrow.string()),
        ("place", pyarrow.string()),
        ("position", pyarrow.int64()),
        ("number", pyarrow.int64()),
        ("block", pyarrow.binary()),
        ("reason", pyarrow.string()),
        ("text", pyarrow.string()),
    ]
)
ARRIVING_COLUMNS = (
    "instance int, stream int, kind string, place string, position long, number long, block binary, "
    "reason string, text string"
)
"""The same for Spark."""
SENT_COLUMNS = (
    "instance int, query string, kind string, number long, count long, payload binary, "
    "place string, reason string, text string"
)


def sequence_of(first: int, last: int) -> str:
    """The sequence of a block of consecutive files, each of which begins in time where the one before it ends.

    Sequences are in the order of the files.
    """
    return f"{first:08}" if first == last else f"{first:08}-{last:08}"


def files_of_sequence(sequence: str) -> tuple[int, int]:
    """The first and the last file of a sequence.

    >>> files_of_sequence(sequence_of(3, 7))
    (3, 7)
    """
    first, _, last = sequence.partition("-")
    return int(first), int(last or first)
