"""Windows over times that the elements tell against the reference's selection of everything that has arrived."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode

from cqels.kernels.containers import delta_queue
from cqels.kernels.memory.arena import Arena, load
from cqels.kernels.operators import payload_time_window, window
from cqels.lang.syntax import Range
from cqels.model.terms import XSD_INTEGER
from cqels.model.time import MILLISECOND
from cqels.reference.windows import Arrival, Boundary, Moment, content

AT = 9
TERMS = [NamedNode(f"http://ex.org/{number}") for number in range(10)]
TRIPLES = st.tuples(st.integers(1, 2), st.just(3) | st.just(AT), st.integers(-2, 6))
ELEMENTS = st.tuples(st.integers(0, 2), st.lists(TRIPLES, min_size=1, max_size=3))


def literal(number: int) -> Literal:
    """The times are milliseconds; -2 tells none."""
    return Literal("never" if number == -2 else str(number), datatype=XSD_INTEGER)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([Range(0), Range(2 * MILLISECOND), Range(3 * MILLISECOND, 2 * MILLISECOND)]),
    st.lists(ELEMENTS, max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_a_window_holds_what_the_reference_says(
    shape: Range, elements: list[tuple[int, list[tuple[int, int, int]]]], fresh: bool, events: bool
) -> None:
    """The running sum of a window's changes is its content; with FRESH each triple has its newest stamp."""
    meaning = Range(shape.width, shape.slide, TERMS[AT])
    memory = Arena(size=1 << 22)
    queue = int(delta_queue.make_queue(memory.base, 3))
    flags = window.FRESH * fresh + window.EVENTS * events
    made = int(
        payload_time_window.make_payload_window(
            memory.base, shape.width, int(shape.slide is not None), flags, queue, AT
        )
    )
    offset = memory.take(3)
    arrivals: list[Arrival] = []
    held: Counter[tuple[int, ...]] = Counter()
    closed: Boundary | None = None

    def tick(now: int) -> None:
        while payload_time_window.find_times(memory.base, made) != delta_queue.DONE:
            number = int(memory.words[made + payload_time_window.ASKED]) - 100
            memory.words[made + payload_time_window.ANSWER] = (
                payload_time_window.NO_TIME if number == -2 else payload_time_window.KNOWN
            )
            memory.words[made + payload_time_window.ANSWER_TIME] = number * MILLISECOND
        assert payload_time_window.advance_payload(
            memory.base, made, now, delta_queue.NEVER if closed is None else closed.time
        )
        for number in range(load(memory.base, queue)):
            row = memory.array(int(delta_queue.row_at(memory.base, queue, number)), 7)
            held[tuple(int(word) for word in row[1:])] += int(row[0])
        delta_queue.clear(memory.base, queue)
        stamped = content(meaning, arrivals, Moment(now, {} if shape.slide is None else {shape.slide: closed}))
        assert load(memory.base, made + window.ENTERED) - load(memory.base, made + window.LEFT) == len(stamped)
        kept = sorted(stamped, key=lambda pair: pair[1])
        expected = kept if events else list(dict(kept).items())
        assert +held == Counter(
            (*((*stamp, stamp[0]) if fresh else (delta_queue.NEVER, -1, delta_queue.ALWAYS)), *words_of(triple))
            for triple, stamp in expected
        )

    def words_of(triple: tuple[object, ...]) -> tuple[int, int, int]:
        subject, predicate, value = triple
        assert isinstance(value, Literal)
        number = -2 if value.value == "never" else int(value.value)
        return TERMS.index(subject), TERMS.index(predicate), number + 100  # type: ignore[arg-type]

    now = 0
    for number, (step, triples) in enumerate(elements):
        before, now = now, now + step * MILLISECOND
        if shape.slide is not None:
            for boundary in range(-(-before // shape.slide) * shape.slide, now, shape.slide):
                closed = Boundary(boundary, number)
                tick(boundary)
        for count, (subject, predicate, value) in enumerate(triples):
            memory.words[offset : offset + 3] = subject, predicate, value + 100
            assert payload_time_window.arrive_payload(memory.base, made, offset, number, count == len(triples) - 1)
        made_of = tuple((TERMS[one], TERMS[two], literal(three)) for one, two, three in triples)
        arrivals.append(Arrival(now, number, made_of))
        tick(now)
