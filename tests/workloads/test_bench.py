"""`cqels bench`: scenarios are listed, run, and what was measured is written beside what was published."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cqels.cli.app import app
from cqels.model.errors import CqelsError
from cqels.scenarios import NAMES, Data, scenario
from cqels.scenarios.measured import Measured, embedded, reference
from cqels.scenarios.pages import MARKS
from cqels.scenarios.report import row

pytest.importorskip("pyarrow", reason="pip install 'cqels[arrow]'")


def bench(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["bench", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def measured(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "measured.json").read_text())["measured"])


def test_all_scenarios_are_listed() -> None:
    told = bench("list")
    assert all(name in told for name in NAMES)


def test_a_run_writes_answers_figures_and_a_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):  # the data of the first run is used again
        told = bench("run", "city", "--query", "q1", "--query", "q3", "--out", out)
    assert "q1" in told
    assert "report.md" in told
    assert json.loads((out / "measured.json").read_text())["scenario"] == "city"
    found = measured(out)
    assert [each["query"] for each in found] == ["q1", "q3"]
    assert all(each["results"] > 0 and each["triples/s"] > 0 for each in found)
    with (out / "measured.csv").open() as file:
        assert [row["query"] for row in csv.DictReader(file)] == ["q1", "q3"]
    report = (out / "report.md").read_text()
    assert "| q1 | embedded |" in report
    with (out / "answers" / "q1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == found[0]["results"]
    assert [each.name for each in (out / "data").iterdir()] == ["city-small-1"]


def test_the_judge_can_be_measured_and_queries_together(tmp_path: Path) -> None:
    bench("run", "city", "--engine", "reference", "--query", "q2", "--query", "q9", "--together", "--out", tmp_path)
    (both,) = measured(tmp_path)
    assert both["query"] == "q2 + q9"
    assert both["engine"] == "reference"
    assert both["results"] > 0


@pytest.fixture(scope="module")
def city(tmp_path_factory: pytest.TempPathFactory) -> Data:
    chosen = scenario("city")
    return chosen.make(tmp_path_factory.mktemp("city"), chosen.numbers("small"), 1, lambda done, all: None)


def test_evaluation_anew_ends_when_its_time_is_over(city: Data) -> None:
    queries = [scenario("city").query(*scenario("city").asked(["q3"]))]
    told: list[int] = []
    short = reference(queries, city, told.append, seconds=0)
    assert short.elements == 1
    assert told == [1]
    whole, ours = reference(queries, city, seconds=1000), embedded(queries, city)
    assert (whole.elements, whole.results) == (ours.elements, ours.results)


def test_what_is_done_with_answers_is_not_counted(city: Data) -> None:
    queries = [scenario("city").query(*scenario("city").asked(["q1"]))]
    ticks = iter(range(1000))
    taken: list[int] = []

    def take(name: str, rows: Any) -> None:
        taken.append(rows.num_rows)
        for _ in range(100):
            next(ticks)

    found = embedded(queries, city, take=take, clock=lambda: float(next(ticks)))
    assert sum(taken) == found.results > 0
    assert found.seconds <= 1 + 2 * len(taken)
    assert found.state > 0


def test_a_run_has_evaluation_anew_beside_it(tmp_path: Path) -> None:
    bench("run", "city", "--query", "q1", "--baseline", 0.05, "--no-answers", "--out", tmp_path)
    (found,) = measured(tmp_path)
    assert 0 < found["anew elements"] < found["elements"]
    assert found["× anew"] == pytest.approx(found["elements/s"] / found["anew elements/s"], rel=0.02)
    assert found["MB"] > 0
    assert not (tmp_path / "answers").exists()
    assert (
        "\n$ cqels bench run city --size small --query q1 --baseline 0.05 --no-answers\n"
        in (tmp_path / "report.md").read_text()
    )


def test_constants_are_those_that_are_asked_for(tmp_path: Path) -> None:
    results = []
    for window in ("30m", "60m"):
        bench("run", "taxi", "--query", "routes", "--constant", f"window={window}", "--out", tmp_path)
        (found,) = measured(tmp_path)
        assert found["constants"] == f"window={window}"
        assert found["published delay ms"] == ""
        results.append(found["results"])
    assert results[0] != results[1]


def test_published_figures_stand_beside_what_they_are_of() -> None:
    taxi = scenario("taxi")

    def published(*queries: str, size: str = "paper", **constants: str) -> list[Any]:
        run = Measured(queries, "embedded", 2_000_000, 18_000_000, 1, 10.0, rate=200_000.0)
        found = row(taxi, run, size=size, constants=constants)
        return [found[f"published {unit}"] for unit in ("s", "delay ms", "anew s")] + [found["× published"]]

    assert published("routes") == [65.77, 0.022, 5000, 6.58]
    assert published("routes", "profit") == [76.64, "", 28_000, 7.66]
    assert published("routes", size="medium") == ["", 0.022, "", ""]
    assert published("routes", window="60m") == ["", "", "", ""]


@pytest.mark.parametrize(
    ("experiment", "most", "places"),
    [("single", None, {600}), ("varying", 10_000, {10_000}), ("many", 3, {1, 2})],
)
def test_experiments_of_the_conference(experiment: str, most: int | None, places: set[int], tmp_path: Path) -> None:
    limit = ["--most", most] if most else []
    bench("run", "conference", "--experiment", experiment, *limit, "--out", tmp_path)
    rows = measured(tmp_path)
    axis = "queries" if experiment == "many" else "static triples"
    assert {each[axis] for each in rows} == places
    assert all(each["ms"] > 0 and each["anew ms"] > 0 for each in rows)
    assert f"--experiment {experiment}" in (tmp_path / "report.md").read_text()


def test_a_page_of_several_runs(tmp_path: Path) -> None:
    one, other, third = tmp_path / "one", tmp_path / "other", tmp_path / "third"
    shared = "--data", tmp_path / "data", "--no-answers"
    bench("run", "city", "--query", "q1", *shared, "--out", one)
    bench("run", "social", "--query", "q2-count", *shared, "--out", other)
    bench("run", "city", "--query", "q3", *shared, "--out", third)
    into = tmp_path / "page.md"
    into.write_text(f"# Before\n\n{MARKS[0]}\nold\n{MARKS[1]}\n\nafter\n")
    pages = []
    for _ in range(2):
        bench("report", one, other, third, "--into", into)
        pages.append(into.read_bytes())
    assert pages[0] == pages[1]
    lines = pages[0].decode().splitlines()
    assert (lines[:3], lines[-3:]) == (["# Before", "", MARKS[0]], [MARKS[1], "", "after"])
    assert [line for line in lines if line.startswith("### ")] == [
        "### Social network (LSBench)",
        "### Sensors of a city (CityBench)",
    ]
    assert [line.split(" | ")[0] for line in lines if "| embedded |" in line] == ["| q2-count", "| q1", "| q3"]
    assert len([line for line in lines if line.startswith("$ cqels bench run ")]) == 3
    assert "old" not in lines


def test_plots_are_drawn_if_that_is_possible(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'cqels[bench]'")
    bench("run", "conference", "--experiment", "single", "--out", tmp_path)
    assert (tmp_path / "measured.png").stat().st_size > 1000
    assert "(measured.png)" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "taxi", "--constant", "width=3"), "no query that is asked for has a constant 'width'"),
        (("run", "taxi", "--constant", "width"), "this is not a constant"),
        (("run", "taxi", "--experiment", "single"), "taxi has no experiment 'single'"),
        (("run", "conference", "--experiment", "double"), "conference has no experiment 'double'"),
        (("run", "conference", "--experiment", "single", "--engine", "spark"), "an experiment runs in this process"),
        (("run", "conference", "--experiment", "single", "--query", "q1"), "of its own"),
        (("run", "conference", "--experiment", "varying", "--most", "9"), "less than the smallest data"),
        (("run", "city", "--most", "9"), "--most is for an experiment"),
        (("report", ".", "--into", "page.md"), "has no measured.json"),
    ],
)
def test_what_does_not_go_is_said(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CqelsError, match=message):
        bench(*words)


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    bench("run", "city", "--query", "q7", "--out", tmp_path / "run")
    into = tmp_path / "page.md"
    with pytest.raises(CqelsError, match="there is no page"):
        bench("report", tmp_path / "run", "--into", into)
    into.write_text("nothing\n")
    with pytest.raises(CqelsError, match="no place for this"):
        bench("report", tmp_path / "run", "--into", into)
    assert into.read_text() == "nothing\n"


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(CqelsError, match="there is no scenario 'village'"):
        scenario("village")
    with pytest.raises(CqelsError, match="there is no size 'huge'"):
        scenario("city").numbers("huge")
    with pytest.raises(CqelsError, match="city has no query 'q99'"):
        scenario("city").asked(["q99"])
