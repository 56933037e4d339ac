"""Parts have each result once, whatever crashes between writing aside, naming and committing; and fan-out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pip install 'cqels[arrow]'")

import pyarrow.parquet

from cqels.ingest import Rejected
from cqels.model import durable_files
from cqels.model.errors import CqelsError
from cqels.pipeline.sink import exactly_once_file, part_sink
from cqels.pipeline.sink.part_sink import PartFolder, committed_parts
from cqels.pipeline.sink.result_batch import Sent
from cqels.pipeline.sinks import FanOut, ForQueries, Memory, SinkContext, promise_of, sink_of, sinks_of
from cqels.plan.prepare import prepare

from ..spark.sending import SELECT, WHERE, batch, sent_of

BATCHES = range(8)
ASK = prepare(f"ASK {WHERE}", name="asked")


class Crash(BaseException):
    """The process ends here."""


class Failing:
    """The module `os`, which ends the process before or after one of its calls."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.left, self.after = at, after

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("write", "fsync", "replace", "ftruncate"):
            return real

        def call(*given: Any) -> Any:
            self.left -= 1
            if self.left:
                return real(*given)
            if self.after:
                real(*given)
            raise Crash

        return call


def rows(folder: Path) -> list[str]:
    parts = committed_parts(folder)
    assert {*parts} == {*folder.glob("part-*")}
    return [line for part in parts for line in part.read_text().splitlines()[1:]]


def expected() -> list[str]:
    sent = [each for number in BATCHES for each in batch(number).values()]
    texts = [part_sink.body(each, "csv")[0].decode() for each in sent]
    return [line for text in texts for line in text.splitlines()]


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """The parts of a run that crashed at step n = those of one that did not, for all n."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    at, steps = 0, 0
    while True:
        at += 1
        place = tmp_path / str(at)
        committed, crashed = -1, False
        failing = Failing(at, after=after)
        while committed < BATCHES[-1]:
            with monkeypatch.context() as patch:
                if not crashed:
                    patch.setattr(exactly_once_file, "os", failing)
                    patch.setattr(durable_files, "os", failing)
                    patch.setattr(part_sink, "os", failing)
                try:
                    sink = PartFolder(place, "csv")
                    sink.open([SELECT], run="r")
                    for number in range(committed + 1, BATCHES[-1] + 1):
                        sink.write(number, batch(number))
                        committed = number
                    sink.close()
                except Crash:
                    crashed = True
        assert rows(place / "hot") == expected(), f"a crash at step {at}"
        if not crashed:
            break
        steps += 1
    assert steps > 30


def test_another_run_and_what_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "results"
    sink = sink_of(f"{place}/?parts", format="parquet")
    assert isinstance(sink, PartFolder)
    sink.open([SELECT], run="r")
    for number in BATCHES:
        sink.write(number, batch(number))
    sink.close()
    table = pyarrow.parquet.read_table(place / "hot")  # which leaves out what begins with _ and .
    assert table.num_rows == len(expected())
    opened = [str(path) for path in sink.places([SELECT])]
    assert sink.lost([SELECT], run="r", opened=opened, done=7) == []
    with pytest.raises(CqelsError, match="has the results of another run"):
        PartFolder(place).open([SELECT], run="s")
    committed_parts(place / "hot")[0].unlink()
    assert "is gone" in sink.lost([SELECT], run="r", opened=opened, done=7)[0]
    PartFolder(place, replace=True).open([SELECT], run="s")
    assert committed_parts(place / "hot") == []


# ---------------------------------------------------------------- fan-out


@dataclass
class Declared:
    to: str
    format: str | None = None
    queries: tuple[str, ...] = ()


def both(number: int) -> Mapping[str, Sent]:
    return batch(number) | {"asked": sent_of(ASK, [])}


def test_each_sink_has_its_queries(tmp_path: Path) -> None:
    declared = [
        Declared(f"{tmp_path}/all/"),
        Declared(f"{tmp_path}/hot.jsonl", queries=("hot",)),
        Declared("memory", queries=("asked",)),
    ]
    whole = FanOut(sinks_of(declared, [SELECT, ASK], context=SinkContext(passing=True)))
    whole.open([SELECT, ASK], run="r")
    for number in BATCHES:
        whole.write(number, both(number))
    whole.close()
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["asked.csv", "hot.csv"]
    assert len((tmp_path / "hot.jsonl").read_text().splitlines()) == len(expected())
    memory = whole.sinks[2]
    assert isinstance(memory, ForQueries)
    assert isinstance(memory.sink, Memory)
    with pytest.raises(CqelsError, match="no query 'hot'"):
        memory.sink.results("hot")
    assert "exactly once" in promise_of(whole)
    with pytest.raises(CqelsError, match="is for query 'hott', which there is not") as found:
        sinks_of([Declared("memory", queries=("hott",))], [SELECT, ASK])
    assert found.value.hint == "did you mean hot?"


def test_a_fan_out_passes_on_what_its_sinks_can(tmp_path: Path) -> None:
    class Refuses(Memory):
        waits = True

        def take_refused(self) -> list[Rejected]:
            return [Rejected("hot", "x", "no", "")]

        def stop_waiting(self) -> None:
            self.waits = False

    refuses = Refuses()
    whole = FanOut([ForQueries(refuses, ["hot"]), sink_of(f"{tmp_path}/out.csv")])
    assert [str(path) for path in whole.places([SELECT])] == [f"{tmp_path}/out.csv"]
    assert len(whole.take_refused()) == 1
    whole.stop_waiting()
    assert not refuses.waits
