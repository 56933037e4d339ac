"""`cqels check pipeline.toml`: everything that is wrong at once, at its place; warnings; nothing is connected to."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cqels.cli.pipeline_check import Checked, check_pipeline
from cqels.model.errors import CqelsError

FILE = """[prefixes]
"" = "http://ex.org/"

[pipeline]
follow = true

[[streams]]
iri = ":readings"
from = "readings.csv"
template = "readings.toml"

[[data]]
file = "rooms.ttl"

[[queries]]
file = "hot.rq"

[[sinks]]
to = "alerts.csv"
"""
QUERY = """PREFIX : <http://ex.org/>
SELECT ?room ?t WHERE { STREAM :readings [NOW] { ?r :room ?room ; :celsius ?t } FILTER(?t > 30) }
"""
TEMPLATE = """subject = "http://ex.org/reading/{room}/{time}"
[time]
column = "time"
[predicates]
"http://ex.org/room" = { iri = "http://ex.org/{room}" }
"http://ex.org/celsius" = { column = "celsius", datatype = "xsd:decimal" }
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Checked]:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "hot.rq": QUERY,
        "readings.toml": TEMPLATE,
        "readings.csv": "time,room,celsius\n2025-01-06T08:00:00Z,kitchen,21.5\n",
        "rooms.ttl": "@prefix : <http://ex.org/> . :kitchen :floor 1 .",
    }.items():
        Path(name).write_text(text)

    def checked(text: str = FILE, *, connect: bool = False) -> Checked:
        Path("pipeline.toml").write_text(text)
        return check_pipeline(Path("pipeline.toml"), connect=connect)

    return checked


def shown(errors: list[CqelsError]) -> list[str]:
    """Where each is, and what."""
    return [f"{str(each).partition('--> ')[2].partition(chr(10))[0]} {each.message}" for each in errors]


def test_a_pipeline_that_is_right(check: Callable[..., Checked]) -> None:
    checked = check()
    assert (checked.errors, checked.warnings) == ([], [])
    assert checked.summary() == "1 stream, 1 file of data, 1 query, 1 sink; live"


def test_it_may_be_in_another_folder(
    check: Callable[..., Checked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    monkeypatch.chdir(tmp_path.parent)
    assert check_pipeline(Path(tmp_path.name) / "pipeline.toml").errors == []


WRONG = {
    "several at once": (
        lambda text: text.replace("follow = true", 'follow = 1\ntriger = "2s"').replace("rooms.ttl", "room.ttl"),
        [
            "pipeline.toml:5:10 pipeline.follow is a number, and that is not taken",
            "pipeline.toml:6:1 pipeline has no option 'triger'",
            "pipeline.toml:14:8 there is no file room.ttl",
        ],
    ),
    "no file of a stream": (
        lambda text: text.replace("readings.csv", "reading.csv"),
        ["pipeline.toml:9:8 no file at 'reading.csv'"],
    ),
    "no template": (
        lambda text: text.replace("readings.toml", "reading.toml"),
        ["pipeline.toml:10:12 there is no template reading.toml"],
    ),
    "no query": (
        lambda text: text.replace("hot.rq", "cold.rq"),
        ["pipeline.toml:16:8 cold.rq cannot be read: no such file or directory"],
    ),
    "none at all": (
        lambda text: text.replace('[[queries]]\nfile = "hot.rq"\n', ""),
        ["pipeline.toml the pipeline has no query"],
    ),
    "a stream that is not declared": (
        lambda text: text.replace('":readings"', '":reading"'),
        ["hot.rq:2:32 stream <http://ex.org/readings> is not declared"],
    ),
    "a format that does not fit": (
        lambda text: text + 'format = "ntriples"\n',
        ["pipeline.toml:20:10 the format ntriples writes the triples of CONSTRUCT only"],
    ),
    "a query that is not there": (
        lambda text: text + 'queries = ["cold"]\n',
        ["pipeline.toml:20:11 alerts.csv is for query 'cold', which there is not"],
    ),
    "two queries in one file": (
        lambda text: text.replace('file = "hot.rq"', 'file = "hot.rq"\n[[queries]]\nfile = "hot.rq"'),
        ["pipeline.toml:21:6 alerts.csv is one table, and there are 2 queries"],
    ),
    "two sinks at one place": (
        lambda text: text + '[[sinks]]\nto = "./alerts.csv"\n',
        ["pipeline.toml:21:6 ./alerts.csv is the place of two sinks"],
    ),
    "a sink in the place of the input": (
        lambda text: text.replace('"alerts.csv"', '"readings.csv"'),
        ["pipeline.toml:19:6 sink readings.csv would overwrite what is read"],
    ),
    "a speed that is none": (
        lambda text: text.replace("follow = true", "follow = true\nspeed = -1"),
        ["pipeline.toml:6:9 pipeline.speed: -1 is not a number above 0"],
    ),
    "a budget": (
        lambda text: text.replace('"hot.rq"', '"hot.rq"\nmemory = "much"'),
        ["pipeline.toml:17:10 the budget of a query: 'much' is not a size"],
    ),
    "no such sink": (
        lambda text: text.replace("alerts.csv", "kafak://h/t"),
        ["pipeline.toml:19:6 results cannot go to 'kafak://h/t': there is no sink kafak"],
    ),
    "no such source": (
        lambda text: text.replace('"readings.csv"', '"mqt://h/t"'),
        ["pipeline.toml:9:8 stream <http://ex.org/readings>: there is no source mqt://, did you mean mqtt://?"],
    ),
    "options of another source": (
        lambda text: text.replace('"readings.csv"', '"mqtt://h/t"\nqos = 3\nevent = "x"'),
        [
            "pipeline.toml:11:1 streams has no option 'event'",
            "pipeline.toml:10:7 the qos of stream",
        ],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(check: Callable[..., Checked], name: str) -> None:
    change, expected = WRONG[name]
    text = change(FILE)
    assert text != FILE
    found = shown(check(text).errors)
    assert len(found) == len(expected) or name == "options of another source", found
    for told, message in zip(found, expected, strict=False):
        assert told.startswith(message)


def test_a_template_fits_the_header(check: Callable[..., Checked]) -> None:
    Path("readings.csv").write_text("time,room,fahrenheit\n")
    assert "celsius" in shown(check().errors)[0]


def test_data_that_is_not_rdf(check: Callable[..., Checked]) -> None:
    Path("rooms.ttl").write_text("@prefix : <http://ex.org/> .\n:kitchen :floor .\n")
    assert shown(check().errors)[0].startswith("rooms.ttl:2:")


def test_what_nobody_reads_is_a_warning(check: Callable[..., Checked]) -> None:
    checked = check(FILE + '\n[[streams]]\niri = ":doors"\nfrom = "readings.csv"\ntemplate = "readings.toml"\n')
    assert checked.errors == []
    assert shown(checked.warnings) == ["pipeline.toml:22:7 no query reads the stream <http://ex.org/doors>"]


def test_servers_are_tried_only_when_asked(check: Callable[..., Checked]) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        pytest.importorskip("paho.mqtt", reason="pip install 'cqels[mqtt]'")
        text = FILE.replace('"readings.csv"', f'"mqtt://127.0.0.1:{port}/rooms"')
        text = text.replace("alerts.csv", f"mqtt://127.0.0.1:{port}/alerts")
        assert check(text).errors == []
        told = shown(check(text, connect=True).errors)
        assert [each.partition(" ")[0] for each in told] == ["pipeline.toml:9:8", "pipeline.toml:19:6"]
        assert "does not answer" in told[0]
        server.listen()
        assert check(text, connect=True).errors == []
