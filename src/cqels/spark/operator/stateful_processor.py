"""Spark's stateful operator, behind the shuffle and before the sinks: an engine instance for each group of rows.

The state store is the truth: a *log* of what has arrived, and a *snapshot* of the engine from before that, renewed when
the log has grown larger than it; and the *commands* that lead to the queries and the dataset of the snapshot, with
those since.  All have checksums, in the *head* (`state_layouts.py`).  So an engine can be rebuilt anywhere, exactly;
and what is written is at most about twice what comes in, whatever windows the queries have.

The live engine is in an arena file of the machine, which any process can attach.  It is used if its token is the one in
the state store, so that nobody has written the store since; a task that fails or is repeated leaves a token that is not
in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.files import SparkFiles
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from cqels.model.errors import Damaged
from cqels.pipeline.instance.engine_instance import Instance
from cqels.pipeline.instance.instance_commands import Arrival, hash_commands, passes, program_commands
from cqels.pipeline.instance.program import Origin, Program
from cqels.spark.operator.arena_files import Arenas
from cqels.spark.operator.instance_rows import (
    arrivals_in,
    in_order,
    offsets_in,
    rejected_in_order,
    report_row,
    sent_rows,
    updates_in,
)
from cqels.spark.operator.state_layouts import FIVE_VARIABLES, Head, checksum_of, state_variables
from cqels.spark.worker_start import prepare_worker

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

LEAST_LOG = 1 << 20
"""Bytes of the log below which no snapshot is taken."""
LONGEST_IDLE = 600.0
"""Seconds after which a process drops an engine that it has not used."""


class Evaluation(StatefulProcessor):
    """One engine for each group of rows; Spark calls it with what has arrived in a micro-batch."""

    def __init__(
        self, programs: Mapping[int, Program], folder: str | None = None, *, layout: int = FIVE_VARIABLES
    ) -> None:
        """`programs` are those of the groups; `folder` is for the engines' memory, else Spark's own.

        `layout` is that of the state (`state_layouts.py`).
        """
        self._programs = dict(programs)
        self._folder = folder
        self._layout = layout

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = state_variables(handle, self._layout)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        prepare_worker()
        number = int(key[0])
        program = self._programs[number]
        received = in_order(rows)
        known = self._state.head()
        head, prints = self._begun(program) if known is None else (known, None)
        arrivals: list[Arrival] = []
        if head.program != program.digest:
            running = self._state.prints(head) if prints is None else prints
            arrivals += [Arrival(command=command) for command in program_commands(program, running)]
        arrivals += arrivals_in(received)
        engine_key = _EngineKey(program.name, number, Path(self._folder or SparkFiles.getRootDirectory()))

        live = self._live_engine(engine_key, program, head)
        report = live.instance.advance(arrivals)
        arrivals += live.instance.stops()
        rejected, chunks = rejected_in_order(received, program), [*live.instance.taken()]
        yield from sent_rows(number, rejected, live.instance.late(), chunks)
        for chunk in chunks:
            report.queries.setdefault(chunk.query, {"in": 0, "out": 0})["out"] += chunk.count
        head = self._keep(engine_key, live, arrivals, replace(head, program=program.digest))
        yield report_row(
            number,
            report,
            live.instance,
            rejected=len(rejected),
            updates=updates_in(received),
            offsets=offsets_in(received),
            log_bytes=head.logged,
            snapshot_bytes=head.saved,
            rebuilt=live.rebuilt,
        )

    def close(self) -> None:
        pass

    # ------------------------------------------------------------ state

    def _begun(self, program: Program) -> tuple[Head, dict[str, str]]:
        """The head of a new instance: of no state, or of the origin of queries that were migrated to it."""
        if program.origin is None:
            return Head(), {}
        origin = Origin.read(program.origin.read())
        self._state.replace(origin.saved, origin.commands)
        count = len(origin.commands)
        commanded = hash_commands(origin.commands)
        head = Head(saved=len(origin.saved), saved_commands=count, commands=count, commanded=commanded)
        return head, origin.prints

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
                commands = arenas.commands(head.commanded) or self._state.commands(head)
                here = _LiveEngine(Instance(program, commands=commands), commands=commands)
            with suppress(Damaged):  # what is in the store is not
                here.instance.attach(file)
                return replace(here, file=file, rebuilt=False)
        file = arenas.make()
        stored = self._state.stored(head)
        made = Instance.rebuild(program, stored.commands[: head.saved_commands], stored.saved, stored.log, file)
        return _LiveEngine(made, commands=stored.commands, file=file, rebuilt=bool(head.token))

    def _keep(self, key: _EngineKey, live: _LiveEngine, arrivals: list[Arrival], head: Head) -> Head:
        instance, known = live.instance, live.commands
        commands = [each.command for each in arrivals if each.command is not None and not passes(each.command)]
        logged = head.logged + sum(len(each.block or each.command or "") for each in arrivals)
        head = replace(head, token=uuid4().hex, batch=head.batch + 1, logged=logged)
        if logged > max(head.saved, LEAST_LOG):
            data, known = instance.saved(), instance.compact()
            self._state.replace(data, known)
            count = len(known)
            head = replace(head, logged=0, entries=0, log_sum=0, saved=len(data), saved_commands=count, commands=count)
        elif arrivals:
            entries = [(head.batch, *each) for each in arrivals]
            self._state.append(entries)
            known = [*known, *commands] if commands else known
            count, log_sum = head.entries + len(entries), checksum_of(entries, head.log_sum)
            head = replace(head, entries=count, log_sum=log_sum, commands=head.commands + len(commands))
        head = replace(head, commanded=instance.commanded)
        self._state.write_head(head, instance.prints)
        assert live.file is not None
        instance.keep()
        arenas = key.arenas()
        arenas.leave_commands(head.commanded, known)
        if arenas.leave(live.file, head.token):
            _LIVE_ENGINES[key] = replace(live, token=head.token, commands=known, used=monotonic())
        return head


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
    commands: list[str]
    """All that it was given, of which `Instance.commanded` is the hash."""
    token: str = ""
    file: Path | None = None
    rebuilt: bool = False
    """It was rebuilt from the state store."""
    used: float = 0.0
    """When this process left it."""


_LIVE_ENGINES: dict[_EngineKey, _LiveEngine] = {}
"""The engines that this process has left, for its next tasks."""
