"""The log of an instance: whatever of it is cut off or flipped is recovered, or refused with a sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from cqels.model.errors import CqelsError, Damaged
from cqels.pipeline.instance.batch_log import Record, Segment, segments_in
from cqels.pipeline.instance.instance_commands import Arrival

RECORDS = [
    Record(7, (Arrival(0, "a", b"\x00\x01" * 9), Arrival(1)), {"sources": {"a": 3}}, "d7"),
    Record(8, (), {}, "d8"),
    Record(9, (Arrival(command='{"drop": "q"}'), Arrival(0, "", b"\xff" * 30)), {"n": 1}, "d9"),
]
HEAD = 20


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    segment = Segment.create(tmp_path, 3)
    for each in RECORDS:
        segment.append(each)
    segment.close()
    return segment.path


def read(path: Path, *, last: bool = True) -> list[Record]:
    segment = Segment(path, 3)
    segment.open()
    try:
        return list(segment.records(last=last))
    finally:
        segment.close()


def ends(path: Path) -> Iterator[int]:
    """Where the head and each record end."""
    yield HEAD
    at, data = HEAD, path.read_bytes()
    while at < len(data):
        at += 24 + int.from_bytes(data[at + 8 : at + 16], "little")
        yield at


def test_what_is_written_is_read(written: Path) -> None:
    assert read(written) == RECORDS


def test_a_log_that_is_cut_off_anywhere_has_the_records_before(written: Path) -> None:
    """And goes on with others behind them."""
    data, there = written.read_bytes(), list(ends(written))
    for size in range(len(data)):
        written.write_bytes(data[:size])
        whole = sum(end <= size for end in there[1:])
        assert read(written) == RECORDS[:whole], size
        segment = Segment(written, 3)
        segment.open()
        assert list(segment.records(last=True)) == RECORDS[:whole]
        more = Record(10, (Arrival(2, "x", b"more"),), {}, "d10")
        segment.append(more)
        segment.close()
        assert read(written) == [*RECORDS[:whole], more], size


def test_a_log_that_others_follow_is_not_cut_off(written: Path) -> None:
    data, there = written.read_bytes(), set(ends(written))
    for size in set(range(HEAD, len(data))) - there:
        written.write_bytes(data[:size])
        with pytest.raises(Damaged):
            read(written, last=False)


def test_a_bit_that_is_flipped_anywhere_is_found(written: Path) -> None:
    """In the last record too: it was on the disk, so its results may have left."""
    data = written.read_bytes()
    last = [*ends(written)][-2]
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        written.write_bytes(flipped)
        with pytest.raises(CqelsError) as error:
            read(written)
        assert "\n" not in error.value.message
        if last <= at:
            assert f"byte {last:,}" in error.value.message


def test_sectors_that_were_never_written_are_those_of_a_torn_record(tmp_path: Path) -> None:
    """A power cut may leave the size of a file, and zeros instead of some of its sectors."""
    segment = Segment.create(tmp_path, 3)
    segment.append(RECORDS[0])
    start = segment.size + HEAD
    segment.append(Record(8, (Arrival(0, "", bytes(range(1, 256)) * 20),), {}, "d"))
    segment.close()
    data = segment.path.read_bytes()
    first = -(-(start + 24) // 512) * 512
    for at in range(first, len(data), 512):
        segment.path.write_bytes(data[:at] + bytes(len(data[at : at + 512])) + data[at + 512 :])
        assert read(segment.path) == RECORDS[:1]
    segment.path.write_bytes(data[:start] + bytes(len(data) - start))
    assert read(segment.path) == RECORDS[:1]
    segment.path.write_bytes(data[:start] + bytes(30) + data[start + 30 :])  # which no crash does
    with pytest.raises(Damaged):
        read(segment.path)


def test_records_that_change_places_or_are_gone_are_found(written: Path) -> None:
    data = written.read_bytes()
    there = list(ends(written))
    one, two, three = (data[start:end] for start, end in pairwise(there))
    for other in (two + one + three, two + three, one + three, one + one + two + three):
        written.write_bytes(data[:HEAD] + other)
        with pytest.raises(Damaged):
            read(written)


def test_records_are_cut_off(written: Path) -> None:
    for batch, kept in [(10, 3), (9, 2), (8, 1), (0, 0)]:
        segment = Segment(written, 3)
        segment.open()
        list(segment.records(last=True))
        segment.cut(batch)
        segment.close()
        assert read(written) == RECORDS[:kept]


def test_a_segment_that_another_follows_says_so(written: Path) -> None:
    segment = Segment(written, 3)
    segment.open()
    assert list(segment.records(last=True)) == RECORDS
    Segment.create(written.parent, 4).close()
    segment.close_followed()
    segment.close()
    again = Segment(written, 3)
    again.open()
    assert list(again.records(last=False)) == RECORDS
    assert again.followed
    assert [each.number for each in segments_in(written.parent)] == [3, 4]


def test_a_segment_that_is_gone_is_missed(written: Path) -> None:
    Segment.create(written.parent, 5).close()
    with pytest.raises(Damaged, match="log-00000004 is gone"):
        segments_in(written.parent)


def test_a_segment_of_a_newer_release_is_refused(written: Path) -> None:
    data = bytearray(written.read_bytes())
    data[7] = 9
    written.write_bytes(data)
    with pytest.raises(CqelsError, match="newer release"):
        read(written)
