"""The rests of queries that are spread, on the driver: what parts send in a micro-batch goes in, results come out.

What a rest knows is a function of the solutions that there are (`global_stage.py`), so that is what is kept in the
checkpoint, in a folder for each query: for a micro-batch the changes that it brought, and now and then all solutions
behind it instead.  A micro-batch that comes again is worked off from what there was before it.  Each file names the one
before it, and a file beside the folders names the last one of each: so none is gone unnoticed.
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
from cqels.model.errors import Damaged
from cqels.plan.algebra import Query
from cqels.plan.partitioning import NEWEST_NAME
from cqels.spark.sink.exactly_once_file import write_durably
from cqels.spark.sink.result_batch import Sent

_ALL = ".all"
LEAST_ROWS = 1 << 14
_REST = "RE"
_ANEW = "begin with a new checkpoint"
_OF_CHANGES = ("tick", "time", "weight")
_NEWEST = f"?{NEWEST_NAME}"

Last: TypeAlias = tuple[int, int]
"""The micro-batches of the last two files of a rest, -1 if there are none; that of the last may come again."""
NO_FILE: Last = (-1, -1)


@dataclass(frozen=True, slots=True)
class Told:
    """What a part sent in a micro-batch, and the number of the first element that it could see."""

    payloads: Sequence[bytes]
    began: int


class Resting:
    """The rest of one query from micro-batch to micro-batch."""

    def __init__(
        self, whole: Query, rest: Query, folder: Path, *, last: Last = NO_FILE, least: int = LEAST_ROWS
    ) -> None:
        """Of a query, kept in a folder whose last files are known.

        It keeps `least` changes before it writes all solutions instead.
        """
        self._least = least
        self._whole, self._query, self.folder = whole, rest, folder
        self._rest: GlobalStage | None = None
        self._last = -1
        """The last micro-batch that was worked off."""
        self._sent = self._told = self._rows = self._kept = 0
        self._before, self._file = last
        """The micro-batches of the last two files."""

    @property
    def last(self) -> Last:
        """Its last files, for whoever goes on."""
        return self._before, self._file

    def work_off(self, batch: int, told: Iterable[Told]) -> Sent | None:
        """What is sent for what the parts tell in a micro-batch; None if they tell nothing."""
        if self._rest is None or batch <= self._last:
            self._take_up(batch)
        assert self._rest is not None
        self._last = batch
        tables = [_changes(each, part.began) for part in told for each in part.payloads]
        if not tables:
            return None
        changes = _ordered(pyarrow.concat_tables(tables))
        results, number = self._rest.apply(changes), self._sent
        self._sent += results.num_rows
        self._told += changes.num_rows
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(f"{batch}", changes)
        self._rows += changes.num_rows
        if self._rows > max(self._least, 2 * self._kept):
            self._gather(batch)
        return Sent(self._whole, [results], number) if results.num_rows else None

    def close(self) -> None:
        if self._rest is not None:
            self._rest.close()
            self._rest = None

    # ------------------------------------------------------------ files

    def _take_up(self, batch: int) -> None:
        """Know what there was before a micro-batch."""
        self.close()
        self._rest = GlobalStage(self._query)
        self._sent = self._told = self._rows = self._kept = 0
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
            self._rest.apply(table)
            if is_all:
                self._kept = table.num_rows
            else:
                self._rows += table.num_rows

    def _gather(self, batch: int) -> None:
        """Write all solutions instead of the changes that led to them; what was before may be needed once more."""
        before = [number for number, path in self._files() if path.suffix == _ALL]
        whole = pyarrow.concat_tables(table for _, table in self._tables())
        names = [name for name in whole.column_names if name not in _OF_CHANGES]
        last = whole.slice(whole.num_rows - 1)
        summed = whole.select([*names, "weight"]).group_by(names).aggregate([("weight", "sum")])
        there = summed.filter(pyarrow.compute.not_equal(summed["weight_sum"], 0))
        columns = {name: there[name] for name in names} | {"weight": there["weight_sum"]}
        columns |= {name: pyarrow.repeat(last[name][0], there.num_rows) for name in ("tick", "time")}
        self._write(f"{batch}{_ALL}", pyarrow.table(columns).select(whole.column_names))
        self._rows, self._kept = 0, there.num_rows
        for number, path in self._files():
            if before and number < max(before):
                path.unlink()

    def _files(self) -> list[tuple[int, Path]]:
        """Numbers of micro-batches and the files of them, in order; all solutions come behind what led to them."""
        found = [(int(path.name.removesuffix(_ALL)), path) for path in self.folder.glob("[0-9]*")]
        return sorted(found, key=lambda each: (each[0], each[1].suffix == _ALL))

    def _tables(self) -> Iterator[tuple[bool, Any]]:
        """What all solutions can be computed from; the first may be all that there were once, which is said."""
        files = [path for _, path in self._files()]
        first = max((place for place, path in enumerate(files) if path.suffix == _ALL), default=0)
        behind = -1
        for path in files[first:]:
            head, content = unseal(_REST, path.read_bytes(), str(path), hint=_ANEW)
            known = json.loads(bytes(head))
            if known["batch"] != int(path.stem) or (path.suffix != _ALL and known["behind"] != behind):
                raise self._damaged(f"the file behind that of micro-batch {behind} is gone")
            behind = known["batch"]
            self._sent, self._told = known["sent"], known["told"]
            yield path.suffix == _ALL, pyarrow.ipc.open_stream(content).read_all()

    def _write(self, name: str, table: Any) -> None:
        sink = pyarrow.BufferOutputStream()
        options = pyarrow.ipc.IpcWriteOptions(compression="lz4")
        with pyarrow.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        batch = int(name.removesuffix(_ALL))
        head = {"version": 1, "batch": batch, "behind": self._file, "sent": self._sent, "told": self._told}
        write_durably(self.folder / name, seal(_REST, [json.dumps(head).encode(), bytes(sink.getvalue())]))
        if batch != self._file:  # all solutions are in a second one of the same
            self._before, self._file = self._file, batch

    def _damaged(self, how: str) -> Damaged:
        return Damaged(f"what {self.folder} keeps of query {self._whole.name} is damaged: {how}", hint=_ANEW)


class Lasts:
    """The file that says which files of the rests are the last ones, by the names of their folders."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Last] | None = None

    def begin(self) -> None:
        """Be that of a new checkpoint, which has no rests."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.write({})

    def read(self) -> dict[str, Last]:
        """What was written last."""
        if self._known is None:
            try:
                found = unseal_json(self._path.read_bytes(), str(self._path), hint=_ANEW)
            except FileNotFoundError:
                raise Damaged(f"{self._path} is gone, which tells the last files of rests", hint=_ANEW) from None
            self._known = {name: (before, last) for name, (before, last) in found["last"].items()}
        return self._known

    def write(self, last: Mapping[str, Last]) -> None:
        """Keep it, unless it is known."""
        if self._known != last:
            write_durably(self._path, seal_json({"version": 1, "last": dict(last)}).encode())
            self._known = dict(last)


def _changes(payload: bytes, began: int) -> Any:
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


def _ordered(changes: Any) -> Any:
    """By ticks; what goes before what comes."""
    return changes.sort_by([("tick", "ascending"), ("weight", "ascending")])
