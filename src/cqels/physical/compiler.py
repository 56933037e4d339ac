"""From a plan to a pipeline: each node becomes operators in the arena, wired by queues.

A part that has none is computed anew by Python at each tick that changes what it reads (`obstacles`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyoxigraph import NamedNode

from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import ALWAYS, EQUALS, NEVER, SEQ, make_queue
from cqels.kernels.containers.hash_table import make_table
from cqels.kernels.operators.gap_skipping import periods_of
from cqels.kernels.operators.outer_semi_anti_join import ANTI_JOIN, LEFT_JOIN, MINUS, SEMI_JOIN
from cqels.kernels.operators.shared_input import COUNTED_AT
from cqels.kernels.operators.window import CLOCK
from cqels.kernels.operators.window import QUEUE as WINDOW_QUEUE
from cqels.kernels.operators.window_prefetch import make_hints
from cqels.lang.expressions import Call, Exists, Expression, Var, junction
from cqels.model.limits import MOST_JOIN_COLUMNS
from cqels.model.terms import FALSE, TRUE
from cqels.physical.expression_compiler import Given
from cqels.physical.incremental_support import (
    exists_in,
    is_partitioned,
    needs_windows,
    obstacle,
    parts_of,
    reads_active,
    spans_matter,
    timely,
)
from cqels.physical.order_by import latest, listing, resending_operator, slice_stage
from cqels.physical.path_closure import path_stage
from cqels.physical.pipeline import RANK, Pipeline, Recomputed, Stage, Table, Trace
from cqels.physical.window_builder import Windows
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query, Source, Triples
from cqels.plan.optimizer.rules import conjuncts
from cqels.plan.optimizer.split_independent import is_looked_up
from cqels.plan.scope import certain, variables


@dataclass
class Compiler(Windows):
    """Compiles one query."""

    recomputed: dict[int, Recomputed] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)
    logs: Mapping[int, int] = field(default_factory=dict)
    """The parts that other pipelines compute, by their numbers, and the queues of their logs."""
    steps: set[int] = field(default_factory=set)
    """The kinds of steps that the scheduler takes for the pipeline, once it is made."""
    _idle: dict[int, int] = field(default_factory=dict)
    """Number of an operator, counted from 0, to how many from it on have nothing to do while it has nothing to read."""
    _hidden: int = 0
    _alone: set[int] = field(default_factory=set)
    """Queues of graphs that triple patterns alone read."""

    # ------------------------------------------------------------ plans

    def stage(self, plan: Plan, active: int | None = None, conditions: Sequence[Expression] = ()) -> Stage:
        """The operators of a plan; `active` is the queue of the window whose graph is the active one.

        Of a join, rows for which one of the `conditions` does not hold may be missing.
        """
        first, opened = len(self.operators), len(self.windows)
        made = self._stage(plan, active, conditions)
        self.trace(plan, made.queue, first, opened)
        return made

    def trace(self, plan: Plan, queue: int, first: int, opened: int) -> None:
        """Note what was made for a part: its queue, and the operators and windows but those that were there before."""
        operators = tuple(offset for _, offset in self.operators[first:])
        windows = tuple(dict.fromkeys(offset for _, offset, _ in self.windows[opened:]))
        select = self.selects.get(len(self.operators))
        counted = select.passed[-1] if select is not None and select.queue == queue else 0
        self.traces.append(Trace(plan, queue, counted, operators, windows))

    def _stage(self, plan: Plan, active: int | None, conditions: Sequence[Expression]) -> Stage:
        if isinstance(plan, algebra.OrderBy):  # nothing looks at the order
            return self.stage(plan.input, active)
        reason = self.obstacle(plan, active)
        if reason is not None:
            return self.recompute(plan, reason)
        match plan:
            case algebra.Unit() | algebra.Values() | algebra.Static():
                return self._static(plan)
            case Triples() if active is None:
                return self._static(algebra.Static(plan, ()))
            case Triples() | algebra.Join():
                first = len(self.operators)
                stage = self.joined(list(self._leaves(plan, active)), conditions=conditions)
                if isinstance(plan, Triples):
                    self._idle[first] = len(self.operators) - first  # patterns of one graph, and their join
                    if active in self._alone:
                        stage = self.starred(plan, active, stage)
                return stage
            case algebra.Stream():
                return self._stream(plan)
            case algebra.Filter(input=inner, condition=condition):
                return self._where(self.stage(inner, active, _plain(condition)), condition, active)
            case algebra.Extend(input=inner, variable=name, expression=expression):
                return self.computed_column(self.stage(inner, active), name, expression, active)
            case algebra.Project(input=inner, variables=names):
                return self.projected(self.stage(inner, active), names)
            case algebra.Distinct(input=inner):
                return self.distinct(self.stage(inner, active))
            case algebra.Narrow():
                return self._narrow(plan, active)
            case algebra.Thresholds(input=inner, comparisons=comparisons, group=group, columns=columns):
                return self.compared(self.stage(inner, active), comparisons, group, columns)
            case algebra.Reused(part=part, columns=names):
                return self.shared_input(self.logs[part], names, frozenset(names) - certain(plan))
            case algebra.Slice():
                return slice_stage(self, plan, active)
            case algebra.Union(inputs=inputs):
                return self.united([self.stage(each, active) for each in inputs])
            case algebra.Group():
                return self._group(plan, active)
            case algebra.LeftJoin():
                return self._left_join(plan, active)
            case algebra.Sequence():
                return self._sequence(plan, active)
            case algebra.PathPattern():
                return self._static(algebra.Static(plan, ())) if active is None else path_stage(self, plan, active)
            case algebra.Minus():
                return self._minus(plan, active)
            case _:
                raise AssertionError(f"no operators for {plan}")

    def _static(self, plan: Plan) -> Stage:
        names = variables(plan)
        return self.table(plan, names, frozenset(names) - certain(plan))

    def obstacle(self, plan: Plan, active: int | None) -> str | None:
        """Why a part that can be computed alone has no operators; None if it has them, or is part of what has."""
        if active is not None and reads_active(plan):
            return None
        return obstacle(plan, windowed=active is not None)

    def recompute(self, plan: Plan, reason: str, *, ranked: bool = False) -> Stage:
        """A part that Python computes: its windows are kept whole, and an operator asks for it.

        `ranked` adds a column with the rank of each solution in the order of the part.
        """
        windows = {}
        for node in algebra.walk_plan(plan):
            if isinstance(node, algebra.Stream):
                for source in self._sources(node):
                    if source not in windows:
                        windows[source] = self.kept(source)
        names = variables(plan)
        nullable = frozenset(names) - certain(plan)
        if ranked:
            names = (*names, RANK)
        stage = Stage(self.queue(len(names)), names, nullable)
        of_time = timely(plan)
        moves = of_time or any(kept.seen_at for kept in windows.values())
        reads = [word for kept in windows.values() for word in (kept.offset, 0, 0)]
        offset = self.words([0, int(moves), 1, NEVER if moves else ALWAYS, len(windows), *reads])
        self.add(scheduler.RECOMPUTE, offset)
        before = self.taken(make_queue(self.arena.base, len(names)))
        self.recomputed[len(self.operators)] = Recomputed(
            plan, reason, offset, stage, before, windows, ranked, self.events, of_time, needs_windows(plan)
        )
        return stage

    # ------------------------------------------------------------ windows

    def _sources(self, plan: algebra.Stream) -> list[Source]:
        """The sources of a block, every stream by its name where a variable ranges over them."""
        return [
            named
            for source in plan.sources
            for named in (
                [Source(NamedNode(iri), source.window) for iri in self.streams]
                if isinstance(source.stream, Var)
                else [source]
            )
        ]

    def _stream(self, plan: algebra.Stream) -> Stage:
        ranging = plan.sources[0].stream
        if not isinstance(ranging, Var):
            return self._windowed(plan, plan.sources)
        branches = []
        for source in self._sources(plan):
            assert isinstance(source.stream, NamedNode)
            name = self._static(algebra.Values((ranging.name,), ((source.stream,),)))
            branches.append(self.joined([self._windowed(plan, (source,)), name]))
        return self.united(branches) if branches else self._static(algebra.Values(variables(plan), ()))

    def _windowed(self, plan: algebra.Stream, sources: tuple[Source, ...]) -> Stage:
        graph = self.graph(sources, plan.graphs)
        inner = plan.input
        while isinstance(inner, algebra.Filter) and not any(exists_in(inner.condition)):
            inner = inner.input
        if isinstance(inner, Triples):
            self._alone.add(graph)
        stage = self.stage(plan.input, graph)
        window = sources[0].window
        if is_partitioned(window):
            stage = latest(self, stage, window)
        return stage if plan.at is None else self.extended(stage, plan.at, Call("GETENDTIME", ()))

    def _narrow(self, plan: algebra.Narrow, active: int | None) -> Stage:
        """Below it the times of elements matter, whether they do above or not."""
        outside, self.fresh, self.by_position = self.fresh, True, plan.counted
        opened = len(self.windows)
        stage = self.stage(plan.input, active)
        self.fresh, self.by_position = outside, False
        clock = self.windows[opened][1] + CLOCK if plan.counted else 0
        return self.narrowed(stage, plan.width, clock)

    # ------------------------------------------------------------ joins

    def _leaves(self, plan: Plan, active: int | None) -> Iterable[Stage]:
        """The inputs of a join, those of joins inside it among them."""
        match plan:
            case algebra.Join(inputs=inputs):
                for each in inputs:
                    yield from self._leaves(each, active)
            case Triples(patterns=patterns) if active is not None:
                for triple in patterns:
                    yield self.matched(triple, active)
            case algebra.Stream(sources=sources, input=inner, at=None) if self._is_flat(plan):
                first, opened = len(self.operators), len(self.windows)
                graph = self.graph(sources, plan.graphs)
                self.trace(plan, graph, first, opened)
                yield from self._leaves(inner, graph)
            case _:
                yield self.stage(plan, active)

    def _is_flat(self, plan: algebra.Stream) -> bool:
        """What is in the block can be joined with what is beside it."""
        (first, *_) = plan.sources
        if isinstance(first.stream, Var) or is_partitioned(first.window):
            return False
        return obstacle(plan, windowed=True) is None

    def _sequence(self, plan: algebra.Sequence, active: int | None) -> Stage:
        outside, self.events = self.events, True
        if active is not None and not outside and reads_active(plan):
            active = self.eventful(active)
        left, right = self.stage(plan.left, active), self.stage(plan.right, active)
        self.events = outside
        timing = SEQ if plan.kind == "seq" else EQUALS
        if plan.optional:
            return self.negation(LEFT_JOIN, left, right, timing=timing)
        return self.joined([left, right], timing)

    def _left_join(self, plan: algebra.LeftJoin, active: int | None) -> Stage:
        left = self.stage(plan.left, active)
        if plan.condition is None and not is_looked_up(plan.right, left.columns, wholly=False):
            return self.negation(LEFT_JOIN, left, self.stage(plan.right, active))
        identified, identity = self._with_identity(left)
        pairs = self._paired(identified, plan.right, active, _plain(plan.condition))
        if plan.condition is not None:
            pairs = self._where(pairs, plan.condition, active)
        alone = self.negation(ANTI_JOIN, identified, self.projected(pairs, identity), exact=True)
        names = tuple(dict.fromkeys((*left.columns, *variables(plan.right))))
        return self.united([self.projected(pairs, names), self.projected(alone, left.columns)])

    def _minus(self, plan: algebra.Minus, active: int | None) -> Stage:
        left = self.stage(plan.left, active)
        bound = frozenset(left.columns) - left.nullable
        if not bound & certain(plan.right) or not self._looked_up(left, plan.right):
            return self.negation(MINUS, left, self.stage(plan.right, active))
        identified, identity = self._with_identity(left)
        pairs = self._paired(identified, plan.right, active)
        alone = self.negation(ANTI_JOIN, identified, self.projected(pairs, identity), exact=True)
        return self.projected(alone, left.columns)

    def _looked_up(self, left: Stage, right: Plan) -> bool:
        """Parts of the right are looked up for the rows of the left, which a join has room for."""
        return is_looked_up(right, left.columns) and len({*left.columns, *variables(right)}) <= MOST_JOIN_COLUMNS

    def _paired(self, left: Stage, right: Plan, active: int | None, conditions: Sequence[Expression] = ()) -> Stage:
        """The rows of the left with those of the right, whose parts are looked up one by one if they share nothing."""
        apart = is_looked_up(right, left.columns, wholly=False)
        parts = list(self._leaves(right, active)) if apart else [self.stage(right, active)]
        return self.joined([left, *parts], conditions=conditions)

    def _with_identity(self, stage: Stage) -> tuple[Stage, list[str]]:
        """The rows with copies of the columns that may be unbound, and the columns that together tell rows apart.

        A join may bind a column that was unbound, but not its copy.
        """
        self._hidden += 1
        identity = {name: f"_:.was{self._hidden} {name}" if name in stage.nullable else name for name in stage.columns}
        if not stage.nullable:
            return stage, list(identity.values())
        copies = [(name, copy) for name, copy in identity.items() if name != copy]
        return self.renamed(stage, [*((name, name) for name in stage.columns), *copies]), list(identity.values())

    # ------------------------------------------------------------ conditions

    def _where(self, source: Stage, condition: Expression, active: int | None) -> Stage:
        parts, plain = conjuncts(condition), _plain(condition)
        if plain:  # one program is quicker than one for each
            source = self.selected(source, junction("AND", plain))
        for part in parts:
            if not exists_in(part):
                continue
            if isinstance(part, Exists):
                identified, matches, exact = self._matches(source, part, active)
                mode = ANTI_JOIN if part.negated else SEMI_JOIN
                kept = self.negation(mode, identified, matches, exact=exact)
            else:
                answered, given = self._answered(source, part, active)
                kept = self.selected(answered, part, given)
            source = self.projected(kept, source.columns)
        return source

    def computed_column(self, source: Stage, name: str, expression: Expression, active: int | None) -> Stage:
        answered, given = self._answered(source, expression, active)
        return self.projected(self.extended(answered, name, expression, given), (*source.columns, name))

    def _answered(self, source: Stage, expression: Expression, active: int | None) -> tuple[Stage, dict[Given, int]]:
        """The rows with a hidden column for each EXISTS in an expression: whether it holds."""
        given: dict[Given, int] = {}
        for node in exists_in(expression):
            if node not in given:
                given[node] = len(source.columns)
                source = self._flagged(source, node, active)
        return source, given

    def _flagged(self, source: Stage, node: Exists, active: int | None) -> Stage:
        identified, matches, exact = self._matches(source, node, active)
        self._hidden += 1
        flag = f"_:.exists{self._hidden}"
        branches = []
        for mode, holds in ((SEMI_JOIN, not node.negated), (ANTI_JOIN, node.negated)):
            kept = self.projected(self.negation(mode, identified, matches, exact=exact), source.columns)
            branches.append(self.tagged(kept, flag, TRUE if holds else FALSE))
        return self.united(branches)

    def _matches(self, left: Stage, node: Exists, active: int | None) -> tuple[Stage, Stage, bool]:
        """Rows to match for an EXISTS: the left ones, the others, and whether they have to be equal."""
        inner, steps = parts_of(node, frozenset(left.columns))
        if not steps and not self._looked_up(left, inner):
            return left, self.stage(inner, active), False
        identified, identity = self._with_identity(left)
        early = _plain(steps[0].condition) if steps and isinstance(steps[0], algebra.Filter) else []
        pairs = self._paired(identified, inner, active, early)
        for step in steps:
            match step:
                case algebra.Filter(condition=condition):
                    pairs = self._where(pairs, condition, active)
                case algebra.Extend(variable=name, expression=expression):
                    pairs = self.computed_column(pairs, name, expression, active)
        return identified, self.projected(pairs, identity), True

    # ------------------------------------------------------------ groups

    def _group(self, plan: algebra.Group, active: int | None) -> Stage:
        from cqels.kernels.operators.aggregate import NEWEST, SPANS
        from cqels.kernels.operators.aggregate_setup import Fold, make_grouping

        source = self.stage(plan.input, active)
        whole = tuple(index for index, name in enumerate(source.columns) if not name.startswith("_:"))
        missing = [key for key in plan.keys if key not in source.columns]
        if missing:
            source = self.projected(source, (*source.columns, *missing))
        folds = []
        for name, node in plan.aggregates:
            column: int | None = None
            if isinstance(node.argument, Var) and node.argument.name in source.columns:
                column = source.columns.index(node.argument.name)
            elif node.argument is not None:
                source = self.computed_column(source, f"_:.of {name}", node.argument, active)
                column = len(source.columns) - 1
            columns = whole if column is None else ()
            always = column is not None and source.columns[column] not in source.nullable
            folds.append(Fold(node.name, column, node.distinct, node.separator, columns, always))
        out = self.queue(len(plan.keys) + len(folds))
        keys = [source.columns.index(key) for key in plan.keys]
        fresh = 0 if not self.fresh else SPANS if self.spans else NEWEST
        offset = make_grouping(self.calls.dictionary, self.terms, (source.queue, out), keys, folds, fresh=fresh)
        self.add(scheduler.GROUP, offset)
        names = (*plan.keys, *(name for name, _ in plan.aggregates))
        given = {name for name, node in plan.aggregates if node.name == "COUNT"}
        given |= {key for key in plan.keys if key in source.columns and key not in source.nullable}
        if plan.keys:  # a group that has a key has a row
            bound = {Var(name) for name in source.columns if name not in source.nullable}
            given |= {name for name, node in plan.aggregates if node.name == "SAMPLE" and node.argument in bound}
        return Stage(out, names, frozenset(names) - given)

    # ------------------------------------------------------------ the whole

    def pipeline(self, query: Query, plan: Plan, *, whole: bool, flags: int, logged: bool = False) -> Pipeline:
        """The pipeline of a plan; `whole` lets it send all solutions in their order, not their changes.

        One that is `logged` is the shared input of others: it sends nothing.
        """
        self.computed = frozenset(node.variable for node in algebra.walk_plan(plan) if isinstance(node, algebra.Extend))
        self.spans = self.fresh and spans_matter(plan)
        order, solutions = 0, 0
        if whole:
            order, columns = listing(self, plan)
        else:
            sliced = isinstance(plan, algebra.Slice)
            stage = slice_stage(self, plan, None, outermost=True) if sliced else self.stage(plan)
            solutions, columns = stage.queue, stage.columns
        if not self.keep_all:
            self.keep_matching()
        self.remember_dear()
        results = self.taken(make_queue(self.arena.base, len(columns) + logged))
        words = self._lists()
        words[scheduler.SOLUTIONS], words[scheduler.RESULTS] = solutions, results
        words[scheduler.EMIT] = scheduler.WHOLE if whole else scheduler.LOGGED if logged else scheduler.CHANGES
        words[scheduler.ORDERED_AT] = order
        words[scheduler.SUM] = self.taken(make_table(self.arena.base, len(columns), 1))
        words[scheduler.AT], words[scheduler.FLAGS] = -1, flags
        words[scheduler.LAST] = words[scheduler.BOUNDARY] = NEVER
        words[scheduler.HINTS_AT] = self._hints()
        words[scheduler.PENDING] = 1  # the first tick counts as a change
        words[scheduler.SOURCE] = source = resending_operator(self)
        offset = self.words(words)
        for shared in self.shared_inputs:
            self.arena.words[shared + COUNTED_AT] = offset + scheduler.TICKS
        groups = {number: at for number, (kind, at) in enumerate(self.operators, 1) if kind == scheduler.GROUP}
        self.steps = {kind for kind, _ in self.operators} | ({scheduler.LISTING} if whole else set())
        if source:
            joined = self.operators[source - 1][0] == scheduler.JOIN
            self.steps.add(scheduler.TELL_JOINED if joined else scheduler.TELL_GROUPS)
        return Pipeline(
            offset,
            query,
            columns,
            self.tables,
            self.selects,
            self.thresholds,
            groups,
            self.recomputed,
            self.computed,
            self.fresh,
            self.traces,
            self.joins,
            self.matches,
            tuple(self.streams),
            self._terms,
            self.shared_inputs,
            not logged,
        )

    def _lists(self) -> list[int]:
        """The words of a pipeline, with its operators, windows, boundaries and queues."""
        words: list[int] = [0] * scheduler.PIPELINE_WORDS
        operators = [(*each, self._idle.get(number, 1)) for number, each in enumerate(self.operators)]
        words[scheduler.OPERATORS], words[scheduler.OPERATORS_AT] = len(operators), self._pairs(operators)
        words[scheduler.WINDOWS], words[scheduler.WINDOWS_AT] = len(self.windows), self._pairs(self.windows)
        words[scheduler.SLIDES] = len(self.slides)
        words[scheduler.SLIDES_AT] = self._pairs([(slide, NEVER) for slide in self.slides])
        periods = periods_of(self.slides)
        words[scheduler.PERIODS], words[scheduler.PERIODS_AT] = len(periods), self._pairs(periods)
        words[scheduler.QUEUES], words[scheduler.QUEUES_AT] = len(self.queues), self.words(self.queues)
        return words

    def _hints(self) -> int:
        """For each window, what its triples are prefetched for."""
        patterns: dict[int, list[int]] = {}
        for kind, at in self.operators:
            if kind == scheduler.MATCH:
                patterns.setdefault(int(self.arena.words[at]), []).append(at)
        joins = [at for kind, at in self.operators if kind == scheduler.JOIN]
        hints = [
            make_hints(self.arena, each, patterns.get(int(self.arena.words[each + WINDOW_QUEUE]), ()), joins)
            for _, each, _ in self.windows
        ]
        return self.words(hints)

    def _pairs(self, groups: Sequence[tuple[int, ...]]) -> int:
        return self.words([word for group in groups for word in group])


def _plain(condition: Expression | None) -> list[Expression]:
    """The parts of a condition that look at one row alone."""
    return [] if condition is None else [part for part in conjuncts(condition) if not any(exists_in(part))]


__all__ = ["Compiler", "Pipeline", "Stage", "Table"]
