"""The closure of a set of edges: every pair of nodes that one or more steps connect, once, as edges come and go.

A pair has the stamps of all the edges on any way between the two: the newest of them, the oldest of them.  When edges
change, the pairs are found anew from those nodes alone that had, or have, a way to a changed edge; a step in which no
edge changes costs nothing.

The changes of the edges must be those of a set: of one edge there is at most one row at a time, and it goes before
another comes with other stamps, as DISTINCT gives them.

    word   of a closure                        word   of an edge
    0      left to the engine                  0, 1   nodes it leads from and to
    1, 2   queues of edges and of pairs        2–4    stamps
    3      table: term to node                 5      1 while it is there
    4      table: (from, to) to edge           6, 7   next and previous edge from the same node, or 0
    5      where every way begins, 0 anywhere  8, 9   next and previous edge to the same node, or 0
    6      searches so far                     10     next edge that is gone, -1 for none, 0 if it is not one
    7      first node that is affected, or 0   word   of a pair: 0 target, 1–3 stamps, 4 next pair from the same start
    8      first edge that is gone, or 0
    9, 10  first node to go on from, first node reached, or 0
    11     two words for a key

    word   of a node
    0      its term
    1, 2   first edge from it, first edge to it, or 0
    3      first pair that starts with it, or 0
    4–6    stamps of all the ways to it from where the search began
    7      search that this is about
    8      search that reached it by at least one step
    9      search in which its pair with the start was known before
    10, 11 1 if it waits to be gone on from; the next that waits
    12     the next one reached
    13, 14 CHANGED if its pairs may be others now, CHECKED if it may be of no more use; the next that is either
"""

from __future__ import annotations

from cqels.kernels.compiler.kernel import kernel
from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, NEVER, TIME, WEIGHT, add_row, row_at, said
from cqels.kernels.containers.delta_queue import COUNT as QUEUED
from cqels.kernels.containers.hash_table import find, make_table, put, remove
from cqels.kernels.memory.arena import Arena, copy, give, load, store, take
from cqels.kernels.memory.interrupt_poll import is_abandoned
from cqels.model.errors import ArenaFull

IN, OUT, NODES, EDGES, ROOT, SEARCHES, AFFECTED, GONE, TODO, REACHED, KEY = range(1, 12)
CLOSURE_WORDS = 13
TERM, OUTWARD, INWARD, PAIRS, STAMPS, SEARCH, ARRIVED, KNOWN, WAITS, WAITS_NEXT, REACHED_NEXT, TOUCHED, TOUCHED_NEXT = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
)
NODE_WORDS = 15
FROM, TO, EDGE_STAMPS, THERE, NEXT_OUT, BEFORE_OUT, NEXT_IN, BEFORE_IN, NEXT_GONE = 0, 1, 2, 5, 6, 7, 8, 9, 10
EDGE_WORDS = 11
TARGET, PAIR_STAMPS, NEXT_PAIR = 0, 1, 4
PAIR_WORDS = 5
CHANGED, CHECKED = 1, 2

_SEARCHES = 63
"""After so many searches, and one, it is asked whether to go on."""


def make_closure(arena: Arena, out: int, queue: int, *, root: int = 0) -> int:
    """The pairs that the edges of a queue connect, both of two columns; only those that start with `root`, if given."""
    offset = arena.take(CLOSURE_WORDS)
    words = arena.array(offset, CLOSURE_WORDS)
    words[[IN, OUT, ROOT]] = queue, out, root
    words[NODES], words[EDGES] = make_table(arena.base, 1, 1), make_table(arena.base, 2, 1)
    if words[NODES] == 0 or words[EDGES] == 0:
        raise ArenaFull
    return offset


@kernel
def step_closure(base, closure):
    """Work off the changes of the edges: False if the arena is full."""
    queue = load(base, closure + IN)
    if load(base, queue + QUEUED) == 0:
        return True
    for number in range(load(base, queue + QUEUED)):
        if not _change_edge(base, closure, row_at(base, queue, number)):
            return False
    _spread(base, closure)  # while edges that are gone still show where they led from
    edge = load(base, closure + GONE)
    while edge > 0:
        following = load(base, edge + NEXT_GONE)
        if load(base, edge + THERE) == 0:
            _unlink(base, closure, edge)
        else:
            store(base, edge + NEXT_GONE, 0)
        edge = following
    store(base, closure + GONE, 0)
    return _search_all(base, closure)


# --- edges


