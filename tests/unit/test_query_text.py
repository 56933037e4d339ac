"""Plans as SPARQL text: what Oxigraph makes of the text is what the plan means, by the reference evaluator."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode, Quad

from cqels.lang.expressions import Aggregate, Call, Constant, Exists, Expression, Var
from cqels.lang.syntax import All, Choice, Count, Inverse, Link, Negated, Repeat, Steps
from cqels.model.terms import XSD_INTEGER, Term
from cqels.model.terms import Triple as RdfTriple
from cqels.plan.algebra import (
    Distinct,
    Extend,
    Filter,
    Graph,
    Group,
    Join,
    LeftJoin,
    Minus,
    OrderBy,
    PathPattern,
    Plan,
    Project,
    Sequence,
    Service,
    Slice,
    Source,
    Stream,
    Triple,
    Triples,
    Union,
    Unit,
    Values,
)
from cqels.plan.scope import visible
from cqels.plan.to_sparql.query_text import NotExpressible, to_opaque_sparql, to_sparql
from cqels.reference.graphs import StampedGraph
from cqels.reference.plan_evaluation import Evaluator, World
from cqels.store.dataset import Store

EX = "http://example.org/"
A, B, C, P, Q, G, H = (NamedNode(EX + name) for name in "abcpqgh")
ONE, SEVEN = Literal("1", datatype=XSD_INTEGER), Literal("007", datatype=XSD_INTEGER)

QUADS = [
    *(Quad(s, p, o) for s, p, o in [(A, P, B), (B, P, C), (A, Q, SEVEN), (B, Q, ONE), (C, P, C), (A, Q, B)]),
    *(Quad(s, p, o, G) for s, p, o in [(A, P, C), (C, P, A), (C, Q, SEVEN)]),
    *(Quad(s, p, o, H) for s, p, o in [(B, P, A), (A, P, C)]),
]


def naive(plan: Plan) -> Counter[tuple[Term | None, ...]]:
    """The plan's solutions over QUADS, by the reference evaluator."""
    graphs: dict[NamedNode | None, list[RdfTriple]] = {}
    for quad in QUADS:
        name = quad.graph_name if isinstance(quad.graph_name, NamedNode) else None
        graphs.setdefault(name, []).append((quad.subject, quad.predicate, quad.object))  # type: ignore[arg-type]
    stamped = {name: StampedGraph((triple, None) for triple in triples) for name, triples in graphs.items()}
    named = {name: graph for name, graph in stamped.items() if name is not None}

    def nowhere(*_: object) -> Any:
        raise AssertionError("there is neither window nor service here")

    found = Evaluator(World(stamped[None], named, (), nowhere, nowhere)).solutions(plan)
    return Counter(tuple(each.bindings.get(name) for name in visible(plan)) for each in found)


# ---------------------------------------------------------------- random plans

X, Y, Z = Var("x"), Var("y"), Var("z")
variables = st.sampled_from([X, Y, Z, Var("_:b0")])
named = st.sampled_from([X, Y, Z])
terms = st.sampled_from([A, B, C, SEVEN, ONE])
nodes = st.one_of(variables, variables, terms)
ends = st.one_of(variables, st.sampled_from([A, C]))  # terms that every graph has
triple = st.builds(Triple, nodes, st.sampled_from([P, Q, Y]), nodes)
links = st.sampled_from([Link(P), Link(Q), Negated((P,), ()), Negated((), ()), Negated((P,), (Q,)), Negated((), (Q,))])
paths = st.recursive(
    links,
    lambda inner: st.one_of(
        st.builds(Inverse, inner),
        st.builds(lambda a, b: Steps((a, b)), inner, inner),
        st.builds(lambda a, b: Choice((a, b)), inner, inner),
        st.builds(lambda path, low, many: Repeat(path, low, many or low == 1), inner, st.integers(0, 1), st.booleans()),
    ),
    max_leaves=3,
)
leaves = st.one_of(
    st.just(Unit()),
    st.builds(lambda *patterns: Triples(patterns), triple),
    st.builds(lambda *patterns: Triples(patterns), triple, triple),
    st.builds(PathPattern, ends, paths, ends),
    st.builds(lambda a, b: Values(("x", "y"), ((a, b), (a, None))), terms, terms),
)
constants = st.builds(Constant, terms)
operands = st.one_of(named, constants)
conditions = st.one_of(
    st.builds(lambda name, a, b: Call(name, (a, b)), st.sampled_from(["EQ", "LT", "SAMETERM"]), operands, operands),
    st.builds(lambda name: Call("BOUND", (name,)), named),
    st.builds(lambda pattern, negated: Exists(Triples((pattern,)), negated), triple, st.booleans()),
)
conditions = st.one_of(
    conditions,
    st.builds(lambda name, a, b: Call(name, (a, b)), st.sampled_from(["AND", "OR"]), conditions, conditions),
)
sums = st.builds(lambda a, b: Call("ADD", (a, b)), operands, operands)
GRAPH_NAMES = st.sampled_from([G, H, C, X, Var("g")])


