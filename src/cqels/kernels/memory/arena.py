"""The arena: one large array of 64-bit words, and the kernels that read, write and hand out parts of it.

Everything the engine knows lives here.  An *offset* is the number of a word, counted from the arena's first, so it
stays true when the arena is copied, written to a file, or mapped by another process.  Kernels get the address of the
first word (`base`) and offsets; `load` and `store` are single machine instructions.

The arena's memory is reserved once as address space and becomes real page by page as it is touched: nothing ever moves,
and kernels can take memory without asking anyone.

    word   meaning
    0      magic number and version of the layout
    1      first word never handed out (all beyond is untouched)
    2      words of the arena
    3      words in use: handed out and not given back
    4      the first heap of the list of heaps, or 0
    5–13   offsets of the engine's own tables (what they are is up to the engine)
    14     the heap in use: that of the arena itself (SHARED), or one of the list
    16–67  the heap of the arena itself

Each pipeline has a heap: what is taken while the heap is in use (`Arena.heap`) is given back together when the pipeline
goes (`Arena.dissolve`).

    word   of a heap
    0–47   free lists: word k is the offset of a free block of 2^k words, whose first word is the next one, or 0
    48     the last page of its ledger of blocks: words of the page, the page before it, its entries, then
           offset · 64 + power of each block; the heap of the arena itself has none
    49     words in use
    50     words in use above which `take` has nothing more: 0 for no such limit, REACHED once it was met
    51, 52 the heaps before and after it in the list, or 0

A heap without a free block takes one that is free in the heap of the arena, then memory never handed out.

Blocks of 8 words and more begin at the start of a line of the processor's cache.  Large pages are asked for: a random
read of a large table would else cost a search for its page too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.compiler.type_inference import WORD, lowered
from cqels.kernels.memory.mapped_memory import head_of, mapped
from cqels.model.errors import ArenaFull

MAGIC = 0x4351454C5300_0002  # "CQELS", layout 2
USED, SIZE, HELD, HEAPS, ROOTS, HEAP, SHARED, FIRST = 1, 2, 3, 4, 5, 14, 16, 72
POWERS = 48
LEDGER, HEAP_HELD, LIMIT, BEFORE, AFTER = range(POWERS, POWERS + 5)
HEAP_WORDS = POWERS + 5
REACHED = 1
TRIM = 1 << 20
"""Free words from which on it is worth while to let the system have their memory."""
_PAGE_WORDS, _PAGE_BEFORE, _PAGE_COUNT, _PAGE_FIRST = range(4)
_FIRST_PAGE, _LARGEST_PAGE = 5, 12  # pages of a ledger have 2^5 to 2^12 words
_LARGE = 17  # a block of 2^17 words is large
_LINE = 3  # a line of the cache has 2^3 words


def load(base, offset):
    """The word at an offset."""
    return ctypes.c_int64.from_address(base + offset * 8).value


def store(base, offset, value):
    """Write the word at an offset."""
    ctypes.c_int64.from_address(base + offset * 8).value = value


def fetch(base, offset):
    """Have a word brought near without waiting for it: a table of many keys is far away, and one can work meanwhile."""


def call(address, one, two, three):
    """Call the kernel at an address (`Kernel.address`) with three words."""
    words = [ctypes.c_int64] * 4
    return ctypes.CFUNCTYPE(*words)(address)(one, two, three)


def shift(base, source, target, words):
    """Copy many words from one offset to another; the two may overlap."""
    ctypes.memmove(base + 8 * target, base + 8 * source, 8 * words)


@lowered(load)
def _load(builder, base, offset):
    return builder.load(_pointer(builder, base, offset))


@lowered(store)
def _store(builder, base, offset, value) -> None:
    builder.store(value, _pointer(builder, base, offset))


@lowered(fetch)
def _fetch(builder, base, offset) -> None:
    pointer = builder.bitcast(_pointer(builder, base, offset), ir.IntType(8).as_pointer())
    number = ir.IntType(32)
    prefetch = builder.module.declare_intrinsic(
        "llvm.prefetch", [pointer.type], ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
    )
    builder.call(prefetch, [pointer, number(1), number(3), number(1)])  # to write, to keep, data


@lowered(shift)
def _shift(builder, base, source, target, words) -> None:
    byte = ir.IntType(8).as_pointer()
    one = builder.bitcast(_pointer(builder, base, target), byte)
    other = builder.bitcast(_pointer(builder, base, source), byte)
    kinds = [byte, byte, WORD, ir.IntType(1)]
    move = builder.module.declare_intrinsic("llvm.memmove", kinds[:3], ir.FunctionType(ir.VoidType(), kinds))
    builder.call(move, [one, other, builder.shl(words, WORD(3)), ir.IntType(1)(0)])


@lowered(call)
def _call(builder, address, one, two, three):
    target = ir.FunctionType(WORD, [WORD, WORD, WORD]).as_pointer()
    return builder.call(builder.inttoptr(address, target), [one, two, three])


def _pointer(builder, base, offset):
    return builder.gep(builder.inttoptr(base, WORD.as_pointer()), [offset])


@kernel
def take(base, words):
    """A block of at least `words` words, all 0: its offset, or 0 if the arena is full, or the heap at its limit.

    Blocks are powers of two; `give` needs the same number of words again, in the same heap.
    """
    power = 1
    while (1 << power) < words:
        power += 1
    heap = load(base, HEAP)
    limit = load(base, heap + LIMIT)
    if limit != 0 and load(base, heap + HEAP_HELD) + (1 << power) > limit:
        store(base, heap + LIMIT, REACHED)
        return 0
    offset = load(base, heap + power)
    if offset != 0:
        store(base, heap + power, load(base, offset))
        for word in range(1 << power):
            store(base, offset + word, 0)
    else:
        if heap != SHARED and not _make_room_in_ledger(base, heap):
            return 0
        offset = _carve(base, power)
        if offset == 0:
            return 0
        if heap != SHARED:
            page = load(base, heap + LEDGER)
            count = load(base, page + _PAGE_COUNT)
            store(base, page + _PAGE_FIRST + count, offset << 6 | power)
            store(base, page + _PAGE_COUNT, count + 1)
    store(base, heap + HEAP_HELD, load(base, heap + HEAP_HELD) + (1 << power))
    store(base, HELD, load(base, HELD) + (1 << power))
    return offset


@kernel
def _carve(base, power):
    """A block of 2^power words, all 0, that belongs to no heap yet: one that is free, or new; 0 if there is none."""
    offset = load(base, SHARED + power)
    if offset != 0:
        store(base, SHARED + power, load(base, offset))
        for word in range(1 << power):
            store(base, offset + word, 0)
        return offset
    offset = load(base, USED)
    if power >= _LINE:
        offset = (offset + (1 << _LINE) - 1) & -(1 << _LINE)
    if offset + (1 << power) > load(base, SIZE):
        return 0
    store(base, USED, offset + (1 << power))
    return offset


@kernel
def _make_room_in_ledger(base, heap):
    """Let the ledger of a heap have room for one more block: False if the arena is full."""
    page = load(base, heap + LEDGER)
    power = _FIRST_PAGE
    if page != 0:
        words = load(base, page + _PAGE_WORDS)
        if load(base, page + _PAGE_COUNT) < words - _PAGE_FIRST:
            return True
        while (1 << power) <= words and power < _LARGEST_PAGE:
            power += 1
    larger = _carve(base, power)
    if larger == 0:
        return False
    store(base, larger + _PAGE_WORDS, 1 << power)
    store(base, larger + _PAGE_BEFORE, page)
    store(base, heap + LEDGER, larger)
    return True


@kernel
def give(base, offset, words):
    """Hand a block back to the heap in use, which it was taken from."""
    power = 1
    while (1 << power) < words:
        power += 1
    heap = load(base, HEAP)
    store(base, offset, load(base, heap + power))
    store(base, heap + power, offset)
    store(base, heap + HEAP_HELD, load(base, heap + HEAP_HELD) - (1 << power))
    store(base, HELD, load(base, HELD) - (1 << power))


@kernel
def take_shared(base, words):
    """A block as from `take` that belongs to the arena itself, whatever heap is in use."""
    heap = load(base, HEAP)
    store(base, HEAP, SHARED)
    offset = take(base, words)
    store(base, HEAP, heap)
    return offset


@kernel
def give_shared(base, offset, words):
    """Hand a block back that belongs to the arena itself."""
    heap = load(base, HEAP)
    store(base, HEAP, SHARED)
    give(base, offset, words)
    store(base, HEAP, heap)


@kernel
def make_heap(base):
    """A new heap, first of the list: its offset, or 0 if the arena is full."""
    heap = take_shared(base, HEAP_WORDS)
    if heap == 0:
        return 0
    after = load(base, HEAPS)
    store(base, heap + AFTER, after)
    if after != 0:
        store(base, after + BEFORE, heap)
    store(base, HEAPS, heap)
    return heap


@kernel
def dissolve_heap(base, heap):
    """Give back to the arena all that was taken in a heap, and the heap."""
    before, after = load(base, heap + BEFORE), load(base, heap + AFTER)
    if before != 0:
        store(base, before + AFTER, after)
    else:
        store(base, HEAPS, after)
    if after != 0:
        store(base, after + BEFORE, before)
    store(base, HELD, load(base, HELD) - load(base, heap + HEAP_HELD))
    page = load(base, heap + LEDGER)
    while page != 0:
        for number in range(load(base, page + _PAGE_COUNT)):
            entry = load(base, page + _PAGE_FIRST + number)
            _release(base, entry >> 6, entry & 63)
        power = _FIRST_PAGE
        while (1 << power) < load(base, page + _PAGE_WORDS):
            power += 1
        earlier = load(base, page + _PAGE_BEFORE)
        _release(base, page, power)
        page = earlier
    give_shared(base, heap, HEAP_WORDS)


@kernel
def _release(base, offset, power):
    """Make a block of 2^power words free in the heap of the arena itself."""
    store(base, offset, load(base, SHARED + power))
    store(base, SHARED + power, offset)


@kernel
def copy(base, source, target, words):
    """Copy words from one offset to another; the two do not overlap."""
    for word in range(words):
        store(base, target + word, load(base, source + word))


@kernel
def make_room(base, count, room_at, data_at):
    """Let an array of `count` words have one more; its room and its offset are at two offsets: False if it is full."""
    room, data = load(base, room_at), load(base, data_at)
    if count == room:
        larger = take(base, 2 * room)
        if larger == 0:
            return False
        copy(base, data, larger, count)
        give(base, data, room)
        store(base, data_at, larger)
        store(base, room_at, 2 * room)
    return True


def write_words(arena: Arena, words: Sequence[int]) -> int:
    """A new block with these words: its offset."""
    offset = arena.take(max(len(words), 1))
    arena.words[offset : offset + len(words)] = words
    return offset


def is_arena(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an arena of this version."""
    return int.from_bytes(head[:8], "little") == MAGIC


