"""Property paths over a window: from what the rules leave of a path (`?`, `*`, `+`, `!`) to operators.

An end that is written in the query is a term that the window's graph may not have, and a path of no length connects it
with itself all the same (SPARQL 1.1 §18.4).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyoxigraph import NamedNode

from cqels.kernels import scheduler
from cqels.kernels.operators.transitive_closure import make_closure
from cqels.lang.expressions import Call, Constant, Var
from cqels.lang.syntax import Negated, Repeat
from cqels.physical.pipeline import Stage
from cqels.plan import algebra
from cqels.plan.algebra import Node, Plan, Triples
from cqels.plan.optimizer.rules import simplify_paths
from cqels.plan.to_sparql.path_text import ways_to_stay

if TYPE_CHECKING:
    from cqels.physical.compiler import Compiler

_FROM, _BY, _TO = Var("_:.from"), Var("_:.by"), Var("_:.to")
_PAIR = (_FROM.name, _TO.name)


def path_stage(compiler: Compiler, plan: algebra.PathPattern, active: int) -> Stage:
    """The operators of a path over the window whose changes are in the queue `active`."""
    match plan.path:
        case Negated() as path:
            return _negated(compiler, plan.subject, path, plan.object, active)
        case Repeat() as path:
            return _repeated(compiler, plan.subject, path, plan.object, active)
        case _:
            return compiler.stage(simplify_paths(plan), active)


# ---------------------------------------------------------------- negated property sets


def _negated(compiler: Compiler, subject: Node, path: Negated, target: Node, active: int) -> Stage:
    """Each triple with another predicate is a way of its own."""
    sides: list[Plan] = []
    if path.forward or not path.backward:
        sides.append(_but(path.forward, algebra.Triple(subject, _BY, target)))
    if path.backward:
        sides.append(_but(path.backward, algebra.Triple(target, _BY, subject)))
    names = tuple(dict.fromkeys(node.name for node in (subject, target) if isinstance(node, Var)))
    stages = [compiler.projected(compiler.stage(side, active), names) for side in sides]
    return stages[0] if len(stages) == 1 else compiler.united(stages)


def _but(predicates: tuple[NamedNode, ...], triple: algebra.Triple) -> Plan:
    matched = Triples((triple,))
    if not predicates:
        return matched
    return algebra.Filter(matched, Call("NOT_IN", (_BY, *map(Constant, predicates))))


# ---------------------------------------------------------------- repeated paths


def _repeated(compiler: Compiler, subject: Node, path: Repeat, target: Node, active: int) -> Stage:
    calm = compiler.calm(active)  # of a path that repeats, each pair is there once
    events, compiler.events = compiler.events, False
    ends = [node for node in (subject, target) if not isinstance(node, Var)]
    pairs = compiler.distinct(_steps(compiler, path, calm))
    if path.many:
        pairs = _closed(compiler, pairs, subject, target)
    if ends and ways_to_stay(path) > 0:
        rows = tuple((each, each) for each in dict.fromkeys(ends))
        pairs = compiler.distinct(compiler.united([pairs, compiler.table(algebra.Values(_PAIR, rows), _PAIR)]))
    elif not ends and path.low == 0:
        pairs = compiler.distinct(compiler.united([pairs, _nodes(compiler, calm)]))
    compiler.events = events
    return _between(compiler, pairs, subject, target)


def _steps(compiler: Compiler, path: Repeat, active: int) -> Stage:
    """The pairs that one step connects, as often as it does."""
    plan = simplify_paths(algebra.PathPattern(_FROM, path.path, _TO))
    return compiler.projected(compiler.stage(plan, active), _PAIR)


def _closed(compiler: Compiler, steps: Stage, subject: Node, target: Node) -> Stage:
    """The pairs that one or more steps connect; from an end that is given, where there is one."""
    root = next((node for node in (subject, target) if not isinstance(node, Var)), None)
    backward = root is not None and isinstance(subject, Var)
    turned = compiler.projected(steps, _PAIR[::-1]) if backward else steps
    out = compiler.queue(2)
    word = 0 if root is None else compiler.calls.word_of(root)
    compiler.add(scheduler.CLOSURE, make_closure(compiler.arena, out, turned.queue, root=word))
    closed = replace(turned, queue=out)
    return compiler.projected(closed, _PAIR) if backward else closed


def _nodes(compiler: Compiler, active: int) -> Stage:
    """Each subject and object of the graph, with itself."""
    triples = compiler.matched(algebra.Triple(_FROM, _BY, _TO), active)
    ends = [compiler.renamed(triples, [(end, "node")]) for end in _PAIR]
    nodes = compiler.once(compiler.united(ends), fresh=False)  # what has no length comes from no element
    return compiler.renamed(nodes, [("node", end) for end in _PAIR])


def _between(compiler: Compiler, pairs: Stage, subject: Node, target: Node) -> Stage:
    """The pairs whose ends are those of the pattern: read as triples that a pattern matches."""
    wide = compiler.projected(pairs, (_FROM.name, _BY.name, _TO.name))
    names = tuple(dict.fromkeys(node.name for node in (subject, target) if isinstance(node, Var)))
    return compiler.projected(compiler.matched(algebra.Triple(subject, _BY, target), wide.queue), names)
