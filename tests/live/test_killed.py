"""A live run of files that is killed at random moments writes what the reference does, byte by byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from threading import Event
from time import sleep

import pytest

from .driving import OBS, reading
from .kills import ROOT, Job, kill_often

QUERIES = {
    "hot": """SELECT ?room (COUNT(*) AS ?n) (MAX(?t) AS ?most)
        WHERE { STREAM :obs [RANGE 4s] { ?s :temp ?t } ?s :in ?room } GROUP BY ?room""",
    "pairs": """SELECT ?a ?b
        WHERE { STREAM :obs [RANGE 1s] { ?a :temp ?t } STREAM :obs [RANGE 4s SLIDE 2s] { ?b :temp ?t } }""",
}
ROOMS = "".join(f"<http://ex.org/s{each}> <http://ex.org/in> <http://ex.org/room{each % 3}> .\n" for each in range(8))


class FollowedFile:
    """Lines that are appended to a file while a job reads it, and what the reference makes of them."""

    def __init__(self, folder: Path, lines: int, seconds: float, seed: int) -> None:
        """All lines are there after about so many seconds."""
        self._folder, self._random, self._pause = folder, Random(seed), 10 * seconds / lines
        draw = Random(seed)
        self._lines = [reading(draw.randrange(8), draw.randrange(20, 40), at // 5) + "\n" for at in range(lines)]
        for name, text in QUERIES.items():
            (folder / f"{name}.rq").write_text(f"PREFIX : <http://ex.org/> {text}")
        (folder / "rooms.ttl").write_text(ROOMS)
        (folder / "all.nt").write_text("".join(self._lines))
        (folder / "obs.nt").write_text("")
        self._given = ["run", *(f"{folder}/{name}.rq" for name in QUERIES), "--data", f"{folder}/rooms.ttl"]
        self.expected = self._reference()

    def _reference(self) -> dict[str, bytes]:
        arguments = [*self._given, "--engine", "reference", "--stream", f"<{OBS}>={self._folder}/all.nt"]
        subprocess.run(
            [sys.executable, "-m", "tests.live.live_job", *arguments, "--out", f"{self._folder}/expected/"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        return self._written("expected")

    def _written(self, name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self._folder / name).glob("*.csv")}

    @property
    def results(self) -> dict[str, bytes]:
        return self._written("results")

    def job(self) -> Job:
        arguments = [
            *self._given,
            *("--engine", "embedded", "--follow", "--state", f"{self._folder}/state"),
            *("--stream", f"<{OBS}>={self._folder}/obs.nt", "--out", f"{self._folder}/results/"),
        ]
        total = sum(map(len, self.expected.values()))
        return Job(arguments, self._folder, self._feed, self._size, lambda: self._size() >= total)

    def _size(self) -> int:
        return sum(path.stat().st_size for path in (self._folder / "results").glob("*.csv"))

    def _feed(self, stop: Event) -> None:
        """Append lines in pieces that end anywhere."""
        text = "".join(self._lines).encode()
        average = len(text) // len(self._lines)
        with (self._folder / "obs.nt").open("ab", buffering=0) as file:
            while text and not stop.is_set():
                size = self._random.randrange(1, 20 * average)
                file.write(text[:size])
                text = text[size:]
                sleep(self._pause)


def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    source = FollowedFile(tmp_path, 800, 6, seed=1)
    job = source.job()
    kill_often(job, 3, Random(2), longest=0.5)
    assert source.results == source.expected


@pytest.mark.chaos
def test_a_run_that_is_killed_often_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`CQELS_KILLS` says how often."""
    count = int(os.environ.get("CQELS_KILLS", "40"))
    source = FollowedFile(tmp_path, 80 * count, 4.0 * count, seed=3)
    job = source.job()
    kill_often(job, count, Random(4))
    assert source.results == source.expected
    with capsys.disabled():
        sys.stdout.write(f"\n{job.told()}\n")
