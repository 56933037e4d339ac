"""The arena, queues of rows and hash tables, against plain Python."""

from __future__ import annotations

import mmap
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqels.kernels.containers import delta_queue, hash_table, row_set
from cqels.kernels.memory.arena import LIMIT, REACHED, SHARED, Arena, give, load, store, take_shared

KEYS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)


def arena() -> Arena:
    return Arena(size=1 << 24)


def test_blocks_are_reused_and_empty() -> None:
    memory = arena()
    offset = memory.take(100)
    memory.array(offset, 100)[:] = 7
    other = memory.take(3)
    give(memory.base, offset, 100)
    assert memory.take(128) == offset
    assert not memory.array(offset, 128).any()
    assert other != offset


def test_what_is_held_is_counted() -> None:
    memory = arena()
    assert memory.held == 0
    offset, other = memory.take(100), memory.take(3)
    assert memory.held == 128 + 4
    assert offset % 8 == 0
    give(memory.base, offset, 100)
    assert memory.held == 4
    give(memory.base, other, 3)
    assert memory.held == 0
    assert memory.take(8) % 8 == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5000), st.booleans()), max_size=80))
@settings(max_examples=60, deadline=None)
def test_a_heap_goes_as_a_whole(steps: list[tuple[int, int, bool]]) -> None:
    """Blocks of several heaps never overlap; what a heap that goes had is there for others, and is counted so."""
    memory = arena()
    heaps = {0: SHARED}
    blocks: dict[int, list[tuple[int, int]]] = {0: []}
    for number, size, giving in steps:
        if giving and size % 7 == 0 and number in heaps and number:
            memory.dissolve(heaps.pop(number))
            del blocks[number]
            continue
        if number not in heaps:
            heaps[number], blocks[number] = memory.make_heap(), []
        with memory.heap(heaps[number]):
            if giving and blocks[number]:
                give(memory.base, *blocks[number].pop())
            else:
                offset = memory.take(size)
                assert not memory.array(offset, size).any()
                memory.array(offset, size)[:] = 7
                blocks[number].append((offset, size))
        taken = sorted((offset, offset + size) for each in blocks.values() for offset, size in each)
        assert all(end <= start for (_, end), (start, _) in pairwise(taken))
        whole = {each: sum(1 << max(size - 1, 1).bit_length() for _, size in blocks[each]) for each in blocks}
        assert all(memory.held_in(heaps[each]) == whole[each] for each in whole if each)
        assert memory.held == sum(whole.values()) + 64 * (len(heaps) - 1)
        assert sorted(memory.heaps()) == sorted(heaps.values())
    for number in [each for each in heaps if each]:
        memory.dissolve(heaps[number])
    used, held = memory.used, memory.held
    again = memory.make_heap()
    with memory.heap(again):
        memory.take(2)
    memory.dissolve(again)
    assert memory.held == held
    assert memory.used <= used + 64 + 32 + 8, "what is free is taken before what is new"


def test_a_heap_has_a_limit_of_its_own() -> None:
    memory = arena()
    heap = memory.make_heap()
    memory.words[heap + LIMIT] = 100
    with memory.heap(heap):
        memory.take(64)
        assert take_shared(memory.base, 1000) != 0, "what belongs to all does not count"
        with pytest.raises(MemoryError):
            memory.take(64)
    assert memory.words[heap + LIMIT] == REACHED
    assert memory.take(64) != 0


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED") or not Path("/proc/self/statm").exists(), reason="not Linux")
def test_large_free_blocks_go_back_to_the_system() -> None:
    memory = Arena(size=1 << 28)
    blocks = [memory.take(1 << 22) for _ in range(3)]
    for offset in blocks:
        memory.array(offset, 1 << 22)[:] = 7
    before = resident()
    give(memory.base, blocks[0], 1 << 22)
    give(memory.base, blocks[2], 1 << 22)
    memory.trim()
    assert before - resident() > 1 << 25
    assert memory.array(blocks[1], 1 << 22).all()
    assert memory.take(1 << 22) == blocks[2]
    assert memory.take(1 << 22) == blocks[0]
    assert not memory.array(blocks[0], 1 << 22).any()


def test_a_full_arena_says_so() -> None:
    with pytest.raises(MemoryError, match="full"):
        Arena(size=1 << 16).take(1 << 20)


