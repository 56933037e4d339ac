"""All sources of a live run, read in batches: files, and live sources, which say when there is more.

How far each has been read is JSON, which the run keeps with the state of its engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias

from cqels.ingest import Rejected, StreamDeclaration
from cqels.ingest.declarations import FUTURE
from cqels.ingest.live_sources import is_live
from cqels.live.file_streams import FileStreams
from cqels.model.errors import CqelsError
from cqels.pipeline.instance.instance_commands import Arrival
from cqels.pipeline.lift.block_format import latest_of
from cqels.pipeline.lift.declared_lift import lift_of
from cqels.pipeline.lift.lift_worker import LiftWorker
from cqels.pipeline.lift.predicate_pushdown import PushedPatterns
from cqels.pipeline.lift.row_lifts import Lift, Lifting
from cqels.pipeline.lift.row_schemas import BLOCK, REJECTED
from cqels.pipeline.source.file_catalog import Changed
from cqels.pipeline.source.file_source_settings import FileStream, prepared
from cqels.pipeline.source.live_source import Position, ReplayableSource
from cqels.pipeline.source.source_registry import open_source, source_name

MOST_PAUSE = 60.0
"""Seconds after which a source that has failed is opened again, at most."""
_SOURCES = 8
"""Sources that may have as much of one batch as each of them has at most."""
_LOG = logging.getLogger("cqels")

Positions: TypeAlias = dict[str, Any]
"""How far all sources have been read, by their names."""
Opened: TypeAlias = Callable[[], ReplayableSource]


@dataclass
class Batch:
    """What was read at once."""

    arrivals: list[Arrival] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    positions: Positions = field(default_factory=dict)
    latest: dict[int, int] = field(default_factory=dict)
    """The largest time of the elements of each source that had some."""
    size: int = 0
    """Bytes that were read."""


@dataclass
class _Live:
    """A source that is not of files, and how its messages are lifted."""

    name: str
    number: int
    iri: str
    open: Opened
    lift: Lift
    future: int | None
    strict: bool
    lifting: Lifting | None = None
    worker: LiftWorker | None = None
    """Its own: those of the process would stay, each with its terms, when queries come and go."""
    source: ReplayableSource | None = None
    pause: float = 1.0
    not_before: float = 0.0

    def want(self, patterns: PushedPatterns) -> None:
        lifting = Lifting(self.iri, self.number, self.lift, (patterns,), self.strict, self.future)
        if lifting != self.lifting:
            self.lifting, self.worker = lifting, None

    def read(
        self, position: Position | None, most: int, least: int | None
    ) -> tuple[list[dict[str, Any]], Position, int] | None:
        """Rows and where the next ones begin; None if it cannot be read now."""
        if self.source is None:
            if monotonic() < self.not_before:
                return None
            self.source = self.open()
        try:
            at = self.source.start() if position is None else position
            rows, end = self.source.read(at, most)
        except CqelsError as error:
            if error.__cause__ is None or isinstance(error.__cause__, CqelsError):
                raise  # which waiting does not mend
            self._fail(error)
            return None
        self.pause = 1.0
        if not rows.num_rows:
            return [], end, 0
        assert self.lifting is not None
        self.worker = self.worker or LiftWorker(self.lifting)
        self.worker.least = least
        blocks = self.lifting.blocks(iter([rows]), worker=self.worker)
        lifted = [row for batch in blocks for row in batch.to_pylist()]
        return lifted, end, rows.nbytes

    def _fail(self, error: CqelsError) -> None:
        """Open it again after a while."""
        _LOG.warning("%s; it is opened again in %g s", error.message, self.pause)
        self.close()
        self.not_before, self.pause = monotonic() + self.pause, min(2 * self.pause, MOST_PAUSE)

    def close(self) -> None:
        if self.source is not None:
            self.source.close()
            self.source = None


class Inputs:
    """The declared sources of a run, in the order of their numbers, and those that are pushed to."""

    def __init__(
        self,
        declarations: Sequence[StreamDeclaration],
        folder: Path,
        *,
        known: Sequence[str] = (),
        follow: bool,
        notify: Callable[[], None],
        strict: bool = False,
        speed: float | None = None,
        changed: Changed = "stop",
    ) -> None:
        """`folder` is for catalogs of files and for inboxes; `notify` is called when a source has more.

        `known` are the names of the sources of an earlier run: they keep their numbers.
        """
        self._strict = strict
        self.iris: dict[int, str] = {}
        """The streams of the sources, by their numbers."""
        self.watches = False
        """The times of elements are looked at."""
        self._live: list[_Live] = []
        self._turn = 0
        """The live source that is read first."""
        self._files: dict[str, FileStreams] = {}
        self.bounded: frozenset[int] = frozenset()
        """The sources that end, and are waited for."""
        self.names: list[str] = [*known]
        """Those of all sources, also of an earlier run, by their numbers."""
        files: list[FileStream] = []
        for each in declarations:
            name = _name(each)
            number = self._numbered(name, each.iri)
            if is_live(each):
                self._live.append(self._declared(each, number, name, folder / "inbox" / name, notify))
            else:
                files.append((number, each, (None,)))
        options: dict[str, Any] = {"follow": follow, "speed": speed, "strict": strict}
        if follow:
            for number, each, _ in files:
                settings = prepared(
                    [(number, each, (None,))],
                    folder / "files" / self.names[number],
                    changed={number: changed},
                    **options,
                )
                self._files[self.names[number]] = FileStreams(settings)
        elif files:
            choices = {number: changed for number, *_ in files}
            settings = prepared(files, folder / "files" / "all", changed=choices, **options)
            self._files["all"] = FileStreams(settings)
            self.bounded = frozenset(number for number, *_ in files)

    def _numbered(self, name: str, iri: str) -> int:
        """The number of a source."""
        if name not in self.names:
            self.names.append(name)
        number = self.names.index(name)
        if number in self.iris:
            raise CqelsError(f"stream <{iri}> has a source twice")
        self.iris[number] = iri
        return number

    def _declared(
        self, declaration: StreamDeclaration, number: int, name: str, folder: Path, notify: Callable[[], None]
    ) -> _Live:
        future = declaration.future if declaration.future is not None else FUTURE
        return _Live(
            name,
            number,
            declaration.iri,
            lambda: open_source(declaration, folder, notify=notify),
            lift_of(declaration),
            None if declaration.clock == "arrival" else future,
            self._strict,
        )

    def add(self, name: str, iri: str, opened: Opened, lift: Lift, future: int | None) -> None:
        """One more source, of what is pushed to a stream; `open` opens it."""
        number = self._numbered(name, iri)
        self._live.append(_Live(name, number, iri, opened, lift, future, self._strict))

    def firsts(self) -> dict[int, tuple[int, ...]]:
        """Of sources that end and have several files: the times of the files' first elements."""
        return {number: first for each in self._files.values() for number, first in each.firsts().items()}

    def want(self, patterns: Mapping[str, PushedPatterns]) -> None:
        """Let the triples pass from now on that these match, by streams."""
        for live in self._live:
            live.want(patterns[live.iri])
        for files in self._files.values():
            files.want(patterns)

    def open(self) -> None:
        """Begin to receive."""
        for each in self._live:
            if each.source is None:
                each.source = each.open()

    def read(self, positions: Positions, most: int, limit: Callable[[str], int | None] = lambda stream: None) -> Batch:
        """What there is now, about `most` bytes of each source; it does not wait.

        `limit` says before which time an element of a stream would be late: one that was pushed without a time has that
        time at least, as if it had come now.
        """
        batch = Batch(positions=dict(positions))
        rows: list[dict[str, Any]] = []
        for name, files in self._files.items():
            at = {int(number): (piece, byte) for number, (piece, byte) in positions.get(name, {}).items()}
            offsets = files.start() | at
            files.search(offsets)
            found = files.read(offsets, most)
            rows += found.rows
            batch.size += found.size
            batch.positions[name] = {str(number): [*offset] for number, offset in found.offsets.items()}
        left = _SOURCES * most
        turn, self._turn = self._turn % max(len(self._live), 1), 0
        for number, live in enumerate([*self._live[turn:], *self._live[:turn]]):
            if left <= 0:  # the others come first in the next batch
                self._turn = turn + number
                break
            given = live.read(positions.get(live.name), min(most, left), limit(live.iri))
            if given is not None:
                more, batch.positions[live.name], size = given
                rows += more
                batch.size += size if more else 0
                left -= size
        self._sort(rows, batch)
        return batch

    def _sort(self, rows: list[dict[str, Any]], batch: Batch) -> None:
        """Put rows in the order in which an engine gets them; what was rejected goes its own way."""
        for row in sorted(rows, key=lambda row: (row["stream"], row["place"], row["position"], row["number"])):
            stream, kind = row["stream"], row["kind"]
            if kind == REJECTED:
                iri = self.iris[stream]
                batch.rejected.append(Rejected(iri, row["place"], row["reason"], row["text"]))
            elif kind == BLOCK:
                batch.arrivals.append(Arrival(stream, row["place"], row["block"]))
                if self.watches:
                    latest = latest_of(row["block"])
                    batch.latest[stream] = max(batch.latest.get(stream, latest), latest)
            else:
                batch.arrivals.append(Arrival(stream))

    @property
    def live(self) -> set[str]:
        """The names of the sources that are not of files: where they begin may depend on when they are asked."""
        return {each.name for each in self._live}

    @property
    def due(self) -> float | None:
        """When files are searched next, or a source is opened again, by the monotonic clock."""
        times = [each.due for each in self._files.values()]
        times += [each.not_before for each in self._live if each.source is None]
        return min((time for time in times if time is not None), default=None)

    def has_ended(self, positions: Positions) -> bool:
        """Whether there will never be more of any source."""
        for name, files in self._files.items():
            at = positions.get(name)
            if at is None or not files.has_ended({int(key): (piece, byte) for key, (piece, byte) in at.items()}):
                return False
        return all(self._live_ended(each, positions) for each in self._live)

    def _live_ended(self, live: _Live, positions: Positions) -> bool:
        at = positions.get(live.name)
        return at is not None and live.source is not None and live.source.has_ended(at)

    def commit(self, positions: Positions) -> None:
        """What comes before these is in the state of the engine: sources need not keep it."""
        for each in self._live:
            if each.source is not None and (at := positions.get(each.name)) is not None:
                each.source.commit(at)

    def close(self) -> None:
        for each in self._live:
            each.close()


def _name(declaration: StreamDeclaration) -> str:
    """A name for a declared source: the same in every run, and fit for a folder."""
    if is_live(declaration):
        return source_name(declaration)
    return f"files-{blake2s(f'{declaration.iri} {declaration.path}'.encode(), digest_size=6).hexdigest()}"
