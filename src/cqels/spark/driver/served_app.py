"""An application that is served: elements are pushed to it, and streams and queries come and go while it runs.

Spark's query goes on meanwhile, with the sources and instances that it was started with.  What is pushed is one source,
whatever streams there are (`pushed_source.py`).  What comes and goes are commands to the engines, in files of the
checkpoint that are one more source (`dataset_updates.py`).  Spark records which micro-batch each belongs to before that
begins, and engines have it in their logs, so it happens once, behind the elements of its micro-batch, whatever crashes.
A change is made when its micro-batch is delivered; one is made at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, RLock
from typing import TYPE_CHECKING, Any, TypeAlias

from cqels.engine.budgets import Budget
from cqels.ingest import StreamSettings
from cqels.ingest.declarations import check_same
from cqels.model.errors import CqelsError
from cqels.pipeline.source.inbox import LIMIT, Inbox, InboxClosed, WhenFull
from cqels.pipeline.source.live_source import Message
from cqels.plan.algebra import Query
from cqels.spark.driver.pushed_inboxes import PushedInboxes, pushed_folder
from cqels.spark.driver.served_state import AddedQuery, ServedState
from cqels.store.dataset import Store

if TYPE_CHECKING:
    from cqels.spark.driver.app import App
    from cqels.spark.driver.checkpoint import Checkpoint
    from cqels.spark.driver.dataset_updates import Updates
    from cqels.spark.driver.run import Run

_LOOK = 0.2
"""Seconds between looks at whether the run has ended."""

Delivered: TypeAlias = Callable[[int, Sequence[Mapping[str, Any]], Mapping[str, int]], None]
"""Called with a micro-batch that is delivered, the reports of its engines, and how far inboxes of streams were read."""


@dataclass(frozen=True, slots=True)
class PushedTo:
    """A stream that blocks of elements are pushed to, and what is kept of those that wait."""

    settings: StreamSettings
    limit: int | None = LIMIT
    """Bytes of blocks."""
    when_full: WhenFull = "wait"
    """Who pushes more waits, or is refused with `InboxFull`."""

    def __post_init__(self) -> None:
        if self.when_full == "drop":  # Spark may have planned a micro-batch with what would go
            raise CqelsError(
                f"stream <{self.settings.iri}>: on Spark nothing is dropped that waits",
                hint='overflow "block", or "sample"',
            )


class ServedApp:
    """Runs an application: `start`, then changes from any thread, then `stop`."""

    def __init__(self, app: App, ended: Callable[[], CqelsError], delivered: Delivered = lambda *known: None) -> None:
        """`ended` makes the error of what is asked for when there is no run any more."""
        self._app, self._ended, self._delivered = app, ended, delivered
        app.serve()
        self._run: Run | None = None
        self._inboxes: PushedInboxes | None = None
        self._path: Path
        self._state: ServedState
        self._streams: Sequence[PushedTo] = ()
        self._open: dict[str, Inbox] = {}
        self.queries: Mapping[str, Query] = {}
        """Those that run, by their names: one that is being replaced is among them all the time."""
        self._note_queries()
        self._changing = RLock()
        self._waiting: set[int] = set()
        """The numbers of commands that no engine has executed in a micro-batch that is delivered."""
        self._executed = Condition()
        self._last = self._done = -1
        """The largest number that was executed, and that of micro-batches which are not repeated."""

    # ------------------------------------------------------------ beginning and end

    def start(self, run: Callable[[ServedApp], Run], streams: Sequence[PushedTo]) -> None:
        """Go on from the checkpoint, with streams that are pushed to; `run` is `App.run` with its arguments."""
        self._streams = streams
        try:
            self._run = run(self)
            self._pass()
            self._run.start_clock()
            self.declare(streams)
        except BaseException:
            self.stop()
            raise

    def load(self, checkpoint: Checkpoint) -> None:
        """Know the streams that were added; called by the application, before its run is made."""
        self._path = checkpoint.folder / "served.json"
        sources = self._app.sources
        state = ServedState.of(self._path)
        if state is None:
            state = ServedState(len(sources.streams_of_sources), len(sources.streams))
        if state.program_sources != len(sources.streams_of_sources):
            raise CqelsError(
                f"the checkpoint {checkpoint.folder} is of {state.program_sources} declared sources, and there are "
                f"{len(sources.streams_of_sources)}",
                hint="declare those that there were, or begin with a new checkpoint",
            )
        self._state = state
        for settings in state.streams.values():
            self._app.take_stream(settings)
        self._inboxes = PushedInboxes(pushed_folder(checkpoint.folder), checkpoint.is_done)
        for each in self._streams:
            if state.source(each.settings.iri) is not None:
                self._open_inbox(each)  # before anybody reads it

    def resume(self, run: Run) -> None:
        """Go on with the queries that were registered, and write the last commands if that was cut off."""
        self._run = run
        for _, dropped in self._state.dropped:
            run.take_up(dropped.read(), again=True)
        for each in self._state.queries.values():
            run.take_up(self._app.take(each.read(), each.budget), again=True)
        self._note_queries()
        if self._state.last >= 0 and not self._updates.has_commands(self._state.last):
            commands, instance = self._state.commands(self._state.last)
            self._updates.commands(self._state.last, commands, instance)

    @property
    def run(self) -> Run:
        assert self._run is not None, "start() comes first"
        return self._run

    @property
    def has_run(self) -> bool:
        """It has a run, which closes its sinks in the end."""
        return self._run is not None

    @property
    def is_running(self) -> bool:
        """It was started, and has not ended."""
        return self._run is not None and self._run.is_running

    @property
    def _updates(self) -> Updates:
        assert self.run.updates is not None
        return self.run.updates

    def stop(self) -> None:
        """End the run; the next one with the same checkpoint goes on from there."""
        try:
            if self._run is not None:
                self._run.stop()
        finally:
            if self._inboxes is not None:
                self._inboxes.close()
                self._inboxes = None

    # ------------------------------------------------------------ what has been executed

    def note(self, batch: int, read: Collection[int], reports: Sequence[Mapping[str, Any]]) -> None:
        """A micro-batch is delivered, in which engines have read these updates; their reports."""
        furthest: dict[int, int] = {}
        for report in reports:
            for source, offset in report["offsets"].items():
                furthest[int(source)] = max(offset, furthest.get(int(source), 0))
        if self._inboxes is not None:
            self._inboxes.note_read(batch, furthest)
        iris = {number: each.iri for number, each in enumerate(self._state.sources, self._state.program_sources)}
        self._delivered(batch, reports, {iris[source]: offset for source, offset in furthest.items()})
        with self._executed:
            mine = self._waiting.intersection(read)
            self._waiting -= mine
            self._done, self._last = self._last, max((*mine, self._last))
            self._executed.notify_all()

    @property
    def has_read_all(self) -> bool:
        """All that was pushed is in micro-batches that are delivered."""
        return self._inboxes is not None and not self._inboxes.has_more

    def _reserve(self) -> int:
        """A number for commands that are waited for."""
        with self._executed:
            number = self._updates.reserve()
            self._waiting.add(number)
            return number

    def _wait(self, number: int) -> None:
        """Wait until the engines have executed the commands of a number, and what came of it is delivered."""
        with self._executed:
            while number in self._waiting:
                self._check_runs()
                self._executed.wait(_LOOK)

    def _pass(self, command: Mapping[str, Any] | None = None) -> None:
        """Have a command executed that is about time; without one, what was written before."""
        number = self._reserve()
        self._updates.heartbeat(number, json.dumps(command or {"pass": number}))
        self._wait(number)

    def _check_runs(self) -> None:
        if not self.run.is_running:
            raise self._ended()

    # ------------------------------------------------------------ streams

    def declare(self, streams: Sequence[PushedTo]) -> None:
        """Have streams that can be pushed to; those that are there stay what they are."""
        with self._changing:
            known = self._app.sources.known
            for each in streams:
                if (there := known.get(each.settings.iri)) is not None:
                    check_same(there, each.settings)
            missing = [each.settings for each in streams if self._state.source(each.settings.iri) is None]
            if missing:
                self._add(missing)
            for each in streams:
                self._open_inbox(each)

    def _add(self, missing: Sequence[StreamSettings]) -> None:
        declared = [*self._app.sources.streams]
        with self._change() as change:
            for each in missing:
                number = declared.index(each.iri) if each.iri in declared else None
                self._state.add_source(each, number, change)
        for each in missing:
            if each.iri not in declared:
                self._app.take_stream(each)
                self.run.take_up_stream(each)

    def _open_inbox(self, stream: PushedTo) -> None:
        iri = stream.settings.iri
        if iri in self._open:
            return
        number = self._state.source(iri)
        assert number is not None
        assert self._inboxes is not None
        self._open[iri] = self._inboxes.open(number, iri, stream.limit, stream.when_full)

    def inbox(self, iri: str) -> Inbox:
        """Where what is pushed to a stream waits."""
        if iri not in self._open:
            known = ", ".join(f"<{each}>" for each in self._open) or "none"
            raise CqelsError(f"nothing can be pushed to stream <{iri}>", hint=f"the streams that can be: {known}")
        return self._open[iri]

    def push(self, iri: str, messages: Sequence[Message]) -> None:
        """Give blocks of elements to a stream; when this returns they are on the disk."""
        inbox = self.inbox(iri)
        try:
            inbox.append(messages)
        except InboxClosed:
            raise self._ended() from None

    # ------------------------------------------------------------ queries

    def register(self, query: Query, budget: Budget | None = None) -> None:
        """Run one more query, which has a name; it sees what comes from now on."""
        with self._changed_queries() as change:
            self._register(query, budget, change)

    def replace(self, query: Query, budget: Budget | None = None) -> None:
        """Run a query instead of the one that has its name, from one micro-batch to the next."""
        with self._changed_queries() as change:
            self._drop(query.name or "", change)
            self._register(query, budget, change)

    def drop(self, name: str) -> None:
        """Run a query no more; what it has sent stays."""
        with self._changed_queries() as change:
            self._drop(name, change)

    @contextmanager
    def _changed_queries(self) -> Iterator[int]:
        with self._changing:
            with self._app.undoing(), self._change() as change:
                yield change
            self._note_queries()
            self.run.note_queries(gone=[name for name, each in self._state.dropped if each.change == change])

    def _drop(self, name: str, change: int) -> None:
        if name in self.queries and name not in self._state.queries:
            raise CqelsError(f"query {name} was declared with the application", hint="stop it, and run it without")
        self._app.drop(name)
        self._state.drop(name, change)

    def _register(self, query: Query, budget: Budget | None, change: int) -> None:
        public = self._app.take(query, budget)
        name = public.name or ""
        there = self.run.placed | self._state.placed
        instance = self._app.place(name, there, self.run.instances, self.run.loads)
        self.run.take_up(public)
        self._state.register(name, AddedQuery.of(public, budget, change), instance)

    def _note_queries(self) -> None:
        self.queries = {query.name or "": query for query in self._app.queries}

    # ------------------------------------------------------------ data and time

    def update(self, change: str | Callable[[Store], Any]) -> None:
        """Change the static data; when this returns, queries have seen it."""
        with self._changing:
            self._check_runs()
            if self.run.update(change):
                self._pass()

    def heartbeat(self, time: int, stream: str | None = None) -> None:
        """No element before this time will come, on one stream or on all."""
        command: dict[str, Any] = {"heartbeat": time}
        if stream is not None:
            command["stream"] = self._number(stream)
        with self._changing:
            self._check_runs()
            self._pass(command)

    def _number(self, stream: str) -> int:
        known = [*self._app.sources.known]
        if stream not in known:
            raise CqelsError(f"there is no stream <{stream}>", hint=f"the streams are {', '.join(known)}")
        return known.index(stream)

    # ------------------------------------------------------------ a change

    @contextmanager
    def _change(self) -> Iterator[int]:
        """Change the state under a number, have the engines do the same, and wait for that; or leave all as it was."""
        with self._changing:
            self._check_runs()
            before, change = self._state.copy(), self._reserve()
            self._state.forget_dropped(self._done)
            if not self._state.dropped:
                self.run.forget_replaced()
            self._state.last = change
            try:
                yield change
                self._state.keep(self._path)
                self._updates.commands(change, *self._state.commands(change))
            except BaseException:
                self._leave(before, change)
                raise
            self._wait(change)

    def _leave(self, before: ServedState, change: int) -> None:
        """Leave all as it was before a change."""
        self._state = before
        with self._executed:
            self._waiting.discard(change)
        if self._path.exists():  # it may have what is not to be
            before.keep(self._path)
