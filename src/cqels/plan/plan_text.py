"""Parts of a plan as a person writes them: expressions, triples, paths, windows."""

from __future__ import annotations

from collections.abc import Mapping

from pyoxigraph import NamedNode

from cqels.lang.builtins import ARITY, INFIX, PREFIX
from cqels.lang.expressions import Aggregate, Call, Constant, Exists, Expression, Var, operands_of
from cqels.lang.syntax import All, Choice, Count, Inverse, Link, Negated, Now, Path, Range, Repeat, Steps, Window
from cqels.model.terms import RDF_TYPE
from cqels.model.time import format_duration
from cqels.model.turtle_text import Notation
from cqels.plan.algebra import Node, Triple

_TIGHTEST = 6


class Show:
    """Writes with the prefixes of one query."""

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        self._notation = Notation(prefixes)

    def node(self, node: Node) -> str:
        return str(node) if isinstance(node, Var) else self._notation.term(node)

    def variables(self, names: tuple[str, ...]) -> str:
        return " ".join(str(Var(name)) for name in names)

    def triple(self, triple: Triple) -> str:
        verb = "a" if triple.predicate == RDF_TYPE else self.node(triple.predicate)
        return f"{self.node(triple.subject)} {verb} {self.node(triple.object)}"

    def expression(self, expression: Expression, strength: int = 0) -> str:
        """`strength` is how tightly the operator around it binds: a looser one inside needs brackets."""
        match expression:
            case Var():
                return str(expression)
            case Constant(term=term):
                return self._notation.term(term)
            case Exists(negated=negated):
                return "NOT EXISTS { … }" if negated else "EXISTS { … }"
            case Aggregate():
                return self.aggregate(expression)
            case Call(name="AND" | "OR" as name):
                sign, own = INFIX[name]
                text = f" {sign} ".join(self.expression(each, own + 1) for each in operands_of(expression))
                return f"({text})" if own < strength else text
            case Call(name=name, args=(left, right)) if name in INFIX:
                sign, own = INFIX[name]
                text = f"{self.expression(left, own)} {sign} {self.expression(right, own + 1)}"
                return f"({text})" if own < strength else text
            case Call(name=name, args=(inner,)) if name in PREFIX:
                return PREFIX[name] + self.expression(inner, _TIGHTEST)
            case Call(name="IN" | "NOT_IN" as name, args=(tested, *listed)):
                values = ", ".join(self.expression(each) for each in listed)
                text = f"{self.expression(tested, 4)} {name.replace('_', ' ')} ({values})"
                return f"({text})" if strength > 3 else text
            case Call(name=name, args=args):
                called = name if name in ARITY or ":" not in name else self._notation.term(NamedNode(name))
                return f"{called}({', '.join(self.expression(each) for each in args)})"

    def threshold(self, comparison: Call) -> str:
        """A comparison with what is not said."""
        return f"{self.expression(comparison.args[0])} {INFIX[comparison.name][0]} …"

    def aggregate(self, node: Aggregate) -> str:
        argument = "*" if node.argument is None else self.expression(node.argument)
        separator = f"; separator={node.separator!r}" if node.name == "GROUP_CONCAT" and node.separator != " " else ""
        return f"{node.name}({'DISTINCT ' if node.distinct else ''}{argument}{separator})"

    def path(self, path: Path) -> str:
        match path:
            case Link(iri=iri):
                return self._notation.term(iri)
            case Inverse(path=inner):
                return f"^{self._atom(inner)}"
            case Steps(paths=paths):
                return "/".join(map(self._atom, paths))
            case Choice(paths=paths):
                return "|".join(map(self._atom, paths))
            case Repeat(path=inner, low=low, many=many):
                return self._atom(inner) + ("+" if low else "*" if many else "?")
            case Negated(forward=forward, backward=backward):
                names = [*map(self._notation.term, forward), *(f"^{self._notation.term(iri)}" for iri in backward)]
                return f"!({'|'.join(names)})"

    def _atom(self, path: Path) -> str:
        return f"({self.path(path)})" if isinstance(path, Steps | Choice) else self.path(path)

    def window(self, window: Window) -> str:
        match window:
            case Now():
                return "[NOW]"
            case All():
                return "[ALL]"
            case Range(width=width, slide=slide, time=time):
                parts = [f"RANGE {format_duration(width)}"]
                if slide is not None:
                    parts.append("TUMBLING" if slide == width else f"SLIDE {format_duration(slide)}")
                if time is not None:
                    parts.append(f"@{self._notation.term(time)}")
                return f"[{' '.join(parts)}]"
            case Count(size=size, unit=unit, by=by):
                partition = f"PARTITION BY {self.variables(by)} " if by else ""
                return f"[{partition}{'TRIPLES' if unit != 'elements' else 'ELEMENTS'} {size}]"
