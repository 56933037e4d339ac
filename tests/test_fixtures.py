"""Plans as files: each rewrite rule on its own (`rules/`), and whole plans as explained (`plans/`).

`REWRITE=1` fills in what is expected after `----`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cqels.plan.explain import explain
from cqels.plan.optimizer.rules import RULES
from cqels.plan.prepare import prepare

FOLDER = Path(__file__).parent / "fixtures"
PREFIX = "PREFIX : <http://ex.org/>\n"
BY_NAME = {rule.__name__: rule for rule in RULES}


def cases(folder: str) -> list[tuple[Path, int]]:
    found = []
    for path in sorted((FOLDER / folder).glob("*.txt")):
        found += [(path, number) for number in range(len(path.read_text().split("\n====\n")))]
    return found


def check(path: Path, number: int, made: str) -> None:
    parts = path.read_text().split("\n====\n")
    given, expected = split(parts[number])
    if os.environ.get("REWRITE"):
        parts[number] = f"{given}\n----\n{made}"
        path.write_text("\n====\n".join(part.rstrip("\n") for part in parts) + "\n")
    else:
        assert made.strip() == expected.strip()


def query_of(path: Path, number: int) -> str:
    return split(path.read_text().split("\n====\n")[number])[0]


def split(case: str) -> tuple[str, str]:
    given, _, expected = f"{case}\n".partition("\n----\n")
    return given, expected


def name_of(value: object) -> str:
    return value.stem if isinstance(value, Path) else str(value)


@pytest.mark.parametrize(("path", "number"), cases("rules"), ids=name_of)
def test_rule(path: Path, number: int) -> None:
    query = prepare(PREFIX + query_of(path, number))
    changed = replace(query, plan=BY_NAME[path.stem](query.plan))
    before, after = (explain(each, rewritten=False).partition("\n")[2] for each in (query, changed))
    check(path, number, f"{before}\n  =>\n{after}")
    assert BY_NAME[path.stem](changed.plan) == changed.plan, "a rule applied twice does no more than once"


def test_every_rule_has_a_fixture() -> None:
    assert {path.stem for path in (FOLDER / "rules").glob("*.txt")} == set(BY_NAME)


@pytest.mark.parametrize(("path", "number"), cases("plans"), ids=name_of)
def test_plan(path: Path, number: int) -> None:
    check(path, number, explain(prepare(PREFIX + query_of(path, number))))
