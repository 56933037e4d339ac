"""ORDER BY, LIMIT and partitioned windows as operators: which order the solutions of a plan have, and its slices.

Where an order is asked for, the rows have columns for all that it depends on, hidden ones behind those that are seen.
They stay until a LIMIT, or the listing of a whole result, has looked at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from cqels.kernels import scheduler
from cqels.kernels.containers.delta_queue import COLUMNS, NUMBER, TIME
from cqels.kernels.operators import filter_extend, join, project_union, topk, topk_setup
from cqels.kernels.operators.outer_semi_anti_join import LEFT_JOIN
from cqels.kernels.terms.counted_btree import DOWN, TERM, TERM_DOWN, TEXT
from cqels.lang.expressions import Var, calls
from cqels.lang.syntax import Count
from cqels.physical.incremental_support import TIMES, is_partitioned
from cqels.physical.pipeline import RANK, Stage
from cqels.plan import algebra
from cqels.plan.algebra import Plan
from cqels.plan.optimizer.prune_columns import DRAWS
from cqels.plan.scope import is_ordered, reads

if TYPE_CHECKING:
    from cqels.physical.compiler import Compiler

Field: TypeAlias = tuple[int, str | int]
"""How something is compared (`counted_btree.py`), and what: a column, or the newest time or number of a row."""

_FRESHEST: tuple[Field, ...] = ((DOWN, TIME), (DOWN, NUMBER))
_CHAIN = algebra.OrderBy | algebra.Slice | algebra.Project | algebra.Distinct | algebra.Extend


@dataclass(frozen=True, slots=True)
class Order:
    """Rows and what they are compared by, in turn. `names` are the columns that are seen, the first of them all."""

    stage: Stage
    names: tuple[str, ...]
    fields: tuple[Field, ...]
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    """The columns that the value of a hidden column follows from."""

    @property
    def hidden(self) -> list[str]:
        """The columns compared that are not seen."""
        return list(dict.fromkeys(what for _, what in self.fields if isinstance(what, str) and what not in self.names))


# --- orders ---------------------------------------------------------------------------------------------------------


def ordered(compiler: Compiler, plan: Plan, active: int | None, *, fresh: bool) -> Order | None:
    """The solutions of a plan with the order that was asked for; None, and nothing was made, if there is none.

    `fresh` asks for their stamps too: without it those of distinct solutions may be the stamps of any duplicate.
    """
    first, opened = len(compiler.operators), len(compiler.windows)
    order = _ordered(compiler, plan, active, fresh=fresh)
    if order is not None:
        compiler.trace(plan, order.stage.queue, first, opened)
    return order


def _ordered(compiler: Compiler, plan: Plan, active: int | None, *, fresh: bool) -> Order | None:
    if is_ordered(plan) and (reason := compiler.obstacle(plan, active)) is not None:
        stage = compiler.recompute(plan, reason, ranked=True)
        return Order(stage, stage.columns[:-1], ((TERM, RANK),))
    match plan:
        case algebra.OrderBy():
            return _sorted(compiler, plan, active)
        case algebra.Slice(input=inner, offset=offset, limit=limit):
            below = ordered(compiler, inner, active, fresh=fresh) or _freshest(compiler.stage(inner, active))
            return _sliced(compiler, below, offset=offset, limit=limit)
        case algebra.Project(input=inner, variables=names):
            order = ordered(compiler, inner, active, fresh=fresh)
            return None if order is None else _projected(compiler, order, names)
        case algebra.Distinct(input=inner):
            order = ordered(compiler, inner, active, fresh=fresh)
            return None if order is None else _distinct(compiler, order, fresh=fresh)
        case algebra.Extend(input=inner, expression=expression):
            order = ordered(compiler, inner, active, fresh=fresh or bool(calls(expression) & TIMES))
            return None if order is None else _extended(compiler, plan, order, active)
        case algebra.Static(input=inner) if isinstance(inner, _CHAIN):
            return ordered(compiler, replace(inner, input=replace(plan, input=inner.input)), active, fresh=fresh)
        case _:
            return None


def _sorted(compiler: Compiler, plan: algebra.OrderBy, active: int | None) -> Order:
    inner, fields = plan.input, []
    needs: dict[str, frozenset[str]] = {}
    for number, (expression, descending) in enumerate(plan.keys):
        how = TERM_DOWN if descending else TERM
        if isinstance(expression, Var):
            fields.append((how, expression.name))
            continue
        name = f"_:.key {number}"
        inner = algebra.Extend(inner, name, expression)
        fields.append((how, name))
        if not calls(expression) & (DRAWS | TIMES):
            needs[name] = reads(expression)
    stage = compiler.stage(inner, active)
    seen = tuple(name for name in stage.columns if not name.startswith("_:.key "))
    texts = [(TEXT, name) for name in plan.ties if name in seen]
    # what is nowhere bound ties everywhere
    there = [each for each in fields if each[1] in stage.columns]
    return _projected(compiler, Order(stage, seen, (*there, *_FRESHEST, *texts), needs), seen)


def _freshest(stage: Stage, names: Sequence[str] | None = None) -> Order:
    """The order where none is asked for."""
    texts = [(TEXT, name) for name in (stage.columns if names is None else names)]
    return Order(stage, stage.columns, (*_FRESHEST, *texts))


def _projected(compiler: Compiler, order: Order, names: tuple[str, ...]) -> Order:
    """Let some columns be seen; those that are compared stay, under other names if they are no longer seen."""
    hidden = replace(order, names=names).hidden
    shown = (*names, *hidden)
    stage = order.stage if shown == order.stage.columns else compiler.projected(order.stage, shown)
    new = {name: name if name.startswith("_:.key ") else f"_:.key {name}" for name in hidden}
    renamed = replace(
        stage,
        columns=tuple(new.get(name, name) for name in stage.columns),
        nullable=frozenset(new.get(name, name) for name in stage.nullable),
    )
    needs = {new[name]: order.needs[name] if name in order.needs else frozenset([name]) for name in hidden}
    fields = tuple((how, new.get(what, what) if isinstance(what, str) else what) for how, what in order.fields)
    return replace(order, stage=renamed, names=names, fields=fields, needs=needs)


def _extended(compiler: Compiler, plan: algebra.Extend, order: Order, active: int | None) -> Order:
    stage = compiler.computed_column(order.stage, plan.variable, plan.expression, active)
    needs = {hidden: others for hidden, others in order.needs.items() if plan.variable not in others}
    return _projected(compiler, replace(order, stage=stage, needs=needs), (*order.names, plan.variable))


def _distinct(compiler: Compiler, order: Order, *, fresh: bool) -> Order:
    """Each solution once, at the position of its first duplicate, as fresh as the freshest if `fresh`."""
    if all(order.needs.get(name, frozenset([name])) <= set(order.names) for name in order.hidden):
        return replace(order, stage=compiler.distinct(order.stage))  # duplicates differ in freshness alone
    if not fresh:
        return _sliced(compiler, order, offset=0, limit=1, by=order.names)
    order = _noted(compiler, order)
    first = _sliced(compiler, order, offset=0, limit=1, by=order.names)
    freshest = compiler.distinct(compiler.projected(order.stage, order.names))
    return replace(first, stage=compiler.negation(LEFT_JOIN, first.stage, freshest, exact=True))


def _noted(compiler: Compiler, order: Order) -> Order:
    """The same order where the rows get other stamps: it is by columns that note what the stamps are now."""
    notes = {f"_:.key stamp {word}": word for _, word in order.fields if isinstance(word, int)}
    names = {word: name for name, word in notes.items()}
    fields = tuple((how, names[what] if isinstance(what, int) else what) for how, what in order.fields)
    return replace(order, stage=compiler.noted(order.stage, notes), fields=fields) if notes else order


# --- slices ---------------------------------------------------------------------------------------------------------


def _operator(
    compiler: Compiler, order: Order, out: int, offset: int, limit: int | None, by: Sequence[str] = ()
) -> int:
    stage = order.stage
    fields = [
        (how, COLUMNS + stage.columns.index(what) if isinstance(what, str) else what) for how, what in order.fields
    ]
    operator = topk_setup.make_ordered(
        compiler.calls.dictionary,
        compiler.terms,
        (stage.queue, out),
        len(stage.columns),
        fields,
        by=[stage.columns.index(name) for name in by],
        offset=offset,
        limit=limit,
    )
    compiler.add(scheduler.ORDERED, operator)
    return operator


def _sliced(compiler: Compiler, order: Order, *, offset: int, limit: int | None, by: Sequence[str] = ()) -> Order:
    out = compiler.queue(len(order.stage.columns))
    _operator(compiler, order, out, offset, limit, by)
    return replace(order, stage=replace(order.stage, queue=out))


def slice_stage(compiler: Compiler, plan: Plan, active: int | None, *, outermost: bool = False) -> Stage:
    """OFFSET and LIMIT; the stamps of the outermost solutions mean nothing any more."""
    order = ordered(compiler, plan, active, fresh=not outermost)
    assert order is not None  # a Slice has one
    return compiler.projected(order.stage, order.names)


def latest(compiler: Compiler, stage: Stage, window: Count) -> Stage:
    """The latest solutions for each value of the variables that a window is partitioned by."""
    visible = sorted(name for name in stage.columns if not name.startswith("_:"))
    by = [name for name in window.by if name in stage.columns]
    return _sliced(compiler, _freshest(stage, visible), offset=0, limit=window.size, by=by).stage


def listing(compiler: Compiler, plan: Plan) -> tuple[int, tuple[str, ...]]:
    """The operator that has the whole result of a plan in order, and the variables that are its first columns.

    The order is the one asked for, else that of the texts.
    """
    first, opened = len(compiler.operators), len(compiler.windows)
    inner, offset, limit = (plan.input, plan.offset, plan.limit) if isinstance(plan, algebra.Slice) else (plan, 0, None)
    order = ordered(compiler, inner, None, fresh=False)
    if order is None:
        stage = compiler.stage(inner)
        texts = tuple((TEXT, name) for name in stage.columns)
        order = _freshest(stage) if inner is not plan else Order(stage, stage.columns, texts)
    operator = _operator(compiler, order, 0, offset, limit)
    compiler.trace(plan, order.stage.queue, first, opened)
    return operator, order.names


def resending_operator(compiler: Compiler) -> int:
    """Let the operator that orders last keep only what is near its slice, where all rows can be sent again.

    That is so where they come from a join or a group, through FILTERs, BINDs and projections at most, and nothing else
    reads them.  The number of that join or group, counted from 1, or 0.
    """
    words, operators = compiler.arena.words, compiler.operators
    last = max((number for number, (kind, _) in enumerate(operators) if kind == scheduler.ORDERED), default=-1)
    if last < 0 or [kind for kind, _ in operators[last + 1 :]] not in ([], [scheduler.UNION]):  # it projects the slice
        return 0
    queues = [int(words[operators[last][1] + topk.INPUT])]
    for number in range(last, 0, -1):
        kind, offset = operators[number - 1]
        written, read = _queues(compiler, kind, offset)
        if written != queues[-1]:
            return 0
        if kind in (scheduler.JOIN, scheduler.GROUP):
            return number if topk_setup.keep_near(compiler.arena, operators[last][1], queues) else 0
        queues.append(read)
    return 0


def _queues(compiler: Compiler, kind: int, offset: int) -> tuple[int, int]:
    """The queues that an operator writes and reads, if its rows can be sent again: those of its only input, if so."""
    words = compiler.arena.words
    match kind:
        case scheduler.JOIN:
            return int(words[offset + join.OUT]), 0
        case scheduler.GROUP:
            from cqels.kernels.operators import aggregate

            return int(words[offset + aggregate.OUTPUT]), 0
        case scheduler.SELECT if not words[offset + filter_extend.REMEMBERED]:
            return int(words[offset + filter_extend.OUTPUT]), int(words[offset + filter_extend.INPUT])
        case scheduler.UNION if words[offset + project_union.BRANCHES] == 1:
            return int(words[offset + project_union.OUT]), int(words[offset + project_union.BRANCH])
        case _:
            return 0, 0


def orders_matter(plan: Plan, *, whole: bool) -> bool:
    """Which solution is newer decides what a query sends: by a LIMIT, a partitioned window, an order that is sent."""
    return (whole and is_ordered(plan)) or any(
        isinstance(node, algebra.Slice) or (isinstance(node, algebra.Stream) and is_partitioned(node.sources[0].window))
        for node in algebra.walk_plan(plan)
    )
