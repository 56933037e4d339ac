"""The dictionary in the arena: it gives what the model's gives, grows, forgets, and lives on in a snapshot."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BaseDirection, BlankNode, Literal, NamedNode, RdfFormat, parse

from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms import term_table as kernels
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.dictionary import Dictionary, compare_ids, decode, encode, order_ids, same_value
from cqels.model.ids import UNBOUND, Register, Tag
from cqels.model.terms import XSD, Term
from cqels.model.values import ExpressionError

SIZE = 1 << 22
"""Bytes of a test's arena."""

# --- terms ----------------------------------------------------------------------------------------------------------

TYPES = [
    "integer",
    "decimal",
    "double",
    "float",
    "boolean",
    "dateTime",
    "string",
    "date",
    "time",
    "duration",
    "dayTimeDuration",
    "long",
    "int",
    "short",
    "byte",
    "unsignedLong",
    "unsignedInt",
    "unsignedShort",
    "unsignedByte",
    "nonNegativeInteger",
    "positiveInteger",
    "nonPositiveInteger",
    "negativeInteger",
    "dateTimeStamp",
    "anyURI",
    "nonsense",
]

digits = st.text("0123456789", max_size=20)
numbers = st.one_of(
    st.builds("{}{}{}{}".format, st.sampled_from(["", "-", "+", " "]), digits, st.sampled_from(["", "."]), digits),
    st.builds(
        "{}{}.{}{}{}".format, st.sampled_from(["", "-"]), digits, digits, st.sampled_from("eE"), st.integers(-30, 30)
    ),
    st.floats().map(repr),
    st.floats(width=32).map(repr),
    st.integers().map(str),
    st.integers(-(2**63), 2**63).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.sampled_from(
        ["INF", "-INF", "+INF", "NaN", "true", "false", "1", "0", "-0", "-0.0", "00.00", " 7 ", "7\n", "."]
    ),
)
ZONES = st.sampled_from(["Z", "+00:00", "-00:00", "+14:00", "-13:59", "+15:00", "z"])
moments = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.builds(
        "{}{}".format,
        st.datetimes().map(lambda moment: moment.isoformat()),
        ZONES,
    ),
    st.sampled_from(
        [
            "2024-02-29T24:00:00Z",
            "2024-02-29T24:00:00.000",
            "2024-02-29T24:00:01Z",
            "2023-02-29T00:00:00Z",
            "-0044-03-15T12:00:00Z",
            "0000-01-01T00:00:00",
            "12024-01-01T00:00:00Z",
            "2024-01-01T00:00:00.1234567890123Z",
            "2024-01-01T00:00:00.",
            "2024-01-01T00:60:00Z",
            "2024-01-01 00:00:00Z",
        ]
    ),
)
literals: st.SearchStrategy[Literal] = st.one_of(
    st.text(max_size=12).map(Literal),
    st.builds(
        lambda text, language, direction: Literal(text, language=language, direction=direction),
        st.text(max_size=5),
        st.sampled_from(["en", "EN-us", "zh-hant-tw", "x-own"]),
        st.sampled_from([None, BaseDirection.LTR]),
    ),
    st.builds(
        lambda text, name: Literal(text, datatype=NamedNode(XSD + name)),
        st.one_of(numbers, moments, st.text(max_size=5)),
        st.sampled_from(TYPES),
    ),
    st.builds(lambda text: Literal(text, datatype=NamedNode("http://example.org/type")), st.text(max_size=700)),
)
terms: st.SearchStrategy[Term] = st.one_of(
    st.integers(0, 60).map(lambda number: NamedNode(f"http://example.org/{number}" + "x" * (number % 9))),
    st.integers(0, 60).map(lambda number: BlankNode(f"b{number}")),
    literals,
)


def made(*, entries: int = 2, piece: int = 64, hash_bits: int = -1) -> ArenaDictionary:
    """A dictionary as small as can be, so that everything in it has to grow."""
    dictionary = ArenaDictionary(Arena(size=SIZE), entries=entries, piece=piece)
    dictionary.arena.words[dictionary.offset + kernels.HASH_BITS] = hash_bits
    return dictionary


def answer(function: object, *arguments: object) -> object:
    try:
        return function(*arguments)  # type: ignore[operator]
    except ExpressionError:
        return ExpressionError


# --- as the model ---------------------------------------------------------------------------------------------------