def projected(plan: Plan, *names: str) -> Plan:
    return Project(plan, tuple(dict.fromkeys(names)))


def extended(plan: Plan, expression: Expression) -> Plan:
    return plan if "new" in visible(plan) else Extend(plan, "new", expression)


def grouped(plan: Plan, keys: tuple[str, ...]) -> Plan:
    return plan if "n" in visible(plan) else Group(plan, tuple(dict.fromkeys(keys)), (("n", Aggregate("COUNT", None)),))


def sliced(plan: Plan, offset: int, ordered: bool) -> Plan:
    keys = ((Call("STR", (X,)), True), (Y, False))
    return Slice(Project(OrderBy(plan, keys, ("x", "y")) if ordered else plan, ("x", "y")), offset, 2)


def bigger(inner: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
    names = st.sampled_from(["x", "y", "z"])
    return st.one_of(
        st.builds(lambda a, b: Join((a, b)), inner, inner),
        st.builds(lambda a, b: Union((a, b)), inner, inner),
        st.builds(LeftJoin, inner, inner, st.one_of(st.none(), conditions)),
        st.builds(Minus, inner, inner),
        st.builds(Filter, inner, conditions),
        st.builds(extended, inner, st.one_of(sums, operands)),
        st.builds(Graph, GRAPH_NAMES, inner),
        st.builds(projected, inner, names, names),
        st.builds(Distinct, st.builds(projected, inner, names)),
        st.builds(grouped, inner, st.tuples(names)),
        st.builds(grouped, inner, st.just(())),
        st.builds(sliced, inner, st.integers(0, 1), st.booleans()),
    )


plans = st.recursive(leaves, bigger, max_leaves=5)


@pytest.fixture(scope="module")
def store() -> Store:
    filled = Store()
    filled.add(QUADS)
    return filled


@settings(max_examples=300, deadline=None)
@given(plan=plans)
def test_store_gives_what_the_plan_means(store: Store, plan: Plan) -> None:
    assert Counter(store.select(plan)) == naive(plan)


# ---------------------------------------------------------------- single cases

TRIPLE = Triples((Triple(X, P, Y),))


def native(plan: Plan, **options: object) -> Counter[tuple[Term | None, ...]]:
    graphs = pyoxigraph.Store()
    graphs.extend(QUADS)
    found = graphs.query(to_sparql(plan, **options))  # type: ignore[arg-type]
    assert isinstance(found, pyoxigraph.QuerySolutions)
    return Counter(tuple(solution) for solution in found)  # type: ignore[arg-type]


def test_native_text_says_the_same_in_plain_sparql(store: Store) -> None:
    age = Triples((Triple(X, Q, Z),))
    number = Filter(LeftJoin(TRIPLE, age, Call("GT", (Z, Constant(ONE)))), Call("NOT", (Call("ISBLANK", (X,)),)))
    counted = Group(number, ("y",), (("n", Aggregate("COUNT", X, distinct=True)),))
    plan = Project(Extend(counted, "m", Call("MULTIPLY", (Var("n"), Var("n")))), ("y", "m"))
    assert native(plan) == Counter(store.select(plan)) == Counter([(B, ONE), (C, Literal(4))])


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Call("IN", (X, Constant(A), Constant(B))), f"(?x IN ({A}, {B}))"),
        (Call("NOT_IN", (X,)), "(?x NOT IN ())"),
        (Call("NEGATE", (X,)), "(- ?x)"),
        (Call("REGEX", (X, Constant(Literal('a"b')))), 'REGEX(?x, "a\\"b")'),
        (Call(EX + "f", (X,)), f"<{EX}f>(?x)"),
        (Exists(TRIPLE, True), f"(NOT EXISTS {{ ?x {P} ?y . }})"),
    ],
)
def test_native_expressions(expression: Expression, text: str) -> None:
    assert to_sparql(Filter(Unit(), expression)) == f"SELECT (1 AS ?hidden0) WHERE {{ {{  }} FILTER({text}) }}"


