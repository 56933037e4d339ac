"""Stars and what is remembered are there and used: that they change no result is what the random tests are for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cqels.engine.engine import Engine
from cqels.kernels import scheduler
from cqels.kernels.containers import delta_queue
from cqels.kernels.operators import filter_extend, star_window, window

STREAM = "http://ex.org/s"
QUERY = f"""PREFIX : <http://ex.org/> SELECT ?x ?v WHERE {{ STREAM <{STREAM}> [RANGE 5s] {{ ?x :a ?a ; :b ?b }}
  BIND(ROUND((?a + 74.913585) / 0.005986) + ROUND((?b + 74.913585) / 0.005986) AS ?v) }}"""


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as made:
        made.register(QUERY, name="q")
        yield made


def tell(engine: Engine, number: int, names: str) -> None:
    text = " ".join(f"<http://ex.org/t{number}> <http://ex.org/{name}> 1.{number} ." for name in names)
    engine.push(STREAM, text, time=f"{number}s")


def window_of(engine: Engine) -> int:
    pipeline = engine.query("q").running.pipeline
    return int(
        engine.internals.arena.words[int(engine.internals.arena.words[pipeline.offset + scheduler.WINDOWS_AT]) + 1]
    )


def test_a_whole_element_is_a_solution_by_itself(engine: Engine) -> None:
    for number in range(20):
        tell(engine, number, "ab")
    words, place = engine.internals.arena.words, window_of(engine)
    assert words[int(words[place + window.STAR]) + star_window.WHOLE_ONES] == 20
    (join,) = engine.query("q").running.pipeline.joins
    assert all(words[queue + delta_queue.TOTAL] == 0 for queue in join.inputs), "a triple went the way of patterns"


def test_a_star_is_given_up_where_few_elements_are_whole(engine: Engine) -> None:
    for number in range(120):
        tell(engine, number, "ab" if number % 4 == 0 else "a")
    assert engine.internals.arena.words[window_of(engine) + window.STAR] == 0


def test_rows_that_go_are_remembered(engine: Engine) -> None:
    for number in range(20):
        tell(engine, number, "ab")
    (found,) = engine.query("q").running.pipeline.selects.values()
    words = engine.internals.arena.words
    assert words[found.offset + filter_extend.NEXT] == 20
    assert words[found.offset + filter_extend.OLDEST] == 14
    assert words[found.offset + filter_extend.FORGOTTEN] == 0
