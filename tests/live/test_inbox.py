"""What was appended to an inbox is there after a crash; what is damaged is refused, and never something else."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import pyarrow
import pytest

from cqels.model.errors import CqelsError, Damaged
from cqels.pipeline.source.inbox import FRAME_BYTES, Inbox, InboxFull, InboxReader
from cqels.pipeline.source.inbox_segments import cuts, read_rows, segments_of
from cqels.pipeline.source.live_source import ROWS, Message

SOME = [
    Message(b"one", 1),
    Message(b"", 2, b"key", "a/b", (("h", b"1"), ("h", b"2"))),
    Message(b"drei", 3, None, "ü"),
]


def numbered(count: int, size: int = 0) -> list[Message]:
    return [Message(f"{number}".encode().ljust(size), number) for number in range(count)]


def messages_of(inbox: Inbox, offset: int | None = None, most: int = 1 << 30) -> list[Message]:
    """All messages from an offset on, read in as many pieces as it takes."""
    found: list[Message] = []
    at = inbox.first if offset is None else offset
    while at < inbox.end:
        rows, at = inbox.read(at, most)
        assert rows.schema == ROWS
        for row in rows.to_pylist():
            headers = tuple(row["headers"])
            found.append(Message(row["value"], row["time"].value, row["key"], row["topic"], headers))
    return found


def appended(folder: Path, parts: Sequence[Sequence[Message]], **options: int) -> Path:
    with Inbox(folder, **options) as inbox:  # type: ignore[arg-type]
        for part in parts:
            inbox.append(part)
    return folder


def test_messages_come_back_with_all_they_have(tmp_path: Path) -> None:
    with Inbox(appended(tmp_path, [SOME[:1], SOME[1:]])) as inbox:
        assert messages_of(inbox) == messages_of(inbox, most=1) == SOME
        inbox.append(numbered(3))
        assert messages_of(inbox) == [*SOME, *numbered(3)]
        assert inbox.count == 6


def test_a_reader_has_places_and_positions(tmp_path: Path) -> None:
    with Inbox(tmp_path, place="mqtt://there/a") as inbox:
        inbox.append(SOME[:1])
        reader = InboxReader(inbox)
        first, position = reader.read(reader.start(), 1 << 20)
        assert reader.read(position, 1 << 20)[0].num_rows == 0
        assert reader.read(position, 1 << 20)[1] == position
        inbox.append(SOME[1:])
        second, end = reader.read(position, 1 << 20)
        assert first.column("position").to_pylist() == [1]
        assert second.column("position").to_pylist() == [2, 3]
        assert set(second.column("place").to_pylist()) == {"mqtt://there/a"}
        assert reader.read(reader.start(), 1 << 20)[1] == end


def test_segments_are_sealed_when_full_and_removed_when_committed(tmp_path: Path) -> None:
    with Inbox(tmp_path, segment_bytes=1000) as inbox:
        for number in range(50):
            inbox.append([Message(b"x" * 100, number)])
        assert len(segments_of(tmp_path)) > 5
        rows, middle = inbox.read(0, 3000)
        assert 15 < rows.num_rows < 30
        inbox.commit(middle)
        assert middle - 1200 < inbox.first <= middle
        assert [each.time for each in messages_of(inbox, middle)] == [*range(rows.num_rows, 50)]
        with pytest.raises(Damaged, match="it begins at byte"):
            inbox.read(0, 1000)
        inbox.commit(inbox.end)
    with Inbox(tmp_path) as inbox:
        assert inbox.count == 50
        inbox.append(SOME)
        assert inbox.read(inbox.first, 1 << 20)[0].column("position").to_pylist()[-1] == 53


def test_ranges_of_another_process_are_cut_between_frames(tmp_path: Path) -> None:
    appended(tmp_path, [numbered(10, 50)] * 40, segment_bytes=3000)
    with Inbox(tmp_path) as inbox:
        end = inbox.end
    ranges = cuts(tmp_path, 0, end, 4)
    assert 3 <= len(ranges) <= 4
    assert [begin for begin, _ in ranges[1:]] == [stop for _, stop in ranges[:-1]]
    rows = [read_rows(tmp_path, *each, "p").column("position").to_pylist() for each in ranges]
    assert [each for part in rows for each in part] == [*range(1, 401)]


def test_a_full_inbox_waits_or_refuses(tmp_path: Path) -> None:
    with Inbox(tmp_path / "refuses", limit=2000, when_full="refuse") as inbox:
        inbox.append([Message(b"x" * 5000, 0)])  # more than the limit, where there is nothing else
        with pytest.raises(InboxFull, match="have not been processed"):
            inbox.append(SOME)
        inbox.commit(inbox.end)
        inbox.append(SOME)
    with Inbox(tmp_path / "waits", limit=2000) as inbox:
        inbox.append([Message(b"x" * 1900, 0)])
        thread = Thread(target=inbox.append, args=([Message(b"x" * 1900, 1)],))
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        inbox.commit(inbox.end)
        thread.join(5)
        assert not thread.is_alive()
        assert inbox.count == 2


def test_what_is_refused_is_not_there_in_part(tmp_path: Path) -> None:
    """Who is refused sends all of it again."""
    many = [Message(b"x" * FRAME_BYTES, number) for number in range(5)]
    with Inbox(tmp_path, limit=4 * FRAME_BYTES, when_full="refuse") as inbox:
        inbox.append(SOME)
        with pytest.raises(InboxFull):
            inbox.append(many)
        assert inbox.count == len(SOME)
        inbox.append(many[:3])
        inbox.commit(inbox.end)
        inbox.append(many)
        assert inbox.count == len(SOME) + 8


def test_a_full_inbox_drops_the_oldest_that_nobody_has_read(tmp_path: Path) -> None:
    dropped: list[int] = []

    def note(rows: pyarrow.RecordBatch) -> None:
        dropped.extend(rows.column("position").to_pylist())

    with Inbox(tmp_path, limit=4000, when_full="drop", dropped=note) as inbox:
        inbox.append(numbered(10, 50))
        _, read_to = inbox.read(0, 1)
        for _ in range(40):
            inbox.append(numbered(10, 50))
        assert inbox.uncommitted <= 4000
        rows, _ = inbox.read(read_to, 1 << 20)
        left = rows.column("position").to_pylist()
    assert dropped
    assert [*range(1, 11), *dropped, *left] == [*range(1, 411)]
    with Inbox(tmp_path, limit=4000, when_full="drop") as inbox:
        assert inbox.read(0, 1 << 20)[0].column("position").to_pylist() == left


def test_many_threads_share_a_synchronization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    synchronize = os.fdatasync

    def slow(file: int) -> None:
        calls.append(file)
        time.sleep(0.01)
        synchronize(file)

    monkeypatch.setattr(os, "fdatasync", slow)
    with Inbox(tmp_path) as inbox:

        def work(number: int) -> None:
            for each in range(10):
                inbox.append([Message(b"%d-%d" % (number, each), 0)])

        threads = [Thread(target=work, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [each.value.decode() for each in messages_of(inbox)]
    assert len(calls) < 50
    for number in range(10):
        assert [each for each in found if each.startswith(f"{number}-")] == [f"{number}-{each}" for each in range(10)]


def test_a_reader_waits_for_more(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        assert not inbox.wait(inbox.end, 0.01)
        Thread(target=lambda: (time.sleep(0.05), inbox.append(SOME))).start()
        assert inbox.wait(inbox.end, 5)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Inbox(tmp_path), pytest.raises(CqelsError, match="used by another process"):
        Inbox(tmp_path)


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is half written is taken back, and the inbox goes on when there is room."""
    with Inbox(tmp_path) as inbox:
        inbox.append(SOME)
        write = os.write

        def half(file: int, data: bytes) -> int:
            write(file, data[: len(data) // 2])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", half)
        with pytest.raises(CqelsError, match="cannot be written: no space left on device"):
            inbox.append(SOME)
        monkeypatch.undo()
        inbox.append(SOME)
        assert messages_of(inbox) == SOME * 2


# ---------------------------------------------------------------- crashes and damage


def the_segment(folder: Path) -> Path:
    (found,) = folder.glob("*.inbox")
    return found


def test_every_truncation_leaves_whole_appends(tmp_path: Path) -> None:
    parts = [SOME[:1], SOME[1:], numbered(3)]
    ends = [0]
    with Inbox(tmp_path / "whole") as inbox:
        for part in parts:
            inbox.append(part)
            ends.append(inbox.end)
    data = the_segment(tmp_path / "whole").read_bytes()
    head = len(data) - ends[-1]
    folder = tmp_path / "cut"
    folder.mkdir()
    for size in range(head, len(data)):
        (folder / the_segment(tmp_path / "whole").name).write_bytes(data[:size])
        with Inbox(folder) as inbox:
            kept = max(number for number, end in enumerate(ends) if head + end <= size)
            assert messages_of(inbox) == [each for part in parts[:kept] for each in part]
            inbox.append(SOME)
            assert messages_of(inbox)[-3:] == SOME


def test_pages_that_were_not_written(tmp_path: Path) -> None:
    """The power failed: the file has its size, and zeros in the place of the last append."""
    appended(tmp_path, [SOME])
    path = the_segment(tmp_path)
    data = path.read_bytes()
    for size in (40, 5000):
        path.write_bytes(data + bytes(size))
        with Inbox(tmp_path) as inbox:
            assert messages_of(inbox) == SOME
    path.write_bytes(data)
    appended(tmp_path, [numbered(1, 20_000)])
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + bytes(4096) + whole[8192 + 4096 :])
    with Inbox(tmp_path) as inbox:
        assert messages_of(inbox) == SOME


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    appended(tmp_path / "whole", [SOME, numbered(5), SOME[:2]])
    path = the_segment(tmp_path / "whole")
    data = path.read_bytes()
    chosen = random.Random(1)
    for _ in range(300):
        at = chosen.randrange(len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << chosen.randrange(8)
        folder = tmp_path / "flipped"
        folder.mkdir()
        (folder / path.name).write_bytes(changed)
        with pytest.raises(Damaged, match="is damaged"):
            Inbox(folder)
        shutil.rmtree(folder)


def test_damage_in_a_sealed_segment_is_found_when_it_is_read(tmp_path: Path) -> None:
    appended(tmp_path, [numbered(20, 100)] * 5, segment_bytes=1000)
    first = min(tmp_path.glob("*.inbox"))
    data = first.read_bytes()
    for changed in (data[:-1], data[:60] + b"?" + data[61:]):
        first.write_bytes(changed)
        with Inbox(tmp_path) as inbox, pytest.raises(Damaged):
            inbox.read(0, 1 << 20)


def test_a_position_beyond_the_end(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.append(SOME)
        with pytest.raises(Damaged, match="has been read to byte"):
            inbox.read(inbox.end + 1, 1000)


_WRITER = """
import sys
from cqels.pipeline.source.inbox import Inbox
from cqels.pipeline.source.live_source import Message

inbox = Inbox(sys.argv[1], segment_bytes=20_000)
for number in range(inbox.count, 10**9):
    inbox.append([Message(str(number).encode() * (1 + number % 50), number)])
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    chosen = random.Random(2)
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(chosen.random() * 0.1)
            writer.kill()
            said = writer.stdout.read().split()
        with Inbox(tmp_path) as inbox:
            found = [each.time for each in messages_of(inbox)]
        assert found == [*range(len(found))]
        assert not said or len(found) > int(said[-1])
