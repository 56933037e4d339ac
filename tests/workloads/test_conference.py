"""The conference: its data are as the paper describes them, and plain Python finds what its queries answer."""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from pyoxigraph import RdfFormat, parse

from cqels.ingest import read_stream
from cqels.model.time import parse_time
from cqels.scenarios import Data, scenario
from cqels.scenarios.answers import answers, written
from cqels.scenarios.conference import experiments
from cqels.scenarios.conference.experiments import Length, many, single, varying
from cqels.scenarios.conference.floor import doors, floor_plan
from cqels.scenarios.conference.library import draw
from cqels.scenarios.conference.people import name
from cqels.scenarios.conference.reevaluation import Reevaluation, bulk_loaded

LV = "http://deri.org/floorplan/"
SECOND = 1_000_000_000
ASKED = scenario("conference")
AUTHOR = "Paul Erdoes"
Rows = Counter[tuple[str, ...]]


@dataclass(frozen=True)
class Reading:
    time: int
    person: str
    place: str


class World:
    """The data in dictionaries."""

    def __init__(self, data: Data) -> None:
        self.facts: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for path, _ in data.static:
            for quad in parse(path=path, format=RdfFormat.N_TRIPLES):
                self.facts[quad.predicate.value].append((quad.subject.value, quad.object.value))
        self.readings: list[Reading] = []
        for line in Path(data.declarations[0].path).read_text().splitlines():
            person, _, place, time, _ = line.split()
            self.readings.append(Reading(int(time) * 1_000_000, person[1:-1], place[1:-1]))

    def pairs(self, predicate: str) -> list[tuple[str, str]]:
        return self.facts[predicate]

    @cached_property
    def names(self) -> dict[str, str]:
        return dict(self.pairs("http://xmlns.com/foaf/0.1/name"))

    @cached_property
    def authors(self) -> dict[str, list[str]]:
        found = defaultdict(list)
        for paper, person in self.pairs("http://purl.org/dc/elements/1.1/creator"):
            found[paper].append(person)
        return found

    @cached_property
    def connected(self) -> set[tuple[str, str]]:
        return set(self.pairs(f"{LV}connected"))

    def within(self, number: int, seconds: float) -> set[tuple[str, str]]:
        """Who was where in a window of so many seconds, closed at both ends, when a reading has come."""
        now = self.readings[number].time
        return {
            (each.person, each.place) for each in self.readings[: number + 1] if each.time >= now - seconds * SECOND
        }

    # ------------------------------------------------------------ solutions of the queries when a reading has come

    def q1(self, number: int) -> Rows:
        titles, texts = dict(self.pairs(f"{LV}name")), dict(self.pairs(f"{LV}desc"))
        now = self.within(number, 0)
        return Counter((titles[place], texts[place]) for person, place in now if self.names[person] == AUTHOR)

    def q2(self, number: int) -> Rows:
        return Counter(
            (one, here, other, there)
            for one, here in self.within(number, 0)
            for other, there in self.within(number, 3)
            if (here, there) in self.connected
        )

    def q3(self, number: int) -> Rows:
        last = self.readings[number]
        here = {person for person, place in self.within(number, 5) if place == last.place}
        together = [
            other
            for authors in self.authors.values()
            if last.person in authors and self.names[last.person] == AUTHOR
            for other in authors
            if other != last.person and other in here
        ]
        return Counter((self.names[other],) for other in together)

    def q4(self, number: int) -> Rows:
        last = self.readings[number]
        if self.names[last.person] != AUTHOR:
            return Counter()
        editors = defaultdict(list)
        for proceedings, editor in self.pairs("http://swrc.ontoware.org/ontology#editor"):
            editors[proceedings].append(editor)
        return Counter(
            (self.names[editor],)
            for paper, proceedings in self.pairs("http://purl.org/dc/terms/partOf")
            if last.person in self.authors[paper]
            for editor in editors[proceedings]
            for person, place in self.within(number, 15)
            if person == editor and (last.place, place) in self.connected
        )

    def q5(self, number: int) -> Rows:
        last = self.readings[number]
        if self.names[last.person] != AUTHOR:
            return Counter()
        others = {other for authors in self.authors.values() if last.person in authors for other in authors}
        found = Counter(
            place
            for person, place in self.within(number, 30)
            if person in others - {last.person} and (place, last.place) in self.connected
        )
        titles = dict(self.pairs(f"{LV}name"))
        return Counter((place, titles[place], str(count)) for place, count in found.items())

    def sent(self, query: str) -> Iterator[tuple[int, tuple[str, ...]]]:
        """What is there after each reading and was not before; Q2 makes a triple of each solution."""
        before: Rows = Counter()
        for number, reading in enumerate(self.readings):
            now = getattr(self, query)(number)
            for row in (now - before).elements():
                yield reading.time, (row[0], f"{LV}reachable", row[2]) if query == "q2" else row
            before = now


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return ASKED.make(tmp_path_factory.mktemp("conference"), ASKED.numbers("small"), 7, lambda done, all: None)


