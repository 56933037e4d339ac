"""Operators in the arena, one method for each kind: rows in queues, columns with the names of variables, no plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import COLUMNS, make_queue, widen
from cqels.kernels.containers.row_buffer import make_bag, make_ring
from cqels.kernels.expressions.interpreter import CODE, LENGTH
from cqels.kernels.memory.arena import Arena
from cqels.kernels.operators.distinct import make_distinct
from cqels.kernels.operators.filter_extend import FILTERS, MOST_STEPS, add_step, make_select, remember_rows
from cqels.kernels.operators.join import MOST_INPUTS
from cqels.kernels.operators.join_conditions import Condition
from cqels.kernels.operators.join_setup import Input, make_join
from cqels.kernels.operators.outer_semi_anti_join import LEFT_JOIN, make_negation
from cqels.kernels.operators.per_query_expiry import make_expiry
from cqels.kernels.operators.project_union import make_copied, make_project, make_union
from cqels.kernels.operators.shared_input import make_shared_input
from cqels.kernels.operators.threshold_router import make_thresholds
from cqels.lang.expressions import Call, Constant, Expression, Var
from cqels.model.errors import ArenaFull
from cqels.model.terms import Term
from cqels.physical.early_conditions import early_conditions
from cqels.physical.expression_compiler import Given, compile_expression
from cqels.physical.pipeline import Compared, JoinTrace, Select, Stage
from cqels.physical.python_functions import Calls
from cqels.plan.scope import needed

DEAR = 24
"""Words of code from which on it is cheaper to remember what they gave for a row than to run them again."""


@dataclass
class Operators:
    """The operators of one query, in an order in which each comes after those it reads from."""

    arena: Arena
    calls: Calls
    streams: dict[str, int]
    fresh: bool
    keep_all: bool
    seed: str
    operators: list[tuple[int, int]] = field(default_factory=list)
    selects: dict[int, Select] = field(default_factory=dict)
    """Number of an operator (counted from 1) to what is known of it, if it is a SELECT."""
    thresholds: dict[int, Compared] = field(default_factory=dict)
    """Number of an operator to what is known of it, if it is a THRESHOLDS."""
    queues: list[int] = field(default_factory=list)
    joins: list[JoinTrace] = field(default_factory=list)
    shared_inputs: list[int] = field(default_factory=list)
    """What brings rows that other pipelines have logged."""
    computed: frozenset[str] = frozenset()
    events: bool = False
    """Every occurrence of a triple is an event of its own: below a Sequence."""
    by_position: bool = False
    """Windows tell the oldest element of a solution by its position: below a Narrow of those that count."""
    spans: bool = False
    """The time of a solution's oldest element matters."""
    _terms: int = 0

    def joined(self, inputs: list[Stage], timing: int = 0, conditions: Sequence[Expression] = ()) -> Stage:
        """A join; of two inputs, rows whose times are in SEQ or EQUALS alone if `timing` says so.

        Most rows for which one of the `conditions` does not hold are left out; a SELECT has to leave out all of them.
        """
        if len(inputs) == 1:
            return inputs[0]
        if len(inputs) > MOST_INPUTS:
            head = self.joined(inputs[: MOST_INPUTS - 1], conditions=conditions)
            return self.joined([head, *inputs[MOST_INPUTS - 1 :]], conditions=conditions)
        names = tuple(dict.fromkeys(name for each in inputs for name in each.columns))
        positions = {name: index for index, name in enumerate(names)}
        out = self.queue(len(names))
        made = [
            Input(
                self._buffer(each),
                tuple(positions[name] for name in each.columns),
                each.queue,
                frozenset(index for index, name in enumerate(each.columns) if name in each.nullable),
            )
            for each in inputs
        ]
        early = early_conditions(conditions, [each.columns for each in inputs])
        columns = {name: index for index, name in enumerate(names)}
        compiled = [
            Condition(compile_expression(each, columns, self.calls), frozenset(columns[name] for name in read))
            for read, each in early.items()
        ]
        offset = make_join(
            self.arena, out, made, timing=timing, conditions=compiled, dictionary=self.calls.dictionary.offset
        )
        self.add(scheduler.JOIN, offset)
        programs = tuple(each.program for each in compiled)
        self.joins.append(JoinTrace(offset, out, tuple(each.queue for each in inputs), tuple(early.values()), programs))
        bound = {name for each in inputs for name in each.columns if name not in each.nullable}
        return Stage(out, names, frozenset(names) - bound, timeless=all(each.timeless for each in inputs))

    def _buffer(self, source: Stage) -> int:
        """A buffer for the rows of an input of a join."""
        columns = len(source.columns)
        return make_ring(self.arena, columns, bare=source.timeless) if source.in_turn else make_bag(self.arena, columns)

    def negation(self, mode: int, left: Stage, right: Stage, *, exact: bool = False, timing: int = 0) -> Stage:
        """OPTIONAL, MINUS, EXISTS and NOT EXISTS; `exact` lets an unbound column match only an unbound one."""
        added = tuple(name for name in right.columns if name not in left.columns)
        names = left.columns + added
        out = self.queue(len(names) if mode == LEFT_JOIN else len(left.columns))
        offset = make_negation(
            self.arena,
            mode,
            out,
            left.queue,
            right.queue,
            [names.index(name) for name in right.columns],
            left_nullable=[index for index, name in enumerate(left.columns) if name in left.nullable],
            right_nullable=[index for index, name in enumerate(right.columns) if name in right.nullable],
            exact=exact,
            timing=timing,
        )
        self.add(scheduler.NEGATION, offset)
        if mode == LEFT_JOIN:
            return Stage(out, names, left.nullable | frozenset(added))
        return replace(left, queue=out)

    def distinct(self, source: Stage) -> Stage:
        out = self.queue(len(source.columns))
        offset = make_distinct(self.arena, out, source.queue, freshness=self.fresh, spans=self.spans)
        self.add(scheduler.DISTINCT, offset)
        return replace(source, queue=out)

    def narrowed(self, source: Stage, width: str, clock: int = 0) -> Stage:
        """Each row as long as a column says, without that column."""
        names = tuple(name for name in source.columns if name != width)
        out = self.queue(len(names))
        offset = make_expiry(self.arena, out, source.queue, source.columns.index(width), stamps=self.fresh, clock=clock)
        self.add(scheduler.NARROW, offset)
        return Stage(out, names, source.nullable)

    def compared(self, source: Stage, comparisons: Sequence[Call], group: str | None, added: tuple[str, ...]) -> Stage:
        """Each row once for every class of its group that lets it pass, with what is told of the class."""
        thresholds = [each.args[1].name for each in comparisons if isinstance(each.args[1], Var)]
        columns = {name: index for index, name in enumerate((*source.columns, *thresholds))}
        programs = tuple(compile_expression(each, columns, self.calls) for each in comparisons)
        names = (*(name for name in source.columns if name != group), *added)
        out = self.queue(len(names))
        at = None if group is None else source.columns.index(group)
        dictionary = self.calls.dictionary.offset
        offset = make_thresholds(self.arena, out, source.queue, programs, at, len(added), dictionary)
        self.add(scheduler.THRESHOLDS, offset)
        self.thresholds[len(self.operators)] = Compared(offset, programs)
        return replace(source, queue=out, columns=names)

    def shared_input(self, log: int, names: tuple[str, ...], nullable: frozenset[str]) -> Stage:
        """The rows that another pipeline has logged."""
        out = self.queue(len(names))
        offset = make_shared_input(self.arena, out, log)
        self.add(scheduler.FEED, offset)
        self.shared_inputs.append(offset)
        return Stage(out, names, nullable)

    def once(self, source: Stage, *, fresh: bool) -> Stage:
        """Each row once, with the stamps of its newest occurrence, or with none."""
        out = self.queue(len(source.columns))
        self.add(scheduler.DISTINCT, make_distinct(self.arena, out, source.queue, freshness=fresh))
        return replace(source, queue=out)

    def united(self, branches: list[Stage]) -> Stage:
        names = tuple(dict.fromkeys(name for each in branches for name in each.columns))
        positions = {name: index for index, name in enumerate(names)}
        out = self.queue(len(names))
        made = [(each.queue, [positions[name] for name in each.columns]) for each in branches]
        self.add(scheduler.UNION, make_union(self.arena, out, made))
        certain = frozenset.intersection(*(frozenset(each.columns) - each.nullable for each in branches))
        return Stage(out, names, frozenset(names) - certain)

    def projected(self, source: Stage, names: Sequence[str]) -> Stage:
        if tuple(names) == source.columns:
            return source
        return self.renamed(source, [(name, name) for name in names])

    def renamed(self, source: Stage, names: Sequence[tuple[str, str]]) -> Stage:
        """Columns by their names before and after; one that is not there is never bound."""
        out = self.queue(len(names))
        indexes = [source.columns.index(name) if name in source.columns else -1 for name, _ in names]
        self.add(scheduler.UNION, make_project(self.arena, out, source.queue, indexes))
        nullable = {new for old, new in names if old not in source.columns or old in source.nullable}
        return Stage(out, tuple(new for _, new in names), frozenset(nullable))

    def noted(self, source: Stage, stamps: Mapping[str, int]) -> Stage:
        """The rows with further columns that note what their stamps are now: names to words of a row."""
        names = (*source.columns, *stamps)
        out = self.queue(len(names))
        offsets = [*range(COLUMNS, COLUMNS + len(source.columns)), *stamps.values()]
        self.add(scheduler.UNION, make_copied(self.arena, out, source.queue, offsets))
        return Stage(out, names, source.nullable)

    def selected(self, source: Stage, condition: Expression, given: Mapping[Given, int] | None = None) -> Stage:
        """The rows for which a condition holds; `given` are the columns of the answers to EXISTS."""
        queue = self._select(source, condition, None, given)
        return replace(source, queue=queue, nullable=source.nullable - needed(condition))

    def extended(
        self, source: Stage, name: str, expression: Expression, given: Mapping[Given, int] | None = None
    ) -> Stage:
        queue = self._select(source, expression, name, given)
        return replace(source, queue=queue, columns=(*source.columns, name), nullable=source.nullable | {name})

    def tagged(self, source: Stage, name: str, term: Term) -> Stage:
        """The rows with the same term in a further column."""
        stage = self.extended(source, name, Constant(term))
        return replace(stage, nullable=source.nullable)

    def _select(
        self, source: Stage, expression: Expression, name: str | None, given: Mapping[Given, int] | None
    ) -> int:
        """One more step for rows, to be kept or to get a further column: the queue they go to.

        Steps that follow each other are one operator.
        """
        columns = {name: index for index, name in enumerate(source.columns)}
        identity = [name for name in source.columns if name not in self.computed and not name.startswith("_:")]
        program = compile_expression(expression, columns, self.calls, given=given, seed=self.seed, identity=identity)
        select = self.selects.get(len(self.operators))
        if select is None or select.queue != source.queue or len(select.programs) == MOST_STEPS:
            queue = self.queue(len(source.columns))
            offset = self.taken(make_select(self.arena.base, source.queue, queue, self.calls.dictionary.offset))
            self.add(scheduler.SELECT, offset)
            select = self.selects[len(self.operators)] = Select(offset, queue, source.in_turn)
        column = FILTERS if name is None else len(source.columns)
        if name is not None:
            widen(self.arena, select.queue)
        select.programs.append(program)
        select.passed.append(int(add_step(self.arena.base, select.offset, program, column)))
        return select.queue

    def remember_dear(self) -> None:
        """Let each SELECT that is dear remember what it computed for the rows that will go in turn."""
        words = self.arena.words
        for select in self.selects.values():
            code = sum(int(words[program + LENGTH] - words[program + CODE]) for program in select.programs)
            if select.in_turn and code >= DEAR:
                self.taken(remember_rows(self.arena.base, select.offset))

    @property
    def terms(self) -> int:
        """The offset where the order of terms is known."""
        if self._terms == 0:
            from cqels.kernels.terms.sort_key_fallback import make_terms

            self._terms = make_terms(self.arena, self.calls.dictionary.offset)
        return self._terms

    # ------------------------------------------------------------ memory

    def queue(self, columns: int) -> int:
        queue = self.taken(make_queue(self.arena.base, columns))
        self.queues.append(queue)
        return queue

    def add(self, kind: int, offset: int) -> None:
        self.operators.append((kind, offset))

    def words(self, words: Sequence[int]) -> int:
        offset = self.arena.take(max(len(words), 1))
        self.arena.words[offset : offset + len(words)] = words
        return offset

    def taken(self, offset: int) -> int:
        if offset == 0:
            raise ArenaFull
        return int(offset)
