"""Files through the reference engine: what `cqels run --engine reference` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cqels.ingest import Rejected, Rejects, StreamDeclaration, Tally, merge, read_stream, settings_of
from cqels.ingest.live_sources import is_live
from cqels.plan.algebra import Query
from cqels.reference.reference_engine import Reference
from cqels.results import Result
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
) -> Iterator[tuple[Query, Result]]:
    """Send the streams' elements through the queries in the order of time; results as they come.

    `until` is the time of a last heartbeat, which closes the windows that end before it.  With `strict` the first
    rejected element ends the run.  With no streams there is one tick, at `start`.
    """
    declared = tuple(declarations)
    tally = tally or Tally()
    rejects = Rejects(tally, reject, strict)
    engine = Reference(store, settings_of(declared).values(), start=start, reject=rejects.late)
    running = [(query, engine.register(query)) for query in queries]

    def taken() -> Iterator[tuple[Query, Result]]:
        rejects.check()
        for query, registered in running:
            for result in registered.take():
                tally.results += 1
                yield query, result

    for element in merge([read_stream(each, rejects.of(live=is_live(each))) for each in declared]):
        tally.elements += 1
        tally.time = element.time
        engine.push(element)
        yield from taken()
        tally.watch(tally)
    engine.finish()
    yield from taken()
    if until is not None:
        engine.heartbeat(until)
    elif not declared:
        engine.heartbeat(start)
    yield from taken()
