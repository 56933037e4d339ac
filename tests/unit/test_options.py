"""Options objects: the same for the command line and for a pipeline file."""

from __future__ import annotations

import inspect
import re
import tomllib
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from pyoxigraph import NamedNode

from cqels.cli.run_command import run
from cqels.cli.serve_command import serve
from cqels.ingest import parse_declaration
from cqels.model.errors import CqelsError
from cqels.model.time import MINUTE, SECOND
from cqels.options import (
    PIPELINE_WORDS,
    TABLES,
    AppOptions,
    DataFile,
    DatasetOptions,
    DeclaredQuery,
    DeclaredSink,
    InputOptions,
    OutputOptions,
    PipelineOptions,
    QueryOptions,
    RunOptions,
    on_the_command_line,
)
from cqels.serve_options import WORDS as SERVE_WORDS

PIPELINE = """
streams = ["<http://ex.org/a>=a.nt?lateness=2s", {iri = "http://ex.org/b", from = "b/*.nq", idle = "1s"}]
data = ["rooms.data?format=turtle", {graph = "<http://ex.org/g>", file = "g.ttl"}]
queries = ["hot.rq", {file = "mean.rq", name = "mean", emit = "rstream", time = "5ms", spread = true}]
sinks = "results/"

[pipeline]
start = 2026-01-31T12:00:00Z
until = "40s"
follow = true
changed = "skip"
speed = 100
allow-service = ["ex.org,localhost:3030", "10.0.0.1"]
allow_load = "data"
service-refresh = "1m"
emit = "changes"
memory-per-query = "200MB"
state = "state"
batch = "32MB"
trigger = "2s"
instances = 4
conf = {"spark.driver.memory" = "4g"}
prometheus = 9100
"""


def test_a_file_fills_all_groups() -> None:
    options = PipelineOptions.from_mapping(tomllib.loads(PIPELINE))
    assert options.input == InputOptions(
        stream=(
            parse_declaration("<http://ex.org/a>=a.nt?lateness=2s"),
            parse_declaration("<http://ex.org/b>=b/*.nq?idle=1s"),
        ),
        start=1769860800 * SECOND,
        until=40 * SECOND,
        follow=True,
        changed="skip",
        speed=100.0,
    )
    assert options.dataset == DatasetOptions(
        data=(DataFile("rooms.data", "turtle"), DataFile("g.ttl", None, NamedNode("http://ex.org/g"))),
        allow_service=("ex.org", "localhost:3030", "10.0.0.1"),
        allow_load=(Path("data"),),
        service_refresh=MINUTE,
    )
    mean = DeclaredQuery(file=Path("mean.rq"), name="mean", emit="rstream", time="5ms", spread=True)
    assert options.queries == QueryOptions(
        query=(DeclaredQuery(file=Path("hot.rq")), mean), emit="changes", memory_per_query="200MB"
    )
    assert [options.queries.budget(each) for each in options.queries.query] == [("200MB", None), ("200MB", "5ms")]
    assert options.run == RunOptions(
        state=Path("state"),
        batch=32 << 20,
        trigger=2 * SECOND,
        instances=4,
        conf=(("spark.driver.memory", "4g"),),
    )
    assert options.output == OutputOptions(sink=(DeclaredSink("results/"),), prometheus="9100")
    assert options.output.sinks == (DeclaredSink("results/", "csv"),)
    assert options.is_live
    assert AppOptions.of(options) == AppOptions(
        checkpoint=Path("state"),
        instances=4,
        start=1769860800 * SECOND,
        until=40 * SECOND,
        follow=True,
        speed=100.0,
        batch_bytes=32 << 20,
    )
    with pytest.raises(FrozenInstanceError):
        options.run.ui = True  # type: ignore[misc]


def test_without_words_there_are_the_defaults() -> None:
    assert PipelineOptions.from_mapping({}) == PipelineOptions()
    assert PipelineOptions().engine == "embedded"  # without a stream there is nothing to distribute
    assert PipelineOptions.from_mapping({"streams": "<u:s>=a.nt"}).engine == "spark"


def test_every_option_of_the_command_line_has_its_word_and_the_other_way_round() -> None:
    tables = {"files": "queries", "stream": "streams", "data": "data", "graph": "data", "out": "sinks"}
    tables["prefix"] = "prefixes"
    options = [*inspect.signature(run).parameters]
    assert {*tables.values(), "pipeline", "serve"} == {*TABLES}
    assert sorted(name for name in options if name not in tables) == sorted(PIPELINE_WORDS)
    served = {*inspect.signature(serve).parameters} - {"file", *tables}
    assert served - {*PIPELINE_WORDS} == {*SERVE_WORDS} - {"streams"}  # which are tables of a file


