"""Conditions above a join are applied as soon as what they read is bound, before rows of other inputs are looked up."""

from __future__ import annotations

import pytest

from cqels.engine.engine import Engine
from cqels.engine.query_handle import StandingQuery
from cqels.kernels.containers.delta_queue import COUNT, TOTAL
from cqels.kernels.operators.join import CONDITIONS
from cqels.kernels.operators.join_conditions import read_conditions
from cqels.physical.early_conditions import early_conditions
from cqels.physical.pipeline import JoinTrace
from cqels.plan.algebra import Filter, walk_plan
from cqels.plan.optimizer.rules import conjuncts
from cqels.plan.prepare import prepare

from ..scenarios import EX

PREFIX = "PREFIX : <http://ex.org/> "
THREE = "STREAM :S [ALL] { ?k :s ?a } STREAM :T [ALL] { ?k :t ?b } STREAM :U [ALL] { ?k :u ?c }"
EACH = 10


def fed(where: str, streams: str = "STU") -> tuple[Engine, StandingQuery]:
    """An engine in which the values of T are larger than all others."""
    engine = Engine(size=1 << 26)
    query = engine.register(prepare(f"{PREFIX} SELECT * WHERE {{ {where} }}"))
    time = 0
    for stream in streams:
        for number in range(EACH):
            time += 1
            value = number + (1000 if stream == "T" else 0)
            engine.push(EX + stream, f"<{EX}k> <{EX}{stream.lower()}> {value} .", time=time)
    return engine, query


def made(engine: Engine, join: JoinTrace) -> int:
    return int(engine.internals.arena.words[join.queue + TOTAL] + engine.internals.arena.words[join.queue + COUNT])


def counts(engine: Engine, join: JoinTrace) -> list[tuple[int, int]]:
    return read_conditions(engine.internals.arena, int(engine.internals.arena.words[join.offset + CONDITIONS]))


@pytest.mark.parametrize("streams", ["STU", "SUT", "TSU", "TUS", "UST", "UTS"])
def test_a_condition_over_two_of_three_windows_lets_no_row_through(streams: str) -> None:
    engine, query = fed(f"{THREE} FILTER(?a > ?b)", streams)
    (join,) = query.running.pipeline.joins
    assert made(engine, join) == 0
    ((applied, discarded),) = counts(engine, join)
    assert applied == discarded
    # a row of S or T that comes last is compared with those of the other, and with no row of U
    assert applied == EACH * EACH if streams[-1] in "ST" else applied == EACH * EACH * EACH
    assert f"?a > ?b discards {discarded:,} of {applied:,}" in query.explain()


def test_what_holds_is_joined() -> None:
    engine, query = fed(f"{THREE} FILTER(?a < ?b)")
    (join,) = query.running.pipeline.joins
    assert made(engine, join) == EACH**3
    assert counts(engine, join) == [(EACH**3, 0)]


def test_optional_applies_its_condition_on_the_way() -> None:
    _, query = fed("STREAM :S [ALL] { ?k :s ?a } OPTIONAL { ?k :t ?b . ?l :u ?c FILTER(?a > ?b) }", "S")
    assert [len(join.conditions) for join in query.running.pipeline.joins] == [1]


@pytest.mark.parametrize(
    ("text", "inputs", "early"),
    [
        ("?a > ?b", ["ka", "kb", "kc"], ["ab"]),
        ("?a > ?b && ?b < 3 + ?a && ?c > ?a", ["ka", "kb", "kc"], ["ab", "ac"]),  # one program for equal variables
        ("?a > ?b", ["ka", "kb"], []),  # there is nothing more to join
        ("?a > ?b + ?c", ["ka", "kb", "kc"], []),
        ("?k > ?a", ["ka", "kb", "kc"], []),  # one input has both
        ("?a > ?k", ["a", "k", "kb"], ["ak"]),
        ("?a > ?d", ["ka", "kb", "kc"], []),  # which is never bound
        ("CONTAINS(?a, ?b)", ["ka", "kb", "kc"], []),  # Python would have to be asked
        ("?a > NOW()", ["ka", "kb", "kc"], []),
    ],
)
def test_which_conditions_are_early(text: str, inputs: list[str], early: list[str]) -> None:
    query = prepare(f"{PREFIX} SELECT * WHERE {{ STREAM :S {{ ?a :p ?b . ?c :q ?k }} FILTER({text}) }}")
    (condition,) = [node.condition for node in walk_plan(query.plan) if isinstance(node, Filter)]
    assert ["".join(sorted(each)) for each in early_conditions(conjuncts(condition), inputs)] == early
