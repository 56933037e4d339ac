"""A live run of queries in this process: a loop of numbered batches from sources through an engine to sinks.

Each batch is read from where the sources are, given to the engine, written to the log of its state with where the
sources are then, and delivered.  So whatever ends the process, a run with the same state goes on behind the last batch
of the log, which is delivered once more under its number.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2s
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Thread
from time import monotonic, time_ns
from typing import Any, TypeVar

from cqels.engine.budgets import Budget
from cqels.engine.event_time.wall_clock import TICK, WallClock, settling_time, unclocked
from cqels.ingest import StreamDeclaration, StreamSettings, Tally, settings_of
from cqels.ingest.declarations import FUTURE
from cqels.live.batch_delivery import Delivery, RejectSink
from cqels.live.change_requests import Request, Requests, has_ended
from cqels.live.data_changes import Change, update_command
from cqels.live.inputs import Batch, Inputs, Positions
from cqels.live.live_queries import QuerySet
from cqels.live.run_measures import BatchDone, Measures, Measuring
from cqels.model.choices import Lost
from cqels.model.errors import CqelsError
from cqels.model.time import SECOND
from cqels.pipeline.instance.driven_instance import Outcome, PassingInstance
from cqels.pipeline.instance.durable_instance import DurableInstance, lock_of
from cqels.pipeline.instance.engine_instance import Instance
from cqels.pipeline.instance.instance_commands import Arrival, declaration, registration
from cqels.pipeline.instance.program import Dataset, Program
from cqels.pipeline.instance.state_manifest import Manifest, StateFolder
from cqels.pipeline.lift.block_format import elements_of
from cqels.pipeline.lift.predicate_pushdown import ANYTHING, PushedPatterns, pushed_patterns
from cqels.pipeline.lift.row_lifts import Lift
from cqels.pipeline.sink.sink_protocol import DeliveryStopped, Sink
from cqels.pipeline.source.file_catalog import Changed
from cqels.pipeline.source.inbox import LIMIT, Inbox, InboxClosed, InboxReader, WhenFull
from cqels.pipeline.source.live_source import Message
from cqels.pipeline.source.watched_data import FileChange, WatchedData
from cqels.plan.algebra import Query
from cqels.store.dataset import Store

BATCH_BYTES = 8 << 20
"""Bytes of each source that a batch has at most, where nothing else is asked for."""
_IDLE = 1.0
"""Seconds after which an idle run looks after its state."""
_LOOK = 1.0
"""Seconds between looks at watched files."""
_LOG = logging.getLogger("cqels")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """How a live run reads, and when it ends."""

    follow: bool = True
    """New files and appended lines are waited for."""
    lasting: bool = False
    """It goes on when all sources have ended, since others may be declared."""
    start: int = 0
    """What the boundaries of sliding windows are counted from."""
    until: int | None = None
    """How far time goes on when all sources have ended."""
    strict: bool = False
    """The first malformed or late element ends the run."""
    speed: float | None = None
    """Files are replayed at the pace of their times, so many times faster."""
    changed: Changed = "stop"
    """What to do with a file that was replaced, shortened or removed."""
    batch_bytes: int = BATCH_BYTES
    trigger: int = 0
    """Nanoseconds from one batch to the next, at least."""
    tick: int = TICK
    """Nanoseconds between two heartbeats by the wall clock."""
    lost: Lost = "stop"
    """What to do where results that were written are gone."""
    fork: bool = True
    """Snapshots are written by another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedStream:
    """A stream that elements can be pushed to, how they are lifted, and what is kept of those that wait."""

    settings: StreamSettings
    lift: Lift
    limit: int | None = LIMIT
    """Bytes of elements that wait."""
    when_full: WhenFull = "wait"
    """Who pushes more waits, is refused with `InboxFull`, or the oldest that nobody has read are dropped."""
    dropped: Callable[[int], None] = lambda count: None
    """Called with the numbers of elements that are dropped."""
    future: int | None = FUTURE
    """Nanoseconds beyond the wall clock from which on an element is rejected."""


