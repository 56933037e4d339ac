"""From a plan to a pipeline: each node becomes operators in the arena, wired by queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pyoxigraph import NamedNode

from cqels.flow.calls import Calls
from cqels.flow.errors import NotIncremental
from cqels.flow.expressions import compile_expression
from cqels.flow.ordering import is_partitioned, latest, listing, slice_stage
from cqels.kernels import machine, window
from cqels.kernels.buffers import make_bag
from cqels.kernels.distinct import make_distinct
from cqels.kernels.join import MOST_INPUTS, Input, make_join
from cqels.kernels.memory import Arena
from cqels.kernels.negation import ANTI_JOIN, LEFT_JOIN, MINUS, SEMI_JOIN, make_negation
from cqels.kernels.rows import ALWAYS, COLUMNS, NEVER, add_row, make_queue
from cqels.kernels.select import make_select
from cqels.kernels.table import make_table
from cqels.kernels.union import make_project, make_union
from cqels.lang.expressions import Exists, Expression, Var, calls, walk
from cqels.lang.syntax import All, Count, Now, Range, Window
from cqels.model.terms import CQ, Term
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query, Source
from cqels.plan.rules import conjuncts
from cqels.plan.scope import certain, reads, variables


@dataclass(frozen=True, slots=True)
class Stage:
    """What an operator gives: a queue of rows, the variables of its columns, and which of them may be unbound."""

    queue: int
    columns: tuple[str, ...]
    nullable: frozenset[str] = frozenset()


@dataclass(slots=True)
class Table:
    """A static part: where its rows go, and the rows that are there now."""

    plan: Plan
    stage: Stage
    rows: list[tuple[Term | None, ...]] = field(default_factory=list)


@dataclass(slots=True)
class Pipeline:
    """A query in the arena: the place of its program, what Python has to know of it, and the parts that are tables."""

    place: int
    query: Query
    columns: tuple[str, ...]
    tables: list[Table]
    programs: dict[int, int]
    """Number of an operator (counted from 1) to the place of its expression's program."""
    groups: dict[int, int]
    """Number of a GROUP BY operator to its place."""
    orders: dict[int, int]
    """Number of an ORDER BY operator to the place where the order of terms is known."""


