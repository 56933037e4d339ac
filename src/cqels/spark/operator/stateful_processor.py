"""The engine inside Spark's stateful operator: blocks in, results out, and all it knows in Spark's state store.

The state store is the truth: a *log* of what has arrived, and a *snapshot* of the engine from before that, renewed when
the log has grown larger than it; and the *commands* that lead to the queries and the dataset of the snapshot, with
those since.  All have checksums, in the *head*.  So an engine can be made again anywhere, exactly; and
what is written is at most about twice what comes in, whatever windows the queries have.

The engine that lives is in a file of the machine, which any process can attach.  It is used if the store's last writer
was the one that left it there, which a token tells; a task that fails or is repeated leaves a token that is not in the
store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4
from zlib import crc32

from pyspark.files import SparkFiles
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from cqels.model.checksummed import seal_json, unseal_json
from cqels.model.errors import Damaged
from cqels.spark.lift.row_schemas import COMMAND, LATE, REJECTED, REPORT, RESULTS, SENT_COLUMNS
from cqels.spark.operator.arena_files import Arenas
from cqels.spark.operator.engine_instance import Arrival, Instance, Origin, Program, Report, chained, registration

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

CHUNK = 4 << 20
"""Bytes of a snapshot in one entry of the state store."""
LEAST_LOG = 1 << 20
"""Bytes of the log below which no snapshot is taken."""
LONGEST_IDLE = 600.0
"""Seconds after which a process lets an engine go that it was not asked for."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of the state without reading it.

    `commands` is how many there are, `saved_commands` how many were given before the snapshot; `program` is the digest
    of the queries that it last had.  `entries` is how many the log has; the `…_sum` are checksums.
    """

    token: str = ""
    batch: int = 0
    logged: int = 0
    entries: int = 0
    log_sum: int = 0
    saved: int = 0
    saved_commands: int = 0
    commands: int = 0
    commanded: str = ""
    prints_sum: int = 0
    program: str = ""
    version: int = 1

    def written(self) -> str:
        return seal_json(asdict(self))

    @staticmethod
    def read(text: str) -> Head:
        found = unseal_json(text, _STATE, hint=_ANEW)
        return Head(**{each.name: found[each.name] for each in fields(Head) if each.name in found})


class Evaluation(StatefulProcessor):
    """One engine for each group of rows; Spark calls it with what has arrived in a micro-batch."""

    def __init__(self, programs: Mapping[int, Program], folder: str | None = None) -> None:
        """`programs` are those of the groups; `folder` is for the engines' memory, else Spark's own."""
        self._programs = dict(programs)
        self._folder = folder

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "head string")
        self._queries = handle.getValueState("queries", "prints string")
        self._commands = handle.getListState("commands", "command string")
        self._log = handle.getListState("log", "batch long, stream int, place string, block binary, command string")
        self._snapshot = handle.getListState("snapshot", "chunk binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        number = int(key[0])
        program = self._programs[number]
        received = sorted(rows, key=lambda row: (row.kind == COMMAND, row.stream, row.place, row.position, row.number))
        known = self._head.get()
        head = Head.read(known[0]) if known else self._begun(program)
        arrivals = [] if head.program == program.digest else self._renewed(program, head)
        arrivals += [_arrival(row) for row in received if row.kind != REJECTED]
        place = _Place(program.name, number, Path(self._folder or SparkFiles.getRootDirectory()))

        instance = self._instance(place, program, head)
        report = instance.instance.advance(arrivals)
        arrivals += instance.instance.stops()
        rejected = [row for row in received if row.kind == REJECTED]
        for row in sorted(rejected, key=lambda row: (row.stream, row.position, row.number)):
            stream = program.streams[row.stream].iri
            yield _row(number, kind=REJECTED, query=stream, place=row.place, reason=row.reason, text=row.text)
        for late in instance.instance.late():
            yield _row(number, kind=LATE, query=late.stream, place=late.place, reason=late.reason, text=late.text)
        for sent in instance.instance.taken():
            told = report.queries.setdefault(sent.query, {"in": 0, "out": 0})
            told["out"] += sent.count
            yield _row(number, kind=RESULTS, **asdict(sent))
        head = self._keep(place, instance, arrivals, replace(head, program=program.digest))
        updates = [row.position for row in received if row.kind == COMMAND and row.place]
        yield _row(number, kind=REPORT, text=_reported(number, report, instance, head, len(rejected), updates))

    def close(self) -> None:
        pass

    # ------------------------------------------------------------ queries

    def _begun(self, program: Program) -> Head:
        """What an instance begins with: nothing, or queries that have come from another."""
        if program.origin is None:
            return Head()
        origin = Origin.read(program.origin.read())
        if origin.commands:  # Spark takes no empty list
            self._commands.appendList([(command,) for command in origin.commands])
        self._put(origin.saved)
        prints, count = self._tell(origin.prints), len(origin.commands)
        commanded = chained(origin.commands)
        return Head(
            saved=len(origin.saved), saved_commands=count, commands=count, commanded=commanded, prints_sum=prints
        )

    def _tell(self, prints: Mapping[str, str]) -> int:
        """Keep the fingerprints of the queries: the checksum of that."""
        text = json.dumps(prints)
        self._queries.update((text,))
        return crc32(text.encode())

    def _renewed(self, program: Program, head: Head) -> list[Arrival]:
        """The commands that make the queries those of the program; such as came by commands are not its business."""
        now, there = program.read(), self._running(head)
        prints = {name: print for name, (print, _) in now.items()}
        gone = [name for name, print in reversed(there.items()) if print and prints.get(name) != print]
        commands = [json.dumps({"drop": name}) for name in gone]
        commands += [
            registration(query, print, program.budgets.get(name))
            for name, (print, query) in now.items()
            if there.get(name) != print
        ]
        return [Arrival(command=command) for command in commands]

    def _running(self, head: Head) -> dict[str, str]:
        known = self._queries.get()
        if known and crc32(known[0].encode()) != head.prints_sum:
            raise _damaged("the queries are not those that were written")
        return json.loads(known[0]) if known else {}

    # ------------------------------------------------------------ state

    def _instance(self, place: _Place, program: Program, head: Head) -> _Living:
        """The engine that the store describes: the one that is here, if nobody else has written since."""
        here = _ALIVE.pop(place, None)
        for other in [other for other, each in _ALIVE.items() if monotonic() - each.used > LONGEST_IDLE]:
            del _ALIVE[other]
        if here is not None:
            here.instance.program = program
        arenas = place.arenas()
        file = arenas.take(head.token) if head.token else None
        if file is not None:
            if here is not None and here.token == head.token:
                return replace(here, file=file, rebuilt=False)
            if here is None or here.instance.commanded != head.commanded:
                here = _Living(Instance(program, commands=self._commanded(head)))
            with suppress(Damaged):  # what is in the store is not
                here.instance.attach(file)
                return replace(here, file=file, rebuilt=False)
        file = arenas.make()
        known = self._commanded(head)[: head.saved_commands]
        saved = b"".join(bytes(chunk) for (chunk,) in self._snapshot.get()) if head.saved else b""
        log = checked_log(self._log.get(), head) if head.token else ()
        made = Instance.again(program, known, saved, log, file)
        return _Living(made, file=file, rebuilt=bool(head.token))

    def _commanded(self, head: Head) -> list[str]:
        return checked_commands(self._commands.get(), head) if head.commands else []

    def _keep(self, place: _Place, living: _Living, arrivals: list[Arrival], head: Head) -> Head:
        instance = living.instance
        commands = [(each.command,) for each in arrivals if each.command is not None]
        logged = head.logged + sum(len(each.block or each.command or "") for each in arrivals)
        head = replace(head, token=uuid4().hex, batch=head.batch + 1, logged=logged)
        if commands:
            head = replace(head, prints_sum=self._tell(instance.prints), commands=head.commands + len(commands))
        if logged > max(head.saved, LEAST_LOG):
            head = self._save(instance, head)
        elif arrivals:
            entries = [(head.batch, *each) for each in arrivals]
            self._log.appendList(entries)
            if commands:
                self._commands.appendList(commands)
            head = replace(head, entries=head.entries + len(entries), log_sum=_sum_of(entries, head.log_sum))
        head = replace(head, commanded=instance.commanded)
        self._head.update((head.written(),))
        assert living.file is not None
        instance.keep()
        if place.arenas().leave(living.file, head.token):
            _ALIVE[place] = replace(living, token=head.token, used=monotonic())
        return head

    def _save(self, instance: Instance, head: Head) -> Head:
        """Keep a snapshot instead of the log, and the commands that lead to what there is instead of all."""
        data, commands = instance.saved(), instance.compact()
        self._put(data)
        self._log.clear()
        self._commands.clear()
        if commands:
            self._commands.appendList([(command,) for command in commands])
        count = len(commands)
        return replace(head, logged=0, entries=0, log_sum=0, saved=len(data), saved_commands=count, commands=count)

    def _put(self, saved: bytes) -> None:
        """Keep what an instance knows; piece by piece, since Java has several copies of what it gets at once."""
        self._snapshot.clear()
        for at in range(0, len(saved), CHUNK):
            self._snapshot.appendList([(saved[at : at + CHUNK],)])


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an engine is known: by its program and its group, in a folder of the machine."""

    program: str
    group: int
    folder: Path

    def arenas(self) -> Arenas:
        return Arenas(self.folder, f"{self.program}-{self.group}")


