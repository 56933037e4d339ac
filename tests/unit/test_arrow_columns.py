"""Columns of words: each word once, and the texts of rows."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pyoxigraph import Literal, NamedNode

from cqels.engine.output.arrow_columns import _texts
from cqels.ingest.term_codec import Terms, columns_of
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.ids import inline_literal, inline_word
from cqels.model.terms import XSD_DATE_TIME, XSD_DECIMAL, XSD_INTEGER


@pytest.fixture
def terms() -> Terms:
    return Terms(ArenaDictionary(Arena(size=1 << 22)))


def number(text: str) -> int:
    word = inline_word(Literal(text, datatype=XSD_DECIMAL if "." in text else XSD_INTEGER))
    assert word is not None
    return word


def random_words(terms: Terms, count: int, seed: int = 1) -> list[int]:
    """Of all kinds, in no order, none twice."""
    chosen = random.Random(seed)
    found = {0, number("0"), number("0.0"), number("-0.5"), number(str(2**57 - 1)), number(str(-(2**57)))}
    found |= {number(f"{sign}0.{'0' * scale}5") for sign in ("", "-") for scale in range(31)}
    while len(found) < count:
        digits = chosen.randrange(10 ** chosen.randrange(1, 16))
        literals = [
            Literal(str(digits), datatype=XSD_INTEGER),
            Literal(f"-{digits}.{chosen.randrange(100):02}", datatype=XSD_DECIMAL),
            Literal(digits / 128),
            Literal(chosen.random() < 0.5),
            Literal("2020-01-01T00:00:00.120+05:30", datatype=XSD_DATE_TIME),
            Literal("é" * chosen.randrange(40)),
            NamedNode(f"http://ex.org/{digits}"),
        ]
        found.add(terms.encode(chosen.choice(literals)))
    listed = sorted(found)
    chosen.shuffle(listed)
    return listed


def test_each_word_has_the_number_of_its_first_row() -> None:
    random_rows = np.random.default_rng(1).integers(-9, 9, (500, 5))
    for rows in (random_rows, random_rows[:, 1:4], random_rows[::-2], random_rows[:1], random_rows[:0]):
        for column, (words, numbers) in zip(rows.T, columns_of(rows), strict=True):
            assert words.tolist() == list(dict.fromkeys(column.tolist()))
            assert words[numbers].tolist() == column.tolist()


def test_texts_are_those_of_the_terms(terms: Terms) -> None:
    words = random_words(terms, 3000)
    texts = terms.texts(np.array(words))
    for word, text in zip(words, texts, strict=True):
        expected = "" if word == 0 else str(inline_literal(word) if word < 0 else terms.decode(word))
        assert text.decode() == expected


def test_terms_of_words_in_any_order(terms: Terms) -> None:
    words = random_words(terms, 500)
    terms.forget()
    assert [term for (term,) in terms.decode_rows(np.array(words).reshape(-1, 1))] == list(map(terms.decode, words))


def test_a_word_that_stands_for_nothing_has_no_text(terms: Terms) -> None:
    with pytest.raises(LookupError):
        terms.texts(np.array([number("7"), 12345]))


def test_rows_as_arrow_has_them(terms: Terms) -> None:
    arrow = pytest.importorskip("pyarrow")
    words = random_words(terms, 400)
    bound = [word for word in words if word]
    for chosen in (words, bound, bound[:1], [0], []):
        rows = np.array(random.Random(2).choices(chosen, k=1000 if chosen else 0), np.int64).reshape(-1, 1)
        (column,) = columns_of(rows)
        found = _texts(arrow, column, terms)
        found.validate(full=True)
        expected = [None if word == 0 else str(terms.decode(word)) for word in rows[:, 0].tolist()]
        assert found.to_pylist() == expected
        assert found.null_count == expected.count(None)
