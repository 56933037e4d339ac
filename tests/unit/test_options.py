"""Options objects: the same for the command line and for a pipeline file."""

from __future__ import annotations

import inspect
import re
import tomllib
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest
from pyoxigraph import NamedNode

from cqels.cli.run_command import run
from cqels.ingest import parse_declaration
from cqels.model.errors import CqelsError
from cqels.model.time import MINUTE, SECOND
from cqels.options import (
    AppOptions,
    DataFile,
    DatasetOptions,
    InputOptions,
    OutputOptions,
    PipelineOptions,
    QueryOptions,
    RunOptions,
    on_the_command_line,
)

PIPELINE = """
[input]
stream = ["<http://ex.org/a>=a.nt?lateness=2s", {iri = "http://ex.org/b", path = "b/*.nq", idle = "1s"}]
start = 2026-01-31T12:00:00Z
until = "40s"
follow = true
changed = "skip"
speed = 100

[dataset]
data = "rooms.data?format=turtle"
graph = ["<http://ex.org/g>=g.ttl"]
allow-service = ["ex.org,localhost:3030", "10.0.0.1"]
allow_load = "data"
service-refresh = "1m"

[queries]
files = ["hot.rq"]
emit = "changes"
memory-per-query = "200MB"

[run]
checkpoint = "state"
batch = "32MB"
trigger = "2s"
instances = 4
conf = {"spark.driver.memory" = "4g"}

[output]
out = "results/"
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
        data=(DataFile("rooms.data", "turtle"),),
        graph=(DataFile("g.ttl", None, NamedNode("http://ex.org/g")),),
        allow_service=("ex.org", "localhost:3030", "10.0.0.1"),
        allow_load=(Path("data"),),
        service_refresh=MINUTE,
    )
    assert options.queries == QueryOptions(files=(Path("hot.rq"),), emit="changes", memory_per_query="200MB")
    assert options.run == RunOptions(
        checkpoint=Path("state"),
        batch=32 << 20,
        trigger=2 * SECOND,
        instances=4,
        conf=(("spark.driver.memory", "4g"),),
    )
    assert options.output == OutputOptions(out="results/", prometheus="9100")
    assert options.output.to_folder
    assert options.output.chosen_format == "csv"
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
    assert PipelineOptions.from_mapping({"input": {"stream": "<u:s>=a.nt"}}).engine == "spark"


def test_every_option_of_the_command_line_has_its_word() -> None:
    groups = (InputOptions, DatasetOptions, QueryOptions, RunOptions, OutputOptions)
    words = [each.name for group in groups for each in fields(group)]
    assert len(words) == len({*words})
    assert sorted(words) == sorted("files" if name == "queries" else name for name in inspect.signature(run).parameters)


WRONG = {
    "group": ({"outputs": {}}, "there is no 'outputs'", "did you mean output?"),
    "not a table": ({"run": 3}, "run is a number", "a table of options"),
    "word": ({"run": {"triger": "2s"}}, "run has no option 'triger'", "did you mean trigger?"),
    "far word": ({"output": {"colour": 1}}, "output has no option 'colour'", "there are out, format, rejects"),
    "underscore": ({"dataset": {"allow_lod": "x"}}, "no option 'allow_lod'", "did you mean allow-load?"),
    "twice": ({"dataset": {"allow-load": "x", "allow_load": "x"}}, "the option 'allow-load' twice", "remove one"),
    "group of another": ({"output": {"checkpoint": "x"}}, "output has no option 'checkpoint'", "there are"),
    "flag": ({"input": {"strict": "yes"}}, "input.strict is a text", "it is true or false"),
    "text": ({"run": {"master": 3}}, "run.master is a number", "it is a text"),
    "path": ({"run": {"checkpoint": True}}, "run.checkpoint is true or false", "path of a file or folder"),
    "count": ({"run": {"instances": "4"}}, "run.instances is a text", "it is a whole number"),
    "half": ({"run": {"instances": 1.5}}, "run.instances is a number", "it is a whole number"),
    "none": ({"run": {"partitions": 0}}, "run.partitions: 0 is less than 1", ""),
    "number": ({"input": {"speed": "fast"}}, "input.speed is a text", "it is a number"),
    "time": ({"input": {"start": 40}}, "input.start is a number", "it is a time such as 40s"),
    "no time": ({"input": {"until": "tomorrow"}}, "input.until: 'tomorrow' is not a time", "write for example 40s"),
    "duration": ({"run": {"trigger": 2}}, "run.trigger is a number", "it is a duration such as 10s"),
    "interval": ({"dataset": {"service-refresh": "0s"}}, "dataset.service-refresh: the interval is not longer", "5m"),
    "size": ({"run": {"batch": 32}}, "run.batch is a number", "it is a size such as 32MB"),
    "choice": ({"queries": {"emit": "change"}}, "queries.emit: 'change' is not one of", "did you mean changes?"),
    "choice of type": ({"queries": {"policy": 1}}, "queries.policy is a number", "it is a text"),
    "placement": ({"run": {"placement": "nearest"}}, "there is no placement 'nearest'", "there are buffers, latency"),
    "stream": ({"input": {"stream": 1}}, "input.stream is a number", "or a table with iri and path"),
    "stream word": (
        {"input": {"stream": {"latenes": "2s"}}},
        "input.stream has no option 'latenes'",
        "did you mean lateness?",
    ),
    "no path": ({"input": {"stream": {"iri": "u:s"}}}, "input.stream has no path", "its iri and the path"),
    "stream type": ({"input": {"stream": {"iri": "u:s", "path": 1}}}, "input.stream.path is a number", "a text"),
    "conf": ({"run": {"conf": "nothing"}}, "run.conf nothing: this is not a setting", "spark.driver.memory=4g"),
    "only on Spark": ({"run": {"engine": "embedded", "ui": True}}, "run.ui can be asked for only with run.engine", ""),
    "only with a stream": ({"run": {"ui": True}}, "run.ui can be asked for only with an input.stream", ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_what_is_taken(name: str) -> None:
    mapping, message, hint = WRONG[name]
    with pytest.raises(CqelsError, match=re.escape(message)) as error:
        PipelineOptions.from_mapping(mapping)  # type: ignore[arg-type]
    assert hint in (error.value.hint or "")


def test_errors_name_an_option_as_it_was_written() -> None:
    with pytest.raises(CqelsError, match=r"^--allow-load is a number"):
        DatasetOptions.from_mapping({"allow_load": 1}, named=on_the_command_line)
    with pytest.raises(CqelsError, match="there is no placement 'nearest'"):
        AppOptions(placement="nearest")
