"""Queries that are too deep, too wide or ask for too much: each runs, or is refused with the place of its fault."""

from __future__ import annotations

import inspect
import pickle
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode

from cqels import Engine
from cqels.engine.running_query import fingerprint
from cqels.ingest import Element
from cqels.lang.parser import parse, parse_update
from cqels.model.errors import CqelsError, QueryError
from cqels.model.limits import LONGEST_TEXT, MOST_DIGITS
from cqels.plan.prepare import prepare
from cqels.reference.event_time import StreamSettings
from cqels.reference.reference_engine import Reference
from cqels.store.dataset import Store
from cqels.store.large_stack import is_deep

from ..incremental import Incremental

PREFIX = "PREFIX : <http://ex.org/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "
EX = "http://ex.org/"
STREAM = EX + "s"
WINDOW = "STREAM :s [RANGE 1s] { ?s :p ?v }"
DATA = "".join(f"<http://ex.org/s{number % 3}> <http://ex.org/p> {number} .\n" for number in range(5))


def times(part: str, count: int) -> str:
    """The part so often, with numbers in place of `#`."""
    return " ".join(part.replace("#", str(number)) for number in range(count))


def around(before: str, inner: str, after: str, count: int) -> str:
    return f"{before * count} {inner} {after * count}"


def where(pattern: str) -> str:
    return f"{PREFIX}SELECT ?s ?v WHERE {{ {pattern} }}"


Shape = Callable[[int], str]

NESTED: dict[str, tuple[Shape, int]] = {
    "group": (lambda n: where(around("{", WINDOW, "}", n)), 170),
    "joined group": (lambda n: where(WINDOW + around("{ VALUES ?v { 3 }", "", "}", n)), 170),
    "optional": (lambda n: where(WINDOW + around("OPTIONAL { ?s :q ?o ", "", "}", n)), 100),
    "optional with a condition": (
        lambda n: where(WINDOW + around("OPTIONAL { ?s :q ?o FILTER(?v > 1)", "", "}", n)),
        60,
    ),
    "minus": (lambda n: where(WINDOW + around("MINUS { ?s :q ?o ", "", "}", n)), 100),
    "union": (lambda n: where(WINDOW + around("{ ?s :q ?o } UNION { ", "", "}", n)), 100),
    "sub-select": (lambda n: where(around("{ SELECT ?s ?v WHERE { ", WINDOW, "} }", n)), 88),
    "exists": (lambda n: where(WINDOW + around("FILTER EXISTS { ?s :p ?v ", "", "}", n)), 78),
    "exists in a window": (
        lambda n: where("STREAM :s [RANGE 1s] { ?s :p ?v " + around("FILTER EXISTS { ?s :p ?v ", "", "}", n) + "}"),
        78,
    ),
    "not": (lambda n: where(f"{WINDOW} FILTER({around('!(', '?v > 1', ')', n)})"), 170),
    "function": (lambda n: where(f"{WINDOW} FILTER({around('STR(', '?v', ')', n)} != '1')"), 170),
    "if": (lambda n: where(f"{WINDOW} BIND({around('IF(?v > 1, 2, ', '?v', ')', n)} AS ?x)"), 170),
    "and in or": (lambda n: where(f"{WINDOW} FILTER({around('(?v > 1 || ?v > 3 && ', '?v > 1', ')', n)})"), 58),
    "repeated path": (lambda n: where(f"STREAM :s [RANGE 1s] {{ ?s {'(' * n}:p{')*' * n} ?v }}"), 110),
    "blank nodes": (lambda n: where(f"STREAM :s [RANGE 1s] {{ ?s :p {around('[ :p ', '?v', ']', n)} }}"), 300),
}
"""Queries of so many levels, and a number of levels that has to run."""

CHAINED: dict[str, tuple[Shape, int]] = {
    "bind": (lambda n: where(WINDOW + times("BIND(?v + # AS ?b#)", n)), 230),
    "column": (lambda n: f"{PREFIX}SELECT ?v {times('(?v + # AS ?c#)', n)} WHERE {{ {WINDOW} }}", 230),
    "optional": (lambda n: where(WINDOW + times("OPTIONAL { STREAM :s [NOW] { ?s :q# ?o } }", n)), 230),
    "sum": (lambda n: where(f"{WINDOW} BIND(?v {times('+ #', n)} AS ?x)"), 170),
    "product": (lambda n: where(f"{WINDOW} FILTER(?v {'* 1 ' * n} > 2)"), 170),
    "sequence": (
        lambda n: f"{PREFIX}SELECT * WHERE {{ {' SEQ '.join(['{ STREAM :s [NOW] { ?s :p ?v } }'] * n)} }}",
        230,
    ),
    "order": (lambda n: where(WINDOW) + " ORDER BY " + times("(?v + #)", n) + " LIMIT 2", 230),
}
"""Queries with so many parts in a row that come to stand inside one another, and a number of them that has to run."""

