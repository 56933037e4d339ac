"""What the text of a plan depends on beyond single nodes: its names and base, where GRAPH ?g may stand around it."""

from __future__ import annotations

from cqels.lang.expressions import Call, Constant, Exists, Expression, walk
from cqels.plan.algebra import (
    Extend,
    Filter,
    Join,
    PathPattern,
    Plan,
    Static,
    Triples,
    Union,
    Unit,
    Values,
    expressions_of,
    walk_plan,
)
from cqels.plan.scope import certain, reads, variables
from cqels.plan.to_sparql.opaque_expressions import variables_in
from cqels.plan.to_sparql.path_text import repeats


def base_declaration(plan: Plan) -> str:
    """The declaration of the base that IRI() resolves against, if some expression asks for it."""
    for node in walk_plan(plan):
        for expression in expressions_of(node):
            for part in walk(expression):
                match part:
                    case Call(name="RESOLVE", args=(_, Constant(term=base))):
                        return f"BASE {base} "
    return ""


def names_in(plan: Plan) -> set[str]:
    """Every name of a variable written anywhere in the plan, in scope or not."""
    names: set[str] = set()
    for node in walk_plan(plan):
        names.update(variables(node))
        for expression in expressions_of(node):
            names.update(variables_in(expression))
    return names


def has_exists(expression: Expression) -> bool:
    return any(isinstance(node, Exists) for node in walk(expression))


def meets_every_graph(plan: Plan, name: str) -> bool:
    """Whether each solution comes from a triple and nothing in the plan could notice that `name` is bound early."""
    match plan:
        case Triples():
            return True
        case PathPattern(path=path):
            return not repeats(path)
        case Union(inputs=inputs):
            return all(meets_every_graph(each, name) for each in inputs)
        case Join(inputs=inputs):
            others = [each for each in inputs if not isinstance(each, Unit | Values)]
            return bool(others) and all(meets_every_graph(each, name) for each in others)
        case Filter(input=inner, condition=expression) | Extend(input=inner, expression=expression):
            open_to_it = name in variables(inner) or has_exists(expression) or not reads(expression) <= certain(inner)
            return not open_to_it and meets_every_graph(inner, name)
        case Static(input=inner):
            return meets_every_graph(inner, name)
        case _:
            return False
