"""Words of terms: the round trip, and that words compare as their terms do."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import (
    BaseDirection,
    BlankNode,
    Literal,
    NamedNode,
    QueryResultsFormat,
    QuerySolutions,
    RdfFormat,
    parse,
    parse_query_results,
)

from cqels.model.dictionary import Dictionary, compare_ids, decode, encode, order_ids, register, same_value
from cqels.model.ids import UNBOUND, Register, Tag, double_bits
from cqels.model.terms import XSD, Term
from cqels.model.values import ExpressionError, compare, equal, literal_of, order, value_of

SUITES = Path(__file__).parents[3] / "shared" / "suites" / "w3c"


def typed(text: str, name: str) -> Literal:
    return Literal(text, datatype=NamedNode(XSD + name))


def answer(function: Callable[..., object], *arguments: object) -> object:
    try:
        return function(*arguments)
    except ExpressionError:
        return ExpressionError


def check_round_trip(terms: list[Term], dictionary: Dictionary) -> list[int]:
    """Equal words for equal terms, 64 bits each, and the exact text back."""
    words = [encode(term, dictionary) for term in terms]
    assert np.array(words, np.int64).tolist() == words
    assert [encode(term, dictionary) for term in terms] == words
    for term, word in zip(terms, words, strict=True):
        back = decode(word, dictionary)
        assert back == term
        assert str(back) == str(term)
    return words


def check_pair(a: Term, b: Term, dictionary: Dictionary) -> None:
    """The words of two terms compare as the terms do."""
    first, second = encode(a, dictionary), encode(b, dictionary)
    assert (first == second) == (a == b)
    assert answer(same_value, first, second, dictionary) == answer(equal, a, b), (a, b)
    assert answer(compare_ids, first, second, dictionary) == answer(compare, a, b), (a, b)
    assert order_ids(first, second, dictionary) == order(a, b), (a, b)


# --- what is inline and what is not ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0", "integer"),
        (str(2**57 - 1), "integer"),
        (str(-(2**57)), "integer"),
        ("1.00", "decimal"),
        ("5", "decimal"),
        ("-0.5", "decimal"),
        (str(-(2**52)), "decimal"),
        ("0." + "0" * 30 + "1", "decimal"),
        ("true", "boolean"),
        ("0.0", "double"),
        ("-0.0", "double"),
        ("92.33333333333333", "double"),
        ("-1.0E19", "double"),
        ("5.421010862427522E-20", "double"),
        ("0.1", "float"),
        ("-INF", "float"),
        ("NaN", "float"),
        ("2020-02-29T12:34:56Z", "dateTime"),
        ("2020-02-29T12:34:56.789+05:30", "dateTime"),
        ("2020-02-29T12:34:56.700-14:00", "dateTime"),
        ("1969-12-31T23:59:59.000", "dateTime"),
        ("0001-01-01T00:00:00+00:00", "dateTime"),
    ],
)
def test_inline(text: str, name: str) -> None:
    dictionary = Dictionary()
    (word,) = check_round_trip([typed(text, name)], dictionary)
    assert word < 0
    assert len(dictionary) == 0


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("007", "integer", Register(Tag.INTEGER, 7)),
        (str(2**57), "integer", Register(Tag.INTEGER, 2**57)),
        (str(2**63), "integer", Register(Tag.TEXT)),
        ("7", "byte", Register(Tag.INTEGER, 7)),
        ("-0.0", "decimal", Register(Tag.DECIMAL, 0, 0)),
        ("+1.50", "decimal", Register(Tag.DECIMAL, 150, 2)),
        ("0.333333333333333333", "decimal", Register(Tag.DECIMAL, 333333333333333333, 18)),
        ("1" * 30, "decimal", Register(Tag.TEXT)),
        ("1", "boolean", Register(Tag.BOOLEAN, 1)),
        ("1e0", "double", Register(Tag.DOUBLE, double_bits(1.0))),
        ("1.0E20", "double", Register(Tag.DOUBLE, double_bits(1e20))),
        ("5.0E-20", "double", Register(Tag.DOUBLE, double_bits(5e-20))),
        ("INF", "double", Register(Tag.DOUBLE, double_bits(float("inf")))),
        ("0.10", "float", Register(Tag.FLOAT, double_bits(0.10000000149011612))),
        ("1970-01-01T00:00:00.0000Z", "dateTime", Register(Tag.DATE_TIME, 0, 4)),
        ("1970-01-01T24:00:00", "dateTime", Register(Tag.DATE_TIME_LOCAL, 86400)),
        ("1970-01-01T00:00:00-00:00", "dateTime", Register(Tag.DATE_TIME, 0)),
        ("1970-01-01T00:00:01.123456789Z", "dateTime", Register(Tag.DATE_TIME, 1123456789, 9)),
        ("9999-01-01T00:00:00Z", "dateTime", Register(Tag.DATE_TIME, 253370764800)),
        ("2020-01-01", "date", Register(Tag.TEXT)),
        ("x", "integer", Register(Tag.OTHER)),
        ("2020", "gYear", Register(Tag.OTHER)),
        ("x", "string", Register(Tag.STRING)),
    ],
)
def test_in_the_dictionary_with_a_register(text: str, name: str, value: Register) -> None:
    dictionary = Dictionary()
    (word,) = check_round_trip([typed(text, name)], dictionary)
    assert word == 1
    assert register(word, dictionary) == value


def test_terms_that_are_not_plain_text() -> None:
    (lenient,) = parse('<a:b> <a:b> "x"^^<a:b c"> .', format=RdfFormat.N_TRIPLES, lenient=True)
    terms: list[Term] = [
        NamedNode("http://example/é"),
        BlankNode("b0"),
        BlankNode(),
        Literal('a"b\\c\n\t\r\b\f\x00\x7f\u2028é\U0001f600'),
        Literal('"@en', language="en-US"),
        Literal("\\u0041"),
        Literal("a", language="ar", direction=BaseDirection.RTL),
        Literal('"^^<http://example/>', datatype=NamedNode("http://example/")),
        Literal("a", datatype=NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#langString")),
        lenient.object,
    ]
    words = check_round_trip(terms, Dictionary())
    assert words == list(range(1, len(terms) + 1))


def test_unbound_is_zero() -> None:
    dictionary = Dictionary()
    assert encode(None, dictionary) == UNBOUND
    assert decode(UNBOUND, dictionary) is None
    assert order_ids(UNBOUND, encode(BlankNode("a"), dictionary), dictionary) == -1
    for function in (same_value, compare_ids):
        with pytest.raises(ExpressionError):
            function(UNBOUND, 1, dictionary)


# --- random terms ---------------------------------------------------------------------------------------------------

DATE_TIME = (
    r"(19|20)[0-9]{2}-0[1-9]-[12][0-9]T[01][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,10})?(Z|[+-]0[0-9]:[0-5][0-9])?"
)
lexical = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.floats(width=32).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False).map("{:f}".format),
    st.from_regex(r"[+-]?0{0,2}[0-9]{1,20}\.?0{0,2}[0-9]{0,20}", fullmatch=True),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.from_regex(DATE_TIME, fullmatch=True),
    st.sampled_from(["true", "0", "INF", "-INF", "NaN", "P1M", "PT0S", "P0M", "", "-0", "0.1"]),
)
literals = st.one_of(
    st.builds(
        typed,
        lexical,
        st.sampled_from(["integer", "decimal", "double", "float", "boolean", "dateTime", "int", "duration", "string"]),
    ),
    st.text(st.characters(codec="utf-8")).map(Literal),
    st.text(st.characters(codec="utf-8")).map(lambda text: Literal(text, language="en")),
)
canonical = literals.map(value_of).filter(lambda value: value is not None).map(literal_of)
terms = literals | canonical | st.sampled_from([NamedNode("http://example/a"), BlankNode("a"), BlankNode("b")])


@given(st.lists(terms))
def test_round_trip(some: list[Term]) -> None:
    check_round_trip(some, Dictionary())


@given(terms, terms)
def test_words_compare_as_terms(a: Term, b: Term) -> None:
    dictionary = Dictionary()
    check_pair(a, b, dictionary)
    check_pair(a, a, dictionary)


@given(st.floats(2.0**-64, 2.0**64, exclude_max=True), st.sampled_from([1, -1]))
def test_every_double_of_middle_size_is_inline(size: float, sign: int) -> None:
    text = repr(sign * size).upper().replace("E+", "E").replace("E-0", "E-")
    if "E" in text and "." not in text:
        text = text.replace("E", ".0E")
    dictionary = Dictionary()
    word = encode(typed(text, "double"), dictionary)
    assert word < 0
    assert register(word, dictionary) == Register(Tag.DOUBLE, double_bits(sign * size))


# --- release --------------------------------------------------------------------------------------------------------


def test_released_numbers_are_given_again() -> None:
    dictionary = Dictionary()
    a, b, c = (encode(Literal(text), dictionary) for text in "abc")
    dictionary.release(np.array([a, encode(typed("7", "integer"), dictionary), UNBOUND, c]))
    assert len(dictionary) == 1
    assert dictionary.find(Literal("a")) == UNBOUND
    assert dictionary.find(Literal("b")) == b
    with pytest.raises(LookupError):
        decode(a, dictionary)
    with pytest.raises(LookupError):
        dictionary.release([a])
    assert {encode(Literal(text), dictionary) for text in "xy"} == {a, c}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=300))
def test_a_dictionary_is_a_map(steps: list[tuple[bool, int]]) -> None:
    """Interning and releasing in any order keeps exactly the live terms, each under its own number."""
    dictionary, model = Dictionary(), dict[Literal, int]()
    for keep, key in steps:
        term = Literal(str(key) * 20)
        if keep:
            model[term] = encode(term, dictionary)
        elif term in model:
            dictionary.release([model.pop(term)])
    assert len(dictionary) == len(set(model.values())) == len(model)
    assert all(dictionary.find(term) == id and dictionary.term(id) == term for term, id in model.items())


def test_space_of_released_terms_is_reused() -> None:
    dictionary = Dictionary()
    pinned = [encode(NamedNode(f"http://example/{n}"), dictionary) for n in range(50)]
    for round_ in range(200):
        dictionary.release([encode(Literal(f"{round_} {n} {'x' * n}"), dictionary) for n in range(50)])
    assert [decode(id, dictionary) for id in pinned] == [NamedNode(f"http://example/{n}") for n in range(50)]
    assert len(dictionary.start) == 128
    assert len(dictionary.text) <= 16384


# --- the literals of the W3C suites ---------------------------------------------------------------------------------

RDF_FORMATS = {".ttl": RdfFormat.TURTLE, ".nt": RdfFormat.N_TRIPLES, ".rdf": RdfFormat.RDF_XML}
RESULT_FORMATS = {".srx": QueryResultsFormat.XML, ".srj": QueryResultsFormat.JSON, ".tsv": QueryResultsFormat.TSV}
LITERAL = re.compile(
    r'"(?:[^"\\\n]|\\.)*"(?:@[A-Za-z-]+|\^\^(?:<[^>\s]*>|\w*:\w+))?|[+-]?(?:\d*\.)?\d+(?:[eE][+-]?\d+)?'
)
PREFIXES = re.compile(r"(?i)PREFIX\s+(\w*:)\s*(<[^>]*>)")


def literals_of_data(path: Path) -> Iterator[Literal]:
    for quad in parse(path=path, format=RDF_FORMATS[path.suffix], base_iri="http://example/"):
        if isinstance(quad.object, Literal):
            yield quad.object


def literals_of_results(path: Path) -> Iterator[Literal]:
    results = parse_query_results(path=path, format=RESULT_FORMATS[path.suffix])
    for solution in results if isinstance(results, QuerySolutions) else ():
        yield from (term for term in solution if isinstance(term, Literal))


def literals_of_query(path: Path) -> Iterator[Literal]:
    """What looks like a literal in the query and is one in Turtle, with the query's prefixes."""
    text = path.read_text("utf-8")
    prefixes = "".join(f"@prefix {name} {iri} .\n" for name, iri in dict(PREFIXES.findall(text)).items())
    for lexeme in LITERAL.findall(text):
        try:
            turtle = f"{prefixes}<a> <a> {lexeme} ."
            yield from (quad.object for quad in parse(turtle, format=RdfFormat.TURTLE, base_iri="http://example/"))
        except SyntaxError:
            continue


READERS: dict[str, Callable[[Path], Iterator[Literal]]] = {
    **dict.fromkeys(RDF_FORMATS, literals_of_data),
    **dict.fromkeys(RESULT_FORMATS, literals_of_results),
    ".rq": literals_of_query,
}


def suite_literals() -> tuple[list[Literal], list[str]]:
    """All different literals, in a fixed order, and the files that could not be read."""
    found: set[Literal] = set()
    unread = []
    for path in sorted(SUITES.rglob("*")):
        if reader := READERS.get(path.suffix):
            try:
                found.update(reader(path))
            except (SyntaxError, UnicodeDecodeError):
                unread.append(path.name)
    return sorted(found, key=str), unread


def test_literals_of_the_w3c_suites() -> None:
    if not SUITES.is_dir():
        pytest.skip("the W3C suites are absent")
    found, unread = suite_literals()
    assert len(found) > 500
    assert unread == []
    dictionary = Dictionary()
    check_round_trip(list(found), dictionary)
    valued = [literal for literal in found if not isinstance(value_of(literal), str)]
    pairs = random.Random(7)
    for literal in found:
        for other in [literal, *pairs.sample(found, 5), *pairs.sample(valued, 20)]:
            check_pair(literal, other, dictionary)
