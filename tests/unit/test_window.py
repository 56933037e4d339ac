"""Windows as kernels against the reference's selection of everything that has arrived."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import NamedNode

from cqels.kernels.containers import delta_queue
from cqels.kernels.memory.arena import Arena, load
from cqels.kernels.operators import window
from cqels.lang.syntax import All, Count, Now, Range, Window
from cqels.reference.windows import Arrival, Boundary, Moment, content

KINDS: list[tuple[int, int, int | None, Window]] = [
    (window.NOW, 0, None, Now()),
    (window.ALL, 0, None, All()),
    (window.RANGE, 3, None, Range(3)),
    (window.RANGE, 0, None, Range(0)),
    (window.SLIDE, 4, 2, Range(4, 2)),
    (window.SLIDE, 2, 2, Range(2, 2)),
    (window.SLIDE, 1, 3, Range(1, 3)),
    (window.TRIPLES, 3, None, Count(3, "triples")),
    (window.TRIPLES, 1, None, Count(1, "triples")),
    (window.ELEMENTS, 2, None, Count(2, "elements")),
]
TERMS = [NamedNode(f"http://ex.org/{number}") for number in range(4)]
ELEMENTS = st.tuples(st.integers(0, 3), st.lists(st.tuples(*[st.integers(1, 3)] * 3), min_size=1, max_size=3))


@given(st.sampled_from(KINDS), st.lists(ELEMENTS, max_size=25), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_window_holds_what_the_reference_says(
    chosen: tuple[int, int, int | None, Window],
    elements: list[tuple[int, list[tuple[int, int, int]]]],
    fresh: bool,
    events: bool,
) -> None:
    """The running sum of a window's changes is its content; with FRESH each triple has its newest stamp."""
    kind, width, slide, meaning = chosen
    memory = Arena(size=1 << 22)
    queue = int(delta_queue.make_queue(memory.base, 3))
    flags = window.FRESH * fresh + window.EVENTS * events
    made = int(window.make_window(memory.base, kind, width, flags, queue))
    triple_offset = memory.take(3)
    arrivals: list[Arrival] = []
    held: Counter[tuple[int, ...]] = Counter()
    closed: Boundary | None = None

    def tick(now: int) -> None:
        assert window.advance(memory.base, made, now, delta_queue.NEVER if closed is None else closed.time)
        for number in range(load(memory.base, queue)):
            row = memory.array(int(delta_queue.row_at(memory.base, queue, number)), 7)
            held[tuple(int(word) for word in row[1:])] += int(row[0])
        delta_queue.clear(memory.base, queue)
        stamped = content(meaning, arrivals, Moment(now, {} if slide is None else {slide: closed}))
        numbered = [(tuple(TERMS.index(term) for term in triple), stamp) for triple, stamp in stamped]
        if not events:  # the newest occurrence of each
            numbered = list(dict(sorted(numbered, key=lambda pair: pair[1])).items())
        wanted = Counter(
            ((*stamp, stamp[0]) if fresh else (delta_queue.NEVER, -1, delta_queue.ALWAYS)) + triple
            for triple, stamp in numbered
        )
        assert +held == wanted
        assert not -held

    now = 0
    for number, (step, triples) in enumerate(elements):
        before, now = now, now + step
        if slide is not None and number > 0:
            for boundary in range(-(-before // slide) * slide, now, slide):
                closed = Boundary(boundary, number)
                tick(boundary)
        distinct = list(dict.fromkeys(triples))
        arrivals.append(Arrival(now, number, tuple(tuple(TERMS[term] for term in each) for each in distinct)))  # type: ignore[misc]
        for index, each in enumerate(distinct):
            memory.array(triple_offset, 3)[:] = each
            assert window.arrive(memory.base, made, triple_offset, now, number, index == len(distinct) - 1)
        tick(now)


def test_a_pattern_picks_constants_repeats_and_columns() -> None:
    memory = Arena(size=1 << 20)
    source, target = int(delta_queue.make_queue(memory.base, 3)), int(delta_queue.make_queue(memory.base, 1))
    pattern = memory.take(window.PATTERN_WORDS)
    memory.array(pattern, 9)[:] = [0, 0, 0, 7, 1, -1, 0, 0, -1]  # ?x 7 ?x
    for triple in ([1, 7, 1], [1, 7, 2], [1, 8, 1], [2, 7, 2]):
        row = int(delta_queue.add_row(memory.base, source))
        memory.array(row, 7)[:] = [1, 5, 0, 5, *triple]
    assert window.match_rows(memory.base, source, pattern, target)
    made = [
        list(memory.array(int(delta_queue.row_at(memory.base, target, n)), 5)) for n in range(load(memory.base, target))
    ]
    assert made == [[1, 5, 0, 5, 1], [1, 5, 0, 5, 2]]


def test_triples_that_no_pattern_matches_are_not_kept() -> None:
    memory = Arena(size=1 << 20)
    queue = int(delta_queue.make_queue(memory.base, 3))
    made = int(window.make_window(memory.base, window.ALL, 0, 0, queue))
    pattern = memory.take(window.PATTERN_WORDS)
    memory.array(pattern, 9)[:] = [0, 0, 0, 7, 1, -1, 0, 2, 1]
    memory.array(made + window.PATTERNS, 2)[:] = [pattern, 1]
    offset = memory.take(3)
    for triple in ([1, 7, 1], [1, 8, 1]):
        memory.array(offset, 3)[:] = triple
        assert window.arrive(memory.base, made, offset, 1, 0, True)
    assert load(memory.base, made + window.COME) == 1
