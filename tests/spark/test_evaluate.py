"""The engine in a stateful operator, without Spark: lost engines, repeated batches and snapshots change no result."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

import pyarrow

from cqels.engine.engine import Engine
from cqels.io import StreamSettings
from cqels.plan.prepare import prepare
from cqels.spark import evaluate
from cqels.spark.evaluate import Evaluation, Program
from cqels.spark.lift import Lifting, ntriples
from cqels.spark.wanted import wanted

STREAM = "http://ex.org/s"
QUERY = f"""
    PREFIX : <http://ex.org/>
    SELECT ?s ?room (COUNT(*) AS ?n) WHERE {{
      STREAM <{STREAM}> [RANGE 20ms] {{ ?s :p ?o }} STREAM <{STREAM}> [ELEMENTS 30] {{ ?s :q ?v }}
      OPTIONAL {{ ?s :in ?room }}
    }} GROUP BY ?s ?room"""
STATIC = "<http://ex.org/s1> <http://ex.org/in> <http://ex.org/kitchen> .\n"
Store = dict[str, Any]


class Handle:
    """State as Spark keeps it: what was written is there in the next batch, if this one is committed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def getValueState(self, name: str, schema: str) -> Any:  # noqa: N802
        store = self._store
        return SimpleNamespace(get=lambda: store.get(name), update=lambda value: store.__setitem__(name, value))

    def getListState(self, name: str, schema: str) -> Any:  # noqa: N802
        store = self._store
        return SimpleNamespace(
            get=lambda: iter(store.get(name, [])),
            put=lambda values: store.__setitem__(name, list(values)),
            appendValue=lambda value: store.setdefault(name, []).append(value),
            clear=lambda: store.pop(name, None),
        )


def line(number: int, kind: str) -> str:
    return f"<http://ex.org/s{number % 2}> <http://ex.org/{kind}> <http://ex.org/o{number % 7}> {number * 3} ."


def processed(program: Program, store: Store, rows: list[Any]) -> list[Any]:
    """One task of Spark."""
    evaluation = Evaluation(program)
    evaluation.init(Handle(store))  # type: ignore[arg-type]
    made = list(evaluation.handleInputRows((0,), iter(rows), None))  # type: ignore[arg-type]
    evaluation.close()
    return made


def lifted(lines: list[str], place: str) -> Iterator[Any]:
    lifting = Lifting(STREAM, 0, ntriples(), (wanted([prepare(QUERY)], STREAM),))
    batch = pyarrow.RecordBatch.from_pydict({"value": lines, "place": [place] * len(lines)})
    for made in lifting(iter([batch])):
        yield from (SimpleNamespace(**row) for row in made.to_pylist())


def expected(lines: list[str]) -> list[tuple[Any, ...]]:
    with Engine() as engine:
        engine.stream(STREAM)
        engine.update(f"INSERT DATA {{ {STATIC} }}")
        query = engine.register(QUERY, emit="changes")
        engine.push(STREAM, "\n".join(lines))
        return [
            (each.time, each.tick, each.sign, [str(term) if term else None for term in each.values])
            for each in query.results()
        ]


FATES = st.sampled_from(["well", "engine lost", "task repeated here", "task repeated elsewhere", "task broken"])


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.lists(st.sampled_from("ppqz"), max_size=12), FATES), min_size=4, max_size=8),
    st.sampled_from([0, 300, 1 << 20]),
)
def test_every_result_is_sent_once(batches: list[tuple[list[str], str]], least: int) -> None:
    """results(batches, whatever fails) = results of all at once"""
    program = Program("p", (prepare(QUERY, name="q", emit="changes"),), (StreamSettings(STREAM),), STATIC.encode())
    evaluate._ALIVE.clear()
    before, evaluate.LEAST_LOG = evaluate.LEAST_LOG, least
    store: Store = {}
    lines: list[str] = []
    made: list[Any] = []
    try:
        for number, (kinds, fate) in enumerate(batches):
            new = [line(len(lines) + place, kind) for place, kind in enumerate(kinds)]
            lines += new
            rows = list(lifted(new, f"file{number}"))
            if not rows:
                continue
            if fate == "engine lost":
                evaluate._ALIVE.clear()
            if fate == "task broken":
                broken = Evaluation(program)
                broken.init(Handle(copy.deepcopy(store)))  # type: ignore[arg-type]
                next(broken.handleInputRows((0,), iter(rows), None), None)  # type: ignore[arg-type]
            if fate.startswith("task repeated"):  # what it wrote and sent is not committed
                processed(program, copy.deepcopy(store), rows)
                if fate.endswith("elsewhere"):
                    evaluate._ALIVE.clear()
            made += processed(program, store, rows)
    finally:
        evaluate.LEAST_LOG = before
    assert [row.number for row in made] == list(range(len(made)))
    event("several results" if len(made) > 5 else "few results")
    assert [(row.time, row.tick, row.sign, row["values"]) for row in made] == expected(lines)


def test_what_is_late_or_malformed_comes_out_too() -> None:
    program = Program("late", (prepare(QUERY, name="q"),), (StreamSettings(STREAM),), b"")
    lines = [line(9, "p"), "malformed", line(2, "p")]
    made = processed(program, {}, list(lifted(lines, "file")))
    assert [(row.kind, row.place) for row in made] == [("rejected", "file:2"), ("late", f"<{STREAM}>")]


@pytest.mark.parametrize("lost", [True, False])
def test_the_log_is_cut_when_a_snapshot_is_renewed(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "LEAST_LOG", 2000)
    program = Program("log", (prepare(QUERY, name="q", emit="changes"),), (StreamSettings(STREAM),), STATIC.encode())
    evaluate._ALIVE.clear()
    store: Store = {}
    lines: list[str] = []
    made: list[Any] = []
    snapshots = set()
    for number in range(40):
        new = [
            f"<http://ex.org/s{place % 2}> <http://ex.org/{'pqz'[place % 3]}> <http://ex.org/{place * 7919}> {place} ."
            for place in range(150 * number, 150 * number + 150)
        ]
        lines += new
        if lost:
            evaluate._ALIVE.clear()
        made += processed(program, store, list(lifted(new, f"file{number}")))
        snapshots.add(tuple(store.get("snapshot", ())))
        logged, saved = store["head"][2:]
        assert logged == sum(len(block) for (block,) in store.get("log", ()))
        assert logged <= max(saved, 2000)
    assert len(snapshots) > 2
    assert [row.number for row in made] == list(range(len(made)))
    assert len(made) > 1000
    assert [(row.time, row.tick, row.sign, row["values"]) for row in made] == expected(lines)
