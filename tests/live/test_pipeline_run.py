"""`cqels init` and `cqels run --engine embedded` as in a terminal: live until Ctrl-C, and on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cqels.cli.new_project import make_project

PATIENCE = 120.0
"""Seconds that a step may take on a busy machine."""


class Command:
    """A command in a process of its own, with what it writes in files."""

    def __init__(self, *words: str) -> None:
        self.out, self.err = Path("out.txt"), Path("err.txt")
        with self.out.open("wb") as out, self.err.open("wb") as err:
            command = [sys.executable, "-c", "from cqels.cli import main; main()", *words]
            self.process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)

    def shows(self, lines: int) -> list[str]:
        """Wait for so many lines of results."""
        self.awaited(lambda: self.out.read_text().count("\n") >= lines)
        return self.out.read_text().splitlines()

    def awaited(self, what: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE
        while not what():
            assert self.process.poll() is None, self.err.read_text()
            assert time.monotonic() < limit, self.err.read_text()
            time.sleep(0.05)

    def interrupt(self) -> list[str]:
        """Ctrl-C: what it has said on standard error."""
        os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.wait(PATIENCE) == 0, self.err.read_text()
        return self.err.read_text().splitlines()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Command]]:
    make_project(tmp_path / "building")
    monkeypatch.chdir(tmp_path / "building")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    begun: list[Command] = []

    def begin(*words: str) -> Command:
        begun.append(Command("run", "--engine", "embedded", *words))
        return begun[-1]

    yield begin
    for each in begun:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def append(line: str) -> None:
    with Path("readings.csv").open("a") as file:
        file.write(f"{line}\n")


def alerts() -> list[str]:
    return [line.split(",")[0] for line in Path("alerts.csv").read_text().splitlines()[1:]]


def test_a_new_project_runs_live_and_goes_on(run: Callable[..., Command]) -> None:
    first = run()
    assert [line.split()[1] for line in first.shows(4)] == [":server"] * 4
    append("2025-01-06T09:00:00Z,kitchen,35.5")
    assert first.shows(5)[-1] == "2025-01-06T09:00:00Z  :kitchen 35.5 28.0"
    assert first.interrupt() == [
        "engine  embedded, in this process",
        "stream  :readings from readings.csv, lifted by readings.toml, followed",
        "data    rooms.ttl",
        "query   hot",
        "sink    the terminal: after a crash the last batch is shown again",
        "sink    alerts.csv: each result arrives exactly once, whatever crashes",
        "state   state, which is new",
        "end     Ctrl-C; the next run goes on from there",
        "",
        "stopping; once more to end at once",
        "16 elements, 5 results, up to 2025-01-06T09:00:00Z",
        "stopped; the same command goes on from here",
    ]
    second = run()
    append("2025-01-06T10:00:00Z,office,30.5")
    second.awaited(lambda: len(alerts()) == 6)
    assert second.shows(1) == ["2025-01-06T10:00:00Z  :office 30.5 26.0"]  # and nothing of the first run
    assert "state   state, goes on from there" in second.interrupt()
    third = run("--fresh")
    third.awaited(lambda: len(third.shows(6)) == 6)
    assert third.interrupt()[0] == "the state in state is removed: the run begins anew"
    assert len({*alerts()}) == len(alerts()) == 6


def test_a_run_that_ends_leaves_live_results_alone(run: Callable[..., Command]) -> None:
    first = run()
    first.shows(4)
    first.interrupt()
    again = run("--no-follow")
    assert again.process.wait(PATIENCE) == 2
    assert again.err.read_text().startswith("error: alerts.csv has the results of the run whose state is in state\n")
    elsewhere = run("--no-follow", "--out", "-")
    assert elsewhere.process.wait(PATIENCE) == 0
    assert Path("out.txt").read_text().count("\n") == 4
    assert len(alerts()) == 4


def test_what_was_rejected_is_replaced_by_a_fresh_run(run: Callable[..., Command]) -> None:
    append("at noon,kitchen,35.5")
    for options in ((), ("--fresh",)):
        command = run("--rejects", "rejects.tsv", *options)
        command.shows(4)
        command.awaited(Path("rejects.tsv").exists)
        command.awaited(lambda: Path("rejects.tsv").read_text().count("\n") == 1)
        command.interrupt()