@dataclass
class Compiler:
    """Compiles one query."""

    arena: Arena
    calls: Calls
    streams: dict[str, int]
    fresh: bool
    keep_all: bool
    seed: str
    operators: list[tuple[int, int]] = field(default_factory=list)
    programs: dict[int, int] = field(default_factory=dict)
    queues: list[int] = field(default_factory=list)
    windows: list[tuple[int, int, int]] = field(default_factory=list)
    slides: list[int] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    patterns: dict[int, list[int]] = field(default_factory=dict)
    computed: frozenset[str] = frozenset()
    _terms: int = 0

    # ------------------------------------------------------------ plans

    def stage(self, plan: Plan, active: int | None = None) -> Stage:
        """The operators of a plan; `active` is the queue of the window whose graph is the active one."""
        match plan:
            case algebra.Unit() | algebra.Values() | algebra.Static():
                return self._table(plan)
            case algebra.Triples() | algebra.Join():
                return self._join(plan, active)
            case algebra.Stream():
                return self._stream(plan)
            case algebra.Filter(input=inner, condition=condition):
                return self._filter(inner, condition, active)
            case algebra.Extend(input=inner, variable=name, expression=expression):
                return self.extended(self.stage(inner, active), name, expression)
            case algebra.Project(input=inner, variables=names):
                return self.projected(self.stage(inner, active), names)
            case algebra.Distinct(input=inner):
                return self.distinct(self.stage(inner, active))
            case algebra.OrderBy(input=inner):
                return self.stage(inner, active)  # nothing looks at the order
            case algebra.Slice():
                return slice_stage(self, plan, active)
            case algebra.Union(inputs=inputs):
                return self._union([self.stage(each, active) for each in inputs])
            case algebra.Group():
                return self._group(plan, active)
            case algebra.LeftJoin():
                return self._left_join(plan, active)
            case algebra.Minus(left=left, right=right):
                return self.negation(MINUS, self.stage(left, active), self.stage(right, active))
            case _:
                raise NotIncremental(f"{type(plan).__name__} has no incremental operator yet")

    def _table(self, plan: Plan) -> Stage:
        names = variables(plan)
        stage = Stage(self.queue(len(names)), names, frozenset(names) - certain(plan))
        self.tables.append(Table(plan, stage))
        return stage

    # ------------------------------------------------------------ windows

    def _stream(self, plan: algebra.Stream) -> Stage:
        if plan.at is not None or plan.graphs or len(plan.sources) > 1:
            raise NotIncremental("AT and merged windows have no incremental operator yet")
        (source,) = plan.sources
        if not isinstance(source.stream, Var):
            return self._windowed(source, plan.input)
        branches = []
        for iri in self.streams:
            branch = self._windowed(Source(NamedNode(iri), source.window), plan.input)
            named = self._constant(source.stream.name, NamedNode(iri))
            branches.append(self._joined([branch, named]))
        return self._union(branches)

    def _constant(self, name: str, term: Term) -> Stage:
        return self._table(algebra.Values((name,), ((term,),)))

    def _windowed(self, source: Source, inner: Plan) -> Stage:
        if is_partitioned(source.window):
            return latest(self, self._windowed(replace(source, window=All()), inner), source.window)
        queue = self._window(source)
        return self.stage(inner, queue)

    def _window(self, source: Source) -> int:
        kind, width, slide = _shape(source.window)
        queue = self.queue(3)
        flags = window.FRESH if self.fresh else 0
        place = self._taken(window.make_window(self.arena.base, kind, width, flags, queue))
        number = -1
        if slide is not None:
            if slide not in self.slides:
                self.slides.append(slide)
            number = self.slides.index(slide)
        assert isinstance(source.stream, NamedNode | None)
        for iri, stream in self.streams.items():
            if source.stream is None or source.stream.value == iri:
                self.windows.append((stream, place, number))
        self.patterns[queue] = []
        return queue

    def _match(self, triple: algebra.Triple, queue: int) -> Stage:
        nodes = (triple.subject, triple.predicate, triple.object)
        names = tuple(dict.fromkeys(node.name for node in nodes if isinstance(node, Var)))
        words: list[int] = []
        for position, node in enumerate(nodes):
            if isinstance(node, Var):
                first = next(place for place, other in enumerate(nodes) if other == node)
                words += [0, first, names.index(node.name) if first == position else -1]
            else:
                words += [self.calls.word_of(node), position, -1]
        pattern = self._words(words)
        self.patterns[queue].append(pattern)
        out = self.queue(len(names))
        self.add(machine.MATCH, self._words([queue, pattern, out]))
        return Stage(out, names)

    # ------------------------------------------------------------ joins

    def _join(self, plan: Plan, active: int | None) -> Stage:
        return self._joined(list(self._leaves(plan, active)))

    def _leaves(self, plan: Plan, active: int | None) -> Iterable[Stage]:
        """The inputs of a join, those of joins inside it among them."""
        match plan:
            case algebra.Join(inputs=inputs):
                for each in inputs:
                    yield from self._leaves(each, active)
            case algebra.Triples(patterns=patterns):
                if active is None:
                    raise AssertionError("triples of the dataset are part of a table")
                for triple in patterns:
                    yield self._match(triple, active)
            case algebra.Stream(sources=(Source(stream=NamedNode()) as source,), input=inner, at=None, graphs=()) if (
                not is_partitioned(source.window)
            ):
                yield from self._leaves(inner, self._window(source))
            case _:
                yield self.stage(plan, active)

    def _joined(self, inputs: list[Stage]) -> Stage:
        if len(inputs) == 1:
            return inputs[0]
        if len(inputs) > MOST_INPUTS:
            head = self._joined(inputs[: MOST_INPUTS - 1])
            return self._joined([head, *inputs[MOST_INPUTS - 1 :]])
        names = tuple(dict.fromkeys(name for each in inputs for name in each.columns))
        out = self.queue(len(names))
        made = [
            Input(
                make_bag(self.arena, len(each.columns)),
                tuple(names.index(name) for name in each.columns),
                each.queue,
                frozenset(place for place, name in enumerate(each.columns) if name in each.nullable),
            )
            for each in inputs
        ]
        self.add(machine.JOIN, make_join(self.arena, out, made))
        bound = {name for each in inputs for name in each.columns if name not in each.nullable}
        return Stage(out, names, frozenset(names) - bound)

    def _left_join(self, plan: algebra.LeftJoin, active: int | None) -> Stage:
        left, right = self.stage(plan.left, active), self.stage(plan.right, active)
        if plan.condition is None:
            return self.negation(LEFT_JOIN, left, right)
        pairs = self._conditioned(left, right, plan.condition)
        alone = self.negation(ANTI_JOIN, left, self.projected(pairs, left.columns))
        return self._union([pairs, alone])

    def _conditioned(self, left: Stage, right: Stage, condition: Expression) -> Stage:
        """The pairs of a join for which a condition holds."""
        if left.nullable:
            raise NotIncremental("a condition beside a side that may be unbound has no incremental operator yet")
        return self._selected(self._joined([left, right]), condition)

    def negation(self, mode: int, left: Stage, right: Stage) -> Stage:
        added = tuple(name for name in right.columns if name not in left.columns)
        names = left.columns + added
        out = self.queue(len(names) if mode == LEFT_JOIN else len(left.columns))
        place = make_negation(
            self.arena,
            mode,
            out,
            left.queue,
            right.queue,
            [names.index(name) for name in right.columns],
            left_nullable=[place for place, name in enumerate(left.columns) if name in left.nullable],
            right_nullable=[place for place, name in enumerate(right.columns) if name in right.nullable],
        )
        self.add(machine.NEGATION, place)
        if mode == LEFT_JOIN:
            return Stage(out, names, left.nullable | frozenset(added))
        return replace(left, queue=out)

    # ------------------------------------------------------------ rows

    def _filter(self, inner: Plan, condition: Expression, active: int | None) -> Stage:
        source = self.stage(inner, active)
        for part in conjuncts(condition):
            source = self._exists(source, part, active) if isinstance(part, Exists) else self._selected(source, part)
        return source

    def _exists(self, left: Stage, node: Exists, active: int | None) -> Stage:
        inner, conditions = node.pattern, []
        while isinstance(inner, algebra.Filter):
            conditions += conjuncts(inner.condition)
            inner = inner.input
        own = [part for part in conditions if reads(part) <= set(variables(inner))]
        other = [part for part in conditions if part not in own]
        limited = [each for each in algebra.walk_plan(inner) if isinstance(each, algebra.Slice)]
        if any(set(variables(each)) & set(left.columns) for each in limited):
            raise NotIncremental("a LIMIT in an EXISTS, of what is given from outside, has no incremental operator yet")
        if _looks_outside(inner) or any(isinstance(part, Exists) for part in conditions):
            raise NotIncremental("an EXISTS that looks outside from deep inside has no incremental operator yet")
        right = self.stage(inner, active)
        for part in own:
            right = self._selected(right, part)
        if other:
            if left.nullable:
                raise NotIncremental("a condition beside a side that may be unbound has no incremental operator yet")
            right = self._joined([left, right])
            for part in other:
                right = self._selected(right, part)
            right = self.projected(right, left.columns)
        return self.negation(ANTI_JOIN if node.negated else SEMI_JOIN, left, right)

    def _selected(self, source: Stage, condition: Expression) -> Stage:
        out = self.queue(len(source.columns))
        self._select(machine.FILTER, source, out, condition, 0)
        return replace(source, queue=out)

    def extended(self, source: Stage, name: str, expression: Expression) -> Stage:
        out = self.queue(len(source.columns) + 1)
        self._select(machine.EXTEND, source, out, expression, len(source.columns))
        return Stage(out, (*source.columns, name), source.nullable | {name})

    def _select(self, kind: int, source: Stage, out: int, expression: Expression, column: int) -> None:
        if any(isinstance(node, Exists) for node in walk(expression)) or "TIMESTAMP" in calls(expression):
            raise NotIncremental("EXISTS inside an expression has no incremental operator yet")
        if calls(expression) & {"NOW", CQ + "now"}:
            raise NotIncremental("an expression of the tick's time has no incremental operator yet")
        columns = {name: place for place, name in enumerate(source.columns)}
        identity = [name for name in source.columns if name not in self.computed and not name.startswith("_:")]
        program = compile_expression(expression, columns, self.calls, seed=self.seed, identity=identity)
        place = make_select(self.arena.base, source.queue, out, program, self.calls.dictionary.place, column)
        self.add(kind, self._taken(place))
        self.programs[len(self.operators)] = program

    def distinct(self, source: Stage) -> Stage:
        out = self.queue(len(source.columns))
        self.add(machine.DISTINCT, make_distinct(self.arena, out, source.queue, freshness=self.fresh))
        return replace(source, queue=out)

    def projected(self, source: Stage, names: Sequence[str]) -> Stage:
        out = self.queue(len(names))
        places = [source.columns.index(name) if name in source.columns else -1 for name in names]
        self.add(machine.UNION, make_project(self.arena, out, source.queue, places))
        missing = {name for name in names if name not in source.columns}
        return Stage(out, tuple(names), (source.nullable | missing) & frozenset(names))

    def _group(self, plan: algebra.Group, active: int | None) -> Stage:
        from cqels.kernels.folds import Fold, make_grouping

        source = self.stage(plan.input, active)
        whole = tuple(place for place, name in enumerate(source.columns) if not name.startswith("_:"))
        missing = [key for key in plan.keys if key not in source.columns]
        if missing:
            source = self.projected(source, (*source.columns, *missing))
        folds = []
        for name, node in plan.aggregates:
            column: int | None = None
            if isinstance(node.argument, Var) and node.argument.name in source.columns:
                column = source.columns.index(node.argument.name)
            elif node.argument is not None:
                source = self.extended(source, f"_:.of {name}", node.argument)
                column = len(source.columns) - 1
            folds.append(Fold(node.name, column, node.distinct, node.separator, whole if column is None else ()))
        out = self.queue(len(plan.keys) + len(folds))
        keys = [source.columns.index(key) for key in plan.keys]
        place = make_grouping(self.calls.dictionary, self.terms, (source.queue, out), keys, folds, fresh=self.fresh)
        self.add(machine.GROUP, place)
        names = (*plan.keys, *(name for name, _ in plan.aggregates))
        always = {name for name, node in plan.aggregates if node.name == "COUNT"}
        always |= {key for key in plan.keys if key in source.columns and key not in source.nullable}
        return Stage(out, names, frozenset(names) - always)

    @property
    def terms(self) -> int:
        """The place where the order of terms is known."""
        if self._terms == 0:
            from cqels.kernels.lore import make_terms

            self._terms = make_terms(self.arena, self.calls.dictionary.place)
        return self._terms

    def _union(self, branches: list[Stage]) -> Stage:
        names = tuple(dict.fromkeys(name for each in branches for name in each.columns))
        out = self.queue(len(names))
        made = [(each.queue, [names.index(name) for name in each.columns]) for each in branches]
        self.add(machine.UNION, make_union(self.arena, out, made))
        certain_names = frozenset.intersection(*(frozenset(each.columns) - each.nullable for each in branches))
        return Stage(out, names, frozenset(names) - certain_names)

    # ------------------------------------------------------------ memory

    def queue(self, columns: int) -> int:
        queue = self._taken(make_queue(self.arena.base, columns))
        self.queues.append(queue)
        return queue

    def add(self, kind: int, place: int) -> None:
        self.operators.append((kind, place))

    def _words(self, words: Sequence[int]) -> int:
        place = self.arena.take(max(len(words), 1))
        self.arena.words[place : place + len(words)] = words
        return place

    def _taken(self, place: int) -> int:
        if place == 0:
            raise MemoryError("the arena is full")
        return int(place)

    def _keep_matching(self) -> None:
        """Tell each window which patterns read it: a triple that none of them matches is not kept."""
        for _, place, _ in self.windows:
            patterns = self.patterns[int(self.arena.words[place + window.QUEUE])]
            words = np.concatenate([self.arena.array(each, window.PATTERN_WORDS) for each in patterns])
            self.arena.words[place + window.PATTERNS] = self._words([int(word) for word in words])
            self.arena.words[place + window.PATTERN_COUNT] = len(patterns)

    def pipeline(self, query: Query, plan: Plan, *, whole: bool, flags: int) -> Pipeline:
        self.computed = frozenset(node.variable for node in algebra.walk_plan(plan) if isinstance(node, algebra.Extend))
        solutions, order = 0, 0
        if whole:
            order, columns = listing(self, plan)
        else:
            sliced = isinstance(plan, algebra.Slice)
            stage = slice_stage(self, plan, None, outermost=True) if sliced else self.stage(plan)
            solutions, columns = stage.queue, stage.columns
        if not self.keep_all:
            self._keep_matching()
        results = self._taken(make_queue(self.arena.base, len(columns)))
        words: list[int] = [0] * machine.PIPELINE_WORDS
        words[machine.OPERATORS], words[machine.OPERATORS_AT] = len(self.operators), self._pairs(self.operators)
        words[machine.WINDOWS], words[machine.WINDOWS_AT] = len(self.windows), self._pairs(self.windows)
        words[machine.SLIDES] = len(self.slides)
        words[machine.SLIDES_AT] = self._pairs([(slide, NEVER) for slide in self.slides])
        words[machine.QUEUES], words[machine.QUEUES_AT] = len(self.queues), self._words(self.queues)
        words[machine.SOLUTIONS], words[machine.RESULTS] = solutions, results
        words[machine.EMIT] = machine.WHOLE if whole else machine.CHANGES
        words[machine.ORDERED_AT] = order
        words[machine.SUM] = self._taken(make_table(self.arena.base, max(len(columns), 1), 1))
        words[machine.AT], words[machine.FLAGS] = -1, flags
        words[machine.LAST] = words[machine.BOUNDARY] = NEVER
        words[machine.PENDING] = 1  # the first tick counts as a change
        place = self._words(words)
        groups = {number: at for number, (kind, at) in enumerate(self.operators, 1) if kind == machine.GROUP}
        orders = {number: self.terms for number, (kind, _) in enumerate(self.operators, 1) if kind == machine.ORDERED}
        return Pipeline(place, query, columns, self.tables, self.programs, groups, orders)

    def _pairs(self, groups: Sequence[tuple[int, ...]]) -> int:
        return self._words([word for group in groups for word in group])