@given(st.lists(st.integers(1, 200), max_size=30))
@settings(max_examples=30, deadline=None)
def test_a_snapshot_is_the_arena(sizes: list[int]) -> None:
    memory = arena()
    for size in sizes:
        memory.array(memory.take(size), size)[:] = size
    data = memory.snapshot()
    other = Arena(size=1 << 22)
    other.array(other.take(5000), 5000)[:] = 1
    other.restore(data)
    assert other.snapshot() == data
    assert other.take(9) == memory.take(9)
    with pytest.raises(ValueError, match="not a snapshot"):
        other.restore(b"\0" * 1024)


def test_an_arena_in_a_file_is_found_again(tmp_path: Path) -> None:
    first = Arena(tmp_path / "arena", size=1 << 20)
    offset = first.take(4)
    store(first.base, offset, 42)
    second = Arena(tmp_path / "arena", size=1 << 20)
    assert load(second.base, offset) == 42


@given(st.lists(st.tuples(st.integers(), st.integers()), max_size=50))
@settings(max_examples=30, deadline=None)
def test_a_queue_keeps_its_rows(values: list[tuple[int, int]]) -> None:
    memory = arena()
    queue = int(delta_queue.make_queue(memory.base, 2))
    wanted = [(one % 1000, other % 1000) for one, other in values]
    for pair in wanted:
        offset = int(delta_queue.add_row(memory.base, queue))
        memory.array(offset + delta_queue.COLUMNS, 2)[:] = pair
    found = [
        tuple(memory.array(int(delta_queue.row_at(memory.base, queue, n)) + delta_queue.COLUMNS, 2))
        for n in range(len(wanted))
    ]
    assert found == wanted
    delta_queue.clear(memory.base, queue)
    assert load(memory.base, queue) == 0


HASHES = st.integers(0, 5) | st.sampled_from([14, 15, 30, 31, 63]) | st.integers(0, 2**31 - 1)
"""Hashes of which many have their home in the same line, in the first, or in the last one."""


@given(st.lists(st.tuples(st.booleans() | st.just(True), HASHES, st.integers(0, 40)), max_size=120))
@settings(max_examples=200, deadline=None)
def test_a_finder_is_a_dict_of_sets(steps: list[tuple[bool, int, int]]) -> None:
    """Rows by their hashes, many of which are the same, so that lines are full."""
    memory = arena()
    made = int(row_set.make_finder(memory.base))
    model: dict[int, set[int]] = {}
    for adding, mixed, number in steps:
        numbers = model.setdefault(mixed, set())
        if adding and number not in numbers:
            assert row_set.add_mark(memory.base, made, row_set.mark_of(mixed, number))
            numbers.add(number)
        elif not adding and number in numbers:
            row_set.remove_mark(memory.base, made, row_set.mark_of(mixed, number))
            numbers.remove(number)
        found, slot = set(), 0
        while slot := row_set.seek(memory.base, made, row_set.mark_of(mixed, 0), slot):
            found.add(row_set.number_of(load(memory.base, slot)))
        assert found == numbers
    for mixed, numbers in model.items():
        found, slot = set(), 0
        while slot := row_set.seek(memory.base, made, row_set.mark_of(mixed, 0), slot):
            found.add(row_set.number_of(load(memory.base, slot)))
        assert found == numbers
    assert load(memory.base, made) == sum(len(numbers) for numbers in model.values())


@given(st.lists(st.tuples(st.sampled_from(("put", "remove", "find")), KEYS, KEYS, st.integers(0, 99)), max_size=200))
@settings(max_examples=60, deadline=None)
def test_a_table_is_a_dict(steps: list[tuple[str, int, int, int]]) -> None:
    memory = arena()
    made = int(hash_table.make_table(memory.base, 2, 1))
    key = memory.take(2)
    model: dict[tuple[int, int], int] = {}
    for what, one, other, value in steps:
        memory.array(key, 2)[:] = (one, other)
        if what == "put":
            entry = int(hash_table.put(memory.base, made, key))
            assert load(memory.base, entry) == model.get((one, other), 0)
            store(memory.base, entry, value)
            model[one, other] = value
        else:
            entry = int(hash_table.find(memory.base, made, key))
            assert (entry != 0) == ((one, other) in model)
            if entry:
                assert load(memory.base, entry) == model[one, other]
                if what == "remove":
                    hash_table.remove(memory.base, made, entry)
                    del model[one, other]
    found = {}
    for slot in range(load(memory.base, made + hash_table.ROOM)):
        entry = int(hash_table.entry_at(memory.base, made, slot))
        if entry:
            offset = int(hash_table.key_of(memory.base, made, entry))
            found[tuple(int(word) for word in memory.array(offset, 2))] = load(memory.base, entry)
    assert found == model
    assert load(memory.base, made) == len(model)