@dataclass(frozen=True, slots=True)
class _Living:
    """An engine in this process, with its file and the token that it left in the store."""

    instance: Instance
    token: str = ""
    file: Path | None = None
    rebuilt: bool = False
    """It was made again from the state store."""
    used: float = 0.0
    """When this process left it."""


_ALIVE: dict[_Place, _Living] = {}
"""The engines of this process."""


# ---------------------------------------------------------------- checksums

_STATE = "the state of an engine in the checkpoint"
_ANEW = "begin with a new checkpoint"
_Entry: TypeAlias = tuple[int, int, str, bytes | None, str | None]


def checked_log(log: Iterable[_Entry], head: Head) -> list[_Entry]:
    """What has arrived since the snapshot, if it is what was written."""
    entries = list(log)
    if len(entries) != head.entries or _sum_of(entries) != head.log_sum:
        raise _damaged("what has arrived since its snapshot is not what was written")
    return entries


def checked_commands(commands: Iterable[tuple[str]], head: Head) -> list[str]:
    """The commands, if they are those that were written."""
    found = [command for (command,) in commands]
    if chained(found) != head.commanded:
        raise _damaged("the commands are not those that were written")
    return found


def _sum_of(entries: Iterable[_Entry], before: int = 0) -> int:
    """A checksum of entries of the log, behind others that have one."""
    for batch, stream, place, block, command in entries:
        before = crc32(json.dumps([batch, stream, place, block is None, command]).encode(), before)
        before = before if block is None else crc32(block, before)
    return before


