"""The workloads that the field measures itself by: data generators, queries, and what was published about them.

Each is a folder of this package: its generator, its queries in CQELS-QL, what they answer on the small size, and a page
that explains it.
"""

from __future__ import annotations

from importlib import import_module

from cqels.model.errors import CqelsError
from cqels.scenarios.scenario import Asked, Data, Scenario

NAMES = ("taxi", "conference", "social", "sensors", "city")

__all__ = ["NAMES", "Asked", "Data", "Scenario", "scenario"]


def scenario(name: str) -> Scenario:
    """The scenario of a name."""
    if name not in NAMES:
        raise CqelsError(f"there is no scenario '{name}'", hint=f"the scenarios are {', '.join(NAMES)}")
    found = import_module(f"cqels.scenarios.{name}").SCENARIO
    assert isinstance(found, Scenario)
    return found
