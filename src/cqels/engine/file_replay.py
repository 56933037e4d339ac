"""Streams in files through the engine, as fast as they can be read: bytes, batches, results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from time import time_ns

from cqels.engine.engine import Engine
from cqels.engine.event_time.future_limit import limit_of, near
from cqels.engine.event_time.stream_merge import Hold, merged, merged_files
from cqels.ingest import Rejected, Rejects, StreamDeclaration, Tally, settings_of
from cqels.ingest.element_batch import Batch
from cqels.ingest.encode import Intake
from cqels.ingest.file_batches import file_batches, source_batches
from cqels.ingest.input_files import files_of
from cqels.ingest.live_sources import is_live, live_declaration, source_of
from cqels.ingest.punctuations import PromiseFinder
from cqels.ingest.stream_files import check_files, in_time
from cqels.plan.algebra import Query
from cqels.results import InTime, Result
from cqels.store.dataset import Store


def replay(
    queries: Iterable[Query],
    declarations: Iterable[StreamDeclaration],
    store: Store,
    *,
    start: int = 0,
    until: int | None = None,
    reject: Callable[[Rejected], None] = lambda rejected: None,
    strict: bool = False,
    tally: Tally | None = None,
    memory: int | str | None = None,
    time: int | str | None = None,
    budgets: Mapping[str, tuple[int | str | None, int | str | None]] | None = None,
    analysed: Callable[[str], object] | None = None,
) -> Iterator[tuple[Query, Result]]:
    """Send the streams' elements through the queries in the order of time; results as they come.

    `until` is the time of a last heartbeat, which closes the windows that end before it.  With `strict` the first
    rejected element ends the run.  With no streams there is one tick, at `start`.  `memory` and `time` are the budget
    of each query, unless `budgets` has one for its name.  `analysed` is called at the end with the plan of each query
    and what it did.
    """
    declared = tuple(declarations)
    tally = tally or Tally()
    rejects = Rejects(tally, reject, strict)
    with Engine(store=store, start=start, reject=rejects.late) as engine:
        internals = engine.internals
        for settings in settings_of(declared).values():
            internals.declare(settings)
        running = []
        for each in queries:
            most, longest = (budgets or {}).get(each.name or "", (memory, time))
            running.append((each, engine.register(each, memory=most, time=longest, declare=False)))
        order = InTime(len(running))

        def taken(*, last: bool = False) -> Iterator[tuple[Query, Result]]:
            rejects.check()
            due = order.add([standing.running.take() for _, standing in running])
            tally.stopped = sum(standing.stopped is not None for _, standing in running)
            for number, result in chain(due, order.rest() if last else ()):
                tally.results += 1
                yield running[number][0], result

        numbers = {iri: number for number, iri in enumerate(engine.streams)}
        sources = [
            batches(each, numbers[each.iri], internals.intake, rejects.of(live=is_live(each)), internals.hold)
            for each in declared
        ]
        for batch in merged(sources, internals.hold):
            tally.elements += len(batch)
            tally.time = int(batch.times[-1])
            internals.push_batch(batch)
            yield from taken()
            tally.watch(tally)
        engine.finish()
        yield from taken()
        if until is not None:
            engine.heartbeat(until)
        elif not declared:
            engine.heartbeat(start)
        yield from taken(last=True)
        if analysed is not None:
            for _, standing in running:
                analysed(standing.explain())


def batches(
    declaration: StreamDeclaration, stream: int, intake: Intake, reject: Callable[[Rejected], None], hold: Hold
) -> Iterator[Batch]:
    """The elements of a declaration as batches, its files merged by time, or of a live source as they come.

    `hold` is given what waits here.
    """
    if (source := source_of(declaration)) is not None:
        live = live_declaration(declaration)
        yield from _near(live, source_batches(live, source, stream, intake, reject), intake, reject)
        return
    files = files_of(declaration.path)
    template = check_files(declaration, files)
    begun = in_time(declaration, files, template)

    def opened(number: int) -> Iterator[Batch]:
        found = file_batches(declaration, begun[number].path, template, stream, intake, reject)
        return _near(declaration, found, intake, reject)

    if len(begun) == 1:
        yield from opened(0)
    else:
        yield from merged_files([each.first for each in begun], opened, hold)


def _near(
    declaration: StreamDeclaration, found: Iterable[Batch], intake: Intake, reject: Callable[[Rejected], None]
) -> Iterator[Batch]:
    """The batches that are not empty, without elements too far beyond the wall clock."""

    def refuse(reason: str, text: str) -> None:
        reject(Rejected(declaration.iri, f"<{declaration.iri}>", reason, text))

    promises = PromiseFinder(intake.terms)
    for batch in found:
        limit = limit_of(declaration.future, time_ns())
        promises.forget()  # terms may have been collected since
        promised = None if declaration.future is None else promises.latest(promises.marked(batch), declaration.unit)
        if len(kept := near(batch, declaration.future, limit, intake.terms, refuse, promised)):
            yield kept
