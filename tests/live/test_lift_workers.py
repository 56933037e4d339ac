"""Queries that come and go leave nothing behind of how their streams were lifted."""

from __future__ import annotations

import gc
import time

from cqels.ingest import StreamSettings
from cqels.live.live_run import LiveRun, LiveSettings, PushedStream
from cqels.pipeline.lift.lift_worker import LiftWorker
from cqels.pipeline.lift.row_lifts import ntriples
from cqels.pipeline.sinks import Memory
from cqels.pipeline.source.live_source import Message
from cqels.store.dataset import Store

from .driving import EX, OBS, query


def workers() -> list[LiftWorker]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, LiftWorker)]


def test_a_stream_has_one_worker_at_most_whatever_queries_have_come() -> None:
    """Each asks for other triples, so that a worker which lifts them has terms of its own."""
    memory, before = Memory(), workers()
    pushed = PushedStream(settings=StreamSettings(OBS), lift=ntriples())
    run = LiveRun([], [], Store(), [memory], settings=LiveSettings(lasting=True), pushed=[pushed])
    run.start()
    try:
        for number in range(5):
            name = f"q{number}"
            run.register(query(f"SELECT ?o WHERE {{ STREAM <{OBS}> [NOW] {{ ?s <{EX}p{number}> ?o }} }}", name))
            run.push(OBS, [Message(b'<urn:a> <%sp%d> 1 "%d" .' % (EX.encode(), number, 1000 + number), 0)])
            limit = time.monotonic() + 20
            while not memory.results(name) and time.monotonic() < limit:
                time.sleep(0.01)
            assert len(memory.results(name)) == 1
            run.drop(name)
        assert len([each for each in workers() if not any(each is other for other in before)]) <= 1
    finally:
        run.stop()
