"""Random scenarios for hypothesis: small streams and graphs over one small vocabulary, and queries that fit them.

A query is made as text and is well-formed by construction: `prepare` takes every one of them.  `Features` says what may
occur in it.  The vocabulary is small so that joins find partners and aggregates find groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad

from cqels.ingest import Element
from cqels.model.terms import XSD, XSD_BOOLEAN, XSD_DATE_TIME, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER, Triple
from cqels.model.time import SECOND
from cqels.reference.event_time import StreamSettings

from .random_expressions import Choices, Expressions, Features
from .random_lives import EVERY, SOURCES, Lives
from .scenarios import EX, GRAPHS, NAME, Beat, Change, Event, Scenario, run

__all__ = ["Choices", "Features", "Scenario", "queries", "run", "scenario", "scenarios", "shuffled"]

EVERYTHING = Features()

NODES = [NamedNode(EX + "a"), NamedNode(EX + "b"), BlankNode("n")]
LINKS = [NamedNode(EX + "p"), NamedNode(EX + "q")]
MIXED = NamedNode(EX + "r")
VALUE, AT = NamedNode(EX + "v"), NamedNode(EX + "at")
STREAMS = [EX + name for name in ("s1", "s2", "s3")]

_PLAIN = [
    *(Literal(text, datatype=XSD_INTEGER) for text in ("1", "2", "3", "-1")),
    *(Literal(text, datatype=XSD_DECIMAL) for text in ("1.5", "0.25")),
    *(Literal("x"), Literal("yy"), Literal("1"), Literal("x", language="en")),
    *(Literal(text, datatype=XSD_BOOLEAN) for text in ("true", "false")),
    Literal("2020-02-03T04:05:06Z", datatype=XSD_DATE_TIME),
]
_DOUBLES = [Literal("0.5", datatype=XSD_DOUBLE), Literal("2.5", datatype=XSD_DOUBLE)]
_OTHER_FORMS = [
    Literal("01", datatype=XSD_INTEGER),
    Literal("1.0", datatype=XSD_DECIMAL),
    Literal("1", datatype=NamedNode(XSD + "byte")),
    Literal("1e0", datatype=XSD_DOUBLE),
    Literal("z", datatype=XSD_INTEGER),
    Literal("?", datatype=NamedNode(EX + "type")),
]


# ---------------------------------------------------------------- data


class _Data(Choices):
    """Makes graphs, streams and what happens on them."""

    def __init__(self, choices: Choices, features: Features) -> None:
        super().__init__(choices.number)
        self._features = features
        self._values = [*_PLAIN]
        self._values += _DOUBLES if features.doubles else []
        self._values += _OTHER_FORMS if features.other_forms else []

    def streams(self) -> tuple[StreamSettings, ...]:
        names = STREAMS[: self.number(2, len(STREAMS))]
        if not self._features.lateness:
            return tuple(StreamSettings(iri) for iri in names)
        return tuple(StreamSettings(iri, self.pick([0, 0, 2]) * SECOND, self.pick([0, 0, 3]) * SECOND) for iri in names)

    def quads(self, least: int, most: int) -> tuple[Quad, ...]:
        graphs = [DefaultGraph(), DefaultGraph(), *GRAPHS]
        found = [Quad(*self._triple(), self.pick(graphs)) for _ in range(self.number(least, most))]
        return tuple(dict.fromkeys(found))

    def events(self, streams: Sequence[StreamSettings]) -> tuple[Event, ...]:
        elements = sorted((each for one in streams for each in self._elements(one.iri)), key=lambda each: each.time)
        events: list[Event] = [*self._arrivals(elements, {each.iri: each for each in streams})]
        for _ in range(self.pick([0, 0, 1, 2]) if self._features.heartbeats else 0):
            place = self.number(0, len(events))
            last = max((each.time for each in events[:place] if isinstance(each, Element)), default=0)
            time = last + self.number(0, 6) * SECOND
            events.insert(place, Beat(time, self.pick([None, None, streams[0].iri])))
        for _ in range(self.pick([0, 0, 1, 2]) if self._features.updates else 0):
            events.insert(self.number(0, len(events)), Change(self.quads(0, 2), self.quads(0, 3)))
        return tuple(events)

    def _triple(self) -> Triple:
        subject = self.pick(NODES)
        match self.pick(["link"] * 5 + ["value"] * 3 + ["time"]):
            case "link":
                return subject, self.pick([LINKS[0], *LINKS, MIXED]), self.pick(NODES)
            case "value":
                return subject, self.pick([VALUE, VALUE, VALUE, MIXED]), self.pick(self._values)
            case _:
                return subject, AT, Literal(str(1000 * self.number(0, 8)), datatype=XSD_INTEGER)

    def _elements(self, stream: str) -> list[Element]:
        """Elements in order of time, with equal times and gaps."""
        time, found = 0, []
        most = self._features.elements
        for _ in range(self.number(0, most) if self.chance(20) else self.number(most // 2, most)):
            time += self.pick([0, 0, 1, 1, 1, 2, 5]) * SECOND
            triples = dict.fromkeys(self._triple() for _ in range(self.pick([1, 1, 2, 3, 4, 4])))
            found.append(Element(stream, time, tuple(triples)))
        return found

    def _arrivals(self, elements: list[Element], settings: dict[str, StreamSettings]) -> list[Element]:
        """An order of arrival in which some are behind time, and a few more so than their stream's lateness allows."""
        behind = [self.pick([0, 0, 0, 2, 3]) * SECOND if settings[each.stream].lateness else 0 for each in elements]
        order = sorted(range(len(elements)), key=lambda place: (elements[place].time + behind[place], place))
        return [elements[place] for place in order]


