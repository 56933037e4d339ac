"""Spark's stateful operator, behind the shuffle and before the sinks: an engine instance for each group of rows.

The state store is the truth: a *log* of what has arrived, and a *snapshot* of the engine from before that, renewed when
the log has grown larger than it; and the *commands* that lead to the queries and the dataset of the snapshot, with
those since.  All have checksums, in the *head*.  So an engine can be rebuilt anywhere, exactly; and
what is written is at most about twice what comes in, whatever windows the queries have.

The live engine is in an arena file of the machine, which any process can attach.  It is used if its token is the one in
the state store, so that nobody has written the store since; a task that fails or is repeated leaves a token that is not
in the store.
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
from cqels.spark.operator.engine_instance import Instance, Report
from cqels.spark.operator.instance_commands import Arrival, hash_commands, registration
from cqels.spark.operator.program import Origin, Program

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

CHUNK = 4 << 20
"""Bytes of a snapshot in one entry of the state store."""
LEAST_LOG = 1 << 20
"""Bytes of the log below which no snapshot is taken."""
LONGEST_IDLE = 600.0
"""Seconds after which a process drops an engine that it has not used."""


@dataclass(frozen=True, slots=True)
class Head:
    """A summary of the state of an instance, kept beside it as JSON with these names.

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
        head = Head.read(known[0]) if known else self._initial_head(program)
        arrivals = [] if head.program == program.digest else self._program_commands(program, head)
        arrivals += [_arrival(row) for row in received if row.kind != REJECTED]
        engine_key = _EngineKey(program.name, number, Path(self._folder or SparkFiles.getRootDirectory()))

        live = self._live_engine(engine_key, program, head)
        report = live.instance.advance(arrivals)
        arrivals += live.instance.stops()
        rejected = [row for row in received if row.kind == REJECTED]
        for row in sorted(rejected, key=lambda row: (row.stream, row.position, row.number)):
            stream = program.streams[row.stream].iri
            yield _row(number, kind=REJECTED, query=stream, place=row.place, reason=row.reason, text=row.text)
        for late in live.instance.late():
            yield _row(number, kind=LATE, query=late.stream, place=late.place, reason=late.reason, text=late.text)
        for sent in live.instance.taken():
            counts = report.queries.setdefault(sent.query, {"in": 0, "out": 0})
            counts["out"] += sent.count
            yield _row(number, kind=RESULTS, **asdict(sent))
        head = self._keep(engine_key, live, arrivals, replace(head, program=program.digest))
        updates = [row.position for row in received if row.kind == COMMAND and row.place]
        yield _row(number, kind=REPORT, text=_reported(number, report, live, head, len(rejected), updates))

    def close(self) -> None:
        pass

    # ------------------------------------------------------------ queries

    def _initial_head(self, program: Program) -> Head:
        """The head of a new instance: of no state, or of the origin of queries that were migrated to it."""
        if program.origin is None:
            return Head()
        origin = Origin.read(program.origin.read())
        if origin.commands:  # Spark takes no empty list
            self._commands.appendList([(command,) for command in origin.commands])
        self._keep_snapshot(origin.saved)
        prints, count = self._keep_fingerprints(origin.prints), len(origin.commands)
        commanded = hash_commands(origin.commands)
        return Head(
            saved=len(origin.saved), saved_commands=count, commands=count, commanded=commanded, prints_sum=prints
        )

    def _keep_fingerprints(self, prints: Mapping[str, str]) -> int:
        """Keep the fingerprints of the queries in the state: their checksum."""
        text = json.dumps(prints)
        self._queries.update((text,))
        return crc32(text.encode())

    def _program_commands(self, program: Program, head: Head) -> list[Arrival]:
        """The commands that make the queries those of the program; queries registered by commands alone stay."""
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

    def _live_engine(self, key: _EngineKey, program: Program, head: Head) -> _LiveEngine:
        """The engine that the state describes: a live one if it is up to date, else one that is rebuilt."""
        here = _LIVE_ENGINES.pop(key, None)
        for other in [other for other, each in _LIVE_ENGINES.items() if monotonic() - each.used > LONGEST_IDLE]:
            del _LIVE_ENGINES[other]
        if here is not None:
            here.instance.program = program
        arenas = key.arenas()
        file = arenas.take(head.token) if head.token else None
        if file is not None:
            if here is not None and here.token == head.token:
                return replace(here, file=file, rebuilt=False)
            if here is None or here.instance.commanded != head.commanded:
                here = _LiveEngine(Instance(program, commands=self._commanded(head)))
            with suppress(Damaged):  # what is in the store is not
                here.instance.attach(file)
                return replace(here, file=file, rebuilt=False)
        file = arenas.make()
        known = self._commanded(head)[: head.saved_commands]
        saved = b"".join(bytes(chunk) for (chunk,) in self._snapshot.get()) if head.saved else b""
        log = checked_log(self._log.get(), head) if head.token else ()
        made = Instance.rebuild(program, known, saved, log, file)
        return _LiveEngine(made, file=file, rebuilt=bool(head.token))

    def _commanded(self, head: Head) -> list[str]:
        return checked_commands(self._commands.get(), head) if head.commands else []

    def _keep(self, key: _EngineKey, live: _LiveEngine, arrivals: list[Arrival], head: Head) -> Head:
        instance = live.instance
        commands = [(each.command,) for each in arrivals if each.command is not None]
        logged = head.logged + sum(len(each.block or each.command or "") for each in arrivals)
        head = replace(head, token=uuid4().hex, batch=head.batch + 1, logged=logged)
        if commands:
            head = replace(
                head, prints_sum=self._keep_fingerprints(instance.prints), commands=head.commands + len(commands)
            )
        if logged > max(head.saved, LEAST_LOG):
            head = self._save(instance, head)
        elif arrivals:
            entries = [(head.batch, *each) for each in arrivals]
            self._log.appendList(entries)
            if commands:
                self._commands.appendList(commands)
            head = replace(head, entries=head.entries + len(entries), log_sum=_checksum_of(entries, head.log_sum))
        head = replace(head, commanded=instance.commanded)
        self._head.update((head.written(),))
        assert live.file is not None
        instance.keep()
        if key.arenas().leave(live.file, head.token):
            _LIVE_ENGINES[key] = replace(live, token=head.token, used=monotonic())
        return head

    def _save(self, instance: Instance, head: Head) -> Head:
        """Keep a snapshot instead of the log, and the commands that lead to what there is instead of all."""
        data, commands = instance.saved(), instance.compact()
        self._keep_snapshot(data)
        self._log.clear()
        self._commands.clear()
        if commands:
            self._commands.appendList([(command,) for command in commands])
        count = len(commands)
        return replace(head, logged=0, entries=0, log_sum=0, saved=len(data), saved_commands=count, commands=count)

    def _keep_snapshot(self, saved: bytes) -> None:
        """Keep a snapshot in the state; chunk by chunk, since Java has several copies of what it gets at once."""
        self._snapshot.clear()
        for at in range(0, len(saved), CHUNK):
            self._snapshot.appendList([(saved[at : at + CHUNK],)])


