"""The results and the rejected input of a micro-batch, from the rows that the engines send to the driver.

Here the parts of a partitioned query are merged, in its global stage if it has one; the sinks get what comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pyarrow.ipc

from cqels.ingest import Rejected
from cqels.pipeline.lift.row_schemas import LATE, REJECTED, RESULTS
from cqels.pipeline.sink.result_batch import Sent, schema_of
from cqels.plan.algebra import Query
from cqels.spark.driver.checkpoint import Checkpoint, Manifest
from cqels.spark.driver.global_stages import NO_FILE, CheckpointedStage, PartOutput

if TYPE_CHECKING:
    from pyspark.sql import Row

    from cqels.spark.driver.app import App


class BatchResults:
    """Reads the results of micro-batches; it has the queries, and the global stages of those that have one."""

    def __init__(self, app: App, checkpoint: Checkpoint) -> None:
        self._app, self._checkpoint = app, checkpoint
        self.queries = {query.name or "": query for query in app.queries}
        self._parts = app.parts
        """What engines run: its name, and that of the query that it is or is a part of."""
        self._stages: dict[str, CheckpointedStage] = {}
        self._replaced: dict[str, list[Query]] = {}
        """Queries whose last results may still come, under the name of another one."""

    def know(self, query: Query) -> None:
        """Read the results of a query that commands register; one of its name has sent others."""
        name = query.name or ""
        if (before := self.queries.get(name)) is not None:
            self._replaced.setdefault(name, []).append(before)
        self.queries[name] = query

    def forget_replaced(self) -> None:
        """Those have sent all."""
        self._replaced.clear()

    def _query(self, name: str, payload: bytes) -> Query:
        """The query that has sent some results: the last one of its name that sends such."""
        replaced = self._replaced.get(name)
        if not replaced:
            return self.queries[name]
        columns = pyarrow.ipc.open_stream(payload).schema.names
        known = (self.queries[name], *reversed(replaced))
        return next((each for each in known if schema_of(each).names == columns), known[0])

    def add(self, queries: Iterable[Query]) -> None:
        """Read the results of these queries of the application too."""
        self.queries |= {query.name or "": query for query in queries}
        self._parts |= self._app.parts

    @property
    def whole(self) -> dict[str, Query]:
        """The queries that are not partitioned: their results are those of one engine instance."""
        names = (part for part, whole in self._parts.items() if part == whole and part not in self._stages)
        return {name: self.queries[name] for name in names if name in self.queries}

    def open_stages(self, manifest: Manifest) -> None:
        """Have the global stages of the queries that run now, and no others."""
        before, self._stages = self._stages, {}
        parts = {whole: part for part, whole in self._app.parts.items()}
        for name, query in self._app.rests.items():
            folder = self._checkpoint.stage_folder(parts[name], manifest.again.get(parts[name], 0))
            stage = before.get(name)
            if stage is None or stage.folder != folder:
                last = self._checkpoint.stage_files.read().get(folder.name, NO_FILE)
                stage = CheckpointedStage(self.queries[name], query, folder, last=last)
            self._stages[name] = stage
        for each in before.values():
            if each not in self._stages.values():
                each.close()
        self._checkpoint.remove_other_stages([each.folder for each in self._stages.values()])

    def read(self, batch: int, rows: Iterable[Row], reports: Sequence[Mapping[str, Any]]) -> dict[str, Sent]:
        """The results of queries, those of their parts merged."""
        found: dict[str, list[Row]] = {}
        for row in sorted((row for row in rows if row.kind == RESULTS), key=lambda row: row.number):
            found.setdefault(self._parts.get(row.query, row.query), []).append(row)
        before = Counter[str]()
        for report in reports:
            for part, number in report["sent"].items():
                before[self._parts[part]] += number
        began = {part: number for report in reports for part, number in report["began"].items()}
        sent = {}
        for name, stage in self._stages.items():
            payloads: dict[str, list[bytes]] = {}
            for row in found.pop(name, []):
                payloads.setdefault(row.query, []).append(bytes(row.payload))
            merged = stage.process(batch, [PartOutput(payloads[part], began[part]) for part in payloads])
            if merged is not None:
                sent[name] = merged
        if self._stages:
            self._checkpoint.stage_files.write({each.folder.name: each.last for each in self._stages.values()})
        for name, mine in found.items():
            made = [bytes(row.payload) for row in mine]
            read = Sent.read(self._query(name, made[0]), mine[0].number, made)
            sent[name] = read if mine[0].query == name else read.merged(before[name])
        return sent

    def counted(self, reports: Sequence[dict[str, Any]], sent: Mapping[str, Sent]) -> Sequence[dict[str, Any]]:
        """The reports with the results of global stages, instead of what the parts of queries sent to these."""
        if not self._stages or not reports:
            return reports
        counted = []
        for report in reports:
            queries = {
                name: counts | {"out": 0} if self._parts.get(name) in self._stages else counts
                for name, counts in report["queries"].items()
            }
            counted.append(report | {"queries": queries})
        for name in self._stages:
            counted[0]["queries"][name] = {"in": 0, "out": len(sent[name]) if name in sent else 0}
        return counted

    def close(self) -> None:
        for each in self._stages.values():
            each.close()


def rejected_in(rows: Iterable[Row]) -> list[Rejected]:
    """The malformed input, and the late elements: every engine reports those, and one report of each is taken.

    An engine has only the triples that its queries can match, so the report with most of them is taken.
    """
    found: list[Row] = []
    late: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for row in rows:
        if row.kind == REJECTED:
            found.append(row)
        elif row.kind == LATE:
            late.setdefault((row.place, row.reason), {}).setdefault(row.instance, []).append(row)
    for of_instances in late.values():
        for same in zip_longest(*of_instances.values()):
            found.append(max((row for row in same if row is not None), key=lambda row: len(row.text or "")))
    return [Rejected(row.query or "", row.place or "", row.reason or "", row.text or "") for row in found]
