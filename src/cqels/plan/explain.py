"""A plan shown to a person or a program: as a tree of text, as JSON, as a Mermaid diagram."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cqels.lang.expressions import Exists, walk
from cqels.model.redact import redacted_url
from cqels.plan import algebra
from cqels.plan.algebra import Plan, Query, expressions_of, inputs_of
from cqels.plan.optimizer.rules import rewrite
from cqels.plan.plan_text import Show
from cqels.plan.scope import variables

FORMATS = ("text", "json", "mermaid")


@dataclass(frozen=True, slots=True)
class Explained:
    """A node of a plan in words: what it is, what to know of it, what is below it."""

    operator: str
    text: str
    notes: tuple[tuple[str, str], ...] = ()
    inputs: tuple[Explained, ...] = field(default=())


Notes = Callable[[Plan], Iterable[tuple[str, str]]]
"""What else there is to know of a node."""


def explain(query: Query, format: str = "text", *, rewritten: bool = True, notes: Notes = lambda plan: ()) -> str:
    """The plan that will run, or with `rewritten=False` the plan as the query's text says it.

    `notes` may add to what is said of each node.
    """
    shown = rewrite(query) if rewritten else query
    show = Show({"cq": "http://cqels.org/ns#", **dict(query.prefixes)})
    tree = _Explainer(show, notes).root(shown)
    match format:
        case "json":
            return json.dumps({"query": _facts(query), "plan": _as_json(tree)}, indent=2, ensure_ascii=False)
        case "mermaid":
            return "\n".join(_as_mermaid(tree))
        case "text":
            facts = ", ".join(f"{key} {value}" for key, value in _facts(query).items())
            return "\n".join([f"# {facts}", *_as_text(tree)])
        case other:
            raise ValueError(f"there is no format {other!r}")


def _facts(query: Query) -> dict[str, str]:
    name = {"name": query.name} if query.name else {}
    return {**name, "form": query.form, "emit": query.emit, "policy": query.policy, "dialect": query.dialect}


class _Explainer:
    def __init__(self, show: Show, notes: Notes) -> None:
        self._show = show
        self._notes = notes

    def root(self, query: Query) -> Explained:
        notes = []
        for word, graphs in (("from", query.default_graphs), ("from named", query.named_graphs)):
            if graphs:
                notes.append((word, " ".join(self._show.node(graph) for graph in graphs)))
        match query.form:
            case "construct":
                template = " . ".join(self._show.triple(triple) for triple in query.template)
                text = f"Construct {{ {template} }}"
            case "ask":
                text = "Ask"
            case _:
                text = "Select " + self._show.variables(query.variables)
        return Explained(query.form, text, tuple(notes), (self.node(query.plan),))

    def node(self, plan: Plan) -> Explained:
        text, notes = self._words(plan)
        below = [] if _is_inline(plan) else [self.node(each) for each in inputs_of(plan)]
        for expression in expressions_of(plan):
            for part in walk(expression):
                if isinstance(part, Exists):
                    word = "not exists" if part.negated else "exists"
                    below.append(Explained(word, word.upper(), (), (self.node(part.pattern),)))
        return Explained(type(plan).__name__, text, (*notes, *self._notes(plan)), tuple(below))

    def _words(self, plan: Plan) -> tuple[str, list[tuple[str, str]]]:
        show = self._show
        match plan:
            case algebra.Unit():
                return "Unit", []
            case algebra.Triples() | algebra.PathPattern():
                return f"Match {self._braces(plan)}", []
            case algebra.Values(variables=names, rows=rows):
                return f"Values {show.variables(names)}", [("rows", f"{len(rows):,}")]
            case algebra.Join(inputs=inputs):
                shared = _shared(inputs)
                return f"Join on {show.variables(shared)}" if shared else "Join (every pair)", []
            case algebra.LeftJoin(left=left, right=right, condition=condition):
                shared = _shared((left, right))
                notes = [("if", show.expression(condition))] if condition is not None else []
                return f"LeftJoin on {show.variables(shared)}".strip(), notes
            case algebra.Minus(left=left, right=right):
                return f"Minus on {show.variables(_shared((left, right)))}".strip(), []
            case algebra.Union():
                return "Union", []
            case algebra.Filter(condition=condition):
                return f"Filter {show.expression(condition)}", []
            case algebra.Extend(variable=name, expression=expression):
                return f"Extend {show.variables((name,))} = {show.expression(expression)}", []
            case algebra.Graph(name=name, input=inner):
                return f"Graph {show.node(name)}{self._inline(inner)}", []
            case algebra.Stream():
                return self._stream(plan)
            case algebra.Service(endpoint=endpoint, silent=silent):
                return f"Service <{redacted_url(endpoint.value)}>", [("silent", "yes")] if silent else []
            case algebra.Sequence(kind=kind, optional=optional):
                word = {"seq": "Seq", "equals": "Equals"}[kind]
                return word, [("optional", "yes")] if optional else []
            case algebra.Group(keys=keys, aggregates=aggregates):
                made = ", ".join(f"{show.variables((name,))} = {show.aggregate(node)}" for name, node in aggregates)
                return " ".join(filter(None, ("Aggregate", made, f"by {show.variables(keys)}" if keys else ""))), []
            case algebra.Project(variables=names):
                return f"Project {show.variables(names)}", []
            case algebra.Distinct():
                return "Distinct", []
            case algebra.Narrow():
                return "Narrow to the window of each query", []
            case algebra.Thresholds(comparisons=comparisons):
                return f"Pass the thresholds of each query: {', '.join(map(show.threshold, comparisons))}", []
            case algebra.Reused():
                return "Reused, computed once for all queries that have it", []
            case algebra.OrderBy(keys=keys):
                words = [
                    f"DESC({show.expression(key)})" if descending else show.expression(key) for key, descending in keys
                ]
                return f"OrderBy {', '.join(words)}", []
            case algebra.Slice(offset=offset, limit=limit):
                parts = ([f"offset {offset}"] if offset else []) + ([f"limit {limit}"] if limit is not None else [])
                return f"Slice {' '.join(parts)}", []
            case algebra.Static(input=inner, on=on):
                indexed = f"indexed on {show.variables(on)}" if on else "a single table"
                return f"Static{self._inline(inner)}", [("table", indexed)]
            case _:
                raise AssertionError(f"no plan {plan}")

    def _stream(self, plan: algebra.Stream) -> tuple[str, list[tuple[str, str]]]:
        show = self._show
        sources = " + ".join(
            f"{'every stream' if source.stream is None else show.node(source.stream)} {show.window(source.window)}"
            for source in plan.sources
        )
        notes = [("with graphs", " ".join(show.node(graph) for graph in plan.graphs))] if plan.graphs else []
        at = f" AT ?{plan.at}" if plan.at else ""
        return f"Stream {sources}{at}{self._inline(plan.input)}", notes

    def _inline(self, inner: Plan) -> str:
        return f" {self._braces(inner)}" if _is_simple(inner) else ""

    def _braces(self, plan: Plan) -> str:
        match plan:
            case algebra.Triples(patterns=patterns):
                return f"{{ {' . '.join(self._show.triple(each) for each in patterns)} }}"
            case algebra.PathPattern(subject=subject, path=path, object=target):
                return f"{{ {self._show.node(subject)} {self._show.path(path)} {self._show.node(target)} }}"
            case _:
                raise AssertionError(f"not a pattern: {plan}")


def _is_simple(plan: Plan) -> bool:
    return isinstance(plan, algebra.Triples | algebra.PathPattern)


def _is_inline(plan: Plan) -> bool:
    return isinstance(plan, algebra.Stream | algebra.Static | algebra.Graph) and _is_simple(plan.input)


def _shared(inputs: tuple[Plan, ...]) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for each in inputs:
        for name in variables(each):
            counts[name] = counts.get(name, 0) + 1
    return tuple(name for name, number in counts.items() if number > 1)


def _as_text(node: Explained, depth: int = 0) -> Iterator[str]:
    notes = "".join(f"   {key}: {value}" for key, value in node.notes)
    yield "  " * depth + node.text + notes
    for each in node.inputs:
        yield from _as_text(each, depth + 1)


def _as_json(node: Explained) -> dict[str, Any]:
    return {
        "operator": node.operator,
        "text": node.text,
        **{key.replace(" ", "_"): value for key, value in node.notes},
        "inputs": [_as_json(each) for each in node.inputs],
    }


def _as_mermaid(tree: Explained) -> Iterator[str]:
    """Data flows upwards, as in the papers' figures: from the windows and tables to the result."""
    yield "flowchart BT"
    number = 0

    def lines(node: Explained, parent: int | None) -> Iterator[str]:
        nonlocal number
        own, number = number, number + 1
        words = "<br/>".join([node.text, *(f"{key}: {value}" for key, value in node.notes)])
        safe = words.replace("&", "&amp;").replace('"', "&quot;").replace("<br/>", "\0")
        safe = safe.replace("<", "&lt;").replace(">", "&gt;").replace("\0", "<br/>")
        shape = {"Stream": ("([", "])"), "Static": ("[(", ")]")}.get(node.operator, ("[", "]"))
        yield f'  n{own}{shape[0]}"{safe}"{shape[1]}'
        if parent is not None:
            yield f"  n{own} --> n{parent}"
        for each in node.inputs:
            yield from lines(each, own)

    yield from lines(tree, None)