class Arena:
    """The memory of one engine: in memory, or a file that any process can map.

    `words` is the whole arena as an array, `base` the address of its first word.
    """

    def __init__(self, path: Path | None = None, *, size: int | None = None) -> None:
        """`size` in bytes: of the file, or of the address space in memory."""
        self.words: np.ndarray[Any, np.dtype[np.int64]]
        self.base: int
        self._become(path, size)
        if self.words[0] == 0:
            self.words[0], self.words[USED], self.words[SIZE] = MAGIC, FIRST, len(self.words)
            self.words[HEAP] = SHARED
        elif self.words[0] != MAGIC:
            raise ValueError("this is not an arena of this version")

    def attach(self, path: Path) -> None:
        """Be the arena that is in a file, instead of what this one was."""
        if self._file is not None and os.path.samestat(path.stat(), self._file):
            return
        if not is_arena(head_of(path)):
            raise ValueError("this is not an arena of this version")
        self._become(path, None)

    def _become(self, path: Path | None, size: int | None) -> None:
        self._map = mapped(path, size)
        self._file = None if path is None else path.stat()
        self._trimmed = 0
        self.words = np.frombuffer(self._map, dtype=np.int64)
        self.base = self.words.ctypes.data

    def close(self) -> None:
        """Write a file's last changes; the memory goes when nothing looks at it any more."""
        if self._file is not None:
            self._map.flush()

    @property
    def used(self) -> int:
        """Words handed out so far, free ones among them."""
        return int(self.words[USED])

    @property
    def held(self) -> int:
        """Words in use now: blocks are powers of two, and count whole."""
        return int(self.words[HELD])

    def blocks(self, heap: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
        """All blocks that a heap has, free ones among them, in the order of their offsets, with their sizes."""
        pages = []
        page = int(self.words[heap + LEDGER])
        while page:
            first = page + _PAGE_FIRST
            pages.append(self.words[first : first + int(self.words[page + _PAGE_COUNT])])
            page = int(self.words[page + _PAGE_BEFORE])
        entries = np.sort(np.concatenate(pages), kind="stable") if pages else np.zeros(0, np.int64)
        return entries >> 6, np.int64(1) << (entries & 63)

    def heaps(self) -> Iterator[int]:
        """The heap of the arena itself, and all others."""
        yield SHARED
        heap = int(self.words[HEAPS])
        while heap:
            yield heap
            heap = int(self.words[heap + AFTER])

    def free_blocks(self, *, least: int = 1) -> list[tuple[int, int]]:
        """The blocks of at least so many words that have been given back, in all heaps: their offsets and sizes."""
        found = []
        lowest = max(least - 1, 0).bit_length()
        for heap in self.heaps():
            for power in (np.flatnonzero(self.words[heap + lowest : heap + POWERS]) + lowest).tolist():
                offset = int(self.words[heap + power])
                while offset:
                    found.append((offset, 1 << power))
                    offset = int(self.words[offset])
        return found

    def take(self, words: int) -> int:
        offset = int(take(self.base, words))
        if offset == 0:
            raise ArenaFull(len(self.words) * 8)
        return offset

    def make_heap(self) -> int:
        """A new heap: its offset."""
        heap = int(make_heap(self.base))
        if heap == 0:
            raise ArenaFull(len(self.words) * 8)
        return heap

    @contextmanager
    def heap(self, heap: int) -> Iterator[None]:
        """Take and give in a heap."""
        before = int(self.words[HEAP])
        try:
            self.words[HEAP] = heap
            yield
        finally:
            self.words[HEAP] = before

    def held_in(self, heap: int) -> int:
        """Words in use of a heap."""
        return int(self.words[heap + HEAP_HELD])

    def dissolve(self, heap: int) -> None:
        """Give back all that was taken in a heap, and the heap."""
        dissolve_heap(self.base, heap)

    def trim(self) -> None:
        """Let the system have the memory of large free blocks, if there is much of it that it does not have yet.

        Their words are written with 0 when they are taken again, as those of any block.
        """
        free = self.used - self.held
        self._trimmed = min(self._trimmed, free)
        if self._file is not None or free - self._trimmed < TRIM:
            return
        self._trimmed = free
        for offset, size in self.free_blocks(least=1 << _LARGE):
            first = -(-8 * (offset + 1) // mmap.PAGESIZE) * mmap.PAGESIZE  # the first word leads to the next block
            length = 8 * (offset + size) // mmap.PAGESIZE * mmap.PAGESIZE - first
            self._map.madvise(mmap.MADV_DONTNEED, first, length)

    def array(self, offset: int, words: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """A part of the arena as an array that shares its memory."""
        return self.words[offset : offset + words]

    def snapshot(self) -> memoryview:
        """The bytes up to the first word never handed out. They do not depend on the size of the arena."""
        content = self.words[: self.used].copy()
        content[SIZE] = 0
        return content.view(np.uint8).data

    def pieces(self) -> list[memoryview]:
        """The bytes of `snapshot` in pieces that are not copied, and so are of this moment."""
        head = self.words[:FIRST].copy()
        head[SIZE] = 0
        return [head.view(np.uint8).data, self.words[FIRST : self.used].view(np.uint8).data]

    def restore(self, data: bytes | memoryview) -> None:
        """Make this arena what it was when the snapshot was taken."""
        content = np.frombuffer(data, dtype=np.int64)
        if len(content) < FIRST or content[0] != MAGIC:
            raise ValueError("this is not a snapshot of an arena of this version")
        if len(content) > len(self.words):
            raise MemoryError("the arena is smaller than the snapshot")
        before = self.used
        self.words[: len(content)] = content
        self.words[len(content) : before] = 0
        self.words[SIZE] = len(self.words)
        self._trimmed = 0  # what was written is there, free or not