def test_aggregates_and_order_in_native_text() -> None:
    joined = Aggregate("GROUP_CONCAT", Y, distinct=True, separator=", ")
    plan = Slice(OrderBy(Group(TRIPLE, ("x",), (("all", joined),)), ((X, True),)), 1, 2)
    assert to_sparql(plan) == (
        'SELECT ?x ?all WHERE { SELECT ?x (GROUP_CONCAT(DISTINCT ?y ; SEPARATOR=", ") AS ?all) '
        f"WHERE {{ ?x {P} ?y . }} GROUP BY ?x }} ORDER BY DESC(?x) OFFSET 1 LIMIT 2"
    )


def test_hidden_variables_get_names_that_the_query_does_not_use() -> None:
    plan = Triples((Triple(Var("hidden0"), P, Var("_:b0")), Triple(Var("_:b0"), P, Var("hidden_1"))))
    assert to_sparql(plan) == (
        f"SELECT ?hidden0 ?hidden_1 WHERE {{ ?hidden0 {P} ?hidden__0 . ?hidden__0 {P} ?hidden_1 . }}"
    )


def test_the_base_of_iris_is_declared_in_native_text() -> None:
    iri = Call("RESOLVE", (Var("x"), Constant(NamedNode("http://example.org/dir/"))))
    assert to_sparql(Extend(Unit(), "y", iri)) == (
        "BASE <http://example.org/dir/> SELECT ?y WHERE { {  } BIND(IRI(?x) AS ?y) }"
    )


def test_another_engine_is_trusted_with_paths_of_length_zero() -> None:
    assert to_sparql(PathPattern(C, Repeat(Link(P), 0, True), X)) == f"SELECT ?x WHERE {{ {C} ({P})* ?x . }}"


def test_service_keeps_its_place_in_native_text() -> None:
    assert to_sparql(Service(A, TRIPLE, True)) == f"SELECT ?x ?y WHERE {{ SERVICE SILENT {A} {{ ?x {P} ?y . }} }}"


# ---------------------------------------------------------------- windows


def test_a_stream_variable_ranges_over_the_windows_and_graph_does_not() -> None:
    def windows(_: Stream) -> list[tuple[NamedNode | None, NamedNode]]:
        return [(A, G), (B, H)]

    block = Stream((Source(Var("s"), All()),), TRIPLE)
    assert native(block, windows=windows) == Counter({(A, A, C): 1, (A, C, A): 1, (B, B, A): 1, (B, A, C): 1})
    anywhere = Graph(Var("g"), TRIPLE)
    assert native(anywhere, windows=windows, named_graphs=[H]) == Counter({(H, B, A): 1, (H, A, C): 1})


def test_one_window_is_one_graph_for_exists_too() -> None:
    back = Exists(Triples((Triple(Y, P, X),)), False)
    block = Stream((Source(A, All()), Source(B, All())), Filter(TRIPLE, back))
    assert native(block, windows=lambda _: [(None, G)]) == Counter({(A, C): 1, (C, A): 1})


@pytest.mark.parametrize(
    "plan",
    [
        Stream((Source(A, All()),), TRIPLE, "t"),
        Stream((Source(A, Count(3, "solutions", ("x",))),), TRIPLE),
        Sequence(TRIPLE, TRIPLE, "seq", False),
        Group(TRIPLE, (), (("m", Aggregate("MEDIAN", Y)),)),
        Filter(TRIPLE, Call("TIMESTAMP", (X, X, Y))),
        Values(("x",), ((pyoxigraph.BlankNode("b"),),)),
    ],
)
def test_what_sparql_cannot_say(plan: Plan) -> None:
    with pytest.raises(NotExpressible):
        to_sparql(plan, windows=lambda _: [(None, G)])


def test_opaque_text_has_no_order() -> None:
    with pytest.raises(NotExpressible):
        to_opaque_sparql(Slice(TRIPLE, 0, 1), lambda term: term, named_graphs=[])
