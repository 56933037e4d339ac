"""Making a multiway join: its inputs, their indexes, and the orders that it took. Its step is in join.py."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cqels.kernels.containers.delta_queue import COLUMNS, WIDTH
from cqels.kernels.containers.key_index import DATA as TABLE_DATA
from cqels.kernels.containers.key_index import KEYS, LAST, OWN, SHIFT, TABLE, has_room, make_counter, make_table
from cqels.kernels.containers.row_buffer import add_index
from cqels.kernels.containers.row_storage import BARE
from cqels.kernels.memory.arena import Arena, write_words
from cqels.kernels.operators.join import (
    APPLY,
    BUFFER,
    CONDITIONS,
    FIXED,
    FRAME_WORDS,
    FRAMES,
    INPUT,
    INPUT_WORDS,
    INPUTS,
    JOINED,
    JOINED_AT,
    MOST_INDEXES,
    MOST_INPUTS,
    ORDER,
    ORDERS,
    OUT,
    PATHS,
    PLAIN,
    PLAIN_AT,
    PROBES,
    PROBES_AT,
    QUEUE,
    REPEATED,
    ROW,
    SHARED,
    TIMING,
)
from cqels.kernels.operators.join_conditions import Condition, make_conditions
from cqels.kernels.operators.join_prefetch import Lead, make_paths
from cqels.model.limits import MOST_JOIN_COLUMNS


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a join.

    `columns[i]` is the output column of its column i; `nullable` are those of its columns that may be unbound.
    `queue` is 0 for a table that never changes.  With `apply` off, someone else has applied the changes before the
    join's step: at most one such input may have changes in a step, and it must be the first.
    """

    buffer: int
    columns: tuple[int, ...]
    queue: int = 0
    nullable: frozenset[int] = frozenset()
    apply: bool = True


def make_join(
    arena: Arena,
    out: int,
    inputs: Sequence[Input],
    *,
    timing: int = 0,
    conditions: Sequence[Condition] = (),
    dictionary: int = 0,
) -> int:
    """A join of two or more inputs into a queue. The indexes it probes are added to the buffers.

    Of two inputs, the times of the rows joined can be asked to be in SEQ or EQUALS (`timing`).
    Rows that do not meet the `conditions` are left out as early as can be; not all of them: see `join_conditions.py`.
    """
    if timing and len(inputs) != 2:
        raise ValueError(f"a join on times has 2 inputs, not {len(inputs)}")
    if timing and any(arena.words[item.buffer + BARE] for item in inputs):
        raise ValueError("a join on times has to keep them")
    if not 2 <= len(inputs) <= MOST_INPUTS:
        raise ValueError(f"a join has 2 to {MOST_INPUTS} inputs, not {len(inputs)}")
    mentioned = [column for item in inputs for column in item.columns]
    shared = sorted({column for column in mentioned if mentioned.count(column) > 1})
    if len(shared) > MOST_JOIN_COLUMNS:
        raise ValueError(f"a join has at most {MOST_JOIN_COLUMNS} join columns, not {len(shared)}")
    bits = {column: 1 << number for number, column in enumerate(shared)}
    width = int(arena.words[out + WIDTH])
    join = arena.take(INPUT + len(inputs))
    block = arena.array(join, INPUT + len(inputs))
    block[INPUTS], block[OUT], block[TIMING] = len(inputs), out, timing
    block[ROW] = arena.take(width)
    block[FRAMES] = arena.take(FRAME_WORDS * len(inputs))
    block[ORDERS] = make_counter(arena, [0])
    block[CONDITIONS] = make_conditions(
        arena, [(each.program, *_ready_with(each, inputs, bits)) for each in conditions], dictionary
    )
    tables: dict[tuple[int, ...], int] = {}
    for number, item in enumerate(inputs):
        block[INPUT + number] = _make_input(arena, item, _keys(inputs, number, bits), bits, tables)
    input_offsets = [int(offset) for offset in block[INPUT:]]
    for number, offset in enumerate(input_offsets):
        leads = _leads(arena, inputs, input_offsets, number)
        arena.words[offset + PATHS] = make_paths(arena, inputs[number].buffer, leads)
    return join


def _ready_with(condition: Condition, inputs: Sequence[Input], bits: dict[int, int]) -> tuple[int, int]:
    """The join columns that a condition reads, and the inputs that have its other columns."""
    owners = (1 << number for number, item in enumerate(inputs) if condition.columns & set(item.columns) - bits.keys())
    return sum(bits[column] for column in condition.columns & bits.keys()), sum(owners)


def _leads(
    arena: Arena, inputs: Sequence[Input], input_offsets: Sequence[int], number: int, passed: Collection[int] = ()
) -> list[Lead]:
    """The inputs that a row of one leads to, for looking ahead; not those that were passed on the way to it."""
    found = []
    for other in range(len(inputs)):
        if other == number or other in passed:
            continue
        if probed := _probe_from(arena, inputs[number], input_offsets[other]):
            found.append((other, *probed))
    if passed:
        return [Lead(index, inputs[other].buffer, offsets) for other, index, offsets in found]
    near = {number, *(other for other, _, _ in found)}
    return [
        Lead(index, inputs[other].buffer, offsets, tuple(_leads(arena, inputs, input_offsets, other, near)))
        for other, index, offsets in found
    ]


