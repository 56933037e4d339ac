"""Expressions of a plan as plain SPARQL text, for another engine to evaluate in its own way."""

from __future__ import annotations

from typing import Protocol

from pyoxigraph import BlankNode, Literal, NamedNode

from cqels.lang.builtins import ARITY, INFIX, PREFIX
from cqels.lang.expressions import Aggregate, Call, Constant, Exists, Expression, Var
from cqels.model.errors import CqelsError
from cqels.model.terms import CQ, Term

_TIME = frozenset({"TIMESTAMP", "GETSTARTTIME", "GETENDTIME", "GETDURATION"})
_STANDARD_AGGREGATES = frozenset({"COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT"})


class NotExpressible(CqelsError):
    """A plan, or a part of one, that has no equal in SPARQL; the message says which."""


class Place(Protocol):
    """Where an expression stands: what its variables are called there, and which graph EXISTS would look at."""

    @property
    def scope(self) -> tuple[str, ...]:
        """The visible variables that the solutions at this place can bind."""
        ...

    @property
    def identity(self) -> tuple[str, ...]:
        """The variables that tell the solutions at this place apart."""
        ...

    def variable(self, name: str) -> str: ...

    def exists(self, node: Exists) -> str: ...


class Words(Protocol):
    """A way to write terms and expressions."""

    blank: NamedNode | None
    """The function that makes a blank node of its label, where labels mean something."""
    opaque: bool
    """True where values are not the engine's: it cannot order them, and no other endpoint can compute them."""

    def term(self, term: Term) -> str: ...

    def value(self, expression: Expression, place: Place) -> str: ...

    def conditions(self, condition: Expression, place: Place) -> list[str]:
        """Texts that all have to hold."""
        ...

    def aggregate(self, node: Aggregate, place: Place) -> str: ...


class NativeWords:
    """SPARQL's own notation."""

    blank: NamedNode | None = None
    opaque = False

    def term(self, term: Term) -> str:
        if isinstance(term, BlankNode):
            raise NotExpressible(f"{term} is a blank node, which a SPARQL query cannot name")
        return str(term)

    def conditions(self, condition: Expression, place: Place) -> list[str]:
        return [self.value(condition, place)]

    def value(self, expression: Expression, place: Place) -> str:
        match expression:
            case Var(name=name):
                return place.variable(name)
            case Constant(term=term):
                return self.term(term)
            case Exists():
                return f"({place.exists(expression)})"
            case Call(name=name, args=args):
                return self._call(name, [self.value(arg, place) for arg in args])
            case Aggregate():
                raise NotExpressible("an aggregate stands outside of a group")

    def _call(self, name: str, args: list[str]) -> str:
        listed = ", ".join(args)
        if name in INFIX:
            return f"({args[0]} {INFIX[name][0]} {args[1]})"
        if name in PREFIX:
            return f"({PREFIX[name]} {args[0]})"
        if name in ("IN", "NOT_IN"):
            return f"({args[0]} {name.replace('_', ' ')} ({', '.join(args[1:])}))"
        if name in _TIME or name.startswith(CQ):
            raise NotExpressible(f"{name} asks for the time of stream elements, which SPARQL does not know")
        if name == "RESOLVE":
            return f"IRI({args[0]})"  # the base is declared before the query
        if name in ARITY:
            return f"{name}({listed})"
        return f"{NamedNode(name)}({listed})"

    def aggregate(self, node: Aggregate, place: Place) -> str:
        if node.name not in _STANDARD_AGGREGATES:
            raise NotExpressible(f"{node.name} is not an aggregate of SPARQL")
        argument = "*" if node.argument is None else self.value(node.argument, place)
        distinct = "DISTINCT " if node.distinct else ""
        separator = f" ; SEPARATOR={Literal(node.separator)}" if node.name == "GROUP_CONCAT" else ""
        return f"{node.name}({distinct}{argument}{separator})"
