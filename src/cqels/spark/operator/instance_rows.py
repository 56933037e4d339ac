"""What goes into an engine instance and comes out of it as rows of Spark (`cqels.pipeline.lift.row_schemas`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pyspark.sql import Row

from cqels.ingest import Rejected
from cqels.model.checksummed import unseal_json
from cqels.pipeline.instance.engine_instance import Instance, Report, ResultChunk
from cqels.pipeline.instance.instance_commands import Arrival
from cqels.pipeline.instance.program import Program
from cqels.pipeline.lift.row_schemas import BLOCK, COMMAND, LATE, PUSHED, REJECTED, REPORT, RESULTS, SENT_COLUMNS

_NAMES = tuple(column.split()[0] for column in SENT_COLUMNS.split(", "))


def in_order(rows: Iterable[Any]) -> list[Any]:
    """Arriving rows in the order in which an instance takes them, whatever order they came in."""
    return sorted(rows, key=lambda row: (row.kind == COMMAND, row.stream, row.place, row.position, row.number))


def arrivals_in(received: Iterable[Any]) -> list[Arrival]:
    """What arrives with rows that are in order."""
    return [arrival for row in received if row.kind != REJECTED for arrival in _arrivals(row)]


def _arrivals(row: Any) -> list[Arrival]:
    match row.kind:
        case "block":
            return [Arrival(row.stream, row.place, bytes(row.block))]
        case "end":
            return [Arrival(row.stream)]
        case _ if row.place:
            update = read_update(row.text)
            commands = json.loads(update).get("commands")
            return [Arrival(command=each) for each in ([update] if commands is None else map(json.dumps, commands))]
        case _:
            return [Arrival(command=row.text)]


def read_update(text: str) -> str:
    """The command of an update (`cqels.spark.driver.dataset_updates`), if it is what was written."""
    return json.dumps(unseal_json(text, "an update in the checkpoint", hint="begin with a new checkpoint"))


def rejected_in_order(received: Iterable[Any], program: Program) -> list[Rejected]:
    """What was malformed among arriving rows."""
    rows = sorted(
        (row for row in received if row.kind == REJECTED), key=lambda row: (row.stream, row.position, row.number)
    )
    streams = program.sources or range(len(program.streams))
    return [Rejected(program.streams[streams[row.stream]].iri, row.place, row.reason, row.text) for row in rows]


def updates_in(received: Iterable[Any]) -> list[int]:
    """The numbers of the updates of the dataset among arriving rows."""
    return [row.position for row in received if row.kind == COMMAND and row.place]


def offsets_in(received: Iterable[Any]) -> dict[str, int]:
    """How far inboxes of pushed elements were read, by the numbers of their sources."""
    offsets: dict[str, int] = {}
    for row in received:
        if row.kind == BLOCK and row.place == PUSHED:
            offsets[str(row.stream)] = row.position  # which grow
    return offsets


def sent_rows(
    instance: int, rejected: Iterable[Rejected], late: Iterable[Rejected], chunks: Iterable[ResultChunk]
) -> Iterator[Row]:
    """What an instance sends of a micro-batch, but for its report."""
    for kind, some in ((REJECTED, rejected), (LATE, late)):
        for each in some:
            yield _row(instance, kind=kind, query=each.stream, place=each.place, reason=each.reason, text=each.text)
    for chunk in chunks:
        yield _row(instance, kind=RESULTS, **asdict(chunk))


def report_row(
    number: int,
    report: Report,
    instance: Instance,
    *,
    rejected: int,
    updates: Sequence[int],
    offsets: Mapping[str, int],
    log_bytes: int,
    snapshot_bytes: int,
    rebuilt: bool,
) -> Row:
    """What an instance did in a micro-batch; the results of its queries are counted."""
    told = {
        **asdict(report),
        "instance": number,
        "rejected": rejected,
        "watermark": instance.watermark,
        "held": instance.held,
        "state_bytes": instance.state_bytes,
        "log_bytes": log_bytes,
        "snapshot_bytes": snapshot_bytes,
        "rebuilt": rebuilt,
        "ended": instance.finished,
        "updates": updates,
        "offsets": offsets,
        "query_bytes": instance.query_bytes,
    }
    return _row(number, kind=REPORT, text=json.dumps(told))


def _row(instance: int, **values: Any) -> Row:
    return Row(**{name: values.get(name) for name in _NAMES} | {"instance": instance})
