"""The dataset of a checkpoint as updates have made it, and the updates that are made while a pipeline runs.

Engines begin with the data that the checkpoint began with, and apply each update once (`dataset_updates.py`).  What
that was is kept from the first update on, in the folder `dataset`, and so is now and then what has become of it: then
the updates before that are forgotten.  So a later run may be given the data that there was in the beginning, or that
there is now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path
from threading import Lock
from typing import Any

from cqels.model.checksummed import seal, unseal
from cqels.model.durable_files import write_durably
from cqels.model.errors import CqelsError
from cqels.pipeline.instance.instance_commands import dataset_change, difference, update_command
from cqels.pipeline.instance.program import Dataset, ShippedBytes
from cqels.spark.driver.dataset_updates import Updates
from cqels.store.dataset import Store

MOST_KEPT = 256
"""Updates that are kept before the whole dataset is written instead."""
_KIND = "DU"
"""That of a dataset under its seal."""
_ANEW = "begin with a new checkpoint"
_BEGINNING = "beginning"


class KeptDataset:
    """The dataset of a checkpoint, in a folder of it: as it was in the beginning, and as it is."""

    def __init__(self, folder: Path, updates: Updates) -> None:
        self._folder, self._updates = folder, updates

    @property
    def beginning(self) -> Dataset | None:
        """The data that engines begin with; None if there was no update."""
        path = self._folder / _BEGINNING
        return _read(path) if path.exists() else None

    def keep_beginning(self, dataset: Dataset) -> None:
        if not (self._folder / _BEGINNING).exists():
            _write(self._folder / _BEGINNING, dataset)

    def keep(self, dataset: Dataset, last: int) -> None:
        """Keep what all updates up to a number have made, which engines have read; those are forgotten."""
        _write(self._folder / f"{last:012}", dataset)
        for path in self._wholes()[:-1]:
            path.unlink(missing_ok=True)
        self._updates.forget_changes(last)

    def now(self, *, without_last: bool = False) -> Dataset | None:
        """The data that all updates have made, or all but the last one; None if there was no update."""
        whole = self._wholes()[-1:]
        dataset = _read(whole[0]) if whole else self.beginning
        if dataset is None:
            return None
        changes = self._updates.changes(int(whole[0].name) if whole else -1)
        store = dataset.store()
        for _, command in changes[: len(changes) - without_last]:
            _apply(store, command)
        return Dataset.of(store)

    def _wholes(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*") if path.name.isdigit())


def accepted(kept: KeptDataset, store: Store, digest: str, before: str) -> bool:
    """Whether a run may go on with the data of a store, whose digest and that of the beginning are given.

    It may with the data of the beginning or of now, and with that before the last update, which a process may have been
    killed after.  Then the store has what there is now, with the names that blank nodes have in the engines.
    """
    now = kept.now()
    if now is None:
        return digest == before
    if digest != before and digest != now.digest:
        previous = kept.now(without_last=True)
        if previous is None or digest != previous.digest:
            return False
    _apply(store, json.loads(difference(Dataset.of(store), now)))
    return True


class DatasetChanges:
    """Updates while a pipeline runs."""

    def __init__(self, store: Callable[[], Store], kept: KeptDataset | None, updates: Updates | None) -> None:
        """`store` is the application's; without `updates` the checkpoint is of a release that had none."""
        self._store_of, self._kept, self._updates = store, kept, updates
        self._lock = Lock()
        self._count, self._read = 0, -1
        self._before: list[int] = []

    def update(self, change: str | Callable[[Store], object], beginning: Callable[[], Dataset]) -> bool:
        """Change the dataset; after the return the change survives a crash. False if it changes nothing."""
        if self._updates is None or self._kept is None:
            raise CqelsError("the checkpoint was made by a release without updates", hint=_ANEW)
        with self._lock:
            command = update_command(self._store_of(), change)
            if command is None:
                return False
            self._kept.keep_beginning(beginning())
            self._updates.change(command)
            _apply(self._store_of(), json.loads(command))
            self._count += 1
            return True

    def note_read(self, read: Collection[int]) -> None:
        """Engines have read these updates in a micro-batch; those of the micro-batch before it are not repeated."""
        done, self._before = self._before, sorted(read)
        if done:
            self._read = max(self._read, *done)
        if self._kept is None or self._count < MOST_KEPT or self._updates is None:
            return
        with self._lock:
            last = max((number for number, _ in self._updates.changes()), default=-1)
            if last <= self._read:  # none is on its way: the store is what the engines have
                self._kept.keep(Dataset.of(self._store_of()), last)
                self._count = 0


def _apply(store: Store, command: dict[str, Any]) -> None:
    change = dataset_change(command)
    assert change is not None
    change(store)


def _write(path: Path, dataset: Dataset) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, seal(_KIND, [json.dumps(dataset.graphs).encode(), dataset.quads.read()]))


def _read(path: Path) -> Dataset:
    graphs, quads = unseal(_KIND, path.read_bytes(), str(path), hint=_ANEW)
    return Dataset(ShippedBytes(bytes(quads)), tuple(json.loads(bytes(graphs))))
