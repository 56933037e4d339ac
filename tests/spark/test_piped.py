"""The stages of a pipeline, without Spark: what is lost, repeated or cut into batches changes no result."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")
pytest.importorskip("google.protobuf", reason="pip install 'cqels[spark]'")

from pyoxigraph import Literal, NamedNode

from cqels.ingest import Element, StreamSettings
from cqels.plan.prepare import prepare
from cqels.spark.operator import stateful_processor
from cqels.spark.operator.state_layouts import FIVE_VARIABLES, TWO_VARIABLES
from cqels.store.dataset import Store

from ..cases import DIRECTORY, read_case, shown, spaced
from ..properties.test_engine import COMPANY, FEATURES, ORDERED
from ..random_orders import ordered_scenarios
from ..random_queries import scenarios
from ..random_shapes import shapes
from ..random_variants import variants
from ..scenarios import Scenario, run
from ..test_cases import FILES, play
from .piped import Piped

MANY = int(os.environ.get("FUZZ_EXAMPLES", "2000"))
SIZES = [pytest.param(20, id="some"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]
LOSSES = ("", "", "", "process", "memory", "batch", "move")


@pytest.fixture(autouse=True)
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots are taken after a few batches."""
    monkeypatch.setattr(stateful_processor, "LEAST_LOG", 600)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DIRECTORY).with_suffix("")))
def test_case(path: Path) -> None:
    case = read_case(path)
    lines = shown(case, play(case, Piped))
    found = {name: spaced(rows) for name, rows in lines.items() if rows}
    assert found == {name: spaced(rows) for name, rows in case.expected.items() if rows}


@pytest.mark.parametrize("examples", SIZES)
@pytest.mark.parametrize(
    "made",
    [scenarios(COMPANY, beside=2), scenarios(FEATURES), shapes(FEATURES), ordered_scenarios(ORDERED), variants()],
    ids=["company", "any", "shapes", "ordered", "variants"],
)
def test_the_pipeline_agrees_with_the_reference(made: st.SearchStrategy[Scenario], examples: int) -> None:
    """pipeline(s) = reference(s), whatever is lost on the way and however large the micro-batches are."""

    @settings(max_examples=examples)
    @given(made, st.integers(1, 6), st.integers(), st.sampled_from((FIVE_VARIABLES, TWO_VARIABLES)))
    def law(scenario: Scenario, size: int, seed: int, layout: int) -> None:
        random = Random(seed)
        found = run(scenario, engine=Piped, size=size, layout=layout, lose=lambda: random.choice(LOSSES))
        assert found == run(scenario)

    law()


@pytest.mark.parametrize("layout", [FIVE_VARIABLES, TWO_VARIABLES])
@pytest.mark.parametrize(("lost", "rebuilt"), [("", 0), ("process", 0), ("memory", 3), ("batch", 3)])
def test_an_engine_is_made_again_only_where_its_memory_is_lost(lost: str, rebuilt: int, layout: int) -> None:
    """Another process attaches what the last one left; what a batch in vain left stands for nothing."""
    losses = iter(["", "", lost, lost, lost])
    piped = Piped(Store(), [StreamSettings("http://ex.org/s")], layout=layout, lose=lambda: next(losses))
    asked = piped.register(prepare("SELECT (COUNT(*) AS ?n) WHERE { STREAM <http://ex.org/s> [ALL] { ?s ?p ?o } }"))
    term = NamedNode("http://ex.org/a")
    for time in range(4):
        piped.push(Element("http://ex.org/s", time, ((term, term, Literal(str(time))),)))
    assert [result.values[0].value for result in asked.take()] == ["1", "2", "3", "4"]
    assert piped.rebuilt == rebuilt
