"""An engine instance whose state is in a folder, exactly, whatever ends its process: a snapshot, and a log behind it.

    state.json         what the folder is of (`state_manifest.py`)
    data               the static data as it was when the folder was new
    snapshot-00000002  the instance before the segment of the log that has the same number; the first has none
    log-00000002 …     what has arrived since, a record for each batch (`batch_log.py`)
    lock               held by the run that has the folder

A batch is done when its record is on the disk; its results leave the process after that.  So whoever drives the
instance can be killed at any moment: the instance is rebuilt from the snapshot and the log, and the results of the last
batch are there again, to be delivered under its number.  `cqels.spark.operator.stateful_processor` does the same with
Spark's state store.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from cqels.model.checksummed import Bytes, unseal
from cqels.model.errors import CqelsError
from cqels.model.folder_lock import FolderLock
from cqels.pipeline.instance.batch_log import Record, Segment, digest_of, missing_segment, segments_in
from cqels.pipeline.instance.driven_instance import DrivenInstance, Outcome
from cqels.pipeline.instance.engine_instance import Instance
from cqels.pipeline.instance.instance_commands import Arrival, program_commands
from cqels.pipeline.instance.program import Program
from cqels.pipeline.instance.snapshot_writer import SnapshotWriter
from cqels.pipeline.instance.state_manifest import Manifest, StateFolder, additions, recognized

__all__ = ["DurableInstance", "Outcome", "lock_of"]

LEAST_LOG = 1 << 20
"""Bytes of the log below which no snapshot is taken for its size."""
LEAST_WORK = 5.0
"""Seconds of work in the log below which no snapshot is taken for them."""
WORK_PER_SNAPSHOT = 3.0
"""Seconds of work for each that a snapshot takes."""
AGAIN = 60.0
"""Seconds from a snapshot that has failed to the next one."""
MOST_CHANGES = 1 << 20
"""Bytes of changes of the dataset that a snapshot has as they were given."""
_SNAPSHOT = "LS"
"""The kind of a snapshot under its seal."""
_PREFIX = "snapshot-"
_ANEW = "restore the folder from a copy, or begin with a new one"
_IN_USE = "one run at a time has the state: stop that one, or wait for its end"


def lock_of(folder: Path) -> FolderLock:
    """The lock of a folder, which one run at a time has."""
    return FolderLock(folder, "the state", hint=_IN_USE)


class DurableInstance(DrivenInstance):
    """An `Instance` in a folder: `recover`, then `advance` batch by batch, then `close`.

    It is driven by one thread.
    """

    def __init__(
        self,
        folder: Path,
        program: Program,
        *,
        changing: bool = False,
        fork: bool = True,
        lock: FolderLock | None = None,
    ) -> None:
        """With `changing`, a query that is another one than that of its name is dropped for it; else it is refused.

        With `fork`, snapshots are written by another process, and stop this one hardly.  A `lock` of the folder that
        is held already is released in the end.
        """
        self._changing = changing
        self._folder = StateFolder(folder)
        self._lock = lock_of(folder) if lock is None else lock
        super().__init__(program)
        self._writer = SnapshotWriter(fork=fork)
        self._segments: list[Segment] = []
        self._base = 0
        """The number of the snapshot that the log goes on from; 0 if there is none."""
        self._saved = 0
        """Bytes of that snapshot."""
        self._saved_batch = -1
        """The last batch that it knows."""
        self._saving = 0, 0, -1
        """Number, bytes and last batch of the snapshot that is being written, or was last."""
        self._work = 0.0
        """Seconds that the batches of the log have taken."""
        self._work_before = 0.0
        """Those of them that the snapshot knows that is being written."""
        self._fault: BaseException | None = None
        self.pause = 0.0
        """Seconds for which the last snapshot has stopped the instance."""
        self.snapshots = 0
        """How many were completed."""

    # ------------------------------------------------------------ beginning and end

    def recover(self) -> Outcome | None:
        """Have the folder for this run, and be what the last run was: its last batch, if there was one.

        Its results may not have been delivered, and are to be delivered again under its number.
        """
        self._lock.acquire()
        try:
            self._program = replace(self._program, dataset=self._folder.open(self._program))
            self._read()
            self._follow_program()
            self._folder.save(self._program)
        except BaseException:
            self.close()
            raise
        return self.last

    @property
    def id(self) -> str:
        """What stays the same when a run goes on."""
        return self.manifest.id

    @property
    def manifest(self) -> Manifest:
        """What the folder is of."""
        return self._folder.manifest

    def write_manifest(self) -> None:
        """Have on the disk what was changed of it."""
        self._folder.write()

    @property
    def log_bytes(self) -> int:
        return sum(each.size for each in self._segments)

    @property
    def snapshot_bytes(self) -> int:
        return self._saved

    def close(self) -> None:
        """Let another run have the folder; a snapshot that is being written is left out."""
        self._writer.abandon()
        for each in self._segments:
            each.close()
        self._lock.release()

    # ------------------------------------------------------------ batches

    def advance(self, batch: int, arrivals: Sequence[Arrival], note: dict[str, Any] | None = None) -> Outcome:
        """Process what has arrived in a batch, and have that on the disk: what became of it.

        Numbers increase.  The last batch, given again, has the same outcome, and is not processed again; if something
        else has arrived in it, or an earlier one is given, the instance goes back to what it was before.
        """
        if self._fault is not None:
            raise CqelsError("the state has failed, and can only be recovered", hint=f"{self._fault}")
        digest = digest_of(arrivals)
        if self.last is not None and batch <= self.last.batch:
            if (batch, digest) == (self.last.batch, self.last.digest):
                return self.last
            self._go_back(batch)
        self.maintain()
        try:
            outcome = self._process(batch, arrivals, note or {}, digest)
        except BaseException as error:
            self._fault = error
            raise
        self.last = outcome
        return outcome

    def _process(self, batch: int, arrivals: Sequence[Arrival], note: dict[str, Any], digest: str) -> Outcome:
        instance = self.instance
        given = self._given(arrivals)
        outcome = self._outcome(lambda: instance.advance(given), batch, note, digest)
        self._work += outcome.report.seconds
        self._segments[-1].append(Record(batch, (*given, *instance.stops()), note, digest))
        self._pending.clear()
        return outcome

    def maintain(self, *, now: bool = False) -> None:
        """Begin a snapshot if the log has grown so much, or if it is wanted `now`; put one that is complete in place.

        `advance` does it first; one who has nothing else to do may as well.
        """
        if self._writer.is_busy:
            if self._writer.poll():
                self._replace_log()
            return
        is_new = self.last is not None and self.last.batch > self._saving[2]
        if is_new and (now or (self._is_due() and monotonic() - self._writer.failed > AGAIN)):
            self._begin_snapshot()

    def finish_snapshot(self) -> None:
        """Wait for the snapshot that is being written."""
        if self._writer.wait():
            self._replace_log()

    def _is_due(self) -> bool:
        """Whether a snapshot costs less than what it saves: bytes on the disk, or time when the state is recovered."""
        log = self.log_bytes
        return log > max(self._saved, LEAST_LOG) or self._work > max(
            LEAST_WORK, WORK_PER_SNAPSHOT * self._writer.seconds
        )

    # ------------------------------------------------------------ snapshots

    def _begin_snapshot(self) -> None:
        """Go on in a new segment, and have the instance before it written."""
        assert self.last is not None
        began = monotonic()
        commands = self.instance.compact(least=MOST_CHANGES)
        head = json.dumps({"version": 1, "commands": commands, "parts": ["outcome", "page", "arena", "history"]})
        parts: list[list[Bytes]] = [[head.encode()], self.last.written(), *self.instance.parts()]
        number = self._segments[-1].number + 1
        following = Segment.create(self._folder.path, number)
        self._segments[-1].close_followed()
        self._segments.append(following)
        self._work_before = self._work
        self._saving = number, sum(memoryview(piece).nbytes for part in parts for piece in part), self.last.batch
        if self._writer.begin(self._snapshot_path(number), _SNAPSHOT, parts):
            self._replace_log()
        self.pause = monotonic() - began

    def _replace_log(self) -> None:
        """A snapshot is in place: what it knows goes."""
        before = self._base
        self._base, self._saved, self._saved_batch = self._saving
        self._work -= self._work_before
        self._forget(before)
        self.snapshots += 1

    def _forget(self, before: int) -> None:
        """Remove what the snapshot has made useless, the oldest first."""
        while self._segments[0].number < self._base:
            self._segments.pop(0).remove()
        if before:
            self._snapshot_path(before).unlink(missing_ok=True)

    def _snapshot_path(self, number: int) -> Path:
        return self._folder.path / f"{_PREFIX}{number:08}"

    # ------------------------------------------------------------ rebuilding

    def _read(self) -> None:
        """Rebuild the instance from the folder."""
        for path in self._folder.path.glob("*.tmp"):
            path.unlink(missing_ok=True)
        snapshots = sorted(int(path.name.removeprefix(_PREFIX)) for path in self._folder.path.glob(f"{_PREFIX}*"))
        self._base = snapshots[-1] if snapshots else 0
        program = self.manifest.initial(self._program)
        if self._base:
            self._restore(program)
        else:
            self._instance, self.last, self._saved, self._saved_batch = Instance(program), None, 0, -1
        self._saving = self._base, self._saved, self._saved_batch
        self._work = 0.0
        self._segments = self._opened_segments()
        for number in snapshots[:-1]:
            self._snapshot_path(number).unlink(missing_ok=True)
        self._repeat_log()

    def _opened_segments(self) -> list[Segment]:
        """The segments from the snapshot on; the first of a folder that is new."""
        if self._folder.is_new:
            return [Segment.create(self._folder.path, 0)]
        found = segments_in(self._folder.path)
        while found and found[0].number < self._base:
            found.pop(0).remove()
        if not found or found[0].number != self._base:
            raise missing_segment(self._folder.path, self._base)
        for each in found:
            each.open()
        return found

    def _repeat_log(self) -> None:
        """Process what the log has once more; the results of the last batch are kept."""
        last = max((at for at, each in enumerate(self._segments) if each.has_bytes), default=0)
        for at, segment in enumerate(self._segments):
            for record in segment.records(last=at >= last):
                self._repeat(record)
            if not segment.followed:
                if at < last:
                    raise segment.cut_short()
                break
        else:
            raise missing_segment(self._folder.path, self._segments[-1].number + 1)
        while len(self._segments) > at + 1:  # they were being created, or emptied
            self._segments.pop().remove()

    def _repeat(self, record: Record) -> None:
        instance = self.instance
        self.last = self._outcome(lambda: instance.again(record.arrivals), record.batch, record.note, record.digest)
        self._work += self.last.report.seconds

    def _restore(self, program: Program) -> None:
        path = self._snapshot_path(self._base)
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._saved = len(content)
        self._restore_parts(program, unseal(_SNAPSHOT, memoryview(content), str(path), hint=_ANEW))

    def _restore_parts(self, program: Program, parts: Sequence[memoryview]) -> None:
        head = json.loads(bytes(parts[0]))
        named = dict(zip(head["parts"], parts[1:], strict=False))
        self._instance = Instance(program, commands=head["commands"])
        self._instance.restore_parts(bytes(named["page"]), named["arena"], bytes(named["history"]))
        self.last = Outcome.read(named["outcome"])
        self._saved_batch = self.last.batch

    def _go_back(self, batch: int) -> None:
        """Be what the instance was before a batch; the log has nothing of it, and of what came after it, any more."""
        if batch <= self._saved_batch:
            raise CqelsError(
                f"batch {batch} is given again with other elements, and the state has a snapshot of batch "
                f"{self._saved_batch}",
                hint="go on from a copy of the folder that is older, or begin with a new one",
            )
        self._writer.abandon()
        for segment in reversed(self._segments):  # so that a crash leaves a log that is shorter, and whole
            segment.cut(batch)
            segment.close()
        self._read()
        self._follow_program()

    def _follow_program(self) -> None:
        """Have the commands ready that make the queries and streams those of the program."""
        instance = self.instance
        program, faults = recognized(self._program, instance.registered, instance.prints)
        if not self._changing:
            self._folder.refuse(faults)
        self._pending = additions(self._program, *instance.sizes) + program_commands(program, instance.prints)
        instance.program = replace(instance.program, budgets=program.budgets, parts=program.parts)