@given(st.lists(terms, max_size=40), st.sampled_from([-1, 0, 1, 7]))
def test_same_numbers_texts_and_registers_as_the_model(given_terms: list[Term], hash_bits: int) -> None:
    dictionary, model = made(hash_bits=hash_bits), Dictionary()
    for term in given_terms:
        assert dictionary.find(term) & kernels.ID_MASK == model.find(term)
        id = dictionary.intern(term)
        assert id == kernels.TAGGED | model.intern(term) == dictionary.find(term)
    assert len(dictionary) == len(model)
    for term in given_terms:
        id = dictionary.find(term)
        assert dictionary.text(id) == str(term).encode()
        assert dictionary.term(id) == term
        assert dictionary.register(id) == model.register(id & kernels.ID_MASK), term
        assert dictionary.register(id) == model.register(id & kernels.ID_MASK), term  # as settled now


@given(st.lists(terms, min_size=2, max_size=8))
def test_words_compare_as_with_the_model(given_terms: list[Term]) -> None:
    dictionary, model = made(), Dictionary()
    words = [encode(term, dictionary) for term in given_terms]
    modelled = [encode(term, model) for term in given_terms]
    assert [decode(word, dictionary) for word in words] == given_terms
    for one, first in zip(words, modelled, strict=True):
        for other, second in zip(words, modelled, strict=True):
            assert answer(same_value, one, other, dictionary) == answer(same_value, first, second, model)
            assert answer(compare_ids, one, other, dictionary) == answer(compare_ids, first, second, model)
            assert order_ids(one, other, dictionary) == order_ids(first, second, model)


@pytest.mark.parametrize(
    ("text", "name", "register"),
    [
        ("007", "integer", Register(Tag.INTEGER, 7)),
        ("+5", "long", Register(Tag.INTEGER, 5)),
        ("300", "byte", Register(Tag.OTHER)),
        (" 1.50 ", "decimal", Register(Tag.DECIMAL, 150, 2)),
        ("1e3", "double", Register(Tag.DOUBLE, 0x408F400000000000)),
        ("1", "boolean", Register(Tag.BOOLEAN, 1)),
        ("2024-01-01T00:00:00.1234Z", "dateTime", Register(Tag.DATE_TIME, 17040672001234, 4)),
        ("1970-01-01T24:00:00", "dateTime", Register(Tag.DATE_TIME_LOCAL, 86_400)),
        ("soon", "dateTime", Register(Tag.OTHER)),
    ],
)
def test_common_registers_need_no_python(text: str, name: str, register: Register) -> None:
    dictionary = made()
    id = dictionary.intern(Literal(text, datatype=NamedNode(XSD + name)))
    assert not kernels.is_unsettled(dictionary.arena.base, dictionary.offset, id)
    assert dictionary.register(id) == register


def test_what_a_kernel_cannot_tell_is_settled_once() -> None:
    dictionary = made()
    id = dictionary.intern(Literal("1" * 30 + "e-12", datatype=NamedNode(XSD + "double")))
    base, offset = dictionary.arena.base, dictionary.offset
    assert kernels.is_unsettled(base, offset, id)
    assert kernels.tag_of(base, offset, id) == Tag.TEXT
    assert dictionary.register(id).tag == Tag.DOUBLE
    assert not kernels.is_unsettled(base, offset, id)
    assert kernels.tag_of(base, offset, id) == Tag.DOUBLE


def test_a_term_of_a_lenient_parser() -> None:
    dictionary = made()
    (quad,) = parse("<a:> <a:> <not absolute> .", format=RdfFormat.N_TRIPLES, lenient=True)
    id = dictionary.intern(quad.object)
    assert dictionary.term(id) == quad.object
    assert dictionary.text(id) == b"<not absolute>"


# --- growing and forgetting -----------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("intern"), terms),
        st.tuples(st.just("release"), st.integers(0, 50)),
        st.tuples(st.just("pin"), st.integers(0, 50)),
        st.tuples(st.just("unpin"), st.integers(0, 50)),
        st.tuples(st.just("keep"), st.sets(st.integers(1, 50))),
        st.tuples(st.just("restore"), st.none()),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(STEPS, st.sampled_from([-1, 3]))
