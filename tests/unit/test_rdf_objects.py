"""What programs push and load as objects: pyoxigraph's and rdflib's are what they are, all else is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyoxigraph
import pytest
import rdflib
from pyoxigraph import BlankNode, Literal, NamedNode, Quad

import cqels
from cqels.model.errors import DataError
from cqels.model.terms import XSD_INTEGER

EX = "http://ex.org/"
OBS = EX + "obs"
ALL = f"SELECT ?s ?p ?o WHERE {{ STREAM <{OBS}> [NOW] {{ ?s ?p ?o }} }}"
A, P, B = (NamedNode(EX + name) for name in "apb")
U = rdflib.URIRef
TRIPLE = (U(EX + "a"), U(EX + "p"), U(EX + "b"))


class Own(rdflib.URIRef):
    """A term of a program of its own."""


def graph(*triples: tuple[Any, Any, Any]) -> rdflib.Graph:
    made = rdflib.Graph()
    for triple in triples:
        made.add(triple)
    return made


def dataset(name: str | None = None) -> rdflib.Dataset:
    made = rdflib.Dataset()
    with warnings.catch_warnings(action="ignore"):  # rdflib's of itself
        (made if name is None else made.graph(U(name))).add(TRIPLE)
    return made


def pushed(data: Any) -> list[tuple[Any, ...]]:
    with cqels.Engine() as engine:
        query = engine.register(ALL)
        engine.push(OBS, data, time="1s")
        return [row.values for row in query]


@pytest.mark.parametrize(
    "data",
    [
        pyoxigraph.Triple(A, P, B),
        Quad(A, P, B),
        (A, P, B),
        [(A, P, B)],
        ((A, P, B), (A, P, B)),
        [pyoxigraph.Triple(A, P, B), Quad(A, P, B)],
        {pyoxigraph.Triple(A, P, B)},
        pyoxigraph.Dataset([Quad(A, P, B)]),
        TRIPLE,
        [TRIPLE],
        (Own(EX + "a"), P, U(EX + "b")),
        [(*TRIPLE, None)],
        graph(TRIPLE),
        dataset(),
        iter([TRIPLE]),
    ],
    ids=lambda data: type(data).__name__,
)
def test_a_triple_in_all_its_forms(data: Any) -> None:
    assert pushed(data) == [(A, P, B)]


@pytest.mark.parametrize(
    ("given", "term"),
    [
        (rdflib.Literal(22.5), Literal("22.5", datatype=NamedNode(str(rdflib.XSD.double)))),
        (rdflib.Literal(3), Literal(3)),
        (rdflib.Literal("drei", lang="DE"), Literal("drei", language="de")),
        (rdflib.Literal("x", datatype=U(EX + "t")), Literal("x", datatype=NamedNode(EX + "t"))),
        (rdflib.Literal("many", datatype=rdflib.XSD.integer), Literal("many", datatype=XSD_INTEGER)),
        (rdflib.Literal('a "b"\n'), Literal('a "b"\n')),
        (rdflib.BNode("b1"), BlankNode("b1")),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_terms_of_rdflib(given: Any, term: Any) -> None:
    assert pushed(graph((*TRIPLE[:2], given))) == [(A, P, term)]


def test_blocks_of_objects() -> None:
    with cqels.Engine() as engine:
        query = engine.register(ALL)
        engine.push(OBS, [graph(TRIPLE), f"<{EX}c> <{EX}p> 1 .", (A, P, Literal(2))], time=["1s", "2s", "3s"])
        assert [row.o for row in query] == [B, Literal(1), Literal(2)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3.5, "data of type float is not taken"),
        (None, "data of type NoneType is not taken"),
        (A, "data of type NamedNode is not taken"),
        ({"@id": EX + "a"}, "data of type dict with an item of type str is not taken"),
        (pandas.DataFrame({"s": [1]}), "data of type DataFrame with an item of type str is not taken"),
        ((EX + "a", EX + "p", 3.5), "data of type tuple with an item of type str is not taken"),
        ([f"<{EX}a> <{EX}p> 1 ."], "data of type list with an item of type str is not taken"),
        ([(EX + "a", EX + "p", 3.5)], "a term of type str is not taken"),
        ([(A, P, 3.5)], "a term of type float is not taken"),
        ([(A, P, None)], "a term of type NoneType is not taken"),
        ([(A, P)], "a tuple of 2 is not a triple"),
        ((U(EX + "a"), U(EX + "p"), rdflib.Variable("v")), "a term of type Variable is not taken"),
        ((U("not an iri"), P, B), "'not an iri' is not a term"),
        ((Literal(1), P, B), "is not a triple"),
        ((A, BlankNode("b"), B), "is not a triple"),
        (pyoxigraph.Triple(A, P, pyoxigraph.Triple(A, P, B)), "a term of type Triple is not taken"),
        (Quad(A, P, B, A), "in the graph <http://ex.org/a>, and an element has no named graphs"),
        (dataset(EX + "g"), "in the graph <http://ex.org/g>, and an element has no named graphs"),
        (rdflib.Graph(), "an element has at least one triple"),
        ([], "an element has at least one triple"),
        ("\udcff", "character 1 of the text is half a character"),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, str) else "",
)
def test_what_is_no_element_is_refused(data: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        pushed(data)


# ---------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("time", "nanoseconds"),
    [
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1970, 1, 1, 0, 0, 1), 10**9),
        (pandas.Timestamp("1970-01-01T00:00:01.000000007Z"), 10**9 + 7),
        (pandas.Timestamp("1970-01-01T00:00:01.000000007"), 10**9 + 7),
        (np.datetime64("1970-01-01T00:00:01.000000007"), 10**9 + 7),
        (np.datetime64("1970-01-02", "D"), 86_400 * 10**9),
        (np.int64(7), 7),
        ("1970-01-01T00:00:01Z", 10**9),
        ("4s", 4 * 10**9),
    ],
)
def test_times(time: Any, nanoseconds: int) -> None:
    with cqels.Engine() as engine:
        query = engine.register(ALL)
        engine.push(OBS, (A, P, B), time=time)
        assert [row.nanoseconds for row in query] == [nanoseconds]


@pytest.mark.parametrize(
    "times",
    [
        [3, 5],
        (3, 5),
        np.array([3, 5]),
        np.array([3, 5], "datetime64[ns]"),
        pandas.Series(pandas.to_datetime([3, 5])),
        pandas.to_datetime([3, 5], utc=True),
        range(3, 6, 2),
    ],
    ids=lambda times: type(times).__name__,
)
def test_times_of_blocks(times: Any) -> None:
    with cqels.Engine() as engine:
        query = engine.register(ALL)
        engine.push(OBS, [(A, P, Literal(number)) for number in range(2)], time=times)
        assert [row.nanoseconds for row in query] == [3, 5]


@pytest.mark.parametrize(
    "time",
    [1794902406.5, timedelta(seconds=4), date(2026, 1, 1), True, b"4s", pandas.NaT, np.datetime64("NaT"), "soon", "4"],
    ids=repr,
)  # fmt: skip
def test_what_is_no_time_is_refused(time: Any) -> None:
    with cqels.Engine() as engine:
        engine.register(ALL)
        uses: list[Callable[[], object]] = [
            lambda: engine.push(OBS, (A, P, B), time=time),
            lambda: engine.push(OBS, [(A, P, B)], time=[time]),
            lambda: engine.heartbeat(time),
            lambda: cqels.Engine(start=time),
        ]
        for use in uses:
            with pytest.raises(cqels.CqelsError):
                use()


# ---------------------------------------------------------------- other arguments


def test_other_arguments_that_are_wrong() -> None:
    with cqels.Engine() as engine:
        query = engine.register(ALL)
        wrong: list[tuple[Callable[[], object], str]] = [
            (lambda: engine.push(5, (A, P, B), time="1s"), "a stream of type int is not taken"),  # type: ignore[arg-type]
            (lambda: engine.push(OBS, (A, P, B)), "the element has no time"),
            (lambda: engine.push(OBS, {"a": 1}), "data of type dict with an item of type str is not taken"),
            (lambda: engine.push(OBS, "text", time=["1s"]), "there is one element and a list of times"),
            (lambda: engine.push(OBS, [(A, P, B)], time=["1s", "2s"]), "there are 1 elements and 2 times"),
            (lambda: engine.register(5), "a query of type int is not taken"),  # type: ignore[arg-type]
            (lambda: engine.register(ALL, callback=5), "a callback of type int is not taken"),  # type: ignore[arg-type]
            (lambda: query.on_result("print"), "a callback of type str is not taken"),  # type: ignore[arg-type]
            (lambda: engine.update(5), "an update of type int is not taken"),  # type: ignore[arg-type]
            (lambda: engine.load(5), "data of type int is not taken"),
            (lambda: engine.stream(EX + "s", lateness=1.5), "a duration of type float is not taken"),  # type: ignore[arg-type]
        ]  # fmt: skip
        for use, said in wrong:
            with pytest.raises(cqels.CqelsError, match=said):
                use()
        assert engine.queries == (query,), "what is refused changes nothing"
        engine.push(NamedNode(OBS), (A, P, B), time=datetime.now(UTC))
        assert len(query.take()) == 1
        engine.stream(EX + "s", lateness=timedelta(seconds=2))


def test_graphs_and_datasets_are_loaded() -> None:
    with cqels.Engine() as engine:
        name = NamedNode(EX + "g")
        assert engine.load(graph(TRIPLE)) == 1
        assert [*engine.internals.store.triples()] == [(A, P, B)]
        assert engine.load(dataset(EX + "g")) == 1
        assert [*engine.internals.store.triples(name)] == [(A, P, B)]
        assert engine.load([(A, P, Literal(1)), (A, P, Literal(2))], graph=EX + "h") == 2
        assert len([*engine.internals.store.triples(NamedNode(EX + "h"))]) == 2
        assert engine.load(pyoxigraph.Dataset([Quad(B, P, A, name)])) == 1
        assert len([*engine.internals.store.triples(name)]) == 2


def test_rdflib_is_not_imported_and_need_not_be_there() -> None:
    code = "import sys; sys.modules['rdflib'] = None; import cqels; from pyoxigraph import NamedNode as N; "
    code += f"e = cqels.Engine(); q = e.register('{ALL}'); e.push('{OBS}', [(N('x:a'), N('x:b'), N('x:c'))], '1s'); "
    code += "print(len(q.take()), cqels.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"1 {cqels.__version__}\n"


def test_a_stream_is_named_as_its_users_name_it() -> None:
    with cqels.Engine() as engine:
        engine.stream(NamedNode(EX + "doors"))
        query = engine.register(ALL)
        names: tuple[Any, ...] = (OBS, f"<{OBS}>", NamedNode(OBS), U(OBS))
        for number, name in enumerate(names):
            engine.push(name, (A, P, Literal(number)), time=number)
            engine.push({name: ([(B, P, Literal(number))], [number])})
            engine.heartbeat(number, name)
        assert len(query.take()) == 8
        with pytest.raises(cqels.CqelsError, match="a stream of type BlankNode is not taken"):
            engine.push(BlankNode("b"), (A, P, B), time=9)  # type: ignore[arg-type]


def test_a_text_may_begin_with_a_byte_order_mark() -> None:
    with cqels.Engine() as engine:
        query = engine.register(ALL)
        engine.push(OBS, "\ufeff<x:a> <x:p> 1 .", time=1)
        engine.push(OBS, b"\xef\xbb\xbf<x:a> <x:p> 2 1 .\n")
        assert len(query.take()) == 2


def test_the_element_of_a_block_that_is_wrong_is_named() -> None:
    with cqels.Engine() as engine:
        query = engine.register(ALL)
        for block in (["<x:a> <x:p> 1 .", "<x:a> <x:p>"], [(A, P, B), (A, P)]):
            with pytest.raises(DataError, match="element 2 of the block: "):
                engine.push(OBS, block, [1, 2])
        assert query.take() == []


WRONG: list[Any] = [b"\xff", 1.5, float("nan"), object(), np.array(5), pandas.DataFrame({"a": [1]}), {}, 1j]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: type(value).__name__)
def test_no_argument_shows_what_is_inside(value: Any) -> None:
    """Each of these gave an AttributeError, a TypeError of Python's, or nothing until it was used."""

    async def callback(result: object) -> None: ...

    with cqels.Engine() as engine:
        query = engine.register(ALL)
        uses: list[Callable[[], Any]] = [
            *(
                lambda name=name: engine.register(ALL, **{name: value})
                for name in ("name", "emit", "policy", "dialect")
            ),
            *(lambda name=name: engine.register(ALL, **{name: value}) for name in ("memory", "time", "callback")),
            *(lambda name=name: engine.stream(EX + "s", **{name: value}) for name in ("lateness", "idle", "clock")),
            *(lambda name=name: cqels.Engine(**{name: value}) for name in ("store", "memory", "size", "now", "reject")),
            *(lambda name=name: cqels.Engine(**{name: [value]}) for name in ("allow_service", "allow_load")),
            lambda: engine.register(ALL, callback=callback),
            lambda: engine.stream(value),
            lambda: engine.load([], graph=value),
            lambda: engine.load("x.ttl", format=value),
            lambda: engine.heartbeat(1, value),
            lambda: engine.snapshot(value),
            lambda: engine.query(value),
            lambda: engine.drop(value),
            lambda: query.explain(value),
        ]
        if not isinstance(value, bytes):
            uses.append(lambda: engine.restore(value))
        for use in uses:
            with pytest.raises(cqels.CqelsError):
                use()
        assert engine.queries == (query,), "what is refused changes nothing"


