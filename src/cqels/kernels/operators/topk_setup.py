"""Making an operator that orders and slices, and running it for tests and benchmarks. Its step is in topk.py."""

from __future__ import annotations

from collections.abc import Sequence

from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, TIME, make_queue
from cqels.kernels.containers.hash_table import make_table
from cqels.kernels.memory.arena import Arena, write_words
from cqels.kernels.operators import topk
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.counted_btree import FIELD_WORDS, LEADING, TERM, TERM_DOWN, UP, make_shape, make_tree
from cqels.kernels.terms.sort_key_fallback import answer_term
from cqels.kernels.terms.sort_keys import ASKING, DONE
from cqels.model.errors import ArenaFull

_MOST_ROWS = 1 << 48
"""More rows than any memory has: a limit beyond is none, an offset beyond passes over all there are."""


def make_ordered(
    dictionary: ArenaDictionary,
    terms: int,
    queues: tuple[int, int],
    columns: int,
    fields: Sequence[tuple[int, int]] = (),
    *,
    by: Sequence[int] = (),
    offset: int = 0,
    limit: int | None = None,
) -> int:
    """An operator between two queues of rows with so many columns: its offset. It is listed if the second queue is 0.

    `fields` are what rows are compared by: how (counted_btree.py), and which word of a row; `by` the group's columns.
    """
    arena = dictionary.arena
    words = arena.words
    written = [word for how, word in fields if FIELD_WORDS[how] == 1]
    fields = [*fields, *((UP, word) for word in range(TIME, COLUMNS + columns) if word not in written)]
    key_offsets: dict[int, int] = {}
    key_words = 0
    for how, word in fields:
        if FIELD_WORDS[how] == 1:
            key_offsets[word] = key_words
        key_words += FIELD_WORDS[how]
    operator = arena.take(topk.OPERATOR_WORDS)
    words[operator + topk.INPUT], words[operator + topk.OUTPUT] = queues
    words[operator + topk.TERMS], words[operator + topk.OFFSET] = terms, min(offset, _MOST_ROWS)
    words[operator + topk.LIMIT] = -1 if limit is None or limit > _MOST_ROWS else limit
    parts = [number for how, word in fields for number in (int(how in (TERM, TERM_DOWN)), word)]
    words[operator + topk.PARTS], words[operator + topk.PARTS_AT] = len(fields), write_words(arena, parts)
    words[operator + topk.PLACES_AT] = write_words(
        arena, [key_offsets[word] for word in range(TIME, COLUMNS + columns)]
    )
    words[operator + topk.KEY_WORDS] = key_words
    words[operator + topk.TREE_SHAPE] = make_shape(arena, [how for how, _ in fields], terms)
    words[operator + topk.BY], words[operator + topk.BY_AT] = len(by), write_words(arena, by)
    words[operator + topk.TABLE] = make_table(arena.base, len(by), 1)
    words[operator + topk.KEY] = arena.take(3 * key_words + len(by))
    words[operator + topk.EDGE] = ALWAYS
    make_tree(arena.base, operator + topk.CROSSED, make_shape(arena, [UP] * key_words))
    if queues[1] == 0:
        words[operator + topk.LISTED] = make_queue(arena.base, columns)
    return operator


def keep_near(arena: Arena, operator: int, queues: Sequence[int]) -> bool:
    """Keep only the rows in order that are near the slice, if the order allows it: whether it does.

    What writes into the first of these queues can be made to send all rows again, and they come through the others.
    """
    words = arena.words
    leading, limit = int(words[words[operator + topk.TREE_SHAPE] + LEADING]), int(words[operator + topk.LIMIT])
    if words[operator + topk.BY] or leading == 0 or limit <= 0:
        return False
    wanted = 2 * (int(words[operator + topk.OFFSET]) + limit) + topk.SPARE
    words[operator + topk.NEAR], words[operator + topk.TURNED] = 1, 0 if leading > 0 else -1
    words[operator + topk.WANTED], words[operator + topk.CROWDED] = wanted, topk.CROWD * wanted
    words[operator + topk.THROUGH], words[operator + topk.THROUGH_AT] = len(queues), arena.take(len(queues))
    arena.array(int(words[operator + topk.THROUGH_AT]), len(queues))[:] = queues
    make_tree(arena.base, operator + topk.LEADS, make_shape(arena, [UP]))
    return True


def run_ordered(dictionary: ArenaDictionary, operator: int) -> None:
    """A whole step, with all that Python has to do."""
    arena = dictionary.arena
    while (status := topk.step_ordered(arena.base, operator)) != DONE:
        if status != ASKING:
            raise ArenaFull
        answer_term(dictionary, int(arena.words[operator + topk.TERMS]))
