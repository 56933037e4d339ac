"""Two hundred queries in one engine, which come and go: each sends what it sends alone."""

from __future__ import annotations

import pytest

from ..incremental import Incremental
from ..random_expressions import Choices
from ..random_joins import joining
from ..random_variants import alone, crowd
from ..scenarios import run

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.fuzz) for seed in range(1, 40))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("compared", [False, pytest.param(True, marks=pytest.mark.fuzz)], ids=["any", "thresholds"])
def test_together_as_alone(compared: bool, seed: int) -> None:
    scenario = crowd(seed, compared=compared)
    together = run(scenario, engine=Incremental)
    names = [each.name for each in scenario.registrations]
    assert len(names) == 200
    if seed == 0:  # or it says little; other seeds may draw queries of which few have results
        assert sum(map(bool, together.values())) > (20 if compared else 60)
    for name in names if seed else names[::10]:
        assert together[name] == run(alone(scenario, name), engine=Incremental)[name], name
    for name in names[::50]:
        assert together[name] == run(alone(scenario, name))[name], name


@pytest.mark.parametrize("seed", SEEDS)
def test_over_one_join(seed: int) -> None:
    """Some fifty queries of different shapes over one join, which feeds them: each sends what the reference says."""
    scenario = joining(Choices.seeded(seed), elements=20, most=50)
    together = run(scenario, engine=Incremental)
    assert len(together) >= 40
    assert together == run(scenario)
