"""What a run makes of rows and errors of Spark; no session is started here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from cqels.cli.on_spark import cause
from cqels.model.errors import DataError
from cqels.spark.run import _late, _ours


def row(instance: int, text: str, reason: str = "late by 3s") -> Any:
    return SimpleNamespace(kind="late", instance=instance, query=None, place="<x:s>", reason=reason, text=text)


def test_what_was_late_is_told_once() -> None:
    """Each engine tells it, with the triples that its own queries can match."""
    rows: Any = [row(0, ""), row(0, "<x:a> <x:p> 1 ."), row(1, "<x:b> <x:q> 2 ."), row(1, "")]
    assert [each.text for each in _late(rows)] == ["<x:b> <x:q> 2 .", "<x:a> <x:p> 1 ."]


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