def _damaged(how: str) -> Damaged:
    return Damaged(f"{_STATE} is damaged: {how}", hint=_ANEW)


# ---------------------------------------------------------------- rows


def opened(text: str) -> str:
    """The command of an update (`cqels.spark.driver.dataset_updates`), if it is what was written."""
    return json.dumps(unseal_json(text, "an update in the checkpoint", hint=_ANEW))


def _arrival(row: Row) -> Arrival:
    match row.kind:
        case "block":
            return Arrival(row.stream, row.place, bytes(row.block))
        case "end":
            return Arrival(row.stream)
        case _:
            return Arrival(command=opened(row.text) if row.place else row.text)


def _reported(number: int, report: Report, living: _Living, head: Head, rejected: int, updates: Sequence[int]) -> str:
    instance = living.instance
    return json.dumps(
        {
            **asdict(report),
            "instance": number,
            "rejected": rejected,
            "watermark": instance.watermark,
            "held": instance.held,
            "state_bytes": instance.state_bytes,
            "log_bytes": head.logged,
            "snapshot_bytes": head.saved,
            "rebuilt": living.rebuilt,
            "ended": instance.finished,
            "updates": updates,
        }
    )


def _row(instance: int, **values: Any) -> Row:
    return Row(**{name: values.get(name) for name in _NAMES} | {"instance": instance})


_NAMES = tuple(column.split()[0] for column in SENT_COLUMNS.split(", "))
