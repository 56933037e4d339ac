"""The library: who has written and edited what, by numbers; `triples` says it in RDF.

As in DBLP few people write much: of n people the one of rank r has about (n / r)^0.4 papers.  They write with those
of ranks near their own, again and again, so that co-authors grow in number more slowly than papers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

_PER_DOCUMENT = 12
"""Triples to a document, with its share of venues and people; what is left of them are references."""
_AUTHORS = (0.30, 0.35, 0.20, 0.10, 0.05)
"""The share of documents with one author, two, and so on."""
_NEAR = 0.1
"""Co-authors are ten ranks apart on average."""
_WRITING, _EDITING = 5 / 3, 3.0
"""A share u of the work is done by the share u ** power of the people."""
_EDITORS = 3
"""To proceedings, at most."""
PER_VENUE = 50
"""Documents of a journal or of proceedings."""
DOCUMENT_LINES, VENUE_LINES, PERSON_LINES = 8, 4, 2
"""Triples of each, besides those that name authors and editors."""


@dataclass(frozen=True, slots=True)
class Library:
    """Who wrote what, by numbers. Documents with even numbers are articles, the others are in proceedings."""

    authors: Numbers
    """A row for each document, -1 where there is none."""
    editors: Numbers
    """A row for each proceedings, likewise."""
    persons: Numbers
    """Those who wrote or edited something, or come to the conference."""
    references: Numbers
    """The earlier document that each of the first documents refers to."""

    @property
    def venues(self) -> int:
        """Of journals and of proceedings alike."""
        return len(self.editors)


def draw(triples: int, people: int, random: np.random.Generator) -> Library:
    """A library of exactly so many triples."""
    documents = triples // _PER_DOCUMENT
    ranks = max(people, documents * 4 // 5)
    count = random.choice(len(_AUTHORS), documents, p=_AUTHORS) + 1
    authors = _skewed(ranks, _WRITING, documents, random) + _distances((documents, len(_AUTHORS)), random)
    authors = _distinct(np.where(np.arange(len(_AUTHORS)) < count[:, None], np.clip(np.abs(authors), 0, ranks - 1), -1))
    venues = -(-documents // (2 * PER_VENUE))
    editors = _distinct(_skewed(ranks, _EDITING, venues * _EDITORS, random).reshape(venues, _EDITORS))

    known = np.zeros(ranks, bool)
    known[:people] = True
    for numbers in (authors, editors):
        known[numbers[numbers >= 0]] = True
    persons = np.flatnonzero(known)
    written = DOCUMENT_LINES * documents + 2 * VENUE_LINES * venues + PERSON_LINES * len(persons)
    left = triples - written - int((authors >= 0).sum()) - int((editors >= 0).sum())
    assert 0 <= left < documents, "what is left must suffice, and be less than a reference for each document"
    references = random.integers(np.arange(1, left + 1))
    return Library(authors, editors, persons, references)


def _skewed(ranks: int, power: float, size: int, random: np.random.Generator) -> Numbers:
    """Ranks as a column, low ones more often."""
    return (ranks * random.random((size, 1)) ** power).astype(np.int64)


def _distances(shape: tuple[int, int], random: np.random.Generator) -> Numbers:
    """How far in rank co-authors are from the first author, who is at 0 himself."""
    found: Numbers = random.geometric(_NEAR, shape) * random.choice((-1, 1), shape)
    found[:, 0] = 0
    return found


def _distinct(rows: Numbers) -> Numbers:
    """Each row in descending order, -1 in the place of what it has twice."""
    rows = -np.sort(-rows, axis=1)
    rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = -1
    return rows