@kernel
def _change_edge(base, closure, row):
    edge = find(base, load(base, closure + EDGES), row + COLUMNS)
    edge = load(base, edge) if edge != 0 else 0
    if load(base, row + WEIGHT) < 0:
        store(base, edge + THERE, 0)
        if load(base, edge + NEXT_GONE) == 0:
            first = load(base, closure + GONE)
            store(base, edge + NEXT_GONE, first if first != 0 else -1)
            store(base, closure + GONE, edge)
    else:
        if edge == 0:
            edge = _link(base, closure, row + COLUMNS)
            if edge == 0:
                return False
        store(base, edge + THERE, 1)
        copy(base, row + TIME, edge + EDGE_STAMPS, 3)
    _touch(base, closure, load(base, edge + FROM), CHANGED)
    return True


@kernel
def _node(base, closure, term):
    """The node of a term, made if there is none: 0 if the arena is full."""
    store(base, closure + KEY, term)
    entry = put(base, load(base, closure + NODES), closure + KEY)
    if entry == 0:
        return 0
    node = load(base, entry)
    if node == 0:
        node = take(base, NODE_WORDS)
        store(base, entry, node)
        if node != 0:
            store(base, node + TERM, term)
    return node


@kernel
def _link(base, closure, ends):
    """A new edge between the two terms at an offset: 0 if the arena is full."""
    start, end = _node(base, closure, load(base, ends)), _node(base, closure, load(base, ends + 1))
    edge = take(base, EDGE_WORDS)
    entry = put(base, load(base, closure + EDGES), ends)
    if start == 0 or end == 0 or edge == 0 or entry == 0:
        return 0
    store(base, entry, edge)
    store(base, edge + FROM, start)
    store(base, edge + TO, end)
    _prepend(base, edge, start + OUTWARD, NEXT_OUT)
    _prepend(base, edge, end + INWARD, NEXT_IN)
    return edge


@kernel
def _prepend(base, edge, head, link):
    first = load(base, head)
    store(base, edge + link, first)
    store(base, edge + link + 1, 0)
    if first != 0:
        store(base, first + link + 1, edge)
    store(base, head, edge)


@kernel
def _take_out(base, edge, head, link):
    following, before = load(base, edge + link), load(base, edge + link + 1)
    if following != 0:
        store(base, following + link + 1, before)
    if before != 0:
        store(base, before + link, following)
    else:
        store(base, head, following)


@kernel
def _unlink(base, closure, edge):
    """Forget an edge. Its nodes stay until the search is over."""
    start, end = load(base, edge + FROM), load(base, edge + TO)
    _take_out(base, edge, start + OUTWARD, NEXT_OUT)
    _take_out(base, edge, end + INWARD, NEXT_IN)
    store(base, closure + KEY, load(base, start + TERM))
    store(base, closure + KEY + 1, load(base, end + TERM))
    edges = load(base, closure + EDGES)
    remove(base, edges, find(base, edges, closure + KEY))
    give(base, edge, EDGE_WORDS)
    _touch(base, closure, end, CHECKED)


# --- what is affected


@kernel
def _touch(base, closure, node, why):
    if load(base, node + TOUCHED) == 0:
        store(base, node + TOUCHED, why)
        store(base, node + TOUCHED_NEXT, load(base, closure + AFFECTED))
        store(base, closure + AFFECTED, node)


@kernel
def _spread(base, closure):
    """Touch every node that has a way to one that is touched."""
    done = 0
    while load(base, closure + AFFECTED) != done:
        last, node = done, load(base, closure + AFFECTED)
        done = node
        while node != last:
            edge = load(base, node + INWARD)
            while edge != 0:
                _touch(base, closure, load(base, edge + FROM), CHANGED)
                edge = load(base, edge + NEXT_IN)
            node = load(base, node + TOUCHED_NEXT)


@kernel
def _search_all(base, closure):
    root = load(base, closure + ROOT)
    node = load(base, closure + AFFECTED)
    while node != 0:
        if load(base, node + TOUCHED) == CHANGED and (root == 0 or root == load(base, node + TERM)):
            _search(base, closure, node)
            if load(base, closure + SEARCHES) & _SEARCHES == 0 and is_abandoned(base):
                return False
            if not _send(base, closure, node):
                return False
        node = load(base, node + TOUCHED_NEXT)
    node = load(base, closure + AFFECTED)
    store(base, closure + AFFECTED, 0)
    while node != 0:
        following = load(base, node + TOUCHED_NEXT)
        store(base, node + TOUCHED, 0)
        if load(base, node + OUTWARD) == 0 and load(base, node + INWARD) == 0:
            nodes = load(base, closure + NODES)
            remove(base, nodes, find(base, nodes, node + TERM))
            give(base, node, NODE_WORDS)
        node = following
    return True


