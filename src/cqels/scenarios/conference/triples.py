"""The library as N-Triples, in the words of SP2Bench."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import exp, log
from pathlib import Path

import numpy as np

from cqels.scenarios.conference.library import PER_VENUE, Library, draw
from cqels.scenarios.conference.people import name, person

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_RDFS = "http://www.w3.org/2000/01/rdf-schema#"
_FOAF = "http://xmlns.com/foaf/0.1/"
_DC = "http://purl.org/dc/elements/1.1/"
_DCTERMS = "http://purl.org/dc/terms/"
_SWRC = "http://swrc.ontoware.org/ontology#"
_BENCH = "http://localhost/vocabulary/bench/"
_INTEGER = "<http://www.w3.org/2001/XMLSchema#integer>"
_HERE = "http://localhost/publications/"
_FIRST_YEAR, _YEARS, _GROWTH = 1936, 75, 5.0
_PART = 10_000
_TITLES = (
    "adaptive continuous distributed efficient fast formal incremental linked native optimal parallel semantic "
    "algebra caching data engines graphs indexing joins languages logic networks ontologies processing queries "
    "reasoning rules semantics sensors storage streams systems"
)
_WORDS = _TITLES.split()


def write_library(
    path: Path, triples: int, people: int, random: np.random.Generator, progress: Callable[[int], object]
) -> None:
    """Write exactly so many triples."""
    library = draw(triples, people, random)
    done = 0
    with path.open("w", encoding="utf-8") as file:
        for part in _parts(library, random):
            file.write(part)
            done += part.count("\n")
            progress(done)


def _parts(library: Library, random: np.random.Generator) -> Iterator[str]:
    """All lines, those of some thousand things at a time."""
    venues = library.venues
    yield "".join(_lines(_journal(number, venues), _venue("Journal", number, venues)) for number in range(venues))
    yield "".join(
        _lines(_proceedings(number, venues), [*_venue("Proceedings", number, venues), *_people("editor", editors)])
        for number, editors in enumerate(library.editors.tolist())
    )
    for start in range(0, len(library.persons), _PART):
        yield "".join(_lines(person(each), _person(each)) for each in library.persons[start : start + _PART].tolist())
    for start in range(0, len(library.authors), _PART):
        authors = library.authors[start : start + _PART].tolist()
        words = random.integers(len(_WORDS), size=(len(authors), 3)).tolist()
        pages = random.integers(1, 500, size=len(authors)).tolist()
        rows = zip(authors, words, pages, strict=True)
        yield "".join(
            _lines(document(number, venues), [*_document(number, venues, title, page), *_people("creator", wrote)])
            for number, (wrote, title, page) in enumerate(rows, start)
        )
    for start in range(0, len(library.references), _PART):
        cited = library.references[start : start + _PART].tolist()
        yield "".join(
            _lines(document(number, venues), [f"<{_DCTERMS}references> {document(other, venues)}"])
            for number, other in enumerate(cited, start + 1)
        )


def _lines(subject: str, rest: Iterable[str]) -> str:
    return "".join([f"{subject} {each} .\n" for each in rest])


# ---------------------------------------------------------------- names of things


def _year(venue: int, venues: int) -> int:
    """The year of a venue: they are in order, and each year has more of them than the one before."""
    return _FIRST_YEAR + int(_YEARS * log(1 + venue / venues * (exp(_GROWTH) - 1)) / _GROWTH)


def _journal(number: int, venues: int) -> str:
    return f"<{_HERE}journals/Journal{number}/{_year(number, venues)}>"


def _proceedings(number: int, venues: int) -> str:
    return f"<{_HERE}procs/Proceeding{number}/{_year(number, venues)}>"


def document(number: int, venues: int) -> str:
    venue = number // 2 // PER_VENUE
    if number % 2:
        return f"<{_HERE}inprocs/Proceeding{venue}/{_year(venue, venues)}/Inproceeding{number}>"
    return f"<{_HERE}articles/Journal{venue}/{_year(venue, venues)}/Article{number}>"


# ---------------------------------------------------------------- predicates and objects, as many as `library` counts


def _person(number: int) -> tuple[str, ...]:
    return f"<{_RDF}type> <{_FOAF}Person>", f'<{_FOAF}name> "{name(number)}"'


def _people(role: str, numbers: list[int]) -> list[str]:
    predicate = f"<{_SWRC}editor>" if role == "editor" else f"<{_DC}creator>"
    return [f"{predicate} {person(each)}" for each in numbers if each >= 0]


def _venue(kind: str, number: int, venues: int) -> tuple[str, ...]:
    year = _year(number, venues)
    return (
        f"<{_RDF}type> <{_BENCH}{kind}>",
        f'<{_DC}title> "{kind} {number} ({year})"',
        f'<{_DCTERMS}issued> "{year}"^^{_INTEGER}',
        f'<{_SWRC}volume> "{number}"^^{_INTEGER}',
    )


def _document(number: int, venues: int, words: list[int], page: int) -> tuple[str, ...]:
    venue = number // 2 // PER_VENUE
    return (
        f"<{_RDF}type> <{_BENCH}{'Inproceedings' if number % 2 else 'Article'}>",
        f'<{_DC}title> "{" ".join([_WORDS[each] for each in words])}"',
        f'<{_DCTERMS}issued> "{_year(venue, venues)}"^^{_INTEGER}',
        f'<{_SWRC}pages> "{page}"^^{_INTEGER}',
        f"<{_RDFS}seeAlso> <http://localhost/see/{number}>",
        f"<{_FOAF}homepage> <http://localhost/home/{number}>",
        *(
            (f"<{_DCTERMS}partOf> {_proceedings(venue, venues)}", f'<{_BENCH}booktitle> "Proceedings {venue}"')
            if number % 2
            else (f"<{_SWRC}journal> {_journal(venue, venues)}", f'<{_SWRC}number> "{venue}"^^{_INTEGER}')
        ),
    )
