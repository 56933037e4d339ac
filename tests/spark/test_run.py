"""What a run makes of errors of Spark; no session is started here."""

from __future__ import annotations

from errno import EACCES

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from py4j.protocol import Py4JError, Py4JNetworkError

from cqels.model.errors import CqelsError, DataError
from cqels.spark.driver.failure_reason import RunFailed, cause, failure, of_sink, one_sentence
from cqels.spark.sinks import Callback


def test_an_error_of_ours_is_found_in_one_of_spark() -> None:
    error = DataError("a file has changed", hint="write it elsewhere")
    text = f"[STREAM_FAILED] …\ncqels.model.errors.DataError: {error}\n SQLSTATE: 38000"
    assert str(failure(text)) == str(error)
    text = "failed\ncqels.model.errors.DataError: it is gone\n  --> a.nt\n   = hint: look\n\tat org.x"
    assert str(failure(text)) == "it is gone\n  --> a.nt\n   = hint: look"


def test_the_line_that_tells_most() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
\tat org.apache.spark.X
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure
Caused by: java.io.IOException: No space left on device
\tat java.base/x"""
    assert cause(text) == "IOException: No space left on device"
    assert cause("nothing known\nmore") == "nothing known"


def test_what_ends_spark_is_one_sentence() -> None:
    """Whatever the errors of Spark, Java and disks look like."""
    full = "[STREAM_FAILED] …\nCaused by: java.io.IOException: No space left on device\n\tat java.base/x"
    told = failure(full)
    assert isinstance(told, RunFailed)
    assert told.message == "a disk is full: IOException: No space left on device"
    assert "goes on from its checkpoint" in str(told.hint)
    assert failure("…\nMemoryError: no room").message.startswith("a process of Spark ran out of memory")
    assert failure("…\nImportError: libx.so: failed to map segment from shared object").message.startswith("a process")
    assert failure(Py4JNetworkError("Answer from Java side is empty")).message.startswith("Spark's Java has ended")
    silent = Py4JError("An error occurred while calling o175.isActive")
    assert failure(silent).message.startswith("Spark's Java has ended")
    assert failure(RuntimeError("odd")).message == "Spark: RuntimeError: odd"
    with pytest.raises(CqelsError, match=r"^/x/lock cannot be read or written: permission denied$"), one_sentence():
        raise PermissionError(EACCES, "Permission denied", "/x/lock")


def test_a_sink_that_fails_is_named() -> None:
    sink = Callback(lambda result: result)
    with pytest.raises(CqelsError, match=r"^the sink Callback failed: ZeroDivisionError: ") as told, of_sink(sink):
        1 / 0  # noqa: B018
    assert isinstance(told.value.__cause__, ZeroDivisionError)
    with pytest.raises(DataError), of_sink(sink):
        raise DataError("it is late")
