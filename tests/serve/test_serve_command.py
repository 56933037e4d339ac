"""`cqels serve`: its options, its words in a pipeline file, and what is refused before anything is served."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from cqels.cli.serve_run import given_service, serve
from cqels.model.errors import CqelsError
from cqels.options import PipelineOptions
from cqels.pipeline_file import Given, PipelineFile

from .serving import serve_process

QUERY = "SELECT ?s ?v WHERE { STREAM <http://ex.org/obs> [RANGE 10s] { ?s <x:value> ?v } }"
PIPELINE = f"""
[prefixes]
"" = "http://ex.org/"

[[streams]]
iri = ":obs"
from = "obs.nt"

[[queries]]
name = "all"
text = "{QUERY}"

[serve]
base = "http://ex.org/"
max-queries = 2
results = "10MB"

[[serve.streams]]
name = "pushed"
overflow = "sample"
template = "t.toml"
"""
TEMPLATE = 'subject = "x:{a}"\n[time]\ncolumn = "at"\n[predicates]\n"x:value" = { column = "b" }\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(tables: dict[str, Any], path: Path | None = None) -> PipelineOptions:
    given = given_service(path, tables)
    made = given.options()
    given.check()
    return made


def test_without_anything_it_is_embedded_and_of_this_machine() -> None:
    made = options({})
    assert (made.run.engine, made.serve.host, made.serve.port) == ("embedded", "127.0.0.1", 7070)


def test_the_pipeline_file_says_more_and_the_command_goes_first(folder: Path) -> None:
    (folder / "pipeline.toml").write_text(PIPELINE)
    made = options({"serve": {"max_queries": 5}})
    assert made.serve.base == "http://ex.org/"
    assert made.serve.max_queries == 5
    assert made.serve.results == 10 << 20
    assert made.serve.streams[0]["template"] == "t.toml"


@pytest.mark.parametrize(
    ("word", "value", "told"),
    [
        ("port", "70000", "the number of a port"),
        ("overflow", '"drop"', "drop-oldest"),
        ("log-format", '"xml"', "text, json"),
        ("max-body", '"many"', "size"),
        ("prot", "1", "did you mean port"),
        ("streams", '["obs"]', "[[serve.streams]]"),
    ],
)
def test_a_wrong_word_is_told_with_its_place(folder: Path, word: str, value: str, told: str) -> None:
    (folder / "pipeline.toml").write_text(f"[serve]\n{word} = {value}\n")
    with pytest.raises(CqelsError) as error:
        options({})
    assert told in str(error.value)
    assert "pipeline.toml:2:" in str(error.value)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"serve": {"host": "0.0.0.0"}}, "there are no tokens"),
        ({"serve": {"tokens": "none.txt"}}, "none.txt cannot be read"),
        ({"serve": {"tls_cert": "none.pem", "port": "0"}}, "there is no file none.pem"),
        ({"serve": {"base": "rooms"}}, "not a base"),
        ({"pipeline": {"engine": "reference"}}, "the reference engine serves nobody"),
        ({"serve": {"port": "0", "streams": [{"name": "obs", "clock": "sun"}]}}, "stream obs: 'sun' is no clock"),
    ],
)
def test_what_is_refused(said: dict[str, Any], told: str) -> None:
    with pytest.raises(CqelsError) as error:
        serve(given_service(None, said))
    assert told in str(error.value)


def test_an_address_that_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(CqelsError) as error:
        serve(given_service(None, {"serve": {"port": str(other.getsockname()[1])}}))
    assert "is in use" in str(error.value)
    assert "--port" in str(error.value)


def test_a_pipeline_is_served(folder: Path) -> None:
    """Its files are followed, its queries have their results, and its streams take pushes as well."""
    (folder / "pipeline.toml").write_text(PIPELINE)
    (folder / "t.toml").write_text(TEMPLATE)
    (folder / "obs.nt").write_text('<x:a> <x:value> "1" 1000 .\n')
    with serve_process(folder) as process, process.client() as client:
        first = client.get("/queries/all/results", params={"from": "start", "wait": "20s"}).json()
        assert [each["bindings"]["v"]["value"] for each in first["results"]] == ["1"]
        assert client.post("/streams/obs", content='<x:a> <x:value> "2" 2000 .').json()["accepted"] == 1
        with (folder / "obs.nt").open("a") as file:
            file.write('<x:a> <x:value> "3" 3000 .\n')
        found = first["results"]
        while len(found) < 3:
            answer = client.get("/queries/all/results", params={"after": len(found) - 1, "wait": "20s"}).json()
            assert answer["results"], process.said()
            found += answer["results"]
        assert {each["bindings"]["v"]["value"] for each in found} == {"1", "2", "3"}
        assert client.get("/streams/pushed").json()["overflow"] == "sample"
        pushed = client.post("/streams/pushed", content="a,b,at\n1,2,4000\n", headers={"content-type": "text/csv"})
        assert pushed.json() == {"accepted": 1, "rejected": 0}
        assert client.delete("/queries/all").status_code == 409
        assert client.get("/").json()["base"] == "http://ex.org/"
    assert "stopped; the same command goes on from here" in process.said()
    assert "Traceback" not in process.said()


def test_templates_are_beside_the_file_that_names_them(folder: Path) -> None:
    (folder / "pipeline.toml").write_text(PIPELINE)
    given = Given(PipelineFile.read(folder / "pipeline.toml"), folder=folder, serves=True)
    assert given.options().serve.streams[0]["template"] == str(folder / "t.toml")


def test_a_query_of_the_file_declares_the_streams_that_nobody_has(folder: Path) -> None:
    (folder / "pipeline.toml").write_text(PIPELINE.replace('[[streams]]\niri = ":obs"\nfrom = "obs.nt"\n', ""))
    (folder / "t.toml").write_text(TEMPLATE)
    with serve_process(folder) as process, process.client() as client:
        assert client.post("/streams/obs", content='<x:a> <x:value> "2" 2000 .').json()["accepted"] == 1
        answer = client.get("/queries/all/results", params={"from": "start", "wait": "20s"}).json()
        assert [each["bindings"]["v"]["value"] for each in answer["results"]] == ["2"]
