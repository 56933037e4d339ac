"""The order of the results of several queries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cqels.results import InTime, Result

Sent = list[tuple[int, int]]


def results(query: int, times: list[int]) -> list[Result]:
    return [Result(f"q{query}", time, tick, "", ()) for tick, time in enumerate(sorted(times))]


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=3), st.lists(st.integers(0, 9)))
def test_the_order_does_not_depend_on_the_pieces(times: list[list[int]], cuts: list[int]) -> None:
    """in_time(a + b) = in_time(a) + in_time(b), though elements of one time are in both"""
    queries = [results(number, each) for number, each in enumerate(times)]
    expected = sorted(
        ((number, result) for number, each in enumerate(queries) for result in each),
        key=lambda pair: (pair[1].nanoseconds, pair[0], pair[1].tick),
    )
    order = InTime(len(queries))
    got: list[tuple[int, Result]] = []
    left = [list(each) for each in queries]
    for cut in sorted(cuts):
        # each query has come to the same time, and may have more of that
        some = [[result for result in each if result.nanoseconds < cut] for each in left]
        some = [
            part + [result for result in each[len(part) :] if result.nanoseconds == cut][: (cut + number) % 3]
            for number, (each, part) in enumerate(zip(left, some, strict=True))
        ]
        got += order.add(some)
        left = [each[len(part) :] for each, part in zip(left, some, strict=True)]
    got += order.add(left)
    got += order.rest()
    assert got == expected