def _probe_from(arena: Arena, item: Input, other: int) -> tuple[int, tuple[int, ...]] | None:
    """The index of another input that a row of one has all words of the key for, and where in that row they are."""
    where = {COLUMNS + output: COLUMNS + at for at, output in enumerate(item.columns) if at not in item.nullable}
    for probe_at in range(int(arena.words[other + PROBES])):
        index, _, outputs = (int(word) for word in arena.array(int(arena.words[other + PROBES_AT]) + 3 * probe_at, 3))
        key = [int(word) for word in arena.array(outputs, int(arena.words[index + KEYS]))]
        if all(output in where for output in key):
            return index, tuple(where[output] for output in key)
    return None


def _keys(inputs: Sequence[Input], number: int, bits: dict[int, int]) -> list[frozenset[int]]:
    """The sets of an input's columns worth an index, most columns first: what may be bound when it is probed.

    Columns that it shares with inputs which only it connects are never bound together before it is probed.
    """
    own = inputs[number]
    certain = {own.columns[column] for column in range(len(own.columns)) if column not in own.nullable} & bits.keys()
    groups: list[tuple[set[int], set[frozenset[int]]]] = []
    for other in (*inputs[:number], *inputs[number + 1 :]):
        near = [group for group in groups if not group[0].isdisjoint(other.columns)]
        groups = [group for group in groups if group not in near]
        key = frozenset(certain.intersection(other.columns))
        keys = {key} if key else set()
        for _, more in near:
            keys |= more | {one | two for one in keys for two in more}
        groups.append((set(other.columns).union(*(columns for columns, _ in near)), keys))
    ordered = sorted(set().union(*(keys for _, keys in groups)), key=lambda key: (len(key), sorted(key)))
    # the smallest ones serve whatever is bound, the largest one when all is
    chosen = ordered if len(ordered) <= MOST_INDEXES else [*ordered[: MOST_INDEXES - 1], ordered[-1]]
    return chosen[::-1]


def _make_input(
    arena: Arena,
    item: Input,
    keys: list[frozenset[int]],
    bits: dict[int, int],
    tables: dict[tuple[int, ...], int],
) -> int:
    """An input. `tables` has the table of the indexes on some output columns: all inputs use the same."""
    offset = arena.take(INPUT_WORDS)
    block = arena.array(offset, INPUT_WORDS)
    plain, joined, probes = [], [], []
    for column, output in enumerate(item.columns):
        if output in bits:
            joined += [COLUMNS + column, COLUMNS + output, bits[output]]
        else:
            plain += [COLUMNS + column, COLUMNS + output]
    for key in keys:
        columns = sorted(
            column for column, output in enumerate(item.columns) if output in key and column not in item.nullable
        )
        outputs = tuple(COLUMNS + item.columns[column] for column in columns)
        mask = sum(bits[output] for output in key)
        if outputs not in tables or not has_room(arena, tables[outputs]):
            tables[outputs] = make_table(arena, len(outputs))
        index = add_index(arena, item.buffer, columns, table=tables[outputs])
        probes += [index, mask, write_words(arena, outputs)]
    block[QUEUE], block[BUFFER], block[APPLY] = item.queue, item.buffer, item.apply
    block[PLAIN], block[PLAIN_AT] = len(plain) // 2, write_words(arena, plain)
    block[JOINED], block[JOINED_AT] = len(joined) // 3, write_words(arena, joined)
    block[SHARED] = sum({bits[output] for output in item.columns if output in bits})
    block[PROBES], block[PROBES_AT] = len(probes) // 3, write_words(arena, probes)
    return offset


def set_order(arena: Arena, join: int, origin: int, order: Sequence[int]) -> None:
    """Let the rows of one input probe the others in a fixed order; an empty one leaves it to the counters again."""
    code = sum((number + 1) << (4 * step) for step, number in enumerate(order))
    arena.words[arena.words[join + INPUT + origin] + FIXED] = code


def read_orders(arena: Arena, join: int) -> dict[tuple[int, ...], int]:
    """How often each order was taken: the input of a row, then those it probed until all were or one had no match."""
    index = int(arena.words[join + ORDERS])
    table, own = int(arena.words[index + TABLE]), int(arena.words[index + OWN])
    shift, data = int(arena.words[table + SHIFT]), int(arena.words[table + TABLE_DATA])
    found = {int(arena.words[join + ORDER]): int(arena.words[join + REPEATED])}
    for slot in range(int(arena.words[table + LAST]) + 1):
        entry = data + (slot << shift)
        if arena.words[entry + own] != 0:
            code = int(arena.words[entry + own - 1])
            found[code] = found.get(code, 0) + int(arena.words[entry + own])
    return {_decoded(code): count for code, count in sorted(found.items()) if code != 0}


def _decoded(code: int) -> tuple[int, ...]:
    steps = []
    while code != 0:
        steps.append((code & 15) - 1)
        code >>= 4
    return tuple(steps)