@pytest.mark.parametrize("query", ["q1", "q2", "q3", "q4", "q5"])
def test_plain_python_finds_the_same(query: str, data: Data) -> None:
    asked = ASKED.query(*ASKED.asked([query]))
    rows = csv.reader(written(asked, answers([asked], data)[query]).splitlines())
    next(rows)
    found = Counter((parse_time(time), tuple(values)) for time, _, _, *values in rows)
    assert found
    assert found == Counter(World(data).sent(query))


def test_the_floor_plan_has_as_many_triples_as_the_papers() -> None:
    assert len(set(floor_plan())) == 172
    assert all(here in doors()[there] for here, nearby in enumerate(doors()) for there in nearby)


def test_people_go_through_doors(data: Data) -> None:
    world = World(data)
    places: dict[str, str] = {}
    for reading in world.readings:
        before = places.get(reading.person, reading.place)
        assert before == reading.place or (before, reading.place) in world.connected
        places[reading.person] = reading.place


@pytest.mark.parametrize("triples", [600, 10_000, 123_456])
def test_the_library_has_as_many_triples_as_asked_for(triples: int, tmp_path: Path) -> None:
    numbers = {**ASKED.numbers("small"), "triples": triples}
    made = ASKED.make(tmp_path, numbers, 3, lambda done, all: None)
    library = made.static[1][0].read_text().splitlines()
    assert len(set(library)) == len(library) == triples


def test_few_people_write_much() -> None:
    library = draw(1_000_000, 200, np.random.default_rng(1))
    papers = np.bincount(library.authors[library.authors >= 0])
    assert papers[:10].mean() > 20 * papers.mean()
    assert papers[:10].mean() < 200


def test_nobody_shares_a_name() -> None:
    assert len({name(number) for number in range(20_000)}) == 20_000


@pytest.mark.parametrize("query", ["q1", "q2", "q3", "q4", "q5"])
def test_the_baseline_sends_the_same(query: str, data: Data) -> None:
    asked = ASKED.query(*ASKED.asked([query]))
    again = Reevaluation(bulk_loaded(data), [asked])
    elements = read_stream(data.declarations[0], pytest.fail)
    sent = Counter(each.time for each in elements for rows in again.push(each) for _ in rows)
    assert sent == Counter(each.nanoseconds for each in answers([asked], data)[query])


def test_experiments(data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numbers that are too small to say anything."""
    monkeypatch.setattr(experiments, "IN_MEMORY", 4_000)
    length = Length(events=20, block=10, warm=90, sample=2, authors=1)
    found = [
        *single(data, length),
        *varying(tmp_path, (3_000, 6_000), length),
        *many(data, (0, 2), length),
    ]
    assert [(each.experiment, each.query) for each in found[:5]] == [("single", f"q{n}") for n in range(1, 6)]
    assert {each.x for each in found if each.experiment == "varying"} == {3_000, 6_000}
    assert {each.x for each in found if each.experiment == "many"} == {1, 4}
    assert all(each.ours > 0 and each.baseline for each in found)
