"""Property paths, by the definitions of SPARQL 1.1 §18.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cqels.lang.syntax import Choice, Inverse, Link, Negated, Path, Repeat, Steps
from cqels.model.terms import Term, Triple
from cqels.reference.graphs import StampedGraph
from cqels.reference.solutions import NEVER, Stamp


@dataclass(frozen=True, slots=True)
class Walk:
    """A pair of nodes that a path connects, with the newest stamp and the oldest time of the triples on the way."""

    start: Term
    end: Term
    newest: Stamp = NEVER
    oldest: int | None = None

    def then(self, other: Walk) -> Walk:
        return Walk(self.start, other.end, *_span((self, other)))

    def reversed(self) -> Walk:
        return Walk(self.end, self.start, self.newest, self.oldest)


def _span(walks: Iterable[Walk]) -> tuple[Stamp, int | None]:
    walks = list(walks)
    oldest = [walk.oldest for walk in walks if walk.oldest is not None]
    return max((walk.newest for walk in walks), default=NEVER), min(oldest, default=None)


def walks(
    path: Path, graph: StampedGraph, start: Term | None, end: Term | None, *, events: bool = False
) -> Iterator[Walk]:
    """The bag of pairs connected by the path; a given end restricts them. `events`: every occurrence is told apart."""
    match path:
        case Link(iri=iri):
            for triple in graph.match(start, iri, end):
                yield from _occurrences(graph, triple, events=events)
        case Inverse(path=inner):
            yield from (walk.reversed() for walk in walks(inner, graph, end, start, events=events))
        case Steps(paths=(first,)):
            yield from walks(first, graph, start, end, events=events)
        case Steps(paths=(first, *rest)):
            # a join on a variable between the two: a path of no length leads on only from a node of the graph
            for walk in walks(first, graph, start, None, events=events):
                between = walk.end if graph.has_node(walk.end) else None
                for onward in walks(Steps(tuple(rest)), graph, between, end, events=events):
                    if onward.start == walk.end:
                        yield walk.then(onward)
        case Choice(paths=paths):
            for each in paths:
                yield from walks(each, graph, start, end, events=events)
        case Negated():
            yield from _negated(path, graph, start, end, events=events)
        case Repeat():
            yield from _repeated(path, graph, start, end)


def _occurrences(graph: StampedGraph, triple: Triple, *, events: bool) -> list[Walk]:
    stamps = graph.stamps[triple]
    if not stamps:
        return [Walk(triple[0], triple[2])]
    return [Walk(triple[0], triple[2], stamp, stamp[0]) for stamp in (stamps if events else stamps[-1:])]


def _negated(
    path: Negated, graph: StampedGraph, start: Term | None, end: Term | None, *, events: bool
) -> Iterator[Walk]:
    if path.forward or not path.backward:
        for triple in graph.match(start, None, end):
            if triple[1] not in path.forward:
                yield from _occurrences(graph, triple, events=events)
    if path.backward:
        for triple in graph.match(end, None, start):
            if triple[1] not in path.backward:
                yield from (walk.reversed() for walk in _occurrences(graph, triple, events=events))


def _repeated(path: Repeat, graph: StampedGraph, start: Term | None, end: Term | None) -> Iterator[Walk]:
    """`?`, `*` and `+` give each pair once. Its elements are those of every way between the two."""
    steps = _Steps()
    for step in walks(path.path, graph, None, None):
        steps.add(step)
    nodes: list[Term] = graph.nodes()
    for given in (start, end):
        if given is not None and given not in nodes:
            nodes.append(given)  # the empty path connects any term with itself, in the graph or not
            steps.replace(given, walks(path.path, graph, given, given))
    for node in [start] if start is not None else nodes:
        if start is None and end is not None and path.low == 0 and node == end and node not in graph.nodes():
            yield Walk(node, node)
            continue
        yield from _from(node, path, steps, end)


def _from(node: Term, path: Repeat, steps: _Steps, end: Term | None) -> Iterator[Walk]:
    first = steps.of(node)
    taken = [step for place in steps.reachable(node) for step in steps.of(place)] if path.many else first
    targets = dict.fromkeys(step.end for step in taken)
    if path.low == 0:
        targets = {node: None, **targets}
    for target in targets:
        if end is not None and target != end:
            continue
        if path.many:
            used = [step for step in taken if target in steps.reachable(step.end)]
        else:
            used = [step for step in taken if step.end == target]
        yield Walk(node, target, *_span(used))


class _Steps:
    """The steps that can be repeated, each once, by where they start; and where any number of them leads to."""

    def __init__(self) -> None:
        self._from: dict[Term, dict[Walk, None]] = {}
        self._reachable: dict[Term, dict[Term, None]] = {}

    def add(self, step: Walk) -> None:
        self._from.setdefault(step.start, {})[step] = None

    def replace(self, node: Term, steps: Iterable[Walk]) -> None:
        self._from[node] = dict.fromkeys(steps)

    def of(self, node: Term) -> list[Walk]:
        return list(self._from.get(node, ()))

    def reachable(self, node: Term) -> dict[Term, None]:
        """The nodes that any number of steps leads to, none included. Asked when all steps are there."""
        known = self._reachable.get(node)
        if known is None:
            known = self._reachable[node] = {node: None}
            todo = [node]
            while todo:
                for step in self.of(todo.pop()):
                    if step.end not in known:
                        known[step.end] = None
                        todo.append(step.end)
        return known
