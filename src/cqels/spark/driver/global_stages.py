"""The global stages of partitioned queries, on the driver between the operator and the sinks: deltas in, results out.

The state of a global stage (`engine/global_stage.py`) is a function of the solutions that there are, so those are kept
in the checkpoint, in a folder for each query: the deltas of each micro-batch, and now and then all solutions after it
instead.  A repeated micro-batch is processed from the state before it.  Each file names the one before it, and a file
beside the folders names the last one of each, so that no file is lost unnoticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow
import pyarrow.compute
import pyarrow.ipc

from cqels.engine.global_stage import GlobalStage
from cqels.model.checksummed import seal, seal_json, unseal, unseal_json
from cqels.model.durable_files import write_durably
from cqels.model.errors import Damaged
from cqels.pipeline.sink.result_batch import Sent
from cqels.plan.algebra import Query
from cqels.plan.partitioning import NEWEST_NAME

_ALL = ".all"
"""The suffix of a file with all solutions."""
LEAST_ROWS = 1 << 14
"""Deltas that are kept before all solutions are written instead."""
_STAGE_FILE = "RE"
"""The kind of a file of a stage under its seal."""
_ANEW = "begin with a new checkpoint"
_DELTA_COLUMNS = ("tick", "time", "weight")
_NEWEST = f"?{NEWEST_NAME}"

LastFiles: TypeAlias = tuple[int, int]
"""The micro-batches of the last two files of a stage, -1 if there are none; the last one may be repeated."""
NO_FILE: LastFiles = (-1, -1)


@dataclass(frozen=True, slots=True)
class PartOutput:
    """What a part of a query sent in a micro-batch, and the number of the first element that it could see."""

    payloads: Sequence[bytes]
    began: int


class CheckpointedStage:
    """The global stage of one query, with its state in a folder of the checkpoint."""

    def __init__(
        self, whole: Query, stage: Query, folder: Path, *, last: LastFiles = NO_FILE, least: int = LEAST_ROWS
    ) -> None:
        """The `stage` of a `whole` query, kept in a folder whose last files are known.

        It keeps `least` deltas before it writes all solutions instead.
        """
        self._least = least
        self._whole, self._query, self.folder = whole, stage, folder
        self._stage: GlobalStage | None = None
        self._last = -1
        """The last micro-batch that was processed."""
        self._sent = self._received = self._deltas = self._solutions = 0
        self._before, self._file = last
        """The micro-batches of the last two files."""

    @property
    def last(self) -> LastFiles:
        """Its last files, which the checkpoint keeps."""
        return self._before, self._file

    def process(self, batch: int, outputs: Iterable[PartOutput]) -> Sent | None:
        """The results for what the parts sent in a micro-batch; None if there are none."""
        if self._stage is None or batch <= self._last:
            self._restore(batch)
        assert self._stage is not None
        self._last = batch
        tables = [_deltas_of(each, part.began) for part in outputs for each in part.payloads]
        if not tables:
            return None
        deltas = _ordered(pyarrow.concat_tables(tables))
        results, number = self._stage.apply(deltas), self._sent
        self._sent += results.num_rows
        self._received += deltas.num_rows
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(f"{batch}", deltas)
        self._deltas += deltas.num_rows
        if self._deltas > max(self._least, 2 * self._solutions):
            self._compact(batch)
        return Sent(self._whole, [results], number) if results.num_rows else None

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage = None

    # ------------------------------------------------------------ files

    def _restore(self, batch: int) -> None:
        """Load the state before a micro-batch."""
        self.close()
        self._stage = GlobalStage(self._query)
        self._sent = self._received = self._deltas = self._solutions = 0
        last = self._file if self._file < batch else self._before
        for path in self.folder.glob("*.tmp"):
            path.unlink()
        for number, path in self._files():
            if number >= batch:  # which never was done
                path.unlink()
        there = [*NO_FILE, *sorted({number for number, _ in self._files()})]
        if there[-1] != last:
            raise self._damaged(f"its last file is of micro-batch {there[-1]}, and was of {last}")
        self._before, self._file = there[-2:]
        for is_all, table in self._tables():
            self._stage.apply(table)
            if is_all:
                self._solutions = table.num_rows
            else:
                self._deltas += table.num_rows

    def _compact(self, batch: int) -> None:
        """Write all solutions instead of the deltas that led to them; files before the last such ones are removed."""
        before = [number for number, path in self._files() if path.suffix == _ALL]
        whole = pyarrow.concat_tables(table for _, table in self._tables())
        names = [name for name in whole.column_names if name not in _DELTA_COLUMNS]
        last = whole.slice(whole.num_rows - 1)
        summed = whole.select([*names, "weight"]).group_by(names).aggregate([("weight", "sum")])
        there = summed.filter(pyarrow.compute.not_equal(summed["weight_sum"], 0))
        columns = {name: there[name] for name in names} | {"weight": there["weight_sum"]}
        columns |= {name: pyarrow.repeat(last[name][0], there.num_rows) for name in ("tick", "time")}
        self._write(f"{batch}{_ALL}", pyarrow.table(columns).select(whole.column_names))
        self._deltas, self._solutions = 0, there.num_rows
        for number, path in self._files():
            if before and number < max(before):
                path.unlink()

    def _files(self) -> list[tuple[int, Path]]:
        """Numbers of micro-batches and the files of them, in order; all solutions come behind what led to them."""
        found = [(int(path.name.removesuffix(_ALL)), path) for path in self.folder.glob("[0-9]*")]
        return sorted(found, key=lambda each: (each[0], each[1].suffix == _ALL))

    def _tables(self) -> Iterator[tuple[bool, Any]]:
        """The tables that add up to all solutions; with each, whether it has all solutions of its micro-batch."""
        files = [path for _, path in self._files()]
        first = max((number for number, path in enumerate(files) if path.suffix == _ALL), default=0)
        behind = -1
        for path in files[first:]:
            head, content = unseal(_STAGE_FILE, path.read_bytes(), str(path), hint=_ANEW)
            known = json.loads(bytes(head))
            if known["batch"] != int(path.stem) or (path.suffix != _ALL and known["behind"] != behind):
                raise self._damaged(f"the file behind that of micro-batch {behind} is gone")
            behind = known["batch"]
            self._sent, self._received = known["sent"], known["told"]
            yield path.suffix == _ALL, pyarrow.ipc.open_stream(content).read_all()

    def _write(self, name: str, table: Any) -> None:
        sink = pyarrow.BufferOutputStream()
        options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
        with pyarrow.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        batch = int(name.removesuffix(_ALL))
        head = {"version": 1, "batch": batch, "behind": self._file, "sent": self._sent, "told": self._received}
        write_durably(self.folder / name, seal(_STAGE_FILE, [json.dumps(head).encode(), bytes(sink.getvalue())]))
        if batch != self._file:  # all solutions are in a second one of the same
            self._before, self._file = self._file, batch

    def _damaged(self, how: str) -> Damaged:
        return Damaged(f"what {self.folder} keeps of query {self._whole.name} is damaged: {how}", hint=_ANEW)


class LastFilesIndex:
    """The file with the last files of all stages, by the names of their folders."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, LastFiles] | None = None

    def begin(self) -> None:
        """Create the file of a new checkpoint, which has no stages."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.write({})

    def read(self) -> dict[str, LastFiles]:
        """The last files of all stages."""
        if self._known is None:
            try:
                found = unseal_json(self._path.read_bytes(), str(self._path), hint=_ANEW)
            except FileNotFoundError:
                raise Damaged(
                    f"{self._path} is gone, which names the last files of global stages", hint=_ANEW
                ) from None
            self._known = {name: (before, last) for name, (before, last) in found["last"].items()}
        return self._known

    def write(self, last: Mapping[str, LastFiles]) -> None:
        """Write the last files of all stages, unless they are as they were."""
        if self._known != last:
            write_durably(self._path, seal_json({"version": 1, "last": dict(last)}).encode())
            self._known = dict(last)


def _deltas_of(payload: bytes, began: int) -> Any:
    """What a part sent, as `GlobalStage.apply` takes it; elements are numbered from when the query began."""
    sent = pyarrow.ipc.open_stream(payload).read_all()
    weights = pyarrow.array([-1, 1]).take(pyarrow.compute.equal(sent["sign"], "+").cast(pyarrow.int64()))
    columns = {"tick": sent["tick"], "time": sent["time"], "weight": weights}
    if _NEWEST in sent.column_names:
        digits = pyarrow.compute.replace_substring_regex(sent[_NEWEST], r'^"(\d+)".*', r"\1")
        numbers = pyarrow.compute.subtract(digits.cast(pyarrow.int64()), began)
        columns["newest"] = pyarrow.compute.fill_null(numbers, -1)
    names = [name for name in sent.column_names if name.startswith("?") and name != _NEWEST]
    return pyarrow.table(columns | {name: sent[name] for name in names})


def _ordered(deltas: Any) -> Any:
    """By ticks, retractions first."""
    return deltas.sort_by([("tick", "ascending"), ("weight", "ascending")])
