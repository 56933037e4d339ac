"""The static dataset: exact literals, changes and their notices, datasets, order, tables and updates."""

from __future__ import annotations

from pathlib import Path

import pyoxigraph
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode, Quad

from cqels.lang.expressions import Aggregate, Call, Constant, Exists, Var
from cqels.lang.syntax import Link, Repeat
from cqels.model.dictionary import Dictionary, decode
from cqels.model.errors import CqelsError, DataError
from cqels.model.terms import XSD, XSD_INTEGER, Term
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Graph,
    Group,
    Join,
    LeftJoin,
    OrderBy,
    PathPattern,
    Plan,
    Project,
    Service,
    Slice,
    Triple,
    Triples,
    Union,
    Unit,
    Values,
)
from cqels.plan.functions import Context
from cqels.store import update
from cqels.store.dataset import Store
from cqels.store.dependencies import ANY, GraphName, graphs_of
from cqels.store.exact_literals import protect, reveal
from cqels.store.id_table import materialise
from cqels.store.update import QuadTemplate

EX = "http://example.org/"
A, B, C, P, Q, G, H = (NamedNode(EX + name) for name in "abcpqgh")
X, Y, Z = Var("x"), Var("y"), Var("z")
EDGES = Triples((Triple(X, P, Y),))


def integer(text: str | int) -> Literal:
    return Literal(str(text), datatype=XSD_INTEGER)


def filled(*quads: Quad) -> Store:
    store = Store()
    store.add(quads)
    return store


# ---------------------------------------------------------------- exact literals