def add_static_row(
    arena: Arena, terms: Callable[[Term | None], int], stage: Stage, row: tuple[Term | None, ...], weight: int
) -> None:
    """Put a change of a table into its queue."""
    place = int(add_row(arena.base, stage.queue))
    if place == 0:
        raise MemoryError("the arena is full")
    arena.words[place : place + COLUMNS] = weight, NEVER, -1, ALWAYS
    arena.words[place + COLUMNS : place + COLUMNS + len(row)] = [terms(term) for term in row]


def _shape(chosen: Window) -> tuple[int, int, int | None]:
    match chosen:
        case Now():
            return window.NOW, 0, None
        case All():
            return window.ALL, 0, None
        case Range(width=width, slide=None, time=None):
            return window.RANGE, width, None
        case Range(width=width, slide=slide, time=None):
            return window.SLIDE, width, slide
        case Count(size=size, unit="triples"):
            return window.TRIPLES, size, None
        case Count(size=size, unit="elements"):
            return window.ELEMENTS, size, None
        case _:
            raise NotIncremental("this window has no incremental operator yet")


def _looks_outside(plan: Plan) -> bool:
    """Some expression inside reads a variable that the plan does not bind."""
    inside = frozenset(variables(plan))
    return any(
        not reads(expression) <= inside
        for node in algebra.walk_plan(plan)
        for expression in algebra.expressions_of(node)
    )
