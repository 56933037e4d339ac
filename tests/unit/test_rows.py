"""Results as rows: their values by name, by position and as Python's own, and what else they are."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal

import pytest
from pyoxigraph import BlankNode, Literal, NamedNode

import cqels
from cqels.model.conversion import Plain, plain
from cqels.model.terms import XSD, Term
from cqels.model.time import EARLIEST, LATEST, SECOND
from cqels.results import Result

KITCHEN, TWO = NamedNode("http://ex.org/kitchen"), Literal(2)
WEST = timezone(-timedelta(hours=5))
ROW = Result("hot", 4 * SECOND + 1_500, 7, "+", (KITCHEN, TWO, None), variables=("room", "n", "who"))


def test_a_row_by_name_and_by_position() -> None:
    assert ROW["room"] == ROW.room == ROW[0] == ROW[-3] == KITCHEN
    assert ROW[:2] == (KITCHEN, TWO)
    assert ROW.who is None
    room, n, _ = ROW
    assert (room, n, len(ROW), list(ROW)) == (KITCHEN, TWO, 3, [KITCHEN, TWO, None])
    assert KITCHEN in ROW
    assert ROW.tick not in ROW
    assert dict(ROW) == ROW.asdict() == {"room": KITCHEN, "n": TWO, "who": None}
    assert ROW.python() == {"room": "http://ex.org/kitchen", "n": 2, "who": None}
    assert {"room", "time"} <= {*dir(ROW)}


def test_a_name_that_is_no_variable() -> None:
    known = "no variable ?rooms, the variables are ?room ?n ?who"
    with pytest.raises(AttributeError, match=known.replace("?", r"\?")):
        _ = ROW.rooms
    with pytest.raises(KeyError, match=known.replace("?", r"\?")):
        ROW["rooms"]
    with pytest.raises(IndexError):
        ROW[3]
    assert not hasattr(ROW, "count"), "tuples have it"


def test_variables_that_are_called_like_attributes() -> None:
    names = ("time", "sign", "values", "count", "index", "keys")
    row = Result("q", SECOND, 1, "-", tuple(map(Literal, range(6))), variables=names)
    assert (row.time, row.sign) == (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "-")
    assert (row.count, row.index) == (Literal(3), Literal(4))
    assert [row[name] for name in names] == [*row.values]
    assert row.python() == dict(zip(names, range(6), strict=True))


def test_the_time_of_a_result() -> None:
    assert ROW.time == datetime(1970, 1, 1, 0, 0, 4, 1, tzinfo=UTC)
    assert ROW.nanoseconds == 4 * SECOND + 1_500
    ends = [ROW._replace(nanoseconds=end).time for end in (EARLIEST, LATEST)]
    assert [end.year for end in ends] == [1677, 2262]


def test_results_that_are_no_rows() -> None:
    with cqels.Engine() as engine:
        answer = engine.register("ASK { STREAM <http://ex.org/s> [NOW] { ?s ?p ?o } }")
        made = engine.register("CONSTRUCT { ?o ?p ?s } WHERE { STREAM <http://ex.org/s> [NOW] { ?s ?p ?o } }")
        rows = engine.register("SELECT ?s { STREAM <http://ex.org/s> [NOW] { ?s ?p ?o } }", emit="snapshot")
        engine.push("http://ex.org/s", "<http://ex.org/a> <http://ex.org/p> <http://ex.org/b> .", time="1s")
        engine.heartbeat("2s")
        yes, _ = answer
        assert (bool(yes), yes.boolean, len(yes), yes.asdict()) == (True, True, 0, {})
        assert [(len(each.triples), each.python()) for each in made] == [(1, {})]
        full, empty = rows
        assert (full.s, empty.empty, empty.asdict()) == (NamedNode("http://ex.org/a"), True, {})
        with pytest.raises(KeyError, match="empty snapshot"):
            empty["s"]


def test_a_row_is_one_value_among_others() -> None:
    same = Result("hot", 4 * SECOND + 1_500, 7, "+", (KITCHEN, TWO, None), variables=("room", "n", "who"))
    assert same == ROW == pickle.loads(pickle.dumps(ROW)) == copy.deepcopy(ROW)
    assert len({same, ROW, ROW._replace(tick=8)}) == 2
    assert repr(ROW) == (
        "<result of hot at 4000001500ns, tick 7: + ?room=<http://ex.org/kitchen> "
        '?n="2"^^<http://www.w3.org/2001/XMLSchema#integer> ?who=unbound>'
    )


@pytest.mark.parametrize(
    ("term", "value"),
    [
        (KITCHEN, "http://ex.org/kitchen"),
        (BlankNode("b"), "_:b"),
        (Literal("a text"), "a text"),
        (Literal("ein Text", language="de"), "ein Text"),
        ("007^integer", 7),
        ("-3^byte", -3),
        ("300^byte", "300"),
        ("1.50^decimal", Decimal("1.50")),
        ("1.5e3^double", 1500.0),
        ("0.1^float", 0.10000000149011612),
        ("many^integer", "many"),
        ("1^boolean", True),
        ("2026-11-17T08:00:00.1234567Z^dateTime", datetime(2026, 11, 17, 8, 0, 0, 123456, tzinfo=UTC)),
        ("2026-11-17T24:00:00^dateTime", datetime(2026, 11, 18)),
        ("1969-12-31T23:59:59.5-05:00^dateTime", datetime(1969, 12, 31, 23, 59, 59, 500_000, WEST)),
        ("12026-11-17T08:00:00Z^dateTime", "12026-11-17T08:00:00Z"),
        ("-0044-03-15T08:00:00Z^dateTime", "-0044-03-15T08:00:00Z"),
        ("2024-02-29Z^date", date(2024, 2, 29)),
        ("08:30:00+01:00^time", time(8, 30, tzinfo=timezone(timedelta(hours=1)))),
        ("-P1DT2H^dayTimeDuration", -timedelta(days=1, hours=2)),
        ("PT0.5S^duration", timedelta(milliseconds=500)),
        ("P1Y^yearMonthDuration", "P1Y"),
        ("P1M1D^duration", "P1M1D"),
        ("P9999999999D^dayTimeDuration", "P9999999999D"),
        ("cafe^hexBinary", "cafe"),
    ],
)
def test_terms_as_python_has_them(term: Term | str, value: Plain) -> None:
    if isinstance(term, str):
        text, _, datatype = term.partition("^")
        term = Literal(text, datatype=NamedNode(XSD + datatype))
    assert plain(term) == value
    assert type(plain(term)) is type(value)
