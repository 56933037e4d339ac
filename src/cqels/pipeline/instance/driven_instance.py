"""An engine instance that is driven batch by batch, and what becomes of each: the part that needs no disk.

`DurableInstance` keeps its state in a folder; `PassingInstance` has none, for a run that no other goes on from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import uuid4

from cqels.ingest import Rejected
from cqels.model.checksummed import Bytes
from cqels.pipeline.instance.engine_instance import Instance, Report, ResultChunk
from cqels.pipeline.instance.instance_commands import Arrival, program_commands, registered_query
from cqels.pipeline.instance.program import Program
from cqels.plan.algebra import Query
from cqels.plan.plan_json import read, write


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch: a report, results, and the elements that were late; with the note that it was given."""

    batch: int
    report: Report
    chunks: tuple[ResultChunk, ...]
    late: tuple[Rejected, ...]
    note: dict[str, Any]
    digest: str = ""
    """Of the arrivals that it was given."""
    dropped: dict[str, Query] = field(default_factory=dict)
    """The queries that have sent some of the results and were dropped in the batch, or replaced."""

    def written(self) -> list[Bytes]:
        """In pieces, for a snapshot."""
        known = {
            "batch": self.batch,
            "note": self.note,
            "digest": self.digest,
            "report": asdict(self.report),
            "late": [[each.stream, each.place, each.reason, each.text] for each in self.late],
            "dropped": {name: write(query) for name, query in self.dropped.items()},
            "chunks": [[each.query, each.number, each.count, len(each.payload)] for each in self.chunks],
        }
        text = json.dumps(known).encode()
        return [len(text).to_bytes(8, "little"), text, *(each.payload for each in self.chunks)]

    @staticmethod
    def read(data: memoryview) -> Outcome:
        at = 8 + int.from_bytes(data[:8], "little")
        known = json.loads(bytes(data[8:at]))
        chunks = []
        for query, number, count, size in known["chunks"]:
            chunks.append(ResultChunk(query, number, count, bytes(data[at : at + size])))
            at += size
        late = tuple(Rejected(*each) for each in known["late"])
        report = Report(**known["report"])
        dropped = {name: read(query) for name, query in known["dropped"].items()}
        return Outcome(known["batch"], report, tuple(chunks), late, known["note"], known["digest"], dropped)


class DrivenInstance:
    """An `Instance`, its last batch, and the commands that it still has to execute."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._pending: list[str] = []
        self._instance: Instance | None = None
        self.last: Outcome | None = None
        """The last batch."""

    @property
    def instance(self) -> Instance:
        assert self._instance is not None, "recover() comes first"
        return self._instance

    @property
    def batch(self) -> int:
        """The number of the last batch; -1 if there is none."""
        return -1 if self.last is None else self.last.batch

    @property
    def pending(self) -> list[str]:
        """Commands that the next batch begins with: queries that are new, or no longer asked for, and new streams."""
        return list(self._pending)

    def precede(self, commands: Sequence[str]) -> None:
        """Let the next batch begin with these, before all others."""
        self._pending[:0] = commands

    @property
    def queries(self) -> dict[str, Query]:
        """The queries that run, by their names, and those whose last results are in the last batch."""
        return self.instance.registered | ({} if self.last is None else self.last.dropped)

    def _given(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        return [*(Arrival(command=command) for command in self._pending), *arrivals]

    def _outcome(self, advance: Callable[[], Report], batch: int, note: dict[str, Any], digest: str) -> Outcome:
        """What becomes of a batch by `advance`."""
        instance = self.instance
        before = instance.registrations
        report = advance()
        chunks, late = tuple(instance.taken()), tuple(instance.late())
        for each in chunks:
            report.queries.setdefault(each.query, {"in": 0, "out": 0})["out"] += each.count
        now = instance.registrations
        gone = {name for name, text in before.items() if now.get(name) != text}  # or replaced by another of the name
        dropped = {each.query: registered_query(before[each.query]) for each in chunks if each.query in gone}
        return Outcome(batch, report, chunks, late, note, digest, dropped)


class PassingInstance(DrivenInstance):
    """An instance whose state goes with the process; it is driven as a `DurableInstance` is."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.id = uuid4().hex
        self.log_bytes = self.snapshot_bytes = self.snapshots = 0
        self.pause = 0.0

    def recover(self) -> Outcome | None:
        self._instance = Instance(self._program)
        self._pending = program_commands(self._program, {})
        return None

    def advance(self, batch: int, arrivals: Sequence[Arrival], note: dict[str, Any] | None = None) -> Outcome:
        given = self._given(arrivals)
        self.last = self._outcome(lambda: self.instance.advance(given), batch, note or {}, "")
        self.instance.stops()
        self._pending.clear()
        return self.last

    def maintain(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""