@dataclass(frozen=True, slots=True)
class _EngineKey:
    """What a live engine is found by: its program and its group of rows, in a folder of the machine."""

    program: str
    group: int
    folder: Path

    def arenas(self) -> Arenas:
        return Arenas(self.folder, f"{self.program}-{self.group}")


@dataclass(frozen=True, slots=True)
class _LiveEngine:
    """An engine in this process, with its file and the token that it left in the store."""

    instance: Instance
    token: str = ""
    file: Path | None = None
    rebuilt: bool = False
    """It was rebuilt from the state store."""
    used: float = 0.0
    """When this process left it."""


_LIVE_ENGINES: dict[_EngineKey, _LiveEngine] = {}
"""The engines that this process has left, for its next tasks."""


# ---------------------------------------------------------------- checksums

_STATE = "the state of an engine in the checkpoint"
_ANEW = "begin with a new checkpoint"
_Entry: TypeAlias = tuple[int, int, str, bytes | None, str | None]


def checked_log(log: Iterable[_Entry], head: Head) -> list[_Entry]:
    """What has arrived since the snapshot, if it is what was written."""
    entries = list(log)
    if len(entries) != head.entries or _checksum_of(entries) != head.log_sum:
        raise _damaged("what has arrived since its snapshot is not what was written")
    return entries


def checked_commands(commands: Iterable[tuple[str]], head: Head) -> list[str]:
    """The commands, if they are those that were written."""
    found = [command for (command,) in commands]
    if hash_commands(found) != head.commanded:
        raise _damaged("the commands are not those that were written")
    return found


def _checksum_of(entries: Iterable[_Entry], before: int = 0) -> int:
    """A checksum of entries of the log, behind others that have one."""
    for batch, stream, sequence, block, command in entries:
        before = crc32(json.dumps([batch, stream, sequence, block is None, command]).encode(), before)
        before = before if block is None else crc32(block, before)
    return before


def _damaged(how: str) -> Damaged:
    return Damaged(f"{_STATE} is damaged: {how}", hint=_ANEW)


# ---------------------------------------------------------------- rows


def read_update(text: str) -> str:
    """The command of an update (`cqels.spark.driver.dataset_updates`), if it is what was written."""
    return json.dumps(unseal_json(text, "an update in the checkpoint", hint=_ANEW))


def _arrival(row: Row) -> Arrival:
    match row.kind:
        case "block":
            return Arrival(row.stream, row.place, bytes(row.block))
        case "end":
            return Arrival(row.stream)
        case _:
            return Arrival(command=read_update(row.text) if row.place else row.text)


def _reported(number: int, report: Report, live: _LiveEngine, head: Head, rejected: int, updates: Sequence[int]) -> str:
    instance = live.instance
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
            "rebuilt": live.rebuilt,
            "ended": instance.finished,
            "updates": updates,
        }
    )


def _row(instance: int, **values: Any) -> Row:
    return Row(**{name: values.get(name) for name in _NAMES} | {"instance": instance})


_NAMES = tuple(column.split()[0] for column in SENT_COLUMNS.split(", "))
