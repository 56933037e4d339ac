"""Ordered multisets: counted B+trees, where finding, adding, removing, the k-th and the rank take logarithmic time.

A key is some words; equal keys are one entry with a count, which may be negative for a while (a row that is taken back
before it came) and goes when it is 0.  All trees of one *shape* share how their keys compare.

    word   of a shape                          word   of a tree
    0      words of a key                      0      offset of its shape
    1      words of a node                     1      root, or 0
    2      offset of the terms (sort_keys.py)     2      all counts together
    3      fields; 0: the words as they are    3      levels above the leaves
    4 …    path: node and child, from the root 4      entries
    50     1 or -1: keys whose first words     5      words of the root, while it is the only leaf
           differ go up or down by them
    51     1 if trees have room for a leaf
    52 …   the fields                          6 …    the room for a leaf of two entries, if the shape has it

    word   of a node                           entry of a leaf: key, count
    0      entries                             entry of an inner node: least key below, child, all counts below
    1, 2   leaf before and behind, or 0

The least keys are exact, so no tree refers to a term that is gone from it.  A leaf that is alone grows from eight
words, and may be in the tree itself while it has two entries, so that a small group is cheap.  A node that is nearly
empty is joined with a neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.memory.arena import Arena, give, load, shift, store, take
from cqels.kernels.terms.sort_keys import ASK, ASKING, DONE, FULL, compare_terms, compare_texts

KEY_WORDS, NODE_WORDS, TERMS, FIELDS, PATH, LEADING, ROOMY, FIRST_FIELD = 0, 1, 2, 3, 4, 50, 51, 52
SHAPE, ROOT, TOTAL, LEVELS, ENTRIES, ROOT_WORDS = range(6)
TREE_WORDS = 6
COUNT, BEFORE, BEHIND, HEAD = 0, 1, 2, 3

UP, DOWN, TERM, TERM_DOWN, TERM_TEXT, TEXT = 0, 1, 2, 3, 4, 5
"""Fields: a word, up or down; a sort key of three words, up, down, or up and ties by text; an id by its text."""
FIELD_WORDS = (1, 1, 3, 3, 3, 1)
_LEADS = (1, -1, 1, -1, 1, 0)
_LEAST_NODE, _LEAST_ENTRIES = 64, 14
_FIRST_LEAF = 8


def make_shape(arena: Arena, fields: Sequence[int], terms: int = 0, *, roomy: bool = False) -> int:
    """A shape of keys with these fields; if all are UP, keys compare as words do. `roomy`: see `tree_words`."""
    words = sum(FIELD_WORDS[field] for field in fields)
    shape = arena.take(FIRST_FIELD + len(fields))
    node = _LEAST_NODE
    while (node - HEAD) // (words + 2) < _LEAST_ENTRIES:
        node *= 2
    arena.words[shape + KEY_WORDS], arena.words[shape + NODE_WORDS] = words, node
    arena.words[shape + TERMS], arena.words[shape + ROOMY] = terms, roomy
    arena.words[shape + LEADING] = _LEADS[fields[0]] if fields else 0
    if any(field != UP for field in fields):
        arena.words[shape + FIELDS] = len(fields)
        arena.words[shape + FIRST_FIELD : shape + FIRST_FIELD + len(fields)] = fields
    return shape


def tree_words(key_words: int) -> int:
    """The words of a tree that has room for a leaf of two entries."""
    return TREE_WORDS + HEAD + 2 * (key_words + 1)


@kernel
def make_tree(base, tree, shape):
    """Make six words at an offset an empty tree; those behind are left as they are."""
    for word in range(TREE_WORDS):
        store(base, tree + word, 0)
    store(base, tree + SHAPE, shape)


# --- searching ------------------------------------------------------------------------------------------------------


@kernel
def compare_keys(base, shape, one, other):
    """-1, 0 or 1 for the keys at two offsets; ASK."""
    fields = load(base, shape + FIELDS)
    if fields == 0:
        for word in range(load(base, shape + KEY_WORDS)):
            a, b = load(base, one + word), load(base, other + word)
            if a != b:
                return -1 if a < b else 1
        return 0
    terms = load(base, shape + TERMS)
    for number in range(fields):
        field = load(base, shape + FIRST_FIELD + number)
        answer = 0
        if field <= DOWN:
            a, b = load(base, one), load(base, other)
            if a != b:
                answer = -1 if (a < b) == (field == UP) else 1
        elif field == TEXT:
            answer = compare_texts(base, terms, load(base, one), load(base, other))
        else:
            answer = compare_terms(base, terms, one, other)
            if answer == 0 and field == TERM_TEXT:
                answer = compare_texts(base, terms, load(base, one + 2), load(base, other + 2))
            if field == TERM_DOWN and answer != ASK:
                answer = -answer
        if answer != 0:
            return answer
        words = 1 if field <= DOWN or field == TEXT else 3
        one += words
        other += words
    return 0


@kernel
def _search(base, shape, node, stride, key):
    """Twice the number of entries below the key, and one more if the next is the key; -1 to ask."""
    low, high = 0, load(base, node + COUNT)
    leading, word = load(base, shape + LEADING), load(base, key)
    while low < high:
        middle = (low + high) >> 1
        entry = node + HEAD + middle * stride
        other = load(base, entry)
        if leading != 0 and other != word:
            answer = -leading if other < word else leading
        elif _are_same(base, entry, key, load(base, shape + KEY_WORDS)):
            answer = 0
        else:
            answer = compare_keys(base, shape, entry, key)
        if answer == 0:
            return 2 * middle + 1
        if answer == ASK:
            return -1
        if answer < 0:
            low = middle + 1
        else:
            high = middle
    return 2 * low


@kernel
def _child(found):
    """The child to go down to: the last whose least key is not above the key, or the first."""
    return max(found - 1, 0) >> 1 if found & 1 == 0 else found >> 1


# --- changing -------------------------------------------------------------------------------------------------------


@kernel
def _is_full(base, tree, shape, node, level):
    words = load(base, shape + KEY_WORDS)
    room = load(base, shape + NODE_WORDS)
    if level == 0 and load(base, tree + LEVELS) == 0:
        room = load(base, tree + ROOT_WORDS)
    stride = words + (2 if level > 0 else 1)
    return (load(base, node + COUNT) + 1) * stride + HEAD > room


@kernel
def _raise_again(base, tree):
    shape = load(base, tree + SHAPE)
    words, size = load(base, shape + KEY_WORDS), load(base, shape + NODE_WORDS)
    root, now = load(base, tree + ROOT), load(base, tree + ROOT_WORDS)
    larger = take(base, size)
    if larger == 0:
        return False
    for word in range(HEAD + load(base, root + COUNT) * (words + 1)):
        store(base, larger + word, load(base, root + word))
    give(base, root, now)
    store(base, tree + ROOT, larger)
    store(base, tree + ROOT_WORDS, size)
    return True


@kernel
def _raise(base, tree):
    """More room for a full root: a larger block while it is a small leaf, else a level above it."""
    shape = load(base, tree + SHAPE)
    words, size = load(base, shape + KEY_WORDS), load(base, shape + NODE_WORDS)
    root, levels, now = load(base, tree + ROOT), load(base, tree + LEVELS), load(base, tree + ROOT_WORDS)
    if levels == 0 and now < size:
        wider = min(2 * now, size)
        larger = take(base, wider)
        if larger == 0:
            return False
        for word in range(HEAD + load(base, root + COUNT) * (words + 1)):
            store(base, larger + word, load(base, root + word))
        if root != tree + TREE_WORDS:
            give(base, root, now)
        store(base, tree + ROOT, larger)
        store(base, tree + ROOT_WORDS, wider)
        # one doubling need not be enough for a long key
        return not _is_full(base, tree, shape, larger, 0) or _raise_again(base, tree)
    above = take(base, size)
    if above == 0:
        return False
    store(base, above + COUNT, 1)
    for word in range(words):
        store(base, above + HEAD + word, load(base, root + HEAD + word))
    store(base, above + HEAD + words, root)
    store(base, above + HEAD + words + 1, load(base, tree + TOTAL))
    store(base, tree + ROOT, above)
    store(base, tree + LEVELS, levels + 1)
    return True


@kernel
def _split(base, shape, parent, number, level):
    """Split a full child in two; the parent has room. The last leaf keeps nearly all: keys often come in order."""
    words = load(base, shape + KEY_WORDS)
    stride = words + (2 if level > 0 else 1)
    entry = parent + HEAD + number * (words + 2)
    left = load(base, entry + words)
    right = take(base, load(base, shape + NODE_WORDS))
    if right == 0:
        return False
    count = load(base, left + COUNT)
    keep = count // 2
    if level == 0:
        behind = load(base, left + BEHIND)
        if behind == 0:
            keep = count - 2
        else:
            store(base, behind + BEFORE, right)
        store(base, right + BEHIND, behind)
        store(base, right + BEFORE, left)
        store(base, left + BEHIND, right)
    moved = 0
    for other in range(count - keep):
        source, target = left + HEAD + (keep + other) * stride, right + HEAD + other * stride
        for word in range(stride):
            store(base, target + word, load(base, source + word))
        moved += load(base, source + stride - 1)
    store(base, left + COUNT, keep)
    store(base, right + COUNT, count - keep)
    store(base, entry + words + 1, load(base, entry + words + 1) - moved)
    _make_room(base, parent, number + 1, words + 2)
    entry += words + 2
    for word in range(words):
        store(base, entry + word, load(base, right + HEAD + word))
    store(base, entry + words, right)
    store(base, entry + words + 1, moved)
    return True


@kernel
def _make_room(base, node, position, stride):
    count = load(base, node + COUNT)
    first = node + HEAD + position * stride
    shift(base, first, first + stride, node + HEAD + count * stride - first)
    store(base, node + COUNT, count + 1)


@kernel
def _take_out(base, node, position, stride):
    count = load(base, node + COUNT) - 1
    first = node + HEAD + position * stride
    shift(base, first + stride, first, (count - position) * stride)
    store(base, node + COUNT, count)


@kernel
def _mend(base, shape, node, depth):
    """The least key of a node has changed: write it where it is repeated above."""
    words = load(base, shape + KEY_WORDS)
    while depth > 0:
        depth -= 1
        above, number = load(base, shape + PATH + 2 * depth), load(base, shape + PATH + 2 * depth + 1)
        entry = above + HEAD + number * (words + 2)
        for word in range(words):
            store(base, entry + word, load(base, node + HEAD + word))
        if number != 0:
            return
        node = above


@kernel
def _join(base, above, number, words, stride, room):
    """Move the entries of a child and its neighbour into one: the number of the child that is now empty, or -1."""
    children = load(base, above + COUNT)
    for left in range(number, number - 2, -1):
        if left < 0 or left + 1 >= children:
            continue
        one = above + HEAD + left * (words + 2) + words
        other = one + words + 2
        first, second = load(base, one), load(base, other)
        count, more = load(base, first + COUNT), load(base, second + COUNT)
        if 4 * (count + more) > 3 * room:
            continue
        for word in range(more * stride):
            store(base, first + HEAD + count * stride + word, load(base, second + HEAD + word))
        store(base, first + COUNT, count + more)
        store(base, one + 1, load(base, one + 1) + load(base, other + 1))
        return left + 1
    return -1


@kernel
def _shrink(base, tree, shape, node, position, depth):
    """An entry was taken out of a leaf: mend least keys, free what is empty, join what is nearly so."""
    words, size = load(base, shape + KEY_WORDS), load(base, shape + NODE_WORDS)
    level = 0
    while depth > 0:
        count = load(base, node + COUNT)
        if position == 0 and count > 0:
            _mend(base, shape, node, depth)
        stride = words + (2 if level > 0 else 1)
        room = (size - HEAD) // stride
        if 4 * count > room:
            return
        above, number = load(base, shape + PATH + 2 * depth - 2), load(base, shape + PATH + 2 * depth - 1)
        gone = number
        if count > 0:
            gone = _join(base, above, number, words, stride, room)
            if gone < 0:
                return
        freed = load(base, above + HEAD + gone * (words + 2) + words)
        if level == 0:
            before, behind = load(base, freed + BEFORE), load(base, freed + BEHIND)
            if before != 0:
                store(base, before + BEHIND, behind)
            if behind != 0:
                store(base, behind + BEFORE, before)
        give(base, freed, size)
        _take_out(base, above, gone, words + 2)
        node, position = above, gone
        depth -= 1
        level += 1
    root, levels = load(base, tree + ROOT), load(base, tree + LEVELS)
    while levels > 0 and load(base, root + COUNT) == 1:
        below = load(base, root + HEAD + words)
        give(base, root, size)
        root = below
        levels -= 1
        store(base, tree + ROOT_WORDS, size)
    if load(base, root + COUNT) == 0:
        if root != tree + TREE_WORDS:
            give(base, root, load(base, tree + ROOT_WORDS) if levels == 0 else size)
        root = 0
        levels = 0
    store(base, tree + ROOT, root)
    store(base, tree + LEVELS, levels)


@kernel
def change(base, tree, key, weight):
    """Add to the count of the key at an offset: DONE; ASKING, and the tree is as before; FULL."""
    shape = load(base, tree + SHAPE)
    words = load(base, shape + KEY_WORDS)
    root = load(base, tree + ROOT)
    if root == tree + TREE_WORDS and _has_only(base, root, key, words):
        count = load(base, tree + TOTAL) + weight
        store(base, tree + TOTAL, count)
        store(base, root + HEAD + words, count)
        if count == 0:
            store(base, tree + ROOT, 0)
            store(base, tree + ENTRIES, 0)
        return DONE
    if root == 0 and load(base, shape + ROOMY) != 0:
        root = tree + TREE_WORDS
        store(base, tree + ROOT, root)
        store(base, tree + TOTAL, weight)
        store(base, tree + ENTRIES, 1)
        store(base, tree + ROOT_WORDS, HEAD + 2 * (words + 1))
        store(base, root + COUNT, 1)
        store(base, root + BEFORE, 0)
        store(base, root + BEHIND, 0)
        for word in range(words):
            store(base, root + HEAD + word, load(base, key + word))
        store(base, root + HEAD + words, weight)
        return DONE
    if root == 0:
        root = take(base, max(_FIRST_LEAF, HEAD + words + 1))
        if root == 0:
            return FULL
        store(base, tree + ROOT, root)
        store(base, tree + LEVELS, 0)
        store(base, tree + ROOT_WORDS, max(_FIRST_LEAF, HEAD + words + 1))
    if _is_full(base, tree, shape, load(base, tree + ROOT), load(base, tree + LEVELS)) and not _raise(base, tree):
        return FULL
    node, level, depth = load(base, tree + ROOT), load(base, tree + LEVELS), 0
    path = shape + PATH
    while level > 0:
        found = _search(base, shape, node, words + 2, key)
        if found < 0:
            return ASKING
        number = _child(found)
        child = load(base, node + HEAD + number * (words + 2) + words)
        if _is_full(base, tree, shape, child, level - 1):
            if not _split(base, shape, node, number, level - 1):
                return FULL
            continue
        store(base, path + 2 * depth, node)
        store(base, path + 2 * depth + 1, number)
        node = child
        level -= 1
        depth += 1
    found = _search(base, shape, node, words + 1, key)
    if found < 0:
        return ASKING
    store(base, tree + TOTAL, load(base, tree + TOTAL) + weight)
    for number in range(depth):
        below = load(base, path + 2 * number) + HEAD + load(base, path + 2 * number + 1) * (words + 2) + words + 1
        store(base, below, load(base, below) + weight)
    position = found >> 1
    entry = node + HEAD + position * (words + 1)
    if found & 1:
        count = load(base, entry + words) + weight
        store(base, entry + words, count)
        if count == 0:
            _take_out(base, node, position, words + 1)
            store(base, tree + ENTRIES, load(base, tree + ENTRIES) - 1)
            _shrink(base, tree, shape, node, position, depth)
        return DONE
    _make_room(base, node, position, words + 1)
    for word in range(words):
        store(base, entry + word, load(base, key + word))
    store(base, entry + words, weight)
    store(base, tree + ENTRIES, load(base, tree + ENTRIES) + 1)
    if position == 0:
        _mend(base, shape, node, depth)
    return DONE


@kernel
def _has_only(base, leaf, key, words):
    """Whether the only key of a leaf is that at an offset."""
    return load(base, leaf + COUNT) == 1 and _are_same(base, leaf + HEAD, key, words)


@kernel
def _are_same(base, one, other, words):
    for word in range(words):
        if load(base, one + word) != load(base, other + word):
            return False
    return True


@kernel
def clear_tree(base, tree):
    """Remove everything and hand the nodes back."""
    shape, node = load(base, tree + SHAPE), load(base, tree + ROOT)
    if node != 0 and node != tree + TREE_WORDS:
        words, size, level = load(base, shape + KEY_WORDS), load(base, shape + NODE_WORDS), load(base, tree + LEVELS)
        if level == 0:
            give(base, node, load(base, tree + ROOT_WORDS))
        else:
            _give_below(base, node, level, words, size)
    make_tree(base, tree, shape)


@kernel
def _give_below(base, node, level, words, size):
    if level > 0:
        for number in range(load(base, node + COUNT)):
            _give_below(base, load(base, node + HEAD + number * (words + 2) + words), level - 1, words, size)
    give(base, node, size)


# --- reading --------------------------------------------------------------------------------------------------------


@kernel
def kth(base, tree, number):
    """The offset of the key that has exactly `number` keys before it, copies counted; 0 if there is none."""
    if number < 0 or number >= load(base, tree + TOTAL):
        return 0
    words = load(base, load(base, tree + SHAPE) + KEY_WORDS)
    node, level = load(base, tree + ROOT), load(base, tree + LEVELS)
    while True:
        stride = words + (2 if level > 0 else 1)
        entry = node + HEAD
        count = load(base, entry + stride - 1)
        while number >= count:
            number -= count
            entry += stride
            count = load(base, entry + stride - 1)
        if level == 0:
            return entry
        node = load(base, entry + words)
        level -= 1


@kernel
def least(base, tree):
    """The offset of the least key, or 0."""
    return kth(base, tree, 0)


@kernel
def most(base, tree):
    """The offset of the greatest key, or 0."""
    node, level = load(base, tree + ROOT), load(base, tree + LEVELS)
    if node == 0:
        return 0
    words = load(base, load(base, tree + SHAPE) + KEY_WORDS)
    while level > 0:
        node = load(base, node + HEAD + (load(base, node + COUNT) - 1) * (words + 2) + words)
        level -= 1
    return node + HEAD + (load(base, node + COUNT) - 1) * (words + 1)


@kernel
def _below(base, shape, node, stride, key):
    """The number of entries below the key; -1 to ask."""
    low, high = 0, load(base, node + COUNT)
    while low < high:
        middle = (low + high) >> 1
        answer = compare_keys(base, shape, node + HEAD + middle * stride, key)
        if answer == ASK:
            return -1
        if answer < 0:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def rank(base, tree, shape, key):
    """How many keys are below the one at an offset, copies counted; -1 to ask.

    `shape` is the tree's, or one that looks at the first fields only: then the first of the keys that tie is found.
    """
    node, level = load(base, tree + ROOT), load(base, tree + LEVELS)
    if node == 0:
        return 0
    words = load(base, shape + KEY_WORDS)
    before = 0
    while True:
        stride = words + (2 if level > 0 else 1)
        number = _below(base, shape, node, stride, key)
        if number < 0:
            return -1
        if level > 0:
            number = max(number - 1, 0)
        for other in range(number):
            before += load(base, node + HEAD + other * stride + stride - 1)
        if level == 0:
            return before
        node = load(base, node + HEAD + number * stride + words)
        level -= 1


@kernel
def leaf_of(base, tree, number):
    """Where to start going through the keys from the k-th on: leaf (0: nowhere), entry, copies of it to pass over."""
    if number < 0 or number >= load(base, tree + TOTAL):
        return 0, 0, 0
    words = load(base, load(base, tree + SHAPE) + KEY_WORDS)
    node, level = load(base, tree + ROOT), load(base, tree + LEVELS)
    while True:
        stride = words + (2 if level > 0 else 1)
        entry = 0
        count = load(base, node + HEAD + stride - 1)
        while number >= count:
            number -= count
            entry += 1
            count = load(base, node + HEAD + entry * stride + stride - 1)
        if level == 0:
            return node, entry, number
        node = load(base, node + HEAD + entry * stride + words)
        level -= 1


@kernel
def following(base, leaf, entry):
    """The entry behind an entry: leaf (0: there is none) and entry."""
    if entry + 1 < load(base, leaf + COUNT):
        return leaf, entry + 1
    return load(base, leaf + BEHIND), 0


def keys_of(arena: Arena, tree: int, start: int = 0, number: int | None = None) -> list[tuple[int, ...]]:
    """The keys from the k-th on, copies repeated: for Python, and for tests."""
    words = int(arena.words[int(arena.words[tree + SHAPE]) + KEY_WORDS])
    leaf, entry, passed = leaf_of(arena.base, tree, start)
    result: list[tuple[int, ...]] = []
    while leaf and (number is None or len(result) < number):
        offset = leaf + HEAD + entry * (words + 1)
        key = tuple(arena.words[offset : offset + words].tolist())
        result += [key] * (int(arena.words[offset + words]) - passed)
        passed = 0
        leaf, entry = following(arena.base, leaf, entry)
    return result if number is None else result[:number]