# ---------------------------------------------------------------- scenarios


def scenario(choices: Choices, features: Features, *, beside: int = 0) -> Scenario:
    """A scenario with a query of these features, and up to so many other queries beside it when it begins."""
    data = _Data(choices, features)
    streams = data.streams()
    lives = Lives(choices, features, lambda allowed, names: _Queries(choices, allowed, names).query())
    others = lives.before(choices.number(0, beside))
    main = lives.come(NAME)
    return Scenario(
        static=data.quads(0, 16),
        streams=streams,
        events=lives.among(data.events(streams)),
        query=main.text,
        emit=main.emit,
        policy=main.policy,
        others=others,
    )


@st.composite
def scenarios(draw: Any, features: Features = EVERYTHING, *, beside: int = 0) -> Scenario:
    return scenario(Choices.drawn(draw), features, beside=beside)


@st.composite
def queries(draw: Any, features: Features = EVERYTHING) -> str:
    """The text of a query, without its PREFIX."""
    return _Queries(Choices.drawn(draw), features, (*SOURCES, *SOURCES, EVERY)).query()


def shuffled(choices: Choices, ordered: Scenario, lateness: int) -> Scenario:
    """The scenario's elements in another order of arrival, none later than allowed, those of one time as they were."""
    elements = [each for each in ordered.events if isinstance(each, Element)]
    behind = {time: choices.number(0, lateness // SECOND) * SECOND for time in sorted({each.time for each in elements})}
    arrived = sorted(elements, key=lambda each: (each.time + behind[each.time], each.time))
    return replace(ordered, events=tuple(arrived))


# ---------------------------------------------------------------- queries

_NAMES = ("x", "y", "z", "w", "n")
_SPARE = ("e", "f", "k", "m", "n", "w", "z")
_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")


@dataclass(frozen=True)
class Part:
    """A piece of a group and the variables it makes visible there."""

    text: str
    names: tuple[str, ...] = ()


def _union(*several: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for names in several for name in names))


class _Queries(Expressions):
    """Writes one query. `_left` is how many triple patterns it may still have, so that no join explodes."""

    def __init__(
        self, choices: Choices, features: Features, streams: tuple[str, ...] = (*SOURCES, *SOURCES, EVERY)
    ) -> None:
        super().__init__(choices, features)
        self._streams = streams
        self._left = self.number(1, features.patterns)
        self._outside: tuple[str, ...] = ()

    # ------------------------------------------------------------ the whole

    def query(self) -> str:
        form = self.pick(self.features.forms)
        dataset = self._dataset()
        where = self.group("dataset", 2, stream=True)
        if form == "ask":
            return f"ASK {dataset}WHERE {where.text}"
        if form == "construct":
            return f"CONSTRUCT {self._template(where.names)} {dataset}WHERE {where.text}{self._limits(ordered=False)}"
        head, tail, columns = self._select(where)
        return f"{head} {dataset}WHERE {where.text}{tail}{self._last_values(set(columns) - set(where.names))}"

    def _dataset(self) -> str:
        if not self.features.graphs or not self.chance(10):
            return ""
        names = [(word, graph) for word in ("FROM", "FROM NAMED") for graph in (":g1", ":g2")]
        return "".join(f"{word} {graph} " for word, graph in names if self.chance(50))

    def _last_values(self, computed: set[str]) -> str:
        """VALUES after the query; it cannot give a value to what SELECT computes."""
        values = self._values() if self.chance(5) else Part("")
        return "" if computed & set(values.names) else f" {values.text}"

    def _template(self, names: tuple[str, ...]) -> str:
        """Triples of the vocabulary, so that a query that reads what is made finds something."""
        values = [*(f"?{name}" for name in names), ":a", "_:b"]
        nodes = [each for each in values if each[1:] not in ("n", "w", *_SPARE)]
        verbs = [":p", ":p", ":v", ":q", ":out"]
        triples = [
            f"{self.pick(nodes)} {self.pick(verbs)} {self.pick(values)} ." for _ in range(self.pick([1, 2, 2, 3]))
        ]
        return "{ " + " ".join(triples) + " }"

    def _select(self, where: Part) -> tuple[str, str, tuple[str, ...]]:
        """What stands before WHERE, what stands after the group, and the columns."""
        if self.features.aggregates and self.chance(35):
            return self._grouped(where)
        distinct = self.pick(["", "", "", "DISTINCT ", "REDUCED "])
        if not where.names or self.chance(15):
            items, columns = "*", where.names
        else:
            columns = self.some(where.names)
            written = [f"?{name}" for name in columns]
            if self.chance(25):
                alias = self._unused(where.names)
                written.append(f"({self.expression(where.names)} AS ?{alias})")
                columns = (*columns, alias)
            items = " ".join(written)
        return f"SELECT {distinct}{items}", self._order(_union(where.names, columns)), columns

    def _grouped(self, where: Part) -> tuple[str, str, tuple[str, ...]]:
        keys = self.some(where.names) if where.names and self.chance(75) else ()
        keys = keys[:2]
        by = [f"?{name}" for name in keys]
        if self.chance(10):
            alias = self._unused((*where.names, *keys))
            by.append(f"({self.expression(where.names)} AS ?{alias})")
            keys = (*keys, alias)
        shown = keys if self.chance(80) else ()
        columns, items = list(shown), [f"?{name}" for name in shown]
        for _ in range(self.number(0 if items else 1, 2)):
            alias = self._unused((*where.names, *keys, *columns))
            items.append(f"({self._computed(where.names, keys)} AS ?{alias})")
            columns.append(alias)
        tail = f" GROUP BY {' '.join(by)}" if by else ""
        if self.chance(25):
            tail += f" HAVING ({self._aggregate(where.names)} {self.pick(['>', '<=', '!='])} {self.pick('123')})"
        return f"SELECT {' '.join(items)}", tail + self._order(tuple(columns)), tuple(columns)

    def _computed(self, names: tuple[str, ...], keys: tuple[str, ...]) -> str:
        folded = self._aggregate(names)
        if self.chance(15):
            other = f"?{self.pick(keys)}" if keys and self.chance(50) else self._aggregate(names)
            return f"COALESCE({folded} {self.pick('+-*')} {other}, {folded})"
        return folded

    def _aggregate(self, names: tuple[str, ...]) -> str:
        functions = [*_AGGREGATES, "COUNT", "*"]
        functions += ["MEDIAN"] if self.features.median else []
        functions += ["SAMPLE", "GROUP_CONCAT"] if self.features.freshness else []
        name, distinct = self.pick(functions), self.pick(["", "", "DISTINCT "])
        if name == "*" or not names:
            return f"COUNT({distinct}*)"
        argument = f"?{self.pick(names)}" if self.chance(80) else self.expression(names)
        if name in ("MIN", "MAX") and not self.features.contested:
            argument = f"STR({argument})" if self.features.texts and self.chance(50) else f"(0 + {argument})"
        separator = self.pick(["", ' ; SEPARATOR=","']) if name == "GROUP_CONCAT" else ""
        return f"{name}({distinct}{argument}{separator})"

    def _order(self, names: tuple[str, ...]) -> str:
        if not self.features.order or not names or not self.chance(25):
            return self._limits(ordered=False)
        keys = [self.pick([f"?{name}", f"DESC(?{name})", f"ASC(?{name})"]) for name in self.some(names)[:2]]
        return f" ORDER BY {' '.join(keys)}{self._limits(ordered=True)}"

    def _limits(self, *, ordered: bool) -> str:
        if not self.features.freshness or not self.features.order or not self.chance(50 if ordered else 5):
            return ""
        limit, offset = self.pick(["", " LIMIT 1", " LIMIT 2", " LIMIT 3"]), self.pick(["", "", " OFFSET 1"])
        return limit + offset

    def _unused(self, names: Sequence[str]) -> str:
        taken = {*names, *self._outside}
        return self.pick([name for name in (*_SPARE, "e1", "e2", "e3", "e4", "e5") if name not in taken])

    # ------------------------------------------------------------ groups

    def group(self, place: str, depth: int, *, stream: bool = False, given: tuple[str, ...] = ()) -> Part:
        """A group in braces. `place` is `dataset`, `graph` or `stream`; `stream` asks for a STREAM in it."""
        if depth > 0 and self.features.subselects and self.chance(7):
            return self._sub_select(place, depth, stream=stream)
        parts = [self._stream(depth, place) if stream else self._base(place, depth)]
        names = parts[0].names
        for _ in range(self.pick([0, 1, 1, 1, 2, 3]) if depth else self.pick([0, 0, 1])):
            part = self._part(place, depth, names, given)
            parts.append(part)
            names = _union(names, part.names)
        if stream and self.chance(30):  # what comes first matters to OPTIONAL, MINUS and BIND
            parts = [Part("{ " + parts[0].text + " }", parts[0].names), *parts[1:]]
        return Part("{ " + " ".join(part.text for part in parts) + " }", names)

    def _base(self, place: str, depth: int) -> Part:
        if self._left <= 0:
            return self.pick([Part(""), self._values()])
        if depth > 0 and place != "stream":
            kind = self.pick(["triples", "triples", "graph", "stream"])
            if kind == "graph" and self.features.graphs:
                return self._graph(depth)
            if kind == "stream":
                return self._stream(depth, place)
        return self._triples()

    def _part(self, place: str, depth: int, names: tuple[str, ...], given: tuple[str, ...]) -> Part:
        kinds = ["filter", "bind"] if self.features.expressions else []
        kinds += ["values"] if self.chance(30) else []
        if self._left > 0:
            kinds += ["triples"]
            if depth > 0:
                kinds += ["optional", "optional", "optional", "union", "union", "minus", "minus", "group"]
                kinds += ["sub_select"] if self.features.subselects else []
                if place != "stream":
                    kinds += ["stream", "stream"] + (["graph"] if self.features.graphs else [])
                    kinds += ["sequence"] if self.features.time else []
        match self.pick(kinds or ["values"]):
            case "filter":
                return Part(f"FILTER({self.condition(_union(names, given), place, depth)})")
            case "bind":
                name = self._unused(names)
                return Part(f"BIND({self.expression(_union(names, given))} AS ?{name})", (name,))
            case "triples":
                return self._triples()
            case "optional":
                inner = self.group(place, depth - 1, given=names)
                if not self.features.expressions or self.chance(60):
                    return Part(f"OPTIONAL {inner.text}", inner.names)
                condition = self.condition(_union(inner.names, names), place, depth - 1)  # it sees both sides
                return Part(f"OPTIONAL {{ {inner.text} FILTER({condition}) }}", inner.names)
            case "union":
                both = [self.group(place, depth - 1) for _ in range(self.pick([2, 2, 3]))]
                return Part(" UNION ".join(each.text for each in both), _union(*(each.names for each in both)))
            case "minus":
                return Part(f"MINUS {self.group(place, depth - 1).text}")
            case "group":
                return self.group(place, depth - 1)
            case "sub_select":
                return self._sub_select(place, depth - 1)
            case "stream":
                return self._stream(depth - 1, place)
            case "graph":
                return self._graph(depth - 1)
            case "sequence":
                return self._sequence(depth - 1, place)
            case _:
                return self._values()

    def pattern(self, place: str, depth: int, names: tuple[str, ...]) -> str:
        """The group of an EXISTS."""
        before = self._outside
        self._left = max(1, self._left)  # of an empty pattern the answer is always the same
        if not self.features.contested:  # what happens to `BIND(… AS ?x)` where ?x comes from outside is left open
            self._outside = _union(before, names)
        text = self.group(place, max(0, depth - 1), given=names).text
        self._outside = before
        return text

    def _sub_select(self, place: str, depth: int, *, stream: bool = False) -> Part:
        where = self.group(place, depth - 1, stream=stream)
        head, tail, names = self._select(where)
        return Part(f"{{ {head} WHERE {where.text}{tail} }}", names)

    def _values(self) -> Part:
        names = self.some(_NAMES)[:2]
        terms = [":a", ":a", ":b", ":b", "1", "UNDEF", "UNDEF", "UNDEF"]
        rows = [f"({' '.join(self.pick(terms) for _ in names)})" for _ in range(self.number(1, 3))]
        return Part(f"VALUES ({' '.join('?' + name for name in names)}) {{ {' '.join(rows)} }}", names)

    # ------------------------------------------------------------ graphs and streams

    def _graph(self, depth: int) -> Part:
        inner = self.group("graph", max(0, depth - 1))
        name = self.pick([":g1", ":g2", "?g", "?x"])
        return Part(f"GRAPH {name} {inner.text}", _union((name[1:],) if name[0] == "?" else (), inner.names))

    def _stream(self, depth: int, place: str) -> Part:
        inner = self.group("stream", max(0, depth - 1))
        name = self.pick(self._streams)
        names = _union((name[1:],) if name[0] == "?" else (), inner.names)
        window, at = self._window(inner.names), ""
        if self.features.time and self.chance(15):
            moment = self.pick([each for each in ("t", "u", "e") if each not in names])
            at, names = f" AT ?{moment}", _union(names, (moment,))
        return Part(f"STREAM {name}{window}{at} {inner.text}", names)

    def _window(self, names: tuple[str, ...]) -> str:
        width, slide = self.number(0, 8), self.number(1, 4)
        kinds = ["", " [NOW]", *[" [ALL]"] * 4, *[f" [RANGE {width}s]"] * 3, *[f" [RANGE {width + 5}s]"] * 3]
        kinds += [f" [RANGE {width + 1}s SLIDE {slide}s]", f" [RANGE {width + 1}s TUMBLING]"]
        kinds += [
            f" [TRIPLES {width + 1}]",
            f" [TRIPLES {width + 3}]",
            f" [ELEMENTS {slide}]",
            f" [ELEMENTS {slide + 2}]",
        ]
        kinds += [self.pick([f" [RANGE {width}s @:at]", f" [RANGE {width + 1}s STEP {slide}s @:at]"])]
        if names and self.features.partitions:
            by = " ".join(f"?{name}" for name in self.some(names)[:2])
            kinds += [f" [PARTITION BY {by} {self.pick(['TRIPLES', 'ELEMENTS'])} {slide}]"]
        return self.pick(kinds)

    def _sequence(self, depth: int, place: str) -> Part:
        left, right = (self.group(place, max(0, depth), stream=True) for _ in range(2))
        word = self.pick(["SEQ", "SEQ", "OPTIONALSEQ", "EQUALS", "EQUALSOPTIONAL"])
        return Part(f"{left.text} {word} {right.text}", _union(left.names, right.names))

    # ------------------------------------------------------------ triples

    def _triples(self) -> Part:
        texts, names = [], ()
        for _ in range(self.pick([1, 1, 1, 1, 1, 2, 2, 3])):
            if self._left <= 0 and texts:
                break
            self._left -= 1
            triple = self._triple(names)
            texts.append(triple.text)
            names = _union(names, triple.names)
        return Part(" . ".join(texts) + " .", names)

    def _triple(self, linked: tuple[str, ...]) -> Part:
        subjects = [f"?{name}" for name in linked if name in _NAMES] if linked and self.chance(60) else []
        subject = self.pick(subjects or ["?x"] * 8 + ["?y", "?y", "?z", ":a", "[]"])
        verb = self._verb()
        values = ["?n"] * 6 + ["?y", "?z", "1", "[]"] if verb == ":v" else ["?y"] * 6 + ["?z"] * 3 + ["?x", "?n", ":b"]
        value = self.pick([each for each in values if each != subject or self.chance(5)])
        return Part(f"{subject} {verb} {value}", tuple(node[1:] for node in (subject, verb, value) if node[0] == "?"))

    def _verb(self) -> str:
        if self.features.paths and self.chance(20):
            return self._path(2)
        return self.pick([*[":p"] * 5, *[":v"] * 4, ":q", ":q", ":r", "?w"])

    def _path(self, depth: int) -> str:
        link = self.pick([":p", ":q", ":r", ":v"])
        if depth == 0:
            return link
        inner = self._path(depth - 1)
        return self.pick(
            [
                f"^({inner})",
                f"({inner})/({self._path(depth - 1)})",
                f"({inner}|{link})",
                f"({inner})*",
                f"({inner})+",
                f"({inner})?",
                self.pick([f"!{link}", f"!({link}|^:q)", "!(^:p)", "!()"]),
            ]
        )
