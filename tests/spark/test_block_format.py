"""Blocks: what goes in comes out in another engine's words, for any terms and any times; faults are told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.ingest.element_batch import Batch
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import DataError
from cqels.model.terms import XSD_DECIMAL, XSD_INTEGER, Term, Triple

pytest.importorskip("pyarrow", reason="blocks need pyarrow")

from cqels.pipeline.lift.block_format import pack, unpack

iris = st.integers(0, 30).map(lambda number: NamedNode(f"http://ex.org/{number}"))
literals = st.one_of(
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12).map(Literal),
    st.integers().map(lambda number: Literal(str(number), datatype=XSD_INTEGER)),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda each: Literal(f"{each:f}", datatype=XSD_DECIMAL)),
    st.just(Literal("chat", language="fr")),
    st.just(Literal("007", datatype=XSD_INTEGER)),
    st.floats(allow_nan=False).map(Literal),
)
blanks = st.integers(0, 5).map(lambda number: BlankNode(f"b{number}"))
triples = st.tuples(iris | blanks, iris, iris | blanks | literals)
words = st.integers(-(2**63), 2**63 - 1)
elements = st.lists(
    st.tuples(words | st.integers(0, 10**12), st.integers(0, 3), st.lists(triples, max_size=4)), max_size=40
)
Rows = list[tuple[int, int, list[Triple]]]


def new_terms() -> Terms:
    return Terms(ArenaDictionary(Arena(size=1 << 26)))


def encoded(rows: Rows, terms: Terms) -> Batch:
    return Batch.of((time, stream, [terms.encode_all(triple) for triple in triples]) for time, stream, triples in rows)


def decoded(batch: Batch, terms: Terms) -> list[tuple[int, int, list[tuple[Term | None, ...]]]]:
    return [
        (time, stream, [tuple(map(terms.decode, triple)) for triple in triples])
        for time, stream, triples in batch.rows()
    ]


@given(elements, st.booleans())
def test_a_block_has_the_same_elements_in_the_words_of_another_engine(rows: Rows, compress: bool) -> None:
    one, other = new_terms(), new_terms()
    other.encode(Literal("so that the numbers differ"))
    block = pack(encoded(rows, one), one.dictionary, compress=compress)
    assert decoded(unpack(block, other.dictionary), other) == rows


@given(elements)
def test_the_same_elements_give_the_same_bytes(rows: Rows) -> None:
    one, other = new_terms(), new_terms()
    other.encode(Literal("so that the numbers differ"))
    assert pack(encoded(rows, one), one.dictionary) == pack(encoded(rows, other), other.dictionary)


@given(elements.filter(bool), st.data())
def test_a_block_that_was_cut_off_is_refused(rows: Rows, data: st.DataObject) -> None:
    one = new_terms()
    block = pack(encoded(rows, one), one.dictionary)
    cut = data.draw(st.integers(0, len(block) - 1))
    with pytest.raises(DataError):
        unpack(block[:cut], one.dictionary)


def test_another_version_is_refused_with_a_hint() -> None:
    one = new_terms()
    block = bytearray(pack(Batch.empty(), one.dictionary))
    block[3] = 9
    with pytest.raises(DataError, match="version 9") as caught:
        unpack(bytes(block), one.dictionary)
    assert caught.value.hint is not None


def test_a_reading_takes_a_few_bytes() -> None:
    """10,000 readings of 100 sensors, one each millisecond: the figure of docs/spark.md."""
    one = new_terms()
    temp = NamedNode("http://ex.org/temp")
    sensors = [NamedNode(f"http://ex.org/sensor/{number}") for number in range(100)]
    values = [Literal(str(number), datatype=XSD_INTEGER) for number in range(50)]
    rows: Rows = [
        (1_000_000 * number, 0, [(sensors[number % 100], temp, values[number % 50])]) for number in range(10_000)
    ]
    batch = encoded(rows, one)
    assert len(pack(batch, one.dictionary, compress=False)) / len(batch) < 3
    again = unpack(pack(batch, one.dictionary), one.dictionary)
    assert np.array_equal(again.triples, batch.triples)
    assert np.array_equal(again.times, batch.times)
