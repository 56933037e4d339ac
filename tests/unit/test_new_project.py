"""`cqels init`: a project that works as it is, and nothing that is there is overwritten."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cqels.cli import main
from cqels.cli.new_project import FILES, STARTER
from cqels.cli.pipeline_check import check_pipeline

ALERTS = """2025-01-06T08:04:20Z  :server 24.8 24.0
2025-01-06T08:06:00Z  :server 26.2 24.0
2025-01-06T08:06:20Z  :server 25.2 24.0
2025-01-06T08:08:00Z  :server 25.1 24.0
"""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)

    def called(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cqels", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
        output = capsys.readouterr()
        return code, output.out, output.err

    return called


def test_a_project_is_right_and_runs(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = call("init", "building")
    assert code == 0
    assert out.endswith("next: cd building && cqels run\n")
    assert {each.name for each in Path("building").iterdir()} == {*FILES} == {each.name for each in STARTER.iterdir()}
    assert Path("building/README.md").read_text().startswith("# building\n")
    checked = check_pipeline(Path("building/pipeline.toml"))
    assert (checked.errors, checked.warnings) == ([], [])
    for folder, words in ((tmp_path, ("building/pipeline.toml",)), (tmp_path / "building", ())):
        monkeypatch.chdir(folder)
        code, out, err = call("run", *words, "--engine", "embedded", "--no-follow")
        assert (code, out) == (0, ALERTS), err
        assert (tmp_path / "building/alerts.csv").read_text().count("\n") == 5
        (tmp_path / "building/alerts.csv").unlink()


def test_what_is_there_stays(call: Call) -> None:
    Path("full").mkdir()
    Path("full/file").write_text("mine")
    Path("empty").mkdir()
    assert call("init", "empty")[0] == 0
    for name, message in {"full": "the folder full is not empty", "full/file": "full/file is a file"}.items():
        code, _, err = call("init", name)
        assert code == 2
        assert err.startswith(f"error: {message}")
    assert [each.name for each in Path("full").iterdir()] == ["file"]


def test_without_a_pipeline_the_way_to_one_is_said(call: Call) -> None:
    code, _, err = call("run")
    assert code == 2
    assert err.splitlines() == [
        "error: there is no pipeline.toml in this folder",
        "   = hint: cqels init NAME makes a project with one; or name queries: cqels run hot.rq --stream …",
    ]
    assert call("check")[0] == 2


def test_the_sensors_send(call: Call) -> None:
    call("init", "building")
    before = Path("building/readings.csv").read_text()
    with subprocess.Popen([sys.executable, "building/sensors.py"]) as sensors:
        while Path("building/readings.csv").read_text().count("\n") < before.count("\n") + 3:
            assert sensors.poll() is None
        sensors.terminate()
    assert [line.split(",")[1] for line in Path("building/readings.csv").read_text().splitlines()[-3:]] == [
        "kitchen",
        "office",
        "server",
    ]


def test_a_run_says_what_overrides_the_file_wrongly(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    call("init", "building")
    monkeypatch.chdir("building")
    code, _, err = call("run", "hot.rq", "pipeline.toml", "--engine", "embedded", "--master", "local")
    assert (code, err) == (2, "error: --master can be asked for only with --engine spark\n")
    code, _, err = call("run", "pipeline.toml", "other.toml")
    assert (code, err.splitlines()[0]) == (2, "error: a run has one pipeline file")
    code, out, _ = call("run", "pipeline.toml", "--engine", "embedded", "--no-follow", "--stream", ":readings=none.csv")
    assert (code, out) == (2, "")
