"""`cqels bench`: scenarios are listed, run, and what was measured is written beside what was published."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cqels.cli.app import app
from cqels.model.errors import CqelsError
from cqels.scenarios import NAMES, scenario

pytest.importorskip("pyarrow", reason="pip install 'cqels[arrow]'")


def bench(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["bench", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_all_scenarios_are_listed() -> None:
    told = bench("list")
    assert all(name in told for name in NAMES)


def test_a_run_writes_answers_figures_and_a_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):  # the data of the first run is used again
        told = bench("run", "city", "--query", "q1", "--query", "q3", "--out", out)
    assert "q1" in told
    assert "report.md" in told
    measured = json.loads((out / "measured.json").read_text())
    assert measured["scenario"] == "city"
    assert [each["query"] for each in measured["measured"]] == ["q1", "q3"]
    assert all(each["results"] > 0 and each["triples/s"] > 0 for each in measured["measured"])
    with (out / "measured.csv").open() as file:
        assert [row["query"] for row in csv.DictReader(file)] == ["q1", "q3"]
    report = (out / "report.md").read_text()
    assert "| q1 | embedded |" in report
    with (out / "answers" / "q1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == measured["measured"][0]["results"]
    assert [each.name for each in (out / "data").iterdir()] == ["city-small-1"]


def test_the_judge_can_be_measured_and_queries_together(tmp_path: Path) -> None:
    bench("run", "city", "--engine", "reference", "--query", "q2", "--query", "q9", "--together", "--out", tmp_path)
    measured = json.loads((tmp_path / "measured.json").read_text())
    (both,) = measured["measured"]
    assert both["query"] == "q2 + q9"
    assert both["engine"] == "reference"
    assert both["results"] > 0


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(CqelsError, match="there is no scenario 'village'"):
        scenario("village")
    with pytest.raises(CqelsError, match="there is no size 'huge'"):
        scenario("city").numbers("huge")
    with pytest.raises(CqelsError, match="city has no query 'q99'"):
        scenario("city").asked(["q99"])
