"""Pipeline files: what they say, what overrides them, and what is wrong with its line and column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cqels.cli.query_files import named_queries
from cqels.model.errors import CqelsError
from cqels.options import DataFile, DeclaredSink, PipelineOptions
from cqels.pipeline_file import Given, PipelineFile, relative_to

FILE = '''[prefixes]
"" = "http://ex.org/"

[pipeline]
engine = "embedded"
state = "state"
rejects = "rejects.tsv"
prometheus = 9100

[[streams]]
iri = ":obs"
from = "${FOLDER}obs.csv"
template = "obs.toml"
lateness = "2s"

[[streams]]
iri = "<http://ex.org/other>"
from = "mqtt://${USER_OF}:${PASS}@localhost/rooms"

[[data]]
file = "rooms.ttl"

[[data]]
file = "plan.ttl"
graph = ":plan"

[[queries]]
file = "hot.rq"

[[queries]]
name = "all"
text = """
PREFIX : <http://ex.org/>
SELECT ?s WHERE { STREAM :obs [NOW] { ?s ?p ?o } }
"""

[[sinks]]
to = "-"

[[sinks]]
to = "results/"
format = "csv"
queries = ["all"]
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USER_OF", "me")
    monkeypatch.setenv("PASS", "secret")
    monkeypatch.setenv("FOLDER", "./")
    Path("hot.rq").write_text("PREFIX ex: <http://ex.org/> SELECT ?s WHERE { STREAM ex:obs [NOW] { ?s ?p ?o } }")
    return tmp_path


def given(text: str = FILE, **line: Any) -> tuple[PipelineOptions, list[CqelsError]]:
    Path("pipeline.toml").write_text(text)
    found = Given(PipelineFile.read(Path("pipeline.toml")), line, query_text=Path.read_text)
    return found.options(), found.errors


def test_a_file() -> None:
    options, errors = given()
    assert errors == []
    first, second = options.input.stream
    assert (first.iri, first.path, first.template) == ("http://ex.org/obs", "./obs.csv", Path("obs.toml"))
    assert (second.iri, second.path) == ("http://ex.org/other", "mqtt://${USER_OF}:${PASS}@localhost/rooms")
    assert [each.graph and each.graph.value for each in options.dataset.data] == [None, "http://ex.org/plan"]
    assert options.run.engine == "embedded"
    assert options.output.sinks == (DeclaredSink("-", "text"), DeclaredSink("results/", "csv", ("all",)))
    assert [each.name for each in named_queries(options.queries)] == ["hot", "all"]


def test_the_command_line_goes_first() -> None:
    options, errors = given(
        pipeline={"engine": "spark", "emit": "changes"},
        streams=["<http://ex.org/other>=other.nt"],
        data=["rooms2.ttl"],
        sinks=["out.csv"],
    )
    assert errors == []
    assert [each.path for each in options.input.stream] == ["./obs.csv", "other.nt"]
    assert options.dataset.data == (DataFile("rooms2.ttl"),)
    assert options.output.sinks == (DeclaredSink("out.csv", "csv"),)
    assert (options.run.engine, options.queries.emit, options.run.state) == ("spark", "changes", Path("state"))


def test_the_prefixes_of_queries_serve_for_streams() -> None:
    line = {"queries": ["hot.rq"], "streams": ["ex:obs=obs.nt?lateness=2s"]}
    options = Given(None, line, query_text=Path.read_text).options()
    assert options.input.stream[0].iri == "http://ex.org/obs"
    found = Given(None, {**line, "streams": [":obs=obs.nt"]}, query_text=Path.read_text)
    found.options()
    assert found.errors[0].message == "the prefix of ':obs' is not declared"
    named = Given(None, {"streams": [":obs=obs.nt"], "prefixes": {"": "u:"}}).options()
    assert named.input.stream[0].iri == "u:obs"


def test_paths_are_relative_to_a_folder() -> None:
    tables = {
        "pipeline": {"state": "state", "store": "/data", "prometheus": "9100", "engine": "spark"},
        "streams": [":a=a.nt?lateness=2s&template=t.toml", {"from": "mqtt://h/t", "template": "t.toml"}, ":b=-"],
        "data": ["rooms.ttl"],
        "queries": [{"file": "hot.rq"}],
        "sinks": ["results/", "-", "kafka:host/topic"],
    }
    assert relative_to(tables, Path("there")) == {
        "pipeline": {"state": "there/state", "store": "/data", "prometheus": "9100", "engine": "spark"},
        "streams": [
            ":a=there/a.nt?lateness=2s&template=there/t.toml",
            {"from": "mqtt://h/t", "template": "there/t.toml"},
            ":b=-",
        ],
        "data": ["there/rooms.ttl"],
        "queries": [{"file": "there/hot.rq"}],
        "sinks": ["there/results/", "-", "kafka:host/topic"],
    }


WRONG = {
    "word": ("lateness =", "latenes =", "streams has no option 'latenes'", "14:1", "did you mean lateness?"),
    "value": ('"2s"', '"2 sheep"', "the lateness of stream <http://ex.org/obs> cannot be read", "14:12", ""),
    "type": ('"2s"', "[]", "streams.lateness is a list", "14:12", "it is a text"),
    "choice": ('"embedded"', '"sparc"', "pipeline.engine: 'sparc' is not one of", "5:10", "did you mean spark?"),
    "table": ("[[sinks]]", "[[sink]]", "there is no 'sink'", "37:3", "did you mean sinks?"),
    "outside": ("[pipeline]", "engine = 1\n[pipelines]", "there is no 'pipelines'", "5:2", "did you mean pipeline?"),
    "missing": ('file = "rooms.ttl"\n', "", "data has no file", "20:1", "an entry of data has file"),
    "variable": ("${PASS}", "${NOT_SET}", "the variable NOT_SET is not set", "18:8", "export NOT_SET=…"),
    "no iri": ('":plan"', '"plan"', "'plan' is not an IRI", "25:9", "write it in full"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_has_its_place(name: str) -> None:
    old, new, message, place, hint = WRONG[name]
    assert old in FILE
    _, errors = given(FILE.replace(old, new, 1))
    told = next(each for each in errors if message in each.message)
    assert f"--> pipeline.toml:{place}\n" in str(told)
    assert hint in (told.hint or "")


def test_a_prefix_that_is_nowhere() -> None:
    _, errors = given(FILE.replace('"" = ', '"ex" = ').replace("PREFIX : ", "PREFIX p: "))
    assert [str(each).partition("pipeline.toml:")[2].partition("\n")[0] for each in errors] == ["11:7", "25:9"]
    assert errors[0].message == "the prefix of ':obs' is not declared"


def test_all_that_is_wrong_is_told() -> None:
    _, errors = given(FILE.replace('"2s"', "[]").replace('"embedded"', '"sparc"').replace("graph =", "graf ="))
    assert [str(each).partition("pipeline.toml:")[2].partition("\n")[0] for each in errors] == ["5:10", "14:12", "25:1"]


def test_a_query_in_the_file_has_its_places() -> None:
    options, _ = given(FILE.replace("STREAM :obs [NOW]", "STREAM ex:obs [NOW]"))
    with pytest.raises(CqelsError, match="prefix ex: is not declared") as error:
        named_queries(options.queries)
    assert "--> pipeline.toml:34:26\n   | SELECT ?s WHERE { STREAM ex:obs" in str(error.value)


def test_what_the_command_line_says_is_not_searched_in_the_file() -> None:
    _, errors = given(pipeline={"trigger": 3}, sinks=[{"to": "x", "format": "cvs"}])
    assert [each.source for each in errors] == [None, None]
    assert errors[0].message.startswith("--trigger is a number")


def test_a_file_that_cannot_be_read() -> None:
    with pytest.raises(CqelsError, match=r"nothing\.toml cannot be read: no such file") as error:
        PipelineFile.read(Path("nothing.toml"))
    assert "cqels init" in (error.value.hint or "")
    for text, place in (("[pipeline]\nengine = spark\n", "2:10"), ("[pipeline\n", "1:10")):
        Path("wrong.toml").write_text(text)
        with pytest.raises(CqelsError, match="the pipeline file is not TOML") as error:
            PipelineFile.read(Path("wrong.toml"))
        assert f"wrong.toml:{place}" in str(error.value)


def test_secrets_are_not_shown() -> None:
    _, errors = given(FILE.replace('rooms"\n', 'rooms"\nlateness = "?"\n'))
    assert "secret" not in str(errors[0])
