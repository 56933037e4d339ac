"""Joins of streams that queries of different shapes have in common: which of them are computed once for all.

A *site* is a place of a plan where triple patterns over windows are joined, with each other and with what else there
is.  A *part* is a join of some patterns that several sites have, whatever their variables are called; an *occurrence*
says where a site has it.  Parts are found as CQELS+ builds its join graph: at each step those two are joined that most
sites can use joined (the metric of reutilization), patterns or parts found before.  A site that has a part twice uses
it twice.  So parts may be made of parts, and one join serves all that are on its path.  In the end a pattern that is
joined with no other is a part by itself: a window that many read.

Two are joined ahead of all else only if they are about the same subject, or if their site has nothing but patterns:
elsewhere a table may be what keeps a join small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyoxigraph import NamedNode

from cqels.lang.expressions import Exists, Expression, Var, calls, junction, transform, walk
from cqels.lang.syntax import Count, Range
from cqels.model.limits import MOST_JOIN_COLUMNS
from cqels.model.terms import CQ
from cqels.plan.algebra import (
    Filter,
    Join,
    Narrow,
    Plan,
    Reused,
    Source,
    Static,
    Stream,
    Triple,
    Triples,
    map_inputs,
)
from cqels.plan.algebra import (
    Sequence as InSequence,
)
from cqels.plan.optimizer.prune_columns import DRAWS
from cqels.plan.optimizer.rules import conjuncts
from cqels.plan.scope import reads, variables

Pattern: TypeAlias = tuple[tuple[Source, ...], Triple]
MOST_PATTERNS = 16
"""Of a site that is compared with others."""
LEAST_PLANS = 3
"""That must have a pattern for its window to be one of all: it saves less than a join does."""
_APART = DRAWS | {"GETDURATION", "GETSTARTTIME", "GETENDTIME", "NOW", CQ + "now", "TIMESTAMP"}
"""Functions of more than the values of a solution."""


@dataclass(frozen=True, slots=True)
class Site:
    """Patterns that are joined with each other and with others, and the conditions that hold for them."""

    patterns: tuple[Pattern, ...]
    conditions: tuple[Expression, ...]
    others: tuple[Plan, ...]
    fresh: bool
    """The times of solutions matter."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Where a plan has a part: the patterns of the site, in the order of the part, and the conditions that are in it.

    The conditions of parts inside it are theirs.
    """

    part: int
    site: int
    patterns: tuple[int, ...]
    conditions: tuple[int, ...] = ()

    def holds(self, other: Occurrence) -> bool:
        """The other one is inside this one."""
        return self.site == other.site and {*other.patterns} < {*self.patterns}


# ---------------------------------------------------------------- sites


def sites_of(plan: Plan, *, fresh: bool) -> list[Site]:
    """The sites of a plan that was rewritten, in the order in which they are met."""
    found: list[Site] = []

    def note(site: Site) -> None:
        found.append(site)

    _changed(plan, note, fresh=fresh)
    return found


def with_parts(plan: Plan, occurrences: Sequence[Occurrence]) -> Plan:
    """The plan with what occurs in it taken from where it is computed for all."""
    numbers = iter(range(len(sites_of(plan, fresh=False))))

    def change(site: Site) -> Plan | None:
        number = next(numbers)
        own = [each for each in occurrences if each.site == number]
        return _joined(site, range(len(site.patterns)), range(len(site.conditions)), own) if own else None

    return _changed(plan, change, fresh=False)


def part_of(plan: Plan, occurrences: Sequence[Occurrence], part: int) -> Plan:
    """The plan of a part that occurs in a plan."""
    one = next(each for each in occurrences if each.part == part)
    return _part(sites_of(plan, fresh=False)[one.site], one, occurrences)


def columns_of(site: Site, patterns: Iterable[int]) -> tuple[str, ...]:
    """The variables of patterns, in the order in which they appear."""
    return variables(Triples(tuple(site.patterns[each][1] for each in patterns)))


def _changed(plan: Plan, change: Callable[[Site], Plan | None], *, fresh: bool) -> Plan:
    """The plan with changed sites."""
    match plan:
        case InSequence() | Static() | Narrow(counted=True):  # which has to know its window
            return plan
        case Narrow(input=inner):
            return replace(plan, input=_changed(inner, change, fresh=True))
        case Stream():
            return _site((plan,), change, fresh=fresh) or plan
        case Join(inputs=inputs):
            others = tuple(each if isinstance(each, Stream) else _changed(each, change, fresh=fresh) for each in inputs)
            return _site(others, change, fresh=fresh) or Join(others)
        case _:
            return map_inputs(plan, lambda each: _changed(each, change, fresh=fresh))


def _site(inputs: tuple[Plan, ...], change: Callable[[Site], Plan | None], *, fresh: bool) -> Plan | None:
    patterns: list[Pattern] = []
    conditions: list[Expression] = []
    others: list[Plan] = []
    for each in inputs:
        inner = _inside(each)
        if inner is None:
            others.append(each)
        else:
            patterns += inner[0]
            conditions += inner[1]
    if not 0 < len(patterns) <= MOST_PATTERNS or len(variables(Join(inputs))) > MOST_JOIN_COLUMNS:
        return None
    return change(Site(tuple(patterns), tuple(conditions), tuple(others), fresh))


def _inside(plan: Plan) -> tuple[list[Pattern], list[Expression]] | None:
    """The patterns and conditions of a window that has nothing else."""
    if not isinstance(plan, Stream) or plan.at is not None or plan.graphs or not all(map(_is_plain, plan.sources)):
        return None
    inner, conditions = plan.input, list[Expression]()
    while isinstance(inner, Filter):
        conditions += conjuncts(inner.condition)
        inner = inner.input
    if not isinstance(inner, Triples):
        return None
    bound = frozenset(variables(inner))
    for each in conditions:
        looks = any(isinstance(node, Exists) for node in walk(each))
        if looks or calls(each) & _APART or not reads(each) <= bound:
            return None
    return [(plan.sources, each) for each in inner.patterns], conditions


def _is_plain(source: Source) -> bool:
    by_payload = isinstance(source.window, Range) and source.window.time is not None
    parted = isinstance(source.window, Count) and bool(source.window.by)
    return isinstance(source.stream, NamedNode) and not by_payload and not parted


# ---------------------------------------------------------------- plans


def _part(site: Site, one: Occurrence, all: Sequence[Occurrence]) -> Plan:
    inner = [each for each in all if one.holds(each)]
    return _joined(replace(site, others=()), one.patterns, one.conditions, inner)


def _joined(site: Site, patterns: Iterable[int], conditions: Iterable[int], inner: Sequence[Occurrence]) -> Plan:
    """Patterns of a site joined, with conditions of it, and with the parts inside."""
    outermost = [each for each in inner if not any(other.holds(each) for other in inner)]
    inside = {place for each in outermost for place in each.patterns}
    waiting = [site.conditions[each] for each in conditions if not any(each in one.conditions for one in inner)]
    inputs: list[Plan] = [
        Reused(_part(site, each, inner), each.part, columns_of(site, each.patterns)) for each in outermost
    ]
    groups: dict[tuple[Source, ...], list[Triple]] = {}
    for place in patterns:
        if place not in inside:
            sources, triple = site.patterns[place]
            groups.setdefault(sources, []).append(triple)
    inputs += [Stream(sources, Triples(tuple(each))) for sources, each in groups.items()]
    for place, each in enumerate(inputs):
        bound = frozenset(variables(each))
        own = [condition for condition in waiting if reads(condition) <= bound]
        waiting = [condition for condition in waiting if not reads(condition) <= bound]
        if own and isinstance(each, Stream):
            inputs[place] = replace(each, input=_filtered(each.input, own))
        else:
            inputs[place] = _filtered(each, own)
    inputs += site.others
    return _filtered(inputs[0] if len(inputs) == 1 else Join(tuple(inputs)), waiting)


def _filtered(plan: Plan, conditions: list[Expression]) -> Plan:
    return Filter(plan, junction("AND", conditions)) if conditions else plan


# ---------------------------------------------------------------- what is common


@dataclass(frozen=True, slots=True)
class _Node:
    """A pattern of a site, or several that are joined as a part: alike if they have the same key."""

    key: Hashable
    patterns: tuple[int, ...]
    columns: tuple[str, ...]
    subject: str | None
    """The variable that all of it is about."""


_Pair: TypeAlias = tuple[Hashable, _Node, _Node]


def reused(plans: Sequence[list[Site]], first: int = 0) -> list[list[Occurrence]]:
    """For each plan, given by its sites, the parts that occur in it; parts have numbers from `first` on.

    A part comes after those inside it.
    """
    sites = [(owner, number, site) for owner, all in enumerate(plans) for number, site in enumerate(all)]
    nodes = [_nodes(site) for _, _, site in sites]
    found: list[list[Occurrence]] = [[] for _ in sites]
    part = first
    while True:
        pairs = [_pairs(site, own) for (_, _, site), own in zip(sites, nodes, strict=True)]
        uses = Counter(pair[0] for own in pairs for pair in _disjoint(own))
        best = max(uses, key=lambda key: (uses[key], repr(key)), default=None)
        if best is None or uses[best] < 2:
            break
        for place, (_, number, _) in enumerate(sites):
            for _, one, other in _disjoint([pair for pair in pairs[place] if pair[0] == best]):
                joined = _both(one, other, part)
                nodes[place] = [each for each in nodes[place] if each not in (one, other)] + [joined]
                found[place].append(Occurrence(part, number, joined.patterns))
        part += 1
    part = _windows(sites, nodes, found, part)
    _inline(found, range(first, part))
    _settle_conditions([site for _, _, site in sites], found, range(first, part))
    result: list[list[Occurrence]] = [[] for _ in plans]
    for (owner, _, _), own in zip(sites, found, strict=True):
        result[owner] += own
    return result


def _windows(
    sites: list[tuple[int, int, Site]], nodes: list[list[_Node]], found: list[list[Occurrence]], part: int
) -> int:
    """Let patterns that were joined with no other be parts of their own, if enough plans have them."""
    plans: dict[Hashable, set[int]] = {}
    for (owner, _, _), own in zip(sites, nodes, strict=True):
        for each in own:
            if len(each.patterns) == 1:
                plans.setdefault(each.key, set()).add(owner)
    for key in [key for key, owners in plans.items() if len(owners) >= LEAST_PLANS]:
        for place, (_, number, _) in enumerate(sites):
            found[place] += [Occurrence(part, number, each.patterns) for each in nodes[place] if each.key == key]
        part += 1
    return part


def _nodes(site: Site) -> list[_Node]:
    made = []
    for place, (sources, triple) in enumerate(site.patterns):
        columns = variables(Triples((triple,)))
        shape = [
            columns.index(each.name) if isinstance(each, Var) else str(each)
            for each in (triple.subject, triple.predicate, triple.object)
        ]
        subject = triple.subject.name if isinstance(triple.subject, Var) else None
        made.append(_Node((site.fresh, repr(sources), *shape), (place,), columns, subject))
    return made


def _pairs(site: Site, nodes: list[_Node]) -> list[_Pair]:
    """The pairs that may be joined ahead of all else, each with what it has in common with others."""
    made: list[_Pair] = []
    for place, one in enumerate(nodes):
        for other in nodes[place + 1 :]:
            star = one.subject is not None and one.subject == other.subject
            if star or (not site.others and {*one.columns} & {*other.columns}):
                keyed = [(_key(first, second), first, second) for first, second in ((one, other), (other, one))]
                made.append(min(keyed, key=lambda each: repr(each[0])))
    return made


def _key(one: _Node, other: _Node) -> Hashable:
    return one.key, other.key, tuple(one.columns.index(each) if each in one.columns else -1 for each in other.columns)


def _disjoint(pairs: list[_Pair]) -> list[_Pair]:
    """Of each kind of pairs as many as have no pattern in common, the first ones."""
    taken: dict[Hashable, set[int]] = {}
    chosen = []
    for key, one, other in pairs:
        own = taken.setdefault(key, set())
        if not own & {*one.patterns, *other.patterns}:
            own |= {*one.patterns, *other.patterns}
            chosen.append((key, one, other))
    return chosen


def _both(one: _Node, other: _Node, part: int) -> _Node:
    columns = tuple(dict.fromkeys((*one.columns, *other.columns)))
    subject = one.subject if one.subject == other.subject else None
    return _Node(part, one.patterns + other.patterns, columns, subject)


def _inline(found: list[list[Occurrence]], parts: range) -> None:
    """Let parts go that only one other part uses: what is in them is in that."""
    for part in reversed(parts):
        users: set[tuple[int, ...]] = set()
        for place, own in enumerate(found):
            for number, each in enumerate(own):
                if each.part == part:
                    around = [other for other in own if other.holds(each)]
                    outer = min(around, key=lambda other: len(other.patterns), default=None)
                    # inside a part: at a place of that part, else at a place of its own
                    at = (-1, place, number) if outer is None else (outer.part, outer.patterns.index(each.patterns[0]))
                    users.add(at)
        if len(users) < 2:
            for own in found:
                own[:] = [each for each in own if each.part != part]


def _settle_conditions(sites: list[Site], found: list[list[Occurrence]], parts: range) -> None:
    """Let the conditions be inside a part that hold wherever it occurs."""
    for part in parts:
        places = [
            (place, number) for place, own in enumerate(found) for number, each in enumerate(own) if each.part == part
        ]
        known = []
        for place, number in places:
            site, one = sites[place], found[place][number]
            taken = {each for other in found[place] for each in other.conditions if one.holds(other)}
            columns = columns_of(site, one.patterns)
            known.append(
                {
                    repr(transform(condition, _numbered(columns))): at
                    for at, condition in enumerate(site.conditions)
                    if at not in taken and reads(condition) <= {*columns}
                }
            )
        common = sorted(set[str].intersection(*map(set, known))) if known else []
        for (place, number), own in zip(places, known, strict=True):
            found[place][number] = replace(found[place][number], conditions=tuple(own[each] for each in common))


def _numbered(columns: tuple[str, ...]) -> Callable[[Expression], Expression]:
    def numbered(node: Expression) -> Expression:
        return Var(str(columns.index(node.name))) if isinstance(node, Var) else node

    return numbered
