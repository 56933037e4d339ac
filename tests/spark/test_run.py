"""What a run makes of errors of Spark; no session is started here."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from cqels.cli.on_spark import cause
from cqels.model.errors import DataError
from cqels.spark.run import _ours


def test_an_error_of_ours_is_found_in_one_of_spark() -> None:
    error = DataError("a file has changed", hint="write it elsewhere")
    text = f"[STREAM_FAILED] …\ncqels.model.errors.DataError: {error}\n SQLSTATE: 38000"
    assert str(_ours(text)) == str(error)
    text = "failed\ncqels.model.errors.DataError: it is gone\n  --> a.nt\n   = hint: look\n\tat org.x"
    assert str(_ours(text)) == "it is gone\n  --> a.nt\n   = hint: look"


def test_the_line_that_tells_most() -> None:
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
\tat org.apache.spark.X
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure
Caused by: java.io.IOException: No space left on device
\tat java.base/x"""
    assert cause(text) == "IOException: No space left on device"
    assert cause("nothing known\nmore") == "nothing known"