class LiveRun:
    """Queries over streams, from `start` to `stop` or the end of all sources; other threads may change it.

    ```python
    run = LiveRun(declarations, queries, store, [sink], state=Path("state"))
    run.start()
    run.update("INSERT DATA { … }")
    run.wait()
    ```
    """

    def __init__(
        self,
        streams: Sequence[StreamDeclaration],
        queries: Sequence[Query],
        store: Store,
        sinks: Sequence[Sink],
        *,
        state: Path | None = None,
        rejects: RejectSink | None = None,
        settings: LiveSettings | None = None,
        budgets: Mapping[str, Budget] | None = None,
        pushed: Iterable[PushedStream] = (),
        tally: Tally | None = None,
        watched: WatchedData | None = None,
        now: Callable[[], int] = time_ns,
    ) -> None:
        """`state` is the folder of its state; without it no run goes on from this one.

        `pushed` are streams that elements can be pushed to (`push`); `declare` adds more.  `watched` are files of
        the store that are updates when they have changed.  `now` is the wall clock, in nanoseconds.
        """
        self._settings = settings or LiveSettings()
        self._declared, self._asked, self._store = tuple(streams), tuple(queries), store
        self._budgets, self._now = dict(budgets or {}), now
        self._pushed = {each.settings.iri: each for each in pushed}
        self._watched, self._looked = watched or WatchedData(), 0.0
        self._temporary = state is None
        self._folder = Path(mkdtemp(prefix="cqels-")) if state is None else state
        self._delivery = Delivery(sinks, rejects, self._settings.strict, tally or Tally(), {})
        self._news = Event()
        """There may be something to do."""
        self._stopping, self._done = Event(), Event()
        self._fault: BaseException | None = None
        self._requests = Requests(self._notify, self._done)
        self._measuring = Measuring()
        self._followers: list[Callable[[BatchDone], None]] = []
        self._stopped: dict[str, str] = {}
        self._ended = False
        self._lock = lock_of(self._folder)
        self._thread = Thread(target=self._run, name="cqels run", daemon=True)
        self._inboxes: dict[str, Inbox] = {}
        self._positions: Positions = {}
        self._begun: set[str] = set()
        """The sources of which the log knows where they begin."""
        self._streams: list[StreamSettings] = []
        self._engine: DurableInstance | PassingInstance
        self._queries: QuerySet
        self._inputs: Inputs
        self._clock: WallClock
        self._began = 0.0
        self.batches = 0
        """How many this run has done."""
        self.finished = False
        """All sources have ended, and all is done: in this run or before."""

    # ------------------------------------------------------------ beginning and end

    def start(self) -> None:
        """Recover the state, open sources and sinks, and go on in a thread; what does not fit is refused."""
        try:
            self._prepare(self._known_state())
            last = self._engine.recover()
            self._resume(last)
        except BaseException:
            self._close()
            raise
        self.finished = isinstance(self._engine, DurableInstance) and self._engine.manifest.finished
        if self.finished:
            self._done.set()
            self._close()
            return
        self._queries.ask_again(self._notify)
        self._thread.start()

    def _known_state(self) -> Manifest | None:
        """What an earlier run has left; from now on this run alone has it."""
        if self._temporary:
            return None
        self._lock.acquire()
        return StateFolder(self._folder).peek()

    def _prepare(self, before: Manifest | None) -> None:
        """Make all parts, with the numbers that streams and sources had before."""
        settings = self._settings
        if before is not None:
            self._watched.go_back(self._store, self._folder / "watched")
        declared = settings_of(self._declared)
        declared = {iri: each.settings for iri, each in self._pushed.items() if iri not in declared} | declared
        known = [] if before is None else [each["iri"] for each in before.streams if each["iri"] in declared]
        order = [*known, *(iri for iri in declared if iri not in known)]
        self._streams = [declared[iri] for iri in order]
        self._queries = QuerySet(self._streams, self._store)
        public = [self._queries.add(query) for query in self._asked]
        self._inputs = Inputs(
            self._declared,
            self._folder,
            known=[] if before is None else before.names,
            follow=settings.follow,
            strict=settings.strict,
            speed=settings.speed,
            changed=settings.changed,
            notify=self._notify,
        )
        for each in self._pushed.values():
            self._add_inbox(each)
        sources = {number: order.index(iri) for number, iri in self._inputs.iris.items()}
        gone = {} if before is None else dict(enumerate(before.sources))
        numbered = gone | sources
        program = Program.of(
            "live",
            public,
            self._streams,
            sources=tuple(numbered[number] for number in sorted(numbered)),
            bounded=self._inputs.bounded,
            firsts=self._inputs.firsts(),
            dataset=Dataset.of(self._store),
            start=settings.start,
            until=settings.until,
            budgets=self._budgets,
        )
        if self._temporary:
            self._engine = PassingInstance(program)
        else:
            self._engine = DurableInstance(self._folder, program, fork=settings.fork, lock=self._lock)

    def _add_inbox(self, pushed: PushedStream) -> None:
        iri = pushed.settings.iri
        name = f"pushed-{blake2s(iri.encode(), digest_size=6).hexdigest()}"

        def opened() -> InboxReader:
            self._inboxes[iri] = inbox = Inbox(
                self._folder / "inbox" / name,
                place=f"<{iri}>",
                limit=pushed.limit,
                when_full=pushed.when_full,
                notify=self._notify,
                dropped=lambda rows: pushed.dropped(sum(map(elements_of, rows.column("value").to_pylist()))),
            )
            return InboxReader(inbox)

        self._inputs.add(name, iri, opened, pushed.lift, None if pushed.settings.arrival else pushed.future)

    def _resume(self, last: Outcome | None) -> None:
        """Go on from the state: positions, clock, sinks, and the answers of endpoints."""
        engine, delivery = self._engine, self._delivery
        note = {} if last is None else last.note
        self._positions = note.get("positions", {})
        self._begun = {*self._positions}
        settling = settling_time(self._queries.by_name.values())
        end = {self._inputs.iris[number] for number in self._inputs.bounded}
        followed = [unclocked(each) if each.iri in end else each for each in self._streams]
        self._clock = WallClock(followed, tick=self._settings.tick, settling=settling)
        if "clock" in note:
            self._clock.restore(note["clock"])
        self._inputs.watches = self._clock.is_needed
        self._queries.know(engine.instance.answers)
        for name, query in engine.instance.registered.items():
            if not engine.instance.prints[name]:  # a command has registered it
                self._queries.add(query)
        engine.precede(self._queries.news())
        sent = {each.query for each in last.chunks} if last is not None else set()
        involved = {name: query for name, query in engine.queries.items() if name in sent} | self._queries.by_name
        if isinstance(engine, DurableInstance):
            self._check_outputs(engine, [*involved.values()])
        delivery.open([*involved.values()], engine.id)
        if isinstance(engine, DurableInstance):
            manifest = engine.manifest
            manifest.names = self._inputs.names
            manifest.outputs = sorted({*manifest.outputs, *delivery.places()})
            engine.write_manifest()
        self._want()
        self._watched.open(self._folder / "watched")
        self._inputs.open()

    def _check_outputs(self, engine: DurableInstance, queries: Sequence[Query]) -> None:
        """Where results that were written are gone, do what was chosen."""
        manifest = engine.manifest
        gone = self._delivery.lost(queries, run=manifest.id, opened=manifest.outputs, done=engine.batch - 1)
        if not gone:
            return
        told = "; ".join(gone)
        if self._settings.lost == "stop":
            raise CqelsError(told, hint="put it back, or go on with what comes from now on: --lost continue")
        if self._settings.lost == "rebuild":
            raise CqelsError(f"{told}, and is not rebuilt", hint="begin with a new state folder, or --lost continue")
        _LOG.warning("%s: it goes on with what comes from now on", told)

    def _want(self) -> None:
        """Let the triples pass that the queries can match, or all where elements wait for queries to come."""
        holds_back = any(each.lateness or each.idle for each in self._streams) or len(self._inputs.bounded) > 1
        queries = [*self._queries.by_name.values()]
        everything = PushedPatterns(frozenset({ANYTHING}))
        self._inputs.want(
            {
                each.iri: everything if holds_back or each.punctuated else pushed_patterns(queries, each.iri)
                for each in self._streams
            }
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False if it has not come in that many seconds. What ended the run is raised."""
        if not self._done.wait(timeout):
            return False
        if self._thread.ident is not None:
            self._thread.join()
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault
        return True

    def stop(self) -> None:
        """End the run between two batches; the next one with the same state goes on from there."""
        self._stopping.set()
        self._delivery.stop_waiting()
        self._notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _close(self) -> None:
        for name in ("_inputs", "_queries", "_engine"):
            if (each := getattr(self, name, None)) is not None:
                each.close()
        for inbox in self._inboxes.values():
            inbox.close()
        self._lock.release()
        self._delivery.close()
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    # ------------------------------------------------------------ changes, from any thread

    def register(self, query: Query, budget: Budget | None = None) -> None:
        """Run one more query, which has a name; it sees what comes from now on, and stays when the run goes on."""

        def commands() -> list[str]:
            public = self._queries.add(query)
            try:
                self._delivery.add([public])
            except BaseException:
                self._queries.drop(query.name or "")
                raise
            return [*self._queries.news(), registration(public, "", budget)]

        self._requests.ask(Request(commands, self._queries_changed))

    def replace(self, query: Query, budget: Budget | None = None) -> None:
        """Run a query instead of the one that has its name, from one batch to the next; its windows begin anew."""

        def commands() -> list[str]:
            name = query.name or ""
            before = self._queries.by_name.get(name)
            self._queries.drop(name)
            try:
                public = self._queries.add(query)
            except BaseException:
                assert before is not None
                self._queries.add(before)
                raise
            self._delivery.add([public])
            self._stopped.pop(name, None)
            return [json.dumps({"drop": name}), *self._queries.news(), registration(public, "", budget)]

        self._requests.ask(Request(commands, self._queries_changed, drops=True))

    def drop(self, name: str) -> None:
        """Run a query no more; what it has sent stays."""

        def commands() -> list[str]:
            self._queries.drop(name)
            self._stopped.pop(name, None)
            return [json.dumps({"drop": name})]

        self._requests.ask(Request(commands, self._queries_changed, drops=True))

    def declare(self, pushed: PushedStream) -> None:
        """Have one more stream that elements can be pushed to; a run that goes on from this one is given it, too."""

        def commands() -> list[str]:
            settings = pushed.settings
            if any(each.iri == settings.iri for each in self._streams):
                raise CqelsError(f"there is a stream <{settings.iri}> already")
            number = len(self._streams)
            self._streams.append(settings)
            self._queries.declare(settings)
            self._clock.add(settings)
            self._inputs.watches = self._clock.is_needed
            self._pushed[settings.iri] = pushed
            self._add_inbox(pushed)
            self._want()
            self._inputs.open()
            if isinstance(self._engine, DurableInstance):
                manifest = self._engine.manifest  # it may know more than the log has: the rest is added then
                manifest.streams.append(asdict(settings))
                manifest.sources.append(number)
                manifest.names = self._inputs.names
                self._engine.write_manifest()
            return [declaration(settings), json.dumps({"source": number})]

        self._requests.ask(Request(commands))

    def look(self, look: Callable[[Instance], T]) -> T:
        """What a function gives that looks at the engine instance between two batches."""
        return self._requests.look(lambda: look(self._engine.instance))

    def explain(self, name: str, format: str = "text") -> str:
        """The plan of a query that runs, with what it has done."""
        return self.look(lambda instance: instance.explain(name, format))

    def update(self, change: Change) -> None:
        """Change the dataset between two batches, exactly once, whatever ends the process then."""
        permissions = self._store.services.permissions

        def commands() -> list[str]:
            return [update_command(change, self._engine.instance.dataset, permissions)]

        self._requests.ask(Request(commands, changes_data=True))

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        """No element before this time will come, on one stream or on all."""
        command: dict[str, Any] = {"heartbeat": time}
        if stream is not None:
            command["stream"] = self._number(stream)
        self._requests.ask(Request(lambda: [json.dumps(command)]))

    def inbox(self, stream: str) -> Inbox:
        """What is pushed to a stream and waits."""
        return self._inboxes[stream]

    def push(self, stream: str, messages: Sequence[Message]) -> None:
        """Give elements to a stream; when this returns they are on the disk, and come into one of the next batches."""
        if stream not in self._inboxes:
            known = ", ".join(f"<{iri}>" for iri in self._inboxes) or "none"
            raise CqelsError(f"nothing can be pushed to stream <{stream}>", hint=f"the streams that can be: {known}")
        inbox, began = self._inboxes[stream], monotonic()
        try:
            inbox.append(messages)
        except InboxClosed:
            raise has_ended() from None
        self._measuring.pushed(stream, inbox.end, began)

    def _queries_changed(self) -> None:
        self._want()
        self._clock.settling = settling_time(self._queries.by_name.values())
        self._queries.ask_again(self._notify)

    def _number(self, stream: str) -> int:
        numbers = {each.iri: number for number, each in enumerate(self._streams)}
        if stream not in numbers:
            raise CqelsError(f"there is no stream <{stream}>", hint=f"the streams are {', '.join(numbers)}")
        return numbers[stream]

    # ------------------------------------------------------------ what it has done

    @property
    def tally(self) -> Tally:
        return self._delivery.tally

    @property
    def queries(self) -> dict[str, Query]:
        return dict(self._queries.by_name)

    @property
    def stopped(self) -> dict[str, str]:
        """The queries that took more than their budgets, with the reasons."""
        return dict(self._stopped)

    @property
    def is_running(self) -> bool:
        """It was started, and has not ended."""
        return self._thread.is_alive() and not self._stopping.is_set()

    @property
    def store(self) -> Store:
        """The static data as it is now; what changes it is `update`."""
        return self._engine.instance.store

    def snapshot(self) -> None:
        """Have a snapshot of the state on the disk."""

        def taken() -> None:
            if isinstance(self._engine, DurableInstance):
                self._engine.finish_snapshot()
                self._engine.maintain(now=True)
                self._engine.finish_snapshot()

        self._requests.look(taken)

    @property
    def metrics(self) -> dict[str, Any]:
        """Counts and sizes of now."""
        tally, engine = self.tally, self._engine
        instance = engine.instance
        watermark = instance.watermark
        return {
            "batch": engine.batch,
            "batches": self.batches,
            "elements": tally.elements,
            "results": tally.results,
            "rejected": tally.rejected,
            "late": tally.late,
            "stopped": tally.stopped,
            "watermark": watermark,
            "lag": None if watermark is None else max(self._now() - watermark, 0) / SECOND,
            "held": instance.held,
            "state_bytes": instance.state_bytes,
            "log_bytes": engine.log_bytes,
            "snapshot_bytes": engine.snapshot_bytes,
            "snapshots": engine.snapshots,
            "pause": engine.pause,
        }

    @property
    def measures(self) -> Measures:
        """What it has counted by streams and queries, and how long batches and pushes took."""
        return self._measuring.measures

    def follow(self, follower: Callable[[BatchDone], None]) -> None:
        """Have a function called behind each batch, by the thread of the run."""
        self._followers.append(follower)

    # ------------------------------------------------------------ the loop

    def _notify(self) -> None:
        self._news.set()

    def _run(self) -> None:
        try:
            self._deliver_again()
            while not self._stopping.is_set() and not self.finished:
                self._news.clear()
                is_idle = not self._step()
                self._measuring.look(lambda: self._engine.instance.query_bytes)
                if is_idle:
                    self._engine.maintain()
                    self._news.wait(self._timeout())
            self._note_delivered()
        except DeliveryStopped:
            pass  # the next run delivers the batch
        except BaseException as error:
            self._fault = error
        finally:
            try:
                self._close()
            except BaseException as error:
                self._fault = self._fault or error
            self._done.set()
            self._requests.refuse_all()

    def _deliver_again(self) -> None:
        """Deliver the last batch of the run before, unless that was stopped behind it."""
        last = self._engine.last
        if last is None:
            return
        if not isinstance(self._engine, DurableInstance) or self._engine.manifest.delivered != last.batch:
            self._delivery.deliver(last, again=True)
        self._inputs.commit(self._positions)
        self._note_end()

    def _note_delivered(self) -> None:
        """The run is stopped between two batches: the next one need not deliver the last again."""
        if isinstance(self._engine, DurableInstance):
            self._engine.manifest.delivered = self._engine.batch
            self._engine.write_manifest()

    def _timeout(self) -> float:
        """Seconds until there is something to do, whether or not a source says so."""
        now = monotonic()
        times = [now + _IDLE]
        if self._clock.is_needed:
            times.append(now + self._clock.tick / SECOND)
        if self._watched.files:
            times.append(self._looked + _LOOK)
        if (due := self._inputs.due) is not None:
            times.append(due)
        return max(0.0, min(times) - now)

    def _step(self) -> bool:
        """Do a batch, if there is one to do."""
        if (pause := self._began + self._settings.trigger / SECOND - monotonic()) > 0:
            self._stopping.wait(pause)
        self._began = monotonic()
        now = self._now()
        read = self._inputs.read(self._positions, self._settings.batch_bytes, self._engine.instance.limit)
        for source, latest in read.latest.items():
            self._clock.observe(self._number(self._inputs.iris[source]), latest, now)
        commands = [] if read.arrivals else self._heartbeats(now)
        changes = self._changes_of_files()
        commands += [change.command for change in changes]
        commands += self._queries.news()
        asked = self._requests.commands(alone=not changes)
        commands += asked
        is_over = not self._settings.lasting and self._inputs.has_ended(read.positions)
        if is_over and not read.arrivals and not asked:
            commands += self._ending()
        begun = self._inputs.live & {*read.positions} - self._begun
        if not (read.arrivals or read.rejected or commands or self._engine.pending or begun):
            self._positions = read.positions
            return False
        note = {
            "positions": read.positions,
            "clock": self._clock.state(),
            "rejected": [[each.stream, each.place, each.reason, each.text] for each in read.rejected],
        }
        arrivals = [*read.arrivals, *(Arrival(command=command) for command in commands)]
        outcome = self._engine.advance(self._engine.batch + 1, arrivals, note)
        evaluated = time_ns()
        self._positions = read.positions
        for change in changes:
            change.keep()
        self._begun |= begun
        self.batches += 1
        self._requests.executed()
        self._delivery.deliver(outcome)
        self._inputs.commit(read.positions)
        self._requests.delivered()
        self._note_stopped(outcome)
        self._measure(read, outcome, evaluated)
        self._note_end()
        return True

    def _measure(self, read: Batch, outcome: Outcome, evaluated: int) -> None:
        """Count a batch that was delivered now."""
        now = time_ns()
        self._measuring.done(
            outcome,
            read.arrivals,
            read.rejected,
            self._inputs.iris,
            lambda iri: self._inboxes[iri].committed,
            began=self._began,
            now=now / SECOND,
        )
        if self._followers:
            began = now - round((monotonic() - self._began) * SECOND)
            results = sum(each.count for each in outcome.chunks)
            done = BatchDone(outcome.batch, began, evaluated, now, outcome.report.elements, results)
            for follower in self._followers:
                follower(done)

    def _heartbeats(self, now: int) -> list[str]:
        """What is due by the wall clock, if all that has arrived has been read: files that end, too."""
        if self._settings.speed is not None:
            return []
        return [json.dumps({"heartbeat": time, "stream": number}) for time, number in self._clock.due(now)]

    def _changes_of_files(self) -> list[FileChange]:
        """What has changed in watched files, which are looked at from time to time."""
        if not self._watched.files or monotonic() < self._looked + _LOOK:
            return []
        self._looked = monotonic()
        return list(self._watched.changes())

    def _ending(self) -> list[str]:
        """The commands of the last batch, if not all sources are files: of these the engine knows the end."""
        if self._engine.instance.finished or self._ended:
            return []
        self._ended = True
        until = self._settings.until
        last = [] if until is None else [json.dumps({"heartbeat": until})]
        return [json.dumps({"finish": True}), *last]

    def _note_end(self) -> None:
        """The run ends with its sources; if they were files, no other has anything left to do."""
        engine = self._engine
        if engine.instance.finished and isinstance(engine, DurableInstance) and not engine.manifest.finished:
            engine.manifest.finished = True
            engine.write_manifest()
        self.finished = self._ended or engine.instance.finished

    def _note_stopped(self, outcome: Outcome) -> None:
        """Say once that a query took more than its budget."""
        for name, reason in outcome.report.stopped.items():
            if name not in self._stopped:
                self._stopped[name] = reason
                _LOG.warning("%s", reason)