TYPES = [
    *("string", "boolean", "integer", "decimal", "float", "double", "byte", "short", "int", "long", "unsignedByte"),
    *("unsignedShort", "unsignedInt", "unsignedLong", "positiveInteger", "negativeInteger", "nonNegativeInteger"),
    *("nonPositiveInteger", "dateTime", "dateTimeStamp", "date", "time", "gYear", "gYearMonth", "gMonth", "gMonthDay"),
    *("gDay", "duration", "yearMonthDuration", "dayTimeDuration", "anyURI", "hexBinary", "base64Binary", "token"),
]
digits = st.text("0123456789", max_size=22)
numbers = st.builds(
    lambda sign, whole, dot, part, exponent: sign + whole + dot + part + exponent,
    st.sampled_from(["", "-", "+"]),
    digits,
    st.sampled_from(["", "."]),
    digits,
    st.sampled_from(["", "", "e0", "E5", "E-7"]),
)
dates = st.builds(
    lambda year, month, day: f"{year}-{month:02}-{day:02}",
    st.sampled_from(["2024", "0000", "0001", "-0044", "12024", "1999"]),
    st.integers(0, 13),
    st.integers(0, 32),
)
times = st.builds(
    lambda hour, second, part: f"{hour:02}:00:{second:02}{part}",
    st.integers(0, 25),
    st.integers(0, 61),
    st.sampled_from(["", ".0", ".5", ".120", ".000000001", ".1234567890123456789"]),
)
zones = st.sampled_from(["", "Z", "+00:00", "-00:00", "+01:00", "-14:00", "+14:30"])
moments = st.one_of(
    st.builds("{}T{}{}".format, dates, times, zones), st.builds("{}{}".format, st.one_of(dates, times), zones)
)
durations = st.sampled_from(
    ["P1Y", "P12M", "P0Y", "P0M", "PT0S", "-PT0S", "PT60S", "PT1M", "PT24H", "P1DT2H", "PT1.50S", "P1Y0M", "-P1D", "P"]
)
odd = st.sampled_from(["true", "false", "1", "0", "TRUE", "INF", "-INF", "+INF", "NaN", "", " 7", "7 ", "٣", "--02-29"])
literals = st.builds(
    lambda text, name: Literal(text, datatype=NamedNode(XSD + name)),
    st.one_of(numbers, moments, durations, odd, st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    st.sampled_from(TYPES),
)


@settings(max_examples=2_000, deadline=None)
@given(literal=literals)
@example(literal=Literal("x", datatype=protect(integer("007")).datatype))  # type: ignore[union-attr]
@example(literal=Literal("", datatype=NamedNode("http://cqels.org/exact#unbound")))
def test_a_literal_comes_back_to_the_letter(literal: Literal) -> None:
    graphs = pyoxigraph.Store()
    graphs.add(Quad(A, P, protect(literal)))
    (quad,) = graphs
    assert isinstance(quad.object, Literal)
    assert reveal(quad.object) == literal
    (row,) = graphs.query(f"SELECT ?v {{ VALUES ?v {{ {protect(literal)} }} {A} {P} ?v }}")
    assert row["v"] == quad.object


def test_plain_values_are_not_wrapped() -> None:
    for text, name in [
        ("7", "integer"),
        ("-1.5", "decimal"),
        ("0.1", "double"),
        ("2024-02-29T10:00:00.5Z", "dateTime"),
    ]:
        literal = Literal(text, datatype=NamedNode(XSD + name))
        assert protect(literal) is literal


def test_terms_join_by_their_text_and_compare_by_value() -> None:
    store = filled(Quad(A, P, integer("007")), Quad(B, P, integer("7")), Quad(C, Q, integer("007")))
    joined = Join((Triples((Triple(X, P, Y),)), Triples((Triple(Z, Q, Y),))))
    assert list(store.select(joined)) == [(A, integer("007"), C)]
    equal = Filter(EDGES, Call("EQ", (Y, Constant(integer("7")))))
    assert set(store.select(equal)) == {(A, integer("007")), (B, integer("7"))}
    assert list(store.select(Triples((Triple(X, P, integer("007")),)))) == [(A,)]


# ---------------------------------------------------------------- changes and notices


def test_changes_are_told_once_and_only_where_something_changed() -> None:
    store, told = Store(), list[frozenset[GraphName]]()
    end = store.subscribe(told.append, graphs=[None])
    store.add([Quad(A, P, B), Quad(A, P, B, G)])
    store.add([Quad(A, P, B)])  # it is there
    store.remove([Quad(A, P, C)])  # it is not
    store.add([Quad(A, P, C, G)])  # another graph
    store.change([Quad(A, P, B)], [Quad(A, P, B)])
    assert told == [frozenset({None, G})]
    assert (store.version(None), store.version(G), store.version(ANY)) == (1, 2, 2)
    end()
    store.remove([Quad(A, P, B)])
    assert len(told) == 1
    assert store.named_graphs() == (G,)
    assert len(store) == 2


def test_a_failed_transaction_leaves_no_trace() -> None:
    store, told = filled(Quad(A, P, BlankNode("n")), Quad(A, P, B, G)), list[frozenset[GraphName]]()
    store.subscribe(told.append)
    before = set(store.triples()), set(store.triples(G))

    def fail() -> None:
        with store.transaction():
            store.change([Quad(*triple) for triple in store.triples()], [Quad(B, P, B, H)])
            store.clear_graph(G, drop=True)
            store.create_graph(C)
            store.add([Quad(A, P, B, BlankNode())])

    with pytest.raises(DataError):
        fail()
    assert (set(store.triples()), set(store.triples(G)), set(store.triples(H))) == (*before, set())
    assert store.has_graph(G)
    assert not store.has_graph(C)
    assert told == []
    assert store.version(G) == 1


def test_load_and_a_store_on_disk(tmp_path: Path) -> None:
    (tmp_path / "data.ttl").write_text('<urn:a> <urn:p> 007, "x", 007 .')
    store = Store(tmp_path / "store")
    assert store.load(tmp_path / "data.ttl", G) == 3
    assert {value for _, _, value in store.triples(G)} == {integer("007"), Literal("x")}
    assert len(store) == 2
    with pytest.raises(CqelsError, match="does not open"):
        Store(tmp_path / "data.ttl")


@pytest.mark.parametrize("before", [[], [Quad(A, P, B), Quad(C, P, B, G)]])
def test_a_large_file_is_loaded_as_a_whole_or_not_at_all(
    before: list[Quad], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqels.store.dataset._PART", 2)
    lines = [f"<{EX}{name}> <{EX}p> <{EX}b> <{EX}{graph}> ." for name in "abcab" for graph in "gh"]
    lines += [f"<{EX}{name}> <{EX}p> <{EX}b> ." for name in "abc"]
    (tmp_path / "whole.nq").write_text("\n".join(lines))
    (tmp_path / "broken.nq").write_text("\n".join([*lines, "<"]))
    store, told = filled(*before), list[frozenset[GraphName]]()
    store.subscribe(told.append)
    with pytest.raises(DataError):
        store.load(tmp_path / "broken.nq")
    assert {*(Quad(*each) for each in store.triples()), *(Quad(*each, G) for each in store.triples(G))} == set(before)
    assert told == []
    assert not store.has_graph(H)
    assert store.load(tmp_path / "whole.nq") == 13
    assert len(store) == 9
    assert told == [frozenset({None, G, H})]


# ---------------------------------------------------------------- datasets


def test_from_merges_graphs_and_from_named_names_them() -> None:
    store = filled(Quad(A, P, B, G), Quad(A, P, B, H), Quad(B, P, C, H), Quad(C, P, C))
    assert sorted(map(str, store.select(EDGES, default_graphs=[G, H]))) == sorted(map(str, [(A, B), (B, C)]))
    assert list(store.select(EDGES, default_graphs=[G])) == [(A, B)]
    assert list(store.select(EDGES, named_graphs=[H])) == list(store.select(EDGES)), (
        "FROM NAMED alone keeps the default graph"
    )
    assert list(store.select(EDGES, default_graphs=[], named_graphs=[H])) == []
    anywhere = Graph(Z, Project(EDGES, ("x",)))
    assert set(store.select(anywhere, named_graphs=[H])) == {(H, A), (H, B)}
    assert list(store.select(Graph(Z, Unit()), default_graphs=[G, H], named_graphs=[A])) == [(A,)]
    store.add([Quad(C, P, A, G)])
    assert len(list(store.select(EDGES, default_graphs=[G, H]))) == 3
    assert set(store.select(EDGES, graph=H)) == {(A, B), (B, C)}
    assert list(store.select(EDGES, graph=A)) == []


def test_the_graphs_of_a_plan() -> None:
    test = Exists(Graph(Var("g"), Triples((Triple(Y, P, Z),))), False)
    plan = Union((Filter(EDGES, test), Graph(G, Unit()), Service(A, EDGES, False)))
    assert graphs_of(plan) == {None, G, ANY}
    assert graphs_of(plan, default_graphs=[A, B], named_graphs=[H]) == {A, B, H}
    assert graphs_of(EDGES, H) == {H}


# ---------------------------------------------------------------- order, groups, draws


def test_order_is_by_value_then_by_text() -> None:
    rows = [(integer(text),) for text in ("10", "9", "009", "9")]
    values = Values(("x",), (*rows, (Literal("a"),), (A,), (None,), (BlankNode("b"),)))
    ordered = [row[0] for row in Store().select(OrderBy(values, ((X, False),), ("x",)))]
    expected = [None, BlankNode("b"), A, integer("009"), integer("9"), integer("9"), integer("10"), Literal("a")]
    assert ordered == expected
    top = Slice(Distinct(Project(OrderBy(values, ((X, True),), ("x",)), ("x",))), 1, 2)
    assert list(Store().select(top)) == [(integer("10"),), (integer("009"),)]
    assert list(Store().select(Slice(values, 0, 3))) == [(None,), (integer("009"),), (integer("10"),)]


def test_limits_inside_of_patterns_hold_in_each_graph() -> None:
    node = BlankNode("n")
    store = filled(Quad(A, P, node, G), Quad(B, P, node, G), Quad(C, P, B, H), Quad(node, Q, A))
    first = Slice(OrderBy(EDGES, ((Call("STR", (X,)), True),)), 0, 1)
    assert set(store.select(Graph(Z, first))) == {(G, B, node), (H, C, B)}
    joined = Join((Graph(G, first), Triples((Triple(Y, Q, Z),))))
    assert list(store.select(joined, ("x", "y", "z"))) == [(B, node, A)]  # a blank node passes through the table
    tested = Filter(Triples((Triple(Y, Q, Z),)), Exists(Graph(G, first), True))
    assert list(store.select(tested)) == []


def test_order_by_exists_and_by_hidden_variables() -> None:
    store = filled(Quad(A, P, B), Quad(B, P, C), Quad(B, Q, A))
    counted = Extend(EDGES, "_:k", Call("STR", (Y,)))
    plan = Slice(
        Project(OrderBy(counted, ((Exists(Triples((Triple(X, Q, Z),)), False), True), (Var("_:k"), False))), ("x",)),
        0,
        9,
    )
    assert list(store.select(plan)) == [(B,), (A,)]
    store.add([Quad(*triple, G) for triple in store.triples()])
    assert list(store.select(plan, graph=G)) == [(B,), (A,)]


def test_exact_aggregates() -> None:
    store = filled(*(Quad(A, P, value) for value in map(integer, ("010", "9", "2"))), Quad(B, P, Literal("x")))

    def one(name: str, argument: Var | Call | None, **options: object) -> set[tuple[Term | None, ...]]:
        node = Aggregate(name, argument, **options)  # type: ignore[arg-type]
        return set(store.select(Group(EDGES, ("x",), (("n", node),))))

    assert one("SUM", Y) == {(A, integer(21)), (B, None)}
    assert one("MAX", Y) == {(A, integer("010")), (B, Literal("x"))}
    assert one("MEDIAN", Y) == {(A, integer(9)), (B, None)}
    assert one("COUNT", None, distinct=True) == {(A, integer(3)), (B, integer(1))}
    assert one("GROUP_CONCAT", Y, separator="|") == {(A, Literal("010|2|9")), (B, Literal("x"))}
    assert one("COUNT", Call("ADD", (Y, Y))) == {(A, integer(3)), (B, integer(0))}
    empty = Group(Triples((Triple(X, Q, Y),)), (), (("n", Aggregate("SUM", Y)),))
    assert list(store.select(empty)) == [(integer(0),)]
    assert list(store.select(Group(Unit(), (), ()))) == [()]


def test_draws_are_one_for_each_solution() -> None:
    store = filled(Quad(A, P, B), Quad(B, P, C))
    label = Call("BNODE", (Constant(Literal("n")),))
    rows = list(store.select(Extend(Extend(EDGES, "m", label), "n", label), ("m", "n"), context=Context(seed="s")))
    assert len(set(rows)) == 2
    assert all(m == n and isinstance(m, BlankNode) for m, n in rows)


def test_a_fault_of_ours_is_not_an_error_of_the_expression() -> None:
    with pytest.raises(TypeError):
        list(filled(Quad(A, P, B)).select(Filter(EDGES, Call("NO SUCH FUNCTION", (X,)))))


def test_a_path_of_length_zero_needs_no_graph() -> None:
    anywhere = PathPattern(C, Repeat(Link(P), 0, True), X)
    assert list(filled(Quad(A, P, B)).select(anywhere)) == [(C,)]
    assert set(filled(Quad(C, P, B)).select(anywhere)) == {(C,), (B,)}


# ---------------------------------------------------------------- tables


def test_a_table_of_ids_knows_when_it_is_stale() -> None:
    store, dictionary = filled(Quad(A, P, integer("007")), Quad(B, P, C), Quad(A, Q, B)), Dictionary()
    plan: Plan = LeftJoin(EDGES, Triples((Triple(X, Q, Z),)), None)
    table = materialise(store, plan, None, dictionary)
    decoded = {tuple(decode(int(word), dictionary) for word in row) for row in table.rows}
    assert decoded == {(A, integer("007"), B), (B, C, None)}
    assert table.variables == ("x", "y", "z")
    assert table.graphs == {None}
    store.add([Quad(A, P, B, G)])
    assert not table.stale(store)
    store.remove([Quad(B, P, C)])
    assert table.stale(store)
    assert materialise(store, Triples((Triple(C, P, X),)), ("x", "y"), dictionary).rows.shape == (0, 2)
    assert materialise(store, Values((), ((), ())), None, dictionary).rows.shape == (2, 0)


# ---------------------------------------------------------------- updates


def test_modify_deletes_first_and_skips_what_is_no_triple() -> None:
    store = filled(Quad(A, P, BlankNode("n")), Quad(B, P, Literal("x")))
    told = list[frozenset[GraphName]]()
    store.subscribe(told.append)
    rows: list[dict[str, Term | None]] = [
        dict(zip(("x", "y"), row, strict=True)) for row in store.select(EDGES, ("x", "y"))
    ]
    insert = [
        QuadTemplate(X, Q, Y, G),
        QuadTemplate(Y, P, X),  # a literal is no subject
        QuadTemplate(X, P, Var("nobody")),
        QuadTemplate(Var("_:new"), P, X),
        QuadTemplate(Var("_:new"), Q, integer("007")),
    ]
    update.modify(store, [QuadTemplate(X, P, Y)], insert, rows)
    assert set(store.triples(G)) == {(A, Q, BlankNode("n")), (B, Q, Literal("x"))}
    fresh = {subject for subject, predicate, _ in store.triples() if predicate == Q}
    assert {(s, o) for s, p, o in store.triples() if p == P} - {(s, o) for s in fresh for o in (A, B)} == {
        (BlankNode("n"), A)
    }
    assert len(fresh) == 2
    assert {value for _, predicate, value in store.triples() if predicate == Q} == {integer("007")}
    assert told == [frozenset({None, G})]


def test_graph_management() -> None:
    store = filled(Quad(A, P, BlankNode("n"), G), Quad(A, P, integer("01")), Quad(A, P, C, H))
    update.copy(store, G, H)
    assert list(store.triples(H)) == [(A, P, BlankNode("n"))]
    update.add(store, None, H)
    assert set(store.triples(H)) == {(A, P, BlankNode("n")), (A, P, integer("01"))}
    update.move(store, H, B)
    assert store.named_graphs() == (B, G)
    assert len(list(store.triples(B))) == 2
    update.clear(store, [None, G])
    assert list(store.triples()) == list(store.triples(G)) == []
    update.drop(store, [G])
    update.create(store, C)
    assert store.named_graphs() == (B, C)
    version = store.version(ANY)
    update.drop(store, [G], silent=True)
    update.create(store, C, silent=True)
    update.move(store, C, C)
    assert store.version(ANY) == version
    for refused in (
        lambda: update.drop(store, [B, G]),
        lambda: update.create(store, C),
        lambda: update.copy(store, G, B),
    ):
        with pytest.raises(CqelsError, match="exist"):
            refused()
    assert store.named_graphs() == (B, C)


def test_data_operations(tmp_path: Path) -> None:
    store = Store()
    update.insert_data(store, [QuadTemplate(A, P, integer("01")), QuadTemplate(BlankNode("b"), P, BlankNode("b"), G)])
    ((subject, _, value),) = store.triples(G)
    assert subject == value != BlankNode("b")
    update.delete_data(store, [QuadTemplate(A, P, integer("1"))])
    assert len(store) == 2
    update.delete_data(store, [QuadTemplate(A, P, integer("01"))])
    assert list(store.triples()) == []
    assert update.load(store, tmp_path / "none.ttl", silent=True) == 0
    with pytest.raises(DataError):
        update.load(store, tmp_path / "none.ttl")
