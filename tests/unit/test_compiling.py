"""When queries are compiled: once, when something happens; what fails is stopped, what is interrupted goes on."""

from __future__ import annotations

from typing import Any

import pytest

from cqels import Engine, QueryStopped
from cqels.kernels.memory.arena import SHARED
from cqels.physical.compiler import Compiler
from cqels.physical.pipeline import Pipeline
from cqels.plan.algebra import Plan, Query

PREFIX = "PREFIX : <http://ex.org/> "
STREAM = "http://ex.org/s"
READING = "<http://ex.org/a> <http://ex.org/p> 5 ."
ALIKE = [PREFIX + f"SELECT ?s {{ STREAM :s [RANGE {width}s] {{ ?s :p ?v }} }}" for width in (1, 2, 3)]
OTHERS = [
    PREFIX + f"SELECT {form} {{ STREAM :s [RANGE 9s] {{ ?o :p ?s . ?o :p ?v }} }}"
    for form in ("?s ?v", "(AVG(?v) AS ?a)", "(MAX(?v) AS ?a)")
]
GUARDED = PREFIX + "SELECT ?s { STREAM :s [NOW] { ?s :p ?v } }"


class Compilations:
    """What the compiler was asked for; it fails for queries with a variable `?v` of their own, or is interrupted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Query] = []
        self.error: BaseException | None = None
        self.failing = ""
        plain = Compiler.pipeline

        def noted(compiler: Compiler, query: Query, plan: Plan, **options: Any) -> Pipeline:
            compiler.words([1, 2, 3])
            if self.error is not None and self.failing in query.variables:
                raise self.error
            self.made.append(query)
            return plain(compiler, query, plan, **options)

        monkeypatch.setattr(Compiler, "pipeline", noted)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Compilations:
    return Compilations(monkeypatch)


def test_a_query_is_compiled_once(compilations: Compilations) -> None:
    """One pipeline for those that are alike, and one for the join that others have in common."""
    with Engine() as engine:
        for text in (*ALIKE, *OTHERS):
            engine.register(text)
        assert not compilations.made
        engine.register(GUARDED, memory="1MB")
        assert len(compilations.made) == 1, "it shares with nobody"
        for time in (1, 2):
            engine.push(STREAM, READING, time=f"{time}s")
            assert len(compilations.made) == 1 + 1 + len(OTHERS) + 1


def test_queries_can_be_compiled_before_the_first_element(compilations: Compilations) -> None:
    with Engine() as engine:
        queries = [engine.register(text) for text in ALIKE]
        engine.prepare()
        assert len(compilations.made) == 1
        engine.push(STREAM, READING, time=0)
        assert len(compilations.made) == 1
        assert [len(query.take()) for query in queries] == [1, 1, 1]


def test_what_cannot_be_compiled_is_stopped_and_others_go_on(compilations: Compilations) -> None:
    told: list[str] = []
    with Engine(stopped=lambda query: told.append(query.name)) as engine:
        good = engine.register(ALIKE[0], name="good")
        bad = engine.register(OTHERS[0], name="bad")
        compilations.error, compilations.failing = ValueError("there is no way\nto do it"), "v"
        engine.push(STREAM, READING, time="1s")
        assert told == ["bad"]
        assert bad.stopped == "query bad was stopped: it cannot run: there is no way to do it"
        with pytest.raises(QueryStopped):
            bad.take()
        assert len(good.take()) == 1
        engine.drop("bad")
        engine.drop("good")
        assert list(engine.internals.arena.heaps()) == [SHARED]


def test_those_that_share_what_cannot_be_compiled_are_all_stopped(compilations: Compilations) -> None:
    with Engine(stopped=lambda query: None) as engine:
        queries = [engine.register(text) for text in ALIKE]
        compilations.error, compilations.failing = ValueError("no"), "s"
        engine.push(STREAM, READING, time="1s")
        assert all(query.stopped is not None for query in queries)
        compilations.error = None
        again = engine.register(ALIKE[0])
        engine.push(STREAM, READING, time="2s")
        assert len(again.take()) == 1
        snapshot = engine.snapshot()
        names = [each.name for each in engine.queries]
    with Engine() as engine:
        made = [engine.register(text, name=name) for text, name in zip((*ALIKE, ALIKE[0]), names, strict=True)]
        engine.restore(snapshot)
        assert [query.stopped is not None for query in made] == [True, True, True, False]
        engine.push(STREAM, READING.replace("/a>", "/b>"), time="4s")
        assert len(made[-1].take()) == 1


def test_compiling_that_is_interrupted_goes_on(compilations: Compilations) -> None:
    with Engine() as engine:
        queries = [engine.register(text) for text in (*ALIKE, *OTHERS)]
        compilations.error, compilations.failing = KeyboardInterrupt(), "a"
        with pytest.raises(KeyboardInterrupt):
            engine.push(STREAM, READING, time="1s")
        compilations.error = None
        engine.push(STREAM, READING, time="2s")
        assert all(query.take() for query in queries)


def test_a_dropped_query_explains_its_plan(compilations: Compilations) -> None:
    with Engine() as engine:
        query = engine.register(GUARDED)
        assert "Stream :s [NOW] { ?s :p ?v }" in query.explain()
        engine.push(STREAM, READING, time="2s")
        assert "window: 1 triples of 1" in query.explain()
        query.drop()
        assert "Stream :s [NOW] { ?s :p ?v }" in query.explain()
