"""Reading ahead: the rows are those of the task itself, or there are none."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event

import pyarrow
import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from cqels.pipeline.source.batch_size import BATCH_OVERHEAD, BATCH_SECONDS, FIRST_BYTES, MOST_GROWTH, BatchSizer
from cqels.spark.source import read_ahead

SCHEMA = pyarrow.schema([("number", pyarrow.int64())])
PATIENCE = 20.0


def rows(*numbers: int) -> Iterator[pyarrow.RecordBatch]:
    for number in numbers:
        yield pyarrow.RecordBatch.from_pydict({"number": [number]}, SCHEMA)


def numbers(batches: list[pyarrow.RecordBatch] | None) -> list[int] | None:
    return None if batches is None else [row["number"] for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(read_ahead, "_folder", lambda: tmp_path)
    return tmp_path


def test_what_is_being_read_is_waited_for_and_taken_once(folder: Path) -> None:
    begun, go_on = Event(), Event()

    def slowly() -> Iterator[pyarrow.RecordBatch]:
        yield from rows(1, 2)
        begun.set()
        assert go_on.wait(PATIENCE)
        yield from rows(3)

    read_ahead.begin("a", slowly, SCHEMA)
    assert begun.wait(PATIENCE)
    read_ahead.begin("a", lambda: rows(4), SCHEMA)  # which another process is at
    go_on.set()
    assert numbers(read_ahead.taken("a")) == [1, 2, 3]
    assert read_ahead.taken("a") is None
    assert not list(folder.iterdir())


def test_what_was_not_read_to_its_end_is_as_if_nobody_had_begun(folder: Path) -> None:
    with pyarrow.ipc.new_file(folder / "whole", SCHEMA) as writer:
        for each in rows(1, 2):
            writer.write_batch(each)
    whole = (folder / "whole").read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        (folder / "cut.rows").write_bytes(whole[:size])
        assert read_ahead.taken("cut") is None
    (folder / "cut.rows").write_bytes(whole)
    assert numbers(read_ahead.taken("cut")) == [1, 2]


def test_a_fault_is_left_to_the_task(folder: Path) -> None:
    raised = Event()

    def faulty() -> Iterator[pyarrow.RecordBatch]:
        yield from rows(1)
        raised.set()
        raise ValueError

    read_ahead.begin("a", faulty, SCHEMA)
    assert raised.wait(PATIENCE)
    assert read_ahead.taken("a") is None


def test_outside_spark_nothing_is_read_ahead() -> None:
    read_ahead.begin("a", lambda: rows(1), SCHEMA)
    assert read_ahead.taken("a") is None


def test_micro_batches_grow_to_what_can_be_done_in_their_time() -> None:
    sizer = BatchSizer()
    done, now = 0, 100.0
    sizes = []
    for _ in range(12):  # each at ten megabytes a second
        sizer.observe(done, now)
        sizes.append(sizer.size)
        done, now = done + sizer.size, now + BATCH_OVERHEAD + sizer.size / 10e6
    assert sizes[0] == FIRST_BYTES
    assert all(after <= MOST_GROWTH * before for before, after in pairwise(sizes))
    assert sizes[-1] == pytest.approx(BATCH_SECONDS * 10e6, rel=0.01)
    sizer.observe(done, now)
    sizer.observe(done, now + 1000)  # nothing came meanwhile
    assert sizer.size == pytest.approx(BATCH_SECONDS * 10e6, rel=0.01)