WRONG = {
    "group": ({"sink": []}, "there is no 'sink'", "did you mean sinks?"),
    "not a table": ({"pipeline": 3}, "pipeline is a number", "it is a table"),
    "word": ({"pipeline": {"triger": "2s"}}, "pipeline has no option 'triger'", "did you mean trigger?"),
    "far word": ({"pipeline": {"colour": 1}}, "pipeline has no option 'colour'", "there are strict, start, until"),
    "underscore": ({"pipeline": {"allow_lod": "x"}}, "no option 'allow_lod'", "did you mean allow-load?"),
    "twice": ({"pipeline": {"allow-load": "x", "allow_load": "x"}}, "the option 'allow-load' twice", "remove one"),
    "flag": ({"pipeline": {"strict": "yes"}}, "pipeline.strict is a text", "it is true or false"),
    "text": ({"pipeline": {"master": 3}}, "pipeline.master is a number", "it is a text"),
    "path": ({"pipeline": {"state": True}}, "pipeline.state is true or false", "path of a file or folder"),
    "count": ({"pipeline": {"instances": "4"}}, "pipeline.instances is a text", "it is a whole number"),
    "half": ({"pipeline": {"instances": 1.5}}, "pipeline.instances is a number", "it is a whole number"),
    "none": ({"pipeline": {"partitions": 0}}, "pipeline.partitions: 0 is less than 1", ""),
    "number": ({"pipeline": {"speed": "fast"}}, "pipeline.speed is a text", "it is a number"),
    "time": ({"pipeline": {"start": 40}}, "pipeline.start is a number", "it is a time such as 40s"),
    "no time": (
        {"pipeline": {"until": "tomorrow"}},
        "pipeline.until: 'tomorrow' is not a time",
        "write for example 40s",
    ),
    "duration": ({"pipeline": {"trigger": 2}}, "pipeline.trigger is a number", "it is a duration such as 10s"),
    "interval": ({"pipeline": {"service-refresh": "0s"}}, "pipeline.service-refresh: the interval is not longer", "5m"),
    "size": ({"pipeline": {"batch": 32}}, "pipeline.batch is a number", "it is a size such as 32MB"),
    "choice": ({"pipeline": {"emit": "change"}}, "pipeline.emit: 'change' is not one of", "did you mean changes?"),
    "choice of type": ({"pipeline": {"policy": 1}}, "pipeline.policy is a number", "it is a text"),
    "placement": (
        {"pipeline": {"placement": "nearest"}},
        "there is no placement 'nearest'",
        "there are buffers, latency",
    ),
    "word outside": ({"engine": "spark"}, "there is no 'engine'", "write it below [pipeline]: engine = …"),
    "stream": ({"streams": 1}, "streams is a number", "it is a text or a table, [[streams]]"),
    "stream word": (
        {"streams": {"latenes": "2s"}},
        "streams has no option 'latenes'",
        "did you mean lateness?",
    ),
    "no path": ({"streams": {"iri": "u:s"}}, "streams has no from", "an entry of streams has iri and from"),
    "stream type": ({"streams": {"iri": "u:s", "from": 1}}, "streams.from is a number", "a text"),
    "stream value": ({"streams": {"iri": "u:s", "from": "a", "lateness": 2}}, "the lateness of stream <u:s>", ""),
    "stream option in its place": (
        {"streams": {"iri": "u:s", "from": "mqtt://h/t?template=t.toml"}},
        "'template' is a word of the stream, not of its place",
        'from = "mqtt://h/t" and template = "…"',
    ),
    "stream iri": ({"streams": {"iri": "s", "from": "a"}}, "stream 's' is not an IRI", "write it in full"),
    "data": ({"data": [{"graph": "u:g"}]}, "data has no file", "an entry of data has file"),
    "graph": ({"data": [{"graph": "g", "file": "g.ttl"}]}, "'g' is not an IRI", "write it in full"),
    "query": ({"queries": [{"name": "hot"}]}, "an entry of queries has a file or a text", 'file = "hot.rq"'),
    "two queries": ({"queries": [{"file": "a", "text": "b"}]}, "an entry of queries has a file or a text", ""),
    "sink": ({"sinks": [{"to": "a.csv", "format": "cvs"}]}, "sinks.format: 'cvs' is not one of", "did you mean csv?"),
    "conf": (
        {"pipeline": {"conf": "nothing"}},
        "pipeline.conf nothing: this is not a setting",
        "spark.driver.memory=4g",
    ),
    "only on Spark": (
        {"pipeline": {"engine": "embedded", "ui": True}},
        "pipeline.ui can be asked for only with pipeline.engine",
        "",
    ),
    "only with a stream": ({"pipeline": {"ui": True}}, "pipeline.ui can be asked for only with streams", ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_what_is_taken(name: str) -> None:
    mapping, message, hint = WRONG[name]
    with pytest.raises(CqelsError, match=re.escape(message)) as error:
        PipelineOptions.from_mapping(mapping)  # type: ignore[arg-type]
    assert hint in (error.value.hint or "")


def test_errors_name_an_option_as_it_was_written() -> None:
    with pytest.raises(CqelsError, match=r"^--allow-load is a number"):
        PipelineOptions.from_mapping({"pipeline": {"allow_load": 1}}, named=on_the_command_line)
    with pytest.raises(CqelsError, match="there is no placement 'nearest'"):
        AppOptions(placement="nearest")