# --- a search


@kernel
def _search(base, closure, start):
    """Find all nodes that steps lead to from a start, and the stamps of all the ways to each."""
    search = load(base, closure + SEARCHES) + 1
    store(base, closure + SEARCHES, search)
    store(base, closure + REACHED, 0)
    _begin(base, start, search)
    _wait(base, closure, start)
    while load(base, closure + TODO) != 0:
        node = load(base, closure + TODO)
        store(base, closure + TODO, load(base, node + WAITS_NEXT))
        store(base, node + WAITS, 0)
        edge = load(base, node + OUTWARD)
        while edge != 0:
            target = load(base, edge + TO)
            new = load(base, target + SEARCH) != search
            if new:
                _begin(base, target, search)
            if load(base, target + ARRIVED) != search:
                store(base, target + ARRIVED, search)
                store(base, target + REACHED_NEXT, load(base, closure + REACHED))
                store(base, closure + REACHED, target)
            longer = _widen(base, target + STAMPS, edge + EDGE_STAMPS)
            if _widen(base, target + STAMPS, node + STAMPS) or longer or new:
                _wait(base, closure, target)
            edge = load(base, edge + NEXT_OUT)


@kernel
def _begin(base, node, search):
    store(base, node + SEARCH, search)
    store(base, node + STAMPS, NEVER)
    store(base, node + STAMPS + 1, -1)
    store(base, node + STAMPS + 2, ALWAYS)


@kernel
def _wait(base, closure, node):
    if load(base, node + WAITS) == 0:
        store(base, node + WAITS, 1)
        store(base, node + WAITS_NEXT, load(base, closure + TODO))
        store(base, closure + TODO, node)


@kernel
def _widen(base, stamps, more):
    """Let stamps be those of more edges too: whether that makes a difference."""
    wider = False
    time, number = load(base, more), load(base, more + 1)
    if time > load(base, stamps) or (time == load(base, stamps) and number > load(base, stamps + 1)):
        store(base, stamps, time)
        store(base, stamps + 1, number)
        wider = True
    if load(base, more + 2) < load(base, stamps + 2):
        store(base, stamps + 2, load(base, more + 2))
        wider = True
    return wider


@kernel
def _send(base, closure, start):
    """Send the pairs of a start that are other than they were: False if the arena is full."""
    search, before, pair = load(base, closure + SEARCHES), start + PAIRS, load(base, start + PAIRS)
    while pair != 0:
        target, following = load(base, pair + TARGET), load(base, pair + NEXT_PAIR)
        there = load(base, target + ARRIVED) == search
        if there:
            store(base, target + KNOWN, search)
        if not there or not _same(base, pair + PAIR_STAMPS, target + STAMPS):
            if not _emit(base, closure, start, target, pair + PAIR_STAMPS, -1):
                return False
            if there:
                copy(base, target + STAMPS, pair + PAIR_STAMPS, 3)
                if not _emit(base, closure, start, target, pair + PAIR_STAMPS, 1):
                    return False
        if there:
            before = pair + NEXT_PAIR
        else:
            store(base, before, following)
            give(base, pair, PAIR_WORDS)
        pair = following
    target = load(base, closure + REACHED)
    while target != 0:
        if load(base, target + KNOWN) != search:
            pair = take(base, PAIR_WORDS)
            if pair == 0 or not _emit(base, closure, start, target, target + STAMPS, 1):
                return False
            store(base, pair + TARGET, target)
            copy(base, target + STAMPS, pair + PAIR_STAMPS, 3)
            store(base, pair + NEXT_PAIR, load(base, start + PAIRS))
            store(base, start + PAIRS, pair)
        target = load(base, target + REACHED_NEXT)
    return True


@kernel
def _same(base, one, other):
    for word in range(3):
        if load(base, one + word) != load(base, other + word):
            return False
    return True


@kernel
def _emit(base, closure, start, target, stamps, weight):
    row = add_row(base, load(base, closure + OUT))
    if row == 0:
        return False
    store(base, row + WEIGHT, weight)
    copy(base, stamps, row + TIME, 3)
    store(base, row + COLUMNS, load(base, start + TERM))
    store(base, row + COLUMNS + 1, load(base, target + TERM))
    return True


@kernel
def closure_step(base, operator, now):
    """The step as the scheduler takes it."""
    return said(step_closure(base, operator))
