"""Registration: queries are validated, planned, compiled, shared and dropped here; running them is the runtime's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from weakref import proxy

from pyoxigraph import NamedNode

from cqels.engine.budget_enforcement import within
from cqels.engine.budgets import Budget, Guard, Stop
from cqels.engine.engine_state import EngineState
from cqels.engine.output.policy_cqels1 import PublishedAnswers, without_slide
from cqels.engine.output.result_emission import Answers
from cqels.engine.running_query import Running
from cqels.engine.sharing.shared_joins import Fit, SharedJoins
from cqels.engine.sharing.shared_pipelines import Share
from cqels.engine.static_tables import Tables
from cqels.kernels import scheduler
from cqels.model.errors import QueryError
from cqels.physical.compiler import Compiler
from cqels.physical.incremental_support import times_matter
from cqels.physical.order_by import orders_matter
from cqels.plan.algebra import Query, Service, sources_of, transform_plan, walk_plan
from cqels.plan.optimizer.rules import rewrite
from cqels.plan.scope import variables
from cqels.plan.sharing.query_templates import constants_of, general
from cqels.store.dependencies import graphs_of


class Registry:
    """The streams and queries of an engine, and the pipelines that these have, alone or together."""

    def __init__(self, state: EngineState, steps: scheduler.Steps, *, share: bool = True) -> None:
        self.state = state
        self._steps = steps
        self._share = share
        """Queries share what they can."""
        self._tables = Tables(state.arena, state.store, state.terms)
        self.shares: list[Share] = []
        self.shared_joins = SharedJoins(proxy(self))  # which does not keep it: a store is let go with its engine
        self._open: dict[str, Running | Share] = {}
        """Queries and pipelines that a new query may still share with, by query template."""
        self._waiting: list[Running] = []
        """Queries registered since the last event, which may share with others that will be."""
        self._uncompiled: deque[tuple[list[Running], Callable[[], None]]] = deque()
        """What is to be compiled before the next event, and the queries that it is for."""

    # ------------------------------------------------------------ streams and queries

    def add_stream(self, iri: str) -> int:
        """The number of a stream, which is new or there."""
        streams, dropped = self.state.streams, self.state.dropped_streams
        if iri not in streams:
            streams[iri] = dropped.pop(iri, len(streams) + len(dropped))
        return streams[iri]

    def register(self, query: Query, name: str, budget: Budget | None = None) -> Running:
        """Add a query. It sees the elements that arrive from now on. One with a budget has a pipeline of its own."""
        state = self.state
        output = name if query.form == "construct" and ":" in name else None
        self._check_streams(query, output)
        for node in walk_plan(query.plan):
            if isinstance(node, Service):
                state.store.services.table(node)  # what is not there is said now, and not at the next event
        for each in state.producers.values():
            each.make()  # what has been derived so far is not for this query
        if self._share and output is None and budget is None:
            running = self._shared(query, name) or self.planned(query, name, dict(state.streams))
            self._waiting.append(running)
        else:
            running = self.planned(query, name, dict(state.streams))
            running.guard = None if budget is None else Guard(budget)
            self.compile(running)
            self.begin(running)
        if output is not None:
            running.output = self.add_stream(output)
            state.producers[output] = running
        running.began = state.number
        state.running.append(running)
        return running

    def drop(self, running: Running) -> None:
        """Remove a query, and give its memory back."""
        state = self.state
        state.running.remove(running)
        state.stops.pop(running.name, None)
        if running.output is not None:
            del state.producers[running.name]
            state.dropped_streams[running.name] = state.streams.pop(running.name)
        self._waiting = [each for each in self._waiting if each is not running]
        share = running.member
        if share is not None:
            share.leave(running)
            if share.classes:
                return
            self.shares.remove(share)
            if share.made is not None:
                state.free_pipeline(share.running)
        else:
            state.free_pipeline(running)
        self.shared_joins.let_go()
        self._open = {key: each for key, each in self._open.items() if each not in (running, share)}

    @property
    def pipelines(self) -> list[Running]:
        """What there is to run: those that feed others come before these."""
        return [*self.shared_joins.feeders.values(), *(each for each in self.units if each.compiled is not None)]

    @property
    def units(self) -> list[Running]:
        """What has a pipeline, or will have one, and sends something."""
        made = (each.made.running for each in self.shares if each.made is not None)
        own = (each for each in self.state.running if each.member is None)
        return [each for each in (*own, *made) if each.stopped is None]

    # ------------------------------------------------------------ validation

    def _check_streams(self, query: Query, output: str | None) -> None:
        streams, dropped = self.state.streams, self.state.dropped_streams
        for source in sources_of(query):
            if not isinstance(source.stream, NamedNode):
                continue
            if source.stream.value == output:
                raise QueryError("the query reads the stream that it makes", span=source.span)
            if source.stream.value not in streams:
                known = ", ".join(f"<{iri}>" for iri in streams)
                raise QueryError(
                    f"stream {source.stream} is not registered",
                    span=source.span,
                    hint=f"the streams are {known}" if known else "no stream is registered",
                )
        if output is not None and output in streams:
            raise QueryError(f"there is a stream <{output}> already", hint="register the query under another name")
        if output in dropped and self._reaches(dropped[output], query):
            raise QueryError("the query would feed itself: what it makes is read by a query that it reads")

    def _reaches(self, stream: int, query: Query) -> bool:
        """What arrives on a stream reaches a query, directly or through others."""
        if any(_reads(query, iri) for iri, number in self.state.streams.items() if number == stream):
            return True
        produced = [each.output for each in self.state.running if stream in each.streams and each.output is not None]
        return any(self._reaches(each, query) for each in produced)

    # ------------------------------------------------------------ plans and pipelines

    def planned(self, query: Query, name: str, streams: dict[str, int]) -> Running:
        """A query that can be compiled, as one that was registered when there were these streams."""
        published = query.policy == "cqels-1"
        if published:
            query = replace(query, plan=transform_plan(query.plan, without_slide))
        plan = rewrite(query).plan
        return Running(
            query,
            name,
            (PublishedAnswers if published else Answers)(query, name, variables(plan)),
            self.state.terms,
            plan,
            streams,
            frozenset(number for iri, number in streams.items() if _reads(query, iri)),
            graphs_of(query.plan, default_graphs=query.default_graphs, named_graphs=query.named_graphs),
            times_matter(plan) or orders_matter(plan, whole=_is_whole(query)),
        )

    def compile(self, running: Running, fit: Fit | None = None) -> None:
        """Give a query a pipeline in a heap of its own; `fit` among others."""
        query, arena, calls = running.query, self.state.arena, self.state.calls
        if fit is not None:
            running.plan, running.fresh = fit.plan, fit.fresh
        calls.asked = []
        compiler = Compiler(arena, calls, running.known, running.fresh, query.emit == "rstream", running.name)
        flags, logged = _flags(query), False
        if fit is not None:
            compiler.logs, compiler.slides = fit.logs, list(fit.slides)
            flags, logged = flags | scheduler.EVERY_ELEMENT, fit.logged
        heap = arena.make_heap()
        try:
            with arena.heap(heap):
                pipeline = compiler.pipeline(query, running.plan, whole=_is_whole(query), flags=flags, logged=logged)
        except BaseException:
            calls.release(calls.asked)
            arena.dissolve(heap)
            raise
        pipeline.heap = heap
        for kind in sorted(compiler.steps):
            self._steps.need(kind)
        running.pipeline, running.functions = pipeline, calls.asked
        running.answers.columns = pipeline.columns

    def recompile(self, running: Running, streams: dict[str, int], *, compile: bool = True) -> None:
        """Give a query a new plan and a pipeline of its own, or none if it is not to run."""
        self._replan(running, streams)
        if compile:
            self.compile(running)

    def _replan(self, running: Running, streams: dict[str, int]) -> None:
        """Let a query have a plan of its own, for these streams."""
        again = self.planned(running.query, running.name, streams)
        running.plan, running.known, running.fresh = again.plan, again.known, again.fresh
        running.member, running.uses, running.compiled = None, (), None

    def make(self, unit: Running, fit: Fit | None = None) -> None:
        """Compile what waits, and let it begin."""
        self.compile(unit, fit)
        if unit.share is not None:
            unit.share.fit()
            unit.share.add_classes()
        self.begin(unit)

    def begin(self, running: Running) -> None:
        """Let a new pipeline know what time it is, and what the dataset says."""
        if self.state.last is not None:
            self.state.arena.words[running.pipeline.offset + scheduler.LAST] = self.state.last
        self.refresh_tables(running)

    # ------------------------------------------------------------ queries that share a pipeline

    def _shared(self, query: Query, name: str) -> Running | None:
        """A query that will have a pipeline with others, or that others may have one with later; None for neither."""
        constants = constants_of(query)
        derived = {NamedNode(each) for each in self.state.producers}
        if constants is None or any(source.stream in derived for source in sources_of(query)):
            return None
        key = repr(replace(general(query, range(len(constants))).query, name=None))
        there = self._open.get(key)
        if there is None:
            running = self.planned(query, name, dict(self.state.streams))
            if not running.is_recomputed:
                self._open[key] = running
            return running
        if isinstance(there, Running):
            there = self._open[key] = self._opened(there)
        running = next(there.members).alike(query, name)
        there.add(running, constants)
        return running

    def _opened(self, running: Running) -> Share:
        """Let others have a part in what a query would have alone."""
        constants = constants_of(running.query)
        assert constants is not None
        share = Share(self)
        share.add(running, constants)
        self.shares.append(share)
        return share

    def settle(self) -> None:
        """Freeze the set of queries that share pipelines, and compile: before the first event after a registration.

        A query that is registered later has seen less, and shares nothing with those that are there now.  What cannot
        be compiled is stopped, and the others go on; what is interrupted is resumed the next time.
        """
        if self._waiting:
            tasks = self.shared_joins.settle(self._settled())
            self.close_shares()
            self._uncompiled.extend(tasks)
        while self._uncompiled:
            queries, compile = self._uncompiled[0]
            try:
                compile()
            except Exception as error:
                for running in queries:
                    self._stop_uncompiled(running, error)
            self._uncompiled.popleft()

    def _settled(self) -> list[Running]:
        """What is to have a pipeline of all that waits: a query, or several that share one."""
        for share in [each for each in self._open.values() if isinstance(each, Share)]:
            members = [*share.members]
            if len(members) > 1:
                share.plan()
            if len(members) < 2 or share.running.is_recomputed:
                self.shares = [each for each in self.shares if each is not share]
                for running in members:
                    self._replan(running, running.known)
        return [*dict.fromkeys(each if each.member is None else each.member.running for each in self._waiting)]

    def _stop_uncompiled(self, running: Running, error: Exception) -> None:
        """End queries that could not be compiled; registration has refused all that can be known without trying."""
        reason = " ".join(str(error).split()) or type(error).__name__
        self.state.free_pipeline(running)
        for each in self._separated(running):
            each.stopped = Stop(f"query {each.name} was stopped: it cannot run: {reason}", 0)
            if self.state.judging:
                self.state.ended.append(each)

    def _separated(self, unit: Running) -> list[Running]:
        """The queries that were to share a pipeline, which have none now."""
        share = unit.share
        if share is None:
            return [unit]
        self.shares = [each for each in self.shares if each is not share]
        members = [*share.members]
        for member in members:
            member.member, member.compiled = None, None
        return members

    def close_shares(self) -> None:
        """Let nobody have a part in what is there, and nothing wait to be compiled."""
        self._open.clear()
        self._waiting.clear()
        self._uncompiled.clear()

    # ------------------------------------------------------------ static tables

    def refresh(self) -> None:
        """Bring all tables up to date with a dataset that may have changed unseen."""
        for running in self.pipelines:
            if self.refresh_tables(running):
                self.tables_changed(running)

    def refresh_tables(self, running: Running) -> bool:
        """Bring the tables of a query up to date: has one changed?"""
        moved: list[bool] = []
        with within(self.state, running):
            moved += [self._tables.refresh(running, table) for table in running.pipeline.tables]
        return any(moved)

    def tables_changed(self, running: Running) -> None:
        """Let a query have a tick at its next event."""
        if running.pipeline.recomputed:
            self.state.recomputation.changed(running.pipeline)
        self.state.arena.words[running.pipeline.offset + scheduler.PENDING] = 1


def _flags(query: Query) -> int:
    """When a pipeline has ticks and sends something, as the scheduler takes it."""
    always = scheduler.ALWAYS_SENT if query.emit == "rstream" else 0
    if always and query.form != "ask":
        always = scheduler.silent_when_empty(always)
    closing = scheduler.CLOSING if query.policy == "window-close" else 0
    apart = scheduler.EXPIRY_APART if query.policy == "cqels-1" else 0
    return closing | always | apart


def _reads(query: Query, iri: str) -> bool:
    return any(not isinstance(source.stream, NamedNode) or source.stream.value == iri for source in sources_of(query))


def _is_whole(query: Query) -> bool:
    """It sends all solutions, not their changes."""
    return query.emit == "rstream" or (query.emit == "snapshot" and query.form != "ask")
