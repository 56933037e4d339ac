"""Each scenario at its small size: the engines agree row for row, and answer what they answered before."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from cqels.ingest.input_files import files_of
from cqels.scenarios import NAMES, Data, Scenario, scenario
from cqels.scenarios.answers import answers, answers_on_spark, written

MADE = [name for name in NAMES if find_spec(f"cqels.scenarios.{name}") is not None]
SEED = 1


@pytest.fixture(scope="module", params=MADE)
def asked(request: pytest.FixtureRequest) -> Scenario:
    return scenario(request.param)


@pytest.fixture(scope="module")
def data(asked: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Data:
    return asked.make(tmp_path_factory.mktemp(asked.name), asked.numbers("small"), SEED, lambda done, all: None)


@pytest.fixture(scope="module")
def found(asked: Scenario, data: Data) -> dict[str, str]:
    queries = [asked.query(each) for each in asked.queries]
    results = answers(queries, data)
    return {query.name or "": written(query, results[query.name or ""]) for query in queries}


def test_every_query_answers_as_before(asked: Scenario, found: dict[str, str]) -> None:
    """With REWRITE=1 what is answered now is what is expected from now on."""
    for name, text in found.items():
        assert text.count("\n") > 1, f"{name} answers nothing"
        path = asked.folder / "expected" / f"{name}.csv"
        if os.environ.get("REWRITE"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, newline="")
        assert path.read_bytes().decode() == text, name


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.fuzz)])
def test_the_judge_agrees(asked: Scenario, data: Data, found: dict[str, str], half: int) -> None:
    """Of every other query, since it takes long; of the others too when fuzzing."""
    queries = [asked.query(each) for each in asked.queries[half::2]]
    judged = answers(queries, data, engine="reference")
    for query in queries:
        assert written(query, judged[query.name or ""]) == found[query.name or ""], query.name


def test_the_same_seed_makes_the_same_data(asked: Scenario, data: Data, tmp_path: Path) -> None:
    again = asked.make(tmp_path, asked.numbers("small"), SEED, lambda done, all: None)
    assert again.facts == data.facts
    for before, after in zip(data.declarations, again.declarations, strict=True):
        assert [each.read_bytes() for each in files_of(before.path)] == [
            each.read_bytes() for each in files_of(after.path)
        ]


def test_spark_agrees(asked: Scenario, data: Data, found: dict[str, str], spark: object) -> None:
    queries = [asked.query(each) for each in asked.queries]
    size = max(1, sum(file.stat().st_size for each in data.declarations for file in files_of(each.path)) // 3)
    on_spark = answers_on_spark(queries, data, spark, batch_bytes=size)
    for query in queries:
        assert written(query, on_spark[query.name or ""]) == found[query.name or ""], query.name
