"""The closure of a set of edges against the reference's walks over all of them."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import NamedNode

from cqels.kernels.containers.delta_queue import ALWAYS, COLUMNS, COUNT, NEVER, add_row, clear, make_queue, row_at
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators.transitive_closure import make_closure, step_closure
from cqels.lang.syntax import Link, Repeat
from cqels.reference.graphs import StampedGraph
from cqels.reference.path_evaluation import walks

LINK = NamedNode("http://ex.org/p")
Edge = tuple[int, int]
Stamp = tuple[int, int]


def term(number: int) -> NamedNode:
    return NamedNode(f"http://ex.org/{number}")


def number_of(found: object) -> int:
    return int(str(found).rstrip(">").rpartition("/")[2])


def naive(edges: dict[Edge, Stamp | None], root: int) -> Counter[tuple[int, ...]]:
    """Rows of the pairs that `:p+` connects."""
    graph = StampedGraph(((term(one), LINK, term(other)), stamp) for (one, other), stamp in edges.items())
    found = walks(Repeat(Link(LINK), 1, True), graph, term(root) if root else None, None)
    return Counter(
        (
            *walk.newest,
            ALWAYS if walk.oldest is None else walk.oldest,
            number_of(walk.start),
            number_of(walk.end),
        )
        for walk in found
    )


class Harness:
    """A closure in an arena, and the sum of all that came out of it."""

    def __init__(self, root: int) -> None:
        self.arena = Arena(size=1 << 24)
        self.queue, self.out = (int(make_queue(self.arena.base, 2)) for _ in range(2))
        self.closure = make_closure(self.arena, self.out, self.queue, root=root)
        self.edges: dict[Edge, Stamp | None] = {}
        self.sum: Counter[tuple[int, ...]] = Counter()

    def put(self, weight: int, edge: Edge, stamp: Stamp | None) -> None:
        offset = int(add_row(self.arena.base, self.queue))
        stamps = (NEVER, -1, ALWAYS) if stamp is None else (*stamp, stamp[0])
        self.arena.words[offset : offset + COLUMNS + 2] = (weight, *stamps, *edge)

    def change(self, edge: Edge, stamp: Stamp | None) -> None:
        """An edge comes, goes (if it is there as it is), or gets another stamp."""
        if edge in self.edges:
            before = self.edges.pop(edge)
            self.put(-1, edge, before)
            if before == stamp:
                return
        self.put(1, edge, stamp)
        self.edges[edge] = stamp

    def step(self) -> int:
        """How many rows came out."""
        assert step_closure(self.arena.base, self.closure)
        count = int(self.arena.words[self.out + COUNT])
        for number in range(count):
            weight, *row = self.arena.array(int(row_at(self.arena.base, self.out, number)), COLUMNS + 2).tolist()
            self.sum[tuple(row)] += weight
        clear(self.arena.base, self.queue)
        clear(self.arena.base, self.out)
        return count

    @property
    def pairs(self) -> Counter[tuple[int, ...]]:
        assert not any(weight < 0 for weight in self.sum.values())
        return +self.sum


CHANGES = st.tuples(
    st.tuples(st.integers(1, 5), st.integers(1, 5)), st.none() | st.tuples(st.integers(0, 3), st.integers(0, 3))
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(CHANGES, max_size=4), max_size=12), st.sampled_from([0, 0, 1]))
def test_the_sum_of_changes_is_the_closure(ticks: list[list[tuple[Edge, Stamp | None]]], root: int) -> None:
    harness = Harness(root)
    for changes in ticks:
        for edge, stamp in changes:
            harness.change(edge, stamp)
        harness.step()
        assert harness.pairs == naive(harness.edges, root)


def test_many_edges() -> None:
    """Memory is used again: what is gone leaves nothing behind."""
    random, harness = Random(3), Harness(0)
    used = []
    for _round in range(8):
        for tick in range(20):
            for _ in range(6):
                harness.change((random.randint(1, 30), random.randint(1, 30)), (tick, random.randint(0, 5)))
            harness.step()
        assert harness.pairs == naive(harness.edges, 0)
        for edge, stamp in list(harness.edges.items()):
            harness.change(edge, stamp)
        harness.step()
        assert not harness.pairs
        used.append(harness.arena.used)
        random.seed(3)
    assert len(set(used[1:])) == 1


def test_no_change_no_work() -> None:
    harness = Harness(0)
    harness.change((1, 2), (0, 0))
    assert harness.step() == 1
    assert harness.step() == 0
    harness.change((3, 4), (0, 0))
    assert harness.step() == 1
    harness.change((3, 4), (1, 1))  # newer than it was
    assert harness.step() == 2