def test_a_history(steps: list[tuple[str, object]], hash_bits: int) -> None:
    """Whatever happens, the live terms are the expected ones, each under the number it was given."""
    dictionary = made(hash_bits=hash_bits)
    live: dict[int, Term] = {}
    pins: dict[int, int] = {}
    for step, what in steps:
        match step, what:
            case "intern", NamedNode() | BlankNode() | Literal():
                id = dictionary.intern(what)
                assert live.get(id, what) == what
                live[id] = what
            case "release", int():
                ids = [id for id in live if id % 7 == what % 7]
                dictionary.release([UNBOUND, -5, *ids])
                live = {id: term for id, term in live.items() if id not in ids or pins.get(id)}
            case "pin", int() if what in live:
                dictionary.pin([what, -3])
                pins[what] = pins.get(what, 0) + 1
            case "unpin", int() if what in live:
                dictionary.unpin([what])
                pins[what] = max(0, pins.get(what, 0) - 1)
            case "keep", set():
                kept = {id: term for id, term in live.items() if id in what or pins.get(id)}
                assert dictionary.keep(what) == len(live) - len(kept)
                live = kept
            case "restore", _:
                dictionary = restored(dictionary)
        assert len(dictionary) == len(live)
    for id, term in live.items():
        assert dictionary.find(term) == id
        assert dictionary.term(id) == term
    base, offset = dictionary.arena.base, dictionary.offset
    assert {id for id in range(kernels.TAGGED, kernels.TAGGED + 80) if kernels.is_live(base, offset, id)} == set(live)


def restored(dictionary: ArenaDictionary) -> ArenaDictionary:
    arena = Arena(size=SIZE)
    arena.restore(dictionary.arena.snapshot())
    return ArenaDictionary(arena, dictionary.offset)


def _ids(count: int) -> list[int]:
    return list(range(kernels.TAGGED + 1, kernels.TAGGED + count + 1))


def test_grows_and_finds_all_again() -> None:
    dictionary = made()
    names = [NamedNode(f"http://example.org/{'long/' * (number % 5)}{number}") for number in range(5000)]
    assert [dictionary.intern(name) for name in names] == _ids(5000)
    assert [dictionary.find(name) for name in names] == _ids(5000)
    again = restored(dictionary)
    assert [again.intern(name) for name in names] == _ids(5000)


def test_memory_is_used_again() -> None:
    dictionary = made(entries=1024)
    used = 0
    for turn in range(50):
        ids = [dictionary.intern(Literal(f"{turn:03} {number:03} {'x' * (number % 600)}")) for number in range(300)]
        if turn == 0:
            used = dictionary.arena.used
            largest = max(ids)
        assert max(ids) == largest
        dictionary.keep([])
    assert len(dictionary) == 0
    assert dictionary.arena.used <= used + 64  # the marks


def test_hashes_that_all_collide() -> None:
    dictionary = made(hash_bits=0)
    names = [NamedNode(f"http://example.org/{number}") for number in range(300)]
    ids = [dictionary.intern(name) for name in names]
    dictionary.release(ids[::2])
    assert [dictionary.find(name) for name in names[1::2]] == ids[1::2]
    assert [dictionary.find(name) for name in names[::2]] == [UNBOUND] * 150
    dictionary.keep(ids[1:100:2])
    assert [dictionary.find(name) for name in names[1:100:2]] == ids[1:100:2]
    assert len(dictionary) == 50


def test_a_column_is_marked() -> None:
    dictionary = made()
    ids = [dictionary.intern(NamedNode(f"http://example.org/{number}")) for number in range(6)]
    arena, offset = dictionary.arena, dictionary.offset
    rows = arena.take(8)
    arena.array(rows, 8)[:] = [ids[0], 99, ids[3], 99, UNBOUND, 99, -1, 99]
    assert kernels.clear_marks(arena.base, offset)
    kernels.mark_column(arena.base, offset, rows, 4, 2)
    assert kernels.sweep(arena.base, offset) == 4
    assert [kernels.is_live(arena.base, offset, id) for id in ids] == [True, False, False, True, False, False]


def test_no_such_entry() -> None:
    dictionary = made()
    id = dictionary.intern(NamedNode("http://example.org/a"))
    dictionary.release([id])
    for wrong in (id, 77, UNBOUND, -1):
        with pytest.raises(LookupError, match=f"no entry {wrong}"):
            dictionary.term(wrong)
    with pytest.raises(LookupError, match=f"no entry {id}"):
        dictionary.release([id])


def test_a_full_arena_loses_nothing() -> None:
    dictionary = ArenaDictionary(Arena(size=1 << 16), entries=64, piece=64)
    names = [NamedNode(f"http://example.org/{'x' * 50}{number}") for number in range(10_000)]
    with pytest.raises(MemoryError, match="full"):
        [dictionary.intern(name) for name in names]
    names = names[: len(dictionary)]
    assert len(names) > 100
    assert [dictionary.find(name) for name in names] == _ids(len(names))
    dictionary.release([kernels.TAGGED | 1])
    assert dictionary.intern(names[0]) == kernels.TAGGED | 1
