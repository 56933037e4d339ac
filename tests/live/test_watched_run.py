"""Live runs whose static data is watched, and streams with punctuations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqels.ingest import parse_declaration
from cqels.live.live_run import LiveRun, LiveSettings
from cqels.pipeline.sink.memory_sink import Memory
from cqels.pipeline.source.watched_data import WatchedData, WatchedFile
from cqels.plan.prepare import prepare
from cqels.store.dataset import Store

from .test_live_run import EX, OBS, eventually, reading

ROOMS = prepare(
    f"SELECT ?r {{ STREAM <{OBS}> [RANGE 1h] {{ ?s <{EX}temp> ?t }} ?s <{EX}in> ?r }}", name="rooms", emit="changes"
)
TEMPERATURES = prepare(f"SELECT ?t {{ STREAM <{OBS}> [NOW] {{ ?s <{EX}temp> ?t }} }}", name="temperatures")


@pytest.fixture
def runs() -> Iterator[list[LiveRun]]:
    started: list[LiveRun] = []
    yield started
    for run in started:
        run.stop()


def start(
    runs: list[LiveRun], folder: Path, sink: Memory, query: Any, options: str = "", *, watch: bool = False
) -> LiveRun:
    store, watched = Store(), WatchedData([WatchedFile(str(folder / "rooms.ttl"))] if watch else [])
    watched.load(store)
    streams = [parse_declaration(f"<{OBS}>={folder}/obs.nt{options}")]
    run = LiveRun(
        streams, [query], store, [sink], state=folder / "state", watched=watched, settings=LiveSettings(follow=True)
    )
    runs.append(run)
    run.start()
    return run


def rooms(folder: Path, room: str) -> None:
    (folder / "rooms.ttl").write_text(f"<{EX}s1> <{EX}in> <{EX}{room}> . [] a <{EX}Room> .")


def test_a_watched_file_changes_the_data_of_a_live_run(tmp_path: Path, runs: list[LiveRun]) -> None:
    memory = Memory()

    def seen() -> list[str]:
        return [f"{each.sign}{each.values[0].value.removeprefix(EX)}" for each in memory.results("rooms")]

    rooms(tmp_path, "hall")
    (tmp_path / "obs.nt").write_text(reading(1, 20, 1) + "\n")
    run = start(runs, tmp_path, memory, ROOMS, watch=True)
    eventually(lambda: seen() == ["+hall"])
    rooms(tmp_path, "attic")
    eventually(lambda: seen() == ["+hall", "-hall", "+attic"])
    run.stop()
    rooms(tmp_path, "cellar")
    run = start(runs, tmp_path, memory, ROOMS, watch=True)
    eventually(lambda: seen() == ["+hall", "-hall", "+attic", "-attic", "+cellar"])
    run.stop()
    run = start(runs, tmp_path, memory, ROOMS, watch=True)
    with (tmp_path / "obs.nt").open("a") as stream:
        stream.write(reading(1, 21, 2) + "\n")
    eventually(lambda: seen() == ["+hall", "-hall", "+attic", "-attic", "+cellar", "+cellar"])


def test_punctuations_of_a_live_run(tmp_path: Path, runs: list[LiveRun]) -> None:
    """What no query can match has a subject all the same."""
    memory, before = Memory(), "<http://cqels.org/ns#noElementBefore>"
    other = f'<{EX}s2> <{EX}humidity> "1" "2000" .'
    promises = [f'<{EX}s{number}> {before} "9000" "3000" .' for number in (1, 2)]
    (tmp_path / "obs.nt").write_text("\n".join([reading(1, 20, 1), other, promises[0], ""]))
    run = start(runs, tmp_path, memory, TEMPERATURES, "?punctuated=true&lateness=1h")
    eventually(lambda: run.tally.elements == 3)
    assert memory.results() == []
    with (tmp_path / "obs.nt").open("a") as stream:
        stream.write(f"{reading(1, 21, 8)}\n{promises[1]}\n")
    eventually(lambda: run.tally.late + run.tally.rejected == 1)
    eventually(lambda: [each.values[0].value for each in memory.results()] == ["20"])
    assert run.metrics["watermark"] == 9 * 10**9