def test_numbers_that_do_not_fit_are_refused() -> None:
    with cqels.Engine() as engine:
        uses: list[tuple[Callable[[], Any], str]] = [
            (lambda: engine.stream(EX + "s", lateness=-1), "the duration '-1' is negative"),
            (lambda: engine.stream(EX + "s", idle=timedelta(days=-1)), "is negative"),
            (lambda: engine.stream(EX + "s", lateness=2**63), "does not fit in 64 bits"),
            (lambda: engine.register(ALL, memory=10**30), "does not fit in 64 bits"),
            (lambda: engine.register(ALL, time=10**30), "does not fit in 64 bits"),
            (lambda: cqels.Engine(size=10**30), "has no room for that many"),
            (lambda: cqels.Engine(size=7), "needs 1 MB at least"),
            (lambda: engine.load([], graph="no iri"), "graph 'no iri' is not an IRI"),
        ]
        for use, said in uses:
            with pytest.raises(cqels.CqelsError, match=said):
                use()


def test_files_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    with cqels.Engine() as engine, cqels.Engine() as other:
        for use in (engine.snapshot, engine.restore, lambda path: cqels.Engine(memory=path)):
            for path in (tmp_path / "none" / "file", tmp_path, "", "a\0b", "\ud800"):
                with pytest.raises(cqels.CqelsError):
                    use(path)
        assert [*tmp_path.iterdir()] == []
        query = other.register(ALL)
        with pytest.raises(cqels.CqelsError, match="is one of another engine"):
            engine.drop(query)


def test_a_reject_function_that_raises_is_told_of_all() -> None:
    seen: list[str] = []

    def reject(rejected: Any) -> None:
        seen.append(rejected.reason)
        raise RuntimeError(str(len(seen)))

    with cqels.Engine(reject=reject) as engine:
        query = engine.register(ALL)
        with pytest.raises(RuntimeError, match="1"):
            engine.push(OBS, [(A, P, Literal(number)) for number in range(4)], [5, 1, 6, 2])
        assert (len(seen), engine.late, len(query.take())) == (2, 2, 2)
