"""What ended a run on Spark, as one sentence for the user: our own error behind those of Spark, else the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cqels.model.errors import CqelsError, DataError, Source
from cqels.pipeline.sink.sink_protocol import DeliveryStopped

_OF_SPARK = (Py4JError, PySparkException)
FAULTS = (*_OF_SPARK, OSError)
"""What Spark, Java's end and disks raise here."""
_OURS = re.compile(r"cqels\.model\.errors\.(\w+): (.*)(?:\n\s*--> (.*))?(?:\n\s*= hint: (.*))?")
_CAUSE = re.compile(r"^(?:Caused by: |pyspark\S*: |)((?:\w+\.)*\w*(?:Error|Exception)): (.+)", re.MULTILINE)
_AGAIN = "then run it again: it goes on from its checkpoint"
_KNOWN = (
    (r"No space left on device|Disk quota exceeded", "a disk is full", f"free some space, {_AGAIN}"),
    (
        r"MemoryError|OutOfMemoryError|Cannot allocate memory|failed to map segment from shared object",
        "a process of Spark ran out of memory",
        f"give it more, or let it have smaller micro-batches, {_AGAIN}",
    ),
    (
        r"CANNOT_LOAD_STATE_STORE",
        "the state of the engines in the checkpoint is damaged: Spark cannot load it",
        "restore it from a copy, or begin with a new checkpoint",
    ),
    (
        r"Python worker exited unexpectedly|Python worker failed to connect back",
        "Spark's Python workers ended unexpectedly, again and again",
        f"were they killed, or out of memory? Undo that, {_AGAIN}",
    ),
    (
        r"Py4JNetworkError|Answer from Java side is empty|Error while sending or receiving|ConnectionRefused"
        r"|An error occurred while calling \S+$",  # without a word of Java: nobody answered
        "Spark's Java has ended",
        f"was it killed, or out of memory? Undo that, {_AGAIN}",
    ),
)


class RunFailed(CqelsError):
    """A failure of Spark, a disk or a sink: a log has more on it."""


def failure(error: object) -> CqelsError:
    """The error of a user, if that is what is behind one of Spark; else what is known of the cause."""
    if isinstance(error, CqelsError):
        return error
    text = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else str(error)
    if found := _OURS.search(text):
        source = None if found[3] is None else Source("", found[3].strip())
        return (DataError if found[1] == "DataError" else CqelsError)(found[2].strip(), source=source, hint=found[4])
    for pattern, message, hint in _KNOWN:
        if re.search(pattern, text):
            return RunFailed(f"{message}: {cause(text)}", hint=hint)
    if isinstance(error, OSError) and error.filename is not None:
        return CqelsError(f"{error.filename} cannot be read or written: {(error.strerror or str(error)).lower()}")
    return RunFailed(f"Spark: {cause(text)}")


def cause(text: str) -> str:
    """The line of a long error that says most: the last cause, or else the first line.

    >>> cause("[STREAM_FAILED] Query failed\\nTraceback (most recent call last):\\nValueError: no such thing")
    'ValueError: no such thing'
    """
    found = _CAUSE.findall(text)
    if not found:
        return text.strip().partition("\n")[0]
    kind, message = found[-1]
    return f"{kind.rpartition('.')[2]}: {message.strip()}"


@contextmanager
def one_sentence() -> Iterator[None]:
    """Raise what Spark or a disk raises as one sentence."""
    try:
        yield
    except FAULTS as error:
        raise failure(error) from error


@contextmanager
def of_sink(sink: Any) -> Iterator[None]:
    """Say which sink failed, whatever it raises."""
    try:
        yield
    except (CqelsError, DeliveryStopped):
        raise
    except Exception as error:
        reason = failure(error) if isinstance(error, _OF_SPARK) else CqelsError(f"{type(error).__name__}: {error}")
        raise RunFailed(f"the sink {type(sink).__name__} failed: {reason.message}", hint=reason.hint) from error
