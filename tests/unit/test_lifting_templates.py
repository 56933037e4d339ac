"""What lifting templates make of records: nodes, values, times; and what is said of templates that do not fit."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cqels.ingest import Rejected, declare, read_stream
from cqels.ingest.encode import Intake
from cqels.ingest.file_batches import file_batches
from cqels.ingest.lifting_template import read_template
from cqels.ingest.record_readers import Members
from cqels.ingest.stream_files import read_file
from cqels.ingest.template_times import TimeTemplate
from cqels.ingest.template_values import Surroundings
from cqels.ingest.term_codec import Terms
from cqels.kernels.memory.arena import Arena
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.model.errors import DataError
from cqels.model.time import format_time
from cqels.pipeline.lift.lift_settings import read_written_template, write_template

CITY = Path(__file__).parents[2] / "examples" / "city"
HEAD = '[time]\ncolumn = "at"\n[prefixes]\nex = "http://ex.org/"\n'
Lift = Callable[..., list[str]]


def short(term: object) -> str:
    return str(term).replace("http://ex.org/", "").replace("http://www.w3.org/2001/XMLSchema#", "")


@pytest.fixture
def lift(tmp_path: Path) -> Lift:
    """The triples of one JSON object, by a template that travelled as JSON."""

    def lifted(template: str, record: dict[str, Any], around: Surroundings | None = None) -> list[str]:
        path = tmp_path / "template.toml"
        top, bracket, tables = template.partition("[")
        path.write_text(top + HEAD + bracket + tables)
        known = read_template(path)
        travelled = read_written_template(json.loads(json.dumps(write_template(known))))
        assert travelled is not None
        assert (travelled.nodes, travelled.timestamp, travelled.values) == (known.nodes, known.timestamp, known.values)
        assert hash(travelled.values) == hash(known.values)
        found = travelled.triples(Members(record), around or Surroundings("r"))
        return [" ".join(map(short, triple)) for triple in found]

    return lifted


WHOLE = '[nodes.o]\nsubject = "x:{id}"\n[nodes.o.predicates]\n"x:a" = "a"\n'
NODE = '[nodes.o]\nsubject = "ex:{id}"\n'


def test_an_observation_and_its_result(lift: Lift) -> None:
    template = (
        '[nodes.o]\nsubject = "ex:o/{id}"\n[nodes.o.predicates]\n"ex:result" = { node = "r" }\n'
        '[nodes.r]\nneeds = ["v"]\n[nodes.r.predicates]\n"ex:value" = "v"\n"ex:of" = { node = "o" }\n'
    )
    assert lift(template, {"id": 1, "v": 2.5}) == [
        "<o/1> <result> _:r_r",
        '_:r_r <value> "2.5"^^<double>',
        "_:r_r <of> <o/1>",
    ]
    with pytest.raises(ValueError, match="no value for any predicate"):
        lift(template, {"id": 1})


def test_a_node_for_each_column(lift: Lift) -> None:
    template = (
        '[nodes.o]\ncolumns = { t = "temp", "h.x" = "hum" }\nsubject = "ex:{id}/{@name}"\n[nodes.o.predicates]\n'
        '"ex:value" = "@value"\n"ex:word" = "@name"\n"ex:text" = { text = "{@name} is {@value}" }\n'
        '"ex:state" = { column = "@value", map = { 1 = "low", 2 = "high" } }\n'
    )
    assert lift(template, {"id": 1, "t": 1, "h": {"x": 3}}) == [
        '<1/temp> <value> "1"^^<integer>',
        '<1/temp> <word> "temp"',
        '<1/temp> <text> "temp is 1"',
        '<1/temp> <state> "low"',
        '<1/hum> <value> "3"^^<integer>',
        '<1/hum> <word> "hum"',
        '<1/hum> <text> "hum is 3"',
    ]
    assert lift(template, {"id": 1, "t": 2})[3] == '<1/temp> <state> "high"'


def test_arrays_and_what_is_around_them(lift: Lift) -> None:
    template = (
        'subject = "ex:{id}"\n[predicates]\n"ex:has" = { node = "leg" }\n"ex:tag" = { each = "tags" }\n'
        '"ex:as" = { iri = "ex:tag/{@value}", each = "tags" }\n'
        '[nodes.leg]\neach = "legs"\nsubject = "ex:{id}/{@index}"\n[nodes.leg.predicates]\n'
        '"ex:to" = "to"\n"ex:of" = { node = "main" }\n"ex:stop" = { node = "stop" }\n'
        '[nodes.stop]\nwithin = "leg"\neach = "stops"\n[nodes.stop.predicates]\n'
        '"ex:name" = "@value"\n"ex:on" = { node = "leg" }\n"ex:city" = "to"\n'
    )
    record = {"id": 7, "tags": ["a", 2, None], "legs": [{"to": "x"}, {"to": "y", "stops": ["p", "q"]}, {}]}
    assert lift(template, record) == [
        "<7> <has> <7/0>",
        "<7> <has> <7/1>",
        "<7> <has> <7/2>",
        '<7> <tag> "a"',
        '<7> <tag> "2"^^<integer>',
        "<7> <as> <tag/a>",
        "<7> <as> <tag/2>",
        '<7/0> <to> "x"',
        "<7/0> <of> <7>",
        '<7/1> <to> "y"',
        "<7/1> <of> <7>",
        "<7/1> <stop> _:r_1_0_stop",
        "<7/1> <stop> _:r_1_1_stop",
        '_:r_1_0_stop <name> "p"',
        "_:r_1_0_stop <on> <7/1>",
        '_:r_1_0_stop <city> "y"',
        '_:r_1_1_stop <name> "q"',
        "_:r_1_1_stop <on> <7/1>",
        '_:r_1_1_stop <city> "y"',
        "<7/2> <of> <7>",
    ]


def test_objects_that_are_gone_through_and_texts_that_are_split(lift: Lift) -> None:
    template = (
        '[nodes.o]\neach = "readings"\nsubject = "ex:{id}/{@name}"\n[nodes.o.predicates]\n"ex:v" = "@value"\n'
        '[nodes.s]\nsubject = "ex:{id}"\n[nodes.s.predicates]\n"ex:in" = { each = "rooms", split = ";" }\n'
    )
    assert lift(template, {"id": 1, "readings": {"t": 20, "h": 3}, "rooms": "a; b;"}) == [
        '<1/t> <v> "20"^^<integer>',
        '<1/h> <v> "3"^^<integer>',
        '<1> <in> "a"',
        '<1> <in> "b"',
    ]
    with pytest.raises(ValueError, match="is not a single value"):
        lift(template, {"id": 1, "readings": {"t": [20]}})


def test_an_item_of_an_array_by_its_number(lift: Lift) -> None:
    assert lift(NODE + '[nodes.o.predicates]\n"ex:v" = "legs.1.to"\n', {"id": 1, "legs": [{}, {"to": 5}]}) == [
        '<1> <v> "5"^^<integer>'
    ]


def test_iris_that_are_there_already(lift: Lift) -> None:
    template = (
        '[nodes.o]\nsubject = "{id}"\n[nodes.o.predicates]\n"ex:a" = { iri = "{x}" }\n'
        '"ex:b" = { iri = "ex:{+x}" }\n"ex:c" = { iri = "ex:{x}" }\n'
    )
    assert lift(template, {"id": "http://ex.org/i", "x": "u:a/b"}) == [
        "<i> <a> <u:a/b>",
        "<i> <b> <u:a/b>",
        "<i> <c> <u%3Aa%2Fb>",
    ]
    with pytest.raises(ValueError, match="'a b' is not an IRI"):
        lift(template, {"id": "a b"})


def test_constants_defaults_and_lists(lift: Lift) -> None:
    template = NODE + (
        '[nodes.o.predicates]\n"ex:a" = { value = 5 }\n"ex:b" = { value = "x", language = "en" }\n'
        '"ex:c" = { column = "c", default = true }\n"ex:d" = ["c", { value = 1.5, datatype = "xsd:decimal" }]\n'
        '"ex:e" = { value = 2014-08-01T10:00:00Z }\n'
        '"ex:f" = { column = "f", default = "0", datatype = "xsd:decimal" }\n'
    )
    assert lift(template, {"id": 1}) == [
        '<1> <a> "5"^^<integer>',
        '<1> <b> "x"@en',
        '<1> <c> "true"^^<boolean>',
        '<1> <d> "1.5"^^<decimal>',
        '<1> <e> "2014-08-01T10:00:00Z"^^<dateTime>',
        '<1> <f> "0"^^<decimal>',
    ]
    assert '<1> <c> "7"^^<integer>' in lift(template, {"id": 1, "c": 7})


def test_what_is_required_and_what_is_missing(lift: Lift) -> None:
    body = NODE + '[nodes.o.predicates]\n"ex:a" = "a"\n"ex:b" = "b"\n'
    strict = body.replace('"ex:b" = "b"', '"ex:b" = { column = "b", required = true }')
    assert lift(body, {"id": 1, "a": "NA", "b": 1}) == ['<1> <a> "NA"', '<1> <b> "1"^^<integer>']
    with pytest.raises(ValueError, match=r"no value for <http://ex.org/b>, which is required"):
        lift(strict, {"id": 1, "a": 1})
    with pytest.raises(ValueError, match="no value for 'k', which the node 'o' requires"):
        lift(body.replace("[nodes.o.", 'needs = ["k"]\nrequired = true\n[nodes.o.'), {"id": 1, "a": 1})


def test_values_that_stand_for_none(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text('missing = ["NA", "-9999"]\n' + HEAD + NODE + '[nodes.o.predicates]\n"ex:a" = "a"\n"ex:b" = "b"\n')
    template = read_template(path)
    found = template.triples(Members({"id": 1, "a": "NA", "b": 1}))
    assert [short(predicate) for _, predicate, _ in found] == ["<b>"]
    with pytest.raises(ValueError, match="no value for any predicate"):
        template.triples(Members({"id": 1, "a": -9999, "b": "NA"}))


def test_values_by_lookup(lift: Lift, tmp_path: Path) -> None:
    (tmp_path / "rooms.csv").write_text("code,name,floor\nk,Kitchen,1\nh,Hall,0\n")
    template = (
        '[values]\nroom = { column = "room", lookup = "rooms.csv", key = "code", value = "name" }\n'
        'place = { text = "{room}/{n}" }\n'
        + NODE
        + '[nodes.o.predicates]\n"ex:in" = { iri = "ex:{place}" }\n'
        + '"ex:floor" = { column = "code", lookup = "rooms.csv", key = "code", value = "floor", default = 9 }\n'
    )
    assert lift(template, {"id": 1, "room": "k", "code": "h", "n": 3}) == ["<1> <in> <Kitchen%2F3>", '<1> <floor> "0"']
    assert lift(template, {"id": 1, "room": "?", "n": 3}) == ['<1> <floor> "9"^^<integer>']


def test_what_surrounds_a_record(lift: Lift) -> None:
    template = NODE.replace("{id}", "{@topic.2}") + (
        '[nodes.o.predicates]\n"ex:key" = "@key"\n"ex:topic" = "@topic"\n"ex:unit" = "@header.unit"\n'
        '"ex:at" = "@arrival"\n"ex:none" = "@topic.9"\n'
    )
    around = Surroundings("r", b"k1", "building/kitchen/temp", (("unit", b"C"), ("unit", b"F")), 1_500_000_000)
    assert lift(template, {}, around) == [
        '<kitchen> <key> "k1"',
        '<kitchen> <topic> "building/kitchen/temp"',
        '<kitchen> <unit> "F"',
        '<kitchen> <at> "1970-01-01T00:00:01.5Z"^^<dateTime>',
    ]
    with pytest.raises(ValueError, match="no value for any predicate"):
        lift(template, {})


def test_members_with_an_at_sign_are_still_members(lift: Lift) -> None:
    assert lift('subject = "{@id}"\n[predicates]\n"ex:a" = "@type"\n', {"@id": "x:a", "@type": "T"}) == [
        '<x:a> <a> "T"'
    ]


# ---------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("template", "value", "expected"),
    [
        (TimeTemplate("t"), "2014-08-01T10:00:00", "2014-08-01T10:00:00Z"),
        (TimeTemplate("t", (), "s"), 1406887200, "2014-08-01T10:00:00Z"),
        (TimeTemplate("t", (), None, "Europe/Copenhagen"), "2014-08-01 10:00:00.25", "2014-08-01T08:00:00.25Z"),
        (TimeTemplate("t", (), None, "Europe/Copenhagen"), "2014-08-01T10:00:00Z", "2014-08-01T10:00:00Z"),
        (TimeTemplate("t", (), None, "+05:30"), "2014-08-01T10:00:00", "2014-08-01T04:30:00Z"),
        (TimeTemplate("t", ("%Y-%m-%d %H:%M:%S%.f",)), "2014-08-01 10:00:00", "2014-08-01T10:00:00Z"),
        (TimeTemplate("t", ("%Y-%m-%d %H:%M:%S%.f",)), "2014-08-01 10:00:00.145", "2014-08-01T10:00:00.145Z"),
        (
            TimeTemplate("t", ("%Y-%m-%d %H:%M:%S%.f",)),
            "2014-08-01 10:00:00.123456789",
            "2014-08-01T10:00:00.123456789Z",
        ),
        (TimeTemplate("t", ("%d.%m.%Y %H:%M:%S%.f %z",)), "01.08.2014 10:00:00.5 +0200", "2014-08-01T08:00:00.5Z"),
        (TimeTemplate("t", ("%d/%m/%Y %H:%M", "iso")), "2014-08-01T10:00:00Z", "2014-08-01T10:00:00Z"),
        (TimeTemplate("t", ("iso", "epoch")), "60000", "1m"),
        (TimeTemplate("t", ("epoch-s",)), 1406887200.25, "2014-08-01T10:00:00.25Z"),
        (TimeTemplate("t", ("epoch-us", "%Y")), "1406887200000000", "2014-08-01T10:00:00Z"),
        (TimeTemplate("t", ("epoch",), "s"), "6e1", "1m"),
        (TimeTemplate("t", ("%d %b %Y",), None, "Europe/Copenhagen"), "1 Aug 2014", "2014-07-31T22:00:00Z"),
    ],
)
def test_times(template: TimeTemplate, value: Any, expected: str) -> None:
    found = template.read(value, "ms")
    assert format_time(found) == expected.replace("1m", "60s")


@pytest.mark.parametrize(
    ("template", "value", "reason"),
    [
        (TimeTemplate("t"), 1.5, "the timestamp '1.5' is neither a dateTime nor an integer"),
        (TimeTemplate("t", ("iso",)), "60000", "does not have the form iso"),
        (TimeTemplate("t", ("epoch-s", "iso")), "soon", "has none of the forms epoch-s, iso"),
        (TimeTemplate("t", ("epoch-s",)), "NaN", "does not have the form epoch-s"),
        (TimeTemplate("t", ("epoch-s",)), "1e99", "does not have the form epoch-s"),
        (TimeTemplate("t", ("%S%.f",)), "10.1234567891", "does not have the form"),
    ],
)
def test_values_that_are_no_times(template: TimeTemplate, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        template.read(value, "ms")


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("template", "message", "hint", "shown"),
    [
        (HEAD + "subject = 'x'\n[predicates]\nex = 'a'\n", "the template has no subject", "move it above", "subject"),
        ("subjct = 'x'\n" + HEAD, "a template has no 'subjct'", "did you mean 'subject'?", "subjct"),
        (HEAD + NODE, "the node 'o' has no predicates", "a template has", "nodes.o"),
        (HEAD + NODE + "ech = 'x'\n", "a node has no 'ech'", "did you mean 'each'?", "ech"),
        (HEAD + NODE + '[nodes.o.predicates]\n"ex:a" = { node = "oo" }\n', "there is no node 'oo'", "'o'", "oo"),
        (HEAD + NODE + 'within = "o"\n[nodes.o.predicates]\n"ex:a" = "a"\n', "'o' is within itself", "", "within"),
        (
            HEAD + NODE + '[nodes.o.predicates]\n"ex:a" = { colum = "a" }\n',
            "an object has no 'colum'",
            "column",
            "colum",
        ),
        (HEAD + NODE + '[nodes.o.predicates]\n"ex:a" = { datatype = "xsd:int" }\n', "needs one of column", "", "ex:a"),
        (HEAD + NODE + '[nodes.o.predicates]\n"ex:a" = { iri = "{a}", map = {} }\n', "a map, but no column", "", "map"),
        (HEAD + NODE + '[nodes.o.predicates]\n"ex:a" = "@topc"\n', "'@topc' is not known", "'@topic'", "@topc"),
        (
            HEAD + NODE + '[nodes.o.predicates]\n"ex:a" = "@header"\n',
            "'@header' is not known",
            "@header.name",
            "@header",
        ),
        (HEAD + NODE + '[nodes.o.predicates]\n"a b" = "a"\n', "'a b' is not an IRI", "", "a b"),
        (
            HEAD
            + '[values]\nx = { text = "{y}" }\ny = { column = "a" }\n'
            + NODE
            + '[nodes.o.predicates]\n"ex:a" = "x"\n',
            "the value 'x' uses 'y', which follows it",
            "",
            "x",
        ),
        (
            HEAD
            + NODE
            + '[nodes.o.predicates]\n"ex:a" = { column = "a", lookup = "no.csv", key = "k", value = "v" }\n',
            "the lookup file 'no.csv' cannot be used",
            "relative to the template",
            "no.csv",
        ),
        ('[time]\ncolumn = "at"\nformats = ["soon"]\n' + WHOLE, "'soon' is not a form of times", "strptime", "soon"),
        ('[time]\ncolumn = "at"\nunit = "y"\n' + WHOLE, "'y' is not a unit of time", "the units", "unit"),
        ('[time]\ncolumn = "at"\nzone = "Mars"\n' + WHOLE, "'Mars' is not a time zone", "Europe/Copenhagen", "zone"),
    ],
)
def test_mistakes(tmp_path: Path, template: str, message: str, hint: str, shown: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(template)
    with pytest.raises(DataError) as caught:
        read_template(path)
    error = caught.value
    assert message in error.message
    assert hint in (error.hint or "")
    assert error.span is not None
    assert template[error.span.start : error.span.end] == shown


# ---------------------------------------------------------------- files


def test_lists_of_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, template = tmp_path / "s.parquet", tmp_path / "t.toml"
    parquet.write_table(pyarrow.table({"id": [1, 2], "at": [0, 1], "tags": [["a", "b"], None]}), path)
    template.write_text(HEAD + NODE + '[nodes.o.predicates]\n"ex:tag" = { each = "tags" }\n"ex:id" = "id"\n')
    found = list(read_stream(declare("http://ex.org/s", path, template=template), pytest.fail))
    assert [len(each.triples) for each in found] == [3, 1]


def test_templates_are_pickled_with_what_they_look_up(tmp_path: Path) -> None:
    template = read_template(CITY / "parking.toml")
    copy = pickle.loads(pickle.dumps(template))
    assert copy == template
    assert hash(copy) == hash(template)
    assert copy.values[0].map["NORREPORT"] == "Nørreport"


@pytest.mark.parametrize("name", ["parking.csv", "traffic.csv", "pollution.csv", "weather.jsonl"])
def test_the_records_of_a_city(name: str) -> None:
    """The real shapes of parking, traffic, pollution and weather, each way that a file is read."""
    path, terms = CITY / name, Terms(ArenaDictionary(Arena(size=1 << 24)))
    template = read_template(path.with_suffix(".toml"))
    declaration = declare("http://ex.org/s", path, template=path.with_suffix(".toml"))
    rejected: tuple[list[Rejected], list[Rejected]] = ([], [])
    found = [
        (time, [word for triple in triples for word in triple])
        for batch in file_batches(declaration, path, template, 0, Intake(terms), rejected[0].append)
        for time, _, triples in batch.rows()
    ]
    expected = [
        (each.time, [word for triple in each.triples for word in terms.encode_all(triple)])
        for each in read_file(declaration, path, template, rejected[1].append)
    ]
    assert found == expected
    assert rejected[0] == rejected[1]
    assert list(read_stream(declaration, lambda _: None)) == list(read_stream(declaration, lambda _: None))
    counts = {"parking.csv": (4, 2), "traffic.csv": (3, 0), "pollution.csv": (2, 0), "weather.jsonl": (3, 1)}
    assert (len(found), len(rejected[0])) == counts[name]
