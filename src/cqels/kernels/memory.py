"""The arena: one large array of 64-bit words, and the kernels that read, write and hand out parts of it.

Everything the engine knows lives here.  A *place* is the number of a word, counted from the arena's first, so it stays
true when the arena is copied, written to a file, or mapped by another process.  Kernels get the address of the first
word (`base`) and places; `load` and `store` are single machine instructions.

The arena's memory is reserved once as address space and becomes real page by page as it is touched: nothing ever moves,
and kernels can take memory without asking anyone.

    word   meaning
    0      magic number and version of the layout
    1      first word never handed out (all beyond is untouched)
    2      words of the arena
    3      words in use: handed out and not given back
    4      the last page of the ledger of blocks: the page before it, its entries, then place · 64 + power of each
    5–13   places of the engine's own tables (what they are is up to the engine)
    14     the heap that is in use, or 0: all that is taken then is given back together (`Arena.heap`)
    15     words in use above which `take` has nothing more: 0 for no such limit, REACHED once it was met
    16–63  free lists: word 16 + k is the place of a free block of 2^k words, whose first word is the next one, or 0

A heap has free lists and a ledger of its own, which change places with those of the arena while it is in use.

Blocks of 8 words and more begin at the start of a line of the processor's cache.  Large pages are asked for: a random
read of a large table would else cost a search for its page too.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir

from cqels.kernels.jit import kernel
from cqels.kernels.source import WORD, lowered

MAGIC = 0x4351454C5300_0001  # "CQELS", layout 1
USED, SIZE, HELD, LEDGER, ROOTS, HEAP, LIMIT, FREE, FIRST = 1, 2, 3, 4, 5, 14, 15, 16, 64
HEAP_WORDS = FIRST - FREE + 1
REACHED = 1
RESERVE = 1 << 38
"""Bytes of address space reserved for an arena in memory, where the system allows it."""
TRIM = 1 << 20
"""Free words from which on it is worth while to let the system have their memory."""
_PAGE = 1 << 9
_LARGE = 17  # a block of 2^17 words is large
_LINE = 3  # a line of the cache has 2^3 words
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: address space that is not counted as memory until it is touched


def load(base, place):
    """The word at a place."""
    return ctypes.c_int64.from_address(base + place * 8).value


def store(base, place, value):
    """Write the word at a place."""
    ctypes.c_int64.from_address(base + place * 8).value = value


def fetch(base, place):
    """Have a word brought near without waiting for it: a table of many keys is far away, and one can work meanwhile."""


def call(address, one, two, three):
    """Call the kernel at an address (`Kernel.address`) with three words."""
    words = [ctypes.c_int64] * 4
    return ctypes.CFUNCTYPE(*words)(address)(one, two, three)


def shift(base, source, target, words):
    """Copy many words from one place to another; the two may overlap."""
    ctypes.memmove(base + 8 * target, base + 8 * source, 8 * words)


@lowered(load)
def _load(builder, base, place):
    return builder.load(_pointer(builder, base, place))


@lowered(store)
def _store(builder, base, place, value) -> None:
    builder.store(value, _pointer(builder, base, place))


@lowered(fetch)
def _fetch(builder, base, place) -> None:
    pointer = builder.bitcast(_pointer(builder, base, place), ir.IntType(8).as_pointer())
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


def _pointer(builder, base, place):
    return builder.gep(builder.inttoptr(base, WORD.as_pointer()), [place])


@kernel
def take(base, words):
    """A block of at least `words` words, all 0: its place, or 0 if the arena is full, or at its limit.

    Blocks are powers of two; `give` needs the same number of words again.
    """
    power = 1
    while (1 << power) < words:
        power += 1
    limit = load(base, LIMIT)
    if limit != 0 and load(base, HELD) + (1 << power) > limit:
        store(base, LIMIT, REACHED)
        return 0
    place = load(base, FREE + power)
    if place != 0:
        store(base, FREE + power, load(base, place))
        for word in range(1 << power):
            store(base, place + word, 0)
    else:
        place = load(base, USED)
        if power >= _LINE:
            place = (place + (1 << _LINE) - 1) & -(1 << _LINE)
        if place + (1 << power) + _PAGE > load(base, SIZE):
            return 0
        store(base, USED, place + (1 << power))
        _enter(base, place << 6 | power)
    store(base, HELD, load(base, HELD) + (1 << power))
    return place


@kernel
def _enter(base, entry):
    """Write a new block into the ledger; there is room for one more page of it."""
    page = load(base, LEDGER)
    if page == 0 or load(base, page + 1) == _PAGE - 2:
        before = page
        page = load(base, USED)
        store(base, USED, page + _PAGE)
        store(base, page, before)
        store(base, page + 1, 0)
        store(base, LEDGER, page)
    count = load(base, page + 1)
    store(base, page + 2 + count, entry)
    store(base, page + 1, count + 1)


@kernel
def give(base, place, words):
    """Hand a block back."""
    power = 1
    while (1 << power) < words:
        power += 1
    store(base, place, load(base, FREE + power))
    store(base, FREE + power, place)
    store(base, HELD, load(base, HELD) - (1 << power))


@kernel
def take_shared(base, words):
    """A block as from `take`, for what belongs to no heap: a limit is not for it, and gives way by its size."""
    limit, held = load(base, LIMIT), load(base, HELD)
    store(base, LIMIT, 0)
    _leave(base)
    place = take(base, words)
    _leave(base)
    store(base, LIMIT, limit if limit <= REACHED else limit + load(base, HELD) - held)
    return place


@kernel
def give_shared(base, place, words):
    """Hand a block back that belongs to no heap."""
    limit, held = load(base, LIMIT), load(base, HELD)
    _leave(base)
    give(base, place, words)
    _leave(base)
    if limit > REACHED:
        store(base, LIMIT, limit + load(base, HELD) - held)


@kernel
def _leave(base):
    """Leave the heap that is in use, if there is one; or come back to it."""
    if load(base, HEAP) != 0:
        swap(base, load(base, HEAP))


@kernel
def swap(base, heap):
    """Exchange free lists and ledger with those of a heap."""
    for word in range(HEAP_WORDS):
        place = FREE + word if word < FIRST - FREE else LEDGER
        kept = load(base, heap + word)
        store(base, heap + word, load(base, place))
        store(base, place, kept)


@kernel
def copy(base, source, target, words):
    """Copy words from one place to another; the two do not overlap."""
    for word in range(words):
        store(base, target + word, load(base, source + word))


@kernel
def make_room(base, count, room_at, data_at):
    """Let an array of so many words have one more, whose room and place stand at two places: False if there is none."""
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
    """A new block with these words: its place."""
    place = arena.take(max(len(words), 1))
    arena.words[place : place + len(words)] = words
    return place


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
        elif self.words[0] != MAGIC:
            raise ValueError("this is not an arena of this version")

    def attach(self, path: Path) -> None:
        """Be the arena that is in a file, instead of what this one was."""
        if self._file is not None and os.path.samestat(path.stat(), self._file):
            return
        if not is_arena(_head(path)):
            raise ValueError("this is not an arena of this version")
        self._become(path, None)

    def _become(self, path: Path | None, size: int | None) -> None:
        self._map = _mapped(path, size)
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

    def blocks(self) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]]]:
        """All blocks ever handed out, in the order of their places, with their sizes; those of the heap in use."""
        pages = []
        page = int(self.words[LEDGER])
        while page:
            pages.append(self.words[page + 2 : page + 2 + int(self.words[page + 1])])
            page = int(self.words[page])
        entries = np.sort(np.concatenate(pages[::-1]), kind="stable") if pages else np.zeros(0, np.int64)
        return entries >> 6, np.int64(1) << (entries & 63)

    def free_blocks(self, *, least: int = 1) -> list[tuple[int, int]]:
        """The blocks of at least so many words that have been given back: their places and sizes."""
        found = []
        for power, first in enumerate(self.words[FREE:FIRST].tolist()):
            place = first if 1 << power >= least else 0
            while place:
                found.append((place, 1 << power))
                place = int(self.words[place])
        return found

    def take(self, words: int) -> int:
        place = int(take(self.base, words))
        if place == 0:
            raise MemoryError(f"the arena of {len(self.words) * 8:,} bytes is full")
        return place

    @contextmanager
    def heap(self, heap: int) -> Iterator[None]:
        """Take and give in a heap, a block of HEAP_WORDS that is 0 at first."""
        swap(self.base, heap)
        self.words[HEAP] = heap
        try:
            yield
        finally:
            self.words[HEAP] = 0
            swap(self.base, heap)

    def dissolve(self, heap: int) -> None:
        """Give back all that was taken in a heap, and the heap."""
        with self.heap(heap):
            places, sizes = self.blocks()
            free, pages = sum(size for _, size in self.free_blocks()), int(self.words[LEDGER])
        self.words[HELD] += free
        for place, size in zip(places.tolist(), sizes.tolist(), strict=True):
            give(self.base, place, size)
        if last := pages:
            while self.words[last]:
                last = int(self.words[last])
            self.words[last], self.words[LEDGER] = self.words[LEDGER], pages
        give(self.base, heap, HEAP_WORDS)

    def trim(self) -> None:
        """Let the system have the memory of large free blocks, if there is much of it that it does not have yet.

        Their words are written with 0 when they are taken again, as those of any block.
        """
        free = self.used - self.held
        self._trimmed = min(self._trimmed, free)
        if self._file is not None or free - self._trimmed < TRIM:
            return
        self._trimmed = free
        for power in range(_LARGE, FIRST - FREE):
            place = int(self.words[FREE + power])
            while place != 0:
                first = -(-8 * (place + 1) // mmap.PAGESIZE) * mmap.PAGESIZE  # the first word leads to the next block
                length = 8 * (place + (1 << power)) // mmap.PAGESIZE * mmap.PAGESIZE - first
                place = int(self.words[place])
                self._map.madvise(mmap.MADV_DONTNEED, first, length)

    def array(self, place: int, words: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """A part of the arena as an array that shares its memory."""
        return self.words[place : place + words]

    def snapshot(self) -> memoryview:
        """The bytes up to the first word never handed out. They do not depend on the size of the arena."""
        content = self.words[: self.used].copy()
        content[SIZE] = 0
        return content.view(np.uint8).data

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


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


def _private(path: str, flags: int) -> int:
    """Open a file that nobody else may read: it holds the data of streams. A link is not followed."""
    number = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    os.fchmod(number, 0o600)
    return number


def _mapped(path: Path | None, size: int | None) -> mmap.mmap:
    if path is not None:
        # a page that does not fit on the disk would end the process: an arena that is full says so
        length = size or min(RESERVE, shutil.disk_usage(path.parent).free * 9 // 10 & -mmap.PAGESIZE)
        with open(path, "a+b", opener=_private) as file:
            if (there := os.fstat(file.fileno()).st_size) and size is None:
                length = there
            elif there < length:
                file.truncate(length)  # a sparse file: what is not written takes no space
            return mmap.mmap(file.fileno(), length)
    length = size or RESERVE
    while True:
        try:
            made = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
            break
        except OSError:
            length //= 2  # a system that counts address space as memory: ask for less
            if length < 1 << 24:
                raise
    with suppress(OSError, AttributeError):  # a system without large pages
        made.madvise(mmap.MADV_HUGEPAGE)
    return made