WIDE: dict[str, str] = {
    "and": where(f"{WINDOW} FILTER({' && '.join(f'?v != {n + 10}' for n in range(3_000))})"),
    "or": where(f"{WINDOW} FILTER({' || '.join(f'?v = {n}' for n in range(3_000))})"),
    "filter": where(WINDOW + times("FILTER(?v != 10#)", 2_000)),
    "static and": where(f"{WINDOW} ?s :q ?w FILTER({' && '.join(f'?w != {n}' for n in range(2_000))})"),
    "union of static patterns": where(f"{WINDOW} {' UNION '.join(f'{{ ?s :q{n} ?o }}' for n in range(2_000))}"),
    "union of windows": where(" UNION ".join(["{ " + WINDOW + " }"] * 100)),
    "static patterns": where(f"{WINDOW} OPTIONAL {{ {times('?s :q# ?o# .', 300)} }}"),
    "joined windows": where(WINDOW + times("STREAM :s [RANGE 1#s] { ?s :p ?v }", 60)),
    "in": where(f"{WINDOW} FILTER(?v IN ({', '.join(map(str, range(5_000)))}))"),
    "exists": where(f"{WINDOW} FILTER({' || '.join(f'EXISTS {{ ?s :q{n} ?o }}' for n in range(300))} || ?v < 9)"),
    "alternative path": where(f"STREAM :s [RANGE 1s] {{ ?s ({'|'.join([':p'] * 500)})+ ?v }}"),
}
"""Queries that are large, and not deep."""


def rows(text: str) -> list[str]:
    with Engine() as engine:
        query = engine.register(text)
        engine.push(STREAM, DATA, time=0)
        found = sorted(str(result.values) for result in query.take())
        query.explain()
        return found


def sent(text: str) -> None:
    """What becomes of a query that is sent to a worker, or compared with the one of a snapshot."""
    query = prepare(text)
    assert pickle.loads(pickle.dumps(query)) == query
    assert hash(query) == hash(prepare(text))
    assert fingerprint(query)


