"""Looking ahead: windows so large that it is done send what they send without."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

import cqels
from cqels.kernels.operators.window_prefetch import FAR

EX = "http://ex.org/"
WIDTH, TOTAL, NODES = 17_000, 36_000, 7_000
PATTERNS = {
    "chain": "?x <http://ex.org/p0> ?y . ?y <http://ex.org/p1> ?z . ?z <http://ex.org/p2> ?w",
    "star": "?x <http://ex.org/p0> ?y . ?x <http://ex.org/p1> ?z . ?x <http://ex.org/p2> ?w",
}


def edges() -> list[tuple[int, int, int]]:
    """A triple a millisecond: subject, predicate, object."""
    random = Random(4)
    return [(random.randrange(NODES), random.randrange(3), random.randrange(NODES)) for _ in range(TOTAL)]


def sent(shape: str, triples: list[tuple[int, int, int]], piece: int) -> list[tuple[int, str, tuple[str, ...]]]:
    """The changes when the lines of so many triples are pushed at a time."""
    lines = [f"<{EX}{s}> <{EX}p{p}> <{EX}{o}> {at} .\n" for at, (s, p, o) in enumerate(triples)]
    text = f"SELECT ?x ?y ?z ?w WHERE {{ STREAM <{EX}s> [RANGE {WIDTH}ms] {{ {PATTERNS[shape]} }} }}"
    with cqels.Engine() as engine:
        query = engine.register(text, emit="changes")
        for first in range(0, len(lines), piece):
            engine.push(f"{EX}s", "".join(lines[first : first + piece]).encode())
        return [(result.nanoseconds, result.sign, tuple(map(str, result.values))) for result in query.take()]


def joined(shape: str, triples: list[tuple[int, int, int]]) -> int:
    """How many solutions the triples in the window have at the end: it reaches back to those of its width before."""
    found = [[(s, o) for s, p, o in dict.fromkeys(triples[-WIDTH - 1 :]) if p == number] for number in range(3)]
    if shape == "star":
        counts = [Counter(s for s, _ in part) for part in found]
        return sum(counts[0][node] * counts[1][node] * counts[2][node] for node in range(NODES))
    before, after = Counter(o for _, o in found[0]), Counter(s for s, _ in found[2])
    return sum(before[s] * after[o] for s, o in found[1])


@pytest.mark.parametrize("shape", PATTERNS)
def test_what_is_sent_does_not_depend_on_what_is_known_ahead(shape: str) -> None:
    assert WIDTH > FAR
    triples = edges()
    changes = sent(shape, triples, TOTAL)
    assert sum(1 if sign == "+" else -1 for _, sign, _ in changes) == joined(shape, triples)
    assert changes == sent(shape, triples, 11)
