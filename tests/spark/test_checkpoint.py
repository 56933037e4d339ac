"""What a checkpoint is tied to and what a run tells, without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'cqels[spark]'")

from cqels.spark.checkpoint import Checkpoint, Manifest
from cqels.spark.instance import Dataset
from cqels.spark.rows import LATE, REJECTED
from cqels.spark.run import Run, rejected_in
from cqels.store.dataset import Store

ROOMS = '@prefix : <http://ex.org/> . :s1 :in _:kitchen . _:kitchen :name "kitchen" .'


def manifest(**values: Any) -> Manifest:
    return Manifest(**({"id": "1", "instances": 1, "keys": [0], "start": 0, "streams": [], "data": ""} | values))


def loaded(folder: Path, text: str) -> Dataset:
    path = folder / "rooms.ttl"
    path.write_text(text)
    store = Store()
    store.load(path)
    return Dataset.of(store)


def test_data_is_the_same_whatever_its_blank_nodes_are_called(tmp_path: Path) -> None:
    first, again = loaded(tmp_path, ROOMS), loaded(tmp_path, ROOMS)
    assert first.quads != again.quads
    assert first.digest == again.digest
    assert loaded(tmp_path, ROOMS + " :s2 :in _:kitchen .").digest != first.digest


def test_blank_nodes_keep_their_names(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    first, again = loaded(tmp_path, ROOMS), loaded(tmp_path, ROOMS)
    assert checkpoint.dataset(loaded(tmp_path, ROOMS)).digest == first.digest  # and then the process is killed
    assert checkpoint.dataset(first) == first
    checkpoint.write(manifest(data=first.digest))
    assert Checkpoint(tmp_path / "checkpoint").dataset(again) == first


def test_a_late_element_is_told_once() -> None:
    """Each engine tells of it, with the triples that it has of it."""

    def row(instance: int, kind: str, text: str) -> Any:
        return SimpleNamespace(instance=instance, kind=kind, query=None, place="", reason="", text=text)

    rows = [
        row(0, REJECTED, "odd"),
        row(0, LATE, "a ."),
        row(0, LATE, ""),
        row(2, LATE, ""),
        row(2, LATE, "b ."),
        row(2, LATE, "c ."),
    ]
    assert [each.text for each in rejected_in(rows)] == ["odd", "a .", "b .", "c ."]
    assert rejected_in([]) == []


def test_a_paced_run_that_had_read_all_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No micro-batch tells it that all streams have ended, if it was killed after the last one."""
    monkeypatch.setattr("cqels.spark.run.SparkFiles", SimpleNamespace(getRootDirectory=lambda: str(tmp_path)))
    options: dict[str, Any] = {"ends": True, "paced": True, "strict": False, "temporary": False}
    app: Any = SimpleNamespace(queries=(), parts={})
    run = Run(app, Checkpoint(tmp_path), manifest(ended=True), [], None, None, **options)
    idle: Any = SimpleNamespace(
        isActive=True, processAllAvailable=lambda: None, stop=lambda: None, exception=lambda: None
    )
    run._query = idle
    run._wait_for_all(idle)
    assert run.wait(1)
    known = Checkpoint(tmp_path).read()
    assert known is not None
    assert known.finished