def with_stack(frames: int, call: Callable[[], object]) -> None:
    """Make a call with so many frames of Python's stack left."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + frames)
    try:
        call()
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("shape", [*NESTED, *(f"many: {name}" for name in CHAINED)])
def test_a_deep_query_runs_or_is_refused_where_it_becomes_too_deep(shape: str) -> None:
    made, most = CHAINED[shape.removeprefix("many: ")] if shape.startswith("many: ") else NESTED[shape]
    with_stack(880, lambda: rows(made(most)))
    with_stack(880, lambda: sent(made(most)))
    for count in (most * 3, 5_000):
        with pytest.raises(QueryError, match="nested too deeply") as refused:
            parse(made(count))
        assert refused.value.span is not None
        assert refused.value.span.start > len(PREFIX)


@pytest.mark.parametrize("shape", WIDE)
def test_a_wide_query_needs_no_deep_stack(shape: str) -> None:
    rows("SELECT * { STREAM <http://ex.org/s> [NOW] { ?s ?p ?o } }")  # what is imported on the way needs some too
    with_stack(300, lambda: rows(WIDE[shape]))


def test_a_wide_query_has_the_results_of_a_narrow_one() -> None:
    plain = rows(where(WINDOW))
    assert rows(WIDE["and"]) == rows(WIDE["or"]) == rows(WIDE["filter"]) == rows(WIDE["in"]) == plain
    assert rows(WIDE["union of windows"]) == sorted(plain * 100)
    assert rows(WIDE["static patterns"]) == plain
    assert rows(WIDE["joined windows"]) == plain


def test_static_patterns_beyond_what_oxigraph_orders_at_once_are_all_joined() -> None:
    count = 100
    with Engine() as engine:
        engine.update(PREFIX + f"INSERT DATA {{ {times(':s0 :q# # .', count)} }}")
        query = engine.register(
            f"{PREFIX}SELECT ?o0 ?o{count - 1} WHERE {{ {WINDOW} {times('?s :q# ?o# .', count)} FILTER(?o7 = 7) }}"
        )
        engine.push(STREAM, "<http://ex.org/s0> <http://ex.org/p> 1 .", time=0)
        assert [tuple(term and term.value for term in result.values) for result in query.take()] == [
            ("0", str(count - 1))
        ]


def test_a_deep_query_runs_in_a_thread_with_a_small_stack() -> None:
    text = where(WINDOW + around("{ SELECT DISTINCT ?s WHERE { ?s :q ?w ", "", "} }", 60))
    with Engine() as engine:
        assert "Static" in engine.register(text).explain()
    outcome: list[object] = []
    before = threading.stack_size(512 << 10)
    try:
        thread = threading.Thread(target=lambda: outcome.append(rows(text)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert outcome == [[]]
    assert is_deep("{" * 30 + "}" * 30)
    assert not is_deep("{ } " * 30)


def test_a_query_has_so_many_windows_and_no_more() -> None:
    text = where(" UNION ".join(["{ " + WINDOW + " }"] * 1_001))
    with pytest.raises(QueryError, match="more than 1,000 windows") as refused:
        prepare(text)
    assert refused.value.span is not None
    assert text[: refused.value.span.start].count("STREAM") == 1_001


def test_an_update_is_refused_as_a_query_is() -> None:
    text = f"{PREFIX}DELETE {{ ?s :p ?o }} WHERE {{ {around('{', '?s :p ?o', '}', 400)} }}"
    with pytest.raises(QueryError, match="nested too deeply"):
        parse_update(text)


# ---------------------------------------------------------------- numbers in the text


@pytest.mark.parametrize(
    "text",
    [
        f"{where(WINDOW)} LIMIT {2**63}",
        f"{where(WINDOW)} LIMIT {'9' * 5_000}",
        f"{where(WINDOW)} OFFSET {2**64}",
        *(
            where(f"STREAM :s [{window}] {{ ?s :p ?v }}")
            for window in (
                f"TRIPLES {2**63}",
                f"ELEMENTS {2**64 + 1}",
                f"PARTITION BY ?s TRIPLES {2**63}",
                "RANGE 106752d",
                "RANGE 1000000d",
                "RANGE 106751d 24h",
                f"RANGE {'9' * 5_000}s",
                "RANGE 1s SLIDE 1000000d",
            )
        ),
        f"{PREFIX}SELECT * FROM NAMED WINDOW :w ON :s [RANGE {2**63} STEP 5] WHERE {{ WINDOW :w {{ ?s :p ?v }} }}",
    ],
)
def test_a_number_beyond_64_bits_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(QueryError, match="does not fit in 64 bits") as refused:
        parse(text)
    assert refused.value.span is not None


@pytest.mark.parametrize(
    "window",
    [f"TRIPLES {2**63 - 1}", f"ELEMENTS {2**63 - 1}", f"PARTITION BY ?s TRIPLES {2**63 - 1}", "RANGE 106751d", "ALL"],
)
def test_the_largest_windows_hold_everything(window: str) -> None:
    with Engine() as engine:
        query = engine.register(where(f"STREAM :s [{window}] {{ ?s :p ?v }}"))
        for time in (-(2**63), -(2**63) + 1, 0):
            engine.push(STREAM, f"<http://ex.org/a> <http://ex.org/p> {time} .", time=time)
        assert len(query.take()) == 3


@pytest.mark.parametrize("window", ["RANGE 1s", "RANGE 106751d", "NOW", "RANGE 1ns"])
@pytest.mark.parametrize("times", [[-(2**63), -(2**63) + 1, 0], [-(2**63) + 1, 2**63 - 1], [2**63 - 2, 2**63 - 1]])
def test_windows_at_both_ends_of_time_are_those_of_the_reference(window: str, times: list[int]) -> None:
    query = prepare(where(f"STREAM :s [{window}] {{ ?s :p ?v }}"), emit="changes")
    subject, predicate = NamedNode(EX + "a"), NamedNode(EX + "p")
    elements = [Element(STREAM, time, ((subject, predicate, Literal(at)),)) for at, time in enumerate(times)]
    found = []
    for engine in (Incremental(Store(), [StreamSettings(STREAM)]), Reference(Store(), [StreamSettings(STREAM)])):
        registered = engine.register(query)
        for element in elements:
            engine.push(element)
        found.append([(result.time, result.sign, result.values) for result in registered.take()])
    assert found[0] == found[1]
    assert found[0]


def test_the_largest_limit_and_offset() -> None:
    assert rows(f"{where(WINDOW)} ORDER BY ?v LIMIT {2**63 - 1}") == rows(f"{where(WINDOW)} ORDER BY ?v LIMIT 100")
    assert rows(f"{where(WINDOW)} ORDER BY ?v LIMIT {2**63 - 1} OFFSET {2**63 - 1}") == []


def test_what_select_aggregates_makes_no_groups() -> None:
    for text in ("(COUNT(*) AS ?c)", "(COUNT(*) + 1 AS ?c)"):
        with pytest.raises(QueryError, match=r"\?c is what SELECT computes from each group"):
            rows(f"{PREFIX}SELECT {text} WHERE {{ {WINDOW} }} GROUP BY ?c")
    with pytest.raises(QueryError, match="has a value already"):
        rows(f"{PREFIX}SELECT (SUM(?v) AS ?c) WHERE {{ {WINDOW} }} GROUP BY (?s AS ?c)")


# ---------------------------------------------------------------- values that grow


def doubled(first: str, step: str, count: int) -> str:
    binds = " ".join(f"BIND({step.replace('#', f'?b{number}')} AS ?b{number + 1})" for number in range(count))
    return f"BIND({first} AS ?b0) {binds}"


@pytest.mark.parametrize(
    ("first", "step", "most"),
    [
        ("'ab'", "CONCAT(#, #)", LONGEST_TEXT.bit_length() - 2),
        ("'ab'", "REPLACE(#, '(.)', '$1$1')", LONGEST_TEXT.bit_length() - 2),
        ("'%'", "ENCODE_FOR_URI(CONCAT(#, #))", 7),
        ("10", "# * #", MOST_DIGITS.bit_length() - 1),
        ("0.1", "# * #", MOST_DIGITS.bit_length() - 1),
    ],
)
def test_a_value_that_grows_has_an_end(first: str, step: str, most: int) -> None:
    """An error of the expression, as SPARQL has them: the variable stays unbound, and all that is computed of it."""
    selected = f"(BOUND(?b{most}) AS ?small) (BOUND(?b34) AS ?large)"
    text = f"{PREFIX}SELECT {selected} WHERE {{ {WINDOW} {doubled(first, step, 34)} }}"
    with Engine() as engine:
        query = engine.register(text)
        engine.push(STREAM, "<http://ex.org/a> <http://ex.org/p> 1 .", time=0)
        assert [tuple(term and term.value for term in result.values) for result in query.take()] == [("true", "false")]


def test_a_literal_longer_than_any_number_is_none() -> None:
    text = where(f"{WINDOW} BIND(xsd:integer('{'9' * 30_000}') AS ?x) FILTER(!BOUND(?x))")
    assert len(rows(text)) == 5
    assert len(rows(where(f"{WINDOW} FILTER(?v != {'9' * 6_000})"))) == 5


# ---------------------------------------------------------------- random ones


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str]:
    """The same condition twice: as one flat chain, and bracketed at random."""
    sign = draw(st.sampled_from(["&&", "||"]))
    tests = draw(
        st.lists(
            st.builds(
                "?{} {} {}".format, st.sampled_from("vw"), st.sampled_from(["<", "=", "!=", ">"]), st.integers(0, 4)
            ),
            min_size=2,
            max_size=40,
        )
    )
    parts = list(tests)
    while len(parts) > 1:
        place = draw(st.integers(0, len(parts) - 2))
        parts[place : place + 2] = [f"({parts[place]} {sign} {parts[place + 1]})"]
    return f" {sign} ".join(tests), parts[0]


@given(conditions())
@settings(max_examples=25, deadline=None)
def test_brackets_make_no_difference_to_a_chain(condition: tuple[str, str]) -> None:
    flat, nested = condition
    pattern = WINDOW + "OPTIONAL { STREAM :s [RANGE 1s] { ?s :p ?w FILTER(?w > 1) } }"
    assert rows(where(f"{pattern} FILTER({flat})")) == rows(where(f"{pattern} FILTER({nested})"))


# ---------------------------------------------------------------- full size


@pytest.mark.fuzz
@pytest.mark.parametrize("count", [1_000, 10_000, 20_000])
@pytest.mark.parametrize("shape", [*NESTED, *(f"many: {name}" for name in CHAINED)])
def test_deep_queries_of_any_size_run_or_are_refused(shape: str, count: int) -> None:
    made, _ = CHAINED[shape.removeprefix("many: ")] if shape.startswith("many: ") else NESTED[shape]
    with pytest.raises(CqelsError, match=r"nested too deeply|characters long"):
        rows(made(count))


@pytest.mark.fuzz
@pytest.mark.parametrize(
    "text",
    [
        where(f"{WINDOW} FILTER({' && '.join(f'?v != {n + 10}' for n in range(10_000))})"),
        where(f"{WINDOW} {' UNION '.join(f'{{ ?s :q{n} ?o }}' for n in range(10_000))}"),
        where(" UNION ".join(["{ " + WINDOW + " }"] * 1_000)),
        where(WINDOW + times("STREAM :s [RANGE 1s] { ?s :p# ?v# }", 300)),
        where(f"{WINDOW} FILTER(?v IN ({', '.join(map(str, range(20_000)))}))"),
        where(f"{WINDOW} VALUES ?v {{ {' '.join(map(str, range(20_000)))} }}"),
    ],
)
def test_wide_queries_of_full_size_run(text: str) -> None:
    rows(text)
