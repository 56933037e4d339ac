"""Where aggregates may stand, and what a grouped SELECT may use."""

from __future__ import annotations

from cqels.lang.expressions import Aggregate, Constant, Exists, Expression, Var, children, walk
from cqels.model.errors import QueryError


def has_aggregate(expression: Expression) -> bool:
    return any(isinstance(part, Aggregate) for part in walk(expression))


def no_aggregate(
    expression: Expression, message: str = "an aggregate cannot stand here", hint: str | None = None
) -> None:
    for part in walk(expression):
        if isinstance(part, Aggregate):
            raise QueryError(message, span=part.span, hint=hint)


def grouped_only(expression: Expression, allowed: set[str]) -> None:
    match expression:
        case Var(name=name) if name not in allowed:
            raise QueryError(
                f"?{name} is neither grouped by nor inside an aggregate",
                span=expression.span,
                hint=f"add it to GROUP BY, or take for example SAMPLE(?{name})",
            )
        case Exists() | Constant() | Aggregate():
            return
        case _:
            for child in children(expression):
                grouped_only(child, allowed)
